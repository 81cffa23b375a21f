"""Builds the site of these pages: `make site`.

The generator gets a copy of the pages, as they are written to be read in the repository too: links to files that are not
pages lead to copies of these files, and the menu is what the index pages list. FRAZIL_REPOSITORY, the address at which the
source can be read, adds a link to each page's source.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from posixpath import normpath, relpath

import yaml

import frazil
from docs.scan import ROOT

SITE = ROOT / "build" / "site"
"""What is to be served: a folder for each version."""
_STAGE = ROOT / "build" / "site-pages"
_SETTINGS = ROOT / "docs" / "mkdocs.yml"
_USERS, _MAKERS = "All sections", "For people who change Frazil"
_PROJECT = "project"
"""The folder of the site with files from outside of `docs`."""
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Group:
    """Pages that an index lists under one title, in its order. pages: paths relative to `docs`. title: may be empty."""

    title: str
    pages: tuple[str, ...]


def sections(title: str = "") -> list[str]:
    """Returns the index pages that the first page lists as sections, relative to `docs`. title: those below it alone."""
    return [page for page in _listed(title) if page.endswith("/README.md")]


def groups(index: str) -> list[Group]:
    """Returns the pages in the folder of an index page and below it, by the titles above their links in the index."""
    folder, listed, found = index.rpartition("/")[0], {index}, list[Group]()
    for part in re.split(r"^## ", (ROOT / "docs" / index).read_text(encoding="utf-8"), flags=re.MULTILINE):
        title = part.partition("\n")[0] if found or part[:2] != "# " else ""
        pages = [page for page in _links_in(part, index) if page.startswith(f"{folder}/")]
        pages = [page for page in dict.fromkeys(pages) if page not in listed]
        listed.update(pages)
        found.append(Group(title, tuple(pages)))
    return [group for group in found if group.pages]


def menu() -> list[object]:
    """Returns the menu as the generator's setting `nav` has it: titles with pages, or with more titles."""
    users, makers = ([_section(index) for index in sections(title)] for title in (_USERS, _MAKERS))
    return ["README.md", *users, *(page for page in _listed() if "/" not in page), {_MAKERS: makers}]


def _section(index: str) -> dict[str, object]:
    entries: list[object] = [index]
    for group in groups(index):
        below = [entry for page in group.pages for entry in _entries(page)]
        entries += [{group.title: below}] if group.title else below
    return {title_of(index): entries}


def _entries(page: str) -> list[object]:
    if not page.endswith("/README.md"):
        return [page]
    return [{title_of(page): [page, *(below for group in groups(page) for below in group.pages)]}]


def _flat(entry: object) -> Iterator[str]:
    """Yields the pages of a part of the menu."""
    if isinstance(entry, str):
        yield entry
    else:
        for below in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
            yield from _flat(below)


def title_of(page: str) -> str:
    """Returns the title of a page relative to `docs`."""
    return (ROOT / "docs" / page).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ").replace("`", "")


def _listed(title: str = "") -> list[str]:
    """Returns the pages that the first page lists, below a title of the two or below both."""
    _, _, both = (ROOT / "docs" / "README.md").read_text(encoding="utf-8").partition(f"\n## {_USERS}\n")
    users, _, makers = both.partition(f"\n## {_MAKERS}\n")
    return list(_links_in({_USERS: users, _MAKERS: makers}.get(title, both), "README.md"))


def _links_in(text: str, page: str) -> Iterator[str]:
    for _, target in _LINK.findall(_FENCED.sub("", text)):
        path = normpath(f"{page.rpartition('/')[0] or '.'}/{target.partition('#')[0]}")
        if target.partition("#")[0].endswith(".md") and not path.startswith(".."):
            yield path


# ---- the copy of the pages


def copy_pages(stage: Path, repository: str = "") -> None:
    """Writes the pages into an empty folder, and the files that they link to. repository: an address, or empty."""
    shutil.rmtree(stage, ignore_errors=True)
    waiting = [path for kind in ("md", "svg", "png") for path in sorted((ROOT / "docs").rglob(f"*.{kind}"))]
    copied: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path in copied or not path.is_file():
            continue
        copied.add(path)
        target = stage / _place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix != ".md":
            shutil.copyfile(path, target)
            continue
        linked: list[Path] = []
        target.write_text(_linked(path, repository, linked), encoding="utf-8")
        waiting += linked


def _place(path: Path) -> str:
    """Returns where a file of the repository is in the copy: pages of docs keep their places."""
    name = path.relative_to(ROOT).as_posix()
    return name.removeprefix("docs/") if name.startswith("docs/") else f"{_PROJECT}/{name}"


def _linked(page: Path, repository: str, linked: list[Path]) -> str:
    """Returns the text of a page with links that fit its copy. linked: gets the files that it links to."""

    def put(match: re.Match[str]) -> str:
        label, target = match.groups()
        if re.match("[a-z]+:|#", target):
            return match.group()
        name, mark, anchor = target.partition("#")
        path = (page.parent / name).resolve()
        if path.suffix != ".md" and repository and not path.is_relative_to(ROOT / "docs"):
            return f"[{label}]({repository}/blob/main/{path.relative_to(ROOT).as_posix()}{mark}{anchor})"
        linked.append(path)
        return f"[{label}]({relpath(_place(path), _place(page).rpartition('/')[0] or '.')}{mark}{anchor})"

    parts = re.split(r"(^```.*?^```)", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else _LINK.sub(put, part) for part in parts)


# ---- for programs that read text


def llms_txt() -> str:
    """Returns the list of pages as https://llmstxt.org has it: a title, what it is about, and links with a sentence each."""
    lines = [
        "# Frazil",
        "",
        f"> {_first_sentence('README.md')}",
        "",
        "Each page is Markdown at the address given here.",
    ]
    for index in sections():
        pages = list(_flat([index, *(_entries(page) for group in groups(index) for page in group.pages)]))
        is_optional = index in ("contributing/README.md", "decisions/README.md")
        lines += ["", "## Optional" if is_optional else f"## {title_of(index)}", ""]
        lines += [f"- [{title_of(page)}]({page}): {_first_sentence(page)}" for page in pages]
    return "\n".join(lines) + "\n"


def _first_sentence(page: str) -> str:
    """Returns the first sentence of a page's prose, without links; its title, if the page begins with a table or code."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for block in text.split("\n\n")[1:]:
        if not re.match(r"[|`#>-]|\d\.", block):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(block.split()))
            return re.split(r"(?<=[.:])\s", plain)[0].rstrip(":")
    return title_of(page)


