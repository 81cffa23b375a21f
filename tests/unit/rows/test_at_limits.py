"""Each limit of a record: at the limit and one below it the record is a row, one above it a dead letter, and the records
before and behind it in the same chunk are rows in all three cases.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from docs.scan import ROOT
from frazil.column_names import MAX_NAME_BYTES
from frazil.decode.avro import numbers
from frazil.decode.avro import schema as avro
from frazil.decode.json import grammar, infer
from frazil.decode.settings import Reading, WriterSchema
from frazil.ingest.tables.state import RunState
from frazil.registry.port import UnusableSchema
from frazil.rows.writer_schemas import struct_of
from frazil.schema.parts import MAX_LEVELS
from frazil.spec.settings import DeadLettersSpec, LimitsSpec
from tests.needs import needs
from tests.unit.decode.test_amplification import AVRO_ITEM, WIDTH, target, took, zigzag
from tests.unit.ingest.service_scene import Scene, only
from tests.unit.schema.test_name_case import dead_letters_of

UNIT = Path(__file__).resolve().parents[1]
ID_FIELD = {"name": "id", "type": "long"}


def frame(schema: int) -> bytes:
    return b"\0" + schema.to_bytes(4, "big")


def varint(number: int) -> bytes:
    found = b""
    while number >= 128:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def schema_of(kind: str, text: Any) -> WriterSchema:
    """A schema as the driver sends it to tasks."""
    if isinstance(text, WriterSchema):
        return text
    schema = WriterSchema(kind, json.dumps(text), ())
    try:
        struct_of(schema)
    except UnusableSchema as error:
        return WriterSchema("unusable", str(error))
    return schema


def reading(kind: str, *schemas: Any, **settings: Any) -> Reading:
    """The n-th schema has the id n."""
    known = tuple((str(n), schema_of(kind, text)) for n, text in enumerate(schemas, 1))
    return Reading(format=kind, schemas=known, on_bad="dead_letter", unknown_fields="drop", **settings)


def record_type(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": [ID_FIELD, *fields]}


@dataclass(frozen=True)
class Case:
    """A limit that a record's own bytes can exceed."""

    #: The row of the page of limits.
    limit: str
    #: The largest size that is read.
    at: int
    #: The class of error above it.
    kind: str
    #: How records are read.
    reading: Reading
    #: The record with an id and a size; without a size a plain one.
    record: Callable[[int, int | None], bytes]


def _no_prefix(length: int) -> bytes:  # noqa: ARG001  (one signature for all)
    return b""


def sized(head: bytes, tail: bytes, prefix: Callable[[int], bytes] = _no_prefix) -> Callable[[int, int | None], bytes]:
    """Records of a size in bytes, of which a text of any length is filled."""

    def record(number: int, size: int | None) -> bytes:
        start = head % number if b"%d" in head else head + (zigzag(number) if tail == b"" else b"\x08" + varint(number))
        room = (100 if size is None else size) - len(start) - len(tail)
        length = next(n for n in range(room, -1, -1) if len(prefix(n)) + n <= room)
        return start + prefix(length) + b"x" * length + tail

    return record


AVRO_TEXT = record_type({"name": "s", "type": "string"})
NESTED_AVRO = {
    "type": "record", "name": "r", "fields": [ID_FIELD, {"name": "r", "type": ["null", "r"], "default": None}]
}  # fmt: skip


def avro_list(number: int, size: int | None) -> bytes:
    count = 1 if size is None else size
    return frame(1) + zigzag(number) + zigzag(count) + bytes(count) + b"\0"


def avro_nulls(number: int, size: int | None) -> bytes:
    return frame(1) + zigzag(number) + zigzag(1 if size is None else size) + b"\0"


def deep_json(number: int, size: int | None) -> bytes:
    depth = 1 if size is None else size
    return b'{"id": %d, "x": %s}' % (number, b"[" * depth + b"]" * depth)


def deep_avro(number: int, size: int | None) -> bytes:
    depth = 1 if size is None else size
    return frame(1) + b"".join(zigzag(number) + (b"\x02" if n < depth - 1 else b"\0") for n in range(depth))


def long_varint(number: int, size: int | None) -> bytes:
    """A record whose id takes so many bytes, of which the last ones are zeros."""
    head = varint(number)
    spare = 0 if size is None else size - len(head)
    longer = head if not spare else head[:-1] + bytes([head[-1] | 128]) + b"\x80" * (spare - 1) + b"\0"
    return frame(1) + b"\0" + b"\x08" + longer


