"""The formats of data files: Frazil writes Parquet, and other writers of a table may have written ORC and Avro.

Their files are converted to Parquet before they are read. So lookups and dead letters know one format, at the price of
processor time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from frazil.errors import SpecError
from frazil.schema.arrow import rows_as_written
from frazil.store.properties import wrong_values
from frazil.write.avro import read_avro

PARQUET = "parquet"
FORMAT = "write.format.default"
"""The table property with the format of new data files (Iceberg documentation, "Write properties")."""


def check_properties(properties: Mapping[str, str], table: str) -> None:
    """Checks the properties of an existing table that its files are written with.

    Raises: SpecError for a format other than Parquet, and for a value that no file can be written with.
    """
    file_format = properties.get(FORMAT, PARQUET).lower()
    if file_format != PARQUET:
        raise SpecError(
            f"the table's property `write.format.default` is `{file_format}`, which Frazil does not write",
            remedy=f"`ALTER TABLE {table} SET TBLPROPERTIES ('{FORMAT}' = '{PARQUET}')`: the files of one table may have"
            " several formats",
            where=table,
        )
    for wrong in wrong_values(properties):
        raise SpecError(
            f"the table's property `{wrong.name}` is `{wrong.text}`, and Iceberg takes {wrong.taken}",
            remedy=f"`ALTER TABLE {table} SET TBLPROPERTIES ('{wrong.name}' = '{wrong.usual}')`",
            where=table,
        )


def read_file(stream: Any, name: str, path: str, **options: Any) -> pq.ParquetFile:
    """Returns the data file or delete file `path` as a Parquet file; a file in another format as a copy in memory.
    options: of pyarrow's reader.

    Raises: OSError where the store fails; SpecError where a file in another format cannot be read.
    """
    if name == PARQUET:
        return pq.ParquetFile(stream, **options)
    sink = pa.BufferOutputStream()
    try:
        schema, tables = _READERS[name](stream)
        with pq.ParquetWriter(sink, schema, compression="lz4", store_schema=False) as writer:
            for table in tables:
                writer.write_table(table)
    except (KeyError, ValueError) as error:
        raise SpecError(
            f"an upsert table needs a file that cannot be read: format={name} {error}",
            remedy=f"set the table's property `{FORMAT}` to `parquet`, and rewrite the table's files",
            where=path,
        ) from None
    return pq.ParquetFile(pa.BufferReader(sink.getvalue()), **options)


def _read_orc(stream: Any) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """Returns the schema of an ORC file, with field ids as Parquet has them, and its rows.

    Source: Iceberg specification, appendix A, "ORC"; Arrow has the attributes of an ORC type as a field's metadata.

    Raises: OSError where the store fails; ValueError for a timestamp beyond the years 1677 to 2262, which Arrow cannot
    read from ORC.
    """
    file = orc.ORCFile(stream)
    schema = pa.schema([_with_parquet_id(field) for field in file.schema])
    return schema, (rows_as_written(file.read_stripe(number), schema) for number in range(file.nstripes))


def _with_parquet_id(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_with_parquet_id(part) for part in kind])
    elif pa.types.is_list(kind):
        kind = pa.list_(_with_parquet_id(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(_with_parquet_id(kind.key_field), _with_parquet_id(kind.item_field))
    field_id = (field.metadata or {}).get(b"iceberg.id")
    return pa.field(field.name, kind, field.nullable, metadata={b"PARQUET:field_id": field_id} if field_id else None)


_READERS = {"orc": _read_orc, "avro": read_avro}