def write_texts(folder: Path, stage: Path) -> None:
    """Writes `llms.txt`, `llms-full.txt` with the text of all listed pages, and each page as Markdown beside its HTML."""
    (folder / "llms.txt").write_text(llms_txt(), encoding="utf-8")
    listed = re.findall(r"\]\(([^)]+\.md)\)", llms_txt())
    full = "\n".join((stage / page).read_text(encoding="utf-8") for page in listed)
    (folder / "llms-full.txt").write_text(full, encoding="utf-8")
    for page in stage.rglob("*.md"):
        target = folder / page.relative_to(stage)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, target)


# ---- versions


def write_versions(site: Path) -> None:
    """Writes the list from which readers choose a version, the newest first, and an `index.html` that leads to that one."""
    built = sorted(
        (path.name for path in site.iterdir() if re.fullmatch(r"\d+\.\d+\.\d+", path.name)),
        key=lambda name: tuple(map(int, name.split("."))),
        reverse=True,
    )
    listed = [{"version": name, "title": name, "aliases": ["latest"] if name == built[0] else []} for name in built]
    (site / "versions.json").write_text(json.dumps(listed), encoding="utf-8")
    refresh = f'<meta http-equiv="refresh" content="0; url={built[0]}/">'
    page = f'<!doctype html><meta charset="utf-8">{refresh}<title>Frazil</title>'
    (site / "index.html").write_text(page, encoding="utf-8")


# ---- the generator


def settings(stage: Path, folder: Path, repository: str) -> Mapping[str, object]:
    """Returns the generator's settings."""
    found: dict[str, object] = yaml.safe_load(_SETTINGS.read_text(encoding="utf-8"))
    project = sorted(path.relative_to(stage).as_posix() for path in (stage / _PROJECT).rglob("*.md"))
    nav: list[object] = [*menu(), {"Project": project}]
    found |= {"docs_dir": str(stage), "site_dir": str(folder), "nav": nav}
    if repository:
        found |= {"repo_url": repository, "edit_uri": "edit/main/docs/"}
    return found


def main(arguments: Sequence[str]) -> int:
    """Builds the site of this version; returns the exit code of the generator. arguments: the generator's command."""
    repository = os.environ.get("FRAZIL_REPOSITORY", "").rstrip("/")
    folder, file = SITE / frazil.__version__, _STAGE.with_suffix(".yml")
    copy_pages(_STAGE, repository)
    file.write_text(yaml.safe_dump(settings(_STAGE, folder, repository), sort_keys=False), encoding="utf-8")
    code = subprocess.run(
        [*arguments, "build", "--strict", "--config-file", str(file)], cwd=ROOT, check=False
    ).returncode
    if code == 0:
        write_texts(folder, _STAGE)
        write_versions(SITE)
        sys.stdout.write(f"{folder}/index.html\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
