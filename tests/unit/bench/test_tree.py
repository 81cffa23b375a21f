"""The CPU of a process tree does not go back when its members end, however they are reaped."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.machine import CLOCK
from bench.tree import Tree, read_stat

_BURN = "import time\nwhile time.process_time() < 0.3: pass\n"
_PARENT = """
import signal, subprocess, sys
signal.signal(signal.SIGCHLD, signal.{disposition})
child = subprocess.Popen([sys.executable, "-c", {burn!r}])
sys.stdin.readline()
child.kill()
if signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL:
    child.wait()
print("reaped", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("disposition", ["SIG_DFL", "SIG_IGN"])
def test_a_dead_childs_time_stays_in_the_sum_whether_or_not_its_parent_reaps_it(disposition: str) -> None:
    script = _PARENT.format(disposition=disposition, burn=_BURN + "time.sleep(60)\n")
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        tree = Tree(parent.pid)
        deadline = CLOCK.monotonic_s() + 20
        while tree.cpu_by_role().get("workers", 0.0) < 0.25 and CLOCK.monotonic_s() < deadline:
            tree.find_members()
            tree.update()
            CLOCK.sleep(0.02)
        before = tree.cpu_s()
        parent.stdin.write("\n")
        assert parent.stdout.readline() == "reaped\n"
        tree.update()
        after = tree.cpu_s()
        parent.stdin.write("\n")
    tree.update()
    assert before >= 0.25
    assert after >= before
    assert tree.cpu_s() >= after
    assert read_stat(parent.pid) is None
