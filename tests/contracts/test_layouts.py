"""The Catalog port: tables made and changed by partition spec and sort order, on memory and on Iceberg's JDBC catalog."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from frazil.catalog.layout import Layout, partition_terms, sort_terms
from frazil.catalog.port import Catalog, TableState
from frazil.catalog.scans import Scan
from frazil.clock import new_id
from frazil.errors import SpecError
from frazil.ingest.tables.table import Table
from frazil.ingest.tables.target import target_of
from frazil.schema.evolve import extend_schema, new_schema
from frazil.spec.models import TableSpec, TopicSelector
from frazil.spec.partitioning import parse_sort, parse_term
from frazil.spec.syntax.types import parse_type
from frazil.types import Commit, DataFile, Progress, RowDelta
from frazil.upsert.lookup.delete_files import read_deletes, write_deletes
from frazil.write.plain_target import plain_target
from frazil.write.target import TableTarget
from frazil.write.write import FileWriter
from tests.contracts.catalogs import Lake

_TABLE = "lake.sub.t"
_COLUMNS = {"id": "long", "at": "timestamptz", "x": "double", "s": "struct<a: string, b: struct<c: int>>"}


def _layout(partition_by: str | None = None, sort_by: str | None = None) -> Layout:
    terms = None if partition_by is None else tuple(map(parse_term, filter(None, partition_by.split(";"))))
    sorts = None if sort_by is None else tuple(map(parse_sort, filter(None, sort_by.split(";"))))
    return Layout(terms, sorts)


def _create(
    catalog: Catalog, partition_by: str | None = None, sort_by: str | None = None, version: int = 2
) -> TableState:
    schema = new_schema((name, parse_type(word)) for name, word in _COLUMNS.items())
    return catalog.create(_TABLE, schema, {}, version, _layout(partition_by, sort_by))


def _words(state: TableState | None) -> tuple[list[str], list[str]]:
    assert state is not None
    spec, order = partition_terms(state.partitioning, state.schema), sort_terms(state.sorting, state.schema)
    return list(spec), list(order)


def _write(state: TableState, *ids: int) -> tuple[DataFile, ...]:
    target = target_of(Table(TableSpec(name=_TABLE, topics=(TopicSelector(literal="a"),)), state))
    rows = [{"id": n, "x": float("nan") if n % 2 else 0.5, "s": {"a": f"a{n}", "b": {"c": n}}} for n in ids]
    writer = FileWriter(target)
    writer.write(pa.Table.from_pylist(rows, target.arrow_schema))
    return tuple(writer.finish())


def _commit(
    catalog: Catalog, files: tuple[DataFile, ...], delta_of: Callable[[Scan, TableTarget], RowDelta] | None = None
) -> None:
    state = catalog.load(_TABLE)
    assert state is not None
    delta = None if delta_of is None else delta_of(catalog.scan(_TABLE), plain_target(state))
    progress = Progress(offsets={"a": {0: 1}}, commit_id=new_id())
    catalog.commit(Commit(_TABLE, files, progress, state.progress, delta))


def test_a_table_is_made_with_partitions_and_an_order(catalog: Catalog, lake: Lake) -> None:
    made = _create(catalog, "bucket(id, 16);day(at);s.b.c;truncate(s.a, 3)", "at desc;bucket(id, 4) asc nulls last")
    expected = (
        ["bucket(id, 16)", "day(at)", "s.b.c", "truncate(s.a, 3)"],
        ["at desc nulls last", "bucket(id, 4) asc nulls last"],
    )
    assert _words(made) == expected == _words(lake.catalog().load(_TABLE))
    assert [field.name for field in made.partitioning.fields] == ["id_bucket_16", "at_day", "s.b.c", "s.a_trunc_3"]
    assert made.sorting.order_id == 1


def test_a_table_is_made_without_either(catalog: Catalog) -> None:
    made = _create(catalog)
    assert (_words(made), made.partitioning.fields, made.sorting.is_unsorted) == (([], []), (), True)


@pytest.mark.parametrize("layout", [_layout("nothing"), _layout("day(id)"), _layout(None, "s"), _layout("s.b.x")])
def test_a_layout_that_does_not_fit_is_refused_and_nothing_is_made(catalog: Catalog, layout: Layout) -> None:
    schema = new_schema((name, parse_type(word)) for name, word in _COLUMNS.items())
    with pytest.raises(SpecError):
        catalog.create(_TABLE, schema, {}, 2, layout)
    assert catalog.load(_TABLE) is None
    _create(catalog)
    with pytest.raises(SpecError):
        catalog.arrange(_TABLE, layout)


def test_a_layout_changes_and_files_of_the_old_one_stay(catalog: Catalog) -> None:
    state = _create(catalog, "day(at);s.a")
    _commit(catalog, _write(state, 1, 2, 3))
    arranged = catalog.arrange(_TABLE, _layout("bucket(id, 2);s.a", "id desc"))
    assert (sorted(_words(arranged)[0]), _words(arranged)[1]) == (["bucket(id, 2)", "s.a"], ["id desc nulls last"])
    assert arranged.layout.spec_id == arranged.partitioning.spec_id != state.layout.spec_id
    _commit(catalog, _write(arranged, 4, 5))
    assert catalog.size(_TABLE).row_count == 5
    assert catalog.arrange(_TABLE, _layout("s.a;bucket(id, 2)", "id desc")) == catalog.load(_TABLE)


def test_what_the_file_does_not_say_stays(catalog: Catalog) -> None:
    _create(catalog, "day(at)", "id")
    assert _words(catalog.arrange(_TABLE, _layout())) == (["day(at)"], ["id asc nulls first"])
    assert _words(catalog.arrange(_TABLE, _layout(""))) == ([], ["id asc nulls first"])
    assert _words(catalog.arrange(_TABLE, _layout(None, ""))) == ([], [])
    assert _words(catalog.arrange(_TABLE, _layout("day(at)"))) == (["day(at)"], [])


def test_files_of_an_older_spec_can_still_be_committed(catalog: Catalog) -> None:
    """Written before another process changed the layout."""
    state = _create(catalog, "bucket(id, 4)")
    files = _write(state, *range(20))
    catalog.arrange(_TABLE, _layout("s.b.c;bucket(id, 8)"))
    _commit(catalog, files)
    assert catalog.size(_TABLE).row_count == 20


def test_processes_that_change_the_layout_at_a_time_end_with_it(lake: Lake) -> None:
    _create(lake.catalog())
    layout, failures = _layout("bucket(id, 4);day(at)", "id"), []

    def arrange() -> None:
        try:
            lake.catalog().arrange(_TABLE, layout)
        except Exception as error:  # noqa: BLE001  (told to the test's own thread)
            failures.append(error)

    threads = [threading.Thread(target=arrange) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert _words(lake.catalog().load(_TABLE)) == (["bucket(id, 4)", "day(at)"], ["id asc nulls first"])


@pytest.mark.parametrize("partition_by", ["x", "void(id)", "void(id);x", "s.a;x"])
def test_values_that_json_has_no_word_for_are_committed(catalog: Catalog, partition_by: str) -> None:
    _commit(catalog, _write(_create(catalog, partition_by), 1, 2, 3, 4))
    assert catalog.size(_TABLE).row_count == 4


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("partition_by", ["x", "s.a;x"])
def test_rows_of_such_partitions_go_and_a_fresh_process_sees_the_same(
    lake: Lake, partition_by: str, version: int
) -> None:
    state = _create(lake.catalog(), partition_by, version=version)
    _commit(lake.catalog(), _write(state, 1, 2, 3, 4))
    for left in (3, 2):
        catalog = lake.catalog()
        _commit(catalog, (), lambda scan, target: _first_row_gone(scan, target, version))
        assert len(lake.column(_TABLE, "id")) == left
    catalog = lake.catalog()
    _commit(catalog, _write(state, 5), _all_gone)
    assert lake.column(_TABLE, "id") == [5]


def _first_row_gone(scan: Scan, target: TableTarget, version: int) -> RowDelta:
    """Takes away a row that is still there, of a file with a NaN first."""
    by_need = sorted(scan.files, key=lambda file: (bool(file.deletes), "NaN" not in file.content))
    file = by_need[0]
    first = next(n for n in range(file.record_count) if n not in read_deletes(target, file.path, file.deletes))
    gone = read_deletes(target, file.path, file.deletes) | BitMap64([first])
    deletes = tuple(write_deletes(target, {file: gone}, version))
    return RowDelta(scan.read_at, deletes, file.deletes, (), (file.path,))


def _all_gone(scan: Scan, _: TableTarget) -> RowDelta:
    removed = tuple(DataFile(file.path, file.record_count, 0, file.content) for file in scan.files)
    return RowDelta(scan.read_at, removed=removed)


@pytest.mark.parametrize(("path", "name"), [((), "at_day"), (("s",), "a_trunc_2")])
def test_a_new_column_may_not_have_the_name_of_a_partition_field(
    catalog: Catalog, path: tuple[str, ...], name: str
) -> None:
    """Nor of one that was there once."""
    _create(catalog, "day(at);truncate(s.a, 2)")
    for layout in (_layout(), _layout("")):
        catalog.arrange(_TABLE, layout)
        with pytest.raises(SpecError, match=f"{name}`, and the table has a partition field of this name"):
            catalog.evolve(_TABLE, lambda schema: extend_schema(schema, {path: {name: parse_type("string")}}))


def test_a_partition_field_gets_a_name_that_no_column_has(catalog: Catalog) -> None:
    _create(catalog)
    catalog.evolve(_TABLE, lambda schema: extend_schema(schema, {(): {"at_hour": parse_type("string")}}))
    arranged = catalog.arrange(_TABLE, _layout("hour(at);at_hour"))
    assert _words(arranged)[0] == ["hour(at)", "at_hour"]
    assert [field.name for field in arranged.partitioning.fields] == ["at_hour_2", "at_hour"]
