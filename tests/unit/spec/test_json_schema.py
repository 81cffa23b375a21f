"""The schema that editors check a pipeline file by takes what Frazil takes, and describes every key."""

from __future__ import annotations

import json

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
from frazil.stages.expect_settings import ExpectationSpec
from frazil.stages.protect_settings import ProtectRule
from tests.fixtures.slices import sliced
from tests.unit.spec.pipeline_file import HEAD, Load
from tests.unit.spec.variations import ENVIRONMENT, EVERY_KEY, VALUES, every_key, misspell, put_into

VALIDATOR = Draft202012Validator(json_schema())


def _problems(document: object) -> list[str]:
    as_json = json.loads(json.dumps(document))
    return sorted(error.json_path for error in VALIDATOR.iter_errors(as_json))


@pytest.mark.parametrize(
    "text",
    [
        f"{HEAD}tables: {{shop.page_views: {{topic: page_views}}}}\n",
        f"{HEAD}namespace: iot\ntopics: [sensors, alarms, /^device-.*/]\n",
        EVERY_KEY,
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


@pytest.mark.parametrize("value", sliced([[], {}, *VALUES.values()], 3), ids=str)
def test_whatever_is_put_anywhere_is_refused_with_its_line_or_is_valid(load: Load, value: object) -> None:
    for _, document in put_into(every_key(), value):
        _check(load, document)


def test_whatever_is_misspelt_is_refused_with_its_line_or_is_valid(load: Load) -> None:
    for _, document in misspell(every_key()):
        _check(load, document)


def _check(load: Load, document: object) -> None:
    refusal: SpecError | None = None
    try:
        load(json.dumps(document), ENVIRONMENT)
    except SpecError as error:
        refusal = error
    if refusal is None:
        assert _problems(document) == [], document
    else:
        assert refusal.message, document
        assert refusal.remedy, document
        assert refusal.where.rpartition(":")[2].isdigit(), document
