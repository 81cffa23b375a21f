"""The port through which commands write: results to standard output, everything else to standard error.

With `--output json` standard output contains JSON documents only, one per line, also when the command fails.
"""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from frazil.api.redaction import Json, Redaction
from frazil.clock import Clock, SystemClock
from frazil.errors import FrazilError, SpecError, UnavailableError, without_retry
from frazil.printable import plain

if TYPE_CHECKING:
    from rich.console import RenderableType
    from structlog.stdlib import BoundLogger

DEFAULT_FILE = Path("frazil.yaml")
SpecFile = Annotated[Path, typer.Option("--file", "-f", metavar="FILE", help="The pipeline file.")]
_WIDTH_OF_A_PIPE = 120


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
        self._progress: ProgressLine | None = None

    def hide(self, secrets: Iterable[str]) -> None:
        """Masks `secrets` in everything written from now on, logs included."""
        self.redaction.hide(secrets)

    def result(self, document: Json, text: RenderableType) -> None:
        """Writes the result: `document` for programs, `text` (or a rich renderable) for people."""
        if self.form is OutputFormat.json:
            self._write(self._results, json.dumps(self.redaction.document(document), ensure_ascii=False))
        else:
            self._write(self._results, self.redaction.text(_render(text, self._results, self.redaction.text)))

    def begin_progress(self) -> None:
        """Shows on a terminal, from the third second on, what the command is doing; does nothing elsewhere."""
        if self._notes.isatty() and self.log is None and os.environ.get("TERM") != "dumb":
            self._progress = ProgressLine(self._notes)

    def doing(self, text: str) -> None:
        """Notes what the command is doing, in a few words, for the line of its progress."""
        if self._progress is not None:
            self._progress.show(plain(self.redaction.text(text)))

    def end_progress(self) -> None:
        """Shows no progress any more."""
        if self._progress is not None:
            self._progress.end()
            self._progress = None

    def make_room(self) -> None:
        """Erases the line of the progress, before something else is written to the terminal."""
        if self._progress is not None:
            self._progress.hide()

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
        self.end_progress()
        if self._results is not sys.stdout:
            self._results.close()

    def _write(self, stream: TextIO, text: str) -> None:
        self.make_room()
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
        console.print(Segments(segments), end="", crop=False)  # The end of a line may be the reason of an error.
    return capture.get()


def _describe(error: BaseException) -> tuple[int, dict[str, str]]:
    if isinstance(error, FrazilError):
        # A command that has ended does not retry.
        remedy = without_retry(error.remedy)
        words = {"type": error.type_name, "message": error.message, "where": error.where, "remedy": remedy}
        return error.exit_code, words
    message = f"unexpected {type(error).__name__}: {error}".rstrip(": ")
    return 1, {"type": type(error).__name__, "message": message, "where": "", "remedy": "run again with --debug"}


_DELAY_S = 2.0
_EVERY_S = 0.25
_SIGNS = "|/-\\"
_ERASE = "\r\x1b[K"
_NARROWEST = 20


class ProgressLine:
    """A line on a terminal that shows what a command is doing, and for how long, until it ends. Any thread may call it.

    It is the last line of standard error: whatever else is written there, or to standard output, calls `hide` first.
    """

    def __init__(self, stream: TextIO, clock: Clock | None = None, delay_s: float = _DELAY_S) -> None:
        """Starts to wait. stream: a terminal. delay_s: how long nothing is shown."""
        self._stream = stream
        self._clock = clock or SystemClock()
        self._began_s = self._clock.monotonic_s()
        self._delay_s = delay_s
        self._lock = threading.RLock()
        self._doing = "working"
        self._is_shown = False
        self._drawn = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._draw_until_over, name="progress", daemon=True)
        self._thread.start()

    def show(self, doing: str) -> None:
        """Shows this from now on. doing: a few words on one line."""
        self._doing = " ".join(doing.split())

    def hide(self) -> None:
        """Erases the line, until it is drawn again."""
        with self._lock:
            if self._is_shown:
                self._write(_ERASE)
                self._is_shown = False

    def end(self) -> None:
        """Erases the line for good."""
        self._over.set()
        self._thread.join()
        self.hide()

    def _draw_until_over(self) -> None:
        wait_s = self._delay_s
        while not self._over.wait(wait_s):
            wait_s = _EVERY_S
            with self._lock:
                self._write(_ERASE + self._text())
                self._is_shown = True

    def _text(self) -> str:
        seconds = self._clock.monotonic_s() - self._began_s
        self._drawn += 1
        end, width = f" ({seconds:.0f} s)", max(self._width() - 1, _NARROWEST)
        return f"{_SIGNS[self._drawn % len(_SIGNS)]} {self._doing}"[: width - len(end)] + end

    def _width(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns
        except (OSError, ValueError):
            return 80

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # A terminal that is gone shows nothing.
            self._stream.write(text)
            self._stream.flush()
