"""The rules of `protect` and its key, as a pipeline file has them."""

from __future__ import annotations

import pytest

from frazil.spec.schema_json import json_schema
from frazil.stages.protect_settings import rule_of
from tests.unit.spec.pipeline_file import Load, Refuse, with_section, with_table

KEY = "0123456789abcdef0123456789abcdef"
ENVIRONMENT = {"KEY": KEY, "SHORT": "0123456789"}
WITH_KEY = "protect_key: '${env:KEY}'"


def test_rules_keep_the_order_of_the_file(load: Load) -> None:
    text = f"protect: {{email: hash, /_phone$/: {{action: mask, keep: 2}}, ssn: drop}}, {WITH_KEY}"
    (spec,) = load(with_table(text), ENVIRONMENT).tables
    assert [(rule.selector, rule.action, rule.keep) for rule in spec.protection.protect] == [
        ("email", "hash", 4),
        ("/_phone$/", "mask", 2),
        ("ssn", "drop", 4),
    ]


def test_a_name_with_a_dot_is_written_as_in_every_path(load: Load, refuse: Refuse) -> None:
    (spec,) = load(with_table(f"protect: {{'[\"a.b\"]': hash}}, {WITH_KEY}"), ENVIRONMENT).tables
    assert [(rule.selector, rule.names) for rule in spec.protection.protect] == [("a.b", ("a.b",))]
    error = refuse(with_table(f"protect: {{'[a.b]': hash}}, {WITH_KEY}"), ENVIRONMENT)
    assert error.message == "`[a.b]` is not the path of a field"


def test_a_name_that_begins_with_a_slash_is_written_as_a_regular_expression(load: Load, refuse: Refuse) -> None:
    error = refuse(with_table(f"protect: {{'[\"/a(\"]': hash}}, {WITH_KEY}"), ENVIRONMENT)
    assert error.remedy == "write a regular expression for the name, between slashes"
    (spec,) = load(with_table(f"protect: {{'/^[/]a[(]$/': hash}}, {WITH_KEY}"), ENVIRONMENT).tables
    assert rule_of(spec.protection.protect, "/a(") is not None


def test_the_key_is_a_secret_of_the_file_and_is_not_shown(load: Load) -> None:
    spec = load(with_table(f"protect: {{a: hash}}, {WITH_KEY}"), ENVIRONMENT)
    assert spec.tables[0].protection.protect_key == KEY
    assert spec.redact(f"the key {KEY}") == "the key ***"
    assert KEY not in repr(spec)
    assert KEY not in spec.model_dump_json()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("protect: {a: hash}", "has `protect` and no `protect_key`"),
        (f"protect: {{a: hsah}}, {WITH_KEY}", "`protect.a` cannot be `hsah`"),
        (f"protect: {{u.a: mask, U.A: drop}}, {WITH_KEY}", "`protect` has `u.a` and `U.A`, which are one field"),
        (f"protect: [a], {WITH_KEY}", "`protect` is a list where a mapping is expected"),
        (f"protect: {{'/(/': hash}}, {WITH_KEY}", "the regular expression `/(/` is wrong"),
        (f"protect: {{a: {{keep: 2}}}}, {WITH_KEY}", "`protect.a` has no action"),
        (f"protect: {{a: {{action: hash, keep: 2}}}}, {WITH_KEY}", "`protect.a.keep` is for mask"),
        ("protect: {a: hash}, protect_key: '${env:SHORT}'", "`protect_key` is shorter than 32 bytes"),
        (f"protect: {{a: hash}}, protect_key: {KEY}", "`protect_key` is written into the file"),
        (f"protect: {{/a/: mask}}, {WITH_KEY}, mode: upsert, key_columns: [a]", "`protect` has `mask` for `a`, which"),
        (f"protect: {{b: hash}}, {WITH_KEY}, mode: upsert, key_columns: [a], order_by: b", "a rule for `b`, which orders"),
        (f"protect: {{A: mask}}, {WITH_KEY}, mode: upsert, key_columns: [a]", "`protect` has `mask` for `a`, which"),
        (f"protect: {{/A/: hash}}, {WITH_KEY}, mode: upsert, key_columns: [k], order_by: a", "a rule for `a`, which"),
        (f"protect: {{a: mask}}, {WITH_KEY}, mode: upsert, key_columns: [a.id]", "`protect` has `mask` for `a.id`, which"),
        (f"protect: {{k: mask}}, {WITH_KEY}, metadata: {{key: k}}", "`k` for `k`, the column of the records' `key`"),
        (f"protect: {{H.ip: mask}}, {WITH_KEY}, metadata: {{headers: h}}", "`H.ip` for `h`, the column of the records'"),
        (f"protect: {{a: drop}}, {WITH_KEY}, partition_by: [a]", "`protect` drops `a`, which the layout needs"),
    ],
)  # fmt: skip
def test_rules_that_cannot_be_are_refused_without_the_key(refuse: Refuse, settings: str, message: str) -> None:
    error = str(refuse(with_table(settings), ENVIRONMENT))
    assert message in error
    assert KEY not in error


@pytest.mark.parametrize("rules", ["_key: mask", "/k/: mask, _headers.ip: drop", "a: hash"])
def test_rules_for_keys_and_headers_by_their_own_names_may_stay(load: Load, rules: str) -> None:
    text = f"protect: {{{rules}}}, {WITH_KEY}, metadata: {{key: k, headers: h}}"
    assert load(with_table(text), ENVIRONMENT).tables


def test_the_schema_of_the_file_has_the_rules() -> None:
    assert "hash" in json_schema()["$defs"]["protect_rule"]["properties"]["action"]["enum"]


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("user.ssn", "/ssn$/: drop"),
        ("user.ssn", "user: hash"),
        ("header.ssn", "_headers.ssn: hash"),
        ("header.ssn", "_headers: hash"),
    ],
)
def test_tables_are_not_named_after_a_protected_field(refuse: Refuse, source: str, rule: str) -> None:
    route = f"topic: c, by: {source}, to: 'a.${{{source}}}', rest: a.r, protect: {{{rule}}}, {WITH_KEY}"
    refused = refuse(with_section(f"routes:\n  - {{{route}}}\n"), ENVIRONMENT)
    assert "named after values of a field that `protect` protects" in str(refused)
