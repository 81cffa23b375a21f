"""Commands, metrics and alerts that a page names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.generate import REFERENCE
from docs.scan import ROOT
from frazil.cli.commands import every_command
from frazil.dead_letters.record import DEAD_LETTER_TYPES
from tests.unit.docs.test_pages import PAGES

_CALL = re.compile(
    r"(?:^|[`/(] ?|&& )frazil (?:--(?:env|set) [^\s`]+ )*([a-z][a-z-]*)(?: ([a-z][a-z-]*))?(?=[\s`.)])", re.MULTILINE
)
_METRIC = re.compile(r"`(frazil_[a-z_]+)`")
_ALERT = re.compile(r"`(Frazil(?!Error)[A-Z]\w+)`")
_OF_READERS = ROOT / "docs" / "contributing"
"""Pages with commands and metrics that their reader adds."""
_LABELS = {("protect", "hash")}
"""Words behind `frazil` that are not a command."""
_PACKAGES = {path.name for path in ROOT.glob("packages/*/src/*")}


def test_every_command_that_a_page_names_exists() -> None:
    commands = {command.name for command in every_command()}
    groups = {name.split()[0] for name in commands if " " in name}
    calls = [
        (page, words) for page in PAGES if _OF_READERS not in page.parents for words in _CALL.findall(page.read_text())
    ]
    unknown = [
        f"{page.relative_to(ROOT)}: frazil {first} {second}"
        for page, (first, second) in calls
        if not (first in commands or (first in groups and (not second or f"{first} {second}" in commands)))
        and (first, second) not in _LABELS
    ]
    assert (len(calls) > 500, unknown) == (True, [])


@pytest.mark.parametrize(
    ("pattern", "page", "known"),
    [
        (_METRIC, REFERENCE / "metrics.md", r"`(frazil_[a-z_]+)`"),
        (_ALERT, ROOT / "deploy" / "prometheus" / "frazil.rules.yaml", r"alert: (\w+)"),
    ],
    ids=["metrics", "alerts"],
)
def test_every_metric_and_alert_that_a_page_names_exists(pattern: re.Pattern[str], page: Path, known: str) -> None:
    names = {*re.findall(known, page.read_text()), *_PACKAGES, *DEAD_LETTER_TYPES}
    assert [
        f"{other.relative_to(ROOT)}: {name}"
        for other in PAGES
        if _OF_READERS not in other.parents
        for name in pattern.findall(other.read_text())
        if name not in names
    ] == []
