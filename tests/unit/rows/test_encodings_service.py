"""Schemas whose bytes stay as they are while their types change, over restarts; and remedies of messages, followed."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from frazil.decode.settings import WriterSchema
from frazil.spec import ColumnSpec
from frazil.spec.load import load_spec
from frazil.spec.settings import EnvelopeSpec
from frazil.spec.syntax.types import parse_type
from frazil_testing.twins import MemorySource
from tests.needs import needs
from tests.unit.ingest.tables.test_schemas import Scenario, avro
from tests.unit.rows.test_encodings import message, proto
from tests.unit.rows.test_shaped_service import Scenario as ShapedScenario
from tests.unit.rows.test_writer_schemas import framed
from tests.unit.spec.pipeline_file import with_table

_UUID = "12345678-abcd-4234-9234-567812345678"
_NOON = datetime(2026, 1, 31, 12)  # noqa: DTZ001  (a time without a zone)
_NOON_UTC = _NOON.replace(tzinfo=UTC)
_OPEN = {"dead_letters": {"stop_above": 1.0}}


def columns_of(words: str, path: Path) -> tuple[ColumnSpec, ...]:
    """What a message reports to write under `columns`, as the pipeline file reads it."""
    found = re.search(r"`(columns: \{.*\})`", words)
    assert found is not None, words
    path.write_text(with_table(found[1]))
    return load_spec(path).tables[0].shape.columns


def columns(scenario: Scenario) -> dict[str, str]:
    state = scenario.catalog.load("n.t")
    assert state is not None
    return {field.name: re.sub(r"\d+: ", "", str(field.field_type)) for field in state.schema.fields}


def dead_letters(scenario: Scenario) -> list[str]:
    """Why records are dead letters."""
    return (
        [row["message"] for row in scenario.rows("n.t__dead_letters")]
        if scenario.catalog.load("n.t__dead_letters")
        else []
    )


def put(scenario: Scenario, text: str, *records: dict[str, Any]) -> None:
    """Records of a schema of Avro, read by a process of its own."""
    scenario.produce(scenario.register(text), text, *records)
    scenario.settle(scenario.start())


@pytest.mark.parametrize(
    ("first", "later", "column"),
    [
        ("string", {"type": "string", "logicalType": "uuid"}, "string"),
        ("long", {"type": "long", "logicalType": "timestamp-millis"}, "long"),
        ("int", {"type": "int", "logicalType": "date"}, "int"),
        ({"type": "array", "items": "long"}, {"type": "array", "items": {"type": "long", "logicalType": "time-micros"}},
         "list<long>"),
    ],
)  # fmt: skip
def test_a_logical_type_comes_to_a_field_and_goes_again(tmp_path: Path, first: Any, later: Any, column: str) -> None:
    scenario = Scenario(tmp_path)
    value: Any = {"string": _UUID, "list<long>": [5]}.get(column, 5)
    plain, logical = avro(id="int", v=first), avro(id="int", v=later)
    for number, schema in enumerate((plain, logical, plain, logical), 1):
        put(scenario, schema, {"id": number, "v": value})
    assert columns(scenario) == {"id": "int", "v": column}
    assert [(row["id"], row["v"]) for row in scenario.rows()] == [(number, value) for number in range(1, 5)]
    assert scenario.catalog.load("n.t__dead_letters") is None


def test_a_uuid_that_becomes_text_again_stays_in_its_column(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path)
    plain, logical = avro(v="string"), avro(v={"type": "string", "logicalType": "uuid"})
    put(scenario, logical, {"v": _UUID})
    put(scenario, plain, {"v": _UUID})
    assert columns(scenario) == {"v": "uuid"}
    assert [row["v"] for row in scenario.rows()] == [bytes.fromhex(_UUID.replace("-", ""))] * 2


@pytest.mark.parametrize(
    ("logical", "plain", "value", "column"),
    [
        ("timestamp-millis", "long", 1_700_000_000_123, "timestamptz"),
        ("local-timestamp-millis", "long", 1_700_000_000_123, "timestamp"),
        ("date", "int", 20_000, "date"),
        ("time-millis", "int", 1234, "time"),
    ],
)
def test_where_a_logical_type_goes_the_remedy_gives_the_numbers_their_meaning(
    tmp_path: Path, logical: str, plain: str, value: int, column: str
) -> None:
    scenario = Scenario(tmp_path, **_OPEN)
    with_type, without = avro(v={"type": plain, "logicalType": logical}), avro(v=plain)
    put(scenario, with_type, {"v": value})
    put(scenario, without, {"v": value})
    (reason,) = dead_letters(scenario)
    scenario.table = scenario.table.model_copy(update={"columns": columns_of(reason, tmp_path / "remedy.yaml")})
    put(scenario, without, {"v": value})
    one, other = (row["v"] for row in scenario.rows())
    assert one == other
    assert columns(scenario) == {"v": column}
    assert len(dead_letters(scenario)) == 1


def _decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def _fixed(size: int) -> dict[str, Any]:
    return {"type": "fixed", "name": "F", "size": size}


_DAY = {"type": "int", "logicalType": "date"}


@pytest.mark.parametrize(
    ("first", "later", "added"),
    [
        ((_fixed(2), b"ab"), (_fixed(4), b"abcd"), "binary"),
        ((_decimal(10, 2), Decimal("1.20")), (_decimal(12, 4), Decimal("1.2345")), "decimal(12, 4)"),
        ((_DAY, date(1970, 1, 1)), ({"type": "long", "logicalType": "timestamp-millis"}, _NOON_UTC), "timestamptz"),
        ((_DAY, date(1970, 1, 1)), ({"type": "long", "logicalType": "local-timestamp-millis"}, _NOON), "timestamp"),
    ],
)
def test_where_iceberg_widens_no_column_the_remedy_gives_the_later_type_one(
    tmp_path: Path, first: tuple[Any, Any], later: tuple[Any, Any], added: str
) -> None:
    scenario = Scenario(tmp_path, **_OPEN)
    put(scenario, avro(v=first[0]), {"v": first[1]})
    put(scenario, avro(v=later[0]), {"v": later[1]})
    (reason,) = dead_letters(scenario)
    (column,) = columns_of(reason, tmp_path / "remedy.yaml")
    scenario.table = scenario.table.model_copy(update={"columns": (column,)})
    put(scenario, avro(v=later[0]), {"v": later[1]})
    assert [(row["v"], row.get(column.name)) for row in scenario.rows()] == [(first[1], None), (None, later[1])]
    assert columns(scenario)[column.name] == added
    assert len(dead_letters(scenario)) == 1


def test_a_number_that_came_to_a_text_column_is_kept_as_text_by_the_remedy(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, **_OPEN)
    put(scenario, avro(v="string"), {"v": "a"})
    put(scenario, avro(v="int"), {"v": 7})
    (reason,) = dead_letters(scenario)
    scenario.table = scenario.table.model_copy(update={"columns": columns_of(reason, tmp_path / "remedy.yaml")})
    put(scenario, avro(v="int"), {"v": 8})
    assert [row["v"] for row in scenario.rows()] == ["a", "8"]


def _in_struct(kind: Any) -> Any:
    return {"type": "record", "name": "S", "fields": [{"name": "m", "type": kind}]}


_INSTANT, _LOCAL = ({"type": "long", "logicalType": f"{of}timestamp-millis"} for of in ("", "local-"))


@pytest.mark.parametrize("is_inside", [False, True])
@pytest.mark.parametrize(
    ("first", "later", "values", "column"),
    [
        ("long", "bytes", (1, b"\xff"), "_bytes"),
        ("string", {"type": "fixed", "name": "F", "size": 2}, ("a", b"\xff\0"), "_bytes"),
        (_INSTANT, _LOCAL, (5, 5), ""),
        (_LOCAL, _INSTANT, (5, 5), ""),
    ],
)
def test_the_remedy_of_a_refused_change_gives_later_values_a_place(
    tmp_path: Path, first: Any, later: Any, values: tuple[Any, Any], column: str, is_inside: bool
) -> None:
    scenario = Scenario(tmp_path, **_OPEN)
    schemas = [avro(v=_in_struct(kind) if is_inside else kind) for kind in (first, later)]
    records: list[dict[str, Any]] = [{"v": {"m": value} if is_inside else value} for value in values]
    put(scenario, schemas[0], records[0])
    with capture_logs() as logs:
        put(scenario, schemas[1], records[1])
    (remedy,) = [log["remedy"] for log in logs if log["event"] == "schema_change_refused"]
    scenario.table = scenario.table.model_copy(update={"columns": columns_of(remedy, tmp_path / "remedy.yaml")})
    put(scenario, schemas[1], records[1])
    assert len(dead_letters(scenario)) == 1
    name = f"{'m' if is_inside else 'v'}{column}"
    assert scenario.rows()[-1][name] is not None


_EVENT = """
syntax = "proto3";
message Ev {{ int32 id = 1; oneof st {{ Placed placed = 2; }} }}
message Placed {{ {} }}
"""


def tell(scenario: Scenario, text: str, content: dict[str, Any]) -> None:
    """A record of Protobuf, read by a process of its own."""
    schema_id = scenario.registry.register("protobuf", text, subject="a-value")
    scenario.source.produce("a", 0, message(proto(text), schema_id, content))
    scenario.settle(scenario.start())


@pytest.mark.parametrize("kind", ["", "struct<by: string>"])
@needs("protobuf")
def test_a_message_gets_its_first_field(tmp_path: Path, kind: str) -> None:
    without, having = _EVENT.format(""), _EVENT.format("string by = 1;")
    scenario = Scenario(tmp_path, value={"format": "protobuf"}, **_OPEN)
    if kind:
        told = ColumnSpec(name="placed", type=parse_type(kind))
        scenario.table = scenario.table.model_copy(update={"columns": (told,)})
    for number, (text, placed) in enumerate([(without, {}), (having, {"by": "x"}), (without, {})], 1):
        tell(scenario, text, {"id": number, "placed": placed})
    rows = [(row["id"], row["placed"]) for row in scenario.rows()]
    if kind:
        assert (rows, dead_letters(scenario)) == ([(1, {"by": None}), (2, {"by": "x"}), (3, {"by": None})], [])
        return
    assert rows == [(1, True), (3, True)]
    (reason,) = dead_letters(scenario)
    scenario.table = scenario.table.model_copy(update={"columns": columns_of(reason, tmp_path / "remedy.yaml")})
    tell(scenario, having, {"id": 4, "placed": {"by": "y"}})
    tell(scenario, without, {"id": 5, "placed": {}})
    later = [(row["id"], row["placed"], row["placed_fields"]) for row in scenario.rows() if row["id"] > 3]
    assert later == [(4, None, {"by": "y"}), (5, None, {"by": None})]
    assert len(dead_letters(scenario)) == 1


@needs("protobuf")
def test_a_message_loses_its_last_field(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, value={"format": "protobuf"})
    tell(scenario, _EVENT.format("string by = 1;"), {"id": 1, "placed": {"by": "x"}})
    tell(scenario, _EVENT.format(""), {"id": 2, "placed": {}})
    tell(scenario, _EVENT.format(""), {"id": 3})
    assert [row["placed"] for row in scenario.rows()] == [{"by": "x"}, {"by": None}, None]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("partitions", [1, 2])
def test_schemas_that_come_in_one_batch_get_a_column_that_holds_both(
    tmp_path: Path, order: tuple[int, int], partitions: int
) -> None:
    scenario = Scenario(tmp_path, on_bad_record="stop")
    scenario.source = MemorySource()
    scenario.source.create("a", partitions)
    hollow = {"type": "record", "name": "P", "fields": []}
    having = {**hollow, "fields": [{"name": "by", "type": "string"}]}
    uuids = [{"type": "string", "logicalType": "uuid"}, "string"]
    texts = [avro(p=["null", kind], u=of) for kind, of in zip((hollow, having), uuids, strict=True)]
    records = [{"p": {}, "u": _UUID}, {"p": {"by": "x"}, "u": "y"}]
    for place, which in enumerate(order):
        (value,) = framed(scenario.register(texts[which]), WriterSchema("avro", texts[which]), records[which])
        scenario.source.produce("a", place % partitions, value)
    scenario.settle(scenario.start())
    assert columns(scenario) == {"p": "struct<by: optional string>", "u": "string"}
    assert sorted(map(str, scenario.rows())) == [
        str({"p": {"by": "x"}, "u": "y"}),
        str({"p": {"by": None}, "u": _UUID}),
    ]


def _with_schema(number: int, kind: dict[str, Any], value: Any) -> dict[str, Any]:
    """A change as Kafka Connect's converter for JSON writes it, with a field `st` of a type."""
    row = [{"field": "id", "type": "int32"}, {"field": "st", "optional": True, **kind}]
    fields = [{"field": "after", "type": "struct", "optional": True, "fields": row}, {"field": "op", "type": "string"}]
    return {
        "schema": {"type": "struct", "fields": fields},
        "payload": {"after": {"id": number, "st": value}, "op": "c"},
    }


