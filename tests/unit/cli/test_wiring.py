"""A catalog on SQLite whose file is lost is not made again; a command that reads starts one JVM, or none."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from frazil.api import wiring
from frazil.api.check import _lost_catalog
from frazil.api.running import warn_of_other_catalog
from frazil.api.status import kept_open
from frazil.api.wiring import catalog_address, catalog_and_queries, open_catalog, sqlite_file
from frazil.errors import SpecError, UnavailableError
from frazil.ingest.tables.table import Table
from frazil.ops.state_file import StateFile
from frazil.spec import CatalogSpec, PipelineSpec, TableSpec, TopicSelector, load_spec
from frazil_testing.twins import FakeClock


def test_a_missing_catalog_file_is_not_created_again_where_the_last_run_had_tables(tmp_path: Path) -> None:
    file = tmp_path / "data" / "catalog.db"
    catalog = CatalogSpec(uri=f"jdbc:sqlite:{file}")
    spec = PipelineSpec(pipeline="p", kafka={}, catalog=catalog, tables=(), path=tmp_path, state_dir=tmp_path)
    state = tmp_path / "p.json"
    state.write_text(json.dumps({"tables": {"s.new": {"last_commit_ms": None}, "s.old": {"last_commit_ms": 1}}}))
    no_jvm: Any = None
    with pytest.raises(UnavailableError, match="file is not there") as raised:
        open_catalog(no_jvm, spec)
    assert raised.value.where == str(file)
    assert str(state) in raised.value.remedy
    assert not file.parent.exists()
    state.unlink()
    with pytest.raises(AttributeError):  # There is no JVM to open it with.
        open_catalog(no_jvm, spec)
    assert file.exists()


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (CatalogSpec(uri="jdbc:sqlite:/lake/catalog.db"), "other.db"),
        (CatalogSpec(type="rest", uri="http://rest:8181", warehouse="w"), "catalog.db"),
        (CatalogSpec(type="glue", uri="", warehouse="s3://bucket/w"), "catalog.db"),
    ],
)
def test_a_run_with_another_catalog_reports_it_until_the_address_is_the_former(
    tmp_path: Path, before: CatalogSpec, now: str
) -> None:
    file = tmp_path / "data" / now
    spec = PipelineSpec(pipeline="p", kafka={}, catalog=before, tables=(), path=tmp_path, state_dir=tmp_path)
    state = StateFile(tmp_path, "p", FakeClock(), str, catalog_address(spec))
    table = Table(TableSpec(name="s.old", topics=(TopicSelector(literal="a"),)))
    state.write([table])
    document = json.loads(state.path.read_text())
    document["tables"]["s.old"]["last_commit_ms"] = 1
    state.path.write_text(json.dumps(document))
    other = spec.model_copy(update={"catalog": CatalogSpec(uri=f"jdbc:sqlite:{file}")})
    no_jvm: Any = None
    with pytest.raises(SpecError, match="committed to tables in another catalog") as raised:
        open_catalog(no_jvm, other)
    assert catalog_address(spec) in raised.value.message
    assert raised.value.where == str(file)
    assert "correct `catalog.uri`" in raised.value.remedy
    assert str(state.path) in raised.value.remedy
    with pytest.raises(UnavailableError, match="in another catalog"), kept_open(other, ExitStack(), []):
        pytest.fail("status shows no tables of a catalog that is none")
    [finding] = _lost_catalog(other)
    assert (finding.name, finding.is_ok, finding.remedy) == ("catalog", False, raised.value.remedy)
    with capture_logs() as logged:
        warn_of_other_catalog(spec)
        assert logged == []
        warn_of_other_catalog(other)
    assert [(one["event"], one["before"], one["now"]) for one in logged] == [
        ("catalog_changed", catalog_address(spec), catalog_address(other))
    ]
    state.path.unlink()  # As the remedy says, to begin again.
    with pytest.raises(AttributeError):  # There is no JVM to open it with.
        open_catalog(no_jvm, other)


def test_a_state_file_without_a_commit_holds_nothing_up(tmp_path: Path) -> None:
    file = tmp_path / "data" / "catalog.db"
    catalog = CatalogSpec(uri=f"jdbc:sqlite:{file}")
    spec = PipelineSpec(pipeline="p", kafka={}, catalog=catalog, tables=(), path=tmp_path, state_dir=tmp_path)
    (tmp_path / "p.json").write_text(json.dumps({"tables": {"s.new": {"last_commit_ms": None}}}))
    no_jvm: Any = None
    with pytest.raises(AttributeError):  # There is no JVM to open it with.
        open_catalog(no_jvm, spec)
    assert file.exists()


class _NoJvm:
    """What is asked for in place of a JVM."""

    started: list[bool]

    def __init__(self, _conf: object, _needs_s3: bool, needs_spark_jars: bool) -> None:
        self.started.append(needs_spark_jars)
        self.gateway = self.hadoop = None

    def close(self) -> None:
        """Nothing runs."""


class _Opened:
    """In place of a catalog of Iceberg's."""

    def with_branches(self, branches: Callable[[str], str]) -> _Opened:
        assert branches("s.t") == "main"
        return self


@pytest.mark.parametrize(
    ("query", "has_tables", "jvms"),
    [("", False, []), ("", True, [False]), (", select: SELECT *", False, [True]), (", select: SELECT *", True, [True])],
)
def test_the_catalog_is_opened_where_queries_are_analysed(
    query: str, has_tables: bool, jvms: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "frazil.yaml"
    file.write_text(f"pipeline: p\nkafka: {{bootstrap.servers: 'k:1'}}\ntables: {{s.t: {{topic: t{query}}}}}\n")
    monkeypatch.chdir(tmp_path)
    spec = load_spec(file)
    if has_tables:
        local = sqlite_file(spec)
        assert local is not None
        local.parent.mkdir()
        with closing(sqlite3.connect(local)) as database:
            database.execute("create table iceberg_tables (name text)")
    _NoJvm.started = []
    monkeypatch.setattr(wiring, "LightJvm", _NoJvm)
    monkeypatch.setattr(wiring, "IcebergCatalog", lambda *_: _Opened())
    with catalog_and_queries(spec) as (catalog, queries):
        assert _NoJvm.started == jvms
        assert (isinstance(catalog, _Opened), queries is not None) == (has_tables, bool(query))
