"""`frazil maintain --dry-run` on tables on paper: what it prints, in both forms."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from frazil.cli import maintain
from frazil.cli.main import main
from frazil_testing.twins import FakeClock
from tests.unit.maintenance.scheduler_scene import MemoryMaintenance
from tests.unit.maintenance.tables import MIB, line, table
from tests.unit.ops.conftest import Scenario

Command = Callable[..., Any]
SIZES = "t.a 1 file × 1.0 MiB (median), 0% small, 1 snapshot "


@pytest.fixture
def frazil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command on a file whose table `t.a` has these settings: its JSON document, or with form="text" its words."""
    monkeypatch.chdir(tmp_path)
    scenario, table_maintenance = Scenario(tmp_path), MemoryMaintenance(table(line(1), {"": [MIB]}), FakeClock())
    monkeypatch.setattr(maintain, "topics_for_reading", lambda _spec: scenario.source)
    monkeypatch.setattr(maintain, "has_catalog", lambda _spec: True)
    monkeypatch.setattr(maintain, "light_jvm", lambda _spec: nullcontext())
    monkeypatch.setattr(maintain, "open_catalog_for_reading", lambda _jvm, _spec: None)
    monkeypatch.setattr(maintain, "IcebergMaintenance", lambda _catalog: table_maintenance)

    def run(settings: str = "", form: str = "json") -> Any:
        scenario.spec(f"tables: {{t.a: {{topic: a, {settings}}}}}\n")
        assert main(["maintain", "--dry-run", "-f", str(tmp_path / "frazil.yaml"), "--output", form]) == 0
        reported = capsys.readouterr().out
        return json.loads(reported) if form == "json" else " ".join(reported.split())

    return run


def test_one_table_is_named_in_either_way(frazil: Command, capsys: pytest.CaptureFixture[str]) -> None:
    frazil()
    file = str(Path.cwd() / "frazil.yaml")
    for words in (["t.a"], ["--table", "t.a"], ["t.a", "--table", "t.a"]):
        assert main(["maintain", *words, "--dry-run", "-f", file]) == 0
        assert "t.a" in capsys.readouterr().out
    assert main(["maintain", "t.a", "--table", "t.b", "--dry-run", "-f", file]) == 2
    assert "remedy: leave one of the two out" in capsys.readouterr().err
    assert main(["maintain", "t.c", "--dry-run", "-f", file]) == 2
    assert "did you mean `t.a`?" in capsys.readouterr().err


def test_a_table_that_no_run_has_created_is_named(
    frazil: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    frazil()
    monkeypatch.setattr(maintain, "has_catalog", lambda _spec: False)
    for words, shown in (([], "no tables yet"), (["t.a"], "t.a does not exist yet")):
        assert main(["maintain", *words, "-f", str(Path.cwd() / "frazil.yaml")]) == 0
        assert capsys.readouterr().out == f"{shown}\n"


def test_a_plan_reports_what_is_due_why_and_what_it_brings(frazil: Command) -> None:
    reason, gain = "files that no snapshot references were never looked for", "the space of those older than 72 h"
    found = frazil()["tables"]["t.a"]
    assert found["actions"] == [{"action": "orphans", "reason": reason, "gain": gain}]
    assert (found["health"]["files"], found["health"]["p50_bytes"], found["waiting"]) == (1, MIB, [])
    assert frazil(form="text") == f"{SIZES}orphans: {reason}; {gain}"


def test_a_table_without_maintenance_is_not_reported_to_need_none(frazil: Command) -> None:
    found = frazil("maintenance: false")["tables"]["t.a"]
    assert (found["actions"], found["waiting"]) == ([], ["`maintenance` is false in this pipeline file"])
    assert frazil("maintenance: false", form="text") == f"{SIZES}waiting: `maintenance` is false in this pipeline file"
