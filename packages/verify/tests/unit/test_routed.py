"""A table of a route takes the records with its values, also where a state file alone knows of the table."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.schema import Schema

from frazil.catalog.port import TableState
from frazil.ingest.tables.table import Table
from frazil.spec import PipelineSpec, load_spec
from frazil.types import DerivedTable, Progress, RestProgress
from frazil_testing.twins import MemoryCatalog
from frazil_verify.routed import with_values

FILE = """
pipeline: p
kafka: {bootstrap.servers: 'localhost:1'}
tables: {r.other: {topic: u}}
routes: [{topic: t, by: type, to: 'r.${type}', rest: r.rest}]
"""
DERIVED = tuple(DerivedTable(f"r.{value}", (value,), {"t": {0: 3}}) for value in ("order", "refund"))


@pytest.fixture
def spec(tmp_path: Path) -> PipelineSpec:
    """A route, and another table."""
    file = tmp_path / "frazil.yaml"
    file.write_text(FILE)
    return load_spec(file, {})


def test_derived_tables_have_their_values_and_others_stay(
    spec: PipelineSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = MemoryCatalog(tmp_path, "p")
    rest = TableState("r.rest", "id", Schema(), "", {}, 2, progress=Progress(rest=RestProgress(DERIVED)))
    monkeypatch.setattr(catalog, "load", {"r.rest": rest}.get)
    named = spec.named_table("r.order")
    assert named is not None
    assert named.source.share is None
    tables = [Table(named), *(Table(of) for of in spec.tables if of.name == "r.other")]
    order, other = with_values(spec, catalog, tables, is_every=False)
    assert order.spec.source.share is not None
    assert (order.spec.source.share.values, other.name, other.spec.source.share) == (("order",), "r.other", None)
    every = with_values(spec, catalog, tables, is_every=True)
    assert [table.name for table in every] == ["r.order", "r.other", "r.refund"]
