"""docs/contributing/command.md: a command of a package, in the list of commands and called."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from frazil.cli.commands import REGISTERED
from frazil.cli.main import main
from frazil.plugins import registration
from tests.unit.contributing.conftest import Install
from tests.unit.spec.pipeline_file import with_section

Captured = pytest.CaptureFixture[str]


def test_a_command_of_a_package_is_listed_and_runs(
    example: Install, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example("command.md")
    assert main(["--help"]) == 0
    assert "List the tables of the pipeline file." in capsys.readouterr().out
    file = tmp_path / "frazil.yaml"
    file.write_text(with_section(""))
    assert main(["tables", "-f", str(file), "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"tables": ["shop.x"]}
    monkeypatch.setenv("FRAZIL_TABLES_FILE", str(file))
    monkeypatch.setenv("FRAZIL_TABLES_OUTPUT", "json")
    assert main(["tables"]) == 0
    assert json.loads(capsys.readouterr().out) == {"tables": ["shop.x"]}
    assert main(["tables", "--nothing"]) == 2
    assert "see frazil tables --help" in capsys.readouterr().out


def test_a_package_that_cannot_be_imported_fails_its_own_command_alone(package: Install, capsys: Captured) -> None:
    package("broken", "import no_such_module", "frazil.commands", "broken = broken:COMMAND")
    reason = "the command `broken` of the package broken cannot be imported: ModuleNotFoundError"
    assert main(["--help"]) == 0
    assert "broken" in capsys.readouterr().out
    assert main(["schema", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Frazil pipeline"
    assert main(["broken"]) == 2
    shown = capsys.readouterr().err
    assert reason in shown
    assert "remedy: correct or reinstall the package broken" in shown


def test_help_names_the_extra_of_a_command_that_is_not_installed(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "_installed", lambda _: ())
    monkeypatch.setattr(REGISTERED, "_loaded", {})
    assert main(["--help"]) == 0
    assert "install `frazil[demo]` with pip" in " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_a_package_cannot_replace_a_command(package: Install, capsys: Captured) -> None:
    package("broken", "import no_such_module", "frazil.commands", "schema = broken:COMMAND")
    assert main(["schema", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Frazil pipeline"