def long_zigzag(number: int, size: int | None) -> bytes:
    return frame(1) + long_varint(number * 2, size)[7:] + zigzag(0)


LONG_NAME = "n" * 2000
NAMES_AVRO = record_type(
    {"name": LONG_NAME, "type": "null"},
    {"name": "t", "type": {"type": "array", "items": {"type": "enum", "name": "e", "symbols": ["x"]}}},
    {"name": "kids", "type": {"type": "array", "items": "r"}},
)


def avro_names(number: int, size: int | None) -> bytes:
    """A record with a value that becomes JSON with so many characters in names and symbols."""
    names = sum(len(field["name"]) for field in NAMES_AVRO["fields"])
    count, symbols = divmod(size or names, names)
    leaves = zigzag(count - 1) + b"\0\0\0" * (count - 1) if count > 1 else b""
    kid = b"\0" + (zigzag(symbols) + bytes(symbols) if symbols else b"") + b"\0" + leaves + b"\0"
    return frame(1) + zigzag(number) + b"\0" + zigzag(1) + kid + b"\0"


def at_excess(make: Callable[[int, int], bytes], cells: int, free: int, per_byte: int, excess: int) -> bytes:
    """A record that takes so many cells more than it may. make: a record with a number of items that take a cell each, and
    of bytes that take none; cells: those of its other items.
    """
    made = ((more, make(more, spare)) for more in range(per_byte) for spare in range(1000))
    return next(one for more, one in made if cells + more - free - per_byte * len(one) == excess)


AVRO_ITEMS = record_type(
    {"name": "l", "type": {"type": "array", "items": ["null", AVRO_ITEM]}},
    {"name": "t", "type": {"type": "array", "items": "boolean"}},
    {"name": "s", "type": "string"},
)


def avro_items(number: int, size: int | None) -> bytes:
    """A record whose items take so many cells more than they may."""
    count = 1000

    def make(more: int, spare: int) -> bytes:
        small = zigzag(more) + bytes(more) if more else b""
        return zigzag(number) + zigzag(count) + bytes(count) + b"\0" + small + b"\0" + zigzag(spare) + b"x" * spare

    if size is None:
        return frame(1) + zigzag(number) + bytes(3)
    return frame(1) + at_excess(make, count * (WIDTH + 1), numbers.FREE_CELLS, numbers.CELLS_PER_BYTE, size)


CASES = [
    Case("bytes of a record's value", 1000, "too_large",
         Reading(on_bad="dead_letter", unknown_fields="drop", max_record_bytes=1000),
         sized(b'{"id": %d, "s": "', b'"}')),
    Case("bytes of a record's value", 1000, "too_large", reading("avro", AVRO_TEXT, max_record_bytes=1000),
         sized(frame(1), b"", zigzag)),
    Case("items of one Avro array or map", numbers.MAX_ITEMS, "too_large",
         reading("avro", record_type({"name": "l", "type": {"type": "array", "items": "boolean"}})), avro_list),
    Case("array items without bytes (null, empty records) of an Avro record", numbers.MAX_EMPTY_ITEMS, "too_large",
         reading("avro", record_type({"name": "l", "type": {"type": "array", "items": "null"}})), avro_nulls),
    Case("levels of JSON below the record", grammar.MAX_DEPTH, "too_deep",  # Below the record.
         Reading(on_bad="dead_letter", unknown_fields="drop"), deep_json),
    Case("levels of Avro values and schemas", avro.MAX_LEVELS, "too_deep", reading("avro", NESTED_AVRO), deep_avro),
    Case("numbers in Avro, varints and lengths in Protobuf", 10, "malformed", reading("avro", AVRO_TEXT), long_zigzag),
    Case("characters of names in an Avro value that becomes JSON", numbers.MAX_JSON_CHARACTERS, "too_large",
         reading("avro", NAMES_AVRO), avro_names),
    Case("cells of the array and map items of an Avro record", 0, "too_large",
         reading("avro", AVRO_ITEMS), avro_items),
]  # fmt: skip


def check_record(folder: Path, case: Case, more: int) -> None:
    """Asserts what becomes of a record so much above a limit, and of its neighbours."""
    values = [case.record(0, None), case.record(1, case.at + more), case.record(2, None)]
    _, rows, dead_letters = took(target(folder, case.reading, {"id": "long"}), values)
    assert (rows, dead_letters) == (([0, 2], [(1, case.kind)]) if more > 0 else ([0, 1, 2], []))


