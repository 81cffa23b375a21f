"""The troubleshooting pages in the console: which one explains a message, and each as a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.scan import ROOT
from frazil_console.runbooks import INDEX, html_of, page_of, titles


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("topic orders was deleted and recreated: its offsets refer to other records now", "topic-recreated"),
        ("Kafka is not reachable: all brokers are down", "kafka-unavailable"),
        ("the JVM has ended 2 times while it read these records, and nothing else", "jvm-ended"),
        ("412 of 1000 records are bad, more than 20% of recent records: field id: null", "too-many-bad-records"),
        ("the record does not meet positive (n >= 0): n = -1", "expect"),
        ("the column a has the type variant, which this version cannot write", "column-type"),
        ("nobody has foreseen this", INDEX),
    ],
)
def test_a_message_leads_to_the_page_that_explains_it(message: str, name: str) -> None:
    assert page_of(message) == name


def test_a_bad_record_leads_to_its_page_whatever_is_wrong_with_it() -> None:
    assert page_of('field age: string "n/a" does not fit long', place_of_record=True) == "bad-record"


def test_the_package_has_every_page_and_links_lead_to_its_own_pages_alone() -> None:
    pages = ROOT / "docs" / "troubleshoot"
    assert titles().keys() == {path.stem for path in pages.glob("*.md")}
    text = html_of("bad-record")
    assert '<a href="/help/' in html_of(INDEX)
    assert "../guides" not in text
    assert ".md" not in html_of(INDEX)
    assert Path(pages / "bad-record.md").read_text(encoding="utf-8").startswith(f"# {titles()['bad-record']}\n")
