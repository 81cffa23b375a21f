"""The pages of docs/troubleshoot, which the package has a copy of: the page that explains a message, and each as HTML."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markupsafe import Markup, escape

HELP = "/help/"
INDEX = "README"
"""The name of the page that lists all others, by symptom and by message."""
_FOLDER = Path(__file__).parent / "runbooks"
_BLOCK = re.compile(r"^```\n(.*?)^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"([a-z-]+|README)\.md")
_GAP = "…"
_FEWEST = 12
"""A message with fewer characters besides its gaps, such as `… does not exist`, may be explained by several pages."""


@cache
def titles() -> dict[str, str]:
    """Returns the title of each page by its name."""
    return {path.stem: _text(path.stem).partition("\n")[0].removeprefix("# ") for path in sorted(_FOLDER.glob("*.md"))}


def page_of(message: str, place_of_record: bool = False) -> str:
    """Returns the name of the page that explains a message of a table: the page with the longest text of it, or the list
    of pages. place_of_record: whether the message is about one record.
    """
    text = " ".join(message.split())
    lengths = {name: length for length, pattern, name in _patterns() if pattern.search(text)}
    return max(lengths, key=lengths.__getitem__, default="bad-record" if place_of_record else INDEX)


@cache
def _patterns() -> tuple[tuple[int, re.Pattern[str], str], ...]:
    """Returns the messages that pages begin with, the shortest first: characters, a pattern for any gaps, the page."""
    patterns = []
    for name in titles():
        for line in "".join(_BLOCK.findall(_text(name).partition("**It means**")[0])).splitlines():
            length = len(line.replace(_GAP, "").strip())
            if length >= _FEWEST and name != INDEX:
                patterns.append((length, re.compile(".*".join(map(re.escape, line.split(_GAP)))), name))
    return tuple(sorted(patterns, key=lambda pattern: pattern[0]))


@cache
def html_of(name: str) -> Markup:
    """Returns a page as HTML. Links to pages of this folder lead to them, others are text: those pages are not here."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(_text(name))
    for token in tokens:
        # Links to pages that the help has stay; others become emphasised text.
        is_own = False
        for child in token.children or []:
            if child.type == "link_open":
                match = _LINK.fullmatch(str(child.attrs["href"]).partition("#")[0])
                is_own = match is not None and match[1] in titles()
                child.attrs = {"href": HELP + match[1]} if match is not None else {}
            if child.type in ("link_open", "link_close") and not is_own:
                child.tag = "em"
    text = parser.renderer.render(tokens, parser.options, {})
    caption = f'<table><caption class="visually-hidden">{escape(titles()[name])}</caption>'
    text = text.replace("<table>", caption).replace("<th>", '<th scope="col">')
    return Markup(text)


def _text(name: str) -> str:
    return (_FOLDER / f"{name}.md").read_text(encoding="utf-8")
