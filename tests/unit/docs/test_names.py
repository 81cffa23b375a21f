"""Docstrings, comments and pages point to files, modules and names that exist; variables have nouns as names."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

from docs.scan import PACKAGES, ROOT, SOURCE, name_of, nodes, sources, tree

PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "docs/contributing/*.md", "docs/decisions/*.md", "packages/*/README.md")
"""Globs of pages that describe the source."""
CODE = ("src", "packages", "tests", "docs", "bench")
"""Folders with the files and names that exist."""

TOYS = ("logfmt.py",)
"""Files of the packages that pages on contributing make up."""
SECTIONS = ("catalog", "dead_letters", "ha", "http", "kafka", "maintenance", "registry", "verify", "write")
"""Sections of the pipeline file, and beginnings of properties of tables, that are names of rooms too."""

_PATH = re.compile(r"`((?:[a-z_0-9]+/)*[a-z_0-9]+\.py)`")
_NAME_IN_PATH = re.compile(r"`((?:[a-z_0-9]+/)*[a-z_0-9]+\.py)`(?:\*\*)?(?:, | \()`(\w+)`")
_MODULE = re.compile(r"`([a-z_]+(?:\.\w+)+)`")
_MEMBER = re.compile(r"`([A-Z][A-Za-z]+)\.(_?[a-z]\w*)`")

AT_SEVERAL_HEIGHTS = ("routes", "stages")
"""Rooms with files in several layers of the import contract."""
VAGUE = ("found", "one")
"""Names that leave open what a variable holds."""
CLEAN = (
    "catalog", "cdc", "cli", "dead_letters", "decode", "ingest", "kafka", "maintenance", "ops", "plugins",
    "queries", "registry", "routes", "rows", "runtime", "schema", "spec", "stages", "store", "upsert", "write", "*.py",
    *sorted(path.name for path in PACKAGES.glob("*/src/frazil_*")),
)  # fmt: skip
"""Rooms of the source, and files beside them, in which no variable, parameter, field or function has a vague name."""
IN_DOCUMENTS = ("ops/check.py",)
"""Files with a vague name that is a key of documents: `found` of `frazil check --output json`."""


@cache
def _files() -> frozenset[str]:
    return frozenset(str(path.relative_to(ROOT)) for folder in CODE for path in (ROOT / folder).rglob("*.py"))


def _texts() -> Iterator[tuple[str, str]]:
    """Yields each page, and the docstrings and comments of each module, with its name."""
    for glob in PAGES:
        yield from ((str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in ROOT.glob(glob))
    for path in sources():
        yield str(path.relative_to(ROOT)), "\n".join(prose_of(path.read_text(encoding="utf-8")))


def prose_of(source: str) -> Iterator[str]:
    """Yields the docstrings and comments of a module."""
    begins_line = True
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and begins_line):
            yield token.string
        begins_line = token.type in (tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT)


def files_of(path: str) -> list[str]:
    """Returns the files that a path may mean: from the root, or the end of a path."""
    return [file for file in _files() if file == path or file.endswith(f"/{path}")]


@cache
def _defined(path: Path) -> frozenset[str]:
    """Returns the names that a module defines or imports."""
    names = set[str]()
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
    return frozenset(names)


def _names_in(members: Iterable[ast.AST]) -> Iterator[str]:
    for node in members:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


@cache
def _classes() -> Mapping[str, frozenset[str] | None]:
    """Returns the members of each class by its name; None where a base of it is of another package. Classes of one name
    count as one.
    """
    members, bases = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for path in sources():
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                members[node.name].update(_names_in(ast.walk(node)))
                bases[node.name].update(ast.unparse(base).partition("[")[0] for base in node.bases)

    def of(name: str, below: frozenset[str] = frozenset()) -> frozenset[str] | None:
        inherited = [of(base, below | {name}) for base in bases[name] - {"Protocol", "Generic", *below, name}]
        known = [names for names in inherited if names is not None]
        is_open = name not in members or len(known) < len(inherited)
        return None if is_open else frozenset(members[name]).union(*known)

    return {name: of(name) for name in list(members)}


def is_defined(pointer: str) -> bool:
    """Returns whether a room or module of `frazil`, or of a package beside it, has what a dotted name says."""
    parts = pointer.split(".")
    place = _folder_of(parts[0])
    while parts and (place / parts[0]).is_dir():
        place /= parts.pop(0)
    if not parts:
        return True
    module = place / f"{parts[0]}.py"
    if not module.is_file():
        return False
    return len(parts) == 1 or parts[1] in _defined(module)


def _folder_of(name: str) -> Path:
    """Returns the folder in which a room of the core, or the import package of another distribution, is."""
    return next((folder for folder in PACKAGES.glob("*/src") if (folder / name).is_dir()), SOURCE)


def stale(text: str) -> Iterator[str]:
    """Yields the pointers of a text to what does not exist."""
    yield from (path for path in _PATH.findall(text) if not files_of(path) and path not in TOYS)
    for path, name in _NAME_IN_PATH.findall(text):
        files = files_of(path)
        if files and not any(name in _defined(ROOT / file) for file in files):
            yield f"{path}: {name}"
    for pointer in filter(_is_pointer, _MODULE.findall(text)):
        if not is_defined(pointer.removeprefix("frazil.")):
            yield pointer
    yield from (f"{owner}.{member}" for owner, member in _MEMBER.findall(text) if not _may_have(owner, member))


def _may_have(owner: str, member: str) -> bool:
    members = _classes().get(owner)
    return members is None or member in members


def _is_pointer(pointer: str) -> bool:
    """Returns whether a dotted name is that of a module or of a name in it, and not a key or a group of entry points."""
    if pointer in _groups():
        return False
    parts = pointer.removeprefix("frazil.").split(".")
    if parts[0] in SECTIONS and not pointer.startswith("frazil.") and parts[-1].islower():
        return False
    is_of_source = (_folder_of(parts[0]) / parts[0]).is_dir() or (SOURCE / f"{parts[0]}.py").is_file()
    return is_of_source and parts[-1] not in ("py", "md")


@cache
def _groups() -> frozenset[str]:
    """Returns the strings of the source that begin as names of modules do, such as groups of entry points."""
    constants = (node.value for path in sources() for node in nodes(path) if isinstance(node, ast.Constant))
    return frozenset(text for text in constants if isinstance(text, str) and text.startswith("frazil."))


def test_texts_point_to_what_exists() -> None:
    assert [f"{name}: {pointer}" for name, text in _texts() for pointer in stale(text)] == []


def test_import_contracts_name_modules_that_exist() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = [f"{'.'.join(of.get('containers', ()))} {layer}" for of in contracts for layer in of.get("layers", ())]
    names = {name for layer in layers for name in re.findall(r"frazil\.([\w.]+)", layer)}
    assert [name for name in sorted(names) if not is_defined(name)] == []


def test_the_rooms_of_the_architecture_are_in_the_order_of_the_import_contract() -> None:
    rows = re.findall(
        r"^\| (`\w+/`(?:, `\w+/`)*) \|", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    [layers] = [of["layers"] for of in contracts if of["name"] == "imports go down, never up"]
    heights = {room: height for height, layer in enumerate(layers) for room in re.findall(r"\(frazil\.(\w+)\)", layer)}
    rooms = [room for row in rows for room in re.findall(r"\w+", row) if room not in AT_SEVERAL_HEIGHTS]
    assert [heights[room] for room in rooms] == sorted(heights[room] for room in rooms)
    assert {path.parent.name for path in SOURCE.glob("*/__init__.py")} == {*rooms, *AT_SEVERAL_HEIGHTS}


def test_the_readme_of_a_package_names_each_of_its_files() -> None:
    missing = []
    for package in sorted(path.parent for path in PACKAGES.glob("*/pyproject.toml")):
        [source] = package.glob("src/*")
        names = set(re.findall(r"`([\w/.*]+)`", (package / "README.md").read_text(encoding="utf-8")))
        for path in source.rglob("*.py"):
            name = path.relative_to(source.parent).as_posix()
            is_named = any(fnmatch(name, text if text.startswith("frazil_") else f"*/{text}") for text in names)
            folders = [text for text in names if text.endswith("/") and name.startswith(text)]
            if path.name not in ("__init__.py", "doors.py") and not is_named and not folders:
                missing.append(name)
    assert missing == []


def vague_names(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields the lines in which a vague name is given to a variable, parameter, field or function."""
    for node in ast.walk(module):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name = node.name
        else:
            continue
        if name.lstrip("_") in VAGUE:
            yield node.lineno, name


