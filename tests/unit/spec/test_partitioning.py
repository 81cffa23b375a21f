"""`partition_by` and `sort_by`: what they mean, and what is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

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


def test_a_column_with_a_separator_in_its_name_is_an_entry_of_a_list(tmp_path: Path) -> None:
    terms = _load(tmp_path, "partition_by: ['a;b', 'c|d']", "unknown_fields: add").layout.partition_by
    assert [term.column for term in terms or ()] == ["a;b", "c|d"]
