"""Positions in the log of a source, as texts that sort as the log does."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import LongType

POSITION_FIELDS = ("lsn", "commit_lsn", "change_lsn", "event_serial_no", "scn", "file", "pos", "row", "sequence")
_DIGITS = 20
_NO_PART = pa.scalar("0" * _DIGITS)
_LSN_OF_SEQUENCE = r'"(?P<lsn>[0-9]+)"\s*\]$'


def format_position(fields: Mapping[str, pa.Array | None]) -> pa.Array | None:
    """Returns the position in the source's log as text that sorts as the log does; None where the source gives none.

    PostgreSQL: the LSN; SQL Server: LSNs of commit and change; Oracle: the SCN; MySQL: binlog file, position and row.
    """
    formatted = {name: pad_number(array) for name, array in _present(fields).items()}
    found: list[pa.Array] = []
    for names in (
        ("commit_lsn", "change_lsn", "event_serial_no"),
        ("lsn",),
        ("scn",),
        ("file", "pos", "row"),
    ):
        if names[0] in formatted:
            # Rows of a snapshot may have the first part alone: they come before all changes there.
            others = [pc.fill_null(formatted.get(name, _NO_PART), _NO_PART) for name in names[1:]]
            found.append(
                pc.binary_join_element_wise(formatted[names[0]], *others, "/") if others else formatted[names[0]]
            )
    return pc.coalesce(*found) if found else None


_ORDERED: tuple[tuple[str, ...], ...] = (
    ("commit_lsn", "change_lsn", "event_serial_no"),
    ("lsn",),
    ("scn",),
    ("file", "pos"),
)


def format_source_order(fields: Mapping[str, pa.Array | None], total_order: pa.Array | None) -> pa.Array | None:
    """Returns a change's position among all changes of its source, as text that sorts as they happened; None where the
    source gives no position.

    The position in the log, then the position in the transaction: changes of one transaction may share a log position,
    as in Oracle under one SCN, or in MySQL in a compressed transaction, where rows are counted from zero in each event.
    A missing part is empty or zero, so that a text does not depend on the other records read with it.
    """
    present = _present(fields)
    if "file" in present:
        present["file"] = _pad_file_number(present["file"])
    found = [_join(present, names) for names in _ORDERED if names[0] in present]
    if not found:
        return None
    place = pc.coalesce(*found)
    counts = [_pad_count(array, len(place)) for array in (total_order, present.get("row"))]
    return pc.binary_join_element_wise(place, *counts, "/")


_READ = r"^(?P<place>.*)/r(?P<partition>[0-9]+)$"


def mark_snapshot_rows(places: pa.Array, is_read: pa.Array, partitions: pa.Array) -> pa.Array:
    """Returns the positions, with a mark at the end of those of snapshot rows: the partition of the record. A
    transaction that was open at that time has changes with an older position, which come behind them in that partition.
    """
    marked = pc.binary_join_element_wise(
        places, pc.binary_join_element_wise("r", partitions.cast(pa.string()), ""), "/"
    )
    return pc.if_else(is_read, marked, places)


def split_snapshot_marks(places: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """Returns the positions without their marks, and the partition of each mark, -1 where there is none: int64 of shape
    (n_changes,).
    """
    if not pc.any(pc.match_substring(places, "/r")).as_py():
        return places, np.full(len(places), -1)
    parts = pc.extract_regex(places, _READ)
    unmarked = pc.coalesce(pc.struct_field(parts, "place"), places)
    partitions = pc.struct_field(parts, "partition").cast(pa.int64())
    return unmarked, np.asarray(pc.fill_null(partitions, -1))


def _present(fields: Mapping[str, pa.Array | None]) -> dict[str, pa.Array]:
    """Returns the fields that are present; of rows that an incremental snapshot of PostgreSQL read, the LSN is the last
    one in `sequence`.
    """
    present = {name: array for name, array in fields.items() if array is not None}
    sequence, own = present.pop("sequence", None), present.get("lsn")
    if sequence is None or not pa.types.is_string(sequence.type) or not (own is None or own.null_count):
        return present
    last = pad_number(pc.struct_field(pc.extract_regex(sequence, _LSN_OF_SEQUENCE), "lsn"))
    if last.null_count < len(last):
        present["lsn"] = last if own is None else pc.coalesce(pad_number(own), last)
    return present


def _join(present: Mapping[str, pa.Array], names: tuple[str, ...]) -> pa.Array:
    first = pad_number(present[names[0]])
    others = [pc.fill_null(pad_number(present[name]), "") if name in present else "" for name in names[1:]]
    return pc.binary_join_element_wise(first, *others, "/") if others else first


def _pad_count(numbers: pa.Array | None, rows: int) -> pa.Array:
    """Returns integers padded with zeros; absent ones as zero."""
    if numbers is None:
        return pa.repeat(pa.scalar("0" * _DIGITS), rows)
    return pc.fill_null(pad_number(numbers), "0" * _DIGITS)


def _pad_file_number(files: pa.Array) -> pa.Array:
    """Returns names of binlog files with padded numbers, as a server that has written a million files needs a seventh
    digit.
    """
    parts = pc.extract_regex(files, r"^(?P<name>.*[.])(?P<number>[0-9]+)$")
    number = pc.utf8_lpad(pc.struct_field(parts, "number"), _DIGITS, "0")
    return pc.coalesce(pc.binary_join_element_wise(pc.struct_field(parts, "name"), number, ""), files)


def pad_number(array: pa.Array) -> pa.Array:
    """Returns numbers, and texts that are numbers, padded with zeros; other texts unchanged."""
    if pa.types.is_string(array.type):
        is_number = pc.fill_null(pc.match_substring_regex(array, "^[0-9]+$"), False)
        return pc.if_else(is_number, pc.utf8_lpad(array, _DIGITS, "0"), array)
    return pc.utf8_lpad(array.cast(pa.string()), _DIGITS, "0")


FACT_TYPES = {name: LongType() for name in ("lsn", "pos", "row", "event_serial_no", "txId")}
"""The types of position fields of `source` that are no texts."""
