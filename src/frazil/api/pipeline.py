"""A pipeline of a pipeline file: what `frazil.load` returns.

Its methods raise the six errors of `frazil.errors`, and what they raise and return has no secret in it. The modules behind
them are imported when they are called: a run starts its JVM before most of Frazil is imported.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import structlog

from frazil.api.redaction import Redaction
from frazil.api.results import CheckResult, PlanResult, RunResult, VerifyResult
from frazil.errors import FrazilError, SpecError, unforeseen
from frazil.plugins.driver import METHODS
from frazil.spec import PipelineSpec, load_spec
from frazil.spec.syntax.environments import Overrides, overrides_of_process
from frazil.spec.syntax.units import parse_duration

if TYPE_CHECKING:
    from frazil.api.status import StatusReader
    from frazil.ops.pipeline_status import PipelineReport

Progress = Callable[[str], None]
"""Receives what is being done, in a few words, by the thread that does it."""
_ONE_JVM = threading.Lock()
"""Held while a run or a comparison has its JVM: PySpark knows one in a process."""


def load(
    file: str | os.PathLike[str] = "frazil.yaml", *, env: str | None = None, values: Mapping[str, object] | None = None
) -> Pipeline:
    """Reads and validates a pipeline file, and returns its pipeline; calls no service.

    env: the environment of the file, as with `--env`; by default FRAZIL_ENV. values: values that replace
    those of the file, as with `--set`, by their paths, such as `{"commit.interval": "5s"}`.

    Raises: SpecError, with file and line, where something in the file is wrong.
    """
    log_without_secrets()
    path = Path(file)
    overrides = overrides_of_process().replaced(env or "", values or {})
    spec = load_spec(path, overrides=overrides)
    SECRETS.hide(spec.file.secrets)
    return Pipeline(spec, path, SECRETS, overrides)


class Writes(Protocol):
    """Where a command writes."""

    redaction: Redaction


def open_pipeline(output: Writes, file: Path) -> Pipeline:
    """Returns the pipeline of a command; its secrets are masked in everything that the command writes from now on."""
    spec = load_spec(file)
    output.redaction.hide(spec.file.secrets)
    return Pipeline(spec, file, output.redaction)


class Pipeline:
    """A pipeline, as its file describes it."""

    def __init__(
        self, spec: PipelineSpec, file: Path, redaction: Redaction, overrides: Overrides | None = None
    ) -> None:
        """Stores them. overrides: with which the file was read; by default those of the process."""
        self._spec = spec
        self._overrides = overrides or overrides_of_process()
        self._file = file
        self._redaction = redaction
        self._stopping: Any = None

    def __repr__(self) -> str:
        return f"<frazil.Pipeline {self.name!r} of {self._file}>"

    @property
    def name(self) -> str:
        """The pipeline's name, by which tables know its progress."""
        return self._spec.pipeline

    @property
    def file(self) -> Path:
        """The pipeline file."""
        return self._file

    def check(self, *, progress: Progress | None = None) -> CheckResult:
        """Returns whether a run would find everything that it needs, as `frazil check` does: Java, jars, Kafka,
        catalog, store, registry. A check that fails does not raise: it is one of the findings. Changes nothing.

        Raises: SpecError where a regular expression of the file matches no topic.
        """
        # Everything that commands need, which a run imports only while its JVM starts.
        checks = importlib.import_module("frazil.api.check")
        finding = importlib.import_module("frazil.ops.check").Finding
        with self._masked():
            findings = [
                finding("file", True, f"read {self._file}", f"{self._file}{self._place()}: pipeline {self.name}")
            ]
            for found in checks.findings_of(self._spec):
                (progress or _ignore)(f"checking, {len(findings)} done, last {found.name}")
                findings.append(found)
        return self._redaction.value(CheckResult(self.name, tuple(findings)))

    def check_offline(self, missing: Collection[str] = ()) -> CheckResult:
        """Returns what can be checked without any service, as `frazil check --offline` does. missing: secrets that are
        not set here.
        """
        checks = importlib.import_module("frazil.api.check")
        finding = importlib.import_module("frazil.ops.check").Finding
        with self._masked():
            first = finding("file", True, f"read {self._file}", f"{self._file}{self._place()}: pipeline {self.name}")
            found = checks.offline_findings(self._spec, missing, self._overrides)
            return self._redaction.value(CheckResult(self.name, (first, *found)))

    def _place(self) -> str:
        environment = self._overrides.environment
        return f" in the environment {environment}" if environment in self._spec.environments else ""

    def plan(self, table: str | None = None, *, progress: Progress | None = None) -> PlanResult:
        """Returns what a run would create or change, of all tables or one, as `frazil plan` does. Changes nothing.

        Raises: SpecError for a name that no table has; UnavailableError where Kafka or the catalog does not answer.
        """
        planning = importlib.import_module("frazil.api.check")
        warnings_of_file = importlib.import_module("frazil.ops.plan").warnings_of_file
        with self._masked():
            tables = planning.plan(self._spec, table, progress or _ignore)
        return self._redaction.value(PlanResult(self.name, tuple(tables), tuple(warnings_of_file(self._spec))))

    def run(
        self,
        *,
        until_caught_up: bool = False,
        timeout: str | float | None = None,
        progress: Progress | None = None,
    ) -> RunResult:
        """Runs the pipeline until `stop` is called from another thread, or, with until_caught_up, until all records
        that were in the topics at the start are committed. It handles no signal: an exception that a signal raises
        here, such as KeyboardInterrupt, ends the run at once, and the next run reads the present batch again.

        timeout: how long a run with until_caught_up waits for services that do not answer, as `5m` or in seconds; 5
        minutes unless given. The run waits for topics that do not exist only if it is given.

        Returns how each table has ended. A table that stops raises no error: it is in `failed`, and the other tables
        continue.

        Raises: SpecError where another run of this process, or a Spark session, has the one JVM that a process can have;
        UnavailableError where a service did not answer in time; FencedError where another process has taken over.
        """
        runs = importlib.import_module("frazil.api.run")
        if timeout is not None and not until_caught_up:
            raise SpecError("`timeout` is only for a run until it has caught up", remedy="add until_caught_up=True")
        limit_s = parse_duration(timeout) if isinstance(timeout, str) else timeout
        if until_caught_up and limit_s is None:
            limit_s = runs.CAUGHT_UP_TIMEOUT_S
        with self._masked(), _one_jvm():
            self._stopping = runs.Stopping(handles_signals=False)
            try:
                limits = runs.Limits(limit_s, timeout is not None)
                result: RunResult = runs.run_pipeline(
                    self._spec, self._redaction, self._stopping, limits, progress or _ignore
                )
            finally:
                self._stopping = None
        return self._redaction.value(result)

    def stop(self) -> None:
        """Makes `run`, in another thread, commit its batch and return. Does nothing if nothing runs."""
        stopping = self._stopping
        if stopping is not None:
            stopping.request()

    def status(self, table: str | None = None, *, progress: Progress | None = None) -> PipelineReport:
        """Returns the state of every table, or of one, as `frazil status` does, whether or not the pipeline runs. A
        service that does not answer raises no error: it is one of the report's problems.

        Raises: SpecError for a name that no table has.
        """
        with self.open_status() as reader, self._masked():
            return self._redaction.value(reader.read(table, progress or _ignore))

    def open_status(self) -> StatusReader:
        """Returns what reads the status again and again, with one JVM."""
        reader: StatusReader = importlib.import_module("frazil.api.status").StatusReader(self._spec)
        return reader

    def verify(  # noqa: PLR0913  (each parameter is an option)
        self,
        table: str | None = None,
        *,
        level: Literal["ledger", "rows", "copy", "independent"] = "copy",
        begin: str = "",
        end: str = "",
        sample: float = 1.0,
        digests: bool = False,
        scratch: str = "",
        progress: Progress | None = None,
    ) -> VerifyResult:
        """Returns whether tables, or one, have exactly the rows of their topics, as `frazil verify` does: reads the topics
        again and compares. Changes nothing; needs the disk space of a copy.

        level: `ledger` checks metadata alone, `rows` the places of rows, `independent` decodes by other libraries. begin,
        end: bounds of these levels, as offsets or times. sample: the share of the offsets that the last two compare.
        digests: whether `rows` compares values with the digests of the ledger too. scratch: a folder that the workers of a
        cluster reach; they make the copy of the level `copy` there.

        Raises: SpecError for a name that no table has, for an option of another level, without the package frazil-verify,
        and as `run` does; UnavailableError where a service does not answer.
        """
        verify_tables = METHODS.get("verify").caller
        with self._masked(), _one_jvm():
            tables = verify_tables(
                self._spec,
                table,
                level,
                (begin, end, sample),
                progress or _ignore,
                has_digests=digests,
                scratch=scratch,
            )
        return self._redaction.value(VerifyResult(self.name, tuple(tables)))

    @contextmanager
    def _masked(self) -> Iterator[None]:
        """Masks secrets in the errors of the block. Any other exception is left as it is where it has none."""
        try:
            yield
        except FrazilError as error:
            self._redaction.error(error)
            raise
        except Exception as error:
            text = "".join(traceback.format_exception(error))
            if text == self._redaction.text(text):
                raise
            hidden = unforeseen(error, str(self._file))
            self._redaction.error(hidden)
            try:
                raise hidden from None
            finally:
                hidden.__context__ = None


