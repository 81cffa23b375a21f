"""One file for several environments: overlays, values of the command line, variables; and where each value comes from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from frazil.errors import SpecError
from frazil.spec import PipelineSpec, load_spec
from frazil.spec.load import read_settings
from frazil.spec.models import PipelineSpec as Model
from frazil.spec.models import ProcessSpec
from frazil.spec.syntax.environments import SECRET_SECTIONS, Overrides
from frazil.spec.syntax.keys import Declared
from frazil.spec.syntax.shown import shown
from tests.unit.spec.pipeline_file import Load, Refuse, with_section, with_table

FILE = """\
pipeline: shop
kafka: {bootstrap.servers: "localhost:9092", client.id: dev}
commit: {interval: 1s, target_file_size: 64MiB}
tables:
  shop.orders: {topic: orders, limits: {columns: 10}, partition_by: [a, b]}
environments:
  prod:
    kafka: {bootstrap.servers: "broker-1:9093"}
    commit: {interval: 10s}
    tables:
      shop.orders: {partition_by: [c], limits: null}
      shop.more: {topic: more}
"""
_OF_TOPICS = 'pipeline: shop\nkafka: {bootstrap.servers: "localhost:9092"}\nnamespace: plain\ntopics: [orders]\n'


def load_as(environment: str = "", *values: str, text: str = FILE, variables: Mapping[str, str] = {}) -> PipelineSpec:
    Path("p.yaml").write_text(text)
    return load_spec(Path("p.yaml"), variables, Overrides(environment, values))


def refusal(environment: str = "", *values: str, text: str = FILE) -> tuple[str, str, str]:
    with pytest.raises(SpecError) as caught:
        load_as(environment, *values, text=text)
    return caught.value.message, caught.value.where, caught.value.remedy


def test_an_environment_is_laid_over_the_file_key_by_key() -> None:
    plain, prod = load_as(), load_as("prod")
    assert (plain.kafka["bootstrap.servers"], prod.kafka["bootstrap.servers"]) == ("localhost:9092", "broker-1:9093")
    assert prod.kafka["client.id"] == "dev"
    assert (prod.commit.interval_s, prod.commit.target_file_size_bytes) == (10.0, 64 * 2**20)
    assert [table.name for table in plain.tables] == ["shop.orders"]
    orders, more = prod.tables
    assert (more.name, more.commit.interval_s) == ("shop.more", 10.0)
    assert [term.text for term in orders.layout.partition_by or ()] == ["c"]  # A list is replaced.
    default = load_as(text=FILE.replace("limits: {columns: 10}, ", "")).tables[0].bad_records.limits
    assert (orders.bad_records.limits, plain.tables[0].bad_records.limits == default) == (default, False)
    assert plain.environments == ("prod",)


def test_the_variable_chooses_and_a_file_without_environments_ignores_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_ENV", "prod")
    Path("p.yaml").write_text(FILE)
    assert load_spec(Path("p.yaml")).commit.interval_s == 10.0
    Path("p.yaml").write_text(with_section(""))
    assert load_spec(Path("p.yaml")).commit.interval_s == 1.0
    Path("p.yaml").write_text(FILE.replace("prod:", "live:"))
    with pytest.raises(SpecError, match="no environment `prod`, which FRAZIL_ENV=prod chooses"):
        load_spec(Path("p.yaml"))


@pytest.mark.parametrize(
    ("value", "read", "expected"),
    [
        ("commit.interval=5s", lambda spec: spec.commit.interval_s, 5.0),
        ("kafka.client.id=x", lambda spec: spec.kafka["client.id"], "x"),
        ("kafka.ssl.ca.location=/ca", lambda spec: spec.kafka["ssl.ca.location"], "/ca"),
        ("tables.shop.orders.limits.columns=7", lambda spec: spec.tables[0].bad_records.limits.columns, 7),
        ('tables."shop.orders".mode=append', lambda spec: spec.tables[0].changes.mode, "append"),
        ("tables.shop.orders.partition_by.0=z", lambda spec: spec.tables[0].layout.partition_by[0].text, "z"),
        ("tables.shop.orders.partition_by=[]", lambda spec: spec.tables[0].layout.partition_by, ()),
        ("tables.shop.orders.properties.a.b=c", lambda spec: spec.tables[0].layout.properties, {"a.b": "c"}),
        ("publish_offsets=false", lambda spec: spec.process.publish_offsets, False),
        ("commit.interval=null", lambda spec: spec.commit.interval_s, 1.0),
        ('pipeline="7"', lambda spec: spec.pipeline, "7"),
    ],
)
def test_a_value_of_the_command_line_has_the_last_word(value: str, read: Any, expected: object) -> None:
    assert read(load_as("prod" if "null" not in value else "", value)) == expected


TYPED = """\
pipeline: ${env:NAME}
kafka: {bootstrap.servers: "localhost:9092"}
commit: {interval: "${env:INTERVAL}", target_file_size: "${env:SIZE}"}
publish_offsets: ${env:PUBLISH}
http: ${env:HTTP}
registry: {url: "http://a", naming: "${env:NAMING}"}
tables:
  shop.orders:
    topic: "${env:TOPIC}"
    format_version: ${env:VERSION}
    limits: {columns: "${env:COLUMNS}"}
    location: s3://${env:BUCKET}/orders
    where: "region = '${env:REGION}'"
    partition_by: ["bucket(id, ${env:BUCKETS})"]
