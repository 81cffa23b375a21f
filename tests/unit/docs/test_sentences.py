"""Sentences that a reader needs twice: no verb in front, no pronoun without its noun, "is not a", never "is no".

The words of Frazil's own that are retired are in test_words.py.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import pytest

from docs.generate import is_written, typer_command
from docs.scan import ROOT, name_of, nodes, sources, text_with_gaps
from frazil.cli.commands import every_command
from tests.unit.docs.test_words import PAGES, files_of

_BEGIN = r"(?:^|(?<=[.:!?|;] )|(?<=[-*] ))"
_COMPARED = r"(?:longer|more|less|later|older|larger|greater)\b"
ODD = {
    rf"{_BEGIN}Of (?:a|an|the|each|all|several|two|those|these|one|class|[a-z]+s|…) ": "put the subject first",
    rf"{_BEGIN}(?:[A-Z][a-z]+ed|Read|Left out|Not [a-z]+(?: [a-z]+)?|Shown|Kept) (?:is|are) ": "put the subject first",
    rf"{_BEGIN}One (?:that|whose|which|of less) ": "repeat the noun",
    rf"{_BEGIN}(?:Those|That) (?:of|that|which|who|in|with) ": "repeat the noun",
    rf"{_BEGIN}Who(?:ever)? [a-z]+s ": "name the actor: anyone who",
    r"\b(?:is|are) away\b(?! from)": "is unavailable",
    rf"(?<![Tt]here )\b(?:is|are|was|were|be) no (?!{_COMPARED})[a-z]": "is not a",
}
"""Regular expressions of sentences to turn round, with what to do."""

ODD_ON_PAGES = {**ODD, rf"\b[Tt]here (?:is|are|was|were) no (?!{_COMPARED})[a-z]": "put the subject first"}
"""On pages, which have the room to say who lacks it."""
_AFTER_ALSO = "|".join(
    ("across", "after", "as", "at", "before", "by", "for", "from", "if", "in", "inside", "of", "on", "through", "to",
     "when", "where", "while", "with", "without")
)  # fmt: skip
ODD_FOR_USERS = {
    rf"(?:(?<=[,;:] )|(?<=\()|(?<=\| ))also (?:{_AFTER_ALSO})\b": "even, including, with or without",
    r"\b(?:an)?other (?!more |rather )[a-z]+ than\b": "a … other than, or differs from",
    r"\ball the same\b": "nevertheless, or the effect itself",
    r"\b[Ww]hat (?:becomes|became) of\b": "the result of, what happens to",
    r"\b[Aa]ll else\b": "everything else, or the noun",
    r"\bin hand\b": "current, in flight",
    r"\bany more\b(?! [a-z])": "no longer, before the verb",
    r"\b(?:is|are|be) waited for\b": "name who waits",
    r"\b[Ll]ook-ups?\b|\b[Rr]oll-backs?\b": "lookup, rollback",
    r"\b[Mm]akes? a pipeline file of\b": "turn … into a pipeline file",
}
"""On pages that only users read, and in the help of commands: constructions that are not English."""
ODD_IN_MESSAGES = {
    r"(?<!/)\bbeside\b": "next to, in addition to, with",
    r"\boutside of\b": "outside",
    r"\basks? for\b|\basked for\b": "needs, requests",
    r"\bgoes? with\b": "can be combined with",
}
"""In messages: words that readers of English stumble over."""
_BY_THE_BENCH, _FOR_MAKERS = "docs/performance.md", "docs/contributing/"
ALL_PAGES = (*PAGES, "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "bench/README.md", "docs/decisions/*.md")


def odd_sentences(text: str, patterns: Mapping[str, str] = ODD) -> Iterator[str]:
    """Yields each occurrence with what is around it."""
    for pattern, advice in patterns.items():
        for match in re.finditer(pattern, text):
            yield f"{text[max(match.start() - 20, 0) : match.end() + 50]!r}: {advice}"


def _paragraphs(page: str) -> str:
    """The prose of a page on one line, with a full stop between its blocks, rows and items."""
    blocks = re.split(r"\n\s*\n|\n(?=\s*[-*|] |\d+\. )", page)
    return " . ".join(" ".join(block.split()) for block in blocks)


def _prose_of_page(name: str) -> str:
    """The page's paragraphs without code and link targets."""
    text = re.sub(r"(?ms)^```.*?^```", "", (ROOT / name).read_text(encoding="utf-8"))
    return _paragraphs(re.sub(r"`[^`]*`|\]\([^)]*\)", "…", text))


