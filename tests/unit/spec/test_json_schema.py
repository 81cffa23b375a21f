from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from frazil.errors import SpecError
from frazil.plugins.stages import STAGES
from frazil.spec import json_schema
from frazil.spec.connections import (
    AuthSpec,
    CatalogSpec,
    HaSpec,
    HttpSpec,
    HttpTlsSpec,
    HttpTokensSpec,
    RegistrySpec,
    SparkSpec,
    TelemetrySpec,
    TlsSpec,
)
from frazil.spec.models import OF_ALL_TABLES, OF_ONE_TABLE, PipelineSpec, RouteSpec, TableSpec
from frazil.spec.settings import (
    AtomicSpec,
    ColumnSpec,
    CommitSpec,
    DeadLettersSpec,
    EnvelopeSpec,
    FlattenSpec,
    KeySpec,
    LimitsSpec,
    LookupSpec,
    MaintenanceSpec,
    ValueSpec,
    VerifySpec,
)
from frazil.spec.syntax.keys import keys_of
from frazil.stages.expect.settings import ExpectationSpec
from frazil.stages.protect.settings import ProtectRule
from tests.fixtures.slices import sliced
from tests.unit.spec.pipeline_file import HEAD, Load

PROMISED = """
pipeline: shop
kafka:
  bootstrap.servers: broker-1:9092,broker-2:9092
  security.protocol: SASL_SSL
  sasl.password: ${env:KAFKA_PASSWORD}
registry: {url: "https://registry:8081", auth: {username: u, password: "${file:/run/secrets/registry}"}}
catalog:
  type: rest
  uri: https://catalog/api
  warehouse: s3://lake/
  properties: {s3.endpoint: "https://store", s3.path-style-access: "true"}
spark: {master: "local[*]", conf: {spark.driver.memory: 4g}}
commit: {interval: 1s, target_file_size: 128MiB}
tables:
  shop.page_views:
    topic: page_views
    start: earliest
    value: {format: avro, schema: registry}
    key: {format: text}
    partition_by: ["bucket(page_url, 5)", "hour(timestamp)"]
    schema_evolution: evolve
    on_bad_record: dead_letter
    columns: {id: long, ts: timestamptz, tags: list<string>}
    unknown_fields: add
    rescue: false
    metadata: [offset, partition, timestamp]
    commit: {interval: 2s}
  shop.orders:
    topic: shop.public.orders
    envelope: debezium
    mode: upsert
    key_columns: [order_id]
    order_by: updated_at
    format_version: 3
  shop.operations: {topic: o, envelope: {operation: ops, insert: [I, c], update: [U, u], delete: [D, d]}}
  shop.orders_history: {topic: shop.public.orders, envelope: debezium, mode: append, changelog: true}
"""

BUILT = """
pipeline: shop
kafka: {bootstrap.servers: "b:1", isolation.level: read_committed, acks: 1}
registry:
  url: ["https://a", "https://b:8081/api"]
  auth: {username: u, password: p}
  tls: {ca: ca.pem, certificate: c.pem, key: k.pem, key_password: secret}
  context: ctx
  naming: record
  properties: {proxy: "http://proxy", bearer.auth.logical.cluster: lsrc-1}
catalog: {type: jdbc, uri: "jdbc:sqlite:c.db", warehouse: w, properties: {a: true}}
spark: {master: local, conf: {spark.a: 1}}
commit: {interval: 1s, target_file_size: 128MiB}
namespace: n
topics: [a, /b/]
tables:
  shop.x:
    topic: a
    start: {0: 3}
    value: {format: json}
    schema_evolution: evolve
    on_bad_record: stop
    on_data_loss: skip
    columns: {id: long, ts: {type: timestamptz}}
    unknown_fields: add
    rescue: false
    metadata: [offset]
    commit: {interval: 2s, target_file_size: 1GiB, min_file_size: 32MiB}
    envelope: none
    mode: append
    changelog: false
    format_version: 2
    properties: {a: b}
  shop.y: {topics: [a, c], start: {a: {0: 3}}}
  shop.z: {topics: /d/, start: 1769817600000}
"""

