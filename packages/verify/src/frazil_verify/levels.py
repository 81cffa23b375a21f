"""The levels of `frazil verify` that make no copy: the ledger, the places of rows, and the independent judge.

They use what finds a table and its records: the pipeline file, the catalog, the registry. What decodes and compares is in
`frazil_verify/independent` and `frazil_verify/model`, which import none of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.api.results import VerifiedTable
from frazil.api.wiring import has_catalog, known_state, light_jvm, open_catalog_for_reading, open_topics
from frazil.catalog.port import TableState
from frazil.ingest.tables.table import Table
from frazil.ledger import Ledger
from frazil.ops.status import find_tables
from frazil.printable import counted
from frazil.spec import PipelineSpec
from frazil_verify.copies import NOT_YET, had_other_topics
from frazil_verify.findings import Findings
from frazil_verify.history import read_history
from frazil_verify.independent.matching import NOWHERE, Ints, Places, are_inside, distinct_of
from frazil_verify.independent.rules import NotJudged
from frazil_verify.independent.stored import RowsNotReadable, StoredRows
from frazil_verify.independent.topic import Range, TopicNotReadable
from frazil_verify.judging import verified_by_judge
from frazil_verify.kept import Kept
from frazil_verify.ledger_check import check_ledger
from frazil_verify.opened import (
    JudgedTable,
    Level,
    Note,
    Opened,
    Options,
    bounded,
    ends_of,
    hexadecimal,
    judged_table,
    sampled,
    stored_rows,
    time_of,
    whole_ranges,
)
from frazil_verify.places import Expected, PlacedRows, check_places
from frazil_verify.routed import with_values
from frazil_verify.row_digests import check_digests, has_digests


def verify_at(
    spec: PipelineSpec, name: str | None, options: Options, note: Note, kept: list[Kept]
) -> list[VerifiedTable]:
    """Returns what verifying each table of the pipeline, or the one named `name`, has found. note: receives the progress.
    kept: receives what is kept of the comparisons until their results are written.

    Raises: SpecError for a name that no table has, or for a bound that is neither an offset nor a time.
    """
    source = open_topics(spec)
    tables = find_tables(spec, source, known_state(spec), name)
    if not has_catalog(spec):
        return [JudgedTable(table.name, "it does not exist yet", NOT_YET, level=options.level) for table in tables]
    with light_jvm(spec) as jvm:
        catalog = open_catalog_for_reading(jvm, spec)
        opened = Opened(spec, catalog, source, options, note, kept)
        tables = with_values(spec, catalog, tables, name is None)
        ordered = sorted(tables, key=lambda table: table.name)
        return [
            _verified(opened, table, counted(f"verifying {table.name}", number, len(ordered)))
            for number, table in enumerate(ordered, 1)
        ]


def _verified(opened: Opened, table: Table, doing: str) -> JudgedTable:
    """Returns what was found of a table. doing: what is noted as being done."""
    level = opened.options.level
    table.state = state = opened.catalog.load(table.name)
    if state is None or state.head_id is None:
        return JudgedTable(table.name, "it has no rows yet", NOT_YET, level=level)
    if not opened.options.is_foreign and not state.progress.offsets:
        return JudgedTable(table.name, "it has no progress yet", NOT_YET, level=level)
    opened.note(doing)
    try:
        if level is Level.LEDGER:
            return _by_ledger(opened, table)
        return _by_places(opened, table, state) if level is Level.ROWS else verified_by_judge(opened, table, state)
    except NotJudged as error:
        return JudgedTable(table.name, str(error), error.remedy, level=level)
    except (TopicNotReadable, RowsNotReadable) as error:
        remedy = "mend what the reason names, and run it again; --ledger needs neither records nor rows"
        return JudgedTable(table.name, str(error), remedy, level=level)


# ---- the ledger


def _by_ledger(opened: Opened, table: Table) -> JudgedTable:
    history = read_history(opened.catalog, table.name)
    begin_ms, end_ms = (time_of(bound) for bound in (opened.options.begin, opened.options.end))
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
    is_known = check.ledger is not None and ledger.has_known_hashes
    digests = hexadecimal(records=ledger.record_digest, rows=ledger.row_digest) if is_known else {}
    return judged_table(
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
    whole, ledger = whole_ranges(opened, table, state, is_of_kafka=False)
    ranges = list(sampled(opened, bounded(opened, whole)))
    stored = stored_rows(opened.catalog, table, state)
    names = {name: table.spec.metadata.get(name) for name in ("topic", "partition", "offset")}
    placed = _placed(stored, names, ranges)
    if placed is None:
        return _by_digests(opened, table, state)
    if opened.options.is_bounded:
        kept = are_inside(ranges, placed.partitions, placed.numbers, placed.offsets)
        placed, ledger = PlacedRows(placed.numbers[kept], placed.offsets[kept], placed.partitions), None
    changes = table.spec.changes
    is_inexact = changes.looks_up_rows or changes.changelog or table.spec.has_query
    dead = _dead_offsets(opened, table)
    findings = Findings(keeps_all=opened.options.keeps_all)
    findings.add_unreadable(stored.unreadable)
    findings.extend(check_places(placed, Expected(ranges, dead, ledger, is_inexact, state.progress.totals.bad_skipped)))
    if is_inexact:
        findings.note("rows without an offset that was read are looked for; offsets may have no row or several")
    elif ledger is None:
        findings.note("offsets without a row are not looked for, as no ledger has their number")
    if opened.options.has_digests and not check_digests(opened, table, stored.snapshot_id, None, findings):
        findings.note("its ledger has no digest of its rows: their values are not compared")
    return judged_table(
        table,
        Level.ROWS,
        findings,
        seen={"rows": int(placed.offsets.size), "offsets": sum(wanted.end - wanted.start for wanted in ranges)},
        until=ends_of(ranges),
        snapshot_id=state.head_id,
    )


def _by_digests(opened: Opened, table: Table, state: TableState) -> JudgedTable:
    """Returns what comparing rows that name no places with the ledger has found."""
    if not has_digests(table) or opened.options.is_bounded:
        reason = "it has no columns of metadata that name the partition and the offset of each row"
        raise NotJudged(reason, "run it without --rows, or write `metadata: [partition, offset]` for rows from now on")
    assert state.head_id is not None
    findings, ledger = Findings(keeps_all=opened.options.keeps_all), state.progress.ledger
    check_digests(opened, table, state.head_id, None, findings)
    findings.note("its rows name no offsets: they are compared with the digests of the ledger")
    seen = {"rows": ledger.rows or 0} if ledger is not None else {}
    return judged_table(table, Level.ROWS, findings, seen=seen, until=state.progress.offsets, snapshot_id=state.head_id)


def _placed(stored: StoredRows, names: Mapping[str, str | None], ranges: Sequence[Range]) -> PlacedRows | None:
    topics, partitions = sorted({of.topic for of in ranges}), sorted({of.partition for of in ranges})
    lacks_partition = names["partition"] is None and len(partitions) > 1
    if names["offset"] is None or lacks_partition or (names["topic"] is None and len(topics) > 1):
        return None
    places, numbers, offsets = Places(), list[Ints](), list[Ints]()
    for name, batches in stored.parts([name for name in names.values() if name is not None]):
        of_file = [_places_of(places, batch, names, topics, partitions) for batch in batches]
        if not stored.is_unreadable(name):
            numbers += [own_numbers for own_numbers, _ in of_file]
            offsets += [own_offsets for _, own_offsets in of_file]
    empty = np.zeros(0, np.int64)
    return PlacedRows(np.concatenate([*numbers, empty]), np.concatenate([*offsets, empty]), places.partitions)


def _places_of(
    places: Places,
    batch: pa.RecordBatch,
    names: Mapping[str, str | None],
    topics: Sequence[str],
    partitions: Sequence[int],
) -> tuple[Ints, Ints]:
    """Returns the numbers of the partitions of rows, and their offsets. topics, partitions: those of the table."""
    offsets = np.asarray(pc.fill_null(batch.column(names["offset"]), NOWHERE)).astype(np.int64, copy=False)
    codes = np.zeros(batch.num_rows, np.int64)
    if names["partition"] is not None:
        codes = np.asarray(pc.fill_null(batch.column(names["partition"]), NOWHERE)).astype(np.int64)
    elif partitions:
        codes += partitions[0]
    codes, known = codes & 0xFFFFFFFF, topics
    if names["topic"] is not None:
        encoded = batch.column(names["topic"]).dictionary_encode()
        codes |= np.asarray(pc.fill_null(encoded.indices, 0)).astype(np.int64) << 32
        known = encoded.dictionary.to_pylist()
    distinct, inverse = distinct_of(codes)
    numbers = [
        places.number_of(known[code >> 32], int(np.uint32(code & 0xFFFFFFFF).view(np.int32))) for code in distinct
    ]
    return np.array(numbers, np.int64)[inverse], offsets


def _dead_offsets(opened: Opened, table: Table) -> dict[tuple[str, int], Ints]:
    """Returns the offsets of the table's dead letters."""
    state = opened.catalog.load(table.dead_letter_table_name)
    if state is None or state.head_id is None:
        return {}
    table_of_dead = Table(table.spec.model_copy(update={"name": table.dead_letter_table_name}))
    stored = stored_rows(opened.catalog, table_of_dead, state)
    offsets: dict[tuple[str, int], list[int]] = {}
    for batch in stored.batches(["topic", "partition", "offset"]):
        for row in batch.to_pylist():
            offsets.setdefault((row["topic"], row["partition"]), []).append(row["offset"])
    return {place: np.array(sorted(own), np.int64) for place, own in offsets.items()}
