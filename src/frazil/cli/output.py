"""The port through which commands write: results to standard output, everything else to standard error.

With `--output json` standard output contains JSON documents only, one per line, also when the command fails.
"""

from __future__ import annotations

import io
import json
import os
import sys
import traceback
import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO, TypeAlias

import typer

from frazil.catalog.vended import VENDED, Vended
from frazil.errors import FrazilError, SpecError, UnavailableError
from frazil.printable import plain
from frazil.secrets import mask

if TYPE_CHECKING:
    from rich.console import RenderableType
    from structlog.stdlib import BoundLogger

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

DEFAULT_FILE = Path("frazil.yaml")
SpecFile = Annotated[Path, typer.Option("--file", "-f", metavar="FILE", help="The pipeline file.")]
_WIDTH_OF_A_PIPE = 120


def _spell(secret: str) -> set[str]:
    return {
        secret,
        json.dumps(secret)[1:-1],
        repr(secret)[1:-1],
        urllib.parse.quote(secret.encode("utf-8", "surrogatepass"), safe=""),
    }


class Redaction:
    """The secrets of this process, those vended by its catalog included. Text returned by `text` contains none of them,
    in no known spelling.
    """

    def __init__(self, vended: Vended = VENDED) -> None:
        self._secrets: frozenset[str] = frozenset()
        self._vended = vended
        self._spelt: tuple[frozenset[str], frozenset[str], list[str]] = (frozenset(), frozenset(), [])

    def hide(self, secrets: Iterable[str]) -> None:
        """Adds `secrets`, except the empty one."""
        self._secrets |= {*filter(None, secrets)}

    def _spellings(self) -> list[str]:
        """Returns the spellings of all secrets, the longest first; computed again when secrets are added. Thread-safe."""
        of, given, spellings = self._spelt
        if of is not self._secrets or given is not self._vended.values:
            of, given = self._secrets, self._vended.values
            spellings = sorted(
                {spelling for secret in of | given for spelling in _spell(secret)}, key=len, reverse=True
            )
            self._spelt = (of, given, spellings)
        return spellings

    def text(self, text: str) -> str:
        """Returns the text with secrets masked."""
        for spelling in self._spellings():
            text = mask(text, spelling)
        return text

    def document(self, value: Json) -> Json:
        """Returns `value` with secrets masked in every text and key; a value that is not JSON becomes its text."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.document(held) for key, held in value.items()}
        if isinstance(value, list | tuple):
            return [self.document(held) for held in value]
        return self.text(str(value))


class OutputFormat(StrEnum):
    """The format of results."""

    text = "text"
    json = "json"


class LogFormat(StrEnum):
    """The format of log lines."""

    auto = "auto"
    text = "text"
    json = "json"


class LogLevel(StrEnum):
    """The least important level that is written."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


class ReaderGone(Exception):
    """Whoever read standard output has closed it, as `head` does after some lines."""


