"""The independent judge finds every planted fault with its offset, and none in a table that is whole."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer

from frazil_verify.findings import Kind
from frazil_verify.independent import parts
from frazil_verify.independent.rules import NotJudged
from frazil_verify.kept import Kept, open_kept
from frazil_verify.model.proto_files import messages_of
from packages.verify.tests.unit.planted import FAULTS, Filled
from tests.simulation.judge.loop import Loop, Sent

PLACES = ["partition", "offset"]
COLUMNS = {"id": "long", "n": "long", "x": "double", "name": "string", "ok": "boolean", "at": "timestamptz"}
TABLES: Mapping[str, Mapping[str, Any]] = {
    "append": {"metadata": PLACES, "columns": COLUMNS},
    "inferred": {"metadata": PLACES, "infer": {"timestamps": True}},
    "several partitions": {"metadata": ["topic", *PLACES], "columns": COLUMNS},
    "without places": {"columns": COLUMNS},
    "upsert": {
        "metadata": PLACES, "columns": COLUMNS, "mode": "upsert", "key_columns": ["id"], "format_version": 2,
    },
    "debezium": {
        "metadata": PLACES, "columns": COLUMNS, "envelope": "debezium", "mode": "upsert", "key_columns": ["id"],
        "format_version": 2,
    },
    "avro": {"metadata": PLACES, "value": {"format": "avro"}},
    "protobuf": {"metadata": PLACES, "value": {"format": "protobuf"}},
}  # fmt: skip
AVRO = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "n", "type": ["null", "long"]},
        {"name": "x", "type": "double"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "ok", "type": "boolean"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Order {
  int64 id = 1; optional int64 n = 2; double x = 3; optional string name = 4; bool ok = 5; google.protobuf.Timestamp at = 6;
}
"""
SCHEMAS = {"avro": ("avro", json.dumps(AVRO)), "protobuf": ("protobuf", PROTO)}


def encoded(kind: str, row: Mapping[str, Any]) -> bytes:
    """A record's value."""
    at = datetime.fromisoformat(row["at"])
    if kind == "avro":
        out = io.BytesIO()
        schemaless_writer(out, parse_schema(AVRO), {**row, "at": at})
        return out.getvalue()
    if kind == "protobuf":
        message = messages_of(PROTO).at((0,))
        assert message is not None
        made = message.type(**{name: part for name, part in row.items() if name != "at"})
        made.at.seconds = int(at.timestamp())
        return bytes(made.SerializeToString())
    return json.dumps({"before": None, "after": row, "op": "c", "source": {}} if kind == "debezium" else row).encode()


def value(number: int) -> dict[str, Any]:
    """A record's value."""
    return {
        "id": number,
        "n": number * 10 + 7,
        "x": number + 0.5,
        "name": f"name {number}",
        "ok": number % 2 == 0,
        "at": f"2026-01-01T{number % 20:02}:30:00Z",
    }


def sent(kind: str, count: int = 40) -> Sequence[Sent]:
    """The records of a kind of table: of those with keys some are replaced, and one deleted."""
    partitions = 3 if kind == "several partitions" else 1
    values = [value(number) for number in range(count)]
    if kind in ("upsert", "debezium"):
        values += [{**value(number), "name": f"newer {number}"} for number in range(0, count, 5)]
    made = []
    for number, row in enumerate(values):
        key = json.dumps({"id": row["id"]}).encode()
        made.append(Sent(number % partitions, encoded(kind, row), key))
    return made


class Ended(Exception):
    """The process is ended."""


@dataclass
class Ending:
    """Keeps one part more, and ends the process."""

    kept: Kept

    def part(self, name: str) -> tuple[pa.Table, dict[str, Any]] | None:
        """See Keeper."""
        return self.kept.part(name)

    def keep(self, name: str, table: pa.Table, facts: Mapping[str, Any]) -> None:
        """See Keeper."""
        self.kept.keep(name, table, facts)
        raise Ended


@pytest.fixture(scope="module", params=list(TABLES))
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Filled]:
    """A table of each kind."""
    kind: str = request.param
    folder = tmp_path_factory.mktemp("filled")
    partitions = 3 if kind == "several partitions" else 1
    return kind, Filled.of(folder, TABLES[kind], sent(kind), partitions, SCHEMAS.get(kind))


