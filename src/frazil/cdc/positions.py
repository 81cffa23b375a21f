"""The origin of a change, read in one way from Debezium's envelopes in every format.

It is the position in the log of the source, as a text that sorts as the log does; the transaction, the times, and the
database, schema and table.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.schema.arrow import Ints
from frazil.schema.selection import Path

POSITION_FIELDS = ("lsn", "commit_lsn", "change_lsn", "event_serial_no", "scn", "file", "pos", "row", "sequence")
_DIGITS = 20
_NO_PART = "0" * _DIGITS
_LSN_OF_SEQUENCE = r'"(?P<lsn>[0-9]+)"\s*\]$'


def format_position(fields: Mapping[str, pa.Array | None]) -> pa.Array | None:
    """Returns the position in the source's log as text that sorts as the log does; None where the source gives none.

    PostgreSQL: the LSN; SQL Server: LSNs of commit and change; Oracle: the SCN; MySQL: binlog file, position and row.
    """
    # Rows of a snapshot may have the first part alone: they come before all changes there.
    return _joined(_present(fields), (*_PARTS, ("file", "pos", "row")), _NO_PART)


_PARTS: tuple[tuple[str, ...], ...] = (("commit_lsn", "change_lsn", "event_serial_no"), ("lsn",), ("scn",))


def format_source_order(fields: Mapping[str, pa.Array | None], total_order: pa.Array | None) -> pa.Array | None:
    """Returns a change's position among all changes of its source, as text that sorts as they happened; None where the
    source gives no position.

    The position in the log, then the position in the transaction: changes of one transaction may share a log position,
    as in Oracle under one SCN, or in MySQL in a compressed transaction, where rows are counted from zero in each event.
    A missing part is empty or zero, so that a text does not depend on the other records read with it.
    """
    present = _present(fields)
    if "file" in present:
        # A server that has written a million binlog files needs a seventh digit in their numbers.
        files = present["file"]
        parts = pc.extract_regex(files, r"^(?P<name>.*[.])(?P<number>[0-9]+)$")
        number = pc.utf8_lpad(pc.struct_field(parts, "number"), _DIGITS, "0")
        present["file"] = pc.coalesce(pc.binary_join_element_wise(pc.struct_field(parts, "name"), number, ""), files)
    place = _joined(present, (*_PARTS, ("file", "pos")), "")
    if place is None:
        return None
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


def split_snapshot_marks(places: pa.Array) -> tuple[pa.Array, Ints]:
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


def _joined(present: Mapping[str, pa.Array], many: Iterable[tuple[str, ...]], missing: str) -> pa.Array | None:
    """Returns the first position that is present, of several lists of its parts. missing: the text of a missing part."""
    positions = []
    for first, *others in many:
        if first in present:
            parts = [
                pc.fill_null(pad_number(present[name]), missing) if name in present else missing for name in others
            ]
            positions.append(pc.binary_join_element_wise(pad_number(present[first]), *parts, "/"))
    return pc.coalesce(*positions) if positions else None


def _pad_count(numbers: pa.Array | None, rows: int) -> pa.Array:
    """Returns integers padded with zeros; absent ones as zero."""
    if numbers is None:
        return pa.repeat(pa.scalar(_NO_PART), rows)
    return pc.fill_null(pad_number(numbers), _NO_PART)


def pad_number(array: pa.Array) -> pa.Array:
    """Returns numbers, and texts that are numbers, padded with zeros; other texts unchanged."""
    if pa.types.is_string(array.type):
        is_number = pc.fill_null(pc.match_substring_regex(array, "^-?[0-9]+$"), False)
        return pc.if_else(is_number, pc.utf8_lpad(array, _DIGITS, "0"), array)
    return pc.utf8_lpad(array.cast(pa.string()), _DIGITS, "0")


NUMBERS = ("lsn", "pos", "row", "event_serial_no", "txId")
"""The position fields of `source` that are numbers; others are texts."""


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
    positions = []
    others = format_position({name: array for name, array in fields.items() if name not in ("lsn", "scn", "sequence")})
    if others is not None:
        positions.append(others)
    sequence, own = fields.get("sequence"), fields.get("lsn")
    if sequence is not None and own is not None:
        commit = pc.struct_field(pc.extract_regex(sequence, _COMMIT_OF_SEQUENCE), "commit")
        positions.append(pc.binary_join_element_wise(pad_number(commit), pad_number(own), "/"))
    return pc.coalesce(*positions) if positions else None


def format_transaction(fields: Fields) -> pa.Array | None:
    """Returns the transaction id of the source itself: PostgreSQL's number, MySQL's GTID, SQL Server's LSN of the
    commit; None where the source has none.
    """
    ids = [
        array.cast(pa.string()) for name in ("txId", "gtid", "commit_lsn") if (array := fields.get(name)) is not None
    ]
    return pc.coalesce(*ids) if ids else None


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
_FLAT_ORIGINS: Mapping[str, tuple[str, ...]] = {
    fact: tuple(f"{prefix}{name}" for prefix in ("__source_", "__") for name in names)
    for fact, names in ORIGINS.items()
}
"""The names that Debezium's unwrap transform gives them in a row (`add.fields`), the longer name first."""
IN_MESSAGES: Mapping[str, str] = {"source_database": "database", "source_table": "table"}
"""The members of Canal's messages."""
_UNITS = ("us", "ms")
_TIMES: Mapping[str, Path] = {"source_ts": ("source",), "connector_ts": ()}
_FLAT_TIMES = {"source_ts": "__source_", "connector_ts": "__"}
"""The prefix of the names that the unwrap transform gives these times."""
_MEMBERS: Mapping[str, Path] = {
    "transaction_id": ("transaction", "id"),
    "total_order": ("transaction", "total_order"),
    "collection_order": ("transaction", "data_collection_order"),
    "connector": ("source", "connector"),
}
_OF_SOURCE: Mapping[str, tuple[str, ...]] = {
    "source_ts": ("ts_ms", "ts_us"),
    "connector": ("connector",),
    "position": POSITION_FIELDS,
    "source_order": POSITION_FIELDS,
    "commit_place": ORDER_FIELDS,
    **ORIGINS,
}


