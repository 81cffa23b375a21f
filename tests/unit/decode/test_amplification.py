"""Records that are small as bytes and large as columns: read in pieces, or dead letters; nothing of others is lost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import IcebergType

from frazil.clock import SystemClock
from frazil.dead_letters.record import DEAD_LETTER_TYPES
from frazil.decode import limits
from frazil.decode.json.as_sent import unescape_keys
from frazil.decode.json.records import decode_json
from frazil.decode.settings import Evolution, Reading, WriterSchema
from frazil.ingest.tasks.task_job import Job
from frazil.report import TaskReport
from frazil.write.target import TableTarget
from tests.fixtures.slices import sliced
from tests.needs import cases, has_package, needs
from tests.unit.decode.hostile import CASES as WORLDS
from tests.unit.decode.hostile import NAMES, NEEDED, worlds
from tests.unit.ingest.targets import records_of, run, target_of

if has_package("protobuf"):
    from frazil_protobuf.protoc import compile_proto

FRAME = b"\0\0\0\0\1"
WIDTH = 200
WIDE = f"list<struct<{', '.join(f'f{n}: long' for n in range(WIDTH))}>>"
ITEMS = 500
PROTO = (
    'syntax = "proto3"; message R { repeated E l = 1; int64 id = 2; } '
    f"message E {{ {' '.join(f'int64 f{n} = {n + 1};' for n in range(WIDTH))} }}"
)
AVRO_ITEM = {"type": "record", "name": "e", "fields": [{"name": f"f{n}", "type": "long"} for n in range(WIDTH)]}
AVRO = {
    "type": "record",
    "name": "r",
    "fields": [{"name": "id", "type": "long"}, {"name": "l", "type": {"type": "array", "items": ["null", AVRO_ITEM]}}],
}
NARROW = {**AVRO, "fields": [AVRO["fields"][0], {"name": "l", "type": {"type": "array", "items": {
    "type": "record", "name": "e", "fields": [{"name": "f0", "type": "int"}]}}}]}  # fmt: skip


def zigzag(number: int) -> bytes:
    """A number of Avro's."""
    number, found = number << 1, b""
    while number >= 128:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def json_record(n: int, items: int) -> bytes:
    return b'{"id": %d, "l": [%s]}' % (n, b",".join([b"{}"] * items))


def proto_record(n: int, items: int) -> bytes:
    return FRAME + b"\0" + b"\x0a\0" * items + b"\x10" + bytes([n])


def avro_record(n: int, items: int) -> bytes:
    return FRAME + zigzag(n) + (zigzag(items) + bytes(items) if items else b"") + b"\0"


def registered(kind: str, schema: Any) -> Reading:
    descriptors = compile_proto(schema, ()) if kind == "protobuf" and has_package("protobuf") else b""
    text = schema if kind == "protobuf" else json.dumps(schema)
    return Reading(format=kind, schemas=(("1", WriterSchema(kind, text, (), descriptors)),), on_bad="dead_letter")


FORMATS = {
    "json": (Reading(on_bad="dead_letter"), json_record),
    "protobuf": (registered("protobuf", PROTO), proto_record),
    "avro": (registered("avro", AVRO), avro_record),
    "avro, narrower than the table": (registered("avro", NARROW), avro_record),
}
CASES = cases(FORMATS)


def target(folder: Path, reading: Reading, columns: dict[str, str], **other: Any) -> TableTarget:
    """A table with a dead-letter table."""
    words = {name: word(kind) for name, kind in DEAD_LETTER_TYPES.items()}
    return target_of(
        folder, columns, reading=reading, dead_letters=target_of(folder, words, name="lake.dead_letters"), **other
    )


def word(kind: IcebergType) -> str:
    return "list<struct<key: string, value: binary>>" if str(kind).startswith("list") else str(kind)


