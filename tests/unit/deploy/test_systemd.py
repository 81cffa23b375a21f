"""The unit: accepted by systemd, and shut off as far as a JVM bears it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from docs.scan import ROOT
from frazil.cli.run import command as run_command
from frazil.errors import FencedError, SpecError

UNIT = ROOT / "deploy/systemd/frazil@.service"
_MOST_EXPOSED = 20
"""In tenths: what `systemd-analyze security` calls OK ends at 4.9; 9.6 is a unit without any of it."""


def settings() -> dict[str, str]:
    lines = [line for line in UNIT.read_text().splitlines() if "=" in line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit of one pipeline, whose program exists on this machine."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze on this machine")
    (tmp_path / UNIT.name).write_text(UNIT.read_text().replace("/opt/frazil/bin/frazil", "/bin/true"))
    path = tmp_path / "frazil@shop.service"
    shutil.copyfile(tmp_path / UNIT.name, path)
    return path


def test_systemd_finds_nothing_wrong(unit: Path) -> None:
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_unit_is_hardened(unit: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=yes", f"--threshold={_MOST_EXPOSED}", str(unit)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    assert "MemoryDenyWriteExecute" not in settings()


def test_systemd_waits_longer_than_a_batch_has_to_be_committed() -> None:
    assert run_command.__defaults__ is not None
    assert "25s" in run_command.__defaults__
    assert int(settings()["TimeoutStopSec"]) > 25


def test_what_a_restart_cannot_mend_is_not_restarted() -> None:
    codes = {int(code) for code in settings()["RestartPreventExitStatus"].split()}
    assert codes == {SpecError.exit_code, FencedError.exit_code}
