"""A page that is followed command by command names what its commands need, and lets them report why they fail."""

from __future__ import annotations

import re

from docs.scan import ROOT, sources

_SHELL = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
_FOLLOWED = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("start/*.md")),
    *sorted((ROOT / "docs").glob("tutorials/*.md")),
]
#: What a command or a program of a page shows, and what the page must have about it.
_NEEDS = {
    r"^import duckdb$": "`pip install duckdb`",
    r"^psql ": "`psql` (Debian: `postgresql-client`)",
    r"^kafka-topics.sh ": "its `kafka-topics.sh`",
}


def test_a_page_names_the_programs_and_packages_that_it_uses() -> None:
    using = [
        (page.name, need in text)
        for page in _FOLLOWED
        for pattern, need in _NEEDS.items()
        if re.search(pattern, text := page.read_text(), re.MULTILINE)
    ]
    assert (len(using) > 5, [name for name, is_named in using if not is_named]) == (True, [])


def test_a_page_that_names_the_compose_file_has_the_address_of_its_registry() -> None:
    compose = (ROOT / "docs/start/compose.md").read_text()
    (address,) = re.findall(r"^\| `registry` \|.*`(http://\S+)`", compose, re.MULTILINE)
    tutorials = [page.read_text() for page in _FOLLOWED if page.parent.name == "tutorials"]
    assert [
        address in text
        for text in tutorials
        if "start/compose.md" in text and re.search("^registry:", text, re.MULTILINE)
    ] == [True]


def test_the_page_of_the_installation_counts_the_jars() -> None:
    jars = (ROOT / "src/frazil/runtime/jars.sha256").read_text().split("\n")
    assert f"fetches {len([*filter(None, jars)])} jars" in (ROOT / "docs/start/install.md").read_text()


def test_frazil_is_installed_into_an_environment() -> None:
    blocks = [(page.name, block) for page in _FOLLOWED for block in _SHELL.findall(page.read_text())]
    installing = [(name, "-m venv" in block) for name, block in blocks if re.search(r"pip install .*frazil\[", block)]
    assert installing == [("README.md", True), ("install.md", True), ("install.md", True)]


def test_a_request_that_is_refused_prints_the_reason() -> None:
    calls = [
        (page.name, line)
        for page in sorted((ROOT / "docs").rglob("*.md"))
        for block in _SHELL.findall(page.read_text())
        for line in block.splitlines()
        if line.startswith("curl ")
    ]
    assert len(calls) > 4
    assert [call for call in calls if "--silent" in call[1] and "--show-error --fail-with-body" not in call[1]] == []


def test_a_file_of_sql_stops_at_its_first_error() -> None:
    calls = re.findall(r"^psql .*--file .*$", "\n".join(page.read_text() for page in _FOLLOWED), re.MULTILINE)
    assert len(calls) > 1
    assert [call for call in calls if "--set ON_ERROR_STOP=1" not in call] == []


def test_a_page_that_opens_a_catalog_in_sql_names_the_extra_of_pyiceberg() -> None:
    pages = [
        page for page in ROOT.glob("docs/**/*.md") if re.search(r'load_catalog\([^)]*type="sql"', page.read_text())
    ]
    assert (len(pages) > 2, [page.name for page in pages if "pyiceberg[sql-sqlite" not in page.read_text()]) == (
        True,
        [],
    )


def test_frazil_is_installed_from_the_folder_of_wheels_as_no_index_has_it() -> None:
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("packages/*/README.md")]
    lines = [
        (page.relative_to(ROOT).as_posix(), command)
        for page in pages
        for command in _INSTALLING.findall(page.read_text())
    ]
    assert (len(lines) > 25, [line for line in lines if "--find-links" not in line[1]]) == (True, [])


def test_remedies_name_no_index_for_frazil() -> None:
    commands = [command for path in sources() for command in _INSTALLING.findall(path.read_text())]
    assert [command for command in commands if "--find-links" not in command] == []


#: A command that installs a distribution of Frazil by its name, and not by a path.
_INSTALLING = re.compile(r"pip install [^\n`]*(?<![\w./-])frazil[^\n`]*")