@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("case", CASES, ids=[f"{case.limit}-{case.reading.format}" for case in CASES])
def test_a_record_above_a_limit_is_a_dead_letter_and_its_neighbours_are_rows(
    tmp_path: Path, case: Case, more: int
) -> None:
    check_record(tmp_path, case, more)


def many_fields(count: int) -> Any:
    """A schema with so many fields, one of them the id."""
    return record_type(*({"name": f"f{n}", "type": "null"} for n in range(count - 1)))


def deep_schema(levels: int) -> Any:
    """A schema of so many levels."""
    inner: Any = "null"
    for n in range(levels - 1):
        inner = {"type": "record", "name": f"r{n}", "fields": [{"name": "x", "type": inner}]}
    return record_type({"name": "x", "type": inner})


def long_schema(size: int) -> Any:
    """A schema of so many bytes."""
    plain = many_fields(1) | {"doc": ""}
    return plain | {"doc": "x" * (size - len(json.dumps(plain)))}


@dataclass(frozen=True)
class SchemaCase:
    """A limit that a schema can exceed."""

    #: The row of the page of limits.
    limit: str
    #: Makes a schema of a size.
    make: Callable[[int], Any]
    #: The largest size that is read.
    at: int


SCHEMAS = [
    SchemaCase("fields of an Avro schema", many_fields, avro.MAX_FIELDS),
    SchemaCase("levels of Avro values and schemas", deep_schema, avro.MAX_LEVELS),
    SchemaCase("bytes of an Avro schema with its references", long_schema, avro.MAX_TEXT_BYTES),
]


def check_schema(
    folder: Path, kind: str, case: SchemaCase, plain: Any, body: Callable[[int], bytes], more: int
) -> None:
    """Asserts what becomes of a record whose schema is so much above a limit, and of its neighbours."""
    how = reading(kind, plain, case.make(case.at + more))
    values = [frame(schema) + body(number) for number, schema in enumerate((1, 2, 1))]
    _, rows, dead_letters = took(target(folder, how, {"id": "long"}), values)
    assert (rows, dead_letters) == (([0, 2], [(1, "unusable_schema")]) if more > 0 else ([0, 1, 2], []))


@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("case", SCHEMAS, ids=[case.limit for case in SCHEMAS])
def test_a_schema_above_a_limit_is_unusable_for_its_own_records_alone(
    tmp_path: Path, case: SchemaCase, more: int
) -> None:
    check_schema(tmp_path, "avro", case, many_fields(1), zigzag, more)


def inferred(size: int) -> dict[str, Any]:
    """A field of objects in each other, so many levels deep."""
    value: Any = 7
    for _ in range(size):
        value = {"o": value}
    return {"x": value}