def took(table: TableTarget, values: Sequence[bytes]) -> tuple[TaskReport, list[Any], list[Any]]:
    """What a task makes of the values: its report, the rows' ids, and offsets and classes of dead letters."""
    batch = records_of(
        {"topic": "a", "offset": n, "key": b"k", "headers": [], "value": value} for n, value in enumerate(values)
    )
    [report] = run(Job({"a": table}), batch).values()
    rows = [row for file in report.written.data for row in pq.read_table(file.path, columns=["id"])["id"].to_pylist()]
    dead_letters = [
        pq.read_table(file.path, columns=["offset", "error_class"]).to_pylist() for file in report.written.dead_letters
    ]
    return report, rows, [(one["offset"], one["error_class"]) for part in dead_letters for one in part]


@pytest.mark.parametrize("name", CASES)
def test_a_batch_that_becomes_too_much_is_read_in_pieces_in_its_order(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, record = FORMATS[name]
    monkeypatch.setattr(limits, "MAX_BATCH_CELLS", 3 * WIDTH * ITEMS)
    values = [record(n, ITEMS if n % 3 else 0) for n in range(40)]
    report, rows, dead_letters = took(target(tmp_path, reading, {"id": "long", "l": WIDE}), values)
    assert (report.counts.record_count, report.bad_records.count, rows, dead_letters) == (40, 0, list(range(40)), [])


@pytest.mark.parametrize("name", CASES)
def test_a_record_that_is_too_much_by_itself_is_a_dead_letter_and_its_neighbours_are_rows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, record = FORMATS[name]
    monkeypatch.setattr(limits, "MAX_BATCH_CELLS", 3 * WIDTH * ITEMS)
    monkeypatch.setattr(limits, "MAX_RECORD_CELLS", 2 * WIDTH * ITEMS)
    values = [record(n, {5: 3 * ITEMS, 17: 4 * ITEMS}.get(n, ITEMS // 2)) for n in range(30)]
    report, rows, dead_letters = took(target(tmp_path, reading, {"id": "long", "l": WIDE}), values)
    assert rows == [n for n in range(30) if n not in (5, 17)]
    assert dead_letters == [(5, "too_large"), (17, "too_large")]
    assert all(": split it" in bad.reason for bad in report.bad_records.first)


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("cells", sliced([40, 400], 1))
def test_pieces_of_every_format_make_the_rows_of_the_whole(
    name: str, cells: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = worlds()[name]
    batch = world.records(world.values)
    [whole] = run(Job({"a": world.target(tmp_path / "whole")}), batch).values()
    monkeypatch.setattr(limits, "MAX_BATCH_CELLS", cells)
    [parts] = run(Job({"a": world.target(tmp_path / "parts")}), batch).values()
    assert (parts.counts.record_count, parts.bad_records.count) == (whole.counts.record_count, whole.bad_records.count)
    assert _content(parts) == _content(whole)


def _content(report: TaskReport) -> list[str]:
    rows: list[str] = []
    for file in report.written.data:
        table = pq.read_table(file.path)
        kinds = [one.cast(pa.int64()) if pa.types.is_timestamp(one.type) else one for one in table.columns]
        rows += [repr(row) for row in pa.table(kinds, names=table.column_names).to_pylist()]
    return rows


@pytest.mark.parametrize(
    "name", cases((name for name in NAMES if name != "text" and not name.startswith("header")), NEEDED)
)
def test_no_record_of_any_format_is_lost_for_what_it_would_become(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = worlds()[name]
    monkeypatch.setattr(limits, "MAX_BATCH_CELLS", -1)
    monkeypatch.setattr(limits, "MAX_RECORD_CELLS", -(2**40))
    dead_letters = target_of(
        tmp_path, {one: word(kind) for one, kind in DEAD_LETTER_TYPES.items()}, name="lake.dead_letters"
    )
    [report] = run(Job({"a": world.target(tmp_path, dead_letters=dead_letters)}), world.records(world.values)).values()
    count = len(world.values)
    assert (
        report.counts.record_count,
        report.bad_records.count,
        report.written.dead_letter_count,
        report.written.data,
    ) == (count, count, count, ())
    assert {bad.kind for bad in report.bad_records.first} == {"too_large"}


@pytest.mark.parametrize("unknown_fields", ["add", "drop", "rescue", "refuse"])
def test_a_record_with_very_many_names_inside_is_a_dead_letter_soon(unknown_fields: str, tmp_path: Path) -> None:
    many = {f"k{n}": {f"m{k}": 1 for k in range(300)} for n in range(300)}
    values = [b'{"id": 0}', json.dumps({"id": 1, "v": many}).encode(), b'{"id": 2}']
    reading = Reading(
        on_bad="dead_letter",
        unknown_fields=unknown_fields,
        is_rescuing=unknown_fields == "rescue",
        evolution=Evolution(columns_left=900),
    )
    columns = {"id": "long"} | ({"_rescued": "string"} if unknown_fields == "rescue" else {})
    clock = SystemClock()
    began_s = clock.monotonic_s()
    _, rows, dead_letters = took(target(tmp_path, reading, columns), values)
    expected = {"add": "too_many_fields", "refuse": "unknown_field"}.get(unknown_fields)
    assert (rows, dead_letters) == (([0, 2], [(1, expected)]) if expected else ([0, 1, 2], []))
    assert clock.monotonic_s() - began_s < 60


@pytest.mark.parametrize("unknown_fields", ["add", "drop", "rescue", "refuse"])
def test_a_great_many_keys_of_one_object_cost_time_by_their_bytes(unknown_fields: str) -> None:
    columns = target_of(Path(), {f"c{n}": "long" for n in range(1500)}).fields
    texts = [b"{" + b",".join(b'"key%06d":1' % k for k in range(n)) + b"}" for n in (10_000, 300_000)]
    clock, times = SystemClock(), []
    refused: list[bool | str] = []
    for text in texts:
        began_s = clock.monotonic_s()
        try:
            with limits.bounded(limits.bounds_of(1, len(text), 0)):
                decoded = decode_json(pa.array([text], pa.binary()), columns, Reading(unknown_fields=unknown_fields))
            refused.append(bool(decoded.refused[0]))
        except limits.TooMuch as error:
            refused.append(error.fault.kind)
        times.append(clock.monotonic_s() - began_s)
    assert refused == [unknown_fields == "refuse", False if unknown_fields == "drop" else "too_many_fields"]
    assert times[1] < 5


def test_a_string_that_does_not_end_is_passed_once_when_keys_are_spelt_out() -> None:
    text = b'{"a": "' + b'\\"' * 300_000
    clock = SystemClock()
    began_s = clock.monotonic_s()
    assert unescape_keys(text) == text
    assert unescape_keys(b'{"\\u0061": "\\u0061", "b\\n" : 1}') == b'{"a": "\\u0061", "b\\n" : 1}'
    assert clock.monotonic_s() - began_s < 5


def test_columns_of_many_names_are_found_in_any_order() -> None:
    names = [f"{'é' * (n % 5)}name{n}" for n in range(700)]
    columns = target_of(Path(), dict.fromkeys(names, "long")).fields
    values = pa.array([json.dumps({name: n for n, name in enumerate(names[::step])}).encode() for step in (1, -1, 7)])
    decoded = decode_json(values.cast(pa.binary()), columns)
    assert not decoded.refused.any()
    assert not decoded.requested_fields
    for step, row in zip((1, -1, 7), range(3), strict=True):
        told = {name: column[row].as_py() for name, column in zip(names, decoded.columns, strict=True)}
        assert {name: value for name, value in told.items() if value is not None} == {
            name: n for n, name in enumerate(names[::step])
        }


@needs("protobuf")
def test_what_is_known_of_one_batch_is_no_bound_for_a_record_alone(tmp_path: Path) -> None:
    reading, record = FORMATS["protobuf"]
    table = target(tmp_path, reading, {"id": "long", "l": WIDE})
    most = limits.MAX_RECORD_CELLS // WIDTH - 100
    _, rows, dead_letters = took(table, [record(n, most) for n in range(3)])
    assert (rows, dead_letters) == ([0, 1, 2], [])
