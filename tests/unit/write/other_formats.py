"""Files in ORC and Avro with Iceberg's field ids, as other writers have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc
from pyiceberg.types import FixedType, ListType, MapType, NestedField, StructType, TimeType, UUIDType

from frazil.schema.arrow import arrow_type, rows_as_written
from frazil.schema.parts import parts_of
from tests.needs import has_package

if has_package("replay"):
    from frazil_replay.avro import avro_rows, avro_schema


def convert(parquet: Any, stream: Any, name: str, fields: Sequence[NestedField]) -> None:
    """Writes the rows of a Parquet file to `stream` in the format `name`. fields: those of the file, in order."""
    batches = pq.ParquetFile(parquet).iter_batches()
    if name == "avro":
        schema = avro_schema(fields)
        fastavro.writer(stream, schema, avro_rows(batches, schema), codec="deflate")
        return
    stored = pa.schema([_orc_field(field) for field in fields])
    with orc.ORCWriter(stream) as writer:
        for batch in batches:
            writer.write(rows_as_written(batch, stored))


def _orc_field(field: NestedField) -> pa.Field:
    """ORC has no times, UUIDs and fixed bytes: Iceberg stores them as numbers and bytes."""
    kind = field.field_type
    parts = [_orc_field(part) for part in parts_of(kind)]
    if isinstance(kind, StructType):
        stored = pa.struct(parts)
    elif isinstance(kind, ListType):
        stored = pa.list_(parts[0])
    elif isinstance(kind, MapType):
        stored = pa.map_(_orc_field(kind.key_field).with_nullable(False), parts[0])
    elif isinstance(kind, TimeType):
        stored = pa.int64()
    else:
        stored = pa.binary() if isinstance(kind, UUIDType | FixedType) else arrow_type(kind)
    return pa.field(field.name, stored, metadata={"iceberg.id": str(field.field_id)})
