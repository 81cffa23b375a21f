"""YAML as a tree that remembers its lines.

The parser's own loaders would keep the last of two equal keys, forget the lines and read `no` as false; so the tree
keeps a scalar's text next to what YAML takes it for. The pure Python loader is used because libyaml's crashes the
process on deep nesting.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from frazil.errors import SpecError
from frazil.secrets import Secrets, is_reference, is_secret_key, variables_of
from frazil.spec.syntax.problems import LABEL, place

LIMIT_BYTES = 2 * 1024 * 1024
LIMIT_NODES = 200_000
LIMIT_DEPTH = 50

Kind = Literal["text", "boolean", "integer", "number", "time", "nothing"]
_NAMES = ("on",)
"""Keys that YAML 1.1 reads as booleans, and that are names here."""
_KINDS: dict[str, Kind] = {
    "tag:yaml.org,2002:str": "text",
    "tag:yaml.org,2002:value": "text",
    "tag:yaml.org,2002:merge": "text",
    "tag:yaml.org,2002:bool": "boolean",
    "tag:yaml.org,2002:int": "integer",
    "tag:yaml.org,2002:float": "number",
    "tag:yaml.org,2002:timestamp": "time",
    "tag:yaml.org,2002:null": "nothing",
}
_RESOLVER = yaml.resolver.Resolver()
HIDDEN = "\0"
"""Begins keys of a section that a reader puts there, such as the name of a table: no file has such a key."""
GROUP = f"{HIDDEN}group "
"""Begins those of them that have the settings of one feature."""
Wrong = Literal["missing", "unreadable", "too large", "empty", "not a mapping", "too deep"]
"""What can be wrong with a file as a whole."""
PIPELINE_REMEDIES: Mapping[Wrong, str] = {
    "missing": "change to its folder, name it with -f FILE, or let `frazil init` write a first one",
    "unreadable": "name a file that can be read with -f FILE",
    "too large": "split the pipeline",
    "empty": "write at least pipeline, kafka and tables",
    "not a mapping": "begin with a line such as `pipeline: shop`",
    "too deep": "a pipeline file needs no more than ten levels",
}
_OCTAL = re.compile(r"[-+]?0[0-9_]+", re.ASCII)
_SEQUENCE_TAG = "tag:yaml.org,2002:seq"
_MAPPING_TAG = "tag:yaml.org,2002:map"
_MERGE_TAG = "tag:yaml.org,2002:merge"


@dataclass(frozen=True)
class FileKind:
    """A kind of file in YAML, for messages about a file that cannot be read as one."""

    #: Such as "the pipeline file".
    name: str
    remedies: Mapping[Wrong, str]

    def error(self, wrong: Wrong, message: str, where: str) -> SpecError:
        """Returns the error of a file. message: a sentence whose subject is the file."""
        return SpecError(f"{self.name} {message}", remedy=self.remedies[wrong], where=where)


PIPELINE_FILE = FileKind("the pipeline file", PIPELINE_REMEDIES)


@dataclass(frozen=True)
class Scalar:
    """One value: its text as written (quotes removed), and what YAML takes it for."""

    text: str
    kind: Kind
    line: int
    #: The environment variable that the text comes from; empty for another text.
    variable: str = ""


class Items(list["Node"]):
    """A list."""

    def __init__(self, items: Iterable[Node], line: int) -> None:
        super().__init__(items)
        self.line = line


class Section(dict[str, "Node"]):
    """A mapping, in the file's order."""

    def __init__(self, values: Mapping[str, Node], line: int, lines: dict[str, int]) -> None:
        """line: of the mapping. lines: those of the keys."""
        super().__init__(values)
        self.line = line
        self.lines = lines

    def hide(self, name: str, value: Any) -> None:
        """Adds what a reader knows of the section: the file has no such key."""
        dict.__setitem__(self, f"{HIDDEN}{name}", value)

    def hide_group(self, name: str, value: Any) -> None:
        """Adds the settings of a group, which a reader makes."""
        dict.__setitem__(self, f"{GROUP}{name}", value)

    def over(self, other: Section, keys: Container[str] | None = None) -> Section:
        """Returns these entries and those of another section that this section lacks; keys: all that may be taken."""
        taken = {key: value for key, value in other.items() if key not in self and (keys is None or key in keys)}
        return Section({**self, **taken}, self.line, {**other.lines, **self.lines})


