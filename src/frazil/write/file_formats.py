"""The formats of data files: Frazil writes Parquet, and other writers of a table may have written ORC and Avro.

Their files are converted to Parquet before they are read. So lookups and dead letters know one format, at the price of
processor time. Avro has Iceberg's field ids: Iceberg specification, appendix A, "Avro".
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from frazil.errors import SpecError
from frazil.schema.arrow import rows_as_written
from frazil.store.properties import wrong_values

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


_NamedTypes = dict[str, pa.DataType]
_MapForm = Callable[[Iterable[tuple[Any, Any]], pa.MapType], Any]
_NAMED = ("fixed", "record")
_PRIMITIVES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "string": pa.string(), "bytes": pa.binary(),
}  # fmt: skip
_LOGICAL: Mapping[str, pa.DataType] = {"date": pa.date32(), "time-micros": pa.time64("us")}
_UNITS = {"timestamp-micros": "us", "timestamp-nanos": "ns"}


def read_avro(stream: Any) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """Returns the schema of an Avro file, with field ids as Parquet has them, and its rows.

    Raises: OSError where the store fails; KeyError or ValueError for a file that was not written for Iceberg; SpecError
    where the package that reads it is not installed.
    """
    library = _library()
    blocks = library.block_reader(stream)
    written = blocks.writer_schema
    schema, plain = pa.schema(arrow_fields(written, {})), library.parse_schema(without_times(written))
    return schema, (_rows(library, block, plain, schema) for block in blocks)


def _library() -> Any:
    try:
        return importlib.import_module("fastavro")
    except ModuleNotFoundError:
        raise SpecError(
            "files of a table that another writer wrote in Avro need the package fastavro, which is not installed",
            remedy="install `frazil[avro-files]` with pip from where Frazil was installed, here and where tasks run",
        ) from None


# ---- schemas


def without_times(schema: Any) -> Any:
    """Returns the schema with times as their integers: Python's own times cannot hold all of them."""
    if isinstance(schema, list):
        return [without_times(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: without_times(value)
        for name, value in schema.items()
        if name != "logicalType" or value in ("decimal", "map")
    }


def arrow_fields(record: Any, named_types: _NamedTypes) -> list[pa.Field]:
    return [_arrow_field(field["name"], field["type"], field["field-id"], named_types) for field in record["fields"]]


def _arrow_field(name: str, schema: Any, field_id: int, named_types: _NamedTypes) -> pa.Field:
    """Returns the Arrow field of values with an Avro schema, with field ids at every level. named_types: the types that the
    schema has defined already, by name.
    """
    is_optional = isinstance(schema, list)
    kind = _arrow_kind(next(branch for branch in schema if branch != "null") if is_optional else schema, named_types)
    return pa.field(name, kind, is_optional, metadata={b"PARQUET:field_id": str(field_id).encode()})


def _arrow_kind(schema: Any, named_types: _NamedTypes) -> pa.DataType:
    if isinstance(schema, str):
        return named_types[schema] if schema in named_types else _PRIMITIVES[schema]
    form, logical = schema["type"], schema.get("logicalType", "")
    if form == "map":
        key = _arrow_field("key", "string", schema["key-id"], named_types)
        return pa.map_(key, _arrow_field("value", schema["values"], schema["value-id"], named_types))
    if form == "array" and logical == "map":
        return pa.map_(*arrow_fields(schema["items"], named_types))
    if form == "array":
        return pa.list_(_arrow_field("element", schema["items"], schema["element-id"], named_types))
    if form in _NAMED:
        named_types[schema["name"]] = _named_kind(schema, named_types)
        return named_types[schema["name"]]
    if logical in _UNITS:
        return pa.timestamp(_UNITS[logical], "UTC" if schema.get("adjust-to-utc") else None)
    return _LOGICAL.get(logical) or _arrow_kind(form, named_types)


def _named_kind(schema: Any, named_types: _NamedTypes) -> pa.DataType:
    if schema["type"] == "record":
        return pa.struct(arrow_fields(schema, named_types))
    is_decimal = schema.get("logicalType") == "decimal"
    return pa.decimal128(schema["precision"], schema["scale"]) if is_decimal else pa.binary(schema["size"])


# ---- values


def _rows(library: Any, block: Any, plain: Any, schema: pa.Schema) -> pa.Table:
    """Returns the rows of one block of a file."""
    rows: list[Any] = [library.schemaless_reader(block.bytes_, plain, None) for _ in range(block.num_records)]
    for field in schema:
        if has_map(field.type):
            for row in rows:
                row[field.name] = with_maps(row[field.name], field.type, _arrow_map_of)
    return pa.Table.from_pylist(rows, schema)


def has_map(kind: pa.DataType) -> bool:
    parts = [kind.field(number).type for number in range(kind.num_fields)] if pa.types.is_nested(kind) else []
    return pa.types.is_map(kind) or any(map(has_map, parts))


def with_maps(value: Any, kind: pa.DataType, form: _MapForm) -> Any:
    """Returns a value with the entries of its maps in another form."""
    if value is None or not has_map(kind):
        return value
    if pa.types.is_struct(kind):
        return {part.name: with_maps(value[part.name], part.type, form) for part in kind}
    if pa.types.is_list(kind):
        return [with_maps(element, kind.value_type, form) for element in value]
    pairs = (
        (with_maps(key, kind.key_type, form), with_maps(item, kind.item_type, form)) for key, item in _pairs(value)
    )
    return form(pairs, kind)


def _pairs(entries: Any) -> Iterable[tuple[Any, Any]]:
    """Returns the entries of a map, in Arrow's form or in one of Avro's."""
    if isinstance(entries, dict):
        return entries.items()
    return ((entry["key"], entry["value"]) if isinstance(entry, dict) else entry for entry in entries)


def _arrow_map_of(pairs: Iterable[tuple[Any, Any]], _: pa.MapType) -> Any:
    return list(pairs)


_READERS = {"orc": _read_orc, "avro": read_avro}
