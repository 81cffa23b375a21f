"""A command that is forked for a test answers as one that its user starts, and so does what its Python workers come from."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from frazil.clock import new_id
from frazil.failpoints import VARIABLE
from tests.fixtures.forks import Fork, python_of_commands
from tests.fixtures.processes import marked, plain_environment, stat_of, wait_until_ended
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
def test_a_forked_program_prints_and_ends_as_a_started_one(
    environment: dict[str, str], setting: str, tmp_path: Path
) -> None:
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


def test_a_forked_program_can_be_killed_and_the_next_one_lives(tmp_path: Path) -> None:
    with TemporaryFile() as out:
        waiting = Fork(["dev", "broker", "--dir", str(tmp_path)], tmp_path, plain_environment(), out, out)
        assert waiting.poll() is None
        waiting.kill()
        assert waiting.wait(PATIENCE_S) == -signal.SIGKILL
        assert waiting.poll() == -signal.SIGKILL
        assert Fork(["--version"], tmp_path, plain_environment(), out, out).wait(PATIENCE_S) == 0


def test_what_workers_come_from_is_found_and_forks_and_ends_as_one_that_a_jvm_starts(tmp_path: Path) -> None:
    started, forked, port = _daemon(tmp_path)
    assert Path(f"/proc/{forked}/cwd").readlink() == tmp_path
    files = resource.RLIMIT_NOFILE
    assert resource.prlimit(forked, files) == resource.getrlimit(files)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        worker = int.from_bytes(connection.recv(4))
        assert int(stat_of(worker)[1]) == forked
        started.communicate()  # Closes its standard input.
        assert started.wait(PATIENCE_S) == 1  # As PySpark ends it.
    wait_until_ended(forked, PATIENCE_S)
    wait_until_ended(worker, PATIENCE_S)


def test_where_it_is_killed_its_jvm_sees_that(tmp_path: Path) -> None:
    started, forked, _ = _daemon(tmp_path)
    with started:
        os.kill(forked, signal.SIGKILL)
        assert started.wait(PATIENCE_S) == -signal.SIGKILL


def _daemon(folder: Path) -> tuple[subprocess.Popen[bytes], int, int]:
    """What a JVM starts, the process that stands behind it, and the port of that."""
    mark = new_id()
    words = [str(python_of_commands()), "-m", "frazil.ingest.tasks.daemon", "pyspark.worker"]
    environment = {**plain_environment(), "FRAZIL_TESTS_MARK": mark}
    started = subprocess.Popen(words, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert started.stdout is not None
    port = int.from_bytes(started.stdout.read(4))
    [forked] = [pid for pid in marked(f"FRAZIL_TESTS_MARK={mark}") if pid != started.pid]
    return started, forked, port
