"""The guide's pipeline with its cases is played as the guide shows it, and the reference page has every key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.scan import ROOT
from frazil.cli.main import main
from frazil_testing import case_file

GUIDE = ROOT / "docs" / "guides" / "test-pipelines.md"
REFERENCE = ROOT / "docs" / "reference" / "cases.md"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_the_cases_of_the_guide_are_as_expected_and_a_difference_is_shown_as_in_the_guide(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = _BLOCK.findall(GUIDE.read_text())
    pipeline, orders, customers = [text for language, text in blocks if language == "yaml"]
    (shown,) = [text for language, text in blocks if language == ""]
    (folder / "cases").mkdir()
    (folder / "frazil.yaml").write_text(pipeline)
    (folder / "cases" / "orders.yaml").write_text(orders)
    (folder / "cases" / "customers.yaml").write_text(customers)
    assert main(["test"]) == 0
    assert capsys.readouterr().out.startswith("3 cases: 3 as expected (")
    (folder / "cases" / "orders.yaml").write_text(orders.replace("amount: 12.5,", "amount: 12.6,"))
    assert main(["test"]) == 4
    text = capsys.readouterr().out
    assert re.sub(r"\([0-9.]+ s\)", "", text) == re.sub(r"\([0-9.]+ s\)", "", shown)


def test_the_reference_page_has_every_key() -> None:
    page = REFERENCE.read_text()
    tables = [set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", part, re.MULTILINE))))
              for part in page.split("\n## ")[1:]]  # fmt: skip
    assert tables == [set(case_file.FILE_KEYS), set(case_file.CASE_KEYS), set(case_file.RECORD_KEYS)]
