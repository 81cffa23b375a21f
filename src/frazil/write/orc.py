"""ORC data files with Iceberg's field ids. Arrow stores the metadata of a field as the attributes of its ORC type.

Source: Iceberg specification, appendix A, "ORC"; `org.apache.iceberg.orc.ORCSchemaUtil`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import orc
from pyiceberg.types import FixedType, IcebergType, ListType, MapType, NestedField, StructType, TimeType, UUIDType

from frazil.schema.arrow import arrow_type, rows_as_written
from frazil.schema.parts import parts_of

_PARQUET_ID, _ID = b"PARQUET:field_id", b"iceberg.id"
# Types that ORC does not have; `_attributes` has the names of the types.
_STORED: Mapping[type[IcebergType], pa.DataType] = {
    TimeType: pa.int64(),
    UUIDType: pa.binary(),
    FixedType: pa.binary(),
}

_CODECS = {"none": "uncompressed", **{name: name for name in ("uncompressed", "snappy", "lz4", "zstd")}}


def write_orc(rows: Iterable[pa.RecordBatch], stream: Any, fields: Sequence[NestedField], codec: str) -> None:
    """Writes an ORC file. codec: as in `write.orc.compression-codec`; one that Arrow does not have, or none, is zlib,
    Iceberg's default.

    Raises: OSError where the store refuses the file.
    """
    schema = pa.schema([_field(field) for field in fields])
    with orc.ORCWriter(stream, compression=_CODECS.get(codec, "zlib")) as writer:
        for batch in rows:
            writer.write(rows_as_written(batch, schema))


def read_orc(stream: Any) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """Returns the schema of an ORC file, with field ids as Parquet has them, and its rows.

    Raises: OSError where the store fails; ValueError for a timestamp beyond the years 1677 to 2262, which Arrow cannot
    read from ORC.
    """
    file = orc.ORCFile(stream)
    schema = pa.schema([_with_parquet_id(field) for field in file.schema])
    return schema, (rows_as_written(file.read_stripe(number), schema) for number in range(file.nstripes))


def _field(field: NestedField) -> pa.Field:
    kind = field.field_type
    fields = [_field(part) for part in parts_of(kind)]
    if isinstance(kind, StructType):
        stored = pa.struct(fields)
    elif isinstance(kind, ListType):
        stored = pa.list_(fields[0])
    elif isinstance(kind, MapType):
        stored = pa.map_(_field(kind.key_field).with_nullable(False), fields[0])
    else:
        stored = _STORED.get(type(kind)) or arrow_type(kind)
    return pa.field(field.name, stored, metadata=_attributes(field))


def _attributes(field: NestedField) -> dict[bytes, str]:
    """Returns the attributes of the ORC type that Iceberg's readers need."""
    attributes = {_ID: str(field.field_id), b"iceberg.required": str(field.required).lower()}
    if isinstance(field.field_type, TimeType):
        attributes[b"iceberg.long-type"] = "TIME"
    elif isinstance(field.field_type, UUIDType):
        attributes[b"iceberg.binary-type"] = "UUID"
    elif isinstance(field.field_type, FixedType):
        attributes |= {b"iceberg.binary-type": "FIXED", b"iceberg.length": str(len(field.field_type))}
    return attributes


def _with_parquet_id(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_with_parquet_id(part) for part in kind])
    elif pa.types.is_list(kind):
        kind = pa.list_(_with_parquet_id(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(_with_parquet_id(kind.key_field), _with_parquet_id(kind.item_field))
    field_id = (field.metadata or {}).get(_ID)
    return pa.field(field.name, kind, field.nullable, metadata={_PARQUET_ID: field_id} if field_id else None)
