"""What the product logs in the tests' own process costs little."""

from __future__ import annotations

import pytest
import structlog


def test_an_exception_is_written_as_python_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("no such column")
    except ValueError:
        structlog.get_logger().exception("table_stopped", table="n.t")
    written = capsys.readouterr().out.splitlines()
    assert written[0].endswith("table=n.t")
    assert written[1] == "Traceback (most recent call last):"
    assert written[-1] == "ValueError: no such column"
