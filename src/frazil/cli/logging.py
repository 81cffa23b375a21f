"""Configures logging, here only: structlog, as key=value or JSON lines on standard error, without secrets.

The libraries' own loggers write the same way, from warnings up.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable
from typing import TextIO

import structlog
from structlog.typing import EventDict, WrappedLogger

from frazil.api.redaction import Redaction
from frazil.cli.output import LogFormat, LogLevel
from frazil.printable import plain

_BESIDE_ERRORS = (
    "KeyboardInterrupt while sending command.",
    "Exception occurred while shutting down connection",
    "Exception while sending command.",
    "Tried to garbage collect non existing python proxy",
)
"""How messages of py4j begin that have nothing to do for an operator: of calls whose error is raised as well, each with a
stack trace, and of Python objects that Frazil has removed before Java did.
"""


def configure_logging(
    form: LogFormat, level: LogLevel, redaction: Redaction, make_room: Callable[[], None] = lambda: None
) -> structlog.stdlib.BoundLogger:
    """Configures every logger of the process; a second call replaces the first. Returns Frazil's own. make_room: is called
    before a line is written.
    """
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    sink = _Sink(sys.stderr, make_room)
    sink.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _Redactor(redaction),
                _renderer(form),
                _Redactor(redaction),
                _in_plain,
            ],
        )
    )
    # Not for operators: lines of py4j that repeat what is raised, or that are not errors.
    sink.addFilter(lambda record: not str(record.msg).startswith(_BESIDE_ERRORS))
    # PySpark's, of a session whose JVM ends with the process.
    warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark JVM process", RuntimeWarning)
    root = logging.getLogger()
    root.handlers[:] = [sink]
    root.setLevel(logging.WARNING)
    logging.getLogger("frazil").setLevel(logging.DEBUG)
    logger: structlog.stdlib.BoundLogger = structlog.get_logger("frazil")
    return logger


class _Sink(logging.StreamHandler[TextIO]):
    """Writes lines where the progress of a command may be shown."""

    def __init__(self, stream: TextIO, make_room: Callable[[], None]) -> None:
        super().__init__(stream)
        self._make_room = make_room

    def emit(self, record: logging.LogRecord) -> None:
        self._make_room()
        super().emit(record)


def _renderer(form: LogFormat) -> structlog.typing.Processor:
    if form is LogFormat.auto:
        return _sentence if sys.stderr is not None and sys.stderr.isatty() else _renderer(LogFormat.text)
    if form is LogFormat.json:
        return structlog.processors.JSONRenderer(default=str)
    return structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"], bool_as_flag=False)


def _sentence(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    """Returns a line for people: the time, the level, and the event as a sentence with its details."""
    kept = dict(event)
    when, level, what = (str(kept.pop(name, "")) for name in ("timestamp", "level", "event"))
    trace = kept.pop("exception", None)
    about = kept.pop("table", None)
    words = what.replace("_", " ")
    sentence = f"{about}: {words}" if about is not None else words[:1].upper() + words[1:]
    details = ", ".join(f"{name.replace('_', ' ')} {_shown(value)}" for name, value in kept.items() if value != "")
    clock = when[11:19] if len(when) > 19 else when
    line = f"{clock} {level.upper():<7} {sentence}" + (f": {details}" if details else "")
    return f"{line}\n{trace}" if trace else line


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple | set | frozenset):
        return " ".join(map(str, value)) or "none"
    return str(value)


def _in_plain(_logger: WrappedLogger, _method: str, event: EventDict | str) -> EventDict | str:
    """Returns the line as a terminal may show it: reasons quote record contents."""
    return plain(event) if isinstance(event, str) else event


class _Redactor:
    """Masks secrets in the values, before they are quoted, and in the finished line."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict | str) -> EventDict | str:
        if isinstance(event, str):
            return self._redaction.text(event)
        return {key: self._redaction.document(value) for key, value in event.items()}
