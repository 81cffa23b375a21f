"""The key columns of a table from the keys of its records."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import IcebergType, NestedField, StringType, StructType

from frazil.ingest.decode.bare_keys import bare_keys
from frazil.ingest.decode.columns import Decoded, Misfit
from frazil.ingest.decode.keys import decode_keys, has_record
from frazil.ingest.letters.dead_letter import pick
from frazil.ingest.naming import KEY_ROOT
from frazil.ingest.target import Reading, TableTarget
from frazil.ingest.upserts.live_rows import has_column, member

Path = tuple[str, ...]
_ROOT = "key"


@dataclass(frozen=True)
class Keys:
    """columns: by path of the key column its values, as long as the records; empty while the table lacks one. names: the
    fields of the keys, of a table that does not know its key columns yet.
    """

    decoded: Decoded
    columns: Mapping[Path, pa.Array] = field(default_factory=dict)
    names: tuple[str, ...] = ()


def read_keys(target: TableTarget, records: Mapping[str, pa.Array], rows: NDArray[np.bool_], limit: int) -> Keys:
    """The key columns of the records `rows`, from their keys; a record without a key is a bad one."""
    nothing = Keys(Decoded([], np.zeros(rows.size, np.bool_)))
    if not rows.any():
        return nothing
    if _is_json(target):
        records = {**records, "key": bare_keys(records["key"])}
    keys = records["key"]
    lacking = rows & np.asarray(keys.is_null())
    misfits = [
        Misfit(row, "", "no_key", "the record has no key, and its row is found by it")
        for row in np.flatnonzero(lacking)[:limit].tolist()
    ]
    nothing.decoded.refused[lacking] = True
    nothing.decoded.misfits.extend(misfits)
    there = np.flatnonzero(rows & ~lacking)
    if not there.size:
        return nothing
    found = _decode(target, pick(records, there), limit)
    return _spread(found, nothing, there, limit)


def _spread(found: Keys, lacking: Keys, there: NDArray[np.int64], limit: int) -> Keys:
    """Keys of some records among nulls for the others."""
    refused = lacking.decoded.refused.copy()
    refused[there] = found.decoded.refused
    places = np.full(refused.size, -1, np.int64)
    places[there] = np.arange(there.size)
    at = pa.array(places, mask=places < 0)
    misfits = [replace(misfit, row=int(there[misfit.row])) for misfit in found.decoded.misfits]
    decoded = replace(
        found.decoded,
        refused=refused,
        misfits=sorted([*lacking.decoded.misfits, *misfits], key=lambda misfit: misfit.row)[:limit],
    )
    return Keys(decoded, {path: column.take(at) for path, column in found.columns.items()}, found.names)


def _decode(target: TableTarget, records: Mapping[str, pa.Array], limit: int) -> Keys:
    changes = target.changes
    assert changes is not None
    kind, paths = _kind(target), changes.paths
    if not paths:
        return _discover(changes.key, records, limit)
    if kind is None:  # A column that is not there yet comes with a later record; until then nothing can be deleted.
        return Keys(Decoded([], np.zeros(len(records["key"]), np.bool_)))
    reading = changes.key
    if len(paths) == 1 and not _holds_records(reading, records):
        column = target.schema.find_field(changes.key_columns[0])
        is_text = reading.format == "raw" and isinstance(column.field_type, StringType)
        decoded = decode_keys(
            replace(reading, format="text") if is_text else _plain(reading), _ROOT, column.field_type, records, limit
        )
        return Keys(_sans_wanted(decoded), {paths[0]: decoded.columns[0]})
    undeclared = "refuse" if changes.is_key_of_record else "drop"
    decoded = decode_keys(replace(reading, undeclared=undeclared), _ROOT, kind, records, limit)
    return Keys(_sans_wanted(decoded), {path: member(decoded.columns[0], path) for path in paths})


def _plain(reading: Reading) -> Reading:
    return replace(reading, format="text") if reading.format == "raw" else reading


def _sans_wanted(decoded: Decoded) -> Decoded:
    """What the keys want of a table is no reason to change it: its key columns are what they are."""
    return replace(decoded, wanted={}, loosened=set())


def _discover(reading: Reading, records: Mapping[str, pa.Array], limit: int) -> Keys:
    """The fields that the keys have, as columns that the table should have."""
    decoded = decode_keys(reading, _ROOT, None, records, limit)
    (kind,) = decoded.wanted.get((), {KEY_ROOT: None}).values()
    if not isinstance(kind, StructType):
        refused = decoded.refused | (kind is not None)
        reason = "the key is no record; write `key: {format: text}`, or name the `key_columns`"
        rows = np.flatnonzero(refused & ~decoded.refused)[:limit].tolist()
        misfits = [*decoded.misfits, *(Misfit(row, "", "no_key", reason) for row in rows)]
        return Keys(replace(decoded, wanted={}, refused=refused, misfits=misfits))
    wanted: dict[Path, dict[str, IcebergType]] = {(): {member_.name: member_.field_type for member_ in kind.fields}}
    return Keys(replace(decoded, wanted=wanted), names=tuple(".".join(path) for path in _leaves(kind)))


def _is_json(target: TableTarget) -> bool:
    return target.changes is not None and target.changes.key.format == "json"


def _leaves(struct: StructType) -> Iterator[Path]:
    """Paths of all that is no struct."""
    for column in struct.fields:
        inner = _leaves(column.field_type) if isinstance(column.field_type, StructType) else [()]
        yield from ((column.name, *path) for path in inner)


def _holds_records(reading: Reading, records: Mapping[str, pa.Array]) -> bool:
    if reading.format in ("text", "raw"):
        return False
    if reading.format == "json":
        first = next((key for key in records["key"].to_pylist() if key is not None), b"")
        return re.match(rb"\s*\{", first) is not None
    return has_record(reading)


def _kind(target: TableTarget) -> StructType | None:
    """The key columns as a struct, nested as they are in the table; None while one of them is not there."""
    assert target.changes is not None
    paths = target.changes.paths
    if not all(has_column(target, path) for path in paths):
        return None
    return _struct(target.schema.as_struct(), paths)


def _struct(struct: StructType, paths: tuple[Path, ...]) -> StructType:
    fields = []
    for column in struct.fields:
        inner = tuple(path[1:] for path in paths if path[0] == column.name)
        if inner:
            kind: IcebergType = column.field_type if () in inner else _struct_of(column, inner)
            fields.append(NestedField(column.field_id, column.name, kind, required=False))
    return StructType(*fields)


def _struct_of(column: NestedField, paths: tuple[Path, ...]) -> StructType:
    assert isinstance(column.field_type, StructType)
    return _struct(column.field_type, paths)


def put_keys(column: NestedField, values: pa.Array, keys: Keys, rows: NDArray[np.bool_]) -> pa.Array:
    """The column with the keys' values in `rows`, as far as it is a key column or holds some."""
    mine = {path[1:]: key for path, key in keys.columns.items() if path[0] == column.name}
    if not mine:
        return values
    return pc.if_else(pa.array(rows), _nested(column.field_type, mine, values), values)


def _nested(kind: IcebergType, members: Mapping[Path, pa.Array], values: pa.Array) -> pa.Array:
    if () in members:
        return members[()].cast(values.type)
    assert isinstance(kind, StructType)
    arrays = []
    for place, inner in enumerate(kind.fields):
        mine = {path[1:]: key for path, key in members.items() if path[0] == inner.name}
        own = member(values, [inner.name])
        arrays.append(_nested(inner.field_type, mine, own) if mine else pa.nulls(len(values), own.type))
        assert values.type.field(place).name == inner.name
    return pa.StructArray.from_arrays(arrays, fields=list(values.type))
