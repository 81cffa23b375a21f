"""The fields of CDC records' keys: the primary-key columns that the source's table has at present.

The source may change the primary key of its table. From then on its changes no longer identify rows by the former key,
and an upsert table that kept using the former key would silently lose some rows and keep others. The names of key
fields are compared, once for each distinct set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import IcebergType, NestedField, StructType

from frazil.cdc.document_ids import ID
from frazil.column_names import change_case, fold_case
from frazil.decode.columns import Mismatch
from frazil.decode.json import scan
from frazil.decode.json.as_sent import unescape_keys
from frazil.decode.json.grammar import ABSENT, ARRAY, NULL, OBJECT
from frazil.decode.json.names import all_members
from frazil.decode.json.records import open_any
from frazil.decode.messages import message_schemas
from frazil.decode.settings import Envelope, Reading, WriterSchema
from frazil.decode.wire_format import group_rows, guids_of, select_bodies, split_headers
from frazil.error_classes import ErrorClass
from frazil.registry.port import UnusableSchema
from frazil.rows.connect_messages import payloads_of
from frazil.rows.record_keys import KEY_SCHEMA, is_record
from frazil.rows.writer_schemas import LATEST, struct_of
from frazil.schema.arrow import Bools, Ints, Records
from frazil.schema.evolve import type_at
from frazil.schema.names import column_names, column_path
from frazil.schema.parts import is_one_column
from frazil.schema.projection import name_in_record
from frazil.schema.selection import Path
from frazil.stages.changes import Changes
from frazil.upsert.lookup.live_rows import has_column
from frazil.write.target import ChangeReading, TableTarget


def column_of(target: TableTarget, path: Path) -> Path:
    """Returns the column that the field at `path` of a record is stored in, or would be, with the rest of the path
    inside it.
    """
    path, shaping = column_path(path, column_names(target.reading.aliases)), target.shaping
    if shaping is None:
        return path
    layout = target.layout
    fed = {field: name for name, field in (*shaping.fields, *layout.paths.items())}
    for cut in range(len(path), 0, -1):
        if path[:cut] in fed:
            return _in_table(target, fed[path[:cut]], path[cut:])
    for cut in range(1, len(path)):  # A declared struct is not flattened.
        name = shaping.column_name(path[:cut], layout.names)
        if name in layout.unbound and is_one_column(layout.unbound[name]):
            return _in_table(target, name, path[cut:])
    cut = min(len(path), shaping.depth + 1)
    return _in_table(target, shaping.column_name(path[:cut], layout.names), path[cut:])


def _in_table(target: TableTarget, column: str, inside: Path) -> Path:
    """Returns the path in the table of the field that is at `inside` of a column in the records."""
    assert target.shaping is not None
    table_path: Path = (column,)
    for name in inside:
        struct = type_at(target.schema.as_struct(), table_path)
        members = struct.fields if isinstance(struct, StructType) else ()
        names_in_table = (member.name for member in members if name_in_record(member) == name)
        table_path = (*table_path, next(names_in_table, change_case(name, target.shaping.case)))
    return table_path


def _in_records(target: TableTarget, path: Path) -> Path:
    """Returns the names that the members of a struct column have in the records. path: in the table, from the column on."""
    record_path: Path = ()
    for cut in range(1, len(path)):
        struct = type_at(target.schema.as_struct(), path[:cut])
        members = struct.fields if isinstance(struct, StructType) else ()
        names_in_records = (name_in_record(member) for member in members if member.name == path[cut])
        record_path = (*record_path, next(names_in_records, path[cut]))
    return record_path


def name_columns(target: TableTarget, fields: Iterable[Path]) -> tuple[str, ...]:
    """Returns the names of the columns that these fields are stored in, or would be."""
    return tuple(".".join(column_of(target, path)) for path in fields)


def leaves_of(kind: IcebergType) -> Iterator[Path]:
    """Yields the paths of all fields of a type that are not structs; the empty path for a type that is not a struct."""
    if not isinstance(kind, StructType):
        yield ()
        return
    for field in kind.fields:
        yield from ((field.name, *path) for path in leaves_of(field.field_type))


def places_of(target: TableTarget, changes: ChangeReading) -> Mapping[Path, tuple[Path, ...]]:
    """Returns by key column the paths in a key at which its value may be, the most likely first: the field that is
    stored in the column and, where the pipeline file names the key columns, the column's own name. No path belongs to
    two columns.
    """
    fed = {path: _field_of(target, path) for path in changes.paths}
    others = {path: _others_of(target, field) for path, field in fed.items()}
    if changes.is_key_of_record:
        return {path: (field, *others[path]) for path, field in fed.items()}
    return {
        path: (field, path, *others[path]) if _is_free(path, fed.values()) else (field, *others[path])
        for path, field in fed.items()
    }


def _others_of(target: TableTarget, field: Path) -> tuple[Path, ...]:
    """Returns further paths of a key column's field by the table's name mapping."""
    names = dict(target.reading.aliases).get(field, ()) if target.reading.aliases else ()
    return tuple((*field[:-1], name) for name in names)


def _field_of(target: TableTarget, path: Path) -> Path:
    if target.shaping is not None and path[0] == target.shaping.key and len(path) > 1:
        return path[1:]  # The column is the key itself.
    feeding = target.layout.paths.get(path[0]) if target.shaping is not None else None
    return path if feeding is None else (*feeding, *_in_records(target, path))


def _is_free(path: Path, taken: Iterable[Path]) -> bool:
    """Returns whether `path` is neither one of the other paths, nor inside one, nor around one."""
    return not any(path[: len(other)] == other[: len(path)] for other in taken)


def struct_at(fields: Mapping[Path, IcebergType]) -> StructType:
    """Returns the struct that has fields of these types at these paths."""
    members = []
    for name in dict.fromkeys(path[0] for path in fields):
        inside = {path[1:]: kind for path, kind in fields.items() if path[0] == name}
        kind = inside[()] if () in inside else struct_at(inside)
        members.append(NestedField(0, name, kind, required=False))
    return StructType(*members)


_NO_KEY = "the record has no key, as of a source's table without a primary key: name the table's `key_columns`"
_OTHER = (
    "the fields of the record's key are {}, and the table's rows are identified by {}: name the table's `key_columns`"
)


@dataclass(frozen=True)
class KeyFields:
    """The fields of records' keys."""

    #: Per record the index of its key's fields in `names`, int64 `(n_records,)`; -1 without a readable key.
    codes: Ints
    #: Which records have no key, bool `(n_records,)`.
    lacks: Bools
    #: The distinct sets of field names.
    names: Sequence[tuple[str, ...]] = ()
    #: The ids of schemas that are not known yet.
    missing: frozenset[str] = frozenset()


