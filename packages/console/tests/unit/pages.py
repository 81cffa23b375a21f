"""Pages of the console as a test reads them: parsed, with what breaks their rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser

from starlette.testclient import TestClient

BROWSER = {"Accept": "text/html,application/xhtml+xml"}
_VOID = ("meta", "link", "input", "br", "wbr", "path")


class Page(HTMLParser):
    """One page. `flaws`: what a checker of accessibility or the content security policy would find."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.links: list[str] = []
        self.ids: list[str] = []
        self.flaws: list[str] = []
        self.rows: dict[str, str] = dict(
            re.findall(r'<tr data-table="([^"]*)">(.*?)</tr>', text.replace("\n", " "), re.DOTALL)
        )
        self._open: list[str] = []
        self._captions = 0
        self._tables = 0
        self._headings = 0
        self.feed(text)
        self.close()
        if self._captions != self._tables:
            self.flaws.append("a table without a caption")
        if self._headings != 1:
            self.flaws.append(f"{self._headings} main headings")
        if self._open:
            self.flaws.append(f"left open: {self._open}")
        if len(self.ids) != len(set(self.ids)):
            self.flaws.append("an id twice")
        self.flaws += [f"a link to nothing: {one}" for one in self.links if one[:1] == "#" and one[1:] not in self.ids]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag not in _VOID:
            self._open.append(tag)
        self._tables += tag == "table"
        self._captions += tag == "caption"
        self._headings += tag == "h1"
        self.ids += filter(None, [found.get("id")])
        self.links += filter(None, [found.get("href"), found.get("src")])
        self.flaws += self._rules(tag, found)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.flaws += self._rules(tag, {name: value or "" for name, value in attrs})

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.flaws.append(f"</{tag}> closes nothing")

    def _rules(self, tag: str, found: dict[str, str]) -> Iterator[str]:
        if tag == "style" or "style" in found or any(name.startswith("on") for name in found):
            yield f"inline style or script in <{tag}>"
        if tag == "script" and "src" not in found:
            yield "an inline script"
        if tag == "th" and "scope" not in found:
            yield "a header cell without a scope"
        if tag in ("input", "select") and found.get("type") != "hidden" and "label" not in self._open:
            yield f"<{tag}> without a label"
        if tag == "svg" and not (found.get("aria-hidden") or found.get("aria-label")):
            yield "a picture without a text"
        if tag == "html" and not found.get("lang"):
            yield "a page without a language"


def page_of(client: TestClient, path: str, status: int = 200) -> Page:
    """The page at a path, without flaws."""
    answer = client.get(path, headers=BROWSER)
    assert answer.status_code == status, (path, answer.status_code, answer.text)
    page = Page(answer.text)
    assert page.flaws == [], path
    return page


def crawl(client: TestClient, start: str = "/") -> dict[str, int]:
    """The status of every path of this service that can be reached by links."""
    found: dict[str, int] = {}
    waiting = [start]
    while waiting:
        path = waiting.pop().partition("#")[0]
        if path in found or not path:
            continue
        answer = client.get(path, headers=BROWSER)
        found[path] = answer.status_code
        if answer.headers["content-type"].startswith("text/html"):
            page = Page(answer.text)
            assert page.flaws == [], path
            waiting += page.links
    return found
