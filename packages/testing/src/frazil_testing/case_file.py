"""A file of cases: YAML with the records of each case and what is expected of its tables.

The tree keeps lines and texts, so that a difference names the line of what was expected, and numbers stay as written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from frazil.errors import SpecError
from frazil.spec.syntax.document import FileKind, Items, Node, Scalar, Section, Wrong, read_document
from frazil.spec.syntax.keys import describe
from frazil.spec.syntax.problems import advice, place

VALUE_FORMS = ("value", "change", "json", "text", "bytes")
"""The keys that a record's value is written under; a record has one of them."""
EXPECTATIONS = ("rows", "dead_letters", "dropped", "stops")
"""The keys of what a case expects."""
RECORD_KEYS = (*VALUE_FORMS, "key", "headers", "timestamp", "topic", "partition", "offset", "schema", "key_schema")
CASE_KEYS = ("records", "given", *EXPECTATIONS)
INPUT_KEYS = ("topic", "records", "schemas", "given")
FILE_KEYS = ("pipeline", "table", "topic", "schemas", "given", "env", "cases")
_SCHEMA_KEYS = ("value", "key")
SUFFIXES = (".yaml", ".yml")
NO_CASES = "name a file or a folder of cases, or let `frazil try TABLE --record FILE` write a first one"
"""The remedy where the file or folder of cases does not exist."""
CASES_REMEDIES: Mapping[Wrong, str] = {
    "missing": NO_CASES,
    "unreadable": NO_CASES,
    "too large": "divide its cases among several files",
    "empty": "write `table: NAME`, and below it `cases: {NAME: {records: [{value: {…}}], rows: [{…}]}}`",
    "not a mapping": "begin with a line such as `table: shop.orders`, and write each case by its name below `cases:`",
    "too deep": "write the value of the record as `json`, which is text",
}
INPUT_REMEDIES: Mapping[Wrong, str] = {
    "missing": "name a file of values, one in each line, or YAML with `records`",
    "unreadable": "name a file of values, one in each line, or YAML with `records`",
    "too large": "name a file with fewer records",
    "empty": "write `records: [{value: {…}}]`",
    "not a mapping": "begin with a line `records:`, and write the records below it, or let the file's name end in .jsonl",
    "too deep": "write the value of the record as `json`, which is text",
}
_CASES_FILE = FileKind("the file of cases", CASES_REMEDIES)
_INPUT_FILE = FileKind("the file of records", INPUT_REMEDIES)
LINES_REMEDIES: Mapping[str, str] = {
    _CASES_FILE.name: (
        "write `table: NAME`, below it `cases: {NAME: {records: […]}}`, and each line as one of the records,"
        " `- json: '{…}'`; `frazil try TABLE --input FILE.jsonl` shows the result of the lines as they are"
    ),
    _INPUT_FILE.name: "let the file's name end in .jsonl",
}
"""The remedy, by the name of the kind, where a file has a JSON object in each line."""


@dataclass(frozen=True)
class CaseRecord:
    """A record of a case, as it is written."""

    section: Section
    #: The topic that the record names, or the topic of its file; empty: that of the only table.
    topic: str

    @property
    def line(self) -> int:
        """Where it begins."""
        return self.section.line


@dataclass(frozen=True)
class Case:
    """One case."""

    name: str
    line: int
    #: The mapping of the case.
    section: Section
    records: tuple[CaseRecord, ...]
    #: The rows of other tables, such as those of lookups, by table.
    given: Mapping[str, Items] = field(default_factory=dict)

    @property
    def has_expectation(self) -> bool:
        """Whether anything is expected."""
        return any(key in self.section for key in EXPECTATIONS)


@dataclass(frozen=True)
class CaseFile:
    """A file of cases."""

    path: Path
    #: The pipeline file that the file of cases names; None: that of the command.
    pipeline: Path | None
    #: The table that the cases are about; empty: the only table that reads their records.
    table: str
    #: Paths of files with the schemas of values and of keys, by `value` and `key`.
    schemas: Mapping[str, Path]
    #: Variables in place of those of the process.
    variables: Mapping[str, str]
    cases: tuple[Case, ...]

    def where(self, line: int) -> str:
        """Returns a place in the file."""
        return place(self.path, line)


def case_paths(path: Path) -> list[Path]:
    """Returns the files of cases that a path stands for: itself, or those in the folder and its folders.

    Raises: SpecError where there are none.
    """
    if path.is_dir():
        paths = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
        if paths:
            return paths
        raise SpecError("the folder has no files of cases", remedy="write one, such as orders.yaml", where=str(path))
    if path.exists():
        return [path]
    raise SpecError("there are no cases", remedy=NO_CASES, where=str(path))


def read_case_file(path: Path) -> CaseFile:
    """Returns the cases of a file.

    Raises: SpecError with the line of the first thing that is wrong.
    """
    reader = _Reader(path)
    document = _read(path, _CASES_FILE, FILE_KEYS)
    reader.check_keys(document, FILE_KEYS, "the file of cases")
    pipeline = reader.text(document, "pipeline")
    topic, variables = reader.text(document, "topic"), reader.section(document, "env")
    given = reader.tables(document)
    cases = reader.section(document, "cases")
    if not cases:
        raise SpecError("the file has no `cases`", remedy="write `cases: {NAME: {records: […]}}`", where=place(path, 1))
    return CaseFile(
        path,
        path.parent / pipeline if pipeline else None,
        reader.text(document, "table"),
        reader.paths(document),
        {name: reader.text(variables, name) for name in variables},
        tuple(reader.case(name, cases, topic, given) for name in cases),
    )


