"""What verifying a table finds: differences with their places in Kafka, and what is worth a line beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

MOST_SHOWN = 100
"""The most differences of a table that are kept one by one; all of them are counted."""


class Kind(StrEnum):
    """Kinds of differences."""

    #: A record has no row.
    MISSING = "missing"
    #: A record has more rows than it makes.
    DOUBLED = "doubled"
    #: A row that no record makes.
    INVENTED = "invented"
    #: A row with other values than its record.
    CHANGED = "changed"
    #: Offsets that no commit has read.
    GAP = "gap"
    #: Offsets that two commits have read.
    OVERLAP = "overlap"
    #: Sums of the ledger that do not add up.
    LEDGER = "ledger"
    #: Rows that another writer has added or removed.
    OTHER_WRITER = "other_writer"
    #: A row that was deleted and is there.
    UNDELETED = "undeleted"
    #: A file that cannot be read.
    UNREADABLE = "unreadable"


@dataclass(frozen=True)
class Refusal:
    """Why a table is not compared, and what can be done in place of it."""

    reason: str
    remedy: str


@dataclass(frozen=True)
class Finding:
    """One difference."""

    kind: Kind
    #: What is wrong, in a sentence.
    text: str
    #: The topic; empty where the place in Kafka is not known.
    topic: str = ""
    partition: int | None = None
    #: The offset of the record, or the first one of a range.
    offset: int | None = None
    #: The first offset after a range; None for one record.
    end: int | None = None
    #: The timestamp of the record, or the time of the commit, in milliseconds; None where neither is known.
    at_ms: int | None = None
    #: The row that the record makes.
    expected: Mapping[str, Any] | None = None
    #: The row that the table has.
    actual: Mapping[str, Any] | None = None
    #: The columns whose values differ.
    columns: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The place in Kafka as text; empty where it is not known."""
        if not self.topic:
            return ""
        at = "" if self.offset is None else f", offset {self.offset}"
        at = at if self.end is None else f", offsets {self.offset} to {self.end - 1}"
        return f"topic {self.topic}, partition {self.partition}{at}"

    def document(self) -> dict[str, Any]:
        """Returns the JSON of the finding."""
        parts: dict[str, Any] = {
            "kind": str(self.kind),
            "text": self.text,
            "topic": self.topic or None,
            "partition": self.partition,
            "offset": self.offset,
            "end": self.end,
            "at_ms": self.at_ms,
            "expected": self.expected,
            "actual": self.actual,
            "columns": list(self.columns),
        }
        return {name: value for name, value in parts.items() if value not in (None, [])}


@dataclass
class Findings:
    """The differences of one table: the first ones, and the numbers of all."""

    first: list[Finding] = field(default_factory=list)
    counts: Counter[Kind] = field(default_factory=Counter)
    #: The number of differences by kind and hour, the hour as the first of its milliseconds.
    hours: Counter[tuple[Kind, int]] = field(default_factory=Counter)
    #: What is worth knowing and no difference: roll-backs, maintenance of other writers, what was not compared.
    notes: list[str] = field(default_factory=list)
    #: Whether all differences are kept, as a repair needs them.
    keeps_all: bool = False

    def add(self, finding: Finding, count: int = 1) -> None:
        """Adds a difference. count: of the rows or records that it stands for."""
        self.counts[finding.kind] += count
        if finding.at_ms is not None:
            self.hours[finding.kind, finding.at_ms // 3_600_000 * 3_600_000] += count
        if self.keeps_all or len(self.first) < MOST_SHOWN:
            self.first.append(finding)

    def extend(self, findings: Iterable[Finding]) -> None:
        """Adds differences."""
        for finding in findings:
            self.add(finding)

    def add_unreadable(self, files: Mapping[str, str]) -> None:
        """Adds a difference for each file that cannot be read. files: the reasons, by their paths."""
        for path, reason in sorted(files.items()):
            self.add(Finding(Kind.UNREADABLE, f"the rows of {path} cannot be read: {reason}"))

    def note(self, text: str) -> None:
        """Adds a note, once."""
        if text not in self.notes:
            self.notes.append(text)
