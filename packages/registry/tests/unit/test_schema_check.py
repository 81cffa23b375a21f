"""What check reports of the registry's newest schemas, without a registry of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from frazil.ingest.loop.discovery import Discovery
from frazil.ingest.tables.schemas import Schemas
from frazil.ops.check import Finding
from frazil.registry.port import SchemaKind
from frazil.schema.evolve import new_schema
from frazil.spec.syntax.types import parse_type
from frazil_registry.schema_check import check_registry, check_schemas
from frazil_testing.memory_registry import MemoryRegistry
from tests.unit.ops.conftest import Scenario

HEAD = "registry: {url: http://r}\n"


def avro(**fields: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in fields.items()]})


def look(
    scenario: Scenario, registry: MemoryRegistry, settings: str = "", form: str = "avro", **columns: str
) -> list[Finding]:
    scenario.source.create("a")
    name = f"s.t{len(columns)}"
    text = f"{HEAD}tables: {{{name}: {{topic: a, value: {{format: {form}}}{settings}}}}}\n"
    spec = scenario.spec(text)
    discovery = Discovery(spec, scenario.source, scenario.catalog)
    discovery.refresh_topics()
    table = discovery.tables[name]
    if columns:
        table.state = scenario.catalog.create(
            name, new_schema({n: parse_type(w) for n, w in columns.items()}.items()), {}, 2
        )
    return list(check_schemas([table], Schemas(registry), spec.file.path))


def test_a_schema_that_its_table_can_follow_is_well_and_reports_how(scenario: Scenario) -> None:
    registry = MemoryRegistry()
    registry.register("avro", avro(id="long", name="string"), subject="a-value")
    [finding] = look(scenario, registry, id="int")
    assert (finding.name, finding.is_ok) == ("schema a-value", True)
    assert finding.found == "a run widens id: long, adds name: string"
    [finding] = look(scenario, registry, id="long", name="string", more="date")
    assert finding.found == "the table has all of it"


def test_a_change_that_would_be_refused_is_a_problem_before_a_record_has_it(scenario: Scenario) -> None:
    registry = MemoryRegistry()
    registry.register("avro", avro(id="string", x="double"), subject="a-value")
    [finding] = look(scenario, registry, ", schema_evolution: add_only", id="long", x="float")
    assert not finding.is_ok
    assert finding.found == (
        "schema a-value: column id: string does not fit long; schema a-value: column x: float is not widened to double"
    )
    assert "dead letters" in finding.remedy
    [finding] = look(scenario, registry, ", schema_evolution: freeze", x="double")
    assert finding.found == "schema a-value: column id: string is not added: `schema_evolution` is `freeze`"


def test_of_a_union_the_branches_that_a_column_cannot_hold_are_a_problem_and_no_others(scenario: Scenario) -> None:
    registry = MemoryRegistry()
    registry.register("avro", avro(v=["null", "int", "string"], w="int"), subject="a-value")
    [finding] = look(scenario, registry, v="int", w="struct<int: int, string: string>")
    assert (finding.is_ok, finding.found) == (False, "schema a-value: column v: string does not fit int")
    registry.register("avro", avro(v=["null", "int", "long"]), subject="a-value")
    [finding] = look(scenario, registry, v="int")
    assert (finding.is_ok, finding.found) == (True, "a run widens v: long")


def test_a_subject_that_is_not_there_of_another_format_or_of_no_use(scenario: Scenario) -> None:
    registry = MemoryRegistry()
    [finding] = look(scenario, registry)
    assert (finding.is_ok, finding.found) == (True, "the registry has no such subject yet")
    registry.register("json_schema", "{}", subject="a-value")
    [finding] = look(scenario, registry)
    assert (finding.is_ok, finding.found) == (False, "it is json_schema, and the table reads avro")
    registry.register("avro", '{"type": "nothing"}', subject="a-value")
    [finding] = look(scenario, registry)
    assert not finding.is_ok
    assert "nothing" in finding.found


def test_a_registry_is_reached_also_where_no_topic_needs_it_yet() -> None:
    registry = MemoryRegistry()
    finding = check_registry(Schemas(registry), ("http://a", "http://b"))
    assert (finding.name, finding.is_ok, finding.found) == ("registry", True, "http://a, http://b")
    registry.is_down = True
    finding = check_registry(Schemas(registry), ("http://a",))
    assert (finding.is_ok, finding.found, finding.where) == (False, "the schema registry does not answer", "memory")


def test_a_registry_that_does_not_answer_is_named_once(scenario: Scenario) -> None:
    registry = MemoryRegistry()
    registry.is_down = True
    [finding] = look(scenario, registry)
    assert (finding.name, finding.is_ok) == ("registry", False)


def _wrapped(form: str) -> str:
    """The schema of an envelope around a row with a number and a text."""
    if form == "avro":
        row = {
            "type": "record",
            "name": "V",
            "fields": [{"name": "id", "type": "int"}, {"name": "v", "type": "string"}],
        }
        images = [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "V"]}]
        return json.dumps({"type": "record", "name": "E", "fields": [*images, {"name": "op", "type": "string"}]})
    members = {"id": {"type": "integer", "connect.type": "int32"}, "v": {"type": "string"}}
    image = {"oneOf": [{"type": "null"}, {"type": "object", "properties": members}]}
    return json.dumps({"type": "object", "properties": {"before": image, "after": image, "op": {"type": "string"}}})


@pytest.mark.parametrize("form", ["avro", "json_schema"])
def test_of_a_schema_of_envelopes_the_row_inside_is_compared(scenario: Scenario, form: SchemaKind) -> None:
    registry = MemoryRegistry()
    registry.register(form, _wrapped(form), subject="a-value")
    [finding] = look(scenario, registry, ", envelope: debezium", form, id="int")
    assert (finding.is_ok, finding.found) == (True, "a run adds v: string")
    [finding] = look(scenario, registry, ", envelope: debezium, schema_evolution: freeze", form, id="int", v="string")
    assert (finding.is_ok, finding.found) == (True, "the table has all of it")


def _properties(**properties: str) -> str:
    return json.dumps({"type": "object", "properties": {name: {"type": kind} for name, kind in properties.items()}})


@pytest.mark.parametrize(
    ("form", "text", "settings", "columns"),
    [
        ("avro", avro(at="long"), ", columns: {at: timestamptz(ms)}", {}),
        ("avro", avro(at="double"), ", columns: {at: timestamp(s)}", {"at": "timestamp"}),
        ("avro", avro(id="long", x="long"), ", schema_evolution: freeze, exclude: [x]", {"id": "long"}),
        ("avro", avro(id="long", x="long"), ", schema_evolution: freeze, include: [id]", {"id": "long"}),
        ("json_schema", _properties(at="string", d="string"), ", columns: {at: timestamptz, d: date}", {}),
        ("json_schema", _properties(at="integer"), ", columns: {at: timestamptz(s)}", {}),
        ("json_schema", _properties(n="number", u="string"), ", columns: {n: 'decimal(9,2)', u: uuid}", {}),
    ],
)
def test_what_a_run_takes_is_no_problem(
    scenario: Scenario, form: SchemaKind, text: str, settings: str, columns: dict[str, str]
) -> None:
    registry = MemoryRegistry()
    registry.register(form, text, subject="a-value")
    [finding] = look(scenario, registry, settings, form, **columns)
    assert (finding.is_ok, finding.found) == (True, "the table has all of it")


def test_a_renamed_field_is_the_column_that_it_was(scenario: Scenario) -> None:
    registry = MemoryRegistry()
    fields = [{"name": "number", "aliases": ["id"], "type": "long"}, {"name": "more", "type": "long"}]
    registry.register("avro", json.dumps({"type": "record", "name": "R", "fields": fields}), subject="a-value")
    [finding] = look(scenario, registry, id="long")
    assert finding.found == "a run adds more: long"


def test_a_field_of_a_json_schema_that_a_column_cannot_take_is_a_problem(scenario: Scenario) -> None:
    registry = MemoryRegistry()
    registry.register("json_schema", _properties(id="string", more="integer"), subject="a-value")
    [finding] = look(scenario, registry, ", columns: {id: long}", "json_schema")
    assert (finding.is_ok, finding.found) == (False, "schema a-value: column id: string does not fit long")
    [finding] = look(scenario, registry, "", "json_schema", id="string")
    assert (finding.is_ok, finding.found) == (True, "a run adds more: long")


def _arranged(
    scenario: Scenario, registry: MemoryRegistry, topics: str, settings: str, form: str = "avro"
) -> tuple[list[Finding], str]:
    """Findings that are no schema's of a table that is not there yet, and the place of its last setting."""
    text = f"{HEAD}tables:\n  s.t:\n    topics: {topics}\n    value: {{format: {form}}}\n{settings}"
    spec = scenario.spec(text)
    discovery = Discovery(spec, scenario.source, scenario.catalog)
    discovery.refresh_topics()
    findings = list(check_schemas(discovery.tables.values(), Schemas(registry), spec.file.path))
    place = f"{spec.file.path}:{spec.file.path.read_text().count(chr(10))}"
    return [finding for finding in findings if not finding.name.startswith("schema ")], place


