"""`partition_by` and `sort_by`: what they mean, and what is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.errors import SpecError
from frazil.spec import TableSpec, load_spec
from frazil.spec.partitioning import PartitionTerm, parse_sort, parse_term

_FILE = """pipeline: p
kafka: {bootstrap.servers: "localhost:9092"}
tables:
  s.t:
    topic: t
    columns: {id: long, at: timestamptz, day: date, deep: "struct<a: string, b: struct<c: double>>", tags: list<string>,
      raw: 'fixed[2]'}
    metadata: [timestamp, headers]
"""


def _load(folder: Path, *lines: str) -> TableSpec:
    file = folder / "frazil.yaml"
    file.write_text(_FILE + "".join(f"    {line}\n" for line in lines))
    return load_spec(file).tables[0]


@pytest.mark.parametrize(
    ("text", "column", "transform", "name"),
    [
        ("region", "region", "identity", "region"),
        ("a.b.c", "a.b.c", "identity", "a.b.c"),
        ("Year( at )", "at", "year", "at_year"),
        ("month(at)", "at", "month", "at_month"),
        ("day(_timestamp)", "_timestamp", "day", "_timestamp_day"),
        ("hour(a.b)", "a.b", "hour", "a.b_hour"),
        ("bucket(x,16)", "x", "bucket[16]", "x_bucket_16"),
        ("truncate(a b, 4)", "a b", "truncate[4]", "a b_trunc_4"),
        ("void(x)", "x", "void", "x_null"),
    ],
)
def test_a_term_is_a_column_or_a_transform_of_one(text: str, column: str, transform: str, name: str) -> None:
    term = parse_term(text)
    assert (term, term.field_name) == (PartitionTerm(column, transform), name)
    assert parse_term(term.text) == term


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("x", "x asc nulls first"),
        ("x DESC", "x desc nulls last"),
        ("x nulls last", "x asc nulls last"),
        ("bucket(x, 4) desc  nulls first", "bucket(x, 4) desc nulls first"),
        ("nulls", "nulls asc nulls first"),
    ],
)
def test_a_sort_term_reports_which_way_and_where_nulls_go(text: str, full: str) -> None:
    assert parse_sort(text).text == full
    assert parse_sort(full) == parse_sort(text)


def test_the_file_reports_something_nothing_or_none(tmp_path: Path) -> None:
    reported = _load(tmp_path, "partition_by: [day(at), deep.b.c]", "sort_by: id desc", "limits: {partitions: 7}")
    assert reported.layout.partition_by == (PartitionTerm("at", "day"), PartitionTerm("deep.b.c"))
    assert reported.layout.partition_by is not None
    assert {term.line for term in reported.layout.partition_by} == {9}
    assert reported.layout.sort_by == (parse_sort("id desc"),)
    assert reported.bad_records.limits.partitions == 7
    silent = _load(tmp_path)
    assert (silent.layout.partition_by, silent.layout.sort_by, silent.bad_records.limits.partitions) == (
        None,
        None,
        10_000,
    )
    none = _load(tmp_path, "partition_by: []", "sort_by: []")
    assert (none.layout.partition_by, none.layout.sort_by) == ((), ())


def test_columns_that_records_may_bring_are_not_refused(tmp_path: Path) -> None:
    table = _load(tmp_path, "partition_by: [region, deep.later]")
    assert table.layout.partition_by == (PartitionTerm("region"), PartitionTerm("deep.later"))


@pytest.mark.parametrize(
    ("line", "message", "remedy"),
    [
        ("partition_by: [days(at)]", "the transform `days` is unknown", "did you mean `day`?"),
        ("partition_by: ['bucket(id, 0)']", "`bucket(id, 0)` needs a whole number of at least 1", "`bucket(id, 16)`"),
        ("partition_by: ['bucket(16, id)']", "`bucket(16, id)` needs a whole number", "the column comes first"),
        ("partition_by: ['bucket(id, 2147483648)']", "needs a whole number", "2147483647"),
        ("partition_by: [bucket(id)]", "`bucket(id)` is not how bucket is written", "`bucket(id, 16)`"),
        ("partition_by: ['bucket(id 5)']", "`bucket(id 5)` is not how bucket is written", "`bucket(id, 5)`"),
        ("partition_by: ['bucket[5](id)']", "`bucket[5](id)` is not how bucket is written", "`bucket(id, 5)`"),
        ("partition_by: ['truncate[4] (n)']", "`truncate[4] (n)` is not how truncate is written", "`truncate(n, 4)`"),
        ("partition_by: ['day(at, 2)']", "`day(at, 2)` is not how day is written", "write `day(at)`"),
        ("partition_by: [day()]", "`day()` names no column", "write a column's name"),
        ("partition_by: [identity(id)]", "`identity(id)` is the column itself", "write `id`"),
        (
            "partition_by: [bucket(id, 16)]",
            "`bucket(id` is neither a column nor a transform of one",
            "in quotes, such as",
        ),
        ("partition_by: ['(id']", "`(id` is neither a column nor a transform of one", "write a column, or"),
        ("partition_by: [day(at), hour(at)]", "`hour(at)` and `day(at)` are both of the time", "keep `hour(at)`"),
        ("partition_by: [id, id]", "`id` occurs twice in `partition_by`", "keep one of them"),
        ("partition_by: {id: day}", "`partition_by` is a mapping where a list is expected", "write a list"),
        ("partition_by: [hour(day)]", "`hour(day)`: the column `day` has the type date", "hour is for a timestamp"),
        ("partition_by: [day(id)]", "`day(id)`: the column `id` has the type long", "day is for a date or a timestamp"),
        ("partition_by: [deep]", "`deep`: the column `deep` has the type struct", "write a field inside it"),
        ("partition_by: [tags]", "`tags`: the column `tags` has the type list", "not a list, map or struct"),
        ("partition_by: ['bucket(deep.b.c, 3)']", "the column `deep.b.c` has the type double", "bucket is for an int"),
        (
            "partition_by: ['truncate(_timestamp, 3)']",
            "`_timestamp` has the type timestamptz",
            "truncate is for an int",
        ),
        ("partition_by: [raw]", "`raw`: the column `raw` has the type fixed[2]", "write `bucket(raw, 16)`"),
        ("partition_by: [id.x]", "there is no column `id.x`", "did you mean `id`?"),
        ("partition_by: day(at);bucket(id, 5)", "has 2 terms in one text", 'write `[day(at), "bucket(id, 5)"]`'),
        ("partition_by: id, day(at)", "`id, day(at)` has 2 terms in one text", "write `[id, day(at)]`"),
        ("partition_by: id|tags", "`id|tags` has 2 terms in one text", "write `[id, tags]`"),
        ("partition_by: [id;day(at)]", "has 2 terms in one text", "each as an entry of the list: `id, day(at)`"),
        ("sort_by: id desc; at", "`id desc; at` has 2 terms in one text", "write `[id desc, at]`"),
        ("sort_by: [id; at desc]", "has 2 terms in one text", "each as an entry of the list: `id, at desc`"),
        ("partition_by: [{day: at}]", "`day: at` is not how day is written", "write `day(at)`"),
        ("partition_by: [{Bucket: id}]", "`Bucket: id` is not how bucket is written", "write `bucket(id, 16)`"),
        ("sort_by: [id down]", "there is no column", ""),
        ("sort_by: [void(id)]", "`void(id)` sorts nothing", "remove it"),
        ("sort_by: [id, id desc]", "`id` occurs twice in `sort_by`", "keep one of them"),
        ("limits: {partitions: 0}", "`limits.partitions` is not a count", "write a whole number"),
    ],
)
def test_what_cannot_be_is_refused_with_its_line(tmp_path: Path, line: str, message: str, remedy: str) -> None:
    lines = (line, "unknown_fields: drop") if "down" in line else (line,)
    with pytest.raises(SpecError) as caught:
        _load(tmp_path, *lines)
    assert message in caught.value.message
    assert remedy in caught.value.remedy
    assert caught.value.where == f"{tmp_path / 'frazil.yaml'}:9"


def test_a_column_that_cannot_come_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="there is no column `idd`") as caught:
        _load(tmp_path, "partition_by: [idd]", "unknown_fields: drop")
    assert caught.value.remedy == "did you mean `id`?"


def test_a_column_with_a_separator_in_its_name_is_an_entry_of_a_list(tmp_path: Path) -> None:
    terms = _load(tmp_path, "partition_by: ['a;b', 'c|d']", "unknown_fields: add").layout.partition_by
    assert [term.column for term in terms or ()] == ["a;b", "c|d"]
