"""What a terminal is shown: texts, and nothing in them that would move its cursor or colour it."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from frazil.cli.output import Output, OutputFormat

HOSTILE = "a\x1b[31mred\x9b2J\x7f\ud800"


def _table() -> Table:
    table = Table(box=None)
    table.add_column("column")
    table.add_row(HOSTILE)
    return table


@pytest.mark.parametrize("text", [f"one\n\t{HOSTILE}", Text(HOSTILE, style="red"), Group(Text("one"), _table())])
def test_what_a_record_brings_is_spelt_out(text: RenderableType) -> None:
    results, notes = io.StringIO(), io.StringIO()
    output = Output(results=results, notes=notes)
    output.result({}, text)
    output.note(HOSTILE)
    for shown in (results.getvalue(), notes.getvalue()):
        assert "a\\x1b[31mred\\x9b2J\\x7f\\ud800" in shown
        assert all(line.replace("\t", "").isprintable() for line in shown.splitlines())


def test_lines_and_styles_stay_as_they_are() -> None:
    results = io.StringIO()
    output = Output(results=results)
    output.result({}, Group(Text("é × …"), Text("two", style="red")))
    output.result({}, "one\ntwo")
    assert results.getvalue() == "é × …\ntwo\none\ntwo\n"


def test_json_says_all_of_it() -> None:
    results = io.StringIO()
    Output(OutputFormat.json, results=results).result({"reason": HOSTILE[:-1]}, "")
    assert json.loads(results.getvalue()) == {"reason": HOSTILE[:-1]}


@pytest.mark.parametrize(
    ("secret", "kind"), [("-----BEGIN\r\nabc\r\n-----END", str), ("a\\b\xa0c", str), ("a\\b\xa0c", Text)]
)
def test_secrets_that_would_be_spelt_out_are_masked_all_the_same(secret: str, kind: type[str | Text]) -> None:
    results, notes = io.StringIO(), io.StringIO()
    output = Output(results=results, notes=notes)
    output.hide([secret])
    output.result({}, kind(f"reason: {secret}"))
    output.note(f"reason: {secret}")
    assert results.getvalue() == "reason: ***\n"
    assert notes.getvalue() == "reason: ***\n"