@pytest.mark.parametrize(
    ("wrap", "put"),
    [
        (lambda kind: kind, lambda value: value),
        (lambda kind: {"type": "array", "items": kind}, lambda value: [value]),
        (lambda kind: {"type": "map", "keys": {"type": "string"}, "values": kind}, lambda value: {"k": value}),
    ],
)
def test_a_struct_of_kafka_connect_gets_its_first_field_and_loses_it(tmp_path: Path, wrap: Any, put: Any) -> None:
    scenario = ShapedScenario(tmp_path, envelope=EnvelopeSpec(kind="debezium"))
    without = wrap({"type": "struct", "fields": []})
    having = wrap({"type": "struct", "fields": [{"field": "by", "type": "string", "optional": True}]})
    scenario.run(_with_schema(1, without, put({})))
    assert list(scenario.columns()) == ["id"]
    scenario.run(_with_schema(2, having, put({"by": "x"})))
    scenario.run(_with_schema(3, without, put({})))
    rows = [
        (row["id"], dict(row["st"]) if isinstance(put(1), dict) and row["st"] else row["st"]) for row in scenario.rows()
    ]
    assert rows == [(1, None), (2, put({"by": "x"})), (3, put({"by": None}))]


@pytest.mark.parametrize(
    ("name", "kind", "value", "column"),
    [
        ("io.debezium.time.MicroTimestamp", "int64", 1_700_000_000_000_123, "long"),
        ("org.apache.kafka.connect.data.Timestamp", "int64", 5, "int"),
        ("io.debezium.time.Date", "int32", 20_000, "long"),
        ("io.debezium.time.ZonedTimestamp", "string", "2026-01-01T00:00:00Z", "string"),
        ("io.debezium.data.Uuid", "string", _UUID.upper(), "string"),
    ],
)
def test_a_named_type_of_kafka_connect_is_as_written_in_a_column_of_the_type_underneath(
    tmp_path: Path, name: str, kind: str, value: Any, column: str
) -> None:
    scenario = ShapedScenario(
        tmp_path, envelope=EnvelopeSpec(kind="debezium"), columns=(ColumnSpec(name="st", type=parse_type(column)),)
    )
    scenario.run(_with_schema(1, {"type": kind}, value), _with_schema(2, {"type": kind, "name": name}, value))
    assert [row["st"] for row in scenario.rows()] == [value] * 2


def test_a_field_that_is_renamed_and_gets_a_logical_type_continues_in_its_column(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path)
    put(scenario, avro(old="string", n="long"), {"old": _UUID, "n": 1})
    kinds = [
        {"name": "new", "aliases": ["old"], "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "n", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ]
    put(scenario, json.dumps({"type": "record", "name": "R", "fields": kinds}), {"new": _UUID.upper(), "n": 2})
    assert columns(scenario) == {"old": "string", "n": "long"}
    assert scenario.rows() == [{"old": _UUID, "n": 1}, {"old": _UUID.upper(), "n": 2}]


def test_an_upsert_table_s_key_that_gets_a_logical_type_is_the_same_key(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, mode="upsert", key_columns=("id",), format_version=3)
    put(scenario, avro(id="string", v="int"), {"id": _UUID, "v": 1})
    put(scenario, avro(id={"type": "string", "logicalType": "uuid"}, v="int"), {"id": _UUID, "v": 2})
    state = scenario.catalog.load("n.t")
    assert state is not None
    assert str(state.schema.find_field("id").field_type) == "string"
    assert [row["v"] for row in scenario.rows()] == [1, 2]
    assert dead_letters(scenario) == []