def test_a_whole_table_has_no_finding(filled: tuple[str, Filled]) -> None:
    judgement = filled[1].judge()
    assert judgement.findings.counts == {}
    assert judgement.rows == 40


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"key_columns": ["id"]}, '{"id": %d}'),
        ({"key_columns": ["id"]}, "%d"),
        ({"key_columns": ["id"], "key": {"format": "json"}}, '{"id": %d}'),
        ({"key_columns": ["id"], "key": {"format": "json"}}, "%d"),
        ({"key": {"format": "json"}}, '{"id": %d}'),
        ({"key_columns": ["name"]}, "name %d"),
        ({"key_columns": ["name"], "key": {"format": "text"}}, "name %d"),
        ({"key_columns": ["name"], "key": {"format": "json"}}, '"name %d"'),
    ],
    ids=str,
)
def test_deletes_by_keys_in_every_form_are_no_faults(tmp_path: Path, settings: Mapping[str, Any], key: str) -> None:
    values = [(number, json.dumps(value(number)).encode()) for number in range(6)]
    sent = [Sent(0, text, (key % number).encode()) for number, text in [*values, (2, None), (4, None), (9, None)]]
    table = {"metadata": PLACES, "columns": COLUMNS, "mode": "upsert", "format_version": 2, **settings}
    filled = Filled.of(tmp_path, table, sent)
    assert len(filled.rows()) == 4
    assert filled.judge().findings.counts == {}


def test_deletes_by_keys_of_avro_are_no_faults(tmp_path: Path) -> None:
    table = {"metadata": PLACES, "columns": COLUMNS, "mode": "upsert", "format_version": 2, "key": {"format": "avro"}}
    filled = Filled(Loop(tmp_path, table))
    key = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
    head = b"\0" + filled.loop.register("avro", json.dumps(key)).to_bytes(4)
    values = [(number, json.dumps(value(number)).encode()) for number in range(6)]
    filled.loop.produce([Sent(0, text, head + bytes([2 * number])) for number, text in [*values, (2, None), (4, None)]])
    filled.loop.run(50)
    assert len(filled.rows()) == 4
    assert filled.judge().findings.counts == {}


@pytest.mark.parametrize("settings", [{}, {"key": {"format": "text"}}])
def test_rows_of_keys_without_a_rule_are_not_judged(tmp_path: Path, settings: Mapping[str, Any]) -> None:
    table = {"metadata": PLACES, "columns": COLUMNS, "mode": "upsert", "format_version": 2, **settings}
    filled = Filled.of(tmp_path, table, [Sent(0, json.dumps(value(1)).encode(), b"a key")])
    with pytest.raises(NotJudged, match="the whole key identifies its rows") as refused:
        filled.judge()
    assert refused.value.remedy == "run it without --independent: a copy of the table is made and compared"


def test_every_planted_fault_is_found_with_its_offset(filled: tuple[str, Filled]) -> None:
    kind, table = filled
    unfound = []
    for name, plant in FAULTS.items():
        rows = [dict(row) for row in table.rows()]
        offset = plant(rows)
        findings = table.judge(rows).findings
        places = {finding.offset for finding in findings.first}
        if not findings.counts or (offset is not None and offset not in places):
            unfound.append((kind, name, offset, [finding.text for finding in findings.first]))
        if offset is None and name not in ("doubled row", "doubled file", "invented row"):
            assert places - {None}, (kind, name)
    assert unfound == []


def test_of_a_part_of_the_offsets_later_changes_count_and_other_rows_do_not(filled: tuple[str, Filled]) -> None:
    kind, table = filled
    if "partition" not in TABLES[kind].get("metadata", ()):
        with pytest.raises(NotJudged, match="by the columns of partition and offset"):
            table.judge(part=(3, 12))
        return
    assert table.judge(part=(3, 12)).findings.counts == {}
    rows = [dict(row) for row in table.rows()]
    inside = next(row for row in rows if 3 <= row["_offset"] < 12)
    outside = next(row for row in rows if row["_offset"] >= 12)
    inside["name"], outside["name"] = "another", "another"
    (finding,) = table.judge(rows, part=(3, 12)).findings.first
    assert (finding.kind, finding.partition, finding.offset) == (
        Kind.CHANGED,
        inside["_kafka_partition"],
        inside["_offset"],
    )


def test_a_comparison_that_is_ended_at_any_part_goes_on_and_finds_the_same(
    filled: tuple[str, Filled], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, table = filled
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(parts, "MOST_OFFSETS", 9)
    rows = [dict(row) for row in table.rows()]
    rows.pop(3)
    rows[5]["n"] = -1
    whole, ends = table.judge(rows), 0
    while True:
        kept = open_kept({"kind": kind, "settings": {"b", "a", "c"}})
        assert kept is not None
        try:
            judgement = table.judge(rows, keeper=Ending(kept))
            break
        except Ended:
            ends += 1
        finally:
            kept.close()
    assert judgement.findings.counts
    assert judgement == whole
    assert ends == len(list(kept.folder.glob("*.arrow"))) > 5
    kept.discard()
    assert list(tmp_path.iterdir()) == []


def test_a_table_with_a_time_that_python_does_not_have_is_not_judged(tmp_path: Path) -> None:
    records = [Sent(0, json.dumps(value(0)).encode(), timestamp_ms=10**15)]
    filled = Filled.of(tmp_path, {"metadata": [*PLACES, "timestamp"], "columns": COLUMNS}, records)
    with pytest.raises(NotJudged, match="its columns do not take a value that the rules make"):
        filled.judge([])
