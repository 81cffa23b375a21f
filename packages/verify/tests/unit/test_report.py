"""Reports: a page, a text and JSON of the same, whose signature shows a change."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from frazil.api.results import VerifyResult
from frazil.errors import SpecError
from frazil_verify.findings import Finding, Findings, Kind
from frazil_verify.opened import JudgedTable, Level
from frazil_verify.report import document_of, read_report, write_report

HOUR = 3_600_000


def document() -> dict[str, Any]:
    """A report of a table with two differences in two hours."""
    findings = Findings()
    text = "topic t, partition 0, offset 4: has other values in name"
    at_ms = 5 * HOUR + 1
    findings.add(Finding(Kind.CHANGED, text, "t", 0, 4, None, at_ms, {"name": "<b>"}, {"name": 'a"'}, ("name",)))
    findings.add(Finding(Kind.MISSING, "topic t, partition 0, offset 9: has no row", "t", 0, 9, None, 9 * HOUR))
    hours = {str(kind): {hour: count} for (kind, hour), count in findings.hours.items()}
    counts = {str(kind): count for kind, count in findings.counts.items()}
    table = JudgedTable("a.b", level=Level.INDEPENDENT, findings=tuple(findings.first), counts=counts, hours=hours)
    return document_of(VerifyResult("p", (table,)), 10 * HOUR)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = document()
    assert read_report(write_report(tmp_path / "report.json", written)) == written
    assert written["tables"]["a.b"]["hours"] == {"changed": {str(5 * HOUR): 1}, "missing": {str(9 * HOUR): 1}}


def test_a_changed_report_is_refused(tmp_path: Path) -> None:
    path = write_report(tmp_path / "report.json", document())
    changed = json.loads(path.read_text())
    changed["tables"]["a.b"]["findings"][0]["offset"] = 5
    path.write_text(json.dumps(changed))
    with pytest.raises(SpecError, match="its signature is another one"):
        read_report(path)
    path.write_text("[]")
    with pytest.raises(SpecError, match="is not a report of `frazil verify` in JSON") as refused:
        read_report(path)
    assert refused.value.remedy.endswith("--report report.json`")


def test_the_page_shows_every_difference_and_no_value_as_markup(tmp_path: Path) -> None:
    page = _Tags()
    page.feed(write_report(tmp_path / "report.html", document()).read_text())
    assert page.tags.count("svg") == 2
    assert page.tags.count("rect") == 4
    assert "b" not in page.tags
    assert any("name: 'a\"', must be '<b>'" in text for text in page.texts)


def test_a_folder_gets_a_page_and_a_report_by_date(tmp_path: Path) -> None:
    write_report(tmp_path, document())
    stem = "verify-p-1970-01-01T100000Z"
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{stem}.html", f"{stem}.json"]
    text = write_report(tmp_path / "report.txt", document()).read_text()
    assert "a.b: 2 differences\n  changed: 1\n  missing: 1\n" in text


def test_a_time_that_no_calendar_has_is_shown_as_a_number(tmp_path: Path) -> None:
    hours = {"missing": {0: 1, 2**62: 1}}
    table = JudgedTable("a.b", level=Level.INDEPENDENT, counts={"missing": 2}, hours=hours)
    page = write_report(tmp_path / "report.html", document_of(VerifyResult("p", (table,)), HOUR)).read_text()
    assert "1970-01-01T00:00:00Z" in page
    assert f"{2**62} ms" in page
