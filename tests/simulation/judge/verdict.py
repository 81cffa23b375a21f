"""Compares what the records of a topic must have become with what is in the table and among its dead letters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from frazil_verify.model.equal import has_struct, same
from frazil_verify.model.json_text import plain, read_text
from frazil_verify.model.rows import Outcome
from frazil_verify.model.settings import RESCUED, Settings, Table
from frazil_verify.model.types import leaf_count

Place = tuple[int, int]
Row = Mapping[str, Any]
_MOST_NAMES = 2000


@dataclass(frozen=True)
class Fed:
    """A record in its topic."""

    place: Place
    value: bytes | None
    key: bytes | None
    timestamp_ms: int
    #: Whether the table's first run has read it, from a topic whose records are all a sample of their types.
    is_first: bool = True


@dataclass
class Verdict:
    """What is wrong, and how much was looked at."""

    faults: list[str] = field(default_factory=list)
    records: int = 0
    rows: int = 0
    dead: int = 0
    rescued: int = 0
    #: Records that change nothing.
    ignored: int = 0
    #: Fields that are in no place.
    unaccounted: int = 0

    def note(self, text: str, fields: int = 0) -> None:
        """Adds a fault. fields: how many are in no place."""
        self.faults.append(text)
        self.unaccounted += fields

    def add(self, other: Verdict) -> None:
        """Adds another one."""
        self.faults += other.faults
        self.records += other.records
        self.rows += other.rows
        self.dead += other.dead
        self.rescued += other.rescued
        self.ignored += other.ignored
        self.unaccounted += other.unaccounted


def judge_rows(
    settings: Settings,
    table: Table,
    records: Sequence[Fed],
    seen: tuple[Iterable[Row], Iterable[Row]],
    images_of: Callable[[Fed], Mapping[str, Outcome]],
    has_replaced: Callable[[Fed], bool] = lambda _: False,
) -> Verdict:
    """Returns the verdict on a table of which each record is a row, a dead letter, or one that changes nothing.

    seen: rows and dead letters. images_of: what becomes of a record, by the image that its row has of it: none of a record
    without effect, two of a change with the row before it. has_replaced: whether a later record has replaced its row.
    """
    found = Verdict(records=len(records))
    image = settings.metadata.get("image", "")
    rows = _placed(seen[0], (settings.metadata["partition"], settings.metadata["offset"], image), found)
    dead = _placed(seen[1], ("partition", "offset", ""), found)
    filled, mixed = set[str](), set[str]()
    for record in records:
        outcomes, dead_letter = images_of(record), dead.pop((record.place, ""), None)
        mine = {name: rows.pop((record.place, name), None) for name in outcomes or [""]}
        filled.update(column for row in mine.values() if row is not None for column in row)
        mixed |= _at_odds(outcomes, dead_letter is not None)
        _count(outcomes, mine, dead_letter, found)
        if not outcomes:
            _judge_idle(record, mine, dead_letter, found)
        elif dead_letter is not None:
            _judge_dead(Case(settings, table, record, _together(outcomes)), mine, dead_letter, found)
        else:
            for name, outcome in outcomes.items():
                _judge(Case(settings, table, record, outcome), mine[name], has_replaced(record), found)
    for place in [*rows, *dead]:
        found.note(f"{place} is no record of the topic")
    empty = set(table.columns) - filled - settings.columns.keys()
    if table.has_only_seen and empty - {settings.case_of(name) for name in mixed} - mixed:
        found.note(f"no row has a value in the columns {sorted(empty)}, which nobody declares")
    return found


def _at_odds(outcomes: Mapping[str, Outcome], is_dead: bool) -> set[str]:
    """Returns the fields of a record whose values are in no column, though they may have given it its type."""
    names = {path for one in outcomes.values() for path, _ in one.rescued}
    if is_dead:
        names |= {path for one in outcomes.values() for path in one.paths if path}
    return {name.removeprefix("after.").removeprefix("before.").split(".")[0] for name in names}


def _count(
    outcomes: Mapping[str, Outcome], rows: Mapping[str, Row | None], dead_letter: Row | None, found: Verdict
) -> None:
    there = [name for name, row in rows.items() if row is not None]
    found.rows += len(there)
    found.rescued += sum(len(outcomes[name].rescued) for name in there if name in outcomes)
    found.dead += dead_letter is not None
    found.ignored += not outcomes


def _judge_idle(record: Fed, rows: Mapping[str, Row | None], dead_letter: Row | None, found: Verdict) -> None:
    """Judges a record that changes nothing."""
    if dead_letter is not None or any(row is not None for row in rows.values()):
        found.note(f"{record.place} changes nothing, and is {dead_letter or rows}; the record is {record.value!r}")


def _together(outcomes: Mapping[str, Outcome]) -> Outcome:
    """Returns what becomes of a record with several images: one that is bad makes all of it bad."""
    if len(outcomes) == 1:
        return next(iter(outcomes.values()))
    found = Outcome()
    for one in outcomes.values():
        found.kinds |= one.kinds
        found.paths |= one.paths
        found.may_be |= one.may_be
        found.inferred |= one.inferred
        found.new_columns += one.new_columns
    return found


@dataclass(frozen=True)
class Case:
    """A record with what it must become."""

    settings: Settings
    table: Table
    record: Fed
    outcome: Outcome

    def describe(self, what: str) -> str:
        """Returns a fault of it."""
        value = self.record.value
        return f"{self.record.place}: {what}; the record is {value if value is None else value[:700]!r}"


def _placed(rows: Iterable[Row], names: tuple[str, str, str], found: Verdict) -> dict[tuple[Place, str], Row]:
    partition, offset, image = names
    placed: dict[tuple[Place, str], Row] = {}
    for row in rows:
        place = ((row[partition], row[offset]), str(row.get(image, "")) if image else "")
        if place in placed:
            found.note(f"{place} is there twice")
        placed[place] = row
    return placed


def _judge(case: Case, row: Row | None, is_replaced: bool, found: Verdict) -> None:
    outcome = case.outcome
    if outcome.kinds:
        found.note(case.describe(f"it is no dead letter, and is bad by {sorted(outcome.kinds)} of {outcome.paths}"))
    elif is_replaced:
        if row is not None:
            found.note(case.describe("its row is there, and a later record has replaced it"))
        elif outcome.lost:
            found.note(case.describe(f"the fields {outcome.lost[:5]} are in no place"), fields=len(outcome.lost))
    elif row is None:
        found.note(case.describe("it is nowhere"), fields=1)
    else:
        _judge_row(case, row, found)


def _judge_dead(case: Case, rows: Mapping[str, Row | None], dead_letter: Row, found: Verdict) -> None:
    outcome, kind, message = case.outcome, dead_letter["error_class"], dead_letter["message"]
    if any(row is not None for row in rows.values()):
        found.note(case.describe("it is a row and a dead letter"))
    if kind == "too_many_fields":
        if not _is_too_rich(case):
            found.note(case.describe(f"a good record is dead by {message!r}"))
        return
    value, key = dead_letter.get("value"), dead_letter.get("key")
    if value != case.record.value or key != case.record.key:
        found.note(case.describe(f"its dead letter has {value!r} and the key {key!r}"))
    if kind not in outcome.may_be:
        _judge_reason(case, kind, f"{kind} {message!r} at {dead_letter.get('path')}", dead_letter.get("path"), found)


def _judge_reason(case: Case, kind: str, reason: str, path: str | None, found: Verdict) -> None:
    outcome = case.outcome
    if not outcome.kinds:
        found.note(case.describe(f"a good record is dead by {reason}"))
    elif kind not in outcome.kinds:
        found.note(case.describe(f"it is dead by {reason}, and bad by {sorted(outcome.kinds)}"))
    elif not _is_at_fault(path, outcome.paths):
        found.note(case.describe(f"its dead letter names {path!r}, and at fault is {outcome.paths}"))
    elif case.record.is_first and outcome.inferred and outcome.inferred.keys() >= outcome.paths - {None}:
        found.note(case.describe(f"the sample has {dict(outcome.inferred)}, and the column is none for it"))


def _is_at_fault(path: str | None, expected: Iterable[str | None]) -> bool:
    """Whether a dead letter's path is one of the fields, as the record or the column writes its name, or inside of one."""
    if "*" in expected:
        return True
    if path is None:
        return None in expected or "" in expected
    folded, _, rest = path.lower().partition("…")  # A long name is cut.
    if rest != path.lower() and folded != path.lower():
        return any(one is not None and one.lower().startswith(folded) for one in expected)
    known = [one.lower() for one in expected if one is not None]
    return any(folded == one or folded.startswith(f"{one}.") for one in known)