def check_key_fields(target: TableTarget, records: Records, changes: Changes, limit: int) -> Changes:
    """Refuses the changes and tombstones of records whose key has other fields than the table's key columns."""
    if not _is_checked(target):
        return changes
    is_change = np.zeros(changes.decoded.refused.size, np.bool_)
    is_change[changes.records[changes.have_keys]] = True
    is_named = is_change if changes.tombstones is None else is_change | changes.tombstones
    key_fields = find_key_fields(target, records)
    reasons = [_difference(target, names) for names in key_fields.names]
    # The last entry is that of the code -1.
    differs = np.array([bool(reason) for reason in reasons] + [False])[key_fields.codes]
    is_bad = ((differs & is_named) | (key_fields.lacks & is_change)) & ~changes.decoded.refused
    if not (is_bad.any() or key_fields.missing):
        return changes
    mismatches = []
    for row in np.flatnonzero(is_bad)[:limit].tolist():
        kind, reason = (
            (ErrorClass.NO_KEY, _NO_KEY)
            if key_fields.lacks[row]
            else (ErrorClass.KEY_MISMATCH, reasons[key_fields.codes[row]])
        )
        mismatches.append(Mismatch(row, "", kind, reason))
    decoded = changes.decoded.refusing(is_bad, mismatches, limit)
    decoded = replace(decoded, missing=decoded.missing | key_fields.missing)
    return _without_tombstones(replace(changes, decoded=decoded), decoded.refused)


