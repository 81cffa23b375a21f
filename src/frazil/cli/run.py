"""`frazil run`: runs the pipeline until it is stopped, or until everything that was there at the start is committed.

The JVM starts first, and `running.py`, with most of Frazil, is imported while it does.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import structlog
import typer

from frazil.cli.commands import import_to_stay
from frazil.cli.output import DEFAULT_FILE, Output, SpecFile
from frazil.errors import SpecError
from frazil.runtime.connect import running_jvm
from frazil.spec import load_spec
from frazil.spec.syntax.units import parse_duration

log = structlog.get_logger("frazil")

UntilCaughtUp = Annotated[
    bool, typer.Option("--until-caught-up", help="Read up to the current end offsets of the topics, commit, and exit.")
]
Timeout = Annotated[
    str | None,
    typer.Option(
        "--timeout",
        metavar="DURATION",
        show_default="5m",
        help="How long --until-caught-up waits for an unavailable service, or builds the archives for a cluster, before it"
        " ends with exit code 1; time in which batches are read does not count. Waits for a topic that does not exist"
        " only if this option is given.",
    ),
]
Grace = Annotated[
    str,
    typer.Option(
        "--grace", metavar="DURATION", help="How long the batch in flight may take to be committed after SIGTERM."
    ),
]
_TIMEOUT_S = 300.0


def command(
    output: Output,
    file: SpecFile = DEFAULT_FILE,
    until_caught_up: UntilCaughtUp = False,
    timeout: Timeout = None,
    grace: Grace = "25s",
) -> int:
    """Run the pipeline until SIGTERM or Ctrl-C; then finish and commit the batch in flight and exit. A batch that is not
    committed within --grace is abandoned; the next run reads it again.

    An unavailable service is retried, with --until-caught-up for at most --timeout. A table that stops is logged, and the
    other tables continue. Records behind an open transaction are left to the next run, and counted as lag.

    Exit code: 0 when the run was stopped or has caught up; 1 when it failed, or a service was unavailable for longer than
    --timeout; 2 when the pipeline file is wrong, or it names no topic and none of its regular expressions matches one; 3
    when another run of the pipeline has taken over; 4 when a table stopped, or could not be read to the end with
    --until-caught-up.
    """
    limit_s, stopping = _limit_s(until_caught_up, timeout), Stopping(parse_duration(grace))
    try:
        spec = load_spec(file)
        output.hide(spec.secrets)
        log.info("starting", pipeline=spec.pipeline, master=spec.spark.master)
        with running_jvm(spec, _import_running, limit_s) as jvm:
            tables = _import_running().run(spec, output, jvm, stopping, limit_s, timeout is not None)
        return int(_import_running().report(output, tables, until_caught_up))
    except NothingInHand:
        tables = stopping.tables()
        if tables:
            return int(_import_running().report(output, tables, until_caught_up=False))
        output.result({"tables": {}}, "stopped before the tables were loaded")
        return 0


def _import_running() -> Any:
    return import_to_stay("frazil.cli.running")


def _limit_s(until_caught_up: bool, timeout: str | None) -> float | None:
    """Returns how long the run waits for services that do not answer; None for one that is not to end by itself.

    Raises: SpecError for a text that is not a duration.
    """
    if until_caught_up:
        return _TIMEOUT_S if timeout is None else parse_duration(timeout)
    if timeout is not None:
        raise SpecError("`--timeout` is only for a run with `--until-caught-up`", remedy="add --until-caught-up")
    return None


class NothingInHand(BaseException):
    """Stopped before there is anything to finish, or without what is in hand. It is not an Exception, so that handlers of
    errors let it pass.
    """


class Stopping:
    """Handles SIGTERM and Ctrl-C.

    While there is nothing to finish (jars are fetched, the JVM starts, the catalog is opened or waited for), a signal
    interrupts whatever runs: it raises NothingInHand. Afterwards it requests a stop.
    """

    def __init__(self, grace_s: float | None = None) -> None:
        self.grace_s = grace_s
        self.is_set = False
        #: Whether it was requested a second time, or has exceeded `grace_s`.
        self.is_urgent = False
        self._stop: Callable[[], None] | None = None
        #: Returns the tables as they are; none before they are known.
        self.tables: Callable[[], Sequence[Any]] = tuple
        if threading.current_thread() is threading.main_thread():
            for kind in (signal.SIGTERM, signal.SIGINT):
                signal.signal(kind, self._on_signal)
            signal.signal(signal.SIGALRM, self._on_end_of_grace)

    def then(self, stop: Callable[[], None], tables: Callable[[], Sequence[Any]] = tuple) -> None:
        """Makes a signal call `stop` from now on; calls it at once after a signal whose exception got lost, as in a
        finalizer. tables: returns them as they are.
        """
        self._stop, self.tables = stop, tables
        if self.is_set:
            stop()

    def _on_signal(self, *_: object) -> None:
        if self.is_set:
            self.is_urgent = True
            raise KeyboardInterrupt
        self.is_set = True
        if self._stop is None:
            raise NothingInHand
        if self.grace_s is not None:
            signal.setitimer(signal.ITIMER_REAL, max(self.grace_s, 0.001))
        self._stop()

    def _on_end_of_grace(self, *_: object) -> None:
        self.is_urgent = True
        log.warning("grace_period_exceeded", grace_s=self.grace_s)
        raise NothingInHand
