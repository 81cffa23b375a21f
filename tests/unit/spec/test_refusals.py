"""What the file must not have: `refusals` has each mistake, what is reported of it, and what the remedy makes of it."""

from __future__ import annotations

import os
from typing import get_args

import pytest

from frazil.spec.topics import pipeline_name
from tests.needs import Package, has_package
from tests.unit.spec.pipeline_file import HEAD, Load, Refuse, message_of, with_section, with_table
from tests.unit.spec.refusals import ENVIRONMENT, Part, read_parts


@pytest.mark.parametrize("part", read_parts(), ids=lambda part: part.title)
def test_each_mistake_is_refused_until_its_remedy_is_done(load: Load, part: Part) -> None:
    """`FRAZIL_WRITE_MESSAGES=1` writes what is reported anew."""
    expected = {mistake.written: mistake.reported for mistake in part.mistakes}
    assert len(expected) == len(part.mistakes)
    reported = {one.written: message_of(load, one.file(one.written), ENVIRONMENT) for one in part.mistakes}
    corrected = [mistake.file(text) for mistake in part.mistakes for text in mistake.corrections]
    taken = {text: message_of(load, text, ENVIRONMENT) for text in corrected}
    missing = sorted({name for words in (*reported.values(), *taken.values()) for name in _missing_packages(words)})
    for written in [written for written, words in reported.items() if _missing_packages(words)]:
        del reported[written], expected[written]
    if os.environ.get("FRAZIL_WRITE_MESSAGES"):
        text = part.path.read_text(encoding="utf-8")
        for written, words in expected.items():
            text = text.replace(f"\n{written}\n  -> {words}\n", f"\n{written}\n  -> {reported[written]}\n")
        part.path.write_text(text, encoding="utf-8")
    assert reported == expected
    assert "taken" not in reported.values()
    assert [words for words in reported.values() if words.endswith("; ")] == []
    assert {text: words for text, words in taken.items() if words != "taken" and not _missing_packages(words)} == {}
    if missing:
        pytest.skip(f"some mistakes of this part: needs {' and '.join(f'frazil-{name}' for name in missing)}")


def _missing_packages(reported: str) -> list[str]:
    """Returns the packages beside the core that a report names because they are not installed."""
    return [name for name in get_args(Package) if f"frazil-{name}, which" in reported and not has_package(name)]


def test_all_problems_of_the_file_are_told_in_full(refuse: Refuse) -> None:
    error = refuse(
        f"{HEAD}tables:\n  shop.x:\n    topic: a\n    mode: upset\n    limits: {{columns: 0}}\n    start: x\n"
    )
    assert str(error) == (
        "`mode` cannot be `upset` (and 2 more problems in this file) (pipeline.yaml:6); did you mean `upsert`?"
    )
    assert [(other.where, bool(other.message), bool(other.remedy)) for other in error.others] == [
        ("pipeline.yaml:7", True, True),
        ("pipeline.yaml:8", True, True),
    ]


_NAME = f"the name {'n' * 40}… has 256 bytes, and a column's name has 255 at most"


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        (with_table("columns: {NAME: string}"), f"the column `{'n' * 40}…`: {_NAME}", "give it a shorter name"),
        (with_table("columns: {s: 'list<struct<NAME: int>>'}"), f"the column `s`: {_NAME}", "give it a shorter name"),
        (with_table("rename: {a.b: NAME}"), f"`rename`: {_NAME}", "give it a shorter name"),
        (
            with_table("lookup: {NAME: {table: r.c, on: a = b, take: [c]}}"),
            f"`lookup`: {_NAME}",
            "give the lookup a shorter name",
        ),
        (with_section("catalog: {name: NAME}"), "`catalog.name` has 256 characters, and 255 at most", "shorten it"),
    ],
)
def test_a_name_has_255_bytes_at_most(load: Load, refuse: Refuse, text: str, message: str, remedy: str) -> None:
    error = refuse(text.replace("NAME", "n" * 256))
    assert (error.message, error.remedy, error.where) == (message, remedy, "pipeline.yaml:4")
    load(text.replace("NAME", "n" * 255))


@pytest.mark.parametrize("name", ["retrying", "x.retrying2", "x-replaying"])
def test_a_name_that_only_looks_like_one_of_frazils_own_is_a_name(name: str) -> None:
    assert pipeline_name(name) == name
