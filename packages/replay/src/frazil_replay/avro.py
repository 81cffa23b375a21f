"""Rows as Avro with Iceberg's field ids.

PyIceberg's schemas of Avro files know no optional list elements, no repeated types and no time zones, so only its
primitive types are used.

Source: Iceberg specification, appendix A, "Avro".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.schema import make_compatible_name, visit
from pyiceberg.types import ListType, MapType, NestedField, StringType, StructType
from pyiceberg.utils.schema_conversion import ConvertSchemaToAvro

from frazil.schema.arrow import rows_as_written
from frazil.write.file_formats import arrow_fields, has_map, with_maps, without_times


def avro_schema(fields: Sequence[NestedField], name: str = "table") -> dict[str, Any]:
    """Returns the Avro schema of rows with these columns, a record of this name, with field ids."""
    defined: set[str] = set()
    return {"type": "record", "name": name, "fields": [_avro_field(field, defined) for field in fields]}


def avro_rows(rows: Iterable[pa.RecordBatch], schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields rows as fastavro writes them with a schema of `avro_schema`: times are their integers."""
    stored = pa.schema(arrow_fields(without_times(schema), {}))
    return (row for batch in rows for row in _objects(rows_as_written(batch, stored)))


def _avro_field(field: NestedField, defined: set[str]) -> dict[str, Any]:
    """Returns the field of an Avro record. defined: the names of the types that the schema has defined already."""
    name = make_compatible_name(field.name)
    avro_field = {"name": name, "field-id": field.field_id, "type": _avro_type(field, defined)}
    if name != field.name:
        avro_field["iceberg-field-name"] = field.name
    return avro_field if field.required else {**avro_field, "default": None}


def _avro_type(field: NestedField, defined: set[str]) -> Any:
    kind = _avro_kind(field, defined)
    name = kind.get("name") if isinstance(kind, dict) else None
    if name in defined:
        kind = name
    elif name is not None:
        defined.add(name)
    return kind if field.required else ["null", kind]


def _avro_kind(field: NestedField, defined: set[str]) -> Any:
    kind = field.field_type
    if isinstance(kind, StructType):
        fields = [_avro_field(member, defined) for member in kind.fields]
        return {"type": "record", "name": f"r{field.field_id}", "fields": fields}
    if isinstance(kind, ListType):
        return {"type": "array", "element-id": kind.element_id, "items": _avro_type(kind.element_field, defined)}
    if isinstance(kind, MapType):
        if isinstance(kind.key_type, StringType):
            values = _avro_type(kind.value_field, defined)
            return {"type": "map", "values": values, "key-id": kind.key_id, "value-id": kind.value_id}
        fields = [_avro_field(part, defined) for part in (kind.key_field, kind.value_field)]
        entry = {"type": "record", "name": f"k{kind.key_id}_v{kind.value_id}", "fields": fields}
        return {"type": "array", "logicalType": "map", "items": entry}
    return visit(kind, ConvertSchemaToAvro(None))


def _objects(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Yields the rows as fastavro takes them."""
    mapped = [field for field in table.schema if has_map(field.type)]
    for row in table.to_pylist():
        for field in mapped:
            row[field.name] = with_maps(row[field.name], field.type, _avro_map_of)
        yield row


def _avro_map_of(pairs: Iterable[tuple[Any, Any]], kind: pa.MapType) -> Any:
    return dict(pairs) if pa.types.is_string(kind.key_type) else [{"key": key, "value": item} for key, item in pairs]