def read_input(path: Path, table: str) -> CaseFile:
    """Returns the records of a file as its only case. The file has `records`, and perhaps `topic`, `schemas` and `given`.
    table: that is tried.

    Raises: as `read_case_file`.
    """
    reader = _Reader(path)
    document = _read(path, _INPUT_FILE, INPUT_KEYS)
    reader.check_keys(document, INPUT_KEYS, "the file of records")
    records = tuple(reader.records(document, reader.text(document, "topic")))
    case = Case(path.name, 1, document, records, reader.tables(document))
    return CaseFile(path, None, table, reader.paths(document), {}, (case,))


def _read(path: Path, kind: FileKind, keys: tuple[str, ...]) -> Section:
    """Returns the mapping that a file holds. keys: one of which it has.

    Raises: SpecError for a file that cannot be read as one of its kind, also for one of JSON lines, of which the parser of
    YAML would report something else.
    """
    try:
        document = read_document(path, kind)
    except SpecError:
        if not _has_json_lines(path):
            raise
    else:
        if not document.keys().isdisjoint(keys) or not _has_json_lines(path):
            return document
    raise SpecError(
        f"{kind.name} has a JSON object in each line", remedy=LINES_REMEDIES[kind.name], where=place(path, 1)
    )


def _has_json_lines(path: Path) -> bool:
    """Whether each line of a file that has text is a JSON object."""
    try:
        lines = [line for line in path.read_text(encoding="utf-8-sig").split("\n") if line.strip()]
        return bool(lines) and all(isinstance(json.loads(line), dict) for line in lines)
    except (OSError, ValueError, RecursionError):
        return False


class _Reader:
    """Reads the parts of one file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def error_at(self, line: int, message: str, remedy: str) -> SpecError:
        """Returns the error of a line."""
        return SpecError(message, remedy=remedy, where=place(self._path, line))

    def check_keys(self, section: Section, known: tuple[str, ...], label: str) -> None:
        """Raises SpecError for a key that a section does not have."""
        for key in section:
            if key not in known:
                raise self.error_at(section.lines[key], f"unknown key `{key}` in {label}", advice(key, known))

    def text(self, section: Section, key: str) -> str:
        """Returns a text of a section; empty where it has none."""
        node = section.get(key)
        if node is None:
            return ""
        if isinstance(node, Scalar) and node.text and node.kind != "nothing":
            return node.text
        raise self.error_at(section.lines[key], f"`{key}` is {describe(node)} where text is expected", "write text")

    def section(self, section: Section, key: str) -> Section:
        """Returns a mapping in a section; an empty one where it has none."""
        node = section.get(key)
        if node is None:
            return Section({}, section.line, {})
        if isinstance(node, Section):
            return node
        message = f"`{key}` is {describe(node)} where a mapping is expected"
        raise self.error_at(section.lines[key], message, "write `name: value` pairs")

    def items(self, section: Section, key: str) -> Items:
        """Returns a list in a section; an empty one where it has none."""
        node = section.get(key)
        if node is None:
            return Items([], section.line)
        if isinstance(node, Items):
            return node
        message = f"`{key}` is {describe(node)} where a list is expected"
        raise self.error_at(section.lines[key], message, f"write a list of them, such as `{key}: [{{…}}]`")

    def tables(self, section: Section) -> dict[str, Items]:
        """Returns the rows that other tables have."""
        given = self.section(section, "given")
        return {name: self.items(given, name) for name in given}

    def paths(self, section: Section) -> dict[str, Path]:
        """Returns the files of the schemas of a file."""
        schemas = self.section(section, "schemas")
        self.check_keys(schemas, _SCHEMA_KEYS, "`schemas`")
        return {name: self._path.parent / self.text(schemas, name) for name in schemas}

    def case(self, name: str, cases: Section, topic: str, given: Mapping[str, Items]) -> Case:
        """Returns a case. topic, given: those of the file."""
        section = self.section(cases, name)
        self.check_keys(section, CASE_KEYS, f"the case `{name}`")
        records = tuple(self.records(section, topic))
        return Case(name, cases.lines[name], section, records, {**given, **self.tables(section)})

    def records(self, section: Section, topic: str) -> Iterator[CaseRecord]:
        """Yields the records of a section. topic: of those that name none."""
        records = self.items(section, "records")
        if not records:
            remedy = "write `records: [{value: {…}}]`"
            raise self.error_at(section.line, "there are no `records`", remedy)
        for node in records:
            if not isinstance(node, Section):
                message = f"a record is {describe(node)} where a mapping is expected"
                raise self.error_at(node.line, message, "write `- value: {…}`")
            self.check_keys(node, RECORD_KEYS, "a record")
            forms = [key for key in VALUE_FORMS if key in node]
            if len(forms) != 1:
                what = f"`{forms[0]}` and `{forms[1]}`" if forms else "no value"
                remedy = f"write one of: {', '.join(VALUE_FORMS)}; `value: null` is a tombstone"
                raise self.error_at(node.line, f"a record has {what}", remedy)
            yield CaseRecord(node, self.text(node, "topic") or topic)


def by_table(section: Section, key: str, table: str, check: type[Node]) -> Mapping[str, Node]:
    """Returns what a case expects by table. key: of the expectation. table: of an expectation that names none. check: the
    kind of an expectation of one table.
    """
    node = section.get(key)
    if node is None:
        return {}
    if isinstance(node, Section) and all(isinstance(value, check) for value in node.values()) and node:
        return dict(node)
    return {table: node}
