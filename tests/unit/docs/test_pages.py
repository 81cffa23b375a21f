"""The documents hold together: links lead somewhere, pipeline files load, Python compiles, nothing is out of reach."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.generate import typer_command
from docs.scan import ROOT
from frazil.cli.commands import every_command
from frazil.errors import SpecError
from frazil.spec import load_spec
from frazil.spec.syntax.types import parse_type

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("packages/*/README.md")])
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_CALL = re.compile(r"(?:^|[`/(] ?|&& )frazil ([a-z](?:(?! &&)[^`\n|])*)", re.MULTILINE)
# Linked to and still being made: take a page out as it arrives.
_AWAITED: set[str] = set()
_ENVIRONMENT = {
    "KAFKA_PASSWORD": "x",
    "STORE_KEY": "x",
    "STORE_SECRET": "x",
    "CATALOG_TOKEN": "x",
    "CATALOG_CLIENT": "x",
    "CATALOG_SECRET": "x",
    "DB_PASSWORD": "x",
    "PROTECT_KEY": "x" * 32,
    "FRAZIL_READ_TOKEN": "x" * 32,
    "FRAZIL_TOKEN": "y" * 32,
    "NESSIE_TOKEN": "x",
    "REGISTRY_PASSWORD": "x",
}


def test_every_relative_link_leads_somewhere() -> None:
    assert [
        f"{page.relative_to(ROOT)}: {link}" for page in PAGES for link in _links(page) if not _leads(page, link)
    ] == []


def test_the_readme_has_at_most_a_hundred_and_ten_lines() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 110


def test_a_guide_has_at_most_a_hundred_and_twenty_lines() -> None:
    lengths = {page.name: len(page.read_text().splitlines()) for page in (ROOT / "docs/guides").glob("*.md")}
    assert {name: length for name, length in lengths.items() if length > 120} == {}


def test_an_index_has_the_minutes_that_its_pages_take() -> None:
    rows = [
        (page.parent / target, int(minutes))
        for page in (ROOT / "docs").glob("*/README.md")
        for target, minutes in re.findall(
            r"\]\(([\w./-]+\.md)\) \| (?:.*\| )?(\d+) \|$", page.read_text(), re.MULTILINE
        )
        if page.parent.name not in ("start", "tutorials")  # where commands are to be run as well
    ]
    words = {page: len(re.findall(r"\w[\w'-]*", _CODE.sub("", page.read_text()))) for page, _ in rows}
    wrong = [f"{page.name}: {minutes}" for page, minutes in rows if abs(words[page] / 200 - minutes) > 1.5]
    assert (len(rows) > 70, wrong) == (True, [])


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md" or not page.exists():
            continue
        reached.add(page)
        waiting += [(page.parent / link.partition("#")[0]).resolve() for link in _links(page) if link[0] != "#"]
    assert [str(page.relative_to(ROOT)) for page in PAGES if page not in reached] == []


def test_every_whole_pipeline_file_loads(tmp_path: Path) -> None:
    refused: dict[str, str] = {}
    for page in PAGES:
        for text in _blocks(page, "yaml"):
            if text.startswith("pipeline:"):
                file = tmp_path / "frazil.yaml"
                file.write_text(text)
                try:
                    load_spec(file, _ENVIRONMENT)
                except SpecError as error:
                    refused[str(page.relative_to(ROOT))] = f"{error.where}: {error.message}"
    assert refused == {}


_WITH_SECRETS = {
    "kafka": "",
    "registry": 'registry: {url: "http://${env:NAME}"}',
    "catalog": 'catalog: {type: rest, uri: "http://${env:NAME}"}',
    "spark": 'spark: {conf: {spark.x: "${env:NAME}"}}',
    "http": 'http: {tls: {certificate: "${env:NAME}", key: k}}',
    "telemetry": 'telemetry: {otlp: "http://${env:NAME}"}',
    "ha": 'ha: {elect: postgres, uri: "postgresql://${env:NAME}/lake"}',
    "protect_key": 'defaults: {protect: {a: hash}, protect_key: "${env:NAME}"}',
}


def test_the_pages_name_what_may_refer_to_secrets(tmp_path: Path) -> None:
    file = tmp_path / "frazil.yaml"
    for section, text in _WITH_SECRETS.items():
        kafka = 'kafka: {bootstrap.servers: "${env:NAME}:9092"}'
        file.write_text(f"pipeline: shop\n{kafka}\n{text}\ntables: {{shop.orders: {{topic: a}}}}\n")
        assert load_spec(file, {"NAME": "x" * 32}).file.secrets == {"x" * 32}, section
    for page in ("security/secrets.md", "reference/pipeline-file.md"):
        named = (ROOT / "docs" / page).read_text()
        assert [section for section in _WITH_SECRETS if f"`{section}`" not in named] == [], page


def test_every_target_of_make_is_in_a_table_of_targets() -> None:
    rules = re.findall(r"^([a-z -]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    targets = {name for rule in rules for name in rule.split()}
    pages = ("CONTRIBUTING.md", "docs/contributing/tests.md")
    described = {name for page in pages for name in re.findall(r"`make ([a-z-]+)`", (ROOT / page).read_text())}
    assert (len(targets) > 20, targets - described - {"setup", "machine", "check"}) == (True, set())


def test_commands_on_pages_have_the_options_that_they_are_given() -> None:
    options = {
        one.name: {name for option in typer_command(one).params for name in option.opts} for one in every_command()
    }
    calls = [(page, call.split()) for page in PAGES for call in _CALL.findall(page.read_text())]
    named = [(page, " ".join(words[:2]), words) for page, words in calls if " ".join(words[:2]) in options]
    named += [(page, words[0], words) for page, words in calls if words[0] in options]
    given = [
        (page.name, name, {word.split("=")[0] for word in words if word.startswith("--")})
        for page, name, words in named
    ]
    wrong = [f"{page}: frazil {name} {one}" for page, name, found in given for one in found - options[name]]
    assert (len(given) > 300, wrong) == (True, [])


@pytest.mark.parametrize("page", ["avro", "debezium", "json-schema", "protobuf"])
def test_the_types_of_columns_can_be_declared_as_the_page_has_them(page: str) -> None:
    text = (ROOT / "docs" / "reference" / f"{page}.md").read_text()
    found = re.findall(r"`(?:\w+ )?((?:list|map|struct)<[^`]*>)`", text)
    assert [word for word in found if parse_type(word).is_primitive] == []
    assert len(found) > 4


def test_every_python_example_compiles() -> None:
    for page in PAGES:
        for text in _blocks(page, "python"):
            compile(text, str(page), "exec")


def _links(page: Path) -> Iterator[str]:
    prose = _CODE.sub("", page.read_text())
    for target in _LINK.findall(prose):
        if not re.match(r"[a-z]+:", target):
            yield target


def _blocks(page: Path, language: str) -> Iterator[str]:
    return (text for name, text in _CODE.findall(page.read_text()) if name == language)


def _leads(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return str(target.relative_to(ROOT)) in _AWAITED
    return not anchor or anchor in _anchors(target)


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", _CODE.sub("", page.read_text()), re.MULTILINE)
    plain = (re.sub(r"`|\[|\]\([^)]*\)", "", title).replace("&lt;", "<").replace("&gt;", ">") for title in titles)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in plain}
