"""Named points in the code where a test can make a real process die, stall or fail.

Without FRAZIL_FAILPOINTS in the environment a point costs one test of an empty dictionary. Otherwise the variable holds
`name=action[@when]` pairs separated by `;`. when: a number (the n-th time that this process reaches the point, 1 by
default), or the absolute path of a file: every time while it exists; FILE.reached then holds the pid of the process.
Actions: `kill` (SIGKILL of this process), `stop` (SIGSTOP of this process), `hold` (waits while the file exists),
`enospc` (OSError as on a full disk), `error` (RuntimeError), `reset` (ConnectionResetError, as when a response is
lost).
"""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "FRAZIL_FAILPOINTS"
_lock = threading.Lock()


@dataclass
class _Armed:
    """The action at a point, and when it happens."""

    #: The name of the action.
    action: str
    #: The action happens when the point is reached for this time.
    nth: int = 1
    #: The action happens every time while this file exists, instead of at the `nth` time.
    file: Path | None = None
    #: The number of times that the point was reached.
    count: int = 0

    def is_reached(self) -> bool:
        if self.file is not None:
            return self.file.exists()
        with _lock:
            self.count += 1
            return self.count == self.nth


def _parse(text: str) -> dict[str, list[_Armed]]:
    points: dict[str, list[_Armed]] = {}
    for pair in filter(None, (part.strip() for part in text.split(";"))):
        name, _, action = pair.partition("=")
        action, _, when = action.partition("@")
        armed = _Armed(action, file=Path(when)) if when.startswith("/") else _Armed(action, int(when or 1))
        points.setdefault(name, []).append(armed)
    return points


_active = _parse(os.environ.get(VARIABLE, ""))


def arm(environment: Mapping[str, str]) -> None:
    """Switches on the failpoints of `environment`: for tests inside one process."""
    _active.clear()
    _active.update(_parse(environment.get(VARIABLE, "")))


def hit(name: str) -> None:
    """Marks that the process is at the point `name`; does nothing unless a test switched it on."""
    if not _active:
        return
    for armed in _active.get(name, ()):
        if armed.is_reached():
            if armed.file is not None:
                _announce(armed.file)
            if armed.action in ("kill", "stop"):
                os.kill(os.getpid(), signal.SIGKILL if armed.action == "kill" else signal.SIGSTOP)
            elif armed.action == "hold" and armed.file is not None:
                while armed.file.exists():
                    # Several processes may be held: a test that has no use for one of them removes its word and gets
                    # another's.
                    if not reached(armed.file).exists():
                        _announce(armed.file)
                    time.sleep(0.01)
            else:
                raise _failure(name, armed.action)


def reached(file: Path) -> Path:
    """Returns the path of the file that holds the pid of the process that reached a point switched on by `file`."""
    return file.with_name(f"{file.name}.reached")


def _announce(file: Path) -> None:
    partial = file.with_name(f"{file.name}.{os.getpid()}.partial")
    partial.write_text(str(os.getpid()))
    partial.replace(reached(file))


def _failure(name: str, action: str) -> Exception:
    if action == "enospc":
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
    if action == "reset":
        return ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET), name)
    if action == "error":
        return RuntimeError(f"failpoint {name}")
    return ValueError(f"failpoint {name}: no action {action}")
