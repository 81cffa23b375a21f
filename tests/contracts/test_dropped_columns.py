"""The Catalog port on Iceberg's JDBC catalog: tables that have dropped the column of an older partition spec."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from frazil.catalog.layout import Layout
from frazil.catalog.port import Catalog, TableState
from frazil.catalog.scans import LiveFile
from frazil.clock import new_id
from frazil.errors import SpecError
from frazil.runtime.jvm import Jvm
from frazil.schema.evolve import extend_schema, new_schema
from frazil.spec.partitioning import parse_term
from frazil.spec.syntax.types import parse_type
from frazil.types import Commit, DataFile, Progress, RowDelta
from frazil.upsert.lookup.delete_files import read_deletes, write_deletes
from frazil.write.plain_target import plain_target
from frazil.write.write import FileWriter
from tests.contracts.catalogs import IcebergLake
from tests.fixtures.slices import sliced

pytestmark = pytest.mark.jvm
_TABLE = "lake.sub.t"
_COLUMNS = {
    "id": "long", "region": "string", "amount": "decimal(9,2)", "rate": "double", "at": "timestamptz",
    "deep": "struct<a: string, b: long>",
}  # fmt: skip
_TERMS = (
    "region", "truncate(region, 2)", "amount", "rate", "deep.a", "bucket(region, 4)", "day(at)", "void(region)",
    "region;bucket(id, 2)", "bucket(id, 2);truncate(amount, 10)",
)  # fmt: skip
# In time: each with one of the versions.
_VERSIONS = [(terms, 2 + (place + turn) % 2) for turn in range(2) for place, terms in enumerate(_TERMS)]


@pytest.fixture
def lake(jvm: Jvm, folder: Path) -> IcebergLake:
    return IcebergLake(jvm, folder)


def _layout(terms: str) -> Layout:
    return Layout(tuple(map(parse_term, filter(None, terms.split(";")))))


def _create(catalog: Catalog, terms: str, version: int) -> TableState:
    schema = new_schema((name, parse_type(word)) for name, word in _COLUMNS.items())
    return catalog.create(_TABLE, schema, {}, version, _layout(terms))


def _load(catalog: Catalog) -> TableState:
    state = catalog.load(_TABLE)
    assert state is not None
    return state


def _append(catalog: Catalog, ids: Iterable[int]) -> None:
    state = _load(catalog)
    target = plain_target(state)
    rows = [
        {"id": n, "region": f"eu{n % 2}", "amount": n % 2, "rate": float("nan") if n % 2 else 0.5}
        | {"deep": {"a": f"a{n % 2}", "b": n}}
        for n in ids
    ]
    columns = {field.name for field in state.schema.fields}
    writer = FileWriter(target)
    kept = [{name: value for name, value in row.items() if name in columns} for row in rows]
    writer.write(pa.Table.from_pylist(kept, target.arrow_schema))
    files = tuple(writer.finish())
    catalog.commit(Commit(_TABLE, files, Progress(offsets={"a": {0: 1}}, commit_id=new_id()), state.progress))


def _delete_some(catalog: Catalog) -> int:
    """Deletes the first row that is left, of each file of the table; returns the number of rows."""
    state, scan = _load(catalog), catalog.scan(_TABLE)
    target, gone = plain_target(state), {}
    for file in scan.files:
        before = read_deletes(target, file.path, file.deletes)
        left = next((n for n in range(file.record_count) if n not in before), None)
        if left is not None:
            gone[file] = before | BitMap64([left])
    deletes = tuple(write_deletes(target, gone, state.format_version))
    replaced = tuple(delete for file in gone for delete in file.deletes)
    delta = RowDelta(scan.read_at, deletes, replaced, (), tuple(file.path for file in gone))
    catalog.commit(Commit(_TABLE, (), Progress(offsets={"a": {0: 1}}, commit_id=new_id()), state.progress, delta))
    return len(gone)


def _scanned(lake: IcebergLake) -> tuple[LiveFile, ...]:
    catalog = lake.catalog()
    _load(catalog)
    return catalog.scan(_TABLE).files


def _dropped(lake: IcebergLake, terms: str) -> None:
    """Drops the partition fields, and then their columns."""
    lake.catalog().arrange(_TABLE, _layout(""))
    for term in _layout(terms).partition_by or ():
        if term.column != "id":
            lake.drop_column(_TABLE, term.column)


@pytest.mark.parametrize(("terms", "version"), sliced(_VERSIONS, len(_TERMS)))
def test_rows_of_an_older_spec_are_deleted_after_its_column(lake: IcebergLake, terms: str, version: int) -> None:
    _create(lake.catalog(), terms, version)
    _append(lake.catalog(), range(8))
    _append(lake.catalog(), range(10, 18))
    deleted = _delete_some(lake.catalog())
    _dropped(lake, terms)
    _append(lake.catalog(), [100])
    for _ in range(2):
        deleted += _delete_some(lake.catalog())
        assert len(lake.column(_TABLE, "id")) == 17 - deleted
    _append(lake.catalog(), [101])
    assert len(lake.column(_TABLE, "id")) == 18 - deleted


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_column_may_have_the_name_of_a_partition_field_whose_column_is_gone(lake: IcebergLake, version: int) -> None:
    terms = "region;truncate(deep.a, 2);bucket(amount, 4)"
    _create(lake.catalog(), terms, version)
    _append(lake.catalog(), range(4))
    lake.catalog().arrange(_TABLE, _layout(""))
    lake.drop_column(_TABLE, "region")
    lake.drop_column(_TABLE, "deep")
    catalog = lake.catalog()
    names = ("region", "deep.a_trunc_2")
    catalog.evolve(_TABLE, lambda schema: extend_schema(schema, {(): dict.fromkeys(names, parse_type("string"))}))
    with pytest.raises(SpecError, match="amount_bucket_4`, and the table has a partition field of this name"):
        catalog.evolve(_TABLE, lambda schema: extend_schema(schema, {(): {"amount_bucket_4": parse_type("long")}}))
    _append(lake.catalog(), [5])
    assert lake.column(_TABLE, "id") == [0, 1, 2, 3, 5]
    assert {*names} <= {field.name for field in _load(lake.catalog()).schema.fields}
    assert len(_scanned(lake)) == 3


def test_manifests_that_another_writer_has_merged_since_lose_no_file(lake: IcebergLake) -> None:
    """Iceberg has written null for the values of the first two files by then, and noted that there is no null."""
    _create(lake.catalog(), "region", 3)
    for n in (0, 2):
        _append(lake.catalog(), [n, n + 10])
    _dropped(lake, "region")
    lake.append_foreign(_TABLE)
    for left in (2, 0):
        _delete_some(lake.catalog())
        assert len(lake.column(_TABLE, "id")) == left
    catalog = lake.catalog()
    state, scan = _load(catalog), catalog.scan(_TABLE)
    removed = tuple(DataFile(file.path, file.record_count, 0, file.content) for file in scan.files)
    progress = Progress(offsets={"a": {0: 1}}, commit_id=new_id())
    catalog.commit(Commit(_TABLE, (), progress, state.progress, RowDelta(scan.read_at, removed=removed)))
    assert catalog.size(_TABLE).file_count == 0


def test_equality_deletes_by_such_a_partition_are_not_lost(lake: IcebergLake) -> None:
    _create(lake.catalog(), "region", 2)
    for n in (0, 2, 4):
        _append(lake.catalog(), [n, n + 1])
    lake.delete_equal(_TABLE, 2)
    _dropped(lake, "region")
    assert lake.column(_TABLE, "id") == [0, 1, 3, 4, 5]
    for change in (lambda: _append(lake.catalog(), [9]), lambda: _delete_some(lake.catalog())):
        with pytest.raises(SpecError, match="partitioned by a column that the table has dropped"):
            change()
    assert lake.column(_TABLE, "id") == [0, 1, 3, 4, 5]
