"""The levels of `frazil verify` that make no copy: the ledger, the places of rows, and the independent judge.

They use what finds a table and its records: the pipeline file, the catalog, the registry. What decodes and compares is in
`frazil_verify/independent` and `frazil_verify/model`, which import none of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow.compute as pc

from frazil.api.results import VerifiedTable
from frazil.api.wiring import has_catalog, known_state, light_jvm, open_catalog_for_reading, open_topics
from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.port import TableState
from frazil.clock import shuffled
from frazil.errors import SpecError
from frazil.ingest.tables.table import Table
from frazil.kafka.group import KafkaGroup
from frazil.kafka.port import Source
from frazil.kafka.properties import native_properties
from frazil.ledger import Ledger
from frazil.ops.status import find_tables
from frazil.plugins.driver import REGISTRIES
from frazil.spec import PipelineSpec
from frazil.types import Offsets, by_partition
from frazil.write.plain_target import plain_target
from frazil.write.write import file_io
from frazil_verify.copies import NOT_YET, had_other_topics, has_lost_records
from frazil_verify.findings import Finding, Findings
from frazil_verify.history import read_history
from frazil_verify.independent.judge import Judge, Judgement
from frazil_verify.independent.matching import Ints, Places, are_inside
from frazil_verify.independent.rules import NotJudged
from frazil_verify.independent.stored import RowsNotReadable, StoredRows
from frazil_verify.independent.topic import Range, TopicNotReadable, read_topic
from frazil_verify.ledger_check import OTHER_HASHES, check_ledger
from frazil_verify.places import Expected, PlacedRows, check_places
from frazil_verify.routed import with_values
from frazil_verify.settings import rules_of

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


def verify_at(spec: PipelineSpec, name: str | None, options: Options, note: Note) -> list[VerifiedTable]:
    """Returns what verifying each table of the pipeline, or the one named `name`, has found. note: receives the progress.

    Raises: SpecError for a name that no table has, or for a bound that is neither an offset nor a time.
    """
    source = open_topics(spec)
    tables = find_tables(spec, source, known_state(spec), name)
    if not has_catalog(spec):
        return [JudgedTable(table.name, "it does not exist yet", NOT_YET, level=options.level) for table in tables]
    with light_jvm(spec) as jvm:
        catalog = open_catalog_for_reading(jvm, spec)
        opened = Opened(spec, catalog, source, options, note)
        tables = with_values(spec, catalog, tables, name is None)
        return [_verified(opened, table) for table in sorted(tables, key=lambda table: table.name)]


@dataclass(frozen=True)
class Opened:
    """What tables are verified with."""

    spec: PipelineSpec
    catalog: IcebergCatalog
    source: Source
    options: Options
    note: Note


def _verified(opened: Opened, table: Table) -> JudgedTable:
    level = opened.options.level
    table.state = state = opened.catalog.load(table.name)
    if state is None or state.head_id is None:
        return JudgedTable(table.name, "it has no rows yet", NOT_YET, level=level)
    if not opened.options.is_foreign and not state.progress.offsets:
        return JudgedTable(table.name, "it has no progress yet", NOT_YET, level=level)
    opened.note(f"verifying {table.name}")
    try:
        if level is Level.LEDGER:
            return _by_ledger(opened, table)
        return _by_places(opened, table, state) if level is Level.ROWS else _by_judge(opened, table, state)
    except NotJudged as error:
        return JudgedTable(table.name, str(error), error.remedy, level=level)
    except (TopicNotReadable, RowsNotReadable) as error:
        remedy = "mend what the reason names, and run it again; --ledger needs neither records nor rows"
        return JudgedTable(table.name, str(error), remedy, level=level)


def _judged(table: Table, level: Level, findings: Findings, **more: Any) -> JudgedTable:
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


def _hex(**digests: int | None) -> dict[str, str]:
    return {name: f"{digest:016x}" for name, digest in digests.items() if digest is not None}


# ---- the ledger


def _by_ledger(opened: Opened, table: Table) -> JudgedTable:
    history = read_history(opened.catalog, table.name)
    begin_ms, end_ms = (_time_of(bound) for bound in (opened.options.begin, opened.options.end))
    kept = tuple(
        snapshot
        for snapshot in history.snapshots
        if (begin_ms is None or snapshot.at_ms >= begin_ms) and (end_ms is None or snapshot.at_ms < end_ms)
    )
    check = check_ledger(opened.spec.pipeline, replace(history, snapshots=kept))
    ledger = check.ledger or Ledger()
    seen = {"commits": ledger.commits, "records": ledger.records, "dead_letters": ledger.bad}
    if ledger.rows is not None:
        seen["rows"] = ledger.rows
    has_digests = check.ledger is not None and ledger.has_known_hashes
    digests = _hex(records=ledger.record_digest, rows=ledger.row_digest) if has_digests else {}
    return _judged(
        table,
        Level.LEDGER,
        check.findings,
        seen=seen,
        digests=digests,
        until=check.offsets or {},
        snapshot_id=kept[-1].snapshot_id if kept else None,
    )


# ---- the places of rows


def _by_places(opened: Opened, table: Table, state: TableState) -> JudgedTable:
    if had_other_topics(table, opened.catalog):
        reason = "a topic was deleted and recreated: rows of its former records may have the same offsets"
        raise NotJudged(reason, "add --independent in place of --rows")
    whole, ledger = _whole_ranges(opened, table, state, is_of_kafka=False)
    ranges = list(_sampled(opened, _bounded(opened, whole)))
    stored = _stored(opened, table, state)
    names = {name: table.spec.metadata.get(name) for name in ("topic", "partition", "offset")}
    placed = _placed(stored, names, ranges)
    if placed is None:
        reason = "it has no columns of metadata that name the partition and the offset of each row"
        raise NotJudged(reason, "run it without --rows, or write `metadata: [partition, offset]` for rows from now on")
    if opened.options.is_bounded:
        placed, ledger = _inside(placed, ranges), None
    changes = table.spec.changes
    is_inexact = changes.mode != "append" or changes.changelog or changes.dedupe is not None or table.spec.has_query
    dead = _dead_offsets(opened, table)
    findings = Findings(keeps_all=opened.options.keeps_all)
    findings.add_unreadable(stored.unreadable)
    findings.extend(check_places(placed, Expected(ranges, dead, ledger, is_inexact, state.progress.totals.bad_skipped)))
    if is_inexact:
        findings.note("rows without an offset that was read are looked for; offsets may have no row or several")
    elif ledger is None:
        findings.note("offsets without a row are not looked for, as no ledger has their number")
    return _judged(
        table,
        Level.ROWS,
        findings,
        seen={"rows": int(placed.offsets.size), "offsets": sum(wanted.end - wanted.start for wanted in ranges)},
        until=_ends(ranges),
        snapshot_id=state.head_id,
    )


def _placed(stored: StoredRows, names: Mapping[str, str | None], ranges: Sequence[Range]) -> PlacedRows | None:
    topics, partitions = sorted({of.topic for of in ranges}), sorted({of.partition for of in ranges})
    lacks_partition = names["partition"] is None and len(partitions) > 1
    if names["offset"] is None or lacks_partition or (names["topic"] is None and len(topics) > 1):
        return None
    places, numbers, offsets = Places(), list[Ints](), list[Ints]()
    for batch in stored.batches([name for name in names.values() if name is not None]):
        own = np.asarray(pc.fill_null(batch.column(names["offset"]), -1)).astype(np.int64, copy=False)
        codes = np.zeros(batch.num_rows, np.int64)
        if names["partition"] is not None:
            codes = np.asarray(pc.fill_null(batch.column(names["partition"]), -1)).astype(np.int64)
        elif partitions:
            codes += partitions[0]
        topic_codes, known = np.zeros(batch.num_rows, np.int64), topics
        if names["topic"] is not None:
            encoded = batch.column(names["topic"]).dictionary_encode()
            topic_codes = np.asarray(pc.fill_null(encoded.indices, 0)).astype(np.int64)
            known = encoded.dictionary.to_pylist()
        mixed = topic_codes << 32 | (codes & 0xFFFFFFFF)
        distinct, inverse = np.unique(mixed, return_inverse=True)
        own_numbers = np.array(
            [places.number_of(known[int(code >> 32)], int(np.int32(code & 0xFFFFFFFF))) for code in distinct.tolist()],
            np.int64,
        )
        numbers.append(own_numbers[inverse] if distinct.size else codes)
        offsets.append(own)
    empty = np.zeros(0, np.int64)
    return PlacedRows(np.concatenate([*numbers, empty]), np.concatenate([*offsets, empty]), places.partitions)


def _inside(placed: PlacedRows, ranges: Sequence[Range]) -> PlacedRows:
    """Returns the rows of some ranges."""
    kept = are_inside(ranges, placed.partitions, placed.numbers, placed.offsets)
    return PlacedRows(placed.numbers[kept], placed.offsets[kept], placed.partitions)


def _dead_offsets(opened: Opened, table: Table) -> dict[tuple[str, int], Ints]:
    """Returns the offsets of the table's dead letters."""
    state = opened.catalog.load(table.dead_letter_table_name)
    if state is None or state.head_id is None:
        return {}
    table_of_dead = Table(table.spec.model_copy(update={"name": table.dead_letter_table_name}))
    stored = _stored(opened, table_of_dead, state)
    offsets: dict[tuple[str, int], list[int]] = {}
    for batch in stored.batches(["topic", "partition", "offset"]):
        for row in batch.to_pylist():
            offsets.setdefault((row["topic"], row["partition"]), []).append(row["offset"])
    return {place: np.array(sorted(own), np.int64) for place, own in offsets.items()}


