"""The demo's processes: a broker, the producers and `frazil run`, in one folder. None of them outlives this process."""

from __future__ import annotations

import fcntl
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import TextIO

from frazil.clock import Clock
from frazil.errors import SpecError, UnavailableError
from frazil.ops.pipeline_status import ProcessState
from frazil.ops.state_file import StateFile
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.tether import spawn_tethered
from frazil_demo.lake import VIEWS_PER_MINUTE, Lake
from frazil_demo.producers import KINDS, Course, Producers

PIPELINE = "demo"
FILE = "frazil.yaml"
_MARK = ".frazil-demo"
_END_TIMEOUT_S = 60.0
_PIPELINE_FILE = """\
# Written by `frazil demo`: in this folder, `frazil status`, `frazil plan` and `frazil check` work on its pipeline.
pipeline: {pipeline}
kafka: {{bootstrap.servers: "{servers}"}}
tables:
"""
_PER_MINUTE = f"""\
  {VIEWS_PER_MINUTE}:
    topic: page_views
    select: >
      select window.start as minute, count(*) as views, avg(duration_ms) as mean_ms
      from records group by window(at, '1 minute')
"""


class Session:
    """Everything that the demo starts. `start` empties `directory` and fills it, `close` leaves the tables in it."""

    def __init__(self, directory: Path, course: Course, clock: Clock) -> None:
        self.directory = directory.absolute()
        self.log = self.directory / "pipeline.log"
        self.lake = Lake(self.directory / "frazil-data")
        self.broker = EmbeddedBroker(self.directory / "broker")
        self._clock = clock
        self._course = course
        self._state_file = StateFile(self.lake.catalog.parent / "state", PIPELINE, clock, str)
        self._producers: Producers | None = None
        self._pipeline: subprocess.Popen[bytes] | None = None
        self._lock: TextIO | None = None

    @property
    def producers(self) -> Producers:
        """The producers, once they are started."""
        assert self._producers is not None
        return self._producers

    def start(self) -> None:
        """Starts broker, pipeline and producers; returns while the pipeline is still starting."""
        self._lock = claim(self.directory)
        self.broker.start()
        (self.directory / FILE).write_text(pipeline_file(self.broker.bootstrap_servers))
        command = [sys.executable, "-m", "frazil.cli.main", "run", "--file", FILE]
        self._pipeline = spawn_tethered(command, log=self.log, directory=self.directory)
        self._producers = Producers(self.broker.bootstrap_servers, self._course, self._clock)
        self._producers.make_topics()

    def state(self) -> ProcessState:
        """Returns the last state that the pipeline wrote."""
        return self._state_file.read()

    def check(self) -> None:
        """Checks that every part runs and no table is stopped.

        Raises: UnavailableError where one is not.
        """
        self.producers.check()
        if not self.broker.is_running:
            raise UnavailableError("the broker ended", remedy="read its log", where=str(self.broker.log))
        if self._pipeline is not None and self._pipeline.poll() is not None:
            raise UnavailableError("the pipeline ended", remedy="read its log", where=str(self.log))
        for name, table in self.state().tables.items():
            condition = table.condition
            if condition.state == "stopped":
                message = f"table {name} stopped: {condition.reason}"
                raise UnavailableError(message, remedy=condition.remedy, where=condition.where)

    def rows(self) -> dict[str, int]:
        """Returns the number of rows of each table, as the pipeline last wrote it."""
        return {name: size.row_count for name, table in self.state().tables.items() if (size := table.recorded.size)}

    def has_arrived(self) -> bool:
        """Returns whether every table has as many rows as records were sent."""
        rows = self.rows()
        return all(rows.get(kind.table, 0) >= self.producers.ledger[kind.topic].records for kind in KINDS)

    def stop_pipeline(self) -> int:
        """Sends SIGTERM: the pipeline commits its batch and ends. Returns its exit code; 0 where it was so new
        that the signal itself has ended it.
        """
        process, self._pipeline = self._pipeline, None
        if process is None:
            return 0
        process.send_signal(signal.SIGTERM)
        try:
            exit_code = process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
        return 0 if exit_code == -signal.SIGTERM else exit_code

    def close(self) -> None:
        """Ends everything that still runs; the tables stay."""
        try:
            if self._producers is not None and not self._producers.is_done:
                self._producers.stop()
        finally:
            self.stop_pipeline()
            self.broker.stop()
            if self._lock is not None:
                self._lock.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def pipeline_file(servers: str) -> str:
    """Returns the demo's pipeline file, which has no more settings than any other needs."""
    tables = "".join(f"  {kind.table}: {{topic: {kind.topic}}}\n" for kind in KINDS)
    return _PIPELINE_FILE.format(pipeline=PIPELINE, servers=servers) + tables + _PER_MINUTE


def claim(directory: Path) -> TextIO:
    """Empties the folder of an earlier demo and locks it; closing the returned file unlocks it.

    Raises: SpecError for a folder with anything else in it, and for one in which a demo runs.
    """
    mark = directory / _MARK
    if directory.exists() and not mark.exists() and any(directory.iterdir()):
        raise SpecError(
            "the folder is not empty and has no demo: nothing in it was changed",
            remedy="name another with --dir",
            where=str(directory),
        )
    directory.mkdir(parents=True, exist_ok=True)
    lock = mark.open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        remedy = "end it, or name another folder with --dir"
        raise SpecError("a demo runs in this folder already", remedy=remedy, where=str(directory)) from None
    for path in directory.iterdir():
        if path != mark:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return lock