def source_fields(requested: Collection[str]) -> tuple[str, ...]:
    """Returns the members of `source` that the requested values of changes are made of."""
    return tuple(dict.fromkeys(name for fact, names in _OF_SOURCE.items() if fact in requested for name in names))


def flat_fields(requested: Collection[str]) -> tuple[str, ...]:
    """Returns the fields that the unwrap transform added to rows, of which the requested values of changes are made."""
    times = (f"{_FLAT_TIMES[fact]}ts_{unit}" for fact in _FLAT_TIMES if fact in requested for unit in _UNITS)
    origins = (name for fact, names in _FLAT_ORIGINS.items() if fact in requested for name in names)
    return (*times, *origins)


class EnvelopeValues(Protocol):
    """The values of Debezium's envelopes other than the images, in one message format. An array has a value per record;
    None where no record has the value.
    """

    def member(self, path: Path) -> pa.Array | None:
        """Returns the values at a path of the envelope."""

    def time(self, path: Path, unit: str) -> pa.Array | None:
        """Returns the numbers at a path, which count `unit`, in microseconds since 1970: int64."""

    def flat_member(self, name: str) -> pa.Array | None:
        """Returns the values of a field that the unwrap transform added to a row."""

    def flat_time(self, name: str, unit: str) -> pa.Array | None:
        """Returns a time that the unwrap transform added to a row, as `time` does."""


def facts_of(values: EnvelopeValues, requested: Collection[str]) -> dict[str, pa.Array]:
    """Returns the requested values of changes other than the images, as far as the records have them."""
    facts = {fact: _moments(values, fact) for fact in _TIMES if fact in requested}
    facts |= {fact: values.member(path) for fact, path in _MEMBERS.items() if fact in requested}
    if "position" in requested or "source_order" in requested:
        position_fields = {name: values.member(("source", name)) for name in POSITION_FIELDS}
        facts["position"] = format_position(position_fields)
        if "source_order" in requested:
            facts["source_order"] = format_source_order(position_fields, values.member(_MEMBERS["total_order"]))
    if "commit_place" in requested:
        order = {name: values.member(("source", name)) for name in ORDER_FIELDS}
        facts |= {"commit_place": format_commit_position(order), "source_transaction": format_transaction(order)}
    for fact, names in ORIGINS.items():
        if fact in requested:
            texts = [values.member(("source", name)) for name in names]
            facts[fact] = _first_text([*texts, *(values.flat_member(name) for name in _FLAT_ORIGINS[fact])])
    return {name: array for name, array in facts.items() if array is not None and name in requested}


def _moments(values: EnvelopeValues, fact: str) -> pa.Array | None:
    """Returns times, in microseconds where the records have them; None where there are no numbers."""
    times = [values.time((*_TIMES[fact], f"ts_{unit}"), unit) for unit in _UNITS]
    times += [values.flat_time(f"{_FLAT_TIMES[fact]}ts_{unit}", unit) for unit in _UNITS]
    present = [time for time in times if time is not None]
    return pc.coalesce(*present).cast(pa.timestamp("us", tz="UTC")) if present else None


def _first_text(candidates: Iterable[pa.Array | None]) -> pa.Array | None:
    """Returns the first text that is present. Protobuf has the empty text for an absent one."""
    texts = [array for array in candidates if array is not None and pa.types.is_string(array.type)]
    return pc.coalesce(*(pc.if_else(pc.equal(text, ""), None, text) for text in texts)) if texts else None
