"""Starts a child process that dies with this one, also when this one is killed with SIGKILL.

Linux sends the parent-death signal when the *thread* that started the child ends, so a thread of its own starts the
child and then waits for it. The signal is asked for by a short script that replaces itself with the command (the pid
stays), not in a `preexec_fn`: that would run Python between fork and exec in a process with threads. Elsewhere than on
Linux the child survives a SIGKILL of its parent.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

_SCRIPT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


def spawn_tethered(
    command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None, directory: Path | None = None
) -> subprocess.Popen[bytes]:
    """Starts `command` (its first word an absolute path) in a session of its own, so that a Ctrl-C in the terminal does
    not reach it; what it prints is appended to `log`. directory: where it runs, this process's own when not given.
    """
    words = list(command)
    if sys.platform == "linux":
        words = [sys.executable, "-I", "-S", "-c", _SCRIPT, str(os.getpid()), *words]
    started: queue.SimpleQueue[subprocess.Popen[bytes] | OSError] = queue.SimpleQueue()

    def keep() -> None:
        try:
            with log.open("ab") as output:
                child = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env=environment,
                    cwd=directory,
                )
        except OSError as error:
            started.put(error)
            return
        started.put(child)
        child.wait()

    threading.Thread(target=keep, name="tether", daemon=True).start()
    outcome = started.get()
    if isinstance(outcome, OSError):
        raise outcome
    return outcome
