"""Failpoints of a running `frazil run`, switched from outside: a step is held exactly where a test wants to strike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from frazil.failpoints import reached
from tests.acceptance.running import Run
from tests.fixtures.waiting import wait_until


class Point:
    """One failpoint with its action, off until `armed`."""

    def __init__(self, folder: Path, name: str, action: str) -> None:
        self.name = name
        self._switch = folder / f"{name}.{action}"
        self.declaration = f"{name}={action}@{self._switch}"

    @contextmanager
    def armed(self) -> Iterator[None]:
        """On while the block lasts; what it held continues afterwards."""
        reached(self._switch).unlink(missing_ok=True)
        self._switch.touch()
        try:
            yield
        finally:
            self.disarm()

    def disarm(self) -> None:
        """Off, before the block ends."""
        self._switch.unlink(missing_ok=True)

    def another(self) -> None:
        """Forgets which process is at the point: another one that is held there is named next."""
        reached(self._switch).unlink(missing_ok=True)

    def wait(self, run: Run, *, is_own: bool = False) -> int:
        """Waits until a process is at the point; its pid. is_own: one of the run itself, where a standby that stays warm
        comes to the point too.
        """
        found: list[int] = []

        def is_reached() -> bool:
            with suppress(FileNotFoundError):
                pid = int(reached(self._switch).read_text())
                if is_own and pid not in run.pids():
                    self.another()
                else:
                    found.append(pid)
            return bool(found)

        run.wait_while_running(is_reached, f"{self.name} is reached")
        return found[-1]

    def wait_for_all(self, count: int, within_s: float) -> None:
        """Waits until so many processes are held at the point."""
        found = set[int]()

        def are_there() -> bool:
            with suppress(FileNotFoundError):
                found.add(int(reached(self._switch).read_text()))
                self.another()
            return len(found) == count

        wait_until(are_there, lambda: f"{count} processes are at {self.name}: {found}", within_s)


class Points:
    """Every failpoint that a module strikes at."""

    def __init__(self, folder: Path, *declarations: tuple[str, str]) -> None:
        folder.mkdir(exist_ok=True)
        self._points = {pair: Point(folder, *pair) for pair in declarations}

    def __getitem__(self, pair: tuple[str, str]) -> Point:
        return self._points[pair]

    @property
    def declaration(self) -> str:
        """For FRAZIL_FAILPOINTS."""
        return ";".join(point.declaration for point in self._points.values())


def wait_until_gone(run: Run) -> None:
    """Waits until nothing of the run is left: no half of a driver that could still commit, no orphan."""
    wait_until(lambda: not run.pids(), lambda: f"all of the run has ended: {run.pids()}", 60)