Node = Scalar | Items | Section


def lines_of(node: Node | None) -> frozenset[int]:
    """Every line on which something of it begins."""
    return frozenset() if node is None else frozenset(line for _, line in texts_of(node))


def kind_of(text: str) -> Kind:
    """What YAML takes a text without quotes for."""
    tag: str = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    return _KINDS.get(tag, "text")


def filled(scalar: Scalar, secrets: Secrets) -> Scalar:
    """The value of a setting that is not a secret, with the variables that it refers to. A value that is one reference and
    nothing else is what YAML takes the variable's text for.

    Raises: SpecError for a variable that is not set, or whose name is that of a secret.
    """
    names = variables_of(scalar.text)
    if not names:
        return scalar
    hidden = next((name for name in names if is_secret_key(name)), None)
    if hidden is not None:
        message = f"the variable `{hidden}` holds a secret, as its name shows, and `{LABEL}` is shown to everyone"
        raise SpecError(message, remedy="write the value itself, or give the variable another name")
    text = secrets.filled(scalar.text)
    kind = kind_of(text) if is_reference(scalar.text) else scalar.kind
    return replace(scalar, text=text, kind=kind, variable=names[0])


def parse_value(text: str, path: Path, line: int) -> Node:
    """The value that a text of YAML is, all of it at one line. path: for messages.

    Raises: SpecError for text that is not YAML.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        remedy = "put the value in quotes, such as --set 'KEY=\"VALUE\"'"
        raise SpecError("the value is not YAML", remedy=remedy, where=place(path, line)) from None
    if root is None:
        return Scalar("", "nothing", line)
    return _at_line(_Conversion(path).convert(root, 0), line)


def _at_line(node: Node, line: int) -> Node:
    if isinstance(node, Scalar):
        return replace(node, line=line)
    if isinstance(node, Items):
        return Items([_at_line(item, line) for item in node], line)
    return Section({key: _at_line(value, line) for key, value in node.items()}, line, dict.fromkeys(node, line))


def read_document(path: Path, kind: FileKind = PIPELINE_FILE) -> Section:
    """Returns the mapping that the file holds. kind: of the file, for messages.

    Raises: SpecError for a file that cannot be read, or is not a mapping.
    """
    return parse_document(_read_text(path, kind), path, kind)


def parse_document(text: str, path: Path, kind: FileKind = PIPELINE_FILE) -> Section:
    """Returns the mapping that a text holds. path, kind: where the text came from, for messages.

    Raises: SpecError for a text that is not YAML, or not a mapping.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise SpecError(
            "the file has a control character", remedy="remove the character", where=place(path, line)
        ) from None
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(path, text, error) from None
    except RecursionError:
        raise kind.error("too deep", "is nested too deeply", place(path, 1)) from None
    if root is None:
        raise kind.error("empty", "is empty", place(path, 1))
    tree = _Conversion(path, kind).convert(root, 0)
    if not isinstance(tree, Section):
        raise kind.error("not a mapping", "is not a mapping", place(path, 1))
    return tree


def line_of(path: Path, text: str) -> int:
    """The line of the file's first key or value that is `text`; of what is found wrong only after the file was read."""
    try:
        return next((line for candidate, line in texts_of(read_document(path)) if candidate == text), 1)
    except SpecError:  # The file has been changed since.
        return 1


def texts_of(node: Node) -> Iterator[tuple[str, int]]:
    """Every key and value with its line, in the file's order."""
    left: list[Node | tuple[str, int]] = [node]
    while left:
        part = left.pop()
        if isinstance(part, tuple):
            yield part
        elif isinstance(part, Scalar):
            yield part.text, part.line
        elif isinstance(part, Items):
            left += reversed(part)
        else:
            for key, value in reversed(part.items()):
                if not key.startswith(HIDDEN):
                    left += (value, (key, part.lines.get(key, part.line)))


