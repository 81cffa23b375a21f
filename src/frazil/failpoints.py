"""Named points where a test can make a real process die, stall or fail.

Off (no FRAZIL_FAILPOINTS in the environment) a point costs one test of an empty dictionary. On, the variable holds
`name=action[@n]` pairs separated by `;`: the action happens at the n-th time the point is reached (1 when not given).
Actions: `kill` (SIGKILL of this process), `kill-parent` (SIGKILL of the parent process and of this one),
`stop` (SIGSTOP of this process), `enospc` (OSError as on a full disk), `error` (RuntimeError),
`pause:PATH` (touches PATH.reached and waits until PATH exists).
"""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "FRAZIL_FAILPOINTS"
_lock = threading.Lock()


def _parse(text: str) -> dict[str, list[tuple[int, str]]]:
    points: dict[str, list[tuple[int, str]]] = {}
    for pair in filter(None, (part.strip() for part in text.split(";"))):
        name, _, action = pair.partition("=")
        action, _, nth = action.partition("@")
        points.setdefault(name, []).append((int(nth or 1), action))
    return points


_active = _parse(os.environ.get(VARIABLE, ""))
_reached: dict[str, int] = {}


def arm(environment: Mapping[str, str]) -> None:
    """Takes the failpoints of `environment`: for tests inside one process."""
    _active.clear()
    _active.update(_parse(environment.get(VARIABLE, "")))
    _reached.clear()


def hit(name: str) -> None:
    """Marks that the process is at the point `name`; does nothing unless a test armed it."""
    if not _active:
        return
    for nth, action in _active.get(name, ()):
        with _lock:
            _reached[name + action] = count = _reached.get(name + action, 0) + 1
        if count == nth:
            _act(name, action)


def _act(name: str, action: str) -> None:
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "kill-parent":
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif action == "enospc":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
    elif action == "error":
        raise RuntimeError(f"failpoint {name}")
    elif action.startswith("pause:"):
        _pause(Path(action.removeprefix("pause:")))
    else:
        raise ValueError(f"failpoint {name}: no action {action}")


def _pause(path: Path) -> None:
    path.with_suffix(".reached").touch()
    while not path.exists():
        time.sleep(0.01)
