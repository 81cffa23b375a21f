"""`frazil size`, as a person and as a program reads it."""

from __future__ import annotations

import json
import re

import pytest

from docs.scan import ROOT
from frazil.cli.main import main


def test_the_size_of_a_load_is_printed_in_both_forms(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["size", "--records", "20000", "--bytes", "193", "--interval", "30s", "--put-price", "0"]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[0].startswith("cores     1, of which the load takes 0.")
    assert "commits   2,880 a day" in text
    assert main([*words, "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (
        document["commits_per_day"],
        document["load"]["commit_interval_s"],
        document["prices"]["per_1000_puts"],
    ) == (
        2_880,
        30.0,
        0.0,
    )


def test_the_page_shows_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs/deploy/sizing.md").read_text()
    match = re.search(r"^```bash\nfrazil (.*?)\n```\n\n```\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert match is not None
    assert main(match[1].split()) == 0
    assert capsys.readouterr().out == match[2]


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("--records 0", "give the records per second, such as 500"),
        ("--records nan", "give the records per second, such as 500"),
        ("--interval 1", "write"),
    ],
)
def test_an_impossible_load_is_refused(words: str, remedy: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", *words.split()]) == 2
    assert f"remedy: {remedy}" in capsys.readouterr().err
    assert main(["size", "--records", "500"]) == 0
