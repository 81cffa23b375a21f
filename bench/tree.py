"""CPU and memory of a process with all its descendants, read from /proc.

A dead process's time is counted by whoever reaped it; where nobody in the tree did (the driver itself, a JVM that
outlived its driver, the workers of Spark's Python daemon) the last time seen is kept: the sum never goes back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import threading
from collections import Counter
from pathlib import Path

from bench.machine import CLOCK, now_s

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_KILL_S = 5.0
_IGNORED = re.compile(rb"^SigIgn:\s+([0-9a-f]+)", re.MULTILINE)
_PSS = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Stat:
    """What /proc says of one process. `cpu_s` includes the children it has reaped."""

    name: str
    parent: int
    born: int
    cpu_s: float
    rss_bytes: int


def read_stat(pid: int) -> Stat | None:
    """The process's counters, or None when there is no such process."""
    try:
        head, _, tail = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    except (FileNotFoundError, ProcessLookupError):
        return None
    field = tail.split()
    ticks = sum(int(field[index]) for index in (11, 12, 13, 14))
    name = head.partition("(")[2]
    return Stat(name, int(field[1]), int(field[19]), ticks / _TICKS_PER_S, int(field[21]) * _PAGE_BYTES)


def read_pss_bytes(pid: int) -> int | None:
    """Memory of the process with shared pages divided among their sharers; None where the kernel does not tell."""
    try:
        found = _PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_bytes())
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def _ignores_children(pid: int) -> bool:
    """Whether the process ignores SIGCHLD, as Spark's Python daemon does: its children's time is then lost."""
    try:
        found = _IGNORED.search(Path(f"/proc/{pid}/status").read_bytes())
    except OSError:
        return False
    return bool(found and int(found[1], 16) >> (signal.SIGCHLD - 1) & 1)


class Tree:
    """A process and whatever it starts, as long as it runs, including what outlives it."""

    def __init__(self, root: int) -> None:
        self.root = root
        self._members: dict[int, Stat] = {}
        self._unreaped: Counter[str] = Counter()
        self._settled: set[int] = set()
        self._first_worker_s: float | None = None
        self.find_members()

    def __contains__(self, pid: int) -> bool:
        return pid in self._members

    def find_members(self) -> None:
        """Looks for descendants that are new: dear, so not done at every sample."""
        everyone = {
            int(path.name): stat
            for path in Path("/proc").iterdir()
            if path.name.isdigit() and (stat := read_stat(int(path.name)))
        }
        if self.root in everyone:
            self._members.setdefault(self.root, everyone[self.root])
        grown = True
        while grown:
            new = {
                pid: stat for pid, stat in everyone.items() if pid not in self._members and stat.parent in self._members
            }
            self._members.update(new)
            grown = bool(new)
        self._look_for_workers()

    def update(self) -> None:
        """Reads the counters of every known member and takes leave of the dead."""
        for pid, last in list(self._members.items()):
            stat = read_stat(pid)
            if stat is not None and stat.born == last.born:
                self._members[pid] = stat
                continue
            del self._members[pid]
            if last.parent not in self._members or _ignores_children(last.parent):
                self._unreaped[self._role(pid, last)] += round(last.cpu_s * _TICKS_PER_S)

    def first_worker_s(self) -> float | None:
        """When the first Python process below the root was born, in seconds since the epoch; None before that."""
        return self._first_worker_s

    def _look_for_workers(self) -> None:
        pythons = [s for pid, s in self._members.items() if pid != self.root and s.name.startswith("python")]
        if pythons and self._first_worker_s is None:
            up_s = float(Path("/proc/uptime").read_text().split()[0])
            self._first_worker_s = now_s() - up_s + min(stat.born for stat in pythons) / _TICKS_PER_S

    def cpu_s(self) -> float:
        """CPU seconds of the tree since it started."""
        return sum(self._ticks_by_role().values()) / _TICKS_PER_S

    def cpu_by_role(self) -> dict[str, float]:
        """CPU seconds of the root itself, of JVMs, and of all other processes."""
        return {role: ticks / _TICKS_PER_S for role, ticks in self._ticks_by_role().items()}

    def _ticks_by_role(self) -> Counter[str]:
        total = Counter(self._unreaped)
        for pid, stat in self._members.items():
            total[self._role(pid, stat)] += round(stat.cpu_s * _TICKS_PER_S)
        return total

    def _role(self, pid: int, stat: Stat) -> str:
        if pid == self.root:
            return "driver"
        return "jvm" if stat.name == "java" else "workers"

    def rss_bytes(self) -> int:
        """Resident memory, summed: pages that processes share count once for each.

        Only of members that the last call saw too: for an instant, a child of a JVM has the JVM's whole memory.
        """
        here = set(self._members)
        total = sum(self._members[pid].rss_bytes for pid in here & self._settled)
        self._settled = here
        return total

    def pss_bytes(self) -> int | None:
        """Resident memory, shared pages counted once; None where the kernel does not tell."""
        sizes = [size for pid in list(self._members) if (size := read_pss_bytes(pid)) is not None]
        return sum(sizes) if sizes else None

    def kill(self) -> None:
        """Ends every member that is left, and only those; reaps what this process has adopted, but leaves the root."""
        deadline = CLOCK.monotonic_s() + _KILL_S
        while CLOCK.monotonic_s() < deadline:
            self.find_members()
            self.update()
            others = [pid for pid in self._members if pid != self.root]
            for pid in self._members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for pid in others:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            if not others:
                return
            CLOCK.sleep(0.02)


class Sampler:
    """Samples a tree in a thread: CPU every `interval_s`, members and memory every 0.5 s, shared memory every 2 s."""

    def __init__(self, tree: Tree, interval_s: float = 0.1, with_memory: bool = True) -> None:
        self.tree = tree
        self._interval_s = interval_s
        self._with_memory = with_memory
        self.cpu: list[tuple[float, float]] = []
        self.peak_rss_bytes = 0
        self.peak_pss_bytes = 0
        self._round = 0
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def start(self) -> Sampler:
        self._thread.start()
        return self

    def stop(self) -> None:
        """The last sample, then no more."""
        self._done.set()
        self._thread.join()
        self.sample()

    def sample(self) -> float:
        """One sample now; the CPU seconds so far."""
        with self._lock:
            every = max(1, round(0.5 / self._interval_s))
            if self._round % every == 0:
                self.tree.find_members()
                self.peak_rss_bytes = max(self.peak_rss_bytes, self.tree.rss_bytes())
            self.tree.update()
            if self._with_memory and self._round % (4 * every) == 0:
                self.peak_pss_bytes = max(self.peak_pss_bytes, self.tree.pss_bytes() or 0)
            self._round += 1
            self.cpu.append((now_s(), self.tree.cpu_s()))
            return self.cpu[-1][1]

    def _run(self) -> None:
        while not self._done.is_set():
            started = CLOCK.monotonic_s()
            self.sample()
            self._done.wait(max(0.0, started + self._interval_s - CLOCK.monotonic_s()))