def first_alike(target: TableTarget, records: Records, has_key: Bools) -> Bools:
    """Returns `has_key` without the records whose key has other fields than the first key, which determines the table's
    key.
    """
    if target.envelope is not None and target.envelope.names_keys:
        return has_key
    key_fields = find_key_fields(target, records)
    has_fields = np.array([bool(names) for names in key_fields.names] + [False])[key_fields.codes]
    rows = np.flatnonzero(has_key & has_fields)
    if key_fields.missing or not rows.size:
        return has_key
    return np.asarray(has_key & (~has_fields | (key_fields.codes == key_fields.codes[rows[0]])), np.bool_)


def _is_checked(target: TableTarget) -> bool:
    changes = target.changes
    if target.envelope is None or target.envelope.names_keys or changes is None:
        return False
    if not changes.is_key_of_record or not all(has_column(target, path) for path in changes.paths):
        return False
    # Documents are identified by `_id`, which their records' keys name differently.
    return all(field[0] != ID for field, *_ in places_of(target, changes).values())


def _difference(target: TableTarget, names: Sequence[str]) -> str:
    """Returns the reason to refuse keys with these fields; empty where they are the key columns' fields."""
    changes = target.changes
    assert changes is not None
    key_names = {field[0] for field, *_ in places_of(target, changes).values()}
    columns = name_columns(target, [(name,) for name in names])
    if _fold(names) == _fold(key_names) or _fold(columns) == _fold(changes.key_columns):
        return ""
    return _OTHER.format(", ".join(columns) or "none", ", ".join(changes.key_columns))


def _fold(names: Iterable[str]) -> list[str]:
    """Returns the names in an order without case: fields feed columns whose names differ in case alone."""
    return sorted(map(fold_case, names))


def _without_tombstones(changes: Changes, refused: Bools) -> Changes:
    """Returns the changes without the tombstones of refused records."""
    return changes if changes.tombstones is None else replace(changes, tombstones=changes.tombstones & ~refused)


def find_key_fields(target: TableTarget, records: Records) -> KeyFields:
    """Returns the fields of the records' keys, without those that name the table."""
    changes = target.changes
    assert changes is not None
    if changes.key.format == "json":
        prefix = "" if target.envelope is None else target.envelope.key_prefix
        return _of_texts(bare_keys(target.envelope, records["key"]), prefix)
    if changes.key.format in ("avro", "json_schema", "protobuf"):
        codes, missing = np.full(len(records["key"]), -1), set()
        number_by_names: dict[tuple[str, ...], int] = {}
        for schema_id, rows in _groups(changes.key, records):
            schema = changes.key.schema(schema_id)
            if schema is None:
                missing.add(KEY_SCHEMA + schema_id)
                continue
            for message, mine in _messages(changes.key, schema, records["key"], rows):
                names = _fields_of(changes.key, schema, message)
                if names:
                    codes[mine] = number_by_names.setdefault(names, len(number_by_names))
        return KeyFields(codes, np.asarray(records["key"].is_null()), list(number_by_names), frozenset(missing))
    return KeyFields(np.full(len(records["key"]), -1), np.asarray(records["key"].is_null()))


def _groups(reading: Reading, records: Records) -> Iterator[tuple[str, NDArray[np.int32]]]:
    """Yields the id of each schema and the records whose key it describes."""
    keys = records["key"]
    if reading.wire.framing != "none":
        for number, rows in group_rows(split_headers(keys, reading.wire.framing).ids):
            yield str(number), rows
    elif reading.wire.is_by_header:
        named = guids_of(records["headers"], reading.wire.header)
        for code, header in enumerate(named.headers):
            if header.fault is None:
                yield header.guid or str(header.id), np.flatnonzero(named.codes == code).astype(np.int32)
    else:
        yield LATEST, np.flatnonzero(np.asarray(keys.is_valid())).astype(np.int32)


