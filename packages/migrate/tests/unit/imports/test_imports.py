"""Each setting of another tool has an answer, and each example makes a pipeline file that loads and has no secret in it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.scan import ROOT
from frazil.cli.main import main
from frazil.errors import SpecError
from frazil.spec import load_spec
from frazil_migrate.imports import auto_cdc, automq, debezium_server, flink_cdc, flink_sql, kafka_connect, tableflow
from frazil_migrate.imports.draft import Answer, Imported, Tool
from frazil_migrate.imports.kafka_connect import KAFKA_CONNECT
from frazil_migrate.imports.sources import parse_properties
from packages.migrate.tests.unit.imports import examples
from packages.migrate.tests.unit.imports.examples import EXAMPLES, SECRET, draft_of
from packages.migrate.tests.unit.imports.peer_keys import PEER_KEYS

IMPORTS: Mapping[str, tuple[Tool, Callable[[str, str | None], Imported]]] = {
    "kafka-connect": (KAFKA_CONNECT, kafka_connect.import_connector),
    "automq": (automq.AUTOMQ, automq.import_topics),
    "flink-cdc": (flink_cdc.FLINK_CDC, flink_cdc.import_pipeline),
    "flink-sql": (flink_sql.FLINK_SQL, flink_sql.import_script),
    "debezium-server": (debezium_server.DEBEZIUM_SERVER, debezium_server.import_server),
    "tableflow": (tableflow.TABLEFLOW, tableflow.import_topics),
    "auto-cdc": (auto_cdc.AUTO_CDC, auto_cdc.import_flows),
}
EVERY = [(tool, name) for tool, texts in EXAMPLES.items() for name in texts]


def imported(tool: str, text: str) -> Imported:
    return IMPORTS[tool][1](text, "k:9092")


def document(tool: str, text: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(imported(tool, text).text)
    return found


def reasons(one: Imported) -> dict[str, str]:
    return {loss.key: loss.reason for loss in one.losses}


@pytest.mark.parametrize("tool", PEER_KEYS)
def test_every_known_setting_has_an_answer(tool: str) -> None:
    table = IMPORTS[tool][0]
    assert [key for key in PEER_KEYS[tool] if table.find(key) is None] == []
    assert [one.name for one in table.keys if one.answer is Answer.UNSUPPORTED and not one.instead] == []


@pytest.mark.parametrize("tool", PEER_KEYS)
def test_every_setting_that_is_carried_over_is_so_in_an_example(tool: str) -> None:
    table = IMPORTS[tool][0]
    keys = []
    for text in EXAMPLES[tool].values():
        found = imported(tool, text)
        taken = [*found.carried, *(loss.key for loss in found.losses if "the value is a secret" in loss.reason)]
        for place, kind in re.findall(r'"(transforms\.\w+)\.type": "[\w.]*\.(\w+)', text):
            keys += [key.replace(place, kind, 1) for key in taken if key.startswith(f"{place}.")]
        keys += taken
    in_examples = {one.name for key in keys if (one := table.find(key.rpartition("/")[2])) is not None}
    missing = {one.name for one in table.keys if one.answer is Answer.CARRIED} - in_examples
    assert missing == set()


@pytest.mark.parametrize(("tool", "name"), EVERY)
def test_an_example_becomes_the_file_beside_it_which_loads_and_has_no_secret(
    tool: str, name: str, tmp_path: Path
) -> None:
    """`FRAZIL_WRITE_IMPORTS=1` writes the files anew."""
    found = imported(tool, EXAMPLES[tool][name])
    if os.environ.get("FRAZIL_WRITE_IMPORTS"):
        draft_of(tool, name).write_text(found.text, encoding="utf-8")
    assert found.text == draft_of(tool, name).read_text(encoding="utf-8")
    file = tmp_path / "frazil.yaml"
    file.write_text(found.text.replace("${file:", "${env:"))
    spec = load_spec(file, dict.fromkeys(re.findall(r"\$\{\w+:([^}]*)\}", found.text), "x" * 32))
    assert spec.tables or spec.routes
    assert SECRET not in repr(found)
    variables = set(re.findall(r"\$\{env:(\w+)\}", found.text))
    reported = {loss.remedy for loss in found.losses if "secret" in loss.reason}
    assert {f"set the environment variable {name} before starting Frazil" for name in variables} >= reported


@pytest.mark.parametrize("tool", PEER_KEYS)
def test_an_unknown_setting_is_reported(tool: str) -> None:
    text = {
        "kafka-connect": json.dumps({**examples.UNWRAPPED, "odd": 1}),
        "automq": examples.TOPICS + "  automq.table.topic.odd=1 sensitive=false synonyms={}\n",
        "flink-cdc": examples.FLINK_CDC.replace("name: Sync", "odd: 1, name: Sync"),
        "flink-sql": examples.FLINK_SQL.replace("'topic'='orders'", "'topic'='orders', 'odd'='1'"),
        "debezium-server": examples.CAPTURED + "odd=1\n",
        "tableflow": json.dumps({"topic_name": "orders", "odd": 1}),
        "auto-cdc": examples.AUTO_CDC.replace("subscribe =>", "odd => 1, subscribe =>"),
    }[tool]
    assert [loss.reason for loss in imported(tool, text).losses if loss.key.endswith("odd")] == [
        "the setting is unknown"
    ]


@pytest.mark.parametrize("tool", PEER_KEYS)
def test_the_command_of_the_tools_page_makes_the_file_that_the_page_shows(
    tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "migrate" / f"{tool}.md").read_text()
    configuration, command, result = re.findall(r"^```\w+\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[:3]
    words = command.partition(" > ")[0].split()[1:]
    monkeypatch.chdir(tmp_path)
    Path(words[2]).write_text(configuration)
    assert main(words) == 0
    shown = "".join(line for line in capsys.readouterr().out.splitlines(keepends=True) if not line.startswith("#"))
    assert shown == result


# ---- Kafka Connect


def test_a_login_that_both_clients_know_is_carried_over_and_others_are_reported() -> None:
    prefix, amazon = "consumer.override.", "software.amazon.msk.auth.iam"
    known = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.client.callback.handler.class": f"{amazon}.IAMClientCallbackHandler",
    }
    unknown = {"ssl.enabled.protocols": "TLSv1.3", "sasl.login.callback.handler.class": "com.example.Handler"}
    written = {f"{prefix}{name}": value for name, value in (known | unknown).items()}
    found = imported("kafka-connect", json.dumps(examples.UNWRAPPED | written))
    kafka = yaml.safe_load(found.text)["kafka"]
    assert kafka.items() >= known.items()
    assert kafka.keys().isdisjoint(unknown)
    lost = {loss.key.removeprefix(prefix): loss for loss in found.losses}
    assert lost.keys() >= unknown.keys()
    assert all(lost[name].reason.startswith("Frazil has two Kafka clients") for name in unknown)
    assert lost["ssl.enabled.protocols"].remedy.startswith("leave it out: only one of the two Kafka clients has it")


def test_topics_are_filtered_by_conditions() -> None:
    chain = {
        "transforms": "not",
        "predicates": "named",
        "predicates.named.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
        "predicates.named.pattern": "shop_.*\\.tmp",
        "transforms.not.type": "org.apache.kafka.connect.transforms.Filter",
        "transforms.not.predicate": "named",
    }
    found = imported("kafka-connect", json.dumps(examples.UNWRAPPED | chain))
    assert yaml.safe_load(found.text)["tables"]["shop.orders"]["where"] == r"not (_topic like 'shop\\_%.tmp')"
    other = json.dumps(examples.UNWRAPPED | chain | {"predicates.named.pattern": "[ab]+"})
    where = yaml.safe_load(imported("kafka-connect", other).text)["tables"]["shop.orders"]["where"]
    assert where == "not (_topic rlike '^(?:[ab]+)$')"


def test_what_apaches_sink_ignores_and_a_transform_of_ones_own_are_reported() -> None:
    config = {
        **examples.CONNECTOR["config"],
        "iceberg.tables.upsert-mode-enabled": "true",
        "transforms": "own,tail",
        "transforms.own.type": "com.example.Own",
        "transforms.tail.type": "org.apache.kafka.connect.transforms.InsertHeader$Key",
        "transforms.tail.header": "x",
    }
    assert reasons(imported("kafka-connect", json.dumps(config))).keys() >= {
        "iceberg.tables.upsert-mode-enabled",
        "transforms.own",
        "transforms.tail",
    }


@pytest.mark.parametrize(
    ("default", "own", "branch"), [("audit", "", "audit"), ("audit", "main", None), ("main", "b", "b")]
)
def test_a_branch_takes_the_commits_as_with_the_sink(default: str, own: str, branch: str | None) -> None:
    settings: Any = examples.CONNECTOR["config"]
    name = settings["iceberg.tables"].partition(",")[0]
    config = {**settings, "iceberg.tables.default-commit-branch": default}
    config[f"iceberg.table.{name}.commit-branch"] = own
    found = imported("kafka-connect", json.dumps(config))
    assert yaml.safe_load(found.text)["tables"][name].get("branch") == branch
    assert not [key for key in reasons(found) if "branch" in key]


def test_steps_in_another_order_than_frazils_are_reported() -> None:
    chain = {
        "transforms": "cast,drop",
        "transforms.cast.type": "org.apache.kafka.connect.transforms.Cast$Value",
        "transforms.cast.spec": "a:int32",
        "transforms.drop.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
        "transforms.drop.renames": "a:b",
    }
    assert (
        "order of steps"
        in reasons(imported("kafka-connect", json.dumps(examples.UNWRAPPED | chain)))["transforms.drop"]
    )


def test_transforms_of_the_whole_value_and_behind_others_keep_their_meaning() -> None:
    chain = {
        "transforms": "inner,test,outer",
        "predicates": "isTest",
        "predicates.isTest.type": "org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
        "predicates.isTest.name": "test",
        "transforms.test.type": "org.apache.kafka.connect.transforms.Filter",
        "transforms.test.predicate": "isTest",
        "transforms.inner.type": "org.apache.kafka.connect.transforms.ExtractField$Value",
        "transforms.inner.field": "payload",
        "transforms.outer.type": "org.apache.kafka.connect.transforms.HoistField$Value",
        "transforms.outer.field": "event",
    }
    found = imported("kafka-connect", json.dumps(examples.UNWRAPPED | chain))
    table = yaml.safe_load(found.text)["tables"]["shop.orders"]
    assert (table["select"], table["filter"]) == ("select `payload`.* from records", "`test` is null")
    assert {"transforms.test", "transforms.outer"} <= reasons(found).keys()
    kept = {
        "transforms": "pick,pos",
        "transforms.pick.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
        "transforms.pick.include": "id",
        "transforms.pos.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        "transforms.pos.offset.field": "pos",
    }
    table = document("kafka-connect", json.dumps(examples.UNWRAPPED | kept))["tables"]["shop.orders"]
    assert (table["keep_fields"], table["add_fields"]) == (["id"], {"pos": "_offset"})


def test_a_second_cluster_or_registry_is_reported() -> None:
    config = examples.BY_TOPIC | {
        "iceberg.kafka.bootstrap.servers": "other:9092",
        "key.converter.schema.registry.url": "http://other:8081",
    }
    found = reasons(imported("kafka-connect", json.dumps(config)))
    assert {"consumer.override.bootstrap.servers", "schema registry"} <= found.keys()


@pytest.mark.parametrize("secret", ["hushhush", "${vault:kv/shop:login}"])
def test_each_of_several_settings_with_one_secret_is_named(secret: str) -> None:
    secrets = {
        "iceberg.kafka.sasl.password": secret,
        "iceberg.kafka.ssl.key.password": secret,
        "iceberg.catalog.token": secret,
        "iceberg.catalog.s3.secret-access-key": secret,
        "value.converter.bearer.auth.token": secret,
    }
    avro = {
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schema.registry.url": "http://r",
    }
    found = imported("kafka-connect", json.dumps(examples.UNWRAPPED | avro | secrets))
    named = {loss.key: loss.remedy for loss in found.losses if loss.key in secrets}
    assert named.keys() == secrets.keys()
    variables = re.findall(r"\$\{env:(\w+)\}", found.text)
    assert {word for remedy in named.values() for word in remedy.split() if word.isupper()} == set(variables)


def test_secrets_of_other_config_providers_become_variables() -> None:
    config = {**examples.UNWRAPPED, "iceberg.catalog.credential": "${vault:prod/lake:lake.credential}"}
    found = imported("kafka-connect", json.dumps(config))
    assert yaml.safe_load(found.text)["catalog"]["properties"] == {"credential": "${env:LAKE_CREDENTIAL}"}
    assert "`vault`" in reasons(found)["iceberg.catalog.credential"]


# ---- the others


def test_topics_of_flink_cdc_without_a_rule_are_in_a_route_of_their_own() -> None:
    topic = re.compile(document("flink-cdc", examples.FLINK_CDC)["routes"][-1]["topics"][1:-1])
    names = ("db1.app_db.users", "db1.app_db.orders", "db1.app_db.shipment_1", "db1.other.users")
    assert [name for name in names if topic.search(name)] == ["db1.app_db.users"]


def test_flink_sql_inserts_by_place() -> None:
    script = """
        CREATE TABLE t (a INT, b AS a + 1, c STRING) WITH ('connector'='kafka', 'topic'='t', 'format'='json');
        CREATE TABLE lake.s.t (x INT, `c` STRING, y INT);
        INSERT INTO lake.s.t SELECT a, c, CAST(a AS INT) AS z FROM t;
        INSERT INTO lake.s.u (`on`, v, w) SELECT a, a - INTERVAL '1' DAY, UPPER(c) d FROM t;
        INSERT INTO lake.s.v (`e f`, `g``h`) SELECT a, c FROM t;
    """
    tables = document("flink-sql", script)["tables"]
    assert tables["lake.s.t"]["select"] == "select a as x, c, CAST(a AS INT) as y from records"
    assert tables["lake.s.u"]["select"] == "select a as on, a - INTERVAL '1' DAY as v, UPPER(c) as w from records"
    assert tables["lake.s.v"]["select"] == "select a as `e f`, c as `g``h` from records"


def test_a_query_of_flink_sql_keeps_its_signs_and_literals() -> None:
    script = r"""
        CREATE TABLE t (a STRING, b INT) WITH ('connector'='kafka', 'topic'='t', 'format'='json');
        INSERT INTO s.t SELECT REGEXP_EXTRACT(a, '(\d+) ( ;') AS d, /* less */ b < 5 AS few, EXTRACT(DAY FROM c) AS e
        FROM t -- all
        WHERE a <> 'it''s' AND b >= -1;
    """
    assert document("flink-sql", script)["tables"]["s.t"]["select"] == (
        r"select REGEXP_EXTRACT(a, '(\\d+) ( ;') AS d, b < 5 AS few, EXTRACT(DAY FROM c) AS e"
        " from records WHERE a <> 'it''s' AND b >= -1"
    )


def test_inserts_of_one_source_are_alike_and_a_second_into_a_table_is_reported() -> None:
    script = """
        CREATE TABLE t (a INT, b INT METADATA FROM 'leader-epoch') WITH (
          'connector'='kafka', 'topic'='t', 'format'='avro-confluent', 'avro-confluent.url'='http://registry:8081',
          'avro-confluent.ignore-parse-errors'='true', 'scan.startup.mode'='group-offsets'
        );
        INSERT INTO s.one SELECT a, b FROM t WHERE a = 1;
        INSERT INTO s.two SELECT a, b FROM t WHERE a = 2;
        INSERT INTO s.two SELECT a FROM t WHERE a = 3;
    """
    found = imported("flink-sql", script)
    one, two = yaml.safe_load(found.text)["tables"].values()
    assert (one.pop("select"), two.pop("select")) == tuple(f"select a, b from records WHERE a = {n}" for n in (1, 2))
    assert one == two == {"topic": "t", "value": {"format": "avro"}, "on_bad_record": "skip"}
    assert reasons(found).keys() == {"INSERT INTO s.two", "t/b", "t/scan.startup.mode"}


def test_a_statement_that_is_not_read_and_a_join_are_reported() -> None:
    script = (
        examples.FLINK_SQL + "CREATE FUNCTION f AS 'x.Y'; INSERT INTO a.b SELECT * FROM changes JOIN events ON 1 = 1;"
    )
    assert {"CREATE FUNCTION f AS", "INSERT INTO a.b"} <= reasons(imported("flink-sql", script)).keys()


def test_a_file_of_windows_is_read_as_any_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, found = EXAMPLES["kafka-connect"]["connector"], []
    for number, raw in enumerate((text.encode(), b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())):
        file = tmp_path / f"{number}.json"
        file.write_bytes(raw)
        code = main(["import", "kafka-connect", str(file), "--bootstrap", "k:9092"])
        found.append((code, capsys.readouterr().out))
    assert found[0] == found[1]
    assert "tables:" in found[1][1]


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        ("kafka-connect", "[" * 100_000),
        ("kafka-connect", '{"name": "\\ud800", "topics": "a"}'),
        ("flink-cdc", "source: {scan.startup.timestamp: 2026-02-31}"),
        ("flink-cdc", "[" * 5_000),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_reason(tool: str, text: str) -> None:
    with pytest.raises(SpecError, match="the configuration is no"):
        imported(tool, text)


def test_properties_are_read_as_java_reads_them() -> None:
    text = "a = 1\\\r\n   2\nb=c:\\\\\nd=\\ud83d\\ude00\ne=x\u2028y\n! no\nf\\ g: h"
    assert parse_properties(text) == {"a": "12", "b": "c:\\", "d": "\U0001f600", "e": "x\u2028y", "f g": "h"}


@pytest.mark.parametrize(
    ("source", "tables", "topic", "origin"),
    [
        ("mysql", "shop.orders", "db1.shop.orders", "_source_database || '.' || _source_table"),
        ("postgres", "shop.public.orders", "db1.public.orders", "_source_schema || '.' || _source_table"),
        ("sqlserver", "shop.dbo.orders", "db1.shop.dbo.orders", "_source_schema || '.' || _source_table"),
    ],
)
def test_rules_of_flink_cdc_name_schemas_and_topics_as_their_database_does(
    source: str, tables: str, topic: str, origin: str
) -> None:
    rule = {"source-table": tables, "projection": r"\*, __schema_name__ || '.' || __table_name__ AS origin"}
    text = yaml.safe_dump(
        {"source": {"type": source, "tables": tables}, "sink": {"type": "iceberg"}, "transform": [rule]}
    )
    document = yaml.safe_load(flink_cdc.import_pipeline(text, "b:9092").text)
    ((_, table),) = document["tables"].items()
    assert re.search(table["topics"].strip("/"), topic)
    assert f"{origin} as origin" in table["select"].lower()