def test_pages_have_no_odd_sentence() -> None:
    odd = []
    for name in files_of(ALL_PAGES):
        odd += [f"{name}: {words}" for words in odd_sentences(_prose_of_page(name), ODD_ON_PAGES)]
    assert odd == []


def test_pages_for_users_are_idiomatic() -> None:
    odd = []
    for name in files_of((*PAGES, "SECURITY.md")):
        if name != _BY_THE_BENCH and not name.startswith(_FOR_MAKERS):
            odd += [f"{name}: {words}" for words in odd_sentences(_prose_of_page(name), ODD_FOR_USERS)]
    assert odd == []


def test_the_help_of_commands_has_no_odd_sentence() -> None:
    found = {command.name: typer_command(command) for command in every_command() if is_written(command)}
    texts = {
        name: [command.help, *(getattr(option, "help", "") for option in command.params)]
        for name, command in found.items()
    }
    assert [
        f"{name}: {odd}"
        for name, helps in texts.items()
        for text in helps
        for odd in odd_sentences(_paragraphs(inspect.cleandoc(text or "")), {**ODD, **ODD_FOR_USERS})
    ] == []


def test_texts_of_the_source_have_no_odd_sentence() -> None:
    """Messages, remedies, help of options: every text but docstrings."""
    texts = [f"{name_of(path)}: {text}" for path in sources() for text in _texts(path)]
    found = [odd for text in texts for odd in odd_sentences(text, {**ODD, **ODD_FOR_USERS, **ODD_IN_MESSAGES})]
    assert (len(texts) > 5_000, found) == (True, [])


def _texts(path: Path) -> Iterator[str]:
    inner = {id(part) for node in nodes(path) if isinstance(node, ast.JoinedStr) for part in node.values}
    skipped = inner | {id(node.value) for node in nodes(path) if isinstance(node, ast.Expr)}
    for node in nodes(path):
        is_text = isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
        if is_text and id(node) not in skipped:
            yield " ".join(text_with_gaps(cast("ast.expr", node)).split())


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("It stops. Of a table that is new nothing is known.", 1),
        ("Read are the newest records. A number is no text.", 2),
        ("There is no setting. It is no longer than a day.", 0),
        ("One that is running stops. One table is enough.", 1),
        ("Those of the topic are left out: who sees the table sees them.", 1),
    ],
)
def test_odd_sentences_are_found(text: str, count: int) -> None:
    assert len(list(odd_sentences(text))) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("It is outside of the years, and beside the file.", 2),
        ("A column asks for it. The outside is asked first, and besides, it works.", 1),
        ("`--version` goes with no command", 1),
    ],
)
def test_words_that_messages_do_not_use_are_found(text: str, count: int) -> None:
    assert len(list(odd_sentences(text, ODD_IN_MESSAGES))) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("It works, also in tables. It also works in tables, also large ones.", 1),
        ("A file has another format than the table, or a format other than Avro.", 1),
        ("What becomes of the batch in hand is waited for, and all else continues all the same.", 5),
        ("A lookup after a rollback, and a look-up after a roll-back.", 2),
        ("The topic does not exist any more, and no longer has any more records.", 1),
    ],
)
def test_constructions_that_are_not_english_are_found(text: str, count: int) -> None:
    assert len(list(odd_sentences(text, ODD_FOR_USERS))) == count