"""
VARIABLES = {
    "NAME": "123", "INTERVAL": "7s", "SIZE": "1GiB", "PUBLISH": "false", "HTTP": "false", "NAMING": "record",
    "TOPIC": "true", "VERSION": "3", "COLUMNS": "12", "BUCKET": "lake", "REGION": "eu", "BUCKETS": "4",
}  # fmt: skip


def test_a_variable_is_read_anywhere_as_the_type_of_its_setting() -> None:
    spec = load_as(text=TYPED, variables=VARIABLES)
    (table,) = spec.tables
    assert (spec.pipeline, spec.commit.interval_s, spec.commit.target_file_size_bytes) == ("123", 7.0, 2**30)
    assert (spec.process.publish_offsets, spec.process.http) == (False, None)
    assert spec.registry is not None
    assert (spec.registry.naming, table.source.topics[0].literal) == ("record", "true")
    assert (table.layout.format_version, table.bad_records.limits.columns) == (3, 12)
    assert (table.layout.location, table.query.where) == ("s3://lake/orders", "region = 'eu'")
    assert [term.text for term in table.layout.partition_by or ()] == ["bucket(id, 4)"]
    assert spec.file.secrets == frozenset()


@pytest.mark.parametrize(
    ("variable", "value", "message", "line"),
    [
        ("COLUMNS", "ten", "`limits.columns` is not a count (the value of the variable COLUMNS)", 11),
        ("INTERVAL", "7", "the duration `7` has no unit (the value of the variable INTERVAL)", 3),
        ("PUBLISH", "perhaps", "`publish_offsets` cannot be `perhaps` (the value of the variable PUBLISH)", 4),
        ("VERSION", "4", "`format_version` cannot be `4` (the value of the variable VERSION)", 10),
        ("NAME", "a b", "`a b` is not a name for a pipeline (the value of the variable NAME)", 1),
        ("BUCKET", "", "the environment variable `BUCKET` is empty", 12),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_variable(
    refuse: Refuse, variable: str, value: str, message: str, line: int
) -> None:
    error = refuse(TYPED, VARIABLES | {variable: value})
    assert (error.message, error.where) == (message, f"pipeline.yaml:{line}")


def test_a_variable_with_the_name_of_a_secret_is_in_no_setting_that_is_shown(refuse: Refuse, load: Load) -> None:
    error = refuse(with_table("location: 's3://b/${env:DB_PASSWORD}'"), {"DB_PASSWORD": "hunter2"})
    assert error.message == (
        "the variable `DB_PASSWORD` holds a secret, as its name shows, and `tables.shop.x.location` is shown to everyone"
    )
    assert error.remedy == "write the value itself, or give the variable another name"
    location = load(with_table("location: 's3://b/${env:FOLDER}'"), {"FOLDER": "hunter2"}).tables[0].layout.location
    assert location == "s3://b/hunter2"


def test_variables_are_filled_in_every_section_but_those_with_secrets() -> None:
    """There, the models read them, and what they read is masked."""
    fields = {**Model.model_fields, **ProcessSpec.model_fields}
    models = {name: field.annotation for name, field in fields.items()}
    with_secrets = {
        name for name, kind in models.items() for part in (kind, *getattr(kind, "__args__", ()))
        if isinstance(part, type) and issubclass(part, Declared) and part.reads_secrets
    }  # fmt: skip
    assert with_secrets | {"kafka"} == SECRET_SECTIONS


@pytest.mark.parametrize(
    ("environment", "values", "text", "refused", "fixed"),
    [
        ("prd", (), FILE, ("the file has no environment `prd`, which --env prd chooses", "6", "did you mean `prod`?"),
         ("prod", (), FILE)),
        ("prod", (), with_section(""),
         ("the file has no environment `prod`, which --env prod chooses", "1",
          "write it under `environments`, such as `prod: {…}`, or choose none"),
         ("prod", (), with_section("environments: {prod: {}}"))),
        ("", (), FILE.replace("commit: {interval: 10s}", "comit: {interval: 10s}"),
         ("unknown key `comit` in the environment `prod`", "9", "did you mean `commit`?"), ("prod", (), FILE)),
        ("prod", (), FILE.replace("interval: 10s", "intervall: 10s"),
         ("unknown key `intervall` in `commit`", "9", "did you mean `interval`?"), ("prod", (), FILE)),
        ("", (), with_section("environments: {prod: 7}"),
         ("the environment `prod` is a number where a mapping is expected", "4", "write the settings that differ in it"),
         ("prod", (), with_section("environments: {prod: {commit: {interval: 2s}}}"))),
        ("", (), with_section("environments: [prod]"),
         ("`environments` is a list where a mapping is expected", "4",
          "write `prod: {kafka: {…}}`, each environment with the settings that differ"),
         ("prod", (), with_section("environments: {prod: {kafka: {client.id: a}}}"))),
        ("prod", (), with_section("environments: {prod: {environments: {}}}"),
         ("an environment has no `environments` of its own", "4", "remove them"),
         ("prod", (), with_section("environments: {prod: {}}"))),
        ("prod", (), FILE.replace("limits: null", "limit: null"),
         ("there is no `tables.shop.orders.limit` that `null` could remove", "11", "did you mean `limits`?"),
         ("prod", (), FILE)),
        ("prod", (), FILE.replace("limits: null", "zzz: null"),
         ("there is no `tables.shop.orders.zzz` that `null` could remove", "11", "take it out: `null` removes a key"),
         ("prod", (), FILE.replace("limits: null", "sort_by: [a]"))),
        ("", ("commit.intervall=2s",), FILE,
         ("unknown key `intervall` in `commit`", "--set commit.intervall", "did you mean `interval`?"),
         ("", ("commit.interval=2s",), FILE)),
        ("", ("comit.interval=2s",), FILE,
         ("unknown key `comit` in the pipeline file", "--set comit.interval", "did you mean `commit`?"),
         ("", ("commit.interval=2s",), FILE)),
        ("", ("commit.interval=2",), FILE,
         ("the duration `2` has no unit", "--set commit.interval", "write a unit: one of ms, s, m, h, for example `2s`"),
         ("", ("commit.interval=2s",), FILE)),
        ("", ("tables.shop.oders.mode=append",), FILE,
         ("the file has no table `shop.oders`", "--set tables.shop.oders.mode", "did you mean `shop.orders`?"),
         ("", ("tables.shop.orders.mode=append",), FILE)),
        ("", ("tables.plain.orders.mode=append",), _OF_TOPICS,
         ("the file has no table `plain.orders`", "--set tables.plain.orders.mode",
          "write the table under `tables` in the file: those of `topics` have the settings of `defaults`"),
         ("", ("tables.shop.orders.mode=append",), FILE)),
        ("", ("tables.shop.orders.partition_by.5=z",), FILE,
         ("`tables.shop.orders.partition_by` is a list of 2, and `5` is not the place of an item in it",
          "--set tables.shop.orders.partition_by.5", "write a number from 0 to 1, or set the whole list"),
         ("", ("tables.shop.orders.partition_by.1=z",), FILE)),
        ("", ("tables.shop.orders.partition_by.0.a=z",), FILE,
         ("`tables.shop.orders.partition_by.0` is not a mapping", "--set tables.shop.orders.partition_by.0.a",
          "set the whole item"), ("", ("tables.shop.orders.partition_by.0=z",), FILE)),
        ("", ("commit.interval",), FILE,
         ("`--set` is without a key and a value", "--set commit.interval",
          'write --set KEY=VALUE, such as --set commit.interval=5s; quote a name with dots: tables."shop.a".mode'),
         ("", ("commit.interval=5s",), FILE)),
        ("", ("kafka.client.id={a",), FILE,
         ("the value is not YAML", "--set kafka.client.id",
          "put the value in quotes, such as --set 'KEY=\"VALUE\"'"), ("", ('kafka.client.id="{a"',), FILE)),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place_until_the_remedy_is_done(
    environment: str,
    values: tuple[str, ...],
    text: str,
    refused: tuple[str, str, str],
    fixed: tuple[str, tuple[str, ...], str],
) -> None:
    message, where, remedy = refused
    place = where if where.startswith("--") else f"p.yaml:{where}"
    assert refusal(environment, *values, text=text) == (message, place, remedy)
    assert load_as(fixed[0], *fixed[1], text=fixed[2]).tables


def test_the_file_is_shown_as_it_is_read_with_the_place_of_each_value() -> None:
    text = FILE.replace("client.id: dev", 'client.id: "${env:TEAM}", sasl.password: abc').replace(
        "1s", '"${env:EVERY}"'
    )
    Path("p.yaml").write_text(text)
    overrides = Overrides("prod", ("tables.shop.more.mode=append",))
    settings = read_settings(Path("p.yaml"), {"EVERY": "3s", "TEAM": "secret-team"}, overrides)
    assert [tuple(part.rstrip() for part in line.split("# ")) for line in shown(settings)] == [
        ("pipeline: shop", "p.yaml:1"),
        ("kafka:", "p.yaml:2"),
        ("  bootstrap.servers: broker-1:9093", "p.yaml:8, environment prod"),
        ("  client.id: ${env:TEAM}", "p.yaml:2"),
        ("  sasl.password: ***", "p.yaml:2"),
        ("commit:", "p.yaml:3"),
        ("  interval: 10s", "p.yaml:9, environment prod"),
        ("  target_file_size: 64MiB", "p.yaml:3"),
        ("tables:", "p.yaml:4"),
        ("  shop.orders:", "p.yaml:5"),
        ("    topic: orders", "p.yaml:5"),
        ("    partition_by: [c]", "p.yaml:11, environment prod"),
        ("  shop.more:", "p.yaml:12, environment prod"),
        ("    topic: more", "p.yaml:12, environment prod"),
        ("    mode: append", "--set tables.shop.more.mode"),
    ]
    settings = read_settings(Path("p.yaml"), {"EVERY": "3s"}, Overrides())
    assert ("commit.interval", "3s", "p.yaml:3", "EVERY") in [
        (setting.key, setting.value, setting.where, setting.variable) for setting in settings
    ]
