"""Files of cases, and cases, that are refused: what is wrong, where, and a remedy that works."""

from __future__ import annotations

import pytest

from frazil.errors import SpecError
from frazil.spec.syntax.document import LIMIT_BYTES
from packages.testing.tests.unit.conftest import HEAD, ORDERS, Play, is_well


@pytest.mark.parametrize(
    ("wrong", "right", "error", "remedy"),
    [
        ("recods: [{value: {id: 1}}]", "records: [{value: {id: 1}}]", "unknown key `recods` in the case `a`",
         "did you mean `records`?"),
        ("records: [{value1: {id: 1}}]", "records: [{value: {id: 1}}]", "unknown key `value1` in a record",
         "did you mean `value`?"),
        ("records: []", "records: [{value: {id: 1}}]", "there are no `records`", "write `records: [{value: {…}}]`"),
        ("records: [5]", "records: [{value: {id: 1}}]", "a record is a number where a mapping is expected",
         "write `- value: {…}`"),
        ("records: {value: 1}", "records: [{value: {id: 1}}]", "`records` is a mapping where a list is expected",
         "write a list of them, such as `records: [{…}]`"),
        ("records: [{key: a}]", "records: [{value: {id: 1}, key: a}]", "a record has no value",
         "write one of: value, change, json, text, bytes; `value: null` is a tombstone"),
        ("records: [{value: {id: 1}, topic: [a]}]", "records: [{value: {id: 1}, topic: orders}]",
         "`topic` is a list where text is expected", "write text"),
        ("given: 5, records: [{value: {id: 1}}]", "given: {a.b: [{c: 1}]}, records: [{value: {id: 1}}]",
         "`given` is a number where a mapping is expected", "write `name: value` pairs"),
    ],
)  # fmt: skip
def test_a_file_of_cases_that_cannot_be_read(play: Play, wrong: str, right: str, error: str, remedy: str) -> None:
    with pytest.raises(SpecError) as caught:
        play(f"table: shop.orders\ncases:\n  a: {{{wrong}}}\n")
    assert (caught.value.message, caught.value.remedy, caught.value.where) == (error, remedy, "cases.yaml:3")
    assert is_well(play(f"table: shop.orders\ncases:\n  a: {{{right}, dropped: {{}}}}\n"))


WHOLE = "table: shop.orders\ncases: {a: {records: [{value: {id: 1}}], rows: [{id: 1}]}}\n"