# ---- the independent judge


def judge_of(opened: Opened, table: Table, state: TableState) -> tuple[Judge, Sequence[Range], Ledger | None]:
    """Returns the judge over a loaded table, the offsets that it reads, and the ledger of the commits that have read them.

    Raises: NotJudged where the rules do not make the table's rows.
    """
    whole, ledger = _whole_ranges(opened, table, state)
    ranges = list(_sampled(opened, _bounded(opened, whole)))
    stored = _stored(opened, table, state)
    rules = rules_of(table, state, stored.schema, _schema_texts(opened, table))
    read_ranges = ranges
    if rules.key_columns and opened.options.is_bounded:
        if opened.options.sample < 1:
            raise NotJudged("a sample leaves out changes of its keys", "leave --sample out")
        if opened.options.begin and rules.order_by:
            reason = "a change before --from may be newer than those behind it, by its column of `order_by`"
            raise NotJudged(reason, "leave --from out")
        # Later changes replace the rows of these.
        read_ranges = [replace(wanted, end=of.end) for wanted, of in zip(ranges, whole, strict=True)]
    properties = native_properties(opened.spec.kafka)
    judge = Judge(rules, stored, lambda wanted: read_topic(properties, wanted), ranges, opened.note, read_ranges)
    return judge, ranges, ledger


