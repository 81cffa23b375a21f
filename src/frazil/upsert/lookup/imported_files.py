"""Columns of data files whose schema differs from the table's: missing columns, columns without field ids, and members
of structs.

Source: Iceberg specification, "Column Projection" and "Name Mapping Serialization".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyiceberg.conversions import from_json
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
)

from frazil.catalog.scans import LiveFile
from frazil.schema.arrow import arrow_type, as_written, field_id_of, unsliced, with_children
from frazil.write.target import TableTarget

_MAPPING = "schema.name-mapping.default"


def missing_column(target: TableTarget, file: LiveFile, path: Sequence[str], count: int, kind: pa.DataType) -> pa.Array:
    """Returns `count` rows of a column that the file does not contain: the value of an identity partition field, the
    initial default, or null. Imported files lack the columns that their partition determines.
    """
    value = None
    if len(path) == 1:
        field = target.schema.find_field(path[0])
        value = _of_partition(target, file, field)
        value = field.initial_default if value is None else value
    return _repeated(value, count, kind)


def _repeated(value: Any, count: int, kind: pa.DataType) -> pa.Array:
    if value is None:
        return pa.nulls(count, kind)
    return pa.repeat(pa.scalar(value.bytes if isinstance(value, UUID) else value, kind), count)


def _of_partition(target: TableTarget, file: LiveFile, field: NestedField) -> Any:
    """Returns the value that all rows of the file have by its partition; None without one."""
    partition = file.description.get("partition")
    if not partition or not isinstance(field.field_type, PrimitiveType):
        return None
    spec = _specs(target.partition_spec, *target.older_specs).get(file.description["spec-id"], PartitionSpec())
    for place, part in enumerate(spec.fields):
        if part.source_id == field.field_id and isinstance(part.transform, IdentityTransform):
            word = partition.get(str(part.field_id)) if isinstance(partition, dict) else partition[place]
            return None if word is None else _value(field.field_type, word)
    return None


def _value(kind: PrimitiveType, word: Any) -> Any:
    return float(word) if isinstance(kind, FloatType | DoubleType) else from_json(kind, word)


@lru_cache(maxsize=64)
def _specs(*texts: str) -> dict[int, PartitionSpec]:
    found = (PartitionSpec.model_validate_json(text) for text in texts if text)
    return {spec.spec_id: spec for spec in found}


def field_index(target: TableTarget, fields: Sequence[pa.Field], name: str, field_id: int) -> int | None:
    """Returns the index of the field with this id or, without ids in the file, with a name of that field; None without
    such a field.
    """
    ids = [field_id_of(field) for field in fields]
    if any(number >= 0 for number in ids):
        return ids.index(field_id) if field_id in ids else None
    names = _names_without_ids(target, field_id, name)
    return next((place for place, field in enumerate(fields) if field.name in names), None)


def to_table_type(target: TableTarget, array: pa.Array, wanted: IcebergType) -> pa.Array:
    """Returns the values in the Arrow type of `wanted`. Members of structs are matched as columns are: one may have
    been added, dropped, renamed or moved since the file was written.
    """
    kind = arrow_type(wanted)
    if isinstance(wanted, PrimitiveType) or array.type.equals(kind, check_metadata=True):
        return as_written(array, kind)
    array = unsliced(array)
    if isinstance(wanted, StructType):
        children = [_member(target, array, field) for field in wanted.fields]
    elif isinstance(wanted, MapType):
        sides = ((array.keys, wanted.key_type), (array.items, wanted.value_type))
        children = [to_table_type(target, side, side_type) for side, side_type in sides]
    else:
        assert isinstance(wanted, ListType)
        children = [to_table_type(target, array.values, wanted.element_type)]
    return with_children(array, kind, children)


def _member(target: TableTarget, array: pa.Array, field: NestedField) -> pa.Array:
    place = field_index(target, list(array.type), field.name, field.field_id)
    if place is None:
        return _repeated(field.initial_default, len(array), arrow_type(field.field_type))
    return to_table_type(target, array.field(place), field.field_type)


def _names_without_ids(target: TableTarget, field_id: int, name: str) -> Sequence[str]:
    """Returns the names of the column in files without field ids: by the table's name mapping, else its current name."""
    mapping = dict(target.properties).get(_MAPPING)
    return (name,) if mapping is None else _mapped(mapping).get(field_id, ())


@lru_cache(maxsize=64)
def _mapped(mapping: str) -> dict[int, tuple[str, ...]]:
    return dict(_ids(json.loads(mapping)))


def _ids(fields: Sequence[dict[str, Any]]) -> Iterator[tuple[int, tuple[str, ...]]]:
    for field in fields:
        if "field-id" in field:
            yield field["field-id"], tuple(field["names"])
        yield from _ids(field.get("fields") or ())
