"""The port through which commands write: results to standard output, everything else to standard error.

With `--output json` standard output contains JSON documents only, one per line, also when the command fails.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, TextIO

from frazil.cli.redaction import Json, Redaction
from frazil.errors import FrazilError, SpecError, UnavailableError

if TYPE_CHECKING:
    from rich.console import RenderableType

_WIDTH_OF_A_PIPE = 120


class OutputFormat(StrEnum):
    """The format of results."""

    text = "text"
    json = "json"


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

    def hide(self, secrets: Iterable[str]) -> None:
        """Masks `secrets` in everything written from now on, logs included."""
        self.redaction.hide(secrets)

    def result(self, document: Json, text: RenderableType) -> None:
        """Writes the result: `document` for programs, `text` (or a rich renderable) for people."""
        if self.form is OutputFormat.json:
            self._write(self._results, json.dumps(self.redaction.document(document), ensure_ascii=False))
        else:
            self._write(self._results, self.redaction.text(_render(text, self._results, self.redaction.text)))

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
            self.result({"error": {**described, "exit_code": exit_code, **more}}, "")
            return exit_code
        for words in (described, *others):
            self.note(f"error: {words['message']}")
            for key in ("where", "remedy"):
                if words[key]:
                    self.note(f"{key}: {words[key]}")
        return exit_code

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
            self._is_lost = True
            _give_up(stream)
            raise UnavailableError(
                f"the result of the command cannot be written: {error.strerror}",
                remedy="free space where standard output is written, or redirect it, and run the command again",
                where="standard output",
            ) from None


def _give_up(stream: TextIO) -> None:
    """Redirects the rest of the stream to nowhere, so that the process does not fail on exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def plain(text: str, kept: str = "\n\t") -> str:
    """Returns the text without characters that move the cursor or colour the screen, except `kept`: a record may
    contain anything, and messages quote records.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in kept else one.encode("unicode_escape").decode() for one in text)


def reserve_standard_output() -> TextIO:
    """Returns standard output for results alone: what libraries or the JVM print goes to standard error from now on."""
    if sys.__stdout__ is None or sys.stdout is not sys.__stdout__:
        return sys.stdout
    sys.stdout.flush()
    reserved = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return reserved


def _render(text: RenderableType, stream: TextIO, redacted: Callable[[str], str]) -> str:
    """Returns the text as written to the stream. redacted: masks secrets; it is applied first, because an escaped
    secret would no longer be recognised.
    """
    if isinstance(text, str):
        return plain(redacted(text))
    from rich.console import Console  # noqa: PLC0415  (a tenth of a second that most commands need not pay)
    from rich.segment import Segment, Segments  # noqa: PLC0415

    console = Console(file=stream, width=None if stream.isatty() else _WIDTH_OF_A_PIPE)
    with console.capture() as capture:
        segments = (Segment(plain(redacted(one.text)), one.style, one.control) for one in console.render(text))
        console.print(Segments(segments), end="")
    return capture.get()


def _describe(error: BaseException) -> tuple[int, dict[str, str]]:
    if isinstance(error, FrazilError):
        words = {"type": type(error).__name__, "message": error.message, "where": error.where, "remedy": error.remedy}
        return error.exit_code, words
    message = f"unexpected {type(error).__name__}: {error}".rstrip(": ")
    return 1, {"type": type(error).__name__, "message": message, "where": "", "remedy": "run again with --debug"}