class Output:
    """Where a command writes."""

    def __init__(
        self,
        form: OutputFormat = OutputFormat.text,
        *,
        results: TextIO | None = None,
        notes: TextIO | None = None,
        redaction: Redaction | None = None,
    ) -> None:
        self.form = form
        self.redaction = redaction or Redaction()
        self._results = results or sys.stdout
        self._notes = notes or sys.stderr
        self._is_lost = False
        #: Where errors are logged, for a reader of standard error that expects lines of the log alone; None: they are notes.
        self.log: BoundLogger | None = None

    def hide(self, secrets: Iterable[str]) -> None:
        """Masks `secrets` in everything written from now on, logs included."""
        self.redaction.hide(secrets)

    def result(self, document: Json, text: RenderableType) -> None:
        """Writes the result: `document` for programs, `text` (or a rich renderable) for people."""
        if self.form is OutputFormat.json:
            self._write(self._results, json.dumps(self.redaction.document(document), ensure_ascii=False))
        else:
            self._write(self._results, self.redaction.text(_render(text, self._results, self.redaction.text)))

    def clear(self) -> None:
        """Clears the terminal, where the next result is to replace the last one; does nothing elsewhere."""
        if self.form is OutputFormat.text and self._results.isatty():
            self._results.write("\x1b[H\x1b[2J")

    def note(self, text: str) -> None:
        """Writes progress and advice for people; never a result."""
        self._write(self._notes, plain(self.redaction.text(text)))

    def error(self, error: BaseException, *, debug: bool) -> int:
        """Writes the error and returns its exit code."""
        exit_code, described = _describe(error)
        if debug:
            self.note("".join(traceback.format_exception(error)).rstrip())
        others = [_describe(other)[1] for other in error.others] if isinstance(error, SpecError) else []
        if self.form is OutputFormat.json and not self._is_lost:
            more: dict[str, Json] = {"others": [dict(other) for other in others]} if others else {}
            with suppress(UnavailableError, ReaderGone):  # Then it is written as a note.
                self.result({"error": {**described, "exit_code": exit_code, **more}}, "")
                return exit_code
        for words in (described, *others):
            self._note_error(words, exit_code)
        return exit_code

    def _note_error(self, words: Mapping[str, str], exit_code: int) -> None:
        if (log := self.log) is not None:
            log.error("command_failed", **{key: text for key, text in words.items() if text}, exit_code=exit_code)
            return
        self.note(f"error: {words['message']}")
        for key in ("where", "remedy"):
            if words[key]:
                self.note(f"{key}: {words[key]}")

    def close(self) -> None:
        """Closes the stream of results if it was reserved for them."""
        if self._results is not sys.stdout:
            self._results.close()

    def _write(self, stream: TextIO, text: str) -> None:
        try:
            stream.write(text.rstrip("\n") + "\n")
            stream.flush()
        except OSError as error:
            if stream is not self._results or self._is_lost:
                return  # There is no other place to report it.
            raise self.lose_results(error) from None

    def lose_results(self, error: OSError) -> UnavailableError | ReaderGone:
        """Returns the error of results that cannot be written. Redirects the rest of them to nowhere, so that the process
        does not fail on exit.
        """
        self._is_lost = True
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._results.fileno())
            os.close(nowhere)
        if isinstance(error, BrokenPipeError):
            return ReaderGone()
        return UnavailableError(
            f"the result of the command cannot be written: {error.strerror}",
            remedy="free space where standard output is written, or redirect it, and run the command again",
            where="standard output",
        )


def reserve_standard_output() -> TextIO:
    """Returns standard output for results alone: what libraries or the JVM print goes to standard error from now on."""
    if sys.__stdout__ is None or sys.stdout is not sys.__stdout__:
        return sys.stdout
    sys.stdout.flush()
    reserved = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return reserved


class _Likeness(io.StringIO):
    """A stream for rich that looks like `stream`, and takes what rich writes there beside what it captures: nothing, which
    a full disk refuses too.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    def isatty(self) -> bool:
        """Whether the stream is a terminal."""
        return self._stream.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the stream."""
        return self._stream.encoding


def _render(text: RenderableType, stream: TextIO, redacted: Callable[[str], str]) -> str:
    """Returns the text as written to the stream. redacted: masks secrets; it is applied first, because an escaped
    secret would no longer be recognised.
    """
    if isinstance(text, str):
        return plain(redacted(text))
    from rich.console import Console  # noqa: PLC0415  (a tenth of a second that most commands need not pay)
    from rich.segment import Segment, Segments  # noqa: PLC0415

    console = Console(file=_Likeness(stream), width=None if stream.isatty() else _WIDTH_OF_A_PIPE)
    with console.capture() as capture:
        segments = (
            Segment(plain(redacted(segment.text)), segment.style, segment.control) for segment in console.render(text)
        )
        console.print(Segments(segments), end="")
    return capture.get()


def _describe(error: BaseException) -> tuple[int, dict[str, str]]:
    if isinstance(error, FrazilError):
        words = {"type": error.type_name, "message": error.message, "where": error.where, "remedy": error.remedy}
        return error.exit_code, words
    message = f"unexpected {type(error).__name__}: {error}".rstrip(": ")
    return 1, {"type": type(error).__name__, "message": message, "where": "", "remedy": "run again with --debug"}
