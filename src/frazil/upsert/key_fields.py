"""Which fields the keys of wrapped changes have: the columns of the primary key that the source's table has right now.

A table may get another one. From then on its changes say nothing of the rows by the former key, so a mirror that went on by
that would lose rows and keep others, without a word. What is compared are names, once for each set of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.cdc.document_ids import ID
from frazil.cdc.json_members import either
from frazil.cdc.maxwell_keys import PRIMARY
from frazil.decode.columns import Mismatch
from frazil.decode.json import scan
from frazil.decode.json.grammar import ABSENT, ARRAY, NULL, OBJECT
from frazil.decode.json.records import JsonOptions, spell_out, texts_of, unreadable, whole_slices
from frazil.decode.json.slices import Slices, Texts, elements_of, take_all, take_keys
from frazil.decode.protobuf.wire_format import split_message_indexes
from frazil.decode.settings import Reading, WriterSchema
from frazil.decode.wire_format import group_rows, guids_of, split_frames, take_bodies
from frazil.registry.port import UnusableSchema
from frazil.rows.record_keys import KEY_SCHEMA, is_record
from frazil.rows.writer_schemas import LATEST, struct_of
from frazil.upsert.changes import TRUNCATE, Changes
from frazil.upsert.key_names import name_columns, places_of
from frazil.upsert.live_rows import has_column
from frazil.write.target import TableTarget

Bools = NDArray[np.bool_]
_MOST_TOLD_APART = 62
"""So many names are told apart, each by a bit; all others share one, as the first of them."""
_NO_KEY = "the record has no key, as of a source's table without a primary key: name the table's `key_columns`"
_OTHER = (
    "the fields of the record's key are {}, and the table's rows are identified by {}: name the table's `key_columns`"
)


@dataclass(frozen=True)
class KeyFields:
    """codes: per record the place of its key's fields in `names`; -1 where there is no key with fields that can be read.
    lacks: which records have no key at all. missing: ids of schemas that are not known yet.
    """

    codes: NDArray[np.int64]
    lacks: Bools
    names: Sequence[tuple[str, ...]] = ()
    missing: frozenset[str] = frozenset()


def check_key_fields(target: TableTarget, records: Mapping[str, pa.Array], changes: Changes, limit: int) -> Changes:
    """Refuses the changes, and the tombstones, of records whose key has other fields than the table's key columns, where the
    records' keys tell these.
    """
    if not _is_checked(target):
        return changes
    is_change = np.zeros(changes.decoded.refused.size, np.bool_)
    is_change[changes.records[changes.ops != TRUNCATE]] = True
    is_named = is_change if changes.tombstones is None else is_change | changes.tombstones
    found = find_key_fields(target, records)
    reasons = [_difference(target, names) for names in found.names]
    differs = np.array([bool(reason) for reason in reasons] + [False])[found.codes]  # The last one is that of -1.
    refused = changes.decoded.refused
    rows = np.flatnonzero(((differs & is_named) | (found.lacks & is_change)) & ~refused)
    if not (rows.size or found.missing):
        return changes
    refused = refused.copy()
    refused[rows] = True
    mismatches = list(changes.decoded.mismatches)
    for row in rows[:limit].tolist():
        kind, reason = ("no_key", _NO_KEY) if found.lacks[row] else ("key_mismatch", reasons[found.codes[row]])
        mismatches.append(Mismatch(row, "", kind, reason))
    in_order = sorted(mismatches, key=lambda mismatch: mismatch.row)[:limit]
    missing = changes.decoded.missing | found.missing
    decoded = replace(changes.decoded, refused=refused, mismatches=in_order, missing=missing)
    return _without_tombstones(replace(changes, decoded=decoded), refused)


def first_alike(target: TableTarget, records: Mapping[str, pa.Array], has_key: Bools) -> Bools:
    """The records with a key without those whose key has other fields than the first one: it decides what the table's key
    is.
    """
    if target.envelope is not None and target.envelope.names_keys:
        return has_key
    found = find_key_fields(target, records)
    has_fields = np.array([bool(names) for names in found.names] + [False])[found.codes]
    rows = np.flatnonzero(has_key & has_fields)
    if found.missing or not rows.size:
        return has_key
    return np.asarray(has_key & (~has_fields | (found.codes == found.codes[rows[0]])), np.bool_)


def _is_checked(target: TableTarget) -> bool:
    changes = target.changes
    if target.envelope is None or target.envelope.names_keys or changes is None:
        return False
    if not changes.is_key_of_record or not all(has_column(target, path) for path in changes.paths):
        return False
    # Documents are told by their `_id`, which their records' keys call otherwise.
    return all(field[0] != ID for field, *_ in places_of(target, changes).values())


def _difference(target: TableTarget, names: Sequence[str]) -> str:
    """What is to be said of keys with these fields; nothing where they are those of the key columns."""
    changes = target.changes
    assert changes is not None
    known = {field[0] for field, *_ in places_of(target, changes).values()}
    columns = name_columns(target, [(name,) for name in names])
    if set(names) == known or set(columns) == set(changes.key_columns):
        return ""
    return _OTHER.format(", ".join(columns) or "none", ", ".join(changes.key_columns))


def _without_tombstones(changes: Changes, refused: Bools) -> Changes:
    """Those of the records that are refused are not passed over."""
    if changes.tombstones is None or not (changes.tombstones & refused).any():
        return changes
    count = int(np.count_nonzero(changes.tombstones & refused))
    left = {word: n - (count if word == "tombstone" else 0) for word, n in changes.ignored_records.items()}
    ignored_records = {word: n for word, n in left.items() if n}
    return replace(changes, tombstones=changes.tombstones & ~refused, ignored_records=ignored_records)


def find_key_fields(target: TableTarget, records: Mapping[str, pa.Array]) -> KeyFields:
    """The fields of these records' keys, Maxwell's without those that name the table."""
    changes = target.changes
    assert changes is not None
    if changes.key.format == "json":
        return _of_texts(records["key"], target.envelope is not None and target.envelope.kind == "maxwell")
    if changes.key.format in ("avro", "json_schema", "protobuf"):
        return _of_schemas(changes.key, records)
    return KeyFields(np.full(len(records["key"]), -1), np.asarray(records["key"].is_null()))


# ---- keys that name a schema


def _of_schemas(reading: Reading, records: Mapping[str, pa.Array]) -> KeyFields:
    codes, missing = np.full(len(records["key"]), -1), set()
    found: dict[tuple[str, ...], int] = {}
    for schema_id, rows in _groups(reading, records):
        schema = reading.schema(schema_id)
        if schema is None:
            missing.add(KEY_SCHEMA + schema_id)
            continue
        for message, mine in _messages(reading, schema, records["key"], rows):
            names = _fields_of(reading, schema, message)
            if names:
                codes[mine] = found.setdefault(names, len(found))
    return KeyFields(codes, np.asarray(records["key"].is_null()), list(found), frozenset(missing))


def _groups(reading: Reading, records: Mapping[str, pa.Array]) -> Iterator[tuple[str, NDArray[np.int32]]]:
    """The records of each schema."""
    keys = records["key"]
    if reading.framing != "none":
        for number, rows in group_rows(split_frames(keys, reading.framing).ids):
            yield str(number), rows
    elif reading.is_by_header:
        named = guids_of(records["headers"], reading.header)
        for code, one in enumerate(named.found):
            if one.fault is None:
                yield one.guid or str(one.id), np.flatnonzero(named.codes == code).astype(np.int32)
    else:
        yield LATEST, np.flatnonzero(np.asarray(keys.is_valid())).astype(np.int32)


def _messages(
    reading: Reading, schema: WriterSchema, keys: pa.BinaryArray, rows: NDArray[np.int32]
) -> Iterator[tuple[str | tuple[int, ...], NDArray[np.int32]]]:
    """The records of each message of a schema: of Protobuf's it has several, and each record says which one it is."""
    if schema.kind != "protobuf" or reading.message:
        yield reading.message or "", rows
    elif reading.framing != "none":
        indexed = split_message_indexes(take_bodies(split_frames(keys, reading.framing).bodies, rows))
        for code, indexes in enumerate(indexed.paths):
            yield indexes, rows[indexed.path == code]


