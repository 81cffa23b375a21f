"""Who has changed what, and when: a line for each change that somebody asks for, in the log and in a file.

The line is written before the change is made: a change that cannot be written down is not made.
"""

from __future__ import annotations

import errno
import getpass
import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from frazil.clock import Clock, SystemClock
from frazil.errors import UnavailableError
from frazil.files import make_private_directory
from frazil.spec import PipelineSpec

log = structlog.get_logger("frazil")


@dataclass(frozen=True)
class Actor:
    """Somebody who asks for a change."""

    #: `command`, `api` or `console`.
    through: str
    #: The user of the machine, with the one who called sudo; or which token, by the beginning of its SHA-256 sum; `anyone`
    #: without tokens.
    who: str
    #: The machine of a command, the address of a caller.
    place: str


def this_user() -> Actor:
    """Returns the user who has started this command."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # A user without a name, as in a container.
        name = f"uid {os.getuid()}"
    behind = os.environ.get("SUDO_USER")
    return Actor("command", f"{name} (sudo by {behind})" if behind else name, socket.gethostname())


def audit_file(spec: PipelineSpec) -> Path:
    """Returns the file with the changes that were asked for on this machine."""
    return spec.file.state_dir / f"{spec.pipeline}.audit.jsonl"


def record_command(spec: PipelineSpec, operation: str, **arguments: Any) -> None:
    """Records a change that the user of a command asks for, before it is made. arguments: those that were given.

    Raises: UnavailableError where it cannot be written.
    """
    record(spec, this_user(), operation, {name: value for name, value in arguments.items() if value is not None})


def record(
    spec: PipelineSpec, actor: Actor, operation: str, arguments: Mapping[str, Any], clock: Clock | None = None
) -> None:
    """Records a change that somebody asks for, before it is made.

    Raises: UnavailableError where it cannot be written.
    """
    now = datetime.fromtimestamp((clock or SystemClock()).now_ms() / 1000, UTC)
    words = {"through": actor.through, "who": actor.who, "place": actor.place, "operation": operation}
    details = {name: spec.redact(value) if isinstance(value, str) else value for name, value in arguments.items()}
    line = json.dumps({"at": now.isoformat(timespec="milliseconds"), **words, "arguments": details}, default=str)
    file = audit_file(spec)
    try:
        make_private_directory(file.parent)
        opened = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            # A line that was cut off is ended first.
            whole = f"{line}\n".encode()
            size = os.fstat(opened).st_size
            is_cut = size > 0 and os.pread(opened, 1, size - 1) != b"\n"
            text = b"\n" + whole if is_cut else whole
            if os.write(opened, text) < len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(opened)
    except OSError as error:
        raise UnavailableError(
            f"the audit log cannot be written: {error.strerror}",
            remedy="free space, or let this user write the folder; nothing was changed",
            where=str(file),
        ) from None
    log.info("operator_action", **words, **details)
