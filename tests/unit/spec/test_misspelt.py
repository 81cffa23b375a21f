"""A word that is misspelt is one problem: what would not be wrong without it is not reported beside it."""

from __future__ import annotations

import re

import pytest

from tests.unit.spec.pipeline_file import Load, Refuse

BROKER = 'kafka: {bootstrap.servers: "b:1"}\n'
WHOLE = """\
pipeline: shop
namespace: iot
topics: [sensors]
kafka:
  bootstrap.servers: b:1
registry:
  url: "https://registry:8081"
  auth:
    username: u
    password: long-enough
  tls:
    certificate: c
    key: k
catalog:
  type: rest
  uri: https://catalog
  warehouse: s3://lake
http:
  listen: "0.0.0.0:8787"
  tokens:
    operate: 0123456789012345678901234567890123456789
  tls:
    certificate: c
    key: k
ha:
  elect: postgres
  uri: postgresql://db:5432/frazil
tables:
  shop.orders:
    topic: orders
    value:
      format: avro
    mode: upsert
    key_columns: [id]
    order_by: updated_at
    envelope:
      operation: op
      insert: [I]
  shop.views:
    topic: views
    lookup: {shops: {table: ref.shops, on: "shop = id", take: [name]}}
    expect: {positive: {that: "id > 0", else: drop}}
routes:
  - topic: events
    by: type
    to: "events.${type}"
    rest: events.others
"""


def misspelt() -> list[str]:
    """The file with one key after the other whose last characters have changed places."""
    keys = re.finditer(r"(?<![.\w])[a-z_]{3,}(?=:[ \n])", WHOLE)
    return [
        WHOLE[: key.start()] + key[0][:-2] + key[0][-1] + key[0][-2] + WHOLE[key.end() :]
        for key in keys
        if key[0] not in ("shops", "positive")  # Names of one's own.
    ]


def test_each_key_that_is_misspelt_is_one_problem(load: Load, refuse: Refuse) -> None:
    load(WHOLE)
    texts = misspelt()
    assert len(texts) == 45
    for text in texts:
        error = refuse(text)
        assert (error.message.startswith("unknown key"), list(error.others)) == (True, []), text


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        (
            "tables: {a.b: {topic: t, mode: upsrt, key_columns: [a], order_by: x}}",
            "`mode` cannot be `upsrt`",
            "did you mean `upsert`?",
        ),
        (
            "tables: {a.b: {topic: t, envelope: debezum, metadata: [op]}}",
            "`envelope` cannot be `debezum`",
            "did you mean `debezium`?",
        ),
        (
            "ha: {elect: postgers, uri: 'postgresql://x/y'}\ntables: {a.b: {topic: t}}",
            "`ha.elect` cannot be `postgers`",
            "did you mean `postgres`?",
        ),
        ("tables:\na.b: {topic: t}", "`a.b` does not belong here", "indent it, so that it is under `tables`"),
        ("a.b: {topic: t}", "`a.b` does not belong here", "indent it, so that it is under `tables`"),
        (
            "mode: upsert\ntables: {a.b: {topic: t, key_columns: [a]}}",
            "`mode` does not belong here",
            "write it in a table, or under `defaults`",
        ),
    ],
)
def test_a_word_or_a_place_that_is_wrong_is_one_problem(text: str, message: str, remedy: str, refuse: Refuse) -> None:
    error = refuse(f"pipeline: p\n{BROKER}{text}")
    assert (error.message, list(error.others)) == (message, [])
    assert error.remedy == remedy


def test_what_a_misspelt_word_does_not_explain_is_reported_beside_it(refuse: Refuse) -> None:
    error = refuse(f"{BROKER}tabels: {{a.b: {{topic: t}}}}\ncommit: {{interval: 5 parsecs}}")
    assert error.message == "unknown key `tabels` in the pipeline file (and 2 more problems in this file)"
    assert error.others[0].message == "`pipeline` is missing"
    # Where both are there, the misspelt one is no second name of the right one.
    error = refuse(f"pipeline: p\n{BROKER}tabels: {{a.b: {{topic: t}}}}\ntables: {{}}")
    assert [error.message, *(other.message for other in error.others)] == [
        "unknown key `tabels` in the pipeline file (and 1 more problem in this file)",
        "`tables` has no tables",
    ]


def test_kafkas_properties_at_the_top_of_the_file_are_one_problem(refuse: Refuse) -> None:
    error = refuse("pipeline: p\nbootstrap.servers: b:1\ntables: {a.b: {topic: t}}")
    assert (error.message, error.remedy) == ("`bootstrap.servers` does not belong here", "write it under `kafka`")
    assert list(error.others) == []


@pytest.mark.parametrize(
    ("table", "remedy"),
    [
        ("formt: avro", "did you mean `value: {format: …}` or `key: {format: …}`?"),
        ("value_subject: s", "did you mean `value: {subject: …}`?"),
        ("commit_interval: 1s", "did you mean `commit: {interval: …}`?"),
        ("stop_above: 5%", "did you mean `dead_letters: {stop_above: …}`?"),
    ],
)
def test_a_key_that_belongs_into_a_section_names_the_section(table: str, remedy: str, refuse: Refuse) -> None:
    error = refuse(f"pipeline: p\n{BROKER}tables: {{a.b: {{topic: t, {table}}}}}")
    assert (error.message, error.remedy) == (f"unknown key `{table.partition(':')[0]}` in table `a.b`", remedy)


def test_a_key_that_is_like_no_other_is_reported_with_the_keys_of_its_own_section(refuse: Refuse) -> None:
    error = refuse(f"pipeline: p\n{BROKER}tables: {{a.b: {{topic: t, compression: zstd}}}}")
    assert error.remedy.startswith("write one of: topic, topics, ")