SHAPED = """
pipeline: shop
kafka: {bootstrap.servers: "b:1"}
maintenance:
  cores: 2
  window: "22:00-06:00"
  target_file_size: 1GiB
  small_file_share: 5%
  snapshots: {age: 1h, count: 5}
  orphans: {age: 48h}
  manifests: false
defaults: {column_case: snake, include: [id, at], exclude: [a.b], flatten: {separator: _, depth: 2}}
tables:
  shop.x:
    topic: a
    key: {format: text}
    columns:
      id: {type: long, field: a.id}
      at: {type: timestamptz, header: h, value: {format: json}}
      seen: timestamptz(ms)
      k: {type: int, constant: 1}
    partition_by: [id, day(at)]
    sort_by: at desc
    dead_letters: {topic: bad, table: shop.bad, stop_above: 5%}
    limits: {columns: 5, partitions: 6, record_size: 1MiB}
    maintenance: {zorder: [id], statistics: true}
    mode: upsert
    key_columns: [id]
    order_by: at
    deletes: soft
    envelope: {operation: op, insert: [I, 1], update: U, delete: 3}
    metadata: {op: o, timestamp: t}
  shop.y:
    topic: b
    envelope: {type: debezium, unavailable_value: gone}
    changelog: true
    atomic: {transaction_topic: t}
    metadata: [position]
"""

VALIDATOR = Draft202012Validator(json_schema())


def _problems(document: object) -> list[str]:
    as_json = json.loads(json.dumps(document))
    return sorted(error.json_path for error in VALIDATOR.iter_errors(as_json))


@pytest.mark.parametrize(
    "text",
    [
        f"{HEAD}tables: {{shop.page_views: {{topic: page_views}}}}\n",
        f"{HEAD}namespace: iot\ntopics: [sensors, alarms, /^device-.*/]\n",
        PROMISED,
        BUILT,
        SHAPED,
    ],
)
def test_what_the_file_promises_is_valid(text: str) -> None:
    assert _problems(yaml.safe_load(text)) == []


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("tabels: {a.b: {topic: c}}", ["$", "$"]),
        ("tables: {a.b: {topc: c}}", ["$.tables['a.b']", "$.tables['a.b']"]),
        ("tables: {a.b: {topic: c, topics: [d]}}", ["$.tables['a.b']"]),
        ("tables: {a.b: {topic: c, mode: apend}}", ["$.tables['a.b'].mode"]),
        ("tables: {a.b: {topic: c, commit: {interval: 2}}}", ["$.tables['a.b'].commit.interval"]),
        ("tables: {a.b: {topic: c, commit: {interval: 2 sec}}}", ["$.tables['a.b'].commit.interval"]),
        ("tables: {a.b: {topic: c, commit: {target_file_size: 2mb}}}", ["$.tables['a.b'].commit.target_file_size"]),
        ("tables: {a.b: {topic: c, commit: {min_file_size: 2}}}", ["$.tables['a.b'].commit.min_file_size"]),
        ("tables: {a.b: {topic: c, metadata: [ofset]}}", ["$.tables['a.b'].metadata"]),
        ("tables: {a.b: {topic: c, metadata: {ofset: at}}}", ["$.tables['a.b'].metadata"]),
        ("tables: {a.b: {topic: c}}\nregistry: {auth: {token: t}}", ["$.registry"]),
        ("tables: {a.b: {topic: c}}\nregistry: {url: registry}", ["$.registry.url"]),
        ("tables: {a.b: {topic: c}}\nregistry: {url: 'https://a', auth: {username: u}}", ["$.registry.auth"]),
        ("tables: {a.b: {topic: c}}\nregistry: {url: 'https://a', tls: {key: k}}", ["$.registry.tls"]),
        ("tables: {a.b: {topic: c}}\nregistry: {url: 'https://a', context: ':.c:'}", ["$.registry.context"]),
        (
            "tables: {a.b: {topic: c}}\nregistry: {url: 'https://a', properties: {timeout: 1}}",
            ["$.registry.properties"],
        ),
        ("topics: [a]", ["$"]),
        ("tables: {a.b: {topic: c}}\nspark: {conf: {driver.memory: 4g}}", ["$.spark.conf"]),
    ],
)
def test_what_the_file_must_not_say_is_invalid(text: str, where: list[str]) -> None:
    assert _problems(yaml.safe_load(HEAD + text)) == where


