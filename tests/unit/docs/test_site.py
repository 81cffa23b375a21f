"""The site: every page is in its menu, links lead somewhere, programs get a list of pages; diagrams are fresh."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from docs import diagrams, site
from docs.scan import ROOT

_PAGES = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
_MAKER = "https://host.example/frazil"


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The copy of the pages that the generator gets."""
    folder = tmp_path_factory.mktemp("site")
    site.copy_pages(folder)
    return folder


def test_every_page_is_in_the_menu_once() -> None:
    assert Counter(_pages_of(site.menu())) == Counter(_PAGES)


def test_every_link_of_the_copied_pages_leads_to_a_file_of_the_copy(copied: Path) -> None:
    texts = {page: re.sub(r"(?ms)^```.*?^```", "", page.read_text()) for page in copied.rglob("*.md")}
    links = [(page, target) for page, text in texts.items() for target in re.findall(r"\]\(([^)\s]+)\)", text)]
    inner = [(page, target.partition("#")[0]) for page, target in links if not re.match("[a-z]+:|#", target)]
    assert [(page, target) for page, target in inner if not (page.parent / target).is_file()] == []


def test_links_to_files_that_are_not_pages_lead_to_the_repository_if_its_address_is_known(tmp_path: Path) -> None:
    site.copy_pages(tmp_path, _MAKER)
    recovery = (tmp_path / "reference/recovery.md").read_text()
    assert f"]({_MAKER}/blob/main/tests/acceptance/test_kills.py)" in recovery
    assert "](../project/ARCHITECTURE.md" in recovery
    assert site.settings(tmp_path, tmp_path, _MAKER)["edit_uri"] == "edit/main/docs/"
    assert "repo_url" not in site.settings(tmp_path, tmp_path, "")


def test_the_list_for_programs_has_a_title_what_it_is_about_and_every_page_with_a_sentence(copied: Path) -> None:
    title, _, about, *_ = site.llms_txt().splitlines()
    links = re.findall(r"^- \[([^\]]+)\]\(([^)]+)\): (.+)$", site.llms_txt(), re.MULTILINE)
    assert (title, about[:9]) == ("# Frazil", "> Frazil ")
    assert [page for _, page, _ in links if not (copied / page).is_file()] == []
    assert {page for _, page, _ in links} == {page for page in _PAGES if "/" in page}
    assert max(len(sentence) for *_, sentence in links) < 400


def test_each_page_is_beside_its_html_as_markdown(copied: Path, tmp_path: Path) -> None:
    site.write_texts(tmp_path, copied)
    assert {path.relative_to(tmp_path) for path in tmp_path.rglob("*.md")} >= set(map(Path, _PAGES))
    assert "# Concepts" in (tmp_path / "llms-full.txt").read_text()


def test_readers_choose_among_the_versions_that_are_built_the_newest_first(tmp_path: Path) -> None:
    for name in ("0.9.0", "0.10.0", "assets"):
        (tmp_path / name).mkdir()
    site.write_versions(tmp_path)
    assert [(one["version"], one["aliases"]) for one in json.loads((tmp_path / "versions.json").read_text())] == [
        ("0.10.0", ["latest"]),
        ("0.9.0", []),
    ]
    assert "url=0.10.0/" in (tmp_path / "index.html").read_text()


@pytest.mark.parametrize("name", diagrams.DIAGRAMS)
def test_the_diagrams_are_fresh(name: str) -> None:
    drawn = diagrams.draw(diagrams.DIAGRAMS[name])
    assert (diagrams.IMAGES / name).read_text() == drawn, "make docs"
    assert ElementTree.fromstring(drawn).tag.endswith("svg")


def _pages_of(entry: object) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict):
        for below in entry.values():
            yield from _pages_of(below)
    elif isinstance(entry, list):
        for below in entry:
            yield from _pages_of(below)