def _by_judge(opened: Opened, table: Table, state: TableState) -> JudgedTable:
    judge, ranges, ledger = judge_of(opened, table, state)
    bounded = opened.options.is_bounded
    is_partial = not opened.options.is_foreign and has_lost_records(table, opened.source, opened.catalog)
    judgement = judge.run(opened.options.keeps_all, is_partial, bounded)
    if ledger is not None and not bounded and not is_partial:
        _compare_with_ledger(judgement, ledger)
    return _judged(
        table,
        Level.INDEPENDENT,
        judgement.findings,
        is_partial=is_partial,
        seen={"records": judgement.records, "rows": judgement.rows, "dead_letters": judgement.dead},
        digests=_hex(
            records=judgement.record_digest, rows=judgement.row_digest, expected_rows=judgement.expected_digest
        ),
        until=_ends(ranges),
        snapshot_id=state.head_id,
    )


def _compare_with_ledger(judgement: Judgement, ledger: Ledger) -> None:
    """Notes where the records that the topics have now are others than those that the commits have read."""
    if not ledger.has_known_hashes:
        judgement.findings.note(OTHER_HASHES)
    if judgement.records != ledger.records:
        return
    if ledger.has_known_hashes and judgement.record_digest != ledger.record_digest:
        judgement.findings.note("the records of the topic are others than those that the commits have read")
    if judgement.dead != ledger.bad:
        words = f"{judgement.dead} records must be dead letters, and the ledger has {ledger.bad}"
        judgement.findings.note(words)


def _schema_texts(opened: Opened, table: Table) -> Mapping[int, str]:
    """Returns the texts of the registry's schemas that the table's records name, by id."""
    state = table.state
    settings = opened.spec.registry
    if settings is None or state is None or not table.spec.source.value.needs_registry:
        return {}

    registry = REGISTRIES.get("confluent").opener(settings)
    texts = {}
    for name in state.progress.batch.schemas:
        if name.isdigit() and (schema := registry.by_id(int(name))) is not None:
            texts[int(name)] = schema.text
    return texts


# ---- what all levels share


def _stored(opened: Opened, table: Table, state: TableState) -> StoredRows:
    assert state.head_id is not None
    target = plain_target(state)
    java = opened.catalog.java_table(table.name)
    location = str(java.operations().current().metadataFileLocation())
    return StoredRows(location, file_io(target), state.head_id, target.arrow_schema)


def _whole_ranges(
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


def _sampled(opened: Opened, ranges: Iterable[Range]) -> Iterator[Range]:
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


def _bounded(opened: Opened, ranges: Sequence[Range]) -> Iterator[Range]:
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
    moment = _time_of(bound)
    assert moment is not None
    return opened.source.at_time(dict.fromkeys(partitions, moment))


def _time_of(bound: str) -> int | None:
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


def _ends(ranges: Sequence[Range]) -> dict[str, dict[int, int]]:
    ends: dict[str, dict[int, int]] = {}
    for wanted in ranges:
        ends.setdefault(wanted.topic, {})[wanted.partition] = wanted.end
    return ends
