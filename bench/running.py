"""A subject as a running process: started as a user would start it, its log read, its tree sampled, its end seen to."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from bench.machine import CLOCK, now_s
from bench.table import Table
from bench.tree import Sampler, Tree

_EVENT = re.compile(r"\b(spark_session_started|tables_taken|batch_planned|batch_committed)\b")
_STOP_S = 90


@dataclasses.dataclass(frozen=True)
class Command:
    """How a subject is started, and the table it is going to fill."""

    subject: str
    arguments: list[str]
    folder: Path
    table: Table
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Running:
    """One started subject. Its log lines get the time at which they arrived."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self.log = command.folder / "stderr.log"
        self.started_s = now_s()
        self.events: dict[str, float] = {}
        with (command.folder / "stdout.log").open("ab") as out:
            self._process = subprocess.Popen(
                command.arguments,
                cwd=command.folder,
                stdout=out,
                stderr=subprocess.PIPE,
                env={**os.environ, "NO_COLOR": "1", **command.environment},
                start_new_session=True,
            )
        assert self._process.stderr is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stderr,), daemon=True)
        self._reader.start()
        self.sampler = Sampler(Tree(self._process.pid)).start()

    def _read(self, stream: IO[bytes]) -> None:
        with self.log.open("ab") as out:
            for line in stream:
                found = _EVENT.search(line.decode(errors="replace"))
                if found:
                    self.events.setdefault(found[1], now_s())
                out.write(line)
                out.flush()

    def check(self) -> None:
        """Raises when the process has ended although nobody asked it to."""
        if self._process.poll() is not None:
            raise RuntimeError(f"{self.command.subject} ended with exit={self._process.returncode}: {self.tail()}")

    def tail(self) -> str:
        """The end of its log, for an error."""
        self._reader.join(2)
        return self.log.read_text(errors="replace")[-2000:]

    def wait(self, timeout_s: float) -> int:
        """Waits for the process to end by itself; its exit code."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as late:
            self.kill()
            raise RuntimeError(f"{self.command.subject} took longer than {timeout_s} s: {self.tail()}") from late
        self._close()
        return code

    def stop(self) -> int:
        """SIGTERM, and time to finish what it has in hand; its exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self.wait(_STOP_S)

    def stop_well(self) -> None:
        """Stops it, and raises when it does not call that a success."""
        code = self.stop()
        if code:
            raise RuntimeError(f"{self.command.subject} ended with exit={code} on SIGTERM: {self.tail()}")

    def kill_driver(self) -> None:
        """kill -9 of the process that was started, and of nothing else."""
        self._process.kill()
        self._process.wait()
        self.sampler.stop()

    def kill(self) -> None:
        """Ends the whole tree."""
        self.sampler.tree.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        self.sampler.stop()
        self.sampler.tree.kill()

    def first_planned_s(self) -> float | None:
        """When the first batch was about to start, if the subject says so."""
        return self.events.get("batch_planned")

    def session_ready_s(self) -> float | None:
        """When Spark was up: as the subject says, else when the first of its Python workers was born."""
        return self.events.get("spark_session_started") or self.sampler.tree.first_worker_s()

    def wait_for_rows(self, rows: int, timeout_s: float, poll_s: float = 0.02, table: Table | None = None) -> float:
        """Waits until the table's commits hold `rows`; the moment at which they did. table: another than the command's."""
        table = table or self.command.table
        deadline = CLOCK.monotonic_s() + timeout_s
        while True:
            ended = self._process.poll() is not None
            found = table.committed()
            if found >= rows:
                return now_s()
            if ended or CLOCK.monotonic_s() > deadline:
                raise RuntimeError(f"{self.command.subject}: {found} of {rows} rows in {timeout_s} s: {self.tail()}")
            CLOCK.sleep(poll_s)
