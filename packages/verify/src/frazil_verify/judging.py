"""The independent judge over a table of the pipeline file, which continues where a call before it was ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from frazil import __version__
from frazil.catalog.port import TableState
from frazil.ingest.tables.table import Table
from frazil.kafka.properties import native_properties
from frazil.ledger import Ledger, dump_ledger, load_ledger
from frazil_verify.copies import BY_LEDGER, has_lost_records
from frazil_verify.history import read_history
from frazil_verify.independent.judge import Judge, Judgement
from frazil_verify.independent.rules import NotJudged
from frazil_verify.independent.topic import Range, read_topic
from frazil_verify.kept import Kept, open_kept
from frazil_verify.ledger_check import OTHER_HASHES
from frazil_verify.model.faults import NotRead
from frazil_verify.opened import (
    JudgedTable,
    Level,
    Opened,
    bounded,
    ends_of,
    hexadecimal,
    judged_table,
    sampled,
    stored_rows,
    whole_ranges,
)
from frazil_verify.registered import schemas_of
from frazil_verify.row_digests import check_digests
from frazil_verify.settings import rules_of


@dataclass(frozen=True)
class Plan:
    """What is compared."""

    snapshot_id: int
    #: The offsets whose records count.
    ranges: Sequence[Range]
    #: The offsets that are read: later changes replace rows of the ones that count.
    read_ranges: Sequence[Range]
    #: The ledger of the commits that have read them; None where it does not cover them all.
    ledger: Ledger | None
    #: The ids of the topics in Kafka: a topic that was deleted and recreated has other records at the same offsets.
    topic_ids: Mapping[str, str]

    def document(self) -> dict[str, Any]:
        """Returns its JSON."""
        ledger = "" if self.ledger is None else dump_ledger(self.ledger)
        ranges, read_ranges = ([asdict(wanted) for wanted in part] for part in (self.ranges, self.read_ranges))
        return {
            "snapshot_id": self.snapshot_id,
            "ranges": ranges,
            "read_ranges": read_ranges,
            "ledger": ledger,
            "topic_ids": dict(self.topic_ids),
        }


def verified_by_judge(opened: Opened, table: Table, state: TableState) -> JudgedTable:
    """Returns what the judge has found of a loaded table.

    Raises: NotJudged where the rules do not make the table's rows, TopicNotReadable, RowsNotReadable.
    """
    kept = open_kept(_identity(opened, table, state))
    if kept is None:
        opened.note("what is done cannot be kept: a call that is ended begins again")
    else:
        opened.kept.append(kept)
    plan = _plan(opened, table, state) if kept is None else _plan_kept(opened, table, state, kept)
    judge = judge_of(opened, table, state, plan, kept)
    is_bounded = opened.options.is_bounded
    is_partial = not opened.options.is_foreign and has_lost_records(table, opened.source, opened.catalog)
    judgement = judge.run(opened.options.keeps_all, is_partial, is_bounded)
    if plan.ledger is not None and not is_bounded and not is_partial:
        _compare_with_ledger(judgement, plan.ledger)
    if plan.ledger is not None and not judgement.findings.counts and not opened.options.is_foreign:
        check_digests(opened, table, plan.snapshot_id, judge.file_digests, judgement.findings)
    return judged_table(
        table,
        Level.INDEPENDENT,
        judgement.findings,
        is_partial=is_partial,
        seen={"records": judgement.records, "rows": judgement.rows, "dead_letters": judgement.dead},
        digests=hexadecimal(
            records=judgement.record_digest, rows=judgement.row_digest, expected_rows=judgement.expected_digest
        ),
        until=ends_of(plan.ranges),
        snapshot_id=plan.snapshot_id,
    )


def judge_of(
    opened: Opened, table: Table, state: TableState, plan: Plan | None = None, kept: Kept | None = None
) -> Judge:
    """Returns the judge over a loaded table. plan: what is compared; None: all of the table as it was loaded.

    Raises: NotJudged where the rules do not make the table's rows.
    """
    plan = plan or _plan(opened, table, state)
    stored = stored_rows(opened.catalog, table, state, plan.snapshot_id)
    try:
        schemas, key_schemas = schemas_of(opened.spec, table, opened.options.is_foreign)
    except NotRead as error:
        raise NotJudged(str(error), "run it without --independent: a copy of the table is made and compared") from None
    rules = rules_of(table, state, stored.schema, schemas, key_schemas)
    if rules.key_columns and opened.options.is_bounded:
        if opened.options.sample < 1:
            raise NotJudged("a sample leaves out changes of its keys", "leave --sample out")
        if opened.options.begin and rules.order_by:
            reason = "a change before --from may be newer than those behind it, by its column of `order_by`"
            raise NotJudged(reason, "leave --from out")
    read_ranges = plan.read_ranges if rules.key_columns else plan.ranges
    properties = native_properties(opened.spec.kafka)
    return Judge(
        rules, stored, lambda wanted: read_topic(properties, wanted), plan.ranges, opened.note, read_ranges, kept
    )


def _plan(opened: Opened, table: Table, state: TableState) -> Plan:
    assert state.head_id is not None
    topic_ids = _topic_ids(opened, table, state)
    whole, ledger = whole_ranges(opened, table, state)
    parts = list(bounded(opened, whole))
    read_ranges = [replace(wanted, end=of.end) for wanted, of in zip(parts, whole, strict=True)]
    return Plan(state.head_id, list(sampled(opened, parts)), read_ranges, ledger, topic_ids)


def _topic_ids(opened: Opened, table: Table, state: TableState) -> Mapping[str, str]:
    """Returns the ids that Kafka has for the topics of a loaded table.

    Raises: NotJudged where a topic is another one than the pipeline has read, or does not exist.
    """
    if opened.options.is_foreign:
        topics = opened.source.topics(lambda topic: any(of.matches(topic) for of in table.spec.source.topics))
        return {name: topic.id for name, topic in topics.items()}
    topics, known = opened.source.described(state.progress.offsets.keys()), state.progress.topic_ids
    for name in sorted(state.progress.offsets):
        if name not in topics:
            raise NotJudged(f"the topic {name} no longer exists", BY_LEDGER)
        if known.get(name, topics[name].id) != topics[name].id:
            reason = f"the topic {name} was deleted and created again, and the pipeline has not read it since"
            raise NotJudged(reason, BY_LEDGER)
    return {name: topics[name].id for name in state.progress.offsets}


def _identity(opened: Opened, table: Table, state: TableState) -> Mapping[str, Any]:
    """Returns what two calls have in common, of which the second continues the first."""
    options = opened.options
    return {
        "version": __version__,
        "level": Level.INDEPENDENT,
        "pipeline": opened.spec.pipeline,
        "kafka": opened.spec.kafka.get("bootstrap.servers"),
        "table": [table.name, state.uuid],
        "settings": table.spec,
        "schema": state.schema,
        "options": [options.begin, options.end, options.sample, options.is_foreign, options.group],
    }


def _plan_kept(opened: Opened, table: Table, state: TableState, kept: Kept) -> Plan:
    """Returns the plan of the call before this one, where its snapshot and its topics still exist, or a new one, which is
    kept.
    """
    plan = _loaded(kept.document)
    if plan is not None and plan.topic_ids == _topic_ids(opened, table, state):
        snapshots = {snapshot.snapshot_id for snapshot in read_history(opened.catalog, table.name).snapshots}
        if plan.snapshot_id in snapshots:
            opened.note(f"continuing the comparison of {table.name} at snapshot {plan.snapshot_id}")
            return plan
    plan = _plan(opened, table, state)
    kept.begin(plan.document())
    return plan


def _loaded(document: Mapping[str, Any] | None) -> Plan | None:
    if document is None:
        return None
    try:
        ranges, read_ranges = ([Range(**wanted) for wanted in document[name]] for name in ("ranges", "read_ranges"))
        return Plan(
            document["snapshot_id"], ranges, read_ranges, load_ledger(document["ledger"]), document["topic_ids"]
        )
    except (KeyError, TypeError, ValueError):
        return None


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
