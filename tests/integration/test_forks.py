"""A command that is forked for a test answers as one that its user starts."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from frazil.failpoints import VARIABLE
from tests.fixtures.forks import Fork
from tests.fixtures.processes import plain_environment
from tests.fixtures.waiting import PATIENCE_S
from tests.integration.pipelines import ended

_FILE = """
pipeline: p
kafka: {{bootstrap.servers: "127.0.0.1:1", sasl.password: "${{env:PASSWORD}}"}}
tables: {{s.t: {{topic: t, {setting}: 1s}}}}
"""


@pytest.mark.parametrize(
    ("environment", "setting"),
    [({}, "commit"), ({"PASSWORD": "hush", VARIABLE: "commit.before=kill"}, "commits")],
)
def test_it_prints_and_ends_as_one_that_is_started(environment: dict[str, str], setting: str, tmp_path: Path) -> None:
    (tmp_path / "frazil.yaml").write_text(_FILE.format(setting=setting))
    words = ["plan", "--output", "json", "--file", "frazil.yaml"]
    started = subprocess.run(
        [sys.executable, "-m", "frazil.cli.main", *words],
        cwd=tmp_path,
        env={**plain_environment(), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    forked = ended(tmp_path, Path("frazil.yaml"), *words[:-2], environment=environment)
    assert started.returncode == 2
    assert (forked.returncode, forked.stdout, forked.stderr) == (started.returncode, started.stdout, started.stderr)


def test_it_can_be_killed_and_the_next_one_is_not(tmp_path: Path) -> None:
    with TemporaryFile() as out:
        waiting = Fork(["dev", "broker", "--dir", str(tmp_path)], tmp_path, plain_environment(), out, out)
        assert waiting.poll() is None
        waiting.kill()
        assert waiting.wait(PATIENCE_S) == -signal.SIGKILL
        assert waiting.poll() == -signal.SIGKILL
        assert Fork(["--version"], tmp_path, plain_environment(), out, out).wait(PATIENCE_S) == 0
