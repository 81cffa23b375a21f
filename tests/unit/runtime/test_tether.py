"""A tethered child ends with its parent, however the parent ends, and not when some thread of it does."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from frazil.runtime.tether import spawn_tethered

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a parent-death signal")

_PARENT = """
import sys, time
from pathlib import Path
from frazil.runtime.tether import spawn_tethered
print(spawn_tethered(["/bin/sleep", "60"], log=Path(sys.argv[1])).pid, flush=True)
time.sleep(60)
"""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except FileNotFoundError:
        return False


def ends_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not is_alive(pid)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_child_ends_when_the_parent_is_killed(tmp_path: Path, how: signal.Signals) -> None:
    command = [sys.executable, "-c", _PARENT, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_alive(child)
        parent.send_signal(how)
    assert ends_within(child, 5)


def test_the_child_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    children: list[subprocess.Popen[bytes]] = []
    asker = threading.Thread(target=lambda: children.append(spawn_tethered(["/bin/sleep", "60"], log=tmp_path / "log")))
    asker.start()
    asker.join()
    time.sleep(0.2)
    assert children[0].poll() is None
    children[0].kill()
    assert children[0].wait(5) == -signal.SIGKILL


def test_what_the_child_prints_is_in_the_log(tmp_path: Path) -> None:
    child = spawn_tethered(["/bin/sh", "-c", "echo out; echo err >&2"], log=tmp_path / "log")
    assert child.wait(5) == 0
    assert (tmp_path / "log").read_text() == "out\nerr\n"


def test_a_log_that_cannot_be_written_is_an_error_here(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        spawn_tethered(["/bin/true"], log=tmp_path / "nowhere" / "log")
