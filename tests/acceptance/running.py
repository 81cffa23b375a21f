"""`frazil run` in a process of its own, with a log, exit code, a JVM and Python workers."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from frazil.clock import SystemClock, new_id
from tests.fixtures.forks import Process, start
from tests.fixtures.processes import frozen, marked, program_of, stat_of
from tests.fixtures.waiting import PATIENCE_S, wait_until

Event = dict[str, Any]
_MARK = "FRAZIL_ACCEPTANCE_RUN"
A_FEW_SECONDS = 60.0
"""On a machine that does other things too; a batch that is held would take for ever."""


class Run:
    """One started `frazil run`. A mark in the environment tells all that it started, so that nothing stays behind."""

    def __init__(
        self, folder: Path, words: tuple[str, ...], environment: Mapping[str, str], program: tuple[str, ...] = ()
    ) -> None:
        """program: what Python runs in place of Frazil's own."""
        self.folder = folder
        self._mark = new_id()
        self.events: list[Event] = []
        self.lines: list[str] = []
        self._results: list[str] = []
        self._readers: list[threading.Thread] = []
        command = ["run", *words, "--output", "json", "--log-format", "json"]
        variables = {**os.environ, **environment, _MARK: self._mark}
        with self._read(self._results.append) as out, self._read(self._note) as err:
            if program:
                self._process: Process = subprocess.Popen(
                    [sys.executable, *program, *command],
                    cwd=folder,
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
            else:
                self._process = start(command, folder, variables, out, err)

    @property
    def pid(self) -> int:
        """Of the driver's Python."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the driver's Python is there."""
        return self._process.poll() is None

    @property
    def jvm_pid(self) -> int:
        """Of the driver's JVM."""
        return wait_until(self.find_jvm, "a JVM")

    def find_jvm(self) -> int | None:
        """Its JVM, if it has one now. What a JVM starts is itself for a moment, before it is another program."""
        found = {pid: stat_of(pid) for pid in self.pids() if program_of(pid) == "java"}
        return next((pid for pid, stat in found.items() if stat and int(stat[1]) not in found), None)

    def pids(self) -> list[int]:
        """Everything that it started and that is still there, itself included."""
        return marked(f"{_MARK}={self._mark}")

    def result(self) -> Event:
        """What it printed on standard output, after its end."""
        self._join()
        document: Event = json.loads("".join(self._results))
        return document

    def seen(self, event: str, **fields: Any) -> list[Event]:
        """Its log's events of a name with these fields."""
        return [e for e in list(self.events) if e.get("event") == event and fields.items() <= e.items()]

    def wait_for(self, event: str, *, count: int = 1, within_s: float = PATIENCE_S, **fields: Any) -> Event:
        """Waits until the log has the event so often; AssertionError with the log when the process ends before."""

        def question() -> list[Event] | None:
            found = self.seen(event, **fields)
            if len(found) >= count:
                return found
            assert self.is_running, f"ended with {self._process.returncode} before {event} {fields}:\n{self.tail()}"
            return None

        return wait_until(question, lambda: f"{event} {fields} in the log:\n{self.tail()}", within_s)[count - 1]

    def wait_while_running(self, question: Callable[[], Any], what: str, within_s: float = PATIENCE_S) -> None:
        """Waits for a condition that this process brings about."""

        def asked() -> bool:
            if question():
                return True
            assert self.is_running, f"ended with {self._process.returncode} before {what}:\n{self.tail()}"
            return False

        wait_until(asked, lambda: f"{what}:\n{self.tail()}", within_s)

    def wait(self, within_s: float = PATIENCE_S) -> int:
        """Its exit code, negative for a signal, once it ended."""
        try:
            code = self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {within_s:.0f} s:\n{self.tail()}") from None
        self._join()
        return code

    def terminate(self) -> None:
        """SIGTERM: it finishes what is in hand."""
        self._process.send_signal(signal.SIGTERM)

    def interrupt(self) -> None:
        """SIGINT, as Ctrl-C sends it; a second one ends it at once."""
        self._process.send_signal(signal.SIGINT)

    def stop(self, within_s: float = PATIENCE_S) -> int:
        """SIGTERM; its exit code."""
        self.terminate()
        return self.wait(within_s)

    def kill(self, *pids: int) -> None:
        """SIGKILL for these processes of it; for the driver's Python and JVM when none is named."""
        for pid in pids or (self.pid, self.jvm_pid):
            os.kill(pid, signal.SIGKILL)

    @contextmanager
    def frozen(self, for_s: float = 0.0) -> Iterator[None]:
        """SIGSTOP for all of it, SIGCONT afterwards, when it has been so long."""
        clock = SystemClock()
        with frozen(*self.pids()):
            deadline_s = clock.monotonic_s() + for_s
            yield
            wait_until(lambda: clock.monotonic_s() >= deadline_s, "it has been stopped for long enough", for_s + 60)

    @contextmanager
    def small_files_only(self, size_bytes: int) -> Iterator[None]:
        """No process of it can write a file beyond this size, as on a disk without room."""
        pids = self.pids()
        for pid in pids:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY))
        try:
            yield
        finally:
            for pid in set(pids) | set(self.pids()):
                with suppress(ProcessLookupError):
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    def tail(self) -> str:
        """The end of its log, and what it printed."""
        return "\n".join([*self.lines[-40:], *self._results])

    def close(self) -> None:
        """Ends it and all it started, whatever state that is in; nothing stays behind."""
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(20)
        wait_until(lambda: not self.pids(), "its processes are gone", 20)
        self._join()
        (self.folder / f"run-{self.pid}.log").write_text("\n".join(self.lines))

    def _note(self, line: str) -> None:
        self.lines.append(line.rstrip("\n"))
        if line.startswith("{"):
            with suppress(ValueError):
                self.events.append(json.loads(line))

    def _read(self, take: Callable[[str], object]) -> IO[bytes]:
        """A stream to write to, whose lines a thread takes."""
        near, far = os.pipe()

        def read() -> None:
            with os.fdopen(near, encoding="utf-8") as stream:
                for line in stream:
                    take(line)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        self._readers.append(reader)
        return os.fdopen(far, "wb")

    def _join(self) -> None:
        for reader in self._readers:
            reader.join(10)


def ancestor(pid: int, generations: int) -> int | None:
    """The process that started this one, so many generations up; None when one of them is gone."""
    for _ in range(generations):
        stat = stat_of(pid)
        if not stat or int(stat[1]) <= 1:
            return None
        pid = int(stat[1])
    return pid
