"""What a terminal shows of a command that takes long: one line, which makes room for everything else."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
import structlog

from frazil.cli.output import Output, ProgressLine
from frazil_testing.twins import FakeClock
from tests.fixtures.terminal import Terminal
from tests.fixtures.waiting import wait_until

ERASE = "\r\x1b[K"


class Tty(io.StringIO):
    """A terminal without a size."""

    def isatty(self) -> bool:
        return True


def test_the_line_is_drawn_again_and_again_until_it_ends() -> None:
    terminal, clock = Tty(), FakeClock()
    line = ProgressLine(terminal, clock, delay_s=0)
    wait_until(lambda: "working (0 s)" in terminal.getvalue(), "the first line")
    clock.sleep(3)
    line.show("loading\nshop.orders, 3 of 120 tables")
    wait_until(lambda: "loading shop.orders, 3 of 120 tables (3 s)" in terminal.getvalue(), "the second line")
    line.end()
    drawn = terminal.getvalue()
    assert drawn.endswith(f"(3 s){ERASE}")
    assert drawn.count("\n") == 0


def test_a_line_is_no_longer_than_the_terminal_is_wide() -> None:
    terminal = Tty()
    line = ProgressLine(terminal, FakeClock(), delay_s=0)
    line.show("x" * 300)
    wait_until(lambda: "xxx" in terminal.getvalue(), "the long line")
    line.end()
    longest = max(terminal.getvalue().split(ERASE), key=len)
    assert (len(longest), longest.endswith("x (0 s)")) == (79, True)


def test_nothing_is_shown_in_the_first_two_seconds() -> None:
    terminal = Tty()
    ProgressLine(terminal, FakeClock()).end()
    assert terminal.getvalue() == ""


def test_what_is_written_takes_the_place_of_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("frazil.cli.output.ProgressLine", lambda stream: ProgressLine(stream, FakeClock(), 0))
    terminal = Tty()
    output = Output(results=io.StringIO(), notes=terminal)
    output.hide(["hush"])
    output.begin_progress()
    output.doing("asking hush")
    wait_until(lambda: "asking *** (0 s)" in terminal.getvalue(), "the line")
    output.note("a note")
    wait_until(lambda: terminal.getvalue().endswith("asking *** (0 s)"), "the line again")
    output.end_progress()
    assert f"(0 s){ERASE}a note\n{ERASE}" in terminal.getvalue()
    assert terminal.getvalue().endswith(ERASE)


@pytest.mark.parametrize(
    ("term", "logs_errors", "notes"), [("dumb", False, Tty()), ("xterm", True, Tty()), ("xterm", False, io.StringIO())]
)
def test_other_readers_of_standard_error_get_no_line(
    term: str, logs_errors: bool, notes: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    output = Output(results=io.StringIO(), notes=notes)
    output.log = structlog.stdlib.get_logger() if logs_errors else None
    output.begin_progress()
    assert output._progress is None


@pytest.mark.parametrize(("variable", "is_coloured"), [("NO_COLOR", False), ("SHOWN", True)])
def test_a_terminal_gets_no_colours_where_nobody_wants_them(
    variable: str, is_coloured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "1")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with Terminal([sys.executable, "-m", "frazil.cli.main", "--help"], tmp_path) as terminal:
        assert terminal.wait(60) == 0
        assert "Prove and repair" in terminal.text
        assert (b"\x1b[3" in bytes(terminal._drawn) or b";3" in bytes(terminal._drawn)) is is_coloured