def levels(size: int) -> dict[str, Any]:
    """A field of so many levels in Parquet: lists, which are two, in an object where one more is needed."""
    value: Any = 7
    for _ in range((size - 1) // 2):
        value = [value]
    return {"x": value if size % 2 else {"o": value}}


NEW_FIELDS: list[tuple[str, int, str, Callable[[int], dict[str, Any]]]] = [
    ("levels of JSON from which a column is inferred", infer.MAX_INFERRED_DEPTH, "too_deep", inferred),
    ("levels of a column in Parquet, where a list or a map is two", MAX_LEVELS, "too_deep", levels),
    ("bytes of a column's name in UTF-8, at every depth", MAX_NAME_BYTES, "name_too_long", lambda n: {"k" * n: 1}),
    ("bytes of a column's name in UTF-8, at every depth", MAX_NAME_BYTES, "name_too_long",
     lambda n: {"l": [{"é" * 2 + "k" * (n - 4): 1}]}),
    ("columns of a table, at all depths", 99, "too_many_fields", lambda n: {f"f{k}": 1 for k in range(n)}),
    ("columns of a table, at all depths", 98, "too_many_fields", lambda n: {"o": {f"f{k}": 1 for k in range(n)}}),
]  # fmt: skip


@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize(("limit", "at", "kind", "fields"), NEW_FIELDS)
def test_new_fields_above_a_limit_make_a_dead_letter_of_their_record_alone(
    tmp_path: Path, limit: str, at: int, kind: str, fields: Callable[[int], dict[str, Any]], more: int
) -> None:
    scene = Scene(tmp_path, "a", dead_letters=DeadLettersSpec(stop_above=1.0), limits=LimitsSpec(columns=100))
    scene.feed("a", {"id": 0}, {"id": 1, **fields(at + more)}, {"id": 2})
    assert only(scene.catch_up()).status.run_state is RunState.WAITING
    found = [row["id"] for row in scene.rows("n.a")]
    dead = [(offset, what) for offset, what, _, _ in dead_letters_of(scene)] if more > 0 else []
    assert (found, dead) == (([0, 2], [(1, kind)]) if more > 0 else ([0, 1, 2], [])), limit


_JSON_SCHEMA = "../../packages/jsonschema/tests/unit/test_at_limits.py"
_PROTOBUF = "../../packages/protobuf/tests/unit/test_at_limits.py"
_LOOKUPS = "../../packages/lookup/tests/unit/test_lookup_limits.py"
ELSEWHERE = {
    **dict.fromkeys(
        (
            "bytes of a value that is read, whatever `record_size` allows",
            "bytes of a value in a dead letter, if no table of its topic allows the value",
        ),
        ("ingest/tasks/test_left_out.py", "test_a_job_reads_what_one_of_its_tables_allows"),
    ),
    "cells of one record, every format": (
        "rows/test_cells_at_limits.py", "test_a_record_with_one_cell_too_many_is_a_dead_letter_and_its_neighbours_are_rows"
    ),
    "cells of one decoding chunk, every format": (
        "rows/test_cells_at_limits.py", "test_a_chunk_with_one_cell_too_many_is_read_in_two_and_all_of_it_becomes_rows"
    ),
    "cells of the list and map items of a Protobuf record": (
        _PROTOBUF, "test_a_record_whose_items_take_one_cell_too_many_is_a_dead_letter"
    ),
    **dict.fromkeys(
        (
            "the number of a Protobuf field", "message indexes of a Protobuf record", "levels of Protobuf messages",
        ),
        (_PROTOBUF, "test_a_record_above_a_limit_is_a_dead_letter_and_its_neighbours_are_rows"),
    ),
    **dict.fromkeys(
        ("fields of a Protobuf schema", "levels of a Protobuf schema"),
        (_PROTOBUF, "test_a_schema_above_a_limit_is_unusable_for_its_own_records_alone"),
    ),
    **dict.fromkeys(
        (
            "fields of a JSON Schema", "levels of a JSON Schema", "bytes of a JSON Schema with its references",
        ),
        (_JSON_SCHEMA, "test_a_schema_above_a_limit_is_unusable_for_its_own_records_alone"),
    ),
    "values of a Protobuf message that becomes JSON": (
        "../../packages/protobuf/tests/unit/test_json.py", "test_messages_of_very_many_values_are_refused"
    ),
    "new fields, and fields to rescue, per decoding chunk, at all depths": (
        "rows/test_many_names.py", "test_the_limit_of_a_records_new_fields_does_not_concern_its_neighbours"
    ),
    "rows of a reference table of [`lookup`](../guides/lookup.md)": (
        _LOOKUPS, "test_a_reference_table_with_one_row_too_many_is_waited_for"
    ),
    "size in memory of the columns that a lookup names": (
        _LOOKUPS, "test_columns_of_one_byte_too_many_are_waited_for"
    ),
    "processor time of a worker for one decoding chunk (at most 20,000 records, 64 MB)": (
        "ingest/tasks/test_isolate.py", "test_a_record_is_read_if_it_takes_less_than_it_may"
    ),
    "additional memory of a worker for one task": (
        "ingest/tasks/test_isolate.py", "test_a_record_is_read_if_it_takes_less_than_it_may"
    ),
}  # fmt: skip
"""The tests of limits that are no case above."""


@needs("jsonschema", "lookup", "protobuf")
def test_every_limit_of_the_page_is_tested() -> None:
    page = (ROOT / "docs/reference/limits.md").read_text()
    table = page[: page.index("## Memory and time")]
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| [^|]+ \| [^|]+ \|$", table, re.MULTILINE)
    named = {row for row in rows if row not in ("quantity", "---")}
    here = {*(case.limit for case in CASES), *(case.limit for case in SCHEMAS), *(name for name, *_ in NEW_FIELDS)}
    assert named == here | ELSEWHERE.keys()
    assert [name for file, name in ELSEWHERE.values() if f"def {name}(" not in (UNIT / file).read_text()] == []
