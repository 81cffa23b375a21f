"""What check finds in topics, folders and stores, without a JVM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType

from frazil.dead_letters.tables import DELETES_OLD
from frazil.errors import SpecError, UnavailableError
from frazil.ingest.failures import TableStopped
from frazil.ingest.loop.discovery import Discovery
from frazil.ingest.tables.table import Table
from frazil.ops.check import (
    Finding,
    check_kafka,
    check_local_folder,
    check_orders,
    check_tables,
)
from frazil.ops.store_check import check_store
from frazil.schema.evolve import new_schema
from frazil.spec import TableSpec
from frazil.spec.syntax.types import parse_type
from tests.unit.ops.conftest import Scenario

TABLES = "tables: {s.orders: {topic: orders}, s.views: {topics: /^page/}}\n"


def look(scenario: Scenario, text: str = TABLES, denied: frozenset[tuple[str, str]] = frozenset()) -> list[Finding]:
    spec = scenario.spec(text)
    discovery = Discovery(spec, scenario.source, scenario.catalog)

    def denies(topics: Iterable[str], right: str) -> set[str]:
        return {topic for topic in topics if (topic, right) in denied}

    return list(check_kafka(spec, scenario.source, discovery, denies))


def test_topics_that_are_there_are_well(scenario: Scenario) -> None:
    scenario.source.create("orders", 3)
    scenario.source.create("page_views")
    findings = look(scenario)
    assert all(finding.is_ok for finding in findings)
    assert [(finding.name, finding.found) for finding in findings[1:]] == [
        ("topic orders", "3 partitions, for table s.orders"),
        ("topic page_views", "1 partition, for table s.views"),
    ]


def test_a_missing_topic_is_a_problem_with_the_nearest_name(scenario: Scenario) -> None:
    scenario.source.create("page_views")
    scenario.source.create("order")
    [problem] = [finding for finding in look(scenario) if not finding.is_ok]
    assert (problem.name, problem.found) == ("topic orders", "the topic does not exist; table s.orders waits for it")
    assert problem.remedy.startswith("did you mean `order`?")


def test_a_missing_top_level_topic_is_a_problem_too(scenario: Scenario) -> None:
    scenario.source.create("alarms")
    problems = [f for f in look(scenario, "namespace: n\ntopics: [alarms, alarm]\n") if not f.is_ok]
    assert [(p.name, p.found) for p in problems] == [
        ("topic alarm", "the topic does not exist; table n.alarm waits for it")
    ]


def test_a_topic_that_may_not_be_read_is_a_problem(scenario: Scenario) -> None:
    scenario.source.create("orders")
    scenario.source.create("page_views")
    problems = [f for f in look(scenario, denied=frozenset({("orders", "READ")})) if not f.is_ok]
    assert [(p.name, p.found) for p in problems] == [("topic orders", "this client may not read it")]
    assert problems[0].remedy.endswith("--operation READ --topic orders`")


def test_a_topic_of_dead_letters_that_may_not_be_written_is_a_problem(scenario: Scenario) -> None:
    scenario.source.create("orders")
    scenario.source.create("bad")
    text = "tables: {s.orders: {topic: orders, dead_letters: {topic: bad}}}\n"
    [problem] = [f for f in look(scenario, text, frozenset({("bad", "WRITE")})) if not f.is_ok]
    assert (problem.name, problem.found) == (
        "topic bad",
        "this client may not write to it, and dead letters go there",
    )
    assert problem.remedy.endswith("--operation WRITE --topic bad`")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (TABLES, 3),
        ("namespace: n\ntopics: [orders, /^page/]\n", 4),
        ('namespace: n  # not /^page/\ntopics:\n  - orders\n  - "/^\\x70age/"\n', 6),
    ],
)
def test_a_pattern_that_matches_nothing_is_an_error_of_the_file(scenario: Scenario, text: str, line: int) -> None:
    scenario.source.create("orders")
    with pytest.raises(SpecError, match=r"/\^page/ matches no topic") as caught:
        look(scenario, text)
    assert caught.value.where == f"{scenario.root / 'frazil.yaml'}:{line}"


def test_kafka_that_does_not_answer_is_one_problem(scenario: Scenario) -> None:
    scenario.source.is_down = True
    [finding] = look(scenario)
    assert (finding.name, finding.is_ok, finding.tried) == ("kafka", False, "asked x:1 for its cluster and topics")


def test_a_table_that_would_stop_is_a_problem_and_one_that_is_not_there_is_none() -> None:
    fresh, bad = (Table(TableSpec(name=name, topics=())) for name in ("s.fresh", "s.bad"))

    def compare(table: Table) -> None:
        if table is bad:
            raise TableStopped("records are gone", "skip them", "topic a")

    findings = list(check_tables([fresh, bad], compare))
    assert [(f.name, f.is_ok, f.found, f.remedy) for f in findings] == [
        ("table s.fresh", True, "not created yet; `frazil run` creates it", ""),
        ("table s.bad", False, "records are gone", "skip them"),
    ]


@pytest.mark.parametrize("error", [ValueError("no such type"), SpecError("no such type", remedy="drop it")])
def test_what_is_wrong_with_one_table_in_a_way_nobody_foresaw_is_a_problem_of_it_alone(error: Exception) -> None:
    bad, fresh = (Table(TableSpec(name=name, topics=())) for name in ("s.bad", "s.fresh"))

    def compare(table: Table) -> None:
        if table is bad:
            raise error

    problem, well = check_tables([bad, fresh], compare)
    assert (problem.name, problem.is_ok, bool(problem.remedy), well.is_ok) == ("table s.bad", False, True, True)
    assert "no such type" in problem.found


def test_a_table_that_keeps_properties_of_its_own_reports_which(scenario: Scenario) -> None:
    spec = scenario.spec("tables: {s.t: {topic: a, properties: {comment: new, owner: me}}}\n")
    properties = {"comment": "old", "owner": "me", "other": "x", DELETES_OLD: "true"}
    table = Table(spec.tables[0])
    table.state = scenario.catalog.create("s.t", new_schema([("id", LongType())]), properties, 2)
    (finding,) = check_tables([table], lambda _: None)
    words = "there, 1 column; keeps its own comment: `properties` are for new tables"
    assert (finding.is_ok, finding.found) == (True, words)


def test_columns_whose_default_is_not_written_are_named(scenario: Scenario) -> None:
    fields = [
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "state", StringType(), required=False, initial_default="old", write_default="new"),
        NestedField(
            3, "a", StructType(NestedField(4, "b", LongType(), required=False, write_default=7)), required=False
        ),
    ]
    spec = scenario.spec(
        "tables: {s.t: {topic: a}, s.made: {topic: a, select: 'select id, coalesce(state, 1) as state from records'}}\n"
    )
    found = {}
    for table in map(Table, spec.tables):
        made = scenario.catalog.create(table.name, new_schema([("id", LongType())]), {DELETES_OLD: "true"}, 3)
        table.state = replace(made, schema=Schema(*fields))
        [finding] = check_tables([table], lambda _: None)
        found[table.name] = finding.found.partition("; warning: ")[2]
    assert found["s.t"].startswith("the default of `state`, `a.b` is not written")
    assert "coalesce(state, …) as state from records" in found["s.t"]
    assert found["s.made"] == ""


def test_what_becomes_of_old_metadata_is_reported_with_the_advice_that_suits_the_catalog(scenario: Scenario) -> None:
    spec = scenario.spec(
        "tables: {s.kept: {topic: a}, s.removed: {topic: b}, s.fresh: {topic: c}, s.needed: {topic: d},"
        " s.needed_and_removed: {topic: e}}\n"
    )
    found = {}
    for table in map(Table, spec.tables):
        if table.name != "s.fresh":
            properties = {DELETES_OLD: "true"} if table.name.endswith("removed") else {}
            made = scenario.catalog.create(table.name, new_schema([("id", LongType())]), properties, 2)
            table.state = replace(made, must_keep_metadata="needed" in table.name)
        [finding] = check_tables([table], lambda _: None)
        assert finding.is_ok
        found[table.name] = finding.found
    warned = {name: words.partition("; warning: ")[2] for name, words in found.items()}
    assert [name for name, words in warned.items() if words] == ["s.kept", "s.needed_and_removed"]
    assert warned["s.kept"].startswith("every commit leaves a metadata file behind")
    assert f"`ALTER TABLE s.kept SET TBLPROPERTIES ('{DELETES_OLD}' = 'true')`" in warned["s.kept"]
    remedy = f"`ALTER TABLE s.needed_and_removed SET TBLPROPERTIES ('{DELETES_OLD}' = 'false')`"
    assert warned["s.needed_and_removed"].endswith(remedy)


def test_a_text_that_orders_changes_is_told_of_tables_that_are_there_and_of_declared_columns(
    scenario: Scenario,
) -> None:
    settings = "{topic: a, mode: upsert, key_columns: [id], order_by: at, columns: {id: long, at: %s}}"
    found = []
    for kind in ("string", "timestamptz"):
        table = Table(scenario.spec(f"tables: {{s.t: {settings % kind}}}\n").tables[0])
        found += [finding.found for finding in check_tables([table], lambda _: None)]
        schema = new_schema([("id", LongType()), ("at", parse_type(kind))])
        table.state = scenario.catalog.create(f"s.{kind}", schema, {}, 3)
        found += [finding.found for finding in check_tables([table], lambda _: None)]
    words = "; warning: `order_by: at` is text, and texts are compared by their bytes: `9` counts as newer than `10`"
    assert [words in one for one in found] == [True, True, False, False]


def test_a_folder_is_looked_at_and_not_made(tmp_path: Path) -> None:
    assert check_local_folder("store", tmp_path / "a" / "b").is_ok
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    finding = check_local_folder("store", tmp_path / "file" / "b")
    assert (finding.is_ok, finding.where) == (False, str(tmp_path / "file"))


def test_a_folder_that_nobody_can_make_is_a_problem() -> None:
    finding = check_local_folder("store", Path("/proc/lake"))
    assert (finding.is_ok, finding.where, finding.remedy) == (False, "/proc", "name another place")


def test_a_folder_without_rights_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    assert not check_local_folder("store", tmp_path).is_ok


def test_a_store_is_reached_with_what_it_is_made_with() -> None:
    asked = []

    def probe(properties: Mapping[str, str], location: str) -> str:
        asked.append((properties, location))
        return "it answers"

    assert check_store("s3://lake/", {"k": "v"}, [], probe).found == "s3://lake/: it answers"
    assert asked == [({"k": "v"}, "s3://lake/")]
    assert check_store(None, {}, [], probe).tried == "nothing yet"
    vending = {"header.X-Iceberg-Access-Delegation": "vended-credentials"}
    found = check_store("s3://lake/", vending, [], probe)
    assert (found.is_ok, found.found) == (True, "the catalog gives access to it with the first table")
    assert len(asked) == 1, "this machine's own identity may have no access"


def test_a_store_that_cannot_be_reached_is_a_problem() -> None:
    def probe(*_: object) -> str:
        raise UnavailableError("the store cannot be reached: no such bucket", where="s3://lake/")

    finding = check_store("s3://lake/", {}, [], probe)
    assert (finding.is_ok, finding.tried, finding.where) == (
        False,
        "listed s3://lake/, and tried to write there",
        "s3://lake/",
    )


def test_a_topic_of_transactions_that_is_missing_is_a_problem(scenario: Scenario) -> None:
    scenario.source.create("orders")
    text = "tables: {s.orders: {topic: orders, envelope: debezium, atomic: {transaction_topic: shop.transaction}}}\n"
    problems = [f for f in look(scenario, text) if not f.is_ok]
    assert [(p.name, p.found) for p in problems] == [
        ("topic shop.transaction", "the topic does not exist; table s.orders waits for it")
    ]
    scenario.source.create("shop.transaction")
    assert all(finding.is_ok for finding in look(scenario, text))


def test_a_topic_of_dead_letters_that_is_missing_is_a_problem(scenario: Scenario) -> None:
    scenario.source.create("orders")
    text = (
        "defaults: {dead_letters: {topic: bad}}\n"
        "tables: {s.a: {topic: orders}, s.b: {topic: orders}, s.c: {topic: orders, on_bad_record: skip}}\n"
    )
    problems = [f for f in look(scenario, text) if not f.is_ok]
    assert [(p.name, p.found) for p in problems] == [
        ("topic bad", "the topic does not exist; dead letters of s.a, s.b go there")
    ]
    scenario.source.create("bad")
    assert all(finding.is_ok for finding in look(scenario, text))


@pytest.mark.parametrize(
    ("order", "found"),
    [
        ("sort: [id, idd desc]", "`maintenance.sort` names a column that the table does not have: `idd`"),
        ("zorder: [id, idd]", "`maintenance.zorder` names a column that the table does not have: `idd`"),
        ("sort: [id, later, _offset]", ""),
    ],
)
def test_an_order_of_rows_that_a_table_cannot_have_is_a_problem(scenario: Scenario, order: str, found: str) -> None:
    text = "tables:\n  s.t:\n    topic: a\n    metadata: [offset]\n    columns: {later: long}\n"
    spec = scenario.spec(f"{text}    maintenance: {{{order}}}\n")
    state = scenario.catalog.create("s.t", new_schema({"id": LongType()}.items()), {}, 2)
    findings = list(check_orders([Table(spec.tables[0], state=state), Table(spec.tables[0])], spec.file.path))
    place = f"{spec.file.path}:{spec.file.path.read_text().count(chr(10))}"
    assert [(one.name, one.is_ok, one.found, one.where) for one in findings] == (
        [("maintenance of s.t", False, found, place)] if found else []
    )
