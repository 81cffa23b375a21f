"""The columns that `merge` counts records in, of a table with a query."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.types import LongType

from frazil.errors import SpecError
from frazil.ingest.tables.queries import SparkQueries
from frazil.ingest.tables.settings import query_columns, with_counts
from frazil.ingest.tables.state import RunState
from frazil.queries.analysis import Column, Query
from frazil.queries.program import Field, Program, Project
from frazil.spec import load_spec
from frazil_testing.twins import MemoryJobs
from packages.state.tests.unit.grouping.grouping import Grouped
from packages.state.tests.unit.merge.merging import Merging

_UPSERT = "mode: upsert, key_columns: [k]"
_PROTECT = 'protect: {{v: hash}}, protect_key: "${{file:{root}/key}}"'
_ROW, _COUNTED = {"k": 1, "v": "x"}, {"k": 2, "v": "y", "n": 7}


class Counting(Grouped):
    """A table without `select`, but with steps or stages that make its rows. settings: `{root}` is a folder with a key."""

    def __init__(self, root: Path, queries: SparkQueries, settings: str) -> None:
        root.mkdir(exist_ok=True)
        (root / "key").write_text("k" * 40)
        Merging.__init__(self, root, f"{_UPSERT}, {settings.format(root=root)}")
        self.queries = queries
        self.jobs = MemoryJobs(self.source, batch_size=1000, queries=queries)

    def again(self, settings: str) -> Counting:
        """The same table with other settings."""
        other = Counting(self.root, self.queries, settings)
        other.source, other.catalog, other.runs = self.source, self.catalog, self.runs
        other.jobs = MemoryJobs(self.source, batch_size=1000, queries=self.queries)
        return other


def _query(*names: str) -> Query:
    columns = tuple(Column(name, LongType(), False, frozenset(((name,),))) for name in names)
    fields = tuple(Field(name, pa.int64()) for name in names)
    project = Project(tuple((field.name, field) for field in fields))
    return Query(columns, frozenset(), Program((project,), fields), None)


def test_a_count_of_a_column_that_the_query_makes_is_refused_until_it_has_another_name(tmp_path: Path) -> None:
    settings = "mode: upsert, key_columns: [id], select: 'select id, n from records', merge: {{{}: {}}}"

    def counted(name: str, function: str = "count") -> Query:
        path = tmp_path / "pipeline.yaml"
        table_settings = f"topic: a, {settings.format(name, function)}"
        path.write_text(f'pipeline: p\nkafka: {{bootstrap.servers: "x:1"}}\ntables:\n  n.t: {{{table_settings}}}\n')
        (table,) = load_spec(path, {}).tables
        return with_counts(table, _query("id", "n"))

    with pytest.raises(
        SpecError, match=r"`merge.N` is `count`, which makes a column of its own, and the query"
    ) as error:
        counted("N")
    assert error.value.remedy == "give the count another name, leave `N` out of the query, or write `sum`"
    assert list(query_columns(counted("records"))) == ["id", "n", "records"]
    assert list(query_columns(counted("n", "sum"))) == ["id", "n"]


@pytest.mark.parametrize(
    "setting",
    [
        _PROTECT,
        'where: "k > 0"',
        "select: select * from records",
        "add_fields: {{o: _topic}}",
        f'where: "k > 0", {_PROTECT}',
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_record_with_a_field_that_is_called_as_the_count_is_a_dead_letter_behind_every_step(
    tmp_path: Path, queries: SparkQueries, setting: str, is_first: bool
) -> None:
    counting = Counting(tmp_path, queries, f"merge: {{{{n: count}}}}, {setting}")
    counting.tell(_ROW, *((_COUNTED,) if is_first else ()))
    table = counting.tell(_ROW, *(() if is_first else (_COUNTED,)))
    assert table.status.run_state is RunState.WAITING, table.status
    assert counting.table_rows("k", "n") == [(1, 2)]
    assert [kind for kind, _ in counting.dead_letters()] == ["name_conflict"]
    without = counting.again(f"merge: {{{{n: count}}}}, exclude: [n], {setting}")
    without.tell(_COUNTED)
    assert without.table_rows("k", "n") == [(1, 2), (2, 1)]


def test_a_query_may_read_a_field_that_is_called_as_the_count(tmp_path: Path, queries: SparkQueries) -> None:
    select = "select: 'select k, v, n + 1 as m from records'"
    counting = Counting(tmp_path, queries, f"merge: {{{{n: count}}}}, {select}")
    counting.tell(_COUNTED, _ROW, _COUNTED)
    assert counting.table_rows_unsorted("k", "m", "n") == [(2, 8, 2), (1, None, 1)]


@pytest.mark.parametrize(
    ("before", "settings", "reason", "remedied"),
    [
        ("", "rename: {{v: n}}", "a step makes the column too", "merge: {{records: count}}, rename: {{v: n}}"),
        ("", "rename: {{v: n}}", "a step makes the column too", "merge: {{n: count}}, rename: {{v: w}}"),
        (
            "",
            f"columns: {{{{n: long}}}}, {_PROTECT}",
            "`columns` declares the column",
            f"merge: {{{{n: sum}}}}, columns: {{{{n: long}}}}, {_PROTECT}",
        ),
        (
            "",
            f"columns: {{{{n: long}}}}, {_PROTECT}",
            "`columns` declares the column",
            f"merge: {{{{n: count}}}}, {_PROTECT}",
        ),
        (
            _PROTECT,
            _PROTECT,
            "the records have a field of this name",
            f"merge: {{{{n: count}}}}, drop_fields: [n], {_PROTECT}",
        ),
        (_PROTECT, _PROTECT, "the records have a field of this name", f"merge: {{{{m: count}}}}, {_PROTECT}"),
    ],
)
def test_a_table_whose_count_has_a_name_that_is_taken_continues_once_the_remedy_is_done(
    tmp_path: Path, queries: SparkQueries, before: str, settings: str, reason: str, remedied: str
) -> None:
    counting = Counting(tmp_path, queries, before or f"merge: {{{{n: count}}}}, {settings}")
    if before:
        counting.tell({"k": 1, "v": "x", "n": 3})
        counting = counting.again(f"merge: {{{{n: count}}}}, {settings}")
    table = counting.tell(_ROW)
    assert (table.status.run_state, table.status.reason.rpartition("and ")[2]) == (RunState.STOPPED, reason)
    assert table.status.reason.startswith("`merge.n` is `count`, which makes a column of its own, ")
    again = counting.again(remedied)
    assert again.catch_up().status.run_state is RunState.WAITING
    assert [row[0] for row in again.table_rows("k")] == [1]
