"""Epoch units, constant columns and header columns: one task, start to end."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import TimestamptzType

from frazil.decode.settings import Reading, WriterSchema
from frazil.ingest.tasks.task_job import Job, source_columns
from frazil.literals import parse_constant
from frazil.schema.projection import Shaping
from tests.unit.ingest.targets import records_of, run, target_of
from tests.unit.rows.test_shaped_tasks import rows_of
from tests.unit.rows.test_writer_schemas import framed

SKIP = Reading(on_bad="skip")


def at(text: str, zone: bool = True) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC if zone else None)


_BEFORE = at("1969-12-31T23:59:59.999999")
CASES = [
    ("s", "0", at("1970-01-01")),
    ("s", "1700000000", at("2023-11-14T22:13:20")),
    ("s", "1700000000.123456", at("2023-11-14T22:13:20.123456")),
    ("s", "1.7e9", at("2023-11-14T22:13:20")),
    ("s", "-1", at("1969-12-31T23:59:59")),
    ("s", "1700000000.1234567", at("2023-11-14T22:13:20.123456")),
    ("s", "-0.0000001", at("1969-12-31T23:59:59.999999")),
    ("s", "253402300799", at("9999-12-31T23:59:59")),
    ("s", "253402300800", "out_of_range"),
    ("s", "-62135596800", at("0001-01-01")),
    ("s", "-62135596801", "out_of_range"),
    ("s", "1700000000000", "out_of_range"),
    ("s", "99999999999999999999", "out_of_range"),
    ("s", "1e999999999999", "out_of_range"),
    ("s", "1e-999999999999", at("1970-01-01")),
    ("ms", "1700000000123", at("2023-11-14T22:13:20.123")),
    ("ms", "1700000000123.5", at("2023-11-14T22:13:20.123500")),
    ("ms", "1700000000123.00005", at("2023-11-14T22:13:20.123")),
    ("us", "1700000000123456", at("2023-11-14T22:13:20.123456")),
    ("us", "1.5", at("1970-01-01T00:00:00.000001")),
    ("ns", "1700000000123456000", at("2023-11-14T22:13:20.123456")),
    ("ns", "1700000000123456999", at("2023-11-14T22:13:20.123456")),
    ("ns", "-1000", at("1969-12-31T23:59:59.999999")),
    ("ns", "-1", at("1969-12-31T23:59:59.999999")),
    ("ns", "1.7e18", at("2023-11-14T22:13:20")),
    ("s", '"2023-11-14T22:13:20Z"', at("2023-11-14T22:13:20")),
    ("s", '"2023-11-14T22:13:20.123456789Z"', at("2023-11-14T22:13:20.123456")),
    ("s", '"1700000000"', "type_mismatch"),
    ("s", "true", "type_mismatch"),
    ("s", "null", None),
]


@pytest.mark.parametrize(("unit", "text", "found"), CASES)
@pytest.mark.parametrize("beside", ["5", "5.0", "null"])
def test_numbers_in_json_count_the_unit(tmp_path: Path, unit: str, text: str, found: Any, beside: str) -> None:
    target = target_of(tmp_path, {"ts": "timestamptz"}, shaping=Shaping(units=(("ts", unit),)), reading=SKIP)
    if (unit, beside) == ("ns", "5") or (unit, beside) == ("ns", "5.0"):
        beside += "e3" if "." in beside else "000"
    report = run(Job({"a": target}), records_of([{"value": f'{{"ts": {v}}}'.encode()} for v in (text, beside)]))[
        "lake.t"
    ]
    if isinstance(found, str):
        assert ([bad.kind for bad in report.bad_records.first], len(rows_of(report))) == ([found], 1)
    else:
        assert (report.bad_records.first, rows_of(report)[0]["ts"]) == ((), found)


def test_a_timestamp_without_zone_and_a_field_of_another_name_have_units_too(tmp_path: Path) -> None:
    shaping = Shaping(fields=(("seen", ("meta", "seenAt")),), units=(("seen", "us"), ("ts", "ms")))
    target = target_of(tmp_path, {"seen": "timestamp", "ts": "timestamp"}, shaping=shaping)
    batch = records_of([{"value": b'{"meta": {"seenAt": 1}, "ts": 2}'}, {"value": b'{"ts": "2026-01-01T00:00:00"}'}])
    assert rows_of(run(Job({"a": target}), batch)["lake.t"]) == [
        {"seen": at("1970-01-01T00:00:00.000001", False), "ts": at("1970-01-01T00:00:00.002", False)},
        {"seen": None, "ts": at("2026-01-01", False)},
    ]


@pytest.mark.parametrize(
    ("kind", "unit", "good", "bad"),
    [
        ("long", "s", {1700000000: at("2023-11-14T22:13:20")}, {1700000000000: "out_of_range"}),
        ("int", "s", {-1: at("1969-12-31T23:59:59")}, {}),
        ("long", "ms", {1: at("1970-01-01T00:00:00.001")}, {2**63 - 1: "out_of_range", -(2**63): "out_of_range"}),
        ("long", "us", {-1: at("1969-12-31T23:59:59.999999")}, {2**63 - 1: "out_of_range"}),
        ("long", "ns", {5999: at("1970-01-01T00:00:00.000005"), -1: at("1969-12-31T23:59:59.999999")}, {}),
        (
            "double",
            "s",
            {
                1.5: at("1970-01-01T00:00:01.500000"),
                1700000000.123456: at("2023-11-14T22:13:20.123456"),
                -1e-9: _BEFORE,
            },
            {float("nan"): "out_of_range", float("-inf"): "out_of_range", 1e300: "out_of_range"},
        ),
    ],
)
def test_numbers_of_a_registry_format_count_the_unit(
    tmp_path: Path, kind: str, unit: str, good: dict[Any, Any], bad: dict[Any, str]
) -> None:
    fields = [{"name": "ts", "type": ["null", kind], "default": None}]
    schema = WriterSchema("avro", json.dumps({"type": "record", "name": "R", "fields": fields}))
    reading = Reading(format="avro", schemas=(("5", schema),), on_bad="skip")
    target = target_of(tmp_path, {"ts": "timestamptz"}, shaping=Shaping(units=(("ts", unit),)), reading=reading)
    values = framed(5, schema, *({"ts": number} for number in (*good, None, *bad)))
    report = run(Job({"a": target}), records_of([{"value": v} for v in values]))["lake.t"]
    assert [row["ts"] for row in rows_of(report)] == [*good.values(), None]
    assert [(one.kind, one.path) for one in report.bad_records.first] == [(word, "ts") for word in bad.values()]
    assert (report.schema.requested_fields, report.schema.refusals) == ((), frozenset())


COLUMNS = {"id": "long", "region": "string", "price": "decimal(5,2)", "since": "timestamptz", "on": "boolean"}
CONSTANTS = (("region", "eu"), ("price", "1.50"), ("since", "2026-01-01T00:00:00Z"), ("on", "true"))


def test_constant_columns_have_their_value_in_every_row(tmp_path: Path) -> None:
    target = target_of(tmp_path, COLUMNS, shaping=Shaping(constants=CONSTANTS), reading=SKIP)
    batch = records_of([{"value": b'{"id": 1}'}, {"value": b"{"}, {"value": b'{"id": 2}'}])
    rows = rows_of(run(Job({"a": target}), batch)["lake.t"])
    assert [{**row, "price": str(row["price"])} for row in rows] == [
        {"id": n, "region": "eu", "price": "1.50", "since": at("2026-01-01"), "on": True} for n in (1, 2)
    ]


def test_a_constant_that_an_older_column_cannot_hold_refuses_the_records(tmp_path: Path) -> None:
    target = target_of(
        tmp_path, {"id": "long", "region": "int"}, shaping=Shaping(constants=CONSTANTS[:1]), reading=SKIP
    )
    report = run(Job({"a": target}), records_of([{"value": b'{"id": 1}'}]))["lake.t"]
    assert [(bad.path, bad.reason) for bad in report.bad_records.first] == [
        ("region", "`eu` is not a value of the type int")
    ]


HEADERS = {"trace": "string", "raw": "binary", "n": "int", "m": "long"}


def header(*pairs: tuple[str, bytes | None]) -> dict[str, Any]:
    return {"value": b'{"id": 1}', "headers": [{"key": key, "value": held} for key, held in pairs]}


def test_header_columns_take_the_last_header_of_their_name(tmp_path: Path) -> None:
    shaping = Shaping(headers=tuple((name, name) for name in HEADERS))
    target = target_of(tmp_path, {"id": "long", **HEADERS}, shaping=shaping)
    rows = [
        header(("trace", b"a"), ("trace", "ü".encode()), ("raw", b"\xff"), ("n", b"-7"), ("m", b"9223372036854775807")),
        {"value": b"{}", "headers": None},
        header(("other", b"x"), ("trace", b"first"), ("trace", None), ("n", b"00012"), ("m", b"-9223372036854775808")),
        header(("trace", b""), ("m", b"0" * 30 + b"5")),
    ]
    job = Job({"a": target})
    assert "headers" in source_columns(job)
    assert "headers" not in source_columns(Job({"a": target_of(tmp_path, {}, shaping=Shaping(depth=1))}))
    found = rows_of(run(job, records_of(rows))["lake.t"])
    assert [{name: row[name] for name in HEADERS} for row in found] == [
        {"trace": "ü", "raw": b"\xff", "n": -7, "m": 2**63 - 1},
        {"trace": None, "raw": None, "n": None, "m": None},
        {"trace": None, "raw": None, "n": 12, "m": -(2**63)},
        {"trace": "", "raw": None, "n": None, "m": 5},
    ]


@pytest.mark.parametrize(
    ("name", "held", "kind"),
    [
        ("trace", b"\xff", "invalid_text"),
        ("n", b"\xff", "invalid_text"),
        ("n", b"2147483648", "type_mismatch"),
        ("n", b"", "type_mismatch"),
        ("n", b"1.0", "type_mismatch"),
        ("n", b"+1", "type_mismatch"),
        ("n", b" 1", "type_mismatch"),
        ("n", b"0x1F", "type_mismatch"),
        ("n", "१".encode(), "type_mismatch"),
        ("m", b"9223372036854775808", "type_mismatch"),
        ("m", b"9" * 5000, "type_mismatch"),
    ],
)
def test_a_header_that_does_not_fit_is_a_misfit_or_rescued(tmp_path: Path, name: str, held: bytes, kind: str) -> None:
    shaping = Shaping(headers=tuple((one, one) for one in HEADERS))
    batch = records_of([header((name, b"5")), header((name, held)), header((name, b"6"))])
    target = target_of(tmp_path, {"id": "long", **HEADERS}, shaping=shaping, reading=SKIP)
    report = run(Job({"a": target}), batch)["lake.t"]
    assert [(bad.kind, bad.path) for bad in report.bad_records.first] == [(kind, f"_headers.{name}")]
    assert len(rows_of(report)) == 2
    columns = {"id": "int", **HEADERS, "_rescued": "string"}
    rescuing = target_of(tmp_path, columns, shaping=shaping, reading=Reading(is_rescuing=True))
    batch = records_of([header((name, b"5")), {**header((name, held)), "value": b'{"id": "}x{"}'}])
    report = run(Job({"a": rescuing}), batch)["lake.t"]
    rows = rows_of(report)
    assert (report.bad_records.first, rows[0]["_rescued"], rows[1][name]) == ((), None, None)
    assert set(json.loads(rows[1]["_rescued"])) == {"id", f"_headers.{name}"}
    assert json.loads(rows[1]["_rescued"])["id"]["value"] == "}x{"


@pytest.mark.parametrize("text", ["2026-01-31T12:30:00Z", "2026-01-31t12:30:00z"])
def test_a_constant_time_may_be_in_small_letters(text: str) -> None:
    assert parse_constant(text, TimestamptzType()).as_py() == at("2026-01-31T12:30:00")
