"""The formats of data files.

Frazil's own is Parquet; a file in ORC or Avro is converted from Parquet when it is complete, and to Parquet before it is
read. So statistics, lookups and rewrites know one format, at the price of processor time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.types import NestedField

from frazil.errors import SpecError
from frazil.store.table_properties import wrong_values
from frazil.write.avro import read_avro, write_avro
from frazil.write.orc import read_orc, write_orc

PARQUET = "parquet"
FORMAT = "write.format.default"
"""The table property with the format of new data files (Iceberg documentation, "Write properties")."""
_WRITERS = {"orc": write_orc, "avro": write_avro}
_READERS = {"orc": read_orc, "avro": read_avro}
_ROWS = 16_384
_LAST_US = (2**63 - 1) // 1000


def format_of(properties: Mapping[str, str], table: str) -> str:
    """Returns the format of a table's new data files: `parquet`, `orc` or `avro`.

    Raises: SpecError where the table asks for another one.
    """
    file_format = properties.get(FORMAT, PARQUET).lower()
    if file_format != PARQUET and file_format not in _WRITERS:
        raise SpecError(
            f"the table's property `write.format.default` is `{file_format}`, which Frazil does not write",
            remedy=f"`ALTER TABLE {table} SET TBLPROPERTIES ('{FORMAT}' = 'parquet')`: the files of one table may have"
            " several formats",
            where=table,
        )
    return file_format


def check_properties(properties: Mapping[str, str], table: str) -> None:
    """Checks the properties of an existing table that its files are written with.

    Raises: SpecError for a value that no file can be written with.
    """
    format_of(properties, table)
    for wrong in wrong_values(properties):
        raise SpecError(
            f"the table's property `{wrong.name}` is `{wrong.text}`, and Iceberg takes {wrong.taken}",
            remedy=f"`ALTER TABLE {table} SET TBLPROPERTIES ('{wrong.name}' = '{wrong.usual}')`",
            where=table,
        )


def stored_format(wanted: str, metadata: pq.FileMetaData) -> str:
    """Returns the format in which the rows of a Parquet file are stored: `wanted`, or Parquet for a file with timestamps
    that ORC does not keep. Arrow writes those before 1970 with fractions that Java reads as another second (ORC-763), and
    reads none after 2262.
    """
    if wanted != "orc":
        return wanted
    columns = range(metadata.num_columns)
    times = [number for number in columns if metadata.schema.column(number).logical_type.type == "TIMESTAMP"]
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    bounds = [group.column(number).statistics for group in groups for number in times]
    are_kept = all(
        column_bounds.min_raw >= 0 and column_bounds.max_raw <= _LAST_US
        for column_bounds in bounds
        if column_bounds.has_min_max
    )
    return wanted if are_kept else PARQUET


def write_file(
    parquet: Any, stream: Any, name: str, fields: Sequence[NestedField], properties: Mapping[str, str]
) -> None:
    """Writes the rows of a Parquet file to `stream` in the format `name`. fields: those of the file, in order.

    Raises: OSError where the store refuses the file.
    """
    codec = properties.get(f"write.{name}.compression-codec", "").lower()
    _WRITERS[name](pq.ParquetFile(parquet).iter_batches(_ROWS, use_threads=False), stream, fields, codec)


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
