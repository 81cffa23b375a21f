"""A tethered child ends with its parent, however the parent ends, and not when some thread of it does."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from frazil.runtime.tether import spawn_tethered
from tests.fixtures.processes import is_alive, state_of, wait_until_ended
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a parent-death signal")

_PARENT = """
import sys, time
from pathlib import Path
from frazil.runtime.tether import spawn_tethered
print(spawn_tethered(["/bin/sleep", "60"], log=Path(sys.argv[1])).pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_child_ends_when_the_parent_is_killed(tmp_path: Path, how: signal.Signals) -> None:
    command = [sys.executable, "-c", _PARENT, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_alive(child)
        parent.send_signal(how)
    wait_until_ended(child, 5)


def test_the_child_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    children: list[subprocess.Popen[bytes]] = []

    def ask() -> None:
        children.append(spawn_tethered(["/bin/sleep", "60"], log=tmp_path / "log"))
        command = Path(f"/proc/{children[0].pid}/cmdline")
        # Only then has it asked for the signal.
        wait_until(lambda: command.read_bytes().startswith(b"/bin/sleep"), "the child is the command", 5)

    asker = threading.Thread(target=ask)
    asker.start()
    thread = Path(f"/proc/self/task/{asker.native_id}")
    asker.join()
    wait_until(lambda: not thread.exists(), "the thread is gone", 5)
    # SIGKILL goes before any other signal: a child that stops has not got one.
    children[0].send_signal(signal.SIGSTOP)
    wait_until(lambda: state_of(children[0].pid) in "TZ", "the child has stopped", 5)
    assert is_alive(children[0].pid)
    children[0].kill()
    assert children[0].wait(5) == -signal.SIGKILL


def test_what_the_child_prints_is_in_the_log(tmp_path: Path) -> None:
    child = spawn_tethered(["/bin/sh", "-c", "echo out; echo err >&2"], log=tmp_path / "log")
    assert child.wait(5) == 0
    assert (tmp_path / "log").read_text() == "out\nerr\n"


def test_a_log_that_cannot_be_written_is_an_error_here(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        spawn_tethered(["/bin/true"], log=tmp_path / "nowhere" / "log")