@pytest.mark.parametrize(
    ("settings", "message", "remedy"),
    [
        ("partition_by: [regions]", "`regions`: the table has no column `regions`", "did you mean `region`?"),
        (
            "partition_by: [regions, ids]",
            "`regions`: the table has no column `regions`; `ids`: the table has no column `ids`",
            "did you mean `region`?",
        ),
        ("partition_by: [day(region)]", "`day(region)`: the column `region` has the type string", "day is for a date"),
        ("sort_by: [id, nothing desc]", "`nothing`: the table has no column `nothing`", "declare it under `columns`"),
    ],
)
def test_terms_that_no_schema_has_a_column_for_are_a_problem_with_their_line(
    scenario: Scenario, settings: str, message: str, remedy: str
) -> None:
    scenario.source.create("a")
    registry = MemoryRegistry()
    registry.register("avro", avro(id="long", region="string"), subject="a-value")
    [finding], place = _arranged(scenario, registry, "[a]", f"    {settings}\n")
    assert (finding.name, finding.is_ok, finding.found, finding.where) == ("layout of s.t", False, message, place)
    assert remedy in finding.remedy


@pytest.mark.parametrize(
    "settings",
    [
        "partition_by: [region, day(_timestamp), 'bucket(own, 4)']\n    metadata: [timestamp]\n    columns:"
        " {own: long}",
        "partition_by: [_rescued]\n    rescue: true",
        "sort_by: [region desc]",
    ],
)
def test_columns_of_a_schema_the_file_or_the_table_s_own_are_no_problem(scenario: Scenario, settings: str) -> None:
    scenario.source.create("a")
    registry = MemoryRegistry()
    registry.register("avro", avro(id="long", region="string"), subject="a-value")
    assert _arranged(scenario, registry, "[a]", f"    {settings}\n")[0] == []