@pytest.mark.parametrize("room", CLEAN)
def test_variables_have_nouns_as_names(room: str) -> None:
    paths = set(SOURCE.glob(room) if room.endswith(".py") else (_folder_of(room) / room).rglob("*.py"))
    assert paths != set()
    paths = {path for path in paths if name_of(path) not in IN_DOCUMENTS}
    assert [f"{path.relative_to(ROOT)}:{line} {name}" for path in paths for line, name in vague_names(tree(path))] == []


@pytest.mark.parametrize(
    ("text", "pointers"),
    [
        ("`catalog/swap.py` commits, `catalog/port.py` too, as `port.py`", ["catalog/swap.py"]),
        ("`catalog/port.py` (`Catalog`), **`catalog/port.py`**, `turns`", ["catalog/port.py: turns"]),
        ("`decode.pieces` and `decode.limits.read_bounded`, not `decode.limits.pieces`",
         ["decode.pieces", "decode.limits.pieces"]),
        ("`Catalog.lock` and `Catalog.turn`, `Schema.find_field`", ["Catalog.turn"]),
    ],
)  # fmt: skip
def test_stale_pointers_are_found(text: str, pointers: list[str]) -> None:
    assert list(stale(text)) == pointers


def test_vague_names_are_found() -> None:
    source = "found = [one for one in x]\ndef f(one, *, columns): self.found = lambda row: row\n"
    assert sorted(vague_names(ast.parse(source))) == [(1, "found"), (1, "one"), (2, "found"), (2, "one")]
