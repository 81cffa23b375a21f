"""The expectations of a table, as a pipeline file has them."""

from __future__ import annotations

import pytest

from frazil.cdc.envelope import IGNORED
from frazil.queries.evaluate import EXPLODED
from frazil.spec.settings import OTHER_DROPS
from frazil.stages.expect_settings import ExpectationSpec
from tests.unit.spec.pipeline_file import Load, Refuse, with_table


def test_expectations_keep_their_order_and_the_short_form_warns(load: Load) -> None:
    text = (
        "expect: {b: 'x > 0', a: {that: y is not null, else: dead_letter}, c: {that: z > 0, at_most: 5%, else: stop}}"
    )
    (table,) = load(with_table(text)).tables
    assert table.expectations.expect == (
        ExpectationSpec(name="b", that="x > 0"),
        ExpectationSpec(name="a", that="y is not null", action="dead_letter"),
        ExpectationSpec(name="c", that="z > 0", at_most=0.05, action="stop"),
    )
    assert table.has_query


def test_a_commit_has_a_number_of_rows_and_an_age(load: Load) -> None:
    (table,) = load(with_table("expect: {a: {min_rows: 5, else: stop}, b: {max_age: 10m}}")).tables
    assert [(one.min_rows, one.max_age_s) for one in table.expectations.expect] == [(5, None), (None, 600.0)]
    assert not table.has_query


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("expect: [a]", "`expect` is a list where a mapping is expected"),
        ("expect: {a: {else: drop}}", "`expect.a` expects nothing"),
        ("expect: {a: {that: x > 0, min_rows: 1}}", "`expect.a` has `that` and `min_rows`"),
        ("expect: {a: {that: x > 0, else: fail}}", "`expect.a.else` cannot be `fail`"),
        ("expect: {a: {that: x > 0, otherwise: drop}}", "unknown key"),
        ("expect: {a: true}", "`expect.a` is a boolean where text is expected"),
        ("expect: {a: [x]}", "`expect.a` is a list where text is expected"),
        ("expect: {where: x > 0}", "cannot have the name `where`"),
        ("expect: {a b: x > 0}", "`a b` is not a name of an expectation"),
        ("expect: {a: {that: x > 0, at_most: 5%, else: drop}}", "`expect.a` is of a whole commit, and `else` is drop"),
        ("expect: {a: {min_rows: 5, else: dead_letter}}", "`expect.a` is of a whole commit"),
        ("expect: {a: {min_rows: 5, at_most: 5%}}", "`expect.a.at_most` is for `that`"),
        ("expect: {a: {max_age: 5m, else: stop}}", "`expect.a` only warns, in `status`"),
        ("expect: {a: {min_rows: 0}}", "`expect.a.min_rows` is not a count"),
        ("expect: {a: {that: x > 0, else: dead_letter}}, on_bad_record: skip", "`on_bad_record` is skip"),
    ],
)  # fmt: skip
def test_what_cannot_be_expected_is_refused(refuse: Refuse, settings: str, message: str) -> None:
    assert message in str(refuse(with_table(settings)))


def test_no_expectation_has_the_name_of_another_drop() -> None:
    assert {*IGNORED.values(), EXPLODED, "where", "filter"} <= set(OTHER_DROPS)
