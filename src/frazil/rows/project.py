"""Records to the columns of their table, for every format.

They are decoded with the names of the record, then projected to columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyiceberg.types import IcebergType, NestedField, StructType

from frazil.decode.columns import Decoded, first_mismatches, member_at, regroup
from frazil.decode.conversion import Conversion, ValuePlace, require, require_inside
from frazil.decode.json.records import list_paths
from frazil.decode.json.slices import MAX_MISMATCHES
from frazil.decode.limits import refusal
from frazil.decode.settings import Reading
from frazil.rows.connect_messages import may_be_messages
from frazil.rows.decoder import decode_values
from frazil.rows.metadata_columns import decoded_header, own_column
from frazil.rows.record_keys import decode_keys
from frazil.schema.arrow import Bools, Records, arrow_type, as_written, pick
from frazil.schema.evolve import merge_requested_fields
from frazil.schema.parts import is_one_column, unfold
from frazil.schema.projection import Projection, Shaping, has_column, in_record
from frazil.schema.selection import Path
from frazil.stages.changes import Changes
from frazil.write.target import TableTarget


def decode_rows(
    target: TableTarget, records: Records, limit: int = MAX_MISMATCHES, there: Bools | None = None
) -> Decoded:
    """Returns one array per field of `target.fields`; requested fields are by the records' paths, not by columns.

    limit: the number of mismatches that are kept. there: which records' values are read, None for all; the others' are
    null.
    """
    if target.shaping is None:
        reading = replace(target.reading, keys=_key_paths(target))
        return decode_some(reading, target.fields, records, limit, there)
    shaping, layout = target.shaping, target.layout
    reading = replace(
        target.reading,
        selection=shaping.selection,
        declared=layout.declared,
        keys=_key_paths(target),
    )
    if layout.unbound:
        requested_fields = bindings_of(shaping, layout, _list_fields(reading, shaping, layout, records))
        if requested_fields:  # The batch is planned again with the fields that feed these columns.
            nulls = [pa.nulls(len(records["value"]), arrow_type(field.field_type)) for field in target.fields]
            return Decoded(nulls, np.zeros(len(records["value"]), np.bool_), requested_fields=requested_fields)
    decoded = decode_some(reading, layout.fields, records, limit, there)
    return shape_columns(target, shaping, decoded, records, limit)


def decode_some(
    reading: Reading,
    fields: tuple[NestedField, ...],
    records: Records,
    limit: int,
    there: Bools | None,
) -> Decoded:
    """Returns the columns `fields` of the records that `there` marks, None for all, and nulls for the other records."""
    if there is None or there.all():
        return decode_values(reading, fields, records, limit)
    rows = np.flatnonzero(there)
    decoded = decode_values(reading, fields, pick(records, rows), limit)
    return decoded.spread(rows, there.size)


def _key_paths(target: TableTarget) -> tuple[Path, ...]:
    """Returns the paths in the records of the fields that feed the key columns."""
    keys = target.changes.paths if target.changes is not None else ()
    if target.shaping is None:
        return keys
    return tuple((*target.layout.paths.get(path[0], path[:1]), *path[1:]) for path in keys)


def shape_columns(target: TableTarget, shaping: Shaping, decoded: Decoded, records: Records, limit: int) -> Decoded:
    """Returns the columns of the table, made from the fields of the records."""
    rows, layout = len(decoded.refused), target.layout
    conversion = Conversion(target.reading, "", rows, limit)
    conversion.refused |= decoded.refused
    place = ValuePlace((), np.arange(rows, dtype=np.int32), np.ones(rows, np.bool_))
    columns = []
    key = _keys(target, shaping.key, records, limit)
    conversion.refused |= key.refused
    readings, named, missing = dict(target.record.headers), dict(shaping.headers), decoded.missing | key.missing
    for field in target.fields:
        path = layout.paths.get(field.name)
        if field.name == shaping.key and target.record.key is not None:
            columns.append(key.columns[0])
        elif field.name in readings:
            name = named[field.name]
            column, unknown = decoded_header(conversion, readings[field.name], name, field, records["headers"])
            columns.append(column)
            missing = missing | unknown
        elif field.name in shaping.own:
            columns.append(own_column(conversion, shaping, field, records))
        else:
            columns.append(_column(layout, decoded, field, path))
            require_inside(conversion, columns[-1], field.field_type, place.inside(field.name))
        if field.required and (path is None or len(path) > 1):
            require(conversion, columns[-1], place, (field.name,))
    shaped = replace(
        decoded,
        columns=columns,
        refused=conversion.refused,
        mismatches=first_mismatches([*decoded.mismatches, *conversion.mismatches, *key.mismatches], limit),
        requested_fields=merge_requested_fields([decoded.requested_fields, key.requested_fields]),
        missing=missing,
        refusals=decoded.refusals | key.refusals,
        dropped=decoded.dropped | key.dropped,
        made_optional={layout.column_path(path) for path in decoded.made_optional} | conversion.made_optional,
    )
    return conversion.added_to(shaped)


def _keys(target: TableTarget, name: str, records: Records, limit: int) -> Decoded:
    """Returns the column of decoded keys; no column where the table has none."""
    if target.record.key is None:
        return Decoded([], np.zeros(len(records["value"]), np.bool_))
    kind = next((field.field_type for field in target.fields if field.name == name), None)
    decoded = decode_keys(target.record.key, name, kind, records, limit)
    return replace(decoded, refusals={in_column(refusal, name, kind) for refusal in decoded.refusals})


def in_column(refusal: str, name: str, kind: IcebergType | None) -> str:
    """Returns a refused change of the struct, or of the single value, that a column contains, as a refused change of
    the table.
    """
    by, _, rest = refusal.partition("column ")
    path, _, what = rest.partition(": ")
    inner = path if kind is None or isinstance(kind, StructType) else path.removeprefix("value").removeprefix(".")
    return f"{by}column {name}{'.' if inner else ''}{inner}: {what}"


def _column(layout: Projection, decoded: Decoded, field: NestedField, path: Path | None) -> pa.Array:
    member = member_at(layout.fields, decoded.columns, path) if path is not None else None
    if member is None or path is None:
        return pa.nulls(len(decoded.refused), arrow_type(in_record(field.field_type)))
    return regroup(*member, in_record(field.field_type), path, layout.moved - {path})


def _list_fields(reading: Reading, shaping: Shaping, layout: Projection, records: Records) -> list[tuple[Path, bool]]:
    """Returns the paths of the fields of these records, each with whether it is a record itself."""
    if refusal() is not None:
        return []
    if reading.format == "json" and not may_be_messages(records["value"]).size:
        return list_paths(records["value"], shaping.depth)
    requested_fields = decode_values(replace(reading, unknown_fields="add"), layout.fields, records, 0).requested_fields
    return unfold(requested_fields, shaping.depth)


def bindings_of(
    shaping: Shaping, layout: Projection, seen: Iterable[tuple[Path, bool]]
) -> dict[Path, dict[str, IcebergType]]:
    """Returns the fields in `seen` that feed columns without a known field, with the types of these columns."""
    requested_fields: dict[Path, dict[str, IcebergType]] = {}
    bound = set(layout.paths.values())
    for path, is_record in seen:
        kind = layout.unbound.get(shaping.column_name(path, layout.names))
        taken = shaping.selection.takes(path)
        if kind is None or has_column(path, bound) or (taken == "part" and not is_record):
            continue
        if shaping.selection.prune(kind, path) is None:
            continue  # The selection leaves out everything that the column has.
        if not is_record or len(path) > shaping.depth or is_one_column(kind):
            requested_fields.setdefault(path[:-1], {})[path[-1]] = kind
    return requested_fields


def shape_rows(target: TableTarget, changes: Changes, records: Records) -> pa.Table:
    """Returns one row per change in the schema of the table's files. records: the columns topic, partition, offset,
    timestamp, headers and key, as far as the table needs them, one value per change.
    """
    by_name = {field.name: array for field, array in zip(target.fields, changes.columns, strict=True)}
    by_name |= {column: changes.own.get(field, records.get(field)) for field, column in target.metadata}
    for column in target.reading.extra_columns:
        by_name[column] = changes.own.get(column, pa.nulls(changes.ops.size, pa.string()))
    columns = [as_written(by_name[field.name], field.type) for field in target.arrow_schema]
    return pa.Table.from_arrays(columns, schema=target.arrow_schema)