def test_of_several_topics_one_may_have_the_column(scenario: Scenario) -> None:
    registry = MemoryRegistry()
    for topic in ("a", "b"):
        scenario.source.create(topic)
    registry.register("avro", avro(id="long"), subject="a-value")
    settings = "    partition_by: [region]\n"
    assert _arranged(scenario, registry, "[a, b]", settings)[0] == [], "nothing is known of b"
    registry.register("avro", avro(id="long"), subject="b-value")
    assert len(_arranged(scenario, registry, "[a, b]", settings)[0]) == 1
    registry.register("avro", avro(region="string"), subject="b-value")
    assert _arranged(scenario, registry, "[a, b]", settings)[0] == []


def test_what_no_schema_is_known_for_is_no_problem(scenario: Scenario) -> None:
    scenario.source.create("a")
    settings = "    partition_by: [region]\n"
    assert _arranged(scenario, MemoryRegistry(), "[a]", settings)[0] == []
    registry = MemoryRegistry()
    registry.register("json_schema", _properties(id="integer"), subject="a-value")
    assert _arranged(scenario, registry, "[a]", settings, "json_schema")[0] == [], "records may have it nevertheless"
    registry.register("avro", avro(id="long"), subject="a-value")
    settings += "    mode: upsert\n    key: {format: avro}\n"
    assert _arranged(scenario, registry, "[a]", settings)[0] == [], "keys may have it"


