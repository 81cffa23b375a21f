"""What check reports of the newest schemas of keys, and of those whose subjects records' types name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from frazil.ingest.loop.discovery import Discovery
from frazil.ingest.tables.schemas import Schemas
from frazil.ops.check import Finding
from frazil.registry.port import Naming
from frazil.schema.evolve import new_schema
from frazil.spec.syntax.types import parse_type
from frazil.types import Commit, CommittedBatch, Progress
from frazil_registry.schema_check import check_schemas
from frazil_testing.memory_registry import MemoryRegistry
from packages.registry.tests.unit.test_schema_check import HEAD, avro
from tests.unit.ops.conftest import Scenario

PLAIN = '"string"'


def look(
    scenario: Scenario,
    registry: MemoryRegistry,
    settings: str,
    columns: dict[str, str] | None = None,
    naming: Naming = "topic",
    read_with: tuple[str, ...] = (),
    key_columns: str = "",
) -> list[Finding]:
    """columns: of the table, if it is there; read_with: ids of the schemas of its newest batch; key_columns: as it notes
    them.
    """
    if not scenario.source.by_name:
        scenario.source.create("a")
    spec = scenario.spec(f"{HEAD}tables: {{s.t: {{topic: a, {settings}}}}}\n")
    discovery = Discovery(spec, scenario.source, scenario.catalog)
    discovery.refresh_topics()
    table = discovery.tables["s.t"]
    if columns is not None:
        schema = new_schema({name: parse_type(word) for name, word in columns.items()}.items())
        state = scenario.catalog.create("s.t", schema, {}, 2)
        if key_columns:
            scenario.catalog.mark("s.t", "key-columns", key_columns)
        scenario.catalog.commit(
            Commit("s.t", (), Progress(commit_id="c", batch=CommittedBatch(schemas=read_with)), state.progress)
        )
        table.state = scenario.catalog.load("s.t")
    return list(check_schemas([table], Schemas(registry, naming), spec.file.path))


def register(**texts: str) -> MemoryRegistry:
    registry = MemoryRegistry()
    for subject, text in texts.items():
        registry.register("avro", text, subject=f"a-{subject}")
    return registry


def word(finding: Finding) -> tuple[str, bool, str]:
    return finding.name, finding.is_ok, finding.found


DECODED = "key: {format: avro}, metadata: {key: k}"


@pytest.mark.parametrize(
    ("text", "columns", "is_ok", "found"),
    [
        (avro(id="long"), None, True, "a run adds k: struct<id: long>"),
        (PLAIN, None, True, "a run adds k: string"),
        (avro(id="int"), {"k": "struct<id: long>"}, True, "the table has all of it"),
        (avro(id="long", p="int"), {"k": "struct<id: int>"}, True, "a run widens k.id: long, adds k.p: int"),
        (avro(id="string"), {"k": "struct<id: int>"}, False, "schema a-key: column k.id: string does not fit int"),
        (PLAIN, {"k": "long"}, False, "schema a-key: column k: string does not fit long"),
        (
            avro(id="long"),
            {"k": "long"},
            False,
            "schema a-key: column k: the keys are records, and the column holds none",
        ),
    ],
)
def test_keys_that_become_a_column(
    scenario: Scenario, text: str, columns: dict[str, str] | None, is_ok: bool, found: str
) -> None:
    [finding] = look(scenario, register(key=text), DECODED, columns)
    assert word(finding) == ("schema a-key", is_ok, found)


def test_values_and_keys_have_a_finding_each(scenario: Scenario) -> None:
    registry = register(value=avro(v="long"), key=avro(id="long"))
    findings = look(
        scenario, registry, f"value: {{format: avro}}, {DECODED}, schema_evolution: freeze", {"k": "struct<n: int>"}
    )
    assert [word(finding) for finding in findings] == [
        ("schema a-value", False, "schema a-value: column v: long is not added: `schema_evolution` is `freeze`"),
        ("schema a-key", False, "schema a-key: column k.id: long is not added: `schema_evolution` is `freeze`"),
    ]
    assert all("write `schema_evolution: add_only`" in finding.remedy for finding in findings)


UPSERT_ENVELOPE = "value: {format: avro}, key: {format: avro}, mode: upsert"


@pytest.mark.parametrize(
    ("text", "settings", "problem"),
    [
        (avro(id="long"), "", ""),
        (avro(ID="long"), "", ""),
        (avro(Id="long", part="int"), ", key_columns: [id]", ""),
        (avro(number="long"), "", "schema a-key: the keys have no field for the key column id"),
        (avro(id="long", part="int"), "", "schema a-key: the keys have the field part, which is not a key column"),
        (avro(id="long", part="int"), ", key_columns: [id]", ""),
        (avro(part="int"), ", key_columns: [id]", "schema a-key: the keys have no field for the key column id"),
    ],
)
def test_keys_that_tell_rows(scenario: Scenario, text: str, settings: str, problem: str) -> None:
    registry = register(value=avro(id="long", v="string"), key=text)
    columns = {"id": "long", "v": "string"}
    of_values, of_keys = look(scenario, registry, UPSERT_ENVELOPE + settings, columns, key_columns='["id"]')
    assert of_values.is_ok
    assert (of_keys.is_ok, problem in of_keys.found) == (not problem, True)


def test_keys_of_envelopes_are_as_their_values_are(scenario: Scenario) -> None:
    settings = "value: {format: avro}, envelope: debezium, mode: upsert, format_version: 3"
    findings = look(scenario, register(key=avro(number="long")), settings, {"id": "long"}, key_columns='["id"]')
    assert [finding.name for finding in findings] == ["schema a-value", "schema a-key"]
    assert "no field for the key column id" in findings[1].found


def test_keys_without_a_use_or_a_schema_are_not_looked_at(scenario: Scenario) -> None:
    registry = register(key=avro(id="long"))
    assert look(scenario, registry, "key: {format: avro}") == []
    assert look(scenario, registry, "key: {format: json}, metadata: [key]") == []
    [finding] = look(scenario, MemoryRegistry(), DECODED)
    assert (finding.is_ok, finding.found) == (True, "the registry has no such subject yet")
    registry.register("json_schema", "{}", subject="a-key")
    [finding] = look(scenario, registry, DECODED)
    assert (finding.is_ok, finding.remedy) == (False, "write `key: {format: json_schema}`, or correct the subject")


# ---- subjects that are named after the type of a record


def typed(name: str, **fields: Any) -> str:
    members = [{"name": field, "type": kind} for field, kind in fields.items()]
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": members})


@pytest.mark.parametrize(("naming", "prefix"), [("record", ""), ("topic_record", "a-")])
def test_the_types_of_a_table_s_records_lead_to_their_newest_schemas(
    scenario: Scenario, naming: Naming, prefix: str
) -> None:
    registry = MemoryRegistry()
    ids = [registry.register("avro", typed(name, id="int"), subject=f"{prefix}shop.{name}") for name in ("A", "B")]
    registry.register("avro", typed("B", id="string"), subject=f"{prefix}shop.B")
    findings = look(scenario, registry, "value: {format: avro}", {"id": "int"}, naming, read_with=tuple(map(str, ids)))
    subject = f"{prefix}shop.B"
    assert [word(finding) for finding in findings] == [
        (f"schema {prefix}shop.A", True, "the table has all of it"),
        (f"schema {subject}", False, f"schema {subject}: column id: string does not fit int"),
    ]


def test_under_the_topic_s_name_further_types_are_found(scenario: Scenario) -> None:
    registry = MemoryRegistry()
    registry.register("avro", typed("A", id="int"), subject="a-shop.A")
    registry.register("avro", typed("C", x="int"), subject="a-eu-shop.C")  # Of the topic a-eu.
    [finding] = look(scenario, registry, "value: {format: avro}", naming="topic_record")
    assert word(finding) == ("schema a-shop.A", True, "a run adds id: int")


def test_where_no_type_is_known_there_is_nothing_to_look_at(scenario: Scenario) -> None:
    registry = MemoryRegistry()
    registry.register("avro", typed("A", id="int"), subject="shop.A")
    [finding] = look(scenario, registry, "value: {format: avro}", naming="record")
    assert (finding.name, finding.is_ok) == ("schema of a", True)
    assert "no record's type is known yet" in finding.found
    registry.is_down = True
    [finding] = look(scenario, registry, "value: {format: avro}", naming="topic_record")
    assert (finding.name, finding.is_ok) == ("registry", False)
