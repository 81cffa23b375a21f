"""What a case expects, compared with what its tables have: differences by row and column, each with its line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.schema import Schema

from frazil.error_classes import ErrorClass
from frazil.errors import SpecError, UnavailableError, record_place
from frazil.spec.syntax.document import Items, Node, Scalar, Section
from frazil.spec.syntax.keys import describe, whole_number
from frazil.spec.syntax.problems import advice
from frazil_testing.case_file import Case, CaseFile, by_table
from frazil_testing.encoding import json_text
from frazil_testing.play import Played, PlayedTable
from frazil_testing.values import document_of, equals, shown

UNMADE_REMEDY = (
    "begin the case with a record that becomes a row, or declare `columns`: then a bad record is a dead letter"
)


@dataclass(frozen=True)
class Change:
    """A column whose value is not the expected one."""

    column: str
    expected: str
    actual: str


@dataclass(frozen=True)
class Difference:
    """One thing that is not as the case expects it."""

    #: What differs, such as `row 2 of shop.orders`.
    what: str
    #: FILE:LINE of the expectation.
    where: str
    #: The columns that differ; empty where something is missing, or was not expected.
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """How a case has ended."""

    #: The file of cases.
    file: str
    #: The case.
    name: str
    #: Where it begins in the file.
    line: int
    #: How long it took.
    seconds: float
    #: What is not as expected: `what`, `where` it is expected, and the `changes` of columns.
    differences: tuple[Difference, ...] = ()
    #: Why the case could not be played; empty where it was.
    error: str = ""
    #: What to do about the error.
    remedy: str = ""
    #: Where the error is.
    where: str = ""
    #: Whether the answers were written into the file.
    is_updated: bool = False

    @property
    def is_ok(self) -> bool:
        """Whether everything is as expected."""
        return not (self.differences or self.error)


@dataclass(frozen=True)
class _Rows:
    """Rows of a table, or dead letters, with what they are called."""

    noun: str
    rows: Sequence[Mapping[str, Any]]
    schema: Schema
    #: Columns by which rows are recognised.
    keys: tuple[str, ...] = ()
    #: Compares a column in place of `equals`.
    special: Mapping[str, Callable[[Scalar, Any], bool]] = field(default_factory=dict)


def subject_table(file: CaseFile, case: Case, played: Played) -> str:
    """Returns the table that an expectation without a table's name is about.

    Raises: SpecError where several may be meant.
    """
    if file.table:
        if file.table in played.tables or not played.tables:
            return file.table
        raise SpecError(
            f"the records of the case do not reach the table `{file.table}`",
            remedy=advice(file.table, played.tables),
            where=file.where(case.line),
        )
    if len(played.tables) == 1:
        return next(iter(played.tables))
    names = ", ".join(sorted(played.tables))
    raise SpecError(
        f"the records reach several tables: {names}",
        remedy="write `table: NAME` at the top of the file, or `rows: {TABLE: […]}`",
        where=file.where(case.line),
    )


def differences_of(file: CaseFile, case: Case, played: Played) -> Iterator[Difference]:
    """Yields what is not as the case expects it.

    Raises: SpecError for an expectation that cannot be read; UnavailableError for records that are neither rows nor dead
    letters, as no record has made their table.
    """
    if not case.has_expectation:
        yield Difference("nothing is expected yet: `frazil test --update` writes what there is", file.where(case.line))
        return
    refuse_unmade(file, case, played)
    comparison = _Comparison(file, case, played)
    yield from comparison.stops()
    yield from comparison.rows()
    yield from comparison.dead_letters()
    yield from comparison.dropped()


def refuse_unmade(file: CaseFile, case: Case, played: Played) -> None:
    """Refuses a case whose records wait for a table.

    Raises: UnavailableError with what the first of the records was found to be.
    """
    for table in played.tables.values():
        if table.unmade is None or played.failure:
            continue
        places = (line for place, line in played.lines.items() if record_place(*place) == table.unmade.where)
        line = next(places, case.line)
        raise UnavailableError(f"{table.name}: {table.unmade.message}", remedy=UNMADE_REMEDY, where=file.where(line))


class _Comparison:
    def __init__(self, file: CaseFile, case: Case, played: Played) -> None:
        self._file = file
        self._case = case
        self._played = played
        names_all = {name for key in ("rows", "dead_letters") for name in by_table(case.section, key, "", Items)}
        is_named = (
            bool(names_all) and "" not in names_all and "dropped" not in case.section and "stops" not in case.section
        )
        self._table = "" if is_named else subject_table(file, case, played)

    def stops(self) -> Iterator[Difference]:
        """Yields a stop that was not expected, or one that did not happen."""
        section = self._case.section
        expected = section.get("stops")
        where = self._file.where(section.lines.get("stops", self._case.line))
        stopped = {table.name: table.stopped for table in self._played.tables.values() if table.stopped}
        if expected is None:
            for name, reason in stopped.items():
                yield Difference(f"{name} stops: {reason}", where)
            if self._played.failure:
                yield Difference(f"the records are not read to their end: {self._played.failure}", where)
        elif not isinstance(expected, Scalar) or not expected.text:
            raise SpecError("`stops` is not text", remedy="write a part of the reason", where=where)
        elif not any(expected.text in reason for reason in stopped.values()):
            reasons = "; ".join(stopped.values()) or "nothing stops"
            yield Difference(
                "the table does not stop for this reason", where, (Change("stops", expected.text, reasons),)
            )

    def rows(self) -> Iterator[Difference]:
        """Yields rows that differ."""
        for name, expected in by_table(self._case.section, "rows", self._table, Items).items():
            table = self._table_of(name, "rows")
            rows = _Rows("row", table.rows, table.schema or Schema(), table.key_columns)
            yield from self._list(name, expected, rows)

    def dead_letters(self) -> Iterator[Difference]:
        """Yields dead letters that differ; all of a table whose dead letters are not mentioned are unexpected."""
        expectations = by_table(self._case.section, "dead_letters", self._table, Items)
        special = {"message": _is_message, "error_class": _is_class}
        for name, expected in expectations.items():
            table = self._table_of(name, "dead_letters")
            schema = table.dead_letter_schema or Schema()
            wanted = _Rows("dead letter", table.dead_letters, schema, ("topic", "partition", "offset"), special)
            yield from self._list(name, expected, wanted)
        for table in self._played.tables.values():
            for row in table.dead_letters if table.name not in expectations else ():
                yield Difference(f"unexpected dead letter of {table.name}: {reason_text(row)}", self._line_of(row))

    def _line_of(self, dead_letter: Mapping[str, Any]) -> str:
        """Returns the place of the record that has become a dead letter."""
        place = (dead_letter["topic"], dead_letter["partition"], dead_letter["offset"])
        return self._file.where(self._played.lines.get(place, self._case.line))

    def dropped(self) -> Iterator[Difference]:
        """Yields counts of dropped records that differ."""
        for name, expected in by_table(self._case.section, "dropped", self._table, Section).items():
            line = self._case.section.lines["dropped"]
            if not isinstance(expected, Section):
                message = f"`dropped` is {describe(expected)} where a mapping is expected"
                raise SpecError(message, remedy="write `dropped: {where: 1}`", where=self._file.where(line))
            counts = self._table_of(name, "dropped").dropped
            for reason in dict.fromkeys((*expected, *counts)):
                node = expected.get(reason)
                number, count = 0 if node is None else whole_number(node), counts.get(reason, 0)
                if number != count:
                    where = self._file.where(expected.lines.get(reason, line))
                    what = f"records of {name} dropped by {reason}"
                    text = "0" if node is None else json_text(node)
                    yield Difference(what, where, (Change(reason, text, str(count)),))

    def _table_of(self, name: str, key: str) -> PlayedTable:
        table = self._played.tables.get(name)
        if table is not None:
            return table
        where = self._file.where(self._case.section.lines[key])
        message = f"the records of the case do not reach the table `{name}`"
        raise SpecError(message, remedy=advice(name, self._played.tables), where=where)

    def _list(self, name: str, expected: Node, actual: _Rows) -> Iterator[Difference]:
        if not isinstance(expected, Items) or not all(isinstance(row, Section) for row in expected):
            message = f"`{actual.noun}s` of {name} are not a list of mappings"
            remedy = "write `- {COLUMN: VALUE}` for each; `[]` for none"
            raise SpecError(message, remedy=remedy, where=self._file.where(expected.line))
        wanted = [row for row in expected if isinstance(row, Section)]
        pairs = _pairs(wanted, actual)
        for number, row in enumerate(wanted):
            where = self._file.where(row.line)
            keys = [f"{key}={json_text(row[key])}" for key in actual.keys if key in row and actual.noun == "row"]
            what = f"{actual.noun} {number + 1} of {name}" + (f" ({', '.join(keys)})" if keys else "")
            place = pairs.get(number)
            if place is None:
                yield Difference(f"missing {what}: {json_text(row)}", where)
            elif changes := tuple(_changes(row, actual.rows[place], actual)):
                yield Difference(what, where, changes)
        for place in sorted(set(range(len(actual.rows))) - set(pairs.values())):
            if actual.noun == "row":
                text = shown(row_document(actual.rows[place], actual.schema))
                yield Difference(f"unexpected row of {name}: {text}", self._file.where(expected.line))
            else:
                text = reason_text(actual.rows[place])
                yield Difference(f"unexpected dead letter of {name}: {text}", self._line_of(actual.rows[place]))


def row_document(row: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """Returns a row as JSON."""
    return {column.name: document_of(row.get(column.name), column.field_type) for column in schema.fields}


def reason_text(dead_letter: Mapping[str, Any]) -> str:
    """Returns the reason of a dead letter, for people."""
    path = f" at {dead_letter['path']}" if dead_letter.get("path") else ""
    return f"{dead_letter['error_class']}{path}: {dead_letter['message']}"


def _pairs(expected: Sequence[Section], actual: _Rows) -> dict[int, int]:
    """Returns the place of the actual row of each expected one: that with the same key, or that with the most equal columns.
    Expected rows without one are left out.
    """
    pairs: dict[int, int] = {}
    left = dict.fromkeys(range(len(actual.rows)))
    scores = sorted(
        (
            (-_likeness(row, actual.rows[place], actual), number, place)
            for number, row in enumerate(expected)
            for place in left
        ),
    )
    for score, number, place in scores:
        if number not in pairs and place in left and score < 0:
            pairs[number] = place
            del left[place]
    for number in range(len(expected)):  # Rows that are like none, in their order.
        if number not in pairs and left and not any(key in expected[number] for key in actual.keys):
            pairs[number] = next(iter(left))
            del left[pairs[number]]
    return pairs


def _likeness(expected: Section, row: Mapping[str, Any], actual: _Rows) -> float:
    """Returns how like a row is: 0 where its key is another one, more than 1 where all columns are equal."""
    if any(key in expected and not _is_equal(expected[key], key, row, actual) for key in actual.keys):
        return 0.0
    equal = sum(_is_equal(node, name, row, actual) for name, node in expected.items())
    keys = sum(key in expected for key in actual.keys)
    return (equal + keys) / max(1, len(expected)) + (1.0 if equal == len(expected) else 0.0)


def _is_equal(node: Node, name: str, row: Mapping[str, Any], actual: _Rows) -> bool:
    if name not in row:
        return False
    if name in actual.special:
        return isinstance(node, Scalar) and actual.special[name](node, row[name])
    column = next((column for column in actual.schema.fields if column.name == name), None)
    return equals(node, row[name], column.field_type if column is not None else None)


def _changes(expected: Section, row: Mapping[str, Any], actual: _Rows) -> Iterator[Change]:
    kinds = {column.name: column.field_type for column in actual.schema.fields}
    for name, node in expected.items():
        if not _is_equal(node, name, row, actual):
            written = json_text(node)
            absent = f"no such column; {advice(name, row)}"
            text = shown(document_of(row[name], kinds.get(name))) if name in row else absent
            if text == written and name in kinds:
                text = f"{text} ({kinds[name]})"
            yield Change(name, written, text)


def _is_message(node: Scalar, value: Any) -> bool:
    """Whether a message is the expected one, or matches a regular expression between slashes."""
    if len(node.text) > 2 and node.text.startswith("/") and node.text.endswith("/"):
        try:
            return re.search(node.text[1:-1], str(value)) is not None
        except re.error as error:
            raise SpecError(
                f"the message `{node.text}` is not a regular expression: {error}",
                remedy=r"write a regular expression between the slashes, such as `/a \(b\)/`, or no slashes",
            ) from None
    return node.text == str(value)


def _is_class(node: Scalar, value: Any) -> bool:
    if node.text not in tuple(ErrorClass):
        raise SpecError(f"there is no class of error `{node.text}`", remedy=advice(node.text, tuple(ErrorClass)))
    return node.text == str(value)