_UUID, _MILLIS = {"type": "string", "logicalType": "uuid"}, {"type": "long", "logicalType": "timestamp-millis"}
_EVENT = 'syntax = "proto3"; message R {{ P p = 1; {} e = 2; }} message P {{ {} }} enum E {{ NONE = 0; }}'


def test_a_change_that_leaves_the_bytes_as_they_are_is_no_problem(scenario: Scenario) -> None:
    registry = MemoryRegistry()
    registry.register("avro", avro(u=_UUID, ts=_MILLIS), subject="a-value")
    [finding] = look(scenario, registry, u="string", ts="long")
    assert (finding.is_ok, finding.found) == (True, "the table has all of it")
    registry = MemoryRegistry()
    registry.register("protobuf", _EVENT.format("E", ""), subject="a-value")
    [finding] = look(scenario, registry, form="protobuf", p="struct<by: string>", e="int", more="date")
    assert (finding.is_ok, finding.found) == (True, "the table has all of it")


def test_what_a_column_cannot_hold_names_the_declaration_that_helps(scenario: Scenario) -> None:
    registry = MemoryRegistry()
    registry.register("protobuf", _EVENT.format("int32", "string by = 1;"), subject="a-value")
    [finding] = look(scenario, registry, form="protobuf", p="boolean", e="string")
    assert finding.found == (
        "schema a-value: column e: int does not fit string; "
        "schema a-value: column p: struct<by: string> does not fit boolean"
    )
    assert "`columns: {e: {type: string, coerce: true}}`" in finding.remedy
    assert '`columns: {p_fields: {type: "struct<by: string>", field: p}}`' in finding.remedy
    settings = ", columns: {e: {type: string, coerce: true}}"
    [finding] = look(scenario, registry, settings, "protobuf", e="string", p="struct<by: string>", more="date")
    assert (finding.is_ok, finding.found) == (True, "the table has all of it")


@pytest.mark.parametrize(
    ("fields", "columns", "words"),
    [
        ({"id": "long", "_deleted": "boolean"}, {}, "_deleted is the name of one of Iceberg's metadata columns"),
        ({"id": "long", "ID": "long"}, {}, "field ID differs from `id` only in letter case"),
        ({"id": "long", "ID": "long"}, {"id": "long"}, "field ID differs from `id` only in letter case"),
        ({"ID": "long"}, {"id": "long"}, ""),
    ],
)
def test_names_that_no_column_can_have_are_told(
    scenario: Scenario, fields: dict[str, str], columns: dict[str, str], words: str
) -> None:
    registry = MemoryRegistry()
    registry.register("avro", avro(**fields), subject="a-value")
    [finding] = look(scenario, registry, **columns)
    assert finding.is_ok is not bool(words)
    assert words in finding.found
    assert not words or "exclude" in finding.remedy


def test_a_field_that_the_tables_name_mapping_knows_is_no_new_column(scenario: Scenario) -> None:
    registry = MemoryRegistry()
    registry.register("avro", avro(record_id="long", more="string"), subject="a-value")
    scenario.source.create("a")
    spec = scenario.spec(f"{HEAD}tables: {{s.t: {{topic: a, value: {{format: avro}}}}}}\n")
    discovery = Discovery(spec, scenario.source, scenario.catalog)
    discovery.refresh_topics()
    (table,) = discovery.tables.values()
    mapping = {"schema.name-mapping.default": '[{"field-id": 1, "names": ["record_id"]}]'}
    table.state = scenario.catalog.create("s.t", new_schema([("id", parse_type("int"))]), mapping, 2)
    [finding] = check_schemas([table], Schemas(registry), spec.file.path)
    assert (finding.is_ok, finding.found) == (True, "a run widens id: long, adds more: string")