@contextmanager
def _one_jvm() -> Iterator[None]:
    """Keeps the JVM of this process for the block.

    Raises: SpecError where it has one.
    """
    if not _ONE_JVM.acquire(blocking=False):
        raise _has_jvm("another run or comparison of a pipeline")
    try:
        pyspark = sys.modules.get("pyspark")
        if pyspark is not None and pyspark.SparkContext._active_spark_context is not None:
            raise _has_jvm("a Spark session")
        yield
    finally:
        _ONE_JVM.release()


def _has_jvm(holder: str) -> SpecError:
    return SpecError(
        f"this process already has {holder}, and a process can have one JVM with Spark",
        remedy="wait until it has ended, or run the pipeline in a process of its own",
    )


def _ignore(_: str) -> None:
    """Takes the place of what shows progress."""


SECRETS = Redaction()
"""The secrets of all pipeline files that this process has loaded."""


def log_without_secrets() -> None:
    """Makes events of Frazil's log records of the logger `frazil`, as `event=… key=value`, unless the program has configured
    structlog itself. Secrets are masked in either case. Does nothing the second time.
    """
    if not structlog.is_configured():
        structlog.configure(
            processors=[
                structlog.stdlib.filter_by_level,
                _mask,
                structlog.processors.format_exc_info,
                structlog.processors.LogfmtRenderer(key_order=["event"], bool_as_flag=False),
            ],
            wrapper_class=structlog.stdlib.BoundLogger,
            logger_factory=structlog.stdlib.LoggerFactory(),
            cache_logger_on_first_use=False,
        )
        return
    processors = structlog.get_config()["processors"]
    if _mask not in processors:
        structlog.configure(processors=[_mask, *processors])


def _mask(logger: Any, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    written = structlog.processors.format_exc_info(logger, method, dict(event))
    trace = written.get("exception")
    # An exception, which later processors may show in other ways, becomes text only where it has a secret.
    shown = event if trace == SECRETS.value(trace) else written
    return {key: SECRETS.value(value) for key, value in shown.items()}
