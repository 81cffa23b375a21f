"""The settings of tables that are their own state: `merge` and `dedupe`."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from frazil.spec import json_schema
from tests.unit.spec.pipeline_file import HEAD, Load, Refuse, setting, with_table

_UPSERT = "mode: upsert, key_columns: [id]"
_CHANGES = f"{_UPSERT}, envelope: debezium"


@pytest.mark.parametrize(
    ("settings", "read"),
    [
        (f"{_UPSERT}, merge: {{n: sum, at: max}}", {"merge": (("n", "sum"), ("at", "max"))}),
        (f"{_UPSERT}, merge: latest_non_null", {"merge": (("", "latest_non_null"),)}),
        (f"{_CHANGES}, merge: {{n: sum, rows: count}}", {"tombstones": "ignore", "on_bad_record": "stop"}),
        (f"{_CHANGES}, merge: {{n: sum, rows: count}}, on_bad_record: skip", {"on_bad_record": "skip"}),
        (f"{_UPSERT}, merge: {{n: sum}}, order_by: at", {"order_by": "at"}),
        ("dedupe: {by: [id], within: 24h}", {"metadata": {"timestamp": "_timestamp"}}),
        ("dedupe: {by: [id], within: 24h}, metadata: {timestamp: at}", {"metadata": {"timestamp": "at"}}),
        ("dedupe: {by: [id, o.n]}", {"metadata": {}}),
    ],
)
def test_what_is_written_is_read_and_valid_for_editors(load: Load, settings: str, read: dict[str, Any]) -> None:
    text = with_table(settings)
    (table,) = load(text).tables
    assert {name: setting(table, name) for name in read} == read
    Draft202012Validator(json_schema()).validate(yaml.safe_load(text))


def test_a_count_makes_a_column_that_no_record_has(load: Load) -> None:
    (table,) = load(with_table(f"{_UPSERT}, columns: {{v: string}}, merge: {{visits: count}}")).tables
    columns = [(column.name, str(column.type), column.constant) for column in table.shape.columns]
    assert columns == [("v", "string", None), ("visits", "long", "1")]


@pytest.mark.parametrize(
    ("settings", "message", "remedy"),
    [
        (
            "merge: {n: sum}",
            "`merge` merges the records of a key, and",
            "write `mode: upsert` and `key_columns: [NAME]`",
        ),
        (f"{_UPSERT}, merge: {{n: total}}", "`merge.n` cannot be `total`", "one of"),
        (f"{_UPSERT}, merge: {{n: summ}}", "`merge.n` cannot be `summ`", "did you mean `sum`?"),
        (
            f"{_UPSERT}, columns: {{n: long}}, merge: {{n: distinct_sketch}}",
            "`merge.n`: `distinct_sketch` takes bytes, not `long`",
            "write another function, or another type",
        ),
        (f"{_UPSERT}, merge: [n]", "`merge` is a list where a mapping is expected", "write `merge: {amount: sum"),
        (f"{_UPSERT}, merge: count", "`merge: count` names no column", "name the column: `merge: {records: count}`"),
        (f"{_UPSERT}, merge: {{id: sum}}", "`merge` has `id`, which identifies the row", "take it out of `merge`"),
        (
            f"{_UPSERT}, deletes: soft, merge: {{n: sum}}",
            "`deletes: soft` keeps a deleted row",
            "write `deletes: hard`",
        ),
        (
            f"{_UPSERT}, columns: {{n: string}}, merge: {{n: sum}}",
            "`merge.n`: `sum` takes numbers, not `string`",
            "write another function, or another type",
        ),
        (
            f"{_UPSERT}, columns: {{n: string}}, merge: {{n: collect_set}}",
            "`merge.n`: `collect_set` takes lists, not `string`",
            "make a list of the value, such as `select: select id, array(tag) as tags from records`",
        ),
        (
            f"{_UPSERT}, columns: {{n: long}}, merge: {{n: count}}",
            "`merge.n` is `count`, which makes a column of its own, and `columns` declares the column",
            "take it out of `columns`, or write `sum`",
        ),
        (
            f"{_UPSERT}, metadata: {{offset: n}}, merge: {{n: count}}",
            "`merge.n` is `count`, which makes a column of its own, and `metadata` makes the column too",
            "give the count another name",
        ),
        (
            f"{_UPSERT}, order_by: at, merge: {{at: min}}",
            "`merge` makes `min` of `at`, which orders the records",
            "write `at: latest`",
        ),
        (
            f"{_UPSERT}, order_by: at, merge: {{n: first}}",
            "`first` of late records is unknown: a row has no `at` for each of its values",
            "leave `order_by` out",
        ),
        (
            f"{_CHANGES}, merge: {{n: max, rows: count}}",
            "`max` cannot subtract a row of the source: the value without it is unknown",
            "write one of: latest, sum, count",
        ),
        (
            f"{_CHANGES}, merge: {{n: sum}}",
            "`merge` subtracts deleted rows, and no `count` shows when none is left",
            "add one, such as `merge: {rows: count}`: a row whose count is 0 is deleted",
        ),
        (
            "mode: upsert, envelope: debezium, merge: {rows: count}",
            "`merge` of changes needs the columns to group by, and the table names no `key_columns`",
            "write `key_columns: [NAME]`",
        ),
        (
            f"{_CHANGES}, order_by: at, merge: {{rows: count}}",
            "`order_by` has no effect where updates and deletes subtract the row before",
            "leave it out",
        ),
        (
            f"{_CHANGES}, tombstones: delete, merge: {{rows: count}}",
            "`tombstones: delete` deletes the row of a key, and `merge` subtracts the deleted rows themselves",
            "write `tombstones: ignore`, or remove it",
        ),
        (
            f"{_UPSERT}, envelope: {{operation: op}}, merge: {{rows: count}}",
            "`merge` subtracts the row before an update, and an operation in a field does not have the whole of it",
            "merge records without `envelope`, or write `mode: upsert` without `merge`",
        ),
        (
            f"{_CHANGES}, atomic: transaction, merge: {{rows: count}}",
            "`atomic` shows transactions whole, and `merge` does not keep them apart",
            "remove one of them",
        ),
        ("dedupe: {within: 24h}", "`dedupe` does not say which columns identify an event", "write `by: [event_id]`"),
        (f"{_UPSERT}, dedupe: {{by: [n]}}", "`dedupe` drops records that are in the table already", "remove one"),
        (
            "envelope: debezium, changelog: true, dedupe: {by: [id]}",
            "`dedupe` would drop changes of a row, which `changelog: true` keeps",
            "remove one of them",
        ),
        (
            'columns: {o: "struct<a: int>"}, dedupe: {by: [o]}',
            "`dedupe.by` has `o`, a struct, and takes columns with plain values",
            "name another column, or one inside it",
        ),
    ],
)
def test_what_cannot_be_merged_or_told_apart_is_refused(
    refuse: Refuse, settings: str, message: str, remedy: str
) -> None:
    error = refuse(with_table(settings))
    assert error.message.startswith(message)
    assert error.remedy is not None
    assert remedy in error.remedy
    assert error.where == "pipeline.yaml:4"


def test_what_is_merged_by_default_is_no_setting_of_a_table_that_appends(load: Load) -> None:
    text = with_table("mode: append") + "defaults: {mode: upsert, key_columns: [id], merge: {n: sum}}\n"
    assert setting(load(text).tables[0], "merge") == ()


def test_the_table_of_the_rest_of_a_route_merges_nothing_and_has_no_count(load: Load) -> None:
    route = "topic: a, by: k, to: 's.${k}', rest: s.rest, mode: upsert, key_columns: [id], tombstones: ignore"
    spec = load(f"{HEAD}routes: [{{{route}, merge: {{n: sum, records: count}}}}]\n")
    (rest,) = [table for table in spec.tables if table.name == "s.rest"]
    assert setting(rest, "merge") == ()
    assert rest.shape.columns == ()
    assert [column.name for column in spec.routes[0].shape.columns] == ["records"]