def _read_text(path: Path, kind: FileKind) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(LIMIT_BYTES + 1)
    except FileNotFoundError:
        raise kind.error("missing", "does not exist", str(path.absolute())) from None
    except OSError as error:
        raise kind.error("unreadable", f"cannot be read ({error.strerror})", str(path)) from None
    if len(content) > LIMIT_BYTES:
        raise kind.error("too large", f"is larger than {LIMIT_BYTES} bytes", str(path))
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SpecError("the file is not UTF-8", remedy="save it as UTF-8", where=place(path, line)) from None


# A brace opens a mapping there.
_BARE_REFERENCE = re.compile(r"[{\[,][^'\"]*[:\[,]\s*\$\{")


_OPENED = {
    "while scanning a quoted scalar": "quote",
    "while parsing a flow mapping": "brace",
    "while parsing a flow sequence": "bracket",
}
"""What the parser reads until it is closed, by its own words for that."""


_ODD_SPACE = re.compile(r"(^|:)[ \t]*[\u00a0\u2000-\u200b\u202f\u3000]")
"""Spaces that are copied from pages, where an indentation or the space behind a colon is expected."""


def _syntax_error(path: Path, text: str, error: yaml.MarkedYAMLError) -> SpecError:
    mark = error.problem_mark or error.context_mark
    problem = error.problem or "not YAML"
    problem = re.sub(r"'([^']*)'", lambda quoted: quoted[0] if _is_syntax(quoted[1]) else "(not shown)", problem)
    remedy = "look at the indentation (spaces, no tabs), the quotes and the colons up to this line"
    opened = _OPENED.get(error.context or "")
    if opened and error.context_mark and mark and error.context_mark.line < mark.line:
        begun = error.context_mark.line + 1
        remedy = (
            f"close the {opened} that opens in line {begun}, or look at the commas and quotes from there to this line"
        )
    line = text.split("\n")[mark.line] if mark and mark.line < text.count("\n") + 1 else ""
    if problem.startswith("could not find expected ':'") and error.context_mark:
        mark = error.context_mark
        line = text.split("\n")[mark.line]
    if _BARE_REFERENCE.search(line):
        remedy = 'put `${…}` in quotes inside braces and brackets, such as `{sasl.password: "${env:NAME}"}`'
    elif _ODD_SPACE.search(line):
        problem = "this line has a space of another kind, which is none to YAML"
        remedy = "replace it by a plain space"
    elif "expected <block end>" in problem and mark and line[: mark.column].strip():
        problem, remedy = "text follows a value in quotes or brackets", "put the whole value in quotes"
    elif "expected <block end>" in problem:
        problem, remedy = (
            "this line is not indented as the keys above it",
            "indent keys of one mapping alike, by spaces",
        )
    elif problem.startswith("could not find expected ':'"):
        problem, remedy = "this key has no colon", "write `key: value`"
    elif problem.startswith("mapping values are not allowed") and mark:
        above = next((text for text in reversed(text.split("\n")[: mark.line]) if text.strip()), "")
        if ":" in line[: mark.column]:
            problem, remedy = "a value has a colon", "put the value in quotes"
        elif ":" not in above:
            problem, remedy = "the key above this line has no colon", "write `key: value`"
        else:
            problem = "this line is indented more than the key above it, which has a value"
            remedy = "indent keys of one mapping alike, by spaces"
    elif of_characters := _of_characters(problem, line):
        problem, remedy = of_characters
    return SpecError(
        f"the YAML cannot be read: {problem}", remedy=remedy, where=place(path, mark.line + 1 if mark else 1)
    )


def _of_characters(problem: str, line: str) -> tuple[str, str] | None:
    """Returns what is wrong where a character has a meaning in YAML, and the remedy; None for another problem."""
    if problem == "but found another document":
        return "the file has a second document", "remove the line `---` between the documents"
    if "\\t" in problem and line.startswith("\t"):
        return "this line is indented by a tab", "indent it by spaces"
    if "\\t" in problem:
        return "a tab is before a value", "write a space in place of the tab"
    if problem.startswith("found undefined alias"):
        return "`*` begins an alias, and the file has none of this name", "put the whole value in quotes"
    if "that cannot start any token" in problem or problem.startswith("expected a comment or a line break"):
        return problem, "put the whole value in quotes"
    return None


