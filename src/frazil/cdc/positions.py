"""Places in the log of a source, as texts that sort as the log does."""

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
    """The place in the source's log as text that sorts as the log does; None where the source tells none.

    PostgreSQL: the LSN; SQL Server: LSNs of commit and change; Oracle: the SCN; MySQL: binlog file, position and row.
    """
    spelt = {name: padded(array) for name, array in _told(fields).items()}
    found: list[pa.Array] = []
    for names in (
        ("commit_lsn", "change_lsn", "event_serial_no"),
        ("lsn",),
        ("scn",),
        ("file", "pos", "row"),
    ):
        if names[0] in spelt:
            # Rows of a snapshot may have the first part alone: they come before all changes there.
            others = [pc.fill_null(spelt.get(name, _NO_PART), _NO_PART) for name in names[1:]]
            found.append(pc.binary_join_element_wise(spelt[names[0]], *others, "/") if others else spelt[names[0]])
    return pc.coalesce(*found) if found else None


_ORDERED: tuple[tuple[str, ...], ...] = (
    ("commit_lsn", "change_lsn", "event_serial_no"),
    ("lsn",),
    ("scn",),
    ("file", "pos"),
)


def format_source_order(fields: Mapping[str, pa.Array | None], total_order: pa.Array | None) -> pa.Array | None:
    """A change's place among all of its source, as text that sorts as they happened; None where the source tells no place.

    The place in the log, then the place in the transaction: changes of one transaction may share a place, as of Oracle
    under one SCN and of MySQL in a compressed transaction, where rows count anew in each event. What one change lacks is
    spelt as nothing or zero, so that a text says the same whatever is read beside it.
    """
    told = _told(fields)
    if "file" in told:
        told["file"] = _numbered(told["file"])
    found = [_joined(told, names) for names in _ORDERED if names[0] in told]
    if not found:
        return None
    place = pc.coalesce(*found)
    counts = [_counted(array, len(place)) for array in (total_order, told.get("row"))]
    return pc.binary_join_element_wise(place, *counts, "/")


_READ = r"^(?P<place>.*)/r(?P<partition>[0-9]+)$"


def mark_read(places: pa.Array, is_read: pa.Array, partitions: pa.Array) -> pa.Array:
    """The places, those of rows of snapshots with a mark at their end: the partition in which they came. What a transaction
    that was open then has changed has an older place, and comes behind them there.
    """
    marked = pc.binary_join_element_wise(
        places, pc.binary_join_element_wise("r", partitions.cast(pa.string()), ""), "/"
    )
    return pc.if_else(is_read, marked, places)


def split_read(places: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """The places without their marks, and the partition of each mark, -1 where there is none."""
    if not pc.any(pc.match_substring(places, "/r")).as_py():
        return places, np.full(len(places), -1)
    parts = pc.extract_regex(places, _READ)
    bare = pc.coalesce(pc.struct_field(parts, "place"), places)
    partitions = pc.struct_field(parts, "partition").cast(pa.int64())
    return bare, np.asarray(pc.fill_null(partitions, -1))


def _told(fields: Mapping[str, pa.Array | None]) -> dict[str, pa.Array]:
    """What is there; of rows that an incremental snapshot of PostgreSQL has read, the LSN is the last one in `sequence`."""
    told = {name: array for name, array in fields.items() if array is not None}
    sequence, own = told.pop("sequence", None), told.get("lsn")
    if sequence is None or not pa.types.is_string(sequence.type) or not (own is None or own.null_count):
        return told
    last = padded(pc.struct_field(pc.extract_regex(sequence, _LSN_OF_SEQUENCE), "lsn"))
    if last.null_count < len(last):
        told["lsn"] = last if own is None else pc.coalesce(padded(own), last)
    return told


def _joined(told: Mapping[str, pa.Array], names: tuple[str, ...]) -> pa.Array:
    first = padded(told[names[0]])
    others = [pc.fill_null(padded(told[name]), "") if name in told else "" for name in names[1:]]
    return pc.binary_join_element_wise(first, *others, "/") if others else first


def _counted(numbers: pa.Array | None, rows: int) -> pa.Array:
    """Whole numbers with all their zeros; those that are not there as zero."""
    if numbers is None:
        return pa.repeat(pa.scalar("0" * _DIGITS), rows)
    return pc.fill_null(padded(numbers), "0" * _DIGITS)


def _numbered(files: pa.Array) -> pa.Array:
    """Names of binlog files with their numbers filled up, as a server that has written a million needs a digit more."""
    parts = pc.extract_regex(files, r"^(?P<name>.*[.])(?P<number>[0-9]+)$")
    number = pc.utf8_lpad(pc.struct_field(parts, "number"), _DIGITS, "0")
    return pc.coalesce(pc.binary_join_element_wise(pc.struct_field(parts, "name"), number, ""), files)


def padded(array: pa.Array) -> pa.Array:
    """Numbers, and texts that are numbers, with all their zeros; other texts as they are."""
    if pa.types.is_string(array.type):
        is_number = pc.fill_null(pc.match_substring_regex(array, "^[0-9]+$"), False)
        return pc.if_else(is_number, pc.utf8_lpad(array, _DIGITS, "0"), array)
    return pc.utf8_lpad(array.cast(pa.string()), _DIGITS, "0")


FACT_TYPES = {name: LongType() for name in ("lsn", "pos", "row", "event_serial_no", "txId")}
"""Types of what a change's `source` tells of its place that are no texts."""
