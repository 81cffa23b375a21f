"""What the levels of `frazil verify` without a copy share: their options, what is read, and what they return."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from frazil.api.results import VerifiedTable
from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.port import TableState
from frazil.clock import shuffled
from frazil.errors import SpecError
from frazil.ingest.tables.table import Table
from frazil.kafka.group import KafkaGroup
from frazil.kafka.port import Source
from frazil.ledger import Ledger
from frazil.spec import PipelineSpec
from frazil.types import Offsets, by_partition
from frazil.write.plain_target import plain_target
from frazil.write.write import file_io
from frazil_verify.findings import Finding, Findings
from frazil_verify.independent.rules import NotJudged
from frazil_verify.independent.stored import StoredRows
from frazil_verify.independent.topic import Range
from frazil_verify.kept import Kept

_BOUND = re.compile(r"(?:(\d+):)?(\d+)")
_BLOCK = 10_000
Note = Callable[[str], None]


class Level(StrEnum):
    """How a table is verified."""

    LEDGER = "ledger"
    ROWS = "rows"
    COPY = "copy"
    INDEPENDENT = "independent"


@dataclass(frozen=True)
class Options:
    """What of tables is verified, and how."""

    level: Level = Level.COPY
    #: The first offset, `PARTITION:OFFSET`, or time: of records, or of commits where the level is the ledger. Empty: the
    #: table's first one.
    begin: str = ""
    #: The end, in the same form; empty: the table's progress.
    end: str = ""
    #: The share of the offsets that is compared, in blocks by chance.
    sample: float = 1.0
    #: Whether every difference is kept, as a repair needs them.
    keeps_all: bool = False
    #: Whether another tool fills the tables: their progress is not Frazil's.
    is_foreign: bool = False
    #: Whether the level of places also compares the rows with the digests of the ledger.
    has_digests: bool = False
    #: The consumer group of that tool, whose committed offsets end the comparison; empty: the ends of the topics do.
    group: str = ""

    @property
    def is_bounded(self) -> bool:
        """Whether a part of the offsets is compared."""
        return bool(self.begin or self.end) or self.sample < 1


@dataclass(frozen=True)
class JudgedTable(VerifiedTable):
    """What verifying one table at a level has found."""

    level: Level = Level.COPY
    findings: tuple[Finding, ...] = ()
    #: The number of all differences by kind.
    counts: Mapping[str, int] = field(default_factory=dict)
    #: The number of differences by kind and hour, in milliseconds since the epoch.
    hours: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    #: The numbers that were looked at: `commits`, `records`, `rows`, `dead_letters`, as far as the level has them.
    seen: Mapping[str, int] = field(default_factory=dict)
    #: The sums of hashes of records and of rows, as hexadecimal digits.
    digests: Mapping[str, str] = field(default_factory=dict)
    #: The offsets up to which the table was compared, by topic and partition.
    until: Offsets = field(default_factory=dict)
    #: The snapshot that was read.
    snapshot_id: int | None = None

    @property
    def is_equal(self) -> bool | None:
        """Whether nothing differs; None where the table could not be verified."""
        return None if self.reason else not self.counts

    def document(self) -> dict[str, Any]:
        """Returns the JSON of the table."""
        return {
            "equal": self.is_equal,
            "reason": self.reason,
            "remedy": self.remedy,
            "partial": self.is_partial,
            "level": str(self.level),
            "seen": dict(self.seen),
            "counts": dict(self.counts),
            "hours": {kind: {str(hour): count for hour, count in by.items()} for kind, by in self.hours.items()},
            "notes": list(self.notes),
            "digests": dict(self.digests),
            "until": {topic: {str(n): offset for n, offset in ends.items()} for topic, ends in self.until.items()},
            "snapshot_id": self.snapshot_id,
            "findings": [finding.document() for finding in self.findings],
        }


@dataclass(frozen=True)
class Opened:
    """What tables are verified with."""

    spec: PipelineSpec
    catalog: IcebergCatalog
    source: Source
    options: Options
    note: Note
    #: What is kept of comparisons, until their results are written.
    kept: list[Kept] = field(default_factory=list)


def judged_table(table: Table, level: Level, findings: Findings, **more: Any) -> JudgedTable:
    """Returns what was found of a table. more: other fields of the result."""
    hours: dict[str, dict[int, int]] = {}
    for (kind, hour), count in sorted(findings.hours.items()):
        hours.setdefault(str(kind), {})[hour] = count
    counts = {str(kind): count for kind, count in findings.counts.items()}
    return JudgedTable(
        table.name,
        level=level,
        findings=tuple(findings.first),
        counts=counts,
        hours=hours,
        notes=tuple(findings.notes),
        **more,
    )


def hexadecimal(**digests: int | None) -> dict[str, str]:
    """Returns digests as text, without those that are None."""
    return {name: f"{digest:016x}" for name, digest in digests.items() if digest is not None}


def stored_rows(catalog: IcebergCatalog, table: Table, state: TableState, snapshot_id: int | None = None) -> StoredRows:
    """Returns the rows of a loaded table. snapshot_id: of another snapshot than its newest one."""
    snapshot_id = snapshot_id or state.head_id
    assert snapshot_id is not None
    target = plain_target(state)
    java = catalog.java_table(table.name)
    location = str(java.operations().current().metadataFileLocation())
    return StoredRows(location, file_io(target), snapshot_id, target.arrow_schema)


def whole_ranges(
    opened: Opened, table: Table, state: TableState, is_of_kafka: bool = True
) -> tuple[list[Range], Ledger | None]:
    """Returns the offsets that a table has read, as far as Kafka has them, and the ledger of the commits that have read
    them. is_of_kafka: whether only offsets count that Kafka still has.

    Raises: NotJudged where the first offset is not known.
    """
    progress, source = state.progress, opened.source
    if opened.options.is_foreign:
        described = source.topics(lambda topic: any(of.matches(topic) for of in table.spec.source.topics))
        partitions = [(topic, number) for topic, of in described.items() for number in range(of.partition_count)]
        ends, starts, ledger = source.ends(partitions), dict[tuple[str, int], int](), None
        if opened.options.group:
            committed = KafkaGroup(opened.spec.kafka, opened.options.group).offsets(partitions)
            ends = {place: min(end, committed[place].offset) for place, end in ends.items() if place in committed}
    else:
        ends, ledger = by_partition(progress.offsets), progress.ledger
        if ledger is not None and ledger.partial:
            ledger = None
        starts = by_partition(ledger.starts) if ledger is not None else {}
        is_unknown = ledger is None and is_of_kafka and table.spec.source.start.kind != "earliest"
        if is_unknown and not opened.options.begin:
            reason = "`start` does not say which record was its first, and it is older than its ledger"
            raise NotJudged(reason, "add --from with the first offset that it has read")
    first = source.beginnings(ends) if is_of_kafka else {}
    ranges = [
        Range(topic, partition, max(starts.get((topic, partition), 0), first.get((topic, partition), 0)), end)
        for (topic, partition), end in sorted(ends.items())
    ]
    return ranges, ledger


def sampled(opened: Opened, ranges: Iterable[Range]) -> Iterator[Range]:
    """Yields blocks of ranges, chosen by chance: the share of them that the options name, at least one."""
    share = opened.options.sample
    if share >= 1:
        yield from ranges
        return
    blocks = [
        replace(wanted, start=start, end=min(wanted.end, start + _BLOCK))
        for wanted in ranges
        for start in range(wanted.start, wanted.end, _BLOCK)
    ]
    chosen = shuffled(blocks)[: max(1, round(share * len(blocks)))]
    yield from sorted(chosen, key=lambda block: (block.topic, block.partition, block.start))


def bounded(opened: Opened, ranges: Sequence[Range]) -> Iterator[Range]:
    """Yields the parts of ranges between the bounds of the options."""
    begins, ends = (_offsets_of(opened, bound, ranges) for bound in (opened.options.begin, opened.options.end))
    for wanted in ranges:
        place = (wanted.topic, wanted.partition)
        start, end = begins.get(place, wanted.start), ends.get(place, wanted.end)
        yield replace(wanted, start=max(wanted.start, start), end=max(wanted.start, min(wanted.end, end)))


def _offsets_of(opened: Opened, bound: str, ranges: Sequence[Range]) -> Mapping[tuple[str, int], int]:
    """Returns the offset that a bound is in each partition."""
    partitions = [(wanted.topic, wanted.partition) for wanted in ranges]
    if not bound:
        return {}
    parts = _BOUND.fullmatch(bound)
    if parts is not None:
        only = None if parts[1] is None else int(parts[1])
        return {place: int(parts[2]) for place in partitions if only in (None, place[1])}
    moment = time_of(bound)
    assert moment is not None
    return opened.source.at_time(dict.fromkeys(partitions, moment))


def time_of(bound: str) -> int | None:
    """Returns a time in milliseconds; None for an empty bound.

    Raises: SpecError for another text.
    """
    if not bound:
        return None
    try:
        moment = datetime.fromisoformat(bound)
    except ValueError:
        raise SpecError(
            f"`{bound}` is neither an offset nor a time",
            remedy="write an offset as 1200 or, of partition 3, 3:1200, or a time as 2026-01-31T00:00:00Z",
        ) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def ends_of(ranges: Sequence[Range]) -> dict[str, dict[int, int]]:
    """Returns the ends of ranges, by topic and partition."""
    ends: dict[str, dict[int, int]] = {}
    for wanted in ranges:
        ends.setdefault(wanted.topic, {})[wanted.partition] = wanted.end
    return ends
