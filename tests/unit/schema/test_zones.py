"""Times with a zone in columns without one, and the other way round."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from frazil.spec.settings import ColumnSpec
from frazil.spec.syntax.types import parse_type
from tests.unit.ingest.service_scene import Scene, only
from tests.unit.ingest.tables.test_schemas import Scenario, avro
from tests.unit.schema.test_name_case import dead_letters_of, make

_SKIPPED = "does not exist in Europe/Berlin, where clocks were set forward past it"
WITH, WITHOUT = "2026-07-01T12:00:00Z", "2026-07-01T12:00:00"


def declared(kind: str, zone: str | None, unit: str | None = None) -> dict[str, Any]:
    return {"columns": (ColumnSpec(name="ts", type=parse_type(kind), zone=zone, unit=unit),)}


@pytest.mark.parametrize(
    ("kind", "bad", "words"),
    [
        (
            "timestamp",
            WITH,
            "has a zone, and timestamp has none: `columns: {ts: {type: timestamp, zone: UTC}}` converts",
        ),
        (
            "timestamptz",
            WITHOUT,
            "has no zone, and timestamptz has one: `columns: {ts: {type: timestamptz, zone: UTC}}` r",
        ),
    ],
)
def test_the_dead_letter_names_the_setting_and_the_setting_works(
    tmp_path: Path, kind: str, bad: str, words: str
) -> None:
    scene = Scene(tmp_path, "a", dead_letters={"stop_above": 1.0})
    make(scene, ts=kind)
    scene.feed("a", {"ts": bad}, {"ts": "no time"})
    only(scene.catch_up())
    first, second = dead_letters_of(scene)
    assert words in first[3]
    assert second[3] == f'string "no time" cannot be read as {kind}'
    scene.settings = declared(kind, "UTC")
    scene.feed("a", {"ts": bad})
    only(scene.catch_up())
    moment = datetime(2026, 7, 1, 12, tzinfo=UTC)
    assert scene.rows("n.a") == [{"ts": moment if kind == "timestamptz" else moment.replace(tzinfo=None)}]


@pytest.mark.parametrize(
    ("kind", "zone", "value", "stored"),
    [
        ("timestamp", "Europe/Berlin", WITH, "2026-07-01T14:00:00"),
        ("timestamp", "Europe/Berlin", "2026-01-01T12:00:00+05:30", "2026-01-01T07:30:00"),
        ("timestamp", "Europe/Berlin", WITHOUT, "2026-07-01T12:00:00"),
        ("timestamp", "America/New_York", 1_782_907_200_000, "2026-07-01T08:00:00"),
        ("timestamptz", "Europe/Berlin", WITHOUT, "2026-07-01T10:00:00+00:00"),
        ("timestamptz", "Europe/Berlin", WITH, "2026-07-01T12:00:00+00:00"),
        ("timestamptz", "Europe/Berlin", 1_782_907_200_000, "2026-07-01T12:00:00+00:00"),
        ("timestamptz", "Europe/Berlin", "2026-10-25T02:30:00", "2026-10-25T00:30:00+00:00"),
        ("timestamptz", "Europe/Berlin", "2026-03-29T02:30:00", None),
        ("timestamp", "Asia/Tokyo", "9999-12-31T23:00:00Z", None),
    ],
)
def test_times_are_converted_by_the_zone_of_the_column(
    tmp_path: Path, kind: str, zone: str, value: Any, stored: str | None
) -> None:
    scene = Scene(tmp_path, "a", dead_letters={"stop_above": 1.0}, **declared(kind, zone))
    scene.feed("a", {"ts": value}, {"ts": None})
    only(scene.catch_up())
    found = [row["ts"].isoformat() for row in scene.rows("n.a") if row["ts"] is not None]
    assert found == ([stored] if stored else [])
    assert [dead_letter[1] for dead_letter in dead_letters_of(scene)] == ([] if stored else ["out_of_range"])


def test_numbers_with_a_unit_are_moments_too(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", **declared("timestamp", "Europe/Berlin", "s"))
    scene.feed("a", {"ts": 1_782_907_200}, {"ts": WITHOUT})
    only(scene.catch_up())
    assert [row["ts"].isoformat() for row in scene.rows("n.a")] == ["2026-07-01T14:00:00", "2026-07-01T12:00:00"]


def test_avro_moments_and_local_times_go_either_way(tmp_path: Path) -> None:
    moment = {"type": "long", "logicalType": "timestamp-micros"}
    local = {"type": "long", "logicalType": "local-timestamp-micros"}
    scenario = Scenario(
        tmp_path,
        columns=(
            ColumnSpec(name="l", type=parse_type("timestamp"), zone="Europe/Berlin"),
            ColumnSpec(name="m", type=parse_type("timestamptz"), zone="Europe/Berlin"),
        ),
    )
    text = avro(l=moment, m=local)
    moments = datetime(2026, 7, 1, 12, tzinfo=UTC)
    scenario.produce(scenario.register(text), text, {"l": moments, "m": moments.replace(tzinfo=None)})
    scenario.settle()
    assert [{name: one.isoformat() for name, one in row.items()} for row in scenario.rows()] == [
        {"l": "2026-07-01T14:00:00", "m": "2026-07-01T10:00:00+00:00"}
    ]


@pytest.mark.parametrize(
    ("kind", "zone", "value", "reason"),
    [
        ("timestamptz", "Europe/Berlin", "2026-03-29T02:30:00", _SKIPPED),
        ("timestamptz", "Europe/Berlin", "2026-03-29 02:59:59.999999", _SKIPPED),
        ("timestamptz", "America/New_York", "9999-12-31T23:00:00", "is out of the range of timestamptz"),
        ("timestamp", "Asia/Tokyo", "9999-12-31T23:00:00Z", "is out of the range of timestamp"),
    ],
)
def test_a_time_that_clocks_skip_is_told_from_one_out_of_range(
    tmp_path: Path, kind: str, zone: str, value: str, reason: str
) -> None:
    scene = Scene(tmp_path, "a", dead_letters={"stop_above": 1.0}, **declared(kind, zone))
    scene.feed("a", {"ts": value}, {"ts": "2026-03-29T01:59:59"}, {"ts": "2026-03-29T03:00:00"})
    only(scene.catch_up())
    assert [dead_letter[1:] for dead_letter in dead_letters_of(scene)] == [
        ("out_of_range", "ts", f'string "{value}" {reason}')
    ]
    assert len(scene.rows("n.a")) == 2


def test_avro_times_that_a_zone_does_not_have_are_bad_records_with_their_reason(tmp_path: Path) -> None:
    local = {"type": "long", "logicalType": "local-timestamp-micros"}
    berlin, tokyo = (
        ColumnSpec(name=name, type=parse_type(kind), zone=zone, unit=unit)
        for name, kind, zone, unit in (
            ("m", "timestamptz", "Europe/Berlin", None),
            ("s", "timestamp", "Asia/Tokyo", "s"),
        )
    )
    scenario = Scenario(tmp_path, columns=(berlin, tokyo), dead_letters={"stop_above": 1.0})
    text = avro(m=local, s="long")
    schema = scenario.register(text)
    good, last_s = datetime(2026, 3, 29, 3), 253_402_300_799  # noqa: DTZ001
    scenario.produce(schema, text, {"m": datetime(2026, 3, 29, 2, 30), "s": 0})  # noqa: DTZ001
    scenario.produce(schema, text, {"m": good, "s": last_s})
    scenario.produce(schema, text, {"m": good, "s": 0})
    scenario.settle()
    assert [row["s"].isoformat() for row in scenario.rows()] == ["1970-01-01T09:00:00"]
    assert [dead_letter[1:] for dead_letter in dead_letters_of(scenario, "n.t")] == [
        ("out_of_range", "m", f'"2026-03-29T02:30:00" {_SKIPPED}'),
        ("out_of_range", "s", f"{last_s} is out of the range of timestamp in Asia/Tokyo"),
    ]


def test_an_avro_moment_that_does_not_fit_names_the_setting(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path)
    make(scenario, "n.t", l="timestamp")
    text = avro(l={"type": "long", "logicalType": "timestamp-micros"})
    scenario.produce(scenario.register(text), text, {"l": datetime(2026, 7, 1, tzinfo=UTC)})
    scenario.settle()
    [(_, kind, path, reason)] = dead_letters_of(scenario, "n.t")
    assert (kind, path) == ("type_mismatch", "l")
    assert "`columns: {l: {type: timestamp, zone: UTC}}` converts them" in reason
