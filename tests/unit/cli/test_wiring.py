"""A catalog on SQLite whose file is lost is not made again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.cli.wiring import open_catalog
from frazil.errors import UnavailableError
from frazil.spec import CatalogSpec, PipelineSpec


def test_a_catalog_whose_file_is_gone_is_not_made_again_while_the_last_run_had_tables_in_it(tmp_path: Path) -> None:
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


def test_a_state_file_without_a_commit_holds_nothing_up(tmp_path: Path) -> None:
    file = tmp_path / "data" / "catalog.db"
    catalog = CatalogSpec(uri=f"jdbc:sqlite:{file}")
    spec = PipelineSpec(pipeline="p", kafka={}, catalog=catalog, tables=(), path=tmp_path, state_dir=tmp_path)
    (tmp_path / "p.json").write_text(json.dumps({"tables": {"s.new": {"last_commit_ms": None}}}))
    no_jvm: Any = None
    with pytest.raises(AttributeError):  # There is no JVM to open it with.
        open_catalog(no_jvm, spec)
    assert file.exists()
