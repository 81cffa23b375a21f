"""Log lines: their two forms, and no secret in any of them."""

from __future__ import annotations

import io
import json
import logging
import re
import warnings

import pytest
import structlog

from frazil.cli.logging import configure_logging
from frazil.cli.output import Json, LogFormat, LogLevel, Redaction

SECRET = 'pa"ss\\w/ord'


def redaction() -> Redaction:
    made = Redaction()
    made.hide([SECRET, ""])
    return made


def test_a_line_is_keys_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogFormat.text, LogLevel.info, redaction())
    structlog.get_logger("frazil").info("committed", table="shop.orders", records=3)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith("level=info event=committed table=shop.orders records=3\n")


def test_a_line_is_json_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogFormat.json, LogLevel.info, redaction())
    structlog.get_logger("frazil").warning("stopped", table="shop.orders")
    line = json.loads(capsys.readouterr().err)
    assert {key: line[key] for key in ("event", "level", "table")} == {
        "event": "stopped",
        "level": "warning",
        "table": "shop.orders",
    }


def test_less_important_lines_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogFormat.text, LogLevel.warning, redaction())
    structlog.get_logger("frazil").info("committed")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("form", list(LogFormat))
def test_no_secret_is_in_a_value_an_exception_or_a_librarys_line(
    capsys: pytest.CaptureFixture[str], form: LogFormat
) -> None:
    configure_logging(form, LogLevel.debug, redaction())
    logger = structlog.get_logger("frazil")
    logger.info("connecting", password=SECRET, options={"sasl.password": SECRET, "list": [SECRET]})
    try:
        raise ValueError(f"bad {SECRET}")
    except ValueError:
        logger.exception("failed")
    logging.getLogger("library").warning("refused %s", SECRET)
    printed = capsys.readouterr().err
    assert printed.count("***") >= 5
    assert "ssw/ord" not in printed.replace("\\", "")


def test_a_documents_keys_and_values_are_redacted() -> None:
    document: Json = {"a": [SECRET, 1, None, True], SECRET: {"b": f"x{SECRET}y"}}
    assert redaction().document(document) == {"a": ["***", 1, None, True], "***": {"b": "x***y"}}


def test_a_secret_inside_another_does_not_leave_its_rest() -> None:
    made = Redaction()
    made.hide(["pass", "password"])
    assert made.text("password pass") == "*** ***"


@pytest.mark.parametrize("form", list(LogFormat))
def test_what_a_reason_quotes_of_a_record_does_not_reach_the_terminal_as_it_is(
    capsys: pytest.CaptureFixture[str], form: LogFormat
) -> None:
    configure_logging(form, LogLevel.info, redaction())
    structlog.get_logger("frazil").error("table_stopped", reason="field \x1b[31mred\x9b2J\x07: é\r\nlevel=info")
    line = capsys.readouterr().err
    assert line.rstrip("\n").isprintable()
    assert "\\x1b[31mred" in line or "\\u001b[31mred" in line


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_a_line_is_time_level_and_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    configure_logging(LogFormat.auto, LogLevel.info, redaction())
    structlog.get_logger("frazil").info("batch_committed", table="shop.orders", records=3000, where="")
    structlog.get_logger("frazil").warning("unavailable", reason=f"no {SECRET}")
    shown = terminal.getvalue().splitlines()
    assert [line[8:] for line in shown] == [
        " INFO    shop.orders: batch committed: records 3,000",
        " WARNING Unavailable: reason no ***",
    ]
    assert re.fullmatch(r"\d\d:\d\d:\d\d", shown[0][:8])


def test_elsewhere_it_is_keys_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogFormat.auto, LogLevel.info, redaction())
    structlog.get_logger("frazil").info("committed", table="shop.orders")
    assert capsys.readouterr().err.endswith("level=info event=committed table=shop.orders\n")


@pytest.mark.parametrize(
    ("logger", "message"),
    [
        ("", "Exception while sending command."),
        ("", "KeyboardInterrupt while sending command."),
        ("py4j.clientserver", "Exception occurred while shutting down connection"),
        ("py4j.java_gateway", "Tried to garbage collect non existing python proxy p7"),
    ],
)
def test_what_py4j_logs_beside_the_errors_that_it_raises_is_left_out(
    capsys: pytest.CaptureFixture[str], logger: str, message: str
) -> None:
    configure_logging(LogFormat.text, LogLevel.info, redaction())
    try:
        raise ConnectionResetError("the JVM is gone")
    except ConnectionResetError:
        logging.getLogger(logger).exception(message)
    logging.getLogger("py4j.java_gateway").error("Cannot authenticate with gateway server.")
    (line,) = capsys.readouterr().err.splitlines()
    assert 'event="Cannot authenticate with gateway server."' in line


def test_a_session_whose_jvm_ends_with_the_process_is_no_warning() -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        configure_logging(LogFormat.text, LogLevel.info, redaction())
        warnings.warn("Unable to cleanly shutdown Spark JVM process. It is possible that …", RuntimeWarning, 1)
        warnings.warn("another", RuntimeWarning, 1)
    assert [str(one.message) for one in shown] == ["another"]