def _is_syntax(quoted: str) -> bool:
    """Whether what the parser quotes is YAML's own and not the user's, which may be a password."""
    return len(quoted) < 3 or quoted.startswith("<")


class _Conversion:
    """From the parser's nodes to ours. An alias is converted as often as it is used, so the nodes are counted."""

    def __init__(self, path: Path, kind: FileKind = PIPELINE_FILE) -> None:
        self._path = path
        self._kind = kind
        self._nodes = 0

    def convert(self, node: yaml.Node, depth: int) -> Node:
        line = self._enter(node, depth)
        if isinstance(node, yaml.MappingNode) and node.tag == _MAPPING_TAG:
            return self._section(node, depth, line)
        if isinstance(node, yaml.SequenceNode) and node.tag == _SEQUENCE_TAG:
            return Items([self.convert(item, depth + 1) for item in node.value], line)
        if isinstance(node, yaml.ScalarNode) and node.tag in _KINDS:
            if _KINDS[node.tag] == "integer" and _OCTAL.fullmatch(node.value):
                message = "a number that begins with 0: some readers of YAML take it for octal, others for decimal"
                raise self._error(line, message, "write it without the 0, or in quotes where it is text")
            return Scalar(self._text(node), _KINDS[node.tag], line)
        raise self._error(line, "a YAML tag (`!…`) that Frazil does not know", "remove the tag, or quote the text")

    def _enter(self, node: yaml.Node, depth: int) -> int:
        line = _line(node)
        self._nodes += 1
        if self._nodes > LIMIT_NODES:
            raise self._error(line, "the file's aliases expand to too much", "write the values out")
        if depth > LIMIT_DEPTH:
            raise self._kind.error("too deep", "is nested too deeply", place(self._path, line))
        return line

    def _section(self, node: yaml.MappingNode, depth: int, line: int) -> Section:
        own, merged = Section({}, line, {}), None
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE_TAG:
                for source in self._merge_sources(value_node):
                    self._enter(source, depth + 1)
                    section = self._section(source, depth + 1, line)
                    merged = section if merged is None else merged.over(section)
                continue
            key = self._key(key_node, value_node)
            if key in own:
                remedy = f"keep one of them; the first is in line {own.lines[key]}"
                raise self._error(_line(key_node), f"`{key}` occurs twice", remedy)
            own.lines[key] = _line(key_node)
            own[key] = self.convert(value_node, depth + 1)
        return own if merged is None else Section({**merged, **own}, line, {**merged.lines, **own.lines})

    def _merge_sources(self, node: yaml.Node) -> list[yaml.MappingNode]:
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        if not all(isinstance(source, yaml.MappingNode) for source in sources):
            raise self._error(_line(node), "`<<` takes a mapping", "write `<<: *name` with the name of a mapping")
        return list(sources)

    def _key(self, node: yaml.Node, value: yaml.Node) -> str:
        kind = _KINDS.get(node.tag) if isinstance(node, yaml.ScalarNode) else None
        if not isinstance(node, yaml.ScalarNode) or kind in (None, "nothing"):
            raise self._error(_line(node), "a key that is not text", "write a name before the colon")
        key = self._text(node)
        if kind == "boolean" and key not in _NAMES:
            raise self._error(_line(node), f"YAML reads the key `{key}` as a boolean", f'put it in quotes: "{key}"')
        if node.style is None and ":" in key and isinstance(value, yaml.ScalarNode) and value.value == "":
            name = key.partition(":")[0]
            raise self._error(_line(node), f"no space after the colon of `{name}`", f"write `{name}: value`")
        return key

    def _text(self, node: yaml.ScalarNode) -> str:
        """Returns the text of a node. JSON, which is YAML too, escapes a character beyond the first 65,536 as a pair of
        surrogates.
        """
        text: str = node.value
        if text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text):
            return text
        try:
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            message = "an escape that is half of a surrogate pair, which is not text"
            raise self._error(_line(node), message, "write both halves, or the character itself") from None

    def _error(self, line: int, message: str, remedy: str) -> SpecError:
        return SpecError(message, remedy=remedy, where=place(self._path, line))


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