@pytest.mark.parametrize(
    ("wrong", "right", "error"),
    [
        ("", WHOLE,
         "the file of cases is empty (cases.yaml:1); "
         "write `table: NAME`, and below it `cases: {NAME: {records: [{value: {…}}], rows: [{…}]}}`"),
        ("- records: [{value: {id: 1}}]\n", WHOLE,
         "the file of cases is not a mapping (cases.yaml:1); begin with a line such as `table: shop.orders`, "
         "and write each case by its name below `cases:`"),
        ('{"id": 1}\n{"id": 2}\n', WHOLE.replace("value: {id: 1}", """json: '{"id": 1}'"""),
         "the file of cases has a JSON object in each line (cases.yaml:1); write `table: NAME`, below it `cases: {NAME: "
         "{records: […]}}`, and each line as one of the records, `- json: '{…}'`; `frazil try TABLE --input FILE.jsonl` "
         "shows the result of the lines as they are"),
        ("[" * 60 + "]" * 60, WHOLE.replace("value: {id: 1}", f"""json: '{{"id": 1, "x": {"[" * 60 + "]" * 60}}}'"""),
         "the file of cases is nested too deeply (cases.yaml:1); write the value of the record as `json`, which is text"),
        (f"{WHOLE}#{' ' * LIMIT_BYTES}", WHOLE,
         f"the file of cases is larger than {LIMIT_BYTES} bytes (cases.yaml); divide its cases among several files"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_a_file_of_cases(play: Play, wrong: str, right: str, error: str) -> None:
    with pytest.raises(SpecError) as caught:
        play(wrong)
    assert str(caught.value) == error
    assert is_well(play(right))


@pytest.mark.parametrize(
    ("wrong", "right", "error", "remedy"),
    [
        ("records: [{value: {id: 1}, topic: orderz}], rows: []", "records: [{value: {id: 1}, topic: orders}], rows: [{}]",
         "no table reads the topic `orderz`", "did you mean `orders`?"),
        ("records: [{value: {id: 1}, timestamp: x}], rows: []", "records: [{value: {id: 1}, timestamp: 5}], rows: [{}]",
         "the record cannot be written: `timestamp` is neither ISO 8601 nor milliseconds since 1970", "correct the record"),
        ("records: [{value: {id: 1}, timestamp: 12:30}], rows: []",
         "records: [{value: {id: 1}, timestamp: '2026-01-31T12:30:00Z'}], rows: [{}]",
         "the record cannot be written: `timestamp` is neither ISO 8601 nor milliseconds since 1970", "correct the record"),
        ("records: [{value: {id: 1}, partition: x}], rows: []", "records: [{value: {id: 1}, partition: 1}], rows: [{}]",
         "`partition` is not a number", "write a whole number from 0 on"),
        ("records: [{value: {id: 1}, schema: [a]}], rows: []", "records: [{value: {id: 1}}], rows: [{}]",
         "`schema` is not the path of a file", "write the path of a schema"),
        ("records: [{value: {id: 1}, schema: a.avsc}], rows: []", "records: [{value: {id: 1}}], rows: [{}]",
         "the schema `a.avsc` cannot be read: No such file or directory", "correct the path, or write the file"),
        ("records: [{value: {id: 1}}], rows: {id: 1}", "records: [{value: {id: 1}}], rows: [{id: 1}]",
         "`rows` of shop.orders are not a list of mappings", "write `- {COLUMN: VALUE}` for each; `[]` for none"),
        ("records: [{value: {id: 1}}], rows: {shop.orderz: []}", "records: [{value: {id: 1}}], rows: {shop.orders: [{}]}",
         "the records of the case do not reach the table `shop.orderz`", "did you mean `shop.orders`?"),
        ("records: [{value: {id: 1}}], dropped: [a]", "records: [{value: {id: 1}}], dropped: {}",
         "`dropped` is a list where a mapping is expected", "write `dropped: {where: 1}`"),
        ("records: [{value: {id: 1}}], stops: [a]", "records: [{value: {id: 1}}], rows: [{}]",
         "`stops` is not text", "write a part of the reason"),
    ],
)  # fmt: skip
def test_a_case_that_cannot_be_played(play: Play, wrong: str, right: str, error: str, remedy: str) -> None:
    (verdict,) = play(f"table: shop.orders\ncases:\n  a: {{{wrong}}}\n")
    assert (verdict.error, verdict.remedy, verdict.where) == (error, remedy, "cases.yaml:3")
    assert is_well(play(f"table: shop.orders\ncases:\n  a: {{{right}}}\n"))


def test_a_case_whose_table_or_topic_is_not_known(play: Play) -> None:
    cases = "table: shop.orderz\ncases:\n  a: {records: [{value: {id: 1}}], rows: [{}]}\n"
    (verdict,) = play(cases)
    assert (verdict.error, verdict.remedy) == (
        "the pipeline file has no table `shop.orderz`",
        "did you mean `shop.orders`?",
    )
    assert is_well(play(cases.replace("orderz", "orders")))
    (verdict,) = play(cases.replace("shop.orderz", "other.zzz"))
    assert (verdict.error, verdict.remedy) == (
        "the topic of the record is not known", "write `topic: NAME` at the top of the file, or in the record",
    )  # fmt: skip
    (verdict,) = play(f"topic: orders\n{cases}")
    assert verdict.error == "the records of the case do not reach the table `shop.orderz`"
    both = f"{ORDERS}  shop.again: {{topic: orders}}\n"
    (verdict,) = play(cases.replace("table: shop.orderz", "topic: orders"), both)
    assert verdict.remedy == "write `table: NAME` at the top of the file, or `rows: {TABLE: […]}`"
    assert is_well(play(cases.replace("orderz", "orders"), both))


def test_answers_have_no_place_in_a_case_in_braces(play: Play) -> None:
    with pytest.raises(SpecError) as caught:
        play("table: shop.orders\ncases:\n  a: {records: [{value: {id: 1}}]}\n", updates=True)
    assert caught.value.remedy == "write the case in lines of its own, `records:` and what it expects below each other"
    assert play("table: shop.orders\ncases:\n  a:\n    records: [{value: {id: 1}}]\n", updates=True)[0].is_updated


def test_a_topic_that_no_pattern_of_the_file_selects(play: Play) -> None:
    pipeline = f"{HEAD}namespace: shop\ntopics: [/^order/]\n"
    cases = "topic: bills\ncases:\n  a: {records: [{value: {id: 1}}], rows: {shop.orders: [{}]}}\n"
    (verdict,) = play(cases, pipeline)
    assert (verdict.error, verdict.remedy) == ("no table reads the topic `bills`", "write one of: /^order/")
    assert is_well(play(cases.replace("bills", "orders"), pipeline))
