"""Where the log goes in a program that uses Frazil as a library: to Python's own loggers, without secrets."""

from __future__ import annotations

from typing import Any

import structlog

from frazil.api.redaction import Redaction

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
