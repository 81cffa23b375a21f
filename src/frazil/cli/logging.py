"""The one place that configures logging: structlog, key=value or JSON lines on standard error, without secrets.

The libraries' own loggers go the same way, from warnings up.
"""

from __future__ import annotations

import logging
import sys
from enum import StrEnum

import structlog
from structlog.typing import EventDict, WrappedLogger

from frazil.cli.output import plain
from frazil.cli.redaction import Redaction


class LogFormat(StrEnum):
    """How a log line is written."""

    text = "text"
    json = "json"


class LogLevel(StrEnum):
    """The least important line that is written."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


def configure_logging(form: LogFormat, level: LogLevel, redaction: Redaction) -> None:
    """Sets up every logger of the process; a second call replaces the first."""
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
    sink = logging.StreamHandler(sys.stderr)
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
    root = logging.getLogger()
    root.handlers[:] = [sink]
    root.setLevel(logging.WARNING)
    logging.getLogger("frazil").setLevel(logging.DEBUG)


def _renderer(form: LogFormat) -> structlog.typing.Processor:
    if form is LogFormat.json:
        return structlog.processors.JSONRenderer(default=str)
    return structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"], bool_as_flag=False)


def _in_plain(_logger: WrappedLogger, _method: str, event: EventDict | str) -> EventDict | str:
    """The line as a terminal may be shown it: reasons quote what is in records."""
    return plain(event) if isinstance(event, str) else event


class _Redactor:
    """Runs on the values, before they are quoted in ways of their own, and on the line as it will be written."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict | str) -> EventDict | str:
        if isinstance(event, str):
            return self._redaction.text(event)
        return {key: self._redaction.document(value) for key, value in event.items()}