def _messages(
    reading: Reading, schema: WriterSchema, keys: pa.BinaryArray, rows: NDArray[np.int32]
) -> Iterator[tuple[str | tuple[int, ...], NDArray[np.int32]]]:
    """Yields each message of a schema and its records: a Protobuf schema has several messages, and each record names
    one.
    """
    if schema.kind != "protobuf" or reading.wire.message:
        yield reading.wire.message or "", rows
    elif reading.wire.framing != "none":
        indexed = message_schemas().split_indexes(select_bodies(split_headers(keys, reading.wire.framing).bodies, rows))
        for code, indexes in enumerate(indexed.paths):
            yield indexes, rows[indexed.path == code]


def _fields_of(reading: Reading, schema: WriterSchema, message: str | tuple[int, ...]) -> tuple[str, ...]:
    """Returns the field names of a schema; empty where it describes no record or cannot be used."""
    if schema.kind != reading.format or not is_record(schema):
        return ()
    try:
        return tuple(field.name for field in struct_of(schema, message).fields)
    except UnusableSchema:  # Its records are refused where their keys are read.
        return ()


def _of_texts(keys: pa.BinaryArray, prefix: str, has_canonical_keys: bool = False) -> KeyFields:
    texts, roots, error = open_any(keys, has_canonical_keys=has_canonical_keys)
    roots = roots.masked(error == scan.OK)
    marks: dict[str, list[Ints]] = {}
    objects, lacks = roots.only(OBJECT), np.asarray(keys.is_null()) | (roots.kind == NULL)
    has_fields = (objects.kind == OBJECT) | (
        (roots.kind == ARRAY) & bool(prefix)
    )  # A list that is not of the envelope.
    present, members = all_members(texts, objects, [], error)
    for name, column in zip(present, members.columns, strict=True):
        if name.startswith(prefix):
            marks.setdefault(name.removeprefix(prefix), []).append(objects.owner[column.kind != ABSENT])
    if (error == scan.ESCAPED_KEY).any() and not has_canonical_keys:
        return _of_texts(pa.array([unescape_keys(key) for key in keys.to_pylist()], pa.binary()), prefix, True)
    codes, names = _sets_of(marks, len(keys))
    codes[~has_fields | (error == scan.ESCAPED_KEY)] = -1
    return KeyFields(codes, lacks, names)


def _sets_of(marks: Mapping[str, Sequence[Ints]], count: int) -> tuple[Ints, list[tuple[str, ...]]]:
    """Returns the number of the set of names that each of `count` keys has, int64 `(n_records,)`, and the distinct sets.
    marks: the records with each name.
    """
    rows_by_name = [np.unique(np.concatenate(parts)) for parts in marks.values()]
    rows = np.concatenate([np.zeros(0, np.int32), *rows_by_name])
    numbers = np.repeat(np.arange(len(marks), dtype=np.int32), [some.size for some in rows_by_name])
    order = np.argsort(rows, kind="stable")
    offsets = np.searchsorted(rows[order], np.arange(count + 1)).astype(np.int32)
    raw = pa.py_buffer(np.ascontiguousarray(numbers[order]))
    bodies = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets * numbers.itemsize), raw])
    encoded = bodies.dictionary_encode()
    every = list(marks)
    names = [
        tuple(every[n] for n in np.frombuffer(encoded_set, np.int32)) for encoded_set in encoded.dictionary.to_pylist()
    ]
    return np.asarray(encoded.indices).astype(np.int64), names


def bare_keys(envelope: Envelope | None, keys: pa.Array) -> pa.Array:
    """Returns record keys in JSON as objects of their fields alone."""
    flat_keys = envelope.flat_keys if envelope is not None else None
    return payloads_of(keys) if flat_keys is None else flat_keys(keys)
