"""`frazil` whose peers reach it by a way that can be cut, and whose clock can be moved. A script that `python -P` runs, as
files beside it have names of the standard library.

It listens at `ha.listen`, and advertises the port of WAY. MOVED names a file: the seconds by which the two clocks are ahead.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import frazil.clock
from frazil.cli.main import main
from frazil.clock import Clock
from frazil_ha.link import Host

WAY = "FRAZIL_TEST_WAY"
"""The port by which others reach the process."""
MOVED = "FRAZIL_TEST_MOVED"
"""A file with two numbers of seconds: those of the clock that never goes back, and those of the clock of the day."""


def moved_s(file: Path) -> tuple[float, float]:
    """Returns by how much the clocks are ahead; nothing while the file is being written."""
    words = file.read_text().split()
    return (float(words[0]), float(words[1])) if len(words) == 2 else (0.0, 0.0)


def _open_host(host: str, port: int, clock: Clock) -> Host:
    made = Host(host, port, clock)
    made.address = f"{host}:{os.environ[WAY]}"
    return made


def _move_clocks(file: Path) -> None:
    machine = vars(frazil.clock)["_time"]
    vars(frazil.clock)["_time"] = SimpleNamespace(
        monotonic=lambda: machine.monotonic() + moved_s(file)[0],
        time_ns=lambda: machine.time_ns() + int(moved_s(file)[1] * 1e9),
        sleep=machine.sleep,
    )


if __name__ == "__main__":
    vars(sys.modules["frazil_ha.link"])["Host"] = _open_host
    _move_clocks(Path(os.environ[MOVED]))
    sys.exit(main())
