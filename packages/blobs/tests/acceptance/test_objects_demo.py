"""`frazil blobs demo` from its broker to its page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(400)]


def test_the_demo_ends_with_a_page_and_objects_that_are_well(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "frazil.cli.main", "blobs"]
    words = ["demo", "--dir", "d", "--pictures", "20", "--output", "json"]
    done = subprocess.run([*command, *words], cwd=tmp_path, capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    assert answer["rows"] == 25
    assert Path(answer["page"]).read_text().count("<figure>") == 8 * 2 * 9
    words = ["verify", "demo.pictures", "--all", "--output", "json"]
    verified = subprocess.run([*command, *words], cwd=tmp_path / "d", capture_output=True, text=True, check=True)
    snapshots = json.loads(verified.stdout)["snapshots"]
    assert [(snapshot["objects"], snapshot["missing"], snapshot["damaged"]) for snapshot in snapshots][-1] == (25, 0, 0)
    again = subprocess.run([*command, "demo", "--dir", "d"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (again.returncode, "the folder exists: nothing in it was changed" in again.stderr) == (2, True)