def _fields_of(reading: Reading, schema: WriterSchema, message: str | tuple[int, ...]) -> tuple[str, ...]:
    """The fields that a schema describes; none of one that describes no record, or that nobody can use."""
    if schema.kind != reading.format or not is_record(schema):
        return ()
    try:
        return tuple(field.name for field in struct_of(schema, message).fields)
    except UnusableSchema:  # Its records are bad ones, where their keys are read.
        return ()


# ---- keys in JSON


def _of_texts(keys: pa.BinaryArray, is_maxwell: bool, is_spelt: bool = False) -> KeyFields:
    texts, whole, error = texts_of(keys, JsonOptions("drop"), is_spelt), whole_slices(keys), unreadable(keys)
    scan.scan_any(texts.base, whole.start, whole.end, whole.kind, error, texts.stack)
    whole = replace(whole, kind=np.where(error == scan.OK, whole.kind, ABSENT).astype(np.uint8))
    bits = np.zeros(len(keys), np.int64)
    names: list[str] = []
    inner = _unwrapped(texts, keys, whole, error)
    objects, lacks = inner.only(OBJECT), np.asarray(keys.is_null()) | (inner.kind == NULL)
    has_fields = objects.kind == OBJECT
    _mark(texts, objects, error, PRIMARY if is_maxwell else "", names, bits)
    if is_maxwell and (whole.kind == ARRAY).any():
        columns = _listed(texts, whole)
        _mark(texts, columns, np.zeros(len(columns), np.uint8), "", names, bits)
        has_fields |= whole.kind == ARRAY
    if (error == scan.SLOW_KEY).any() and not is_spelt:
        return _of_texts(pa.array([spell_out(key) for key in keys.to_pylist()], pa.binary()), is_maxwell, True)
    bits[~has_fields | (error == scan.SLOW_KEY)] = -1
    encoded = pa.array(bits).dictionary_encode()
    sets = encoded.dictionary.to_pylist()
    told = [tuple(name for n, name in enumerate(names[: _MOST_TOLD_APART + 1]) if one >> n & 1) for one in sets]
    codes = np.asarray(encoded.indices).astype(np.int64)
    if -1 in sets:
        codes[codes == sets.index(-1)] = -1
        told[sets.index(-1)] = ()
    return KeyFields(codes, lacks, told)


