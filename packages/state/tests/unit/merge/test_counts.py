"""The columns that `merge` counts records in, of a table with a query."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.types import LongType

from frazil.errors import SpecError
from frazil.ingest.tables.settings import query_columns, with_counts
from frazil.process.analysis import Column, Query
from frazil.process.program import Field, Program, Project
from frazil.spec import load_spec


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
