"""Files that are left out by their partition, as Iceberg's Java library tells of it: none that has the key is among them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from frazil.catalog.layout import Layout
from frazil.catalog.scans import LiveFile
from frazil.clock import new_id
from frazil.runtime.jvm import Jvm
from frazil.schema.evolve import extend_schema, new_schema
from frazil.spec.partitioning import parse_term
from frazil.spec.syntax.types import parse_type
from frazil.types import Commit, Progress, Writer
from frazil.upsert.lookup.search import find_rows
from frazil.write.plain_target import plain_target
from frazil.write.target import TableTarget
from frazil.write.write import FileWriter
from tests.fixtures.slices import sliced
from tests.integration.lakes import PROPERTIES, Lake

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]

_KEYS: dict[str, list[Any]] = {
    "long": [-25, -1, 0, 9, 10, 77, 2**40],
    "string": ["", "ab", "abc", 'é"/% ', "null", "日本語", "x\x00"],
    "date": [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2026, 2, 28), date(9999, 12, 31)],
    "timestamptz": [datetime(1969, 12, 31, 23, 59, tzinfo=UTC) + timedelta(minutes=n * 40_000) for n in range(7)],
    "uuid": [bytes(range(n, n + 16)) for n in (0, 60, 120, 200)],
    "decimal(9,2)": [Decimal("-1.00"), Decimal("0.01"), Decimal("12.34"), Decimal("9999999.99")],
}
_LAYOUTS = {
    "long": ("k", "truncate(k, 10)", "bucket(k, 8)"),
    "string": ("k", "truncate(k, 2)", "bucket(k, 8)"),
    "date": ("k", "year(k)", "month(k)", "day(k)", "bucket(k, 8)"),
    "timestamptz": ("year(k)", "month(k)", "day(k)", "hour(k)", "bucket(k, 8)"),
    "uuid": ("bucket(k, 8)",),
    "decimal(9,2)": ("bucket(k, 8)",),
}


@pytest.fixture(scope="module")
def lake(jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(jvm, tmp_path_factory.mktemp("lake"))


@pytest.mark.parametrize("kind", _LAYOUTS)
def test_every_key_is_found_in_the_files_of_its_partition(lake: Lake, kind: str) -> None:
    for words in _LAYOUTS[kind]:
        name = _create(lake, kind, words)
        target, keys = _write(lake, name, _KEYS[kind])
        files = _files(lake, name)
        found = [find_rows(target, files, [keys.slice(n, 1)], [("k",)]) for n in range(len(keys))]
        assert [sum(hit.rows.size for hit in one.hits) for one in found] == [1] * len(keys), words
        assert [one.inspected for one in found] == [1] * len(keys), words


_WIDER: dict[str, tuple[str, list[Any], list[Any]]] = {
    "int": ("long", [-25, -1, 0, 77, 2**31 - 1], [2**40]),
    "decimal(9,2)": (
        "decimal(20,2)",
        [Decimal("-1.00"), Decimal("0.01"), Decimal("9999999.99")],
        [Decimal("123456789012345678.01")],
    ),
}


# The buckets of an int and a long are the same in contracts/test_transforms, and a truncated int is a truncated decimal.
@pytest.mark.parametrize(
    ("kind", "words"),
    sliced(
        [("int", "k"), ("decimal(9,2)", "truncate(k, 300)"), ("int", "truncate(k, 10)"), ("int", "bucket(k, 8)")], 2
    ),
)
def test_a_column_that_files_are_partitioned_by_may_become_wider(lake: Lake, kind: str, words: str) -> None:
    wide, before, new = _WIDER[kind]
    name = _create(lake, kind, words)
    _write(lake, name, before)
    lake.catalog.evolve(name, lambda schema: extend_schema(schema, {(): {"k": parse_type(wide)}}))
    target, keys = _write(lake, name, [*before, *new])
    expected = [2] * len(before) + [1] * len(new)
    for turn in range(2):
        files = _files(lake, name)
        found = [find_rows(target, files, [keys.slice(n, 1)], [("k",)]) for n in range(len(keys))]
        assert [sum(hit.rows.size for hit in one.hits) for one in found] == expected, turn
        static = StaticTable.from_metadata(str(lake.java(name).operations().current().metadataFileLocation()))
        of_each = [static.scan(f"k = {key}").to_arrow().num_rows for key in keys.to_pylist()]
        assert of_each == expected, turn
        if not turn:
            assert [one.failure for one in lake.maintenance(name) if one.action.kind == "compact"] == [""]
    assert len(files) == len(lake.metadata(name).files) == len({file.partition for file in lake.metadata(name).files})


def _create(lake: Lake, kind: str, words: str) -> str:
    name = f"t.keys_{new_id()[:8]}"
    lake.catalog.create(name, new_schema([("k", parse_type(kind))]), PROPERTIES, 3, Layout((parse_term(words),), ()))
    return name


def _write(lake: Lake, name: str, values: list[Any]) -> tuple[TableTarget, pa.Array]:
    """A batch of these keys."""
    state = lake.catalog.load(name)
    assert state is not None
    target = plain_target(state)
    writer = FileWriter(target)
    keys = pa.array(values, target.arrow_schema.field("k").type)
    writer.write(pa.Table.from_arrays([keys], schema=target.arrow_schema))
    progress = Progress({"topic": {0: 1}}, {"topic": "id"}, "c", new_id(), Writer(1, "run"))
    lake.catalog.commit(Commit(name, tuple(writer.finish()), progress, state.progress))
    return target, keys


def _files(lake: Lake, name: str) -> list[LiveFile]:
    """As a fresh process has them, and as if nothing but their partitions told of their keys."""
    fresh = lake.connect()
    fresh.load(name)
    return [_without_bounds(file) for file in fresh.scan(name).files]


def _without_bounds(file: LiveFile) -> LiveFile:
    described = {name: word for name, word in json.loads(file.content).items() if not name.endswith("-bounds")}
    return replace(file, content=json.dumps(described))
