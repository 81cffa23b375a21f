"""Starts a child process that ends with this process, also when this process is killed by SIGKILL.

Linux sends the parent-death signal when the *thread* that started the child ends, so a thread of its own starts the
child and waits for it. A short script requests the signal and replaces itself with the command (the pid stays); a
`preexec_fn` would run Python between fork and exec in a process with threads. On other systems than Linux the child
survives a SIGKILL of its parent.
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


def tethered(command: Sequence[str]) -> list[str]:
    """Returns the command line that runs `command` (its first word is an absolute path) as a child that ends with the
    thread that starts it, which therefore waits for the child; on other systems than Linux, `command` itself.
    """
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _SCRIPT, str(os.getpid()), *command]


def spawn_tethered(
    command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None, directory: Path | None = None
) -> subprocess.Popen[bytes]:
    """Starts `command` (its first word is an absolute path) in a session of its own, so that Ctrl-C in the terminal
    does not reach it; its output is appended to `log`. directory: its working directory; default: this process's own.
    """
    words = tethered(command)
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
