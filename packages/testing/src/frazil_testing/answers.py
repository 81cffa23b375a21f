"""What tables have at the end of a case, written into its file as what the case expects. Everything else stays as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from frazil.errors import SpecError, UnavailableError
from frazil.spec.syntax.document import Items, Section
from frazil.spec.syntax.shown import quoted, spelt
from frazil_testing.case_file import EXPECTATIONS, Case, CaseFile, by_table
from frazil_testing.compare import row_document, subject_table
from frazil_testing.play import Played, PlayedTable

_WIDEST = 100
_DEAD_LETTER_COLUMNS = ("offset", "error_class", "path", "message")
_INDENT = "  "
_OF_FLOW = re.compile(r"[\[\]{}?]")


@dataclass(frozen=True)
class _Edit:
    """Lines of the file that are replaced. Both are 0-based; `end` is not replaced."""

    begin: int
    end: int
    lines: Sequence[str]


def write_answers(file: CaseFile, played: Mapping[str, Played]) -> None:
    """Replaces what cases expect by what their tables have. played: by the name of the case.

    Raises: SpecError for a case that is not written in lines of its own; UnavailableError where the file cannot be written.
    """
    text = file.path.read_text(encoding="utf-8")
    lines = text.splitlines()
    root: Any = yaml.compose(text, Loader=yaml.SafeLoader)  # Its nodes have the ends of cases.
    cases = next(value for key, value in root.value if key.value == "cases")
    nodes = {key.value: value for key, value in cases.value}
    edits: list[_Edit] = []
    for case in file.cases:
        if case.name in played:
            edits += _edits_of(file, case, nodes[case.name], played[case.name], lines)
    for edit in sorted(edits, key=lambda edit: edit.begin, reverse=True):
        lines[edit.begin : edit.end] = edit.lines
    try:
        file.path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        remedy = "make the file writable"
        raise UnavailableError(
            f"the answers cannot be written: {error.strerror}", remedy=remedy, where=str(file.path)
        ) from None


def _edits_of(
    file: CaseFile, case: Case, node: yaml.MappingNode, played: Played, lines: Sequence[str]
) -> Iterator[_Edit]:
    if node.flow_style:
        remedy = "write the case in lines of its own, `records:` and what it expects below each other"
        raise SpecError("the answers have no place in a case in braces", remedy=remedy, where=file.where(case.line))
    entries = [(key.value, key.start_mark, value.end_mark) for key, value in node.value]
    indent = " " * entries[0][1].column
    end = max(_end_line(mark, lines) for _, _, mark in entries)
    for name, start, mark in entries:
        if name in EXPECTATIONS:
            yield _Edit(start.line, _end_line(mark, lines), ())
    answers = [f"{indent}{line}" for line in answer_lines(file, case, played)]
    yield _Edit(end, end, answers)


def _end_line(mark: Any, lines: Sequence[str]) -> int:
    """Returns the line behind a value, without the empty lines and the comments that follow it."""
    end = int(mark.line) + (1 if mark.column > 0 and lines[mark.line : mark.line + 1] else 0)
    if mark.column and not lines[mark.line][: mark.column].strip():
        end = int(mark.line)  # The parser has gone to the next key.
    while end > 0 and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#")):
        end -= 1
    return end


def answer_lines(file: CaseFile, case: Case, played: Played) -> Iterator[str]:
    """Yields the lines of what a case should expect. Columns that it names already are kept, and no others are added."""
    is_single = len(played.tables) == 1 or file.table in played.tables
    table = subject_table(file, case, played) if is_single else ""
    names = [table] if is_single else sorted(played.tables)
    tables = [played.tables[name] for name in names]
    stopped = next((table.stopped for table in tables if table.stopped), "")
    if stopped:
        yield f"stops: {spelt(stopped.partition(';')[0])}"
        return
    named = {key: _named_columns(case, key) for key in ("rows", "dead_letters")}
    rows = {table.name: [*_rows(table, named["rows"].get(table.name))] for table in tables}
    dead_letters = {table.name: [*_dead_letters(table, named["dead_letters"].get(table.name))] for table in tables}
    dropped = {table.name: _counts(table.dropped) for table in tables}
    yield from _block("rows", rows, is_single, is_always=True)
    yield from _block("dead_letters", dead_letters, is_single)
    if any(table.dropped for table in tables):
        if is_single:
            yield f"dropped: {dropped[table]}"
        else:
            yield "dropped:"
            yield from (f"{_INDENT}{spelt(name)}: {counts}" for name, counts in dropped.items() if counts != "{}")


def _counts(dropped: Mapping[str, int]) -> str:
    return "{" + ", ".join(f"{spelt(name)}: {count}" for name, count in dropped.items()) + "}"


def _block(key: str, by_name: Mapping[str, list[str]], is_single: bool, is_always: bool = False) -> Iterator[str]:
    lists = {name: rows for name, rows in by_name.items() if rows or is_always}
    if not lists:
        return
    if is_single:
        (rows,) = lists.values()
        yield f"{key}:" if rows else f"{key}: []"
        yield from (f"{_INDENT}{row}" for row in rows)
        return
    yield f"{key}:"
    for name, rows in lists.items():
        yield f"{_INDENT}{spelt(name)}:" if rows else f"{_INDENT}{spelt(name)}: []"
        yield from (f"{_INDENT}{_INDENT}{row}" for row in rows)


def _named_columns(case: Case, key: str) -> dict[str, list[str]]:
    """Returns the columns that the case names, by table; the table of an expectation without one is any."""
    named: dict[str, list[str]] = {}
    for name, rows in by_table(case.section, key, "", Items).items():
        listed = rows if isinstance(rows, Items) else []
        columns = dict.fromkeys(column for row in listed if isinstance(row, Section) for column in row)
        if columns:
            named[name] = [*columns]
    return _AnyTable(named)


class _AnyTable(dict[str, list[str]]):
    """Columns by table, where an empty name stands for every table."""

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name, super().get("", default))


def _rows(table: PlayedTable, columns: list[str] | None) -> Iterator[str]:
    if table.schema is None:
        return
    for row in table.rows:
        yield from _row_lines(row_document(row, table.schema), columns)


def _dead_letters(table: PlayedTable, columns: list[str] | None) -> Iterator[str]:
    for dead_letter in table.dead_letters:
        values = {name: _plain(dead_letter.get(name)) for name in columns or _DEAD_LETTER_COLUMNS}
        yield from _row_lines({name: value for name, value in values.items() if value is not None}, None)


def _plain(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _row_lines(document: Mapping[str, Any], columns: list[str] | None) -> Iterator[str]:
    """Yields the lines of a row: one where it is short. columns: all that are written; all of the row where it is None."""
    kept = {name: value for name, value in document.items() if columns is None or name in columns}
    short = f"- {flow(kept)}"
    if len(short) <= _WIDEST:
        yield short
        return
    for number, (name, value) in enumerate(kept.items()):
        yield f"{'- ' if number == 0 else _INDENT}{spelt(name)}: {flow(value)}"


def flow(value: Any) -> str:
    """Returns a value as YAML on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_spelt(str(name))}: {flow(member)}" for name, member in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    return _spelt(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _spelt(text: str) -> str:
    """Returns a text as YAML reads it again in a list or a mapping on one line, where more signs end a text."""
    return quoted(text) if _OF_FLOW.search(text) else spelt(text)
