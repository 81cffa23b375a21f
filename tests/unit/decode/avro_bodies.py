"""Short ways to read Avro bodies in a test."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from frazil.decode.avro.reader import AvroReader, avro_reader
from frazil.decode.columns import Bodies, Columns, Reader

Node = str | Mapping[str, Any] | Sequence[Any]
"""A schema as Python's json module has it."""


def reader_of(schema: Node, *references: Node) -> AvroReader:
    """The reader for a schema."""
    return avro_reader(json.dumps(schema), tuple(json.dumps(reference) for reference in references))


def record_of(**fields: Node) -> dict[str, Any]:
    """The schema of a record `r`."""
    return {"type": "record", "name": "r", "fields": [{"name": name, "type": node} for name, node in fields.items()]}


def bodies_of(bodies: Sequence[bytes], gap: bytes = b"") -> Bodies:
    """The bodies one after another, a gap before each and after the last."""
    buffer = gap + gap.join(bodies) + gap
    lengths = np.array([len(body) for body in bodies], np.int64)
    ends = np.cumsum(lengths + len(gap))
    starts = ends - lengths
    return Bodies(np.frombuffer(buffer, np.uint8), starts.astype(np.int32), ends.astype(np.int32))


def write(schema: Node, *values: Any) -> list[bytes]:
    """Each value as Avro writes it."""
    parsed = fastavro.parse_schema(schema)  # type: ignore[arg-type]
    bodies = []
    for value in values:
        target = io.BytesIO()
        fastavro.schemaless_writer(target, parsed, value)
        bodies.append(target.getvalue())
    return bodies


def read(schema: Node, bodies: Sequence[bytes] | Bodies) -> Columns:
    """The columns of the bodies; what comes out must be well-formed Arrow, and null where there is a fault."""
    reader: Reader = reader_of(schema)
    columns = reader.read(bodies if isinstance(bodies, Bodies) else bodies_of(bodies))
    assert len(columns.arrays) == len(reader.struct.fields)
    for array in columns.arrays:
        array.validate(full=True)
        assert len(array) == len(columns.fault)
        assert all(array[row].as_py() is None for row in np.flatnonzero(columns.fault).tolist())
    return columns


def rows(schema: Node, bodies: Sequence[bytes]) -> list[dict[str, Any] | None]:
    """The rows of the bodies, None for those with a fault."""
    columns = read(schema, bodies)
    names = [field.name for field in reader_of(schema).struct.fields]
    lists = [array.to_pylist() for array in columns.arrays]
    return [
        None if columns.fault[row] else {name: values[row] for name, values in zip(names, lists, strict=True)}
        for row in range(len(bodies))
    ]


def plain(value: pa.Scalar) -> Any:
    """The value of a scalar; dates, times and moments as numbers, as Python has no words for all of them."""
    if not value.is_valid:
        return None
    if isinstance(value, pa.StructScalar):
        return {name: plain(value[name]) for name in value}
    if isinstance(value, pa.MapScalar):
        return [(entry["key"].as_py(), plain(entry["value"])) for entry in value.values]
    if isinstance(value, pa.ListScalar):
        return [plain(item) for item in value.values]
    if isinstance(value, (pa.TimestampScalar, pa.Time64Scalar, pa.Date32Scalar)):
        return value.value
    return value.as_py()


def plain_rows(schema: Node, bodies: Sequence[bytes]) -> list[dict[str, Any] | None]:
    """As `rows`, of `plain` values."""
    columns = read(schema, bodies)
    names = [field.name for field in reader_of(schema).struct.fields]
    return [
        None if fault else {name: plain(array[row]) for name, array in zip(names, columns.arrays, strict=True)}
        for row, fault in enumerate(columns.fault.tolist())
    ]


def faults(columns: Columns) -> list[tuple[int, str, str, str]]:
    """Row, kind, path and message of each fault."""
    found = [(row, columns.explain(row)) for row in np.flatnonzero(columns.fault).tolist()]
    return [(row, fault.kind, columns.paths.get(row, ""), fault.message) for row, fault in found]


def kinds(columns: Columns) -> list[tuple[int, str, str]]:
    """Row, kind and path of each fault."""
    return [fault[:3] for fault in faults(columns)]


def number(value: int) -> bytes:
    """A zig-zag number."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def text(value: str) -> bytes:
    """A string."""
    return number(len(value.encode())) + value.encode()


def spell(kind: IcebergType) -> str:
    """A type in the words of the pipeline file."""
    if isinstance(kind, StructType):
        return f"struct<{', '.join(f'{member.name}: {spell(member.field_type)}' for member in kind.fields)}>"
    if isinstance(kind, ListType):
        return f"list<{spell(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"map<{spell(kind.key_type)},{spell(kind.value_type)}>"
    return str(kind).replace(", ", ",")
