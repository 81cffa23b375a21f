"""The limits of what a lookup sends to tasks: at a limit the table is read, above it the table waits, and another table of
the pipeline is read in any case.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from frazil.ingest.tables.state import RunState
from frazil.spec import PipelineSpec
from frazil.spec.settings import LookupSpec
from frazil_lookup import references
from packages.lookup.tests.unit.test_lookups import COUNTRIES, COUNTRY, SCHEMA, put
from tests.unit.ingest.service_scene import Scene

SOURCES = ("table", "parquet", "csv")
RECORDS = [{"id": 1, "country_code": "de"}, {"id": 2, "country_code": "us"}]


class _Neighbours(Scene):
    """Two topics, of which the table of the first one alone has a lookup."""

    def spec(self, *topics: str) -> PipelineSpec:
        made = super().spec(*topics)
        first, second = made.tables
        return made.model_copy(update={"tables": (first, second.model_copy(update={"lookup": ()}))})


@pytest.fixture(autouse=True)
def _with_queries(scene: Any) -> None:
    """Services of scenes analyse queries."""


def _scene(tmp_path: Path, source: str) -> Scene:
    """The topics with records, and the rows that are looked up in a table or a file."""
    file = tmp_path / f"countries.{source}"
    rows = pa.table({name: [row[n] for row in COUNTRIES] for n, name in enumerate(("code", "name", "region"))})
    if source == "parquet":
        pq.write_table(rows, file)
    elif source == "csv":
        csv.write_csv(rows, file)
    given = COUNTRY if source == "table" else {**COUNTRY, "table": "", "file": str(file)}
    scene = _Neighbours(tmp_path, "a", "b", lookup=(LookupSpec(**{"name": "country", **given}),))
    scene.catalog.create("ref.countries", SCHEMA, {}, 2)
    put(scene, COUNTRIES)
    scene.feed("a", *RECORDS)
    scene.feed("b", {"id": 7})
    return scene


def _run(scene: Scene) -> str:
    """Returns why the first table waits; empty where it does not."""
    service = scene.start()
    for _ in range(12):
        service.turn(until_caught_up=True)
    first, second = service.tables
    assert (second.status.run_state, [row["id"] for row in scene.rows("n.b")]) == (RunState.WAITING, [7])
    return first.status.reason


def _ids(scene: Scene) -> list[Any]:
    return [row["id"] for row in scene.rows("n.a")] if scene.catalog.load("n.a") is not None else []


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_reference_table_with_one_row_too_many_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, more: int
) -> None:
    monkeypatch.setattr(references, "MOST_ROWS", len(COUNTRIES) - more)
    scene = _scene(tmp_path, source)
    assert ("too large" in _run(scene)) == (more > 0)
    assert _ids(scene) == ([] if more > 0 else [1, 2])


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_columns_of_one_byte_too_many_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, more: int
) -> None:
    monkeypatch.setattr(references, "MOST_BYTES", 1)
    scene = _scene(tmp_path, source)
    size = re.search(r"(\d+) bytes, and at most", _run(scene))
    assert size is not None
    monkeypatch.setattr(references, "MOST_BYTES", int(size[1]) - more)
    assert ("too large" in _run(scene)) == (more > 0)
    assert _ids(scene) == ([] if more > 0 else [1, 2])
