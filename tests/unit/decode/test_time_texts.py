"""Texts of times that RFC 3339 and ISO 8601 allow, in every reader of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, time
from pathlib import Path

import pyarrow as pa
import pytest

from frazil.decode.connect.values import LogicalType, read_logical_type
from frazil.decode.epochs import read_texts, strict_cast
from frazil.decode.json.records import decode_json
from frazil.decode.settings import JsonTypes, Reading
from frazil.spec.settings import ColumnSpec, EnvelopeSpec
from frazil.spec.syntax.types import parse_type
from tests.needs import cases, needs
from tests.unit.cdc.test_unsigned import Row
from tests.unit.decode.columns import fields_of, values_of
from tests.unit.rows.test_local_times import TimesScenario
from tests.unit.rows.test_shaped_service import Scenario

_NOON = datetime(2026, 1, 31, 12, 30, tzinfo=UTC)
MOMENTS = {
    "2026-01-31T12:30:00z": _NOON,
    "2026-01-31t12:30:00Z": _NOON,
    "2026-01-31t12:30:00z": _NOON,
    "2026-01-31 12:30:00z": _NOON,
    "2026-01-31T12:30:00.123456789z": _NOON.replace(microsecond=123456),
    "2026-01-31t14:30:00+02:00": _NOON,
    "2026-01-31T12:49:32+00:19:32": _NOON,
    "2026-01-31T12:10:28-00:19:32": _NOON,
    "2026-01-31T12:49:32.5+001932": _NOON.replace(microsecond=500000),
    "2026-01-31T12:30:00,5Z": _NOON.replace(microsecond=500000),
    "20260131T123000Z": _NOON,
    "20260131t1230z": _NOON,
    "20260131T143000.25+0200": _NOON.replace(microsecond=250000),
}
"""Texts with the moment that they mean."""
_OTHERS = (
    "2026-06-30T23:59:60Z", "2026-01-31T24:00:00Z", "2026-01-31T12:30:00+02:00:60", "2026-01-31T12:30:00+02:00:30.5",
    "2026-01-31T12:30:00 Z", "2026-W05-6T12:30:00Z", "2026-01-31T12:30:00Zz", "2026-02-30t12:30:00z",
    "2026-01-31T12:30:00+02:00[Europe/Berlin]",
)  # fmt: skip
"""Texts that a column of times cannot hold, or that neither standard allows."""


@pytest.mark.parametrize("text", MOMENTS)
def test_json_text_is_the_moment_that_it_means(text: str) -> None:
    decoded = decode_json(values_of([json.dumps({"v": text})]), fields_of({"v": "timestamptz"}))
    assert decoded.columns[0].to_pylist() == [MOMENTS[text]]
    assert decoded.mismatches == []


@pytest.mark.parametrize("text", MOMENTS)
def test_a_column_without_a_zone_says_that_the_text_has_one(text: str) -> None:
    decoded = decode_json(values_of([json.dumps({"v": text})]), fields_of({"v": "timestamp"}))
    assert f'string "{text}" has a zone, and timestamp has none' in decoded.mismatches[0].reason


@pytest.mark.parametrize("text", _OTHERS)
@pytest.mark.parametrize("kind", ["timestamptz", "timestamp"])
def test_other_text_cannot_be_read(kind: str, text: str) -> None:
    decoded = decode_json(values_of([json.dumps({"v": text})]), fields_of({"v": kind}))
    assert [one.reason for one in decoded.mismatches] == [f'string "{text}" cannot be read as {kind}']


@pytest.mark.parametrize("text", MOMENTS)
def test_a_zoned_column_takes_the_text_as_the_moment(tmp_path: Path, text: str) -> None:
    column = ColumnSpec(name="v", type=parse_type("timestamp"), zone="UTC")
    scenario = Scenario(tmp_path, columns=(column,))
    scenario.run({"v": text})
    assert [row["v"] for row in scenario.rows()] == [MOMENTS[text].replace(tzinfo=None)]


@pytest.mark.parametrize("form", cases(["json", "avro", "json_schema", "protobuf"]))
@pytest.mark.parametrize("text", ["2026-01-31t12:30:00z", "2026-01-31T12:49:32+00:19:32"])
def test_a_zoned_timestamp_of_debezium_is_the_moment_in_every_format(tmp_path: Path, form: str, text: str) -> None:
    column = ColumnSpec(name="ts", type=parse_type("timestamptz"))
    scenario = TimesScenario(tmp_path, form, "wrapped", "io.debezium.time.ZonedTimestamp", text, column)
    scenario.send()
    assert (scenario.times(), scenario.reasons()) == ([_NOON], [])


@pytest.mark.parametrize("name", ["IsoTimestamp", "IsoTime", "IsoDate"])
def test_debeziums_local_texts_may_end_with_a_small_letter(name: str) -> None:
    texts = {"IsoTimestamp": "2026-01-31t12:30:00z", "IsoTime": "12:30:00z", "IsoDate": "2026-01-31z"}
    found = read_logical_type(pa.array([texts[name]]), LogicalType(f"io.debezium.time.{name}"), None)
    assert found is not None
    local = _NOON.replace(tzinfo=None)
    expected = {"IsoTimestamp": local, "IsoTime": local.time(), "IsoDate": local.date()}
    assert found.array.to_pylist() == [expected[name]]
    assert not found.bad.any()


def test_a_text_in_another_form_costs_no_neighbour_its_value() -> None:
    texts = pa.array([*MOMENTS, None, *_OTHERS, "2026-01-31T12:30:00Z"])
    found = read_texts(texts, pa.timestamp("us", tz="UTC")).to_pylist()
    assert found == [*MOMENTS.values(), None, *(None for _ in _OTHERS), _NOON]


def test_a_time_of_day_may_have_a_comma() -> None:
    decoded = decode_json(values_of(['{"v": "12:30:00,5"}']), fields_of({"v": "time"}))
    assert decoded.columns[0].to_pylist() == [time(12, 30, 0, 500000)]


@pytest.mark.parametrize("text", ["2026-01-31t12:30:00z", "2026-01-31T12:49:32+00:19:32"])
def test_inferred_times_are_the_same(text: str) -> None:
    decoded = decode_json(values_of([json.dumps({"v": text})]), (), Reading(json=JsonTypes(infers_times=True)))
    assert str(decoded.requested_fields[()]["v"]) == "timestamptz"


@needs("cdc")
def test_the_time_of_a_cloud_event_may_be_in_small_letters(tmp_path: Path) -> None:
    settings: Row = {"envelope": EnvelopeSpec(kind="cloudevents"), "metadata": {"ce_time": "at"}}
    scenario = Scenario(tmp_path, **settings)
    event = {"specversion": "1.0", "id": "1", "source": "/o", "type": "t", "time": "2026-01-31t12:30:00z"}
    scenario.run({**event, "data": {"id": 1}})
    assert [row["at"] for row in scenario.rows()] == [_NOON]


def test_an_invalid_text_among_many_is_the_only_one_without_a_value() -> None:
    words = [f"{number}.5" for number in range(1000)]
    texts = pa.array([*words, "much", None, *words])
    numbers = [float(word) for word in words]
    assert strict_cast(texts, pa.float64()).to_pylist() == [*numbers, None, None, *numbers]
    assert strict_cast(texts[1000:1002], pa.float64()).null_count == 2
