"""Where a change comes from: its position in the log of its source, as a text that sorts as the log does; its transaction;
and its database, schema and table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

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


ORDER_FIELDS = (
    "lsn", "commit_lsn", "change_lsn", "event_serial_no", "file", "pos", "row", "sequence", "txId", "gtid",
)  # fmt: skip
"""The members of a change's `source` that give its transaction and its position."""
_COMMIT_OF_SEQUENCE = r'^\[\s*(?:null|"(?P<commit>[0-9]+)")\s*,'
# PostgreSQL's connector appends the position of each change to the transaction's id.
_PLACE_BEHIND = r"^([0-9]+):[0-9]+$"

Fields = Mapping[str, pa.Array | None]


def format_commit_position(fields: Fields) -> pa.Array | None:
    """Returns the position in the order of commits, as text that sorts so: greater for a transaction than for every
    earlier one. Null where the source gives none.

    PostgreSQL interleaves the changes of concurrent transactions, so there the last commit before the transaction (in
    Debezium's `sequence`) comes first. The logs of other databases are in commit order; Oracle's is not.
    """
    found = []
    others = format_position({name: array for name, array in fields.items() if name not in ("lsn", "scn", "sequence")})
    if others is not None:
        found.append(others)
    sequence, own = fields.get("sequence"), fields.get("lsn")
    if sequence is not None and own is not None:
        commit = pc.struct_field(pc.extract_regex(sequence, _COMMIT_OF_SEQUENCE), "commit")
        found.append(pc.binary_join_element_wise(pad_number(commit), pad_number(own), "/"))
    return pc.coalesce(*found) if found else None


def format_transaction(fields: Fields) -> pa.Array | None:
    """Returns the transaction id of the source itself: PostgreSQL's number, MySQL's GTID, SQL Server's LSN of the
    commit; None where the source has none.
    """
    found = [
        array.cast(pa.string()) for name in ("txId", "gtid", "commit_lsn") if (array := fields.get(name)) is not None
    ]
    return pc.coalesce(*found) if found else None


def normalize_ids(ids: pa.Array) -> pa.Array:
    """Returns Debezium's transaction ids with the same id for all changes of a transaction."""
    return pc.replace_substring_regex(ids, _PLACE_BEHIND, r"\1")


def normalize_id(text: str) -> str:
    """Returns a single id in the same form."""
    return re.sub(_PLACE_BEHIND, r"\1", text)


ORIGINS: Mapping[str, tuple[str, ...]] = {
    "source_database": ("db", "keyspace_name", "keyspace"),
    "source_schema": ("schema",),
    "source_table": ("table", "collection", "table_name"),
}
"""The members of a Debezium envelope's `source`, by field of `metadata`; each envelope has one of them: MongoDB has
collections.
"""
IN_SOURCE = tuple(name for names in ORIGINS.values() for name in names)
FLAT_ORIGINS: Mapping[str, tuple[str, ...]] = {
    fact: tuple(f"{prefix}{name}" for prefix in ("__source_", "__") for name in names)
    for fact, names in ORIGINS.items()
}
"""The names that Debezium's unwrap transform gives them in a row (`add.fields`), the longer name first."""
IN_MESSAGES: Mapping[str, str] = {"source_database": "database", "source_table": "table"}
"""The members of Canal's messages."""


def origins_of(requested: Collection[str], text_of: Callable[[str], pa.Array | None]) -> dict[str, pa.Array]:
    """Returns the requested origins of changes. text_of: returns the texts of a member of `source`; None where no record
    has it.
    """
    return _first_of({fact: names for fact, names in ORIGINS.items() if fact in requested}, text_of)


def flat_origins_of(requested: Collection[str], text_of: Callable[[str], pa.Array | None]) -> dict[str, pa.Array]:
    """Returns the requested origins of rows that were unwrapped. text_of: returns the texts of a field of the row."""
    return _first_of({fact: names for fact, names in FLAT_ORIGINS.items() if fact in requested}, text_of)


def _first_of(named: Mapping[str, tuple[str, ...]], text_of: Callable[[str], pa.Array | None]) -> dict[str, pa.Array]:
    """Returns the first text that is present, for each origin. Protobuf has the empty text for an absent one."""
    found = {}
    for fact, names in named.items():
        first_text = [
            array for name in names if (array := text_of(name)) is not None and pa.types.is_string(array.type)
        ]
        if first_text:
            found[fact] = pc.coalesce(*(pc.if_else(pc.equal(one, ""), None, one) for one in first_text))
    return found