def _is_too_rich(case: Case) -> bool:
    """Whether a record may be dead for its own number of new fields."""
    outcome = case.outcome
    there = sum(map(leaf_count, case.table.columns.values()))
    return outcome.new_columns > _MOST_NAMES or there + outcome.new_columns > case.settings.limit_columns


def _judge_row(case: Case, row: Row, found: Verdict) -> None:
    outcome, table = case.outcome, case.table
    if outcome.lost:
        found.note(case.describe(f"the fields {outcome.lost[:5]} are in no place"), fields=len(outcome.lost))
    for name, kind in table.columns.items():
        expected, actual = outcome.row.get(name), row.get(name)
        if expected is None and actual is None:
            continue
        is_declared = name in case.settings.columns
        if not same(expected, actual, kind, is_strict=is_declared and not has_struct(kind)):
            found.note(case.describe(f"column {name} has {actual!r}, and must have {expected!r}"))
    if case.settings.has_rescued:
        _judge_rescued(case, row.get(RESCUED), found)
    _judge_metadata(case, row, found)


def _judge_rescued(case: Case, text: str | None, found: Verdict) -> None:
    expected = sorted(case.outcome.rescued, key=repr)
    if text is None and not expected:
        return
    actual, open_ones = [], [(path.lower(), value) for path, value in case.outcome.may_rescue]
    for path, member in read_text(text).value if text is not None else ():
        parts = dict(member.value)
        if not parts["reason"].value:
            found.note(case.describe(f"{path} was rescued without a reason"))
        names = (path.lower(), re.sub("#[0-9]+$", "", path.lower()))
        if not any((name, plain(parts["value"])) in open_ones for name in names):
            actual.append((path, plain(parts["value"])))
    if not _are_same_paths(expected, actual):
        missing = [one for one in expected if one not in actual]
        found.note(case.describe(f"_rescued is {text}, and must have {expected}"), fields=len(missing))


def _are_same_paths(expected: list[tuple[str, Any]], actual: list[tuple[str, Any]]) -> bool:
    """A path that a record has more than once is numbered from the second on."""
    left = list(actual)
    for path, value in expected:
        for place, (other, there) in enumerate(left):
            stem, _, number = other.rpartition("#")
            names = (other.lower(), stem.lower() if number.isdigit() else None)
            if there == value and path.lower() in names:
                del left[place]
                break
        else:
            return False
    return not left


def _judge_metadata(case: Case, row: Row, found: Verdict) -> None:
    column = case.settings.metadata.get("timestamp")
    if column is None:
        return
    sent = case.record.timestamp_ms
    expected = None if sent < 0 else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=sent)
    if row.get(column) != expected:
        found.note(case.describe(f"{column} is {row.get(column)}, and Kafka's timestamp is {sent}"))