def test_a_unit_that_the_file_gives_a_column_counts_more_than_connects_name(scenario: Scenario) -> None:
    registry = MemoryRegistry()
    micros = {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}
    registry.register("avro", avro(ts=micros, other=micros), subject="a-value")
    [finding] = look(scenario, registry, ', columns: {ts: "timestamptz(us)"}')
    assert (finding.is_ok, finding.found) == (True, "a run adds other: timestamp")


_MANY = " ".join(f"int32 f{n} = {n};" for n in range(1, 1100))
_TWO = f'syntax = "proto3"; message All {{ W a = 1; W b = 2; }} message E {{ int32 id = 1; }} message W {{ {_MANY} }}'


@pytest.mark.parametrize(
    ("message", "is_ok", "reported"),
    [
        ("E", True, "a run adds id: int"),
        ("All", False, "the message All has more than 2000 fields, those inside it counted"),
        ("Nothing", False, "the schema has no message 'Nothing'"),
    ],
)
def test_of_a_schema_with_several_messages_the_one_that_records_are_is_looked_at(
    scenario: Scenario, message: str, is_ok: bool, reported: str
) -> None:
    registry = MemoryRegistry()
    registry.register("protobuf", _TWO, subject="a-value")
    [finding] = look(scenario, registry, form=f"protobuf, message: {message}", more="date")
    assert (finding.is_ok, finding.found) == (is_ok, reported)


@pytest.mark.parametrize("envelope", ["", ", envelope: debezium"])
@pytest.mark.parametrize("name", ["org.apache.kafka.connect.data.Timestamp", "io.debezium.time.MicroTimestamp"])
@pytest.mark.parametrize("unit", ["", "(ms)"])
def test_local_times_in_a_column_with_a_zone_are_well(scenario: Scenario, name: str, envelope: str, unit: str) -> None:
    registry = MemoryRegistry()
    time = {"type": "long", "connect.name": name}
    if "connect.data" in name:
        time["logicalType"] = "timestamp-millis"
    text = avro(ts=time)
    if envelope:
        row = {"type": "record", "name": "Row", "fields": [{"name": "ts", "type": time}]}
        text = avro(after=["null", row], op="string")
    registry.register("avro", text, subject="a-value")
    zoned = f"columns: {{ts: {{type: timestamptz{unit}, zone: America/New_York}}}}"
    [finding] = look(scenario, registry, f", {zoned}{envelope}", ts="timestamptz")
    assert (finding.is_ok, finding.found) == (True, "the table has all of it")


@pytest.mark.parametrize(
    ("column", "found"), [("", "a run adds id: decimal(20, 0)"), ("long", "the table has all of it")]
)
def test_an_unsigned_number_is_a_decimal_unless_the_table_has_a_long(
    scenario: Scenario, column: str, found: str
) -> None:
    registry = MemoryRegistry()
    unsigned = {"type": "long", "connect.parameters": {"__debezium.source.column.type": "BIGINT UNSIGNED"}}
    registry.register("avro", avro(id=unsigned), subject="a-value")
    columns = {"id": column} if column else {"other": "int"}
    [finding] = look(scenario, registry, **columns)
    assert (finding.is_ok, finding.found) == (True, found)


def test_a_logical_type_beside_its_type_is_reported_and_follows_the_setting(scenario: Scenario) -> None:
    registry = MemoryRegistry()
    field = {"name": "ts", "type": "long", "logicalType": "timestamp-millis"}
    registry.register("avro", json.dumps({"type": "record", "name": "R", "fields": [field]}), subject="a-value")
    [finding] = look(scenario, registry)
    assert (finding.is_ok, finding.found) == (
        True,
        "a run adds ts: long; warning: field ts: the logicalType timestamp-millis is on the type long, where Avro "
        "ignores it; write `value: {format: avro, logical_types: lenient}` to read it as meant, or correct the schema",
    )
    [finding] = look(scenario, registry, form="avro, logical_types: lenient")
    assert (finding.is_ok, finding.found) == (True, "a run adds ts: timestamptz")