def test_every_known_key_is_in_the_schema_with_a_description() -> None:
    schema = json_schema()
    sections = {name: part["properties"] for name, part in schema["$defs"].items() if name != "kafka"}
    known = {
        "registry": set(keys_of(RegistrySpec)),
        "auth": set(keys_of(AuthSpec)),
        "tls": set(keys_of(TlsSpec)),
        "catalog": set(keys_of(CatalogSpec)),
        "spark": set(keys_of(SparkSpec)),
        "http": set(keys_of(HttpSpec)),
        "http_tokens": set(keys_of(HttpTokensSpec)),
        "http_tls": set(keys_of(HttpTlsSpec)),
        "telemetry": set(keys_of(TelemetrySpec)),
        "ha": set(keys_of(HaSpec)),
        "verify": set(keys_of(VerifySpec)),
        "commit": set(keys_of(CommitSpec)),
        "maintenance": set(keys_of(MaintenanceSpec)),
        "table_maintenance": set(keys_of(MaintenanceSpec)) - {*OF_ALL_TABLES},
        "snapshots": {"age", "count"},
        "orphans": {"age"},
        "dead_letters": set(keys_of(DeadLettersSpec)),
        "limits": set(keys_of(LimitsSpec)),
        "flatten": set(keys_of(FlattenSpec)),
        "dedupe": {"by", "within"},
        "late": {"after", "else"},
        "value": set(keys_of(ValueSpec)),
        "key": set(keys_of(KeySpec)),
        "column": set(keys_of(ColumnSpec)),
        "envelope": set(keys_of(EnvelopeSpec)),
        "protect_rule": set(keys_of(ProtectRule)),
        "expectation": set(keys_of(ExpectationSpec)),
        "lookup": set(keys_of(LookupSpec)),
        "atomic": set(keys_of(AtomicSpec)),
        "publish": {"every", "audits", "group", "transaction_topic"},
        "tag": {"at", "keep"},
        "infer": {"timestamps"},
        "table": set(keys_of(TableSpec)),
        "route": set(keys_of(RouteSpec)) - {"location"},
        "defaults": set(keys_of(TableSpec)) - {*OF_ONE_TABLE},
    }
    for name in ("table", "route", "defaults"):
        known[name] |= {*STAGES.added()}
    assert set(schema["properties"]) == set(keys_of(PipelineSpec))
    assert {name: set(part) for name, part in sections.items()} == known
    parts = [schema["properties"], schema["$defs"]["kafka"]["properties"], *sections.values()]
    assert [key for part in parts for key, value in part.items() if not value.get("description")] == []


def _replaced(node: Any, value: object) -> Iterator[Any]:
    """Every document that is `node` with one of its parts replaced by `value`."""
    yield value
    yield from _inside(node, lambda part: _replaced(part, value))


def _misspelt(node: Any) -> Iterator[Any]:
    """Every document that is `node` with one of its keys misspelt."""
    if isinstance(node, dict):
        for key, part in node.items():
            yield {**{other: node[other] for other in node if other != key}, f"{key}x": part}
    yield from _inside(node, _misspelt)


def _inside(node: Any, change: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
    """Every document that is `node` with one of its parts changed."""
    if isinstance(node, dict):
        for key, part in node.items():
            yield from ({**node, key: other} for other in change(part))
    if isinstance(node, list):
        for index, part in enumerate(node):
            yield from ([*node[:index], other, *node[index + 1 :]] for other in change(part))


def _refusal(load: Load, document: object) -> SpecError | None:
    try:
        load(json.dumps(document), {"A": "secret"})
    except SpecError as error:
        return error
    return None


_PUT: list[tuple[str, object]] = [
    (BUILT, None), (BUILT, 17), (BUILT, ["x"]), (BUILT, {"x": 1}), (SHAPED, "x"),
    (BUILT, True), (BUILT, "x"), (BUILT, {}), (SHAPED, 17),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), sliced(_PUT, 5))
def test_whatever_is_put_anywhere_is_refused_with_its_line_or_is_valid(load: Load, text: str, value: object) -> None:
    for document in _replaced(yaml.safe_load(text), value):
        _check(load, document)


@pytest.mark.parametrize("text", [BUILT, SHAPED])
def test_whatever_is_misspelt_is_refused_with_its_line_or_is_valid(load: Load, text: str) -> None:
    for document in _misspelt(yaml.safe_load(text)):
        _check(load, document)


def _check(load: Load, document: object) -> None:
    refusal = _refusal(load, document)
    if refusal is None:
        assert _problems(document) == [], document
    else:
        assert refusal.message, document
        assert refusal.remedy, document
        assert refusal.where.rpartition(":")[2].isdigit(), document


@pytest.mark.parametrize("text", [BUILT, SHAPED])
def test_the_files_that_are_varied_are_right(load: Load, text: str) -> None:
    assert _refusal(load, yaml.safe_load(text)) is None