def _unwrapped(texts: Texts, keys: pa.BinaryArray, whole: Slices, error: NDArray[np.uint8]) -> Slices:
    """The keys; of those that have their schema with them the payloads."""
    if not pc.any(pc.match_substring(keys.cast(pa.binary()), b'"payload"')).as_py():
        return whole
    schema, payload = take_keys(texts, whole.only(OBJECT), ("schema", "payload"), error)
    return either((schema.kind != ABSENT) & (payload.kind != ABSENT), payload, whole)


def _listed(texts: Texts, whole: Slices) -> Slices:
    """The objects with one field each that are the last element of a key that is a list."""
    _, elements = elements_of(texts, whole.only(ARRAY))
    _, columns = elements_of(texts, elements.only(ARRAY))
    return columns.only(OBJECT)


def _mark(
    texts: Texts, objects: Slices, error: NDArray[np.uint8], prefix: str, names: list[str], bits: NDArray[np.int64]
) -> None:
    """Sets the bit of each name that the objects of a key have, of those with this prefix, and notes new ones in `names`."""
    found, members = take_all(texts, objects, [], error)
    for name, column in zip(found, members.columns, strict=True):
        if name.startswith(prefix):
            bare = name.removeprefix(prefix)
            if bare not in names:
                names.append(bare)
            bits[objects.owner[column.kind != ABSENT]] |= np.int64(1 << min(names.index(bare), _MOST_TOLD_APART))
