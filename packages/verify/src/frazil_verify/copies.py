"""Proves that tables are what their topics make, for `frazil verify`.

A copy of each is made from the topic, up to the table's own progress, in a catalog of its own, and compared row by row.

A batch is a pure function of what it reads, so a copy that is read in other batches has the same rows. A copy commits
nothing to the pipeline's catalog, and writes nothing to Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from frazil import __version__
from frazil.catalog.port import Catalog
from frazil.ingest.tables.table import Table
from frazil.kafka.port import Partition, Source, TopicDescription
from frazil.spec import PipelineSpec
from frazil.spec.connections import CatalogSpec
from frazil.spec.table_keys import LateSpec
from frazil.spec.topics import Start
from frazil.stages.table import table_stages
from frazil.types import Offsets, by_partition
from frazil_verify.findings import Refusal
from frazil_verify.late_times import LateTimes

ASIDE = "its rows refer to values that are stored outside it, with other names after each write"
"""Why a table cannot be compared, such as one with `blobs`."""
NOT_YET = "run the pipeline first"
"""The remedy where a table has nothing to compare."""
_TOPIC_IDS = "topic-ids"
_BY_JUDGE = "add --independent, which reads the topic and makes no copy"
BY_PLACES = "add --rows or --ledger, which find lost and doubled records by their offsets"
BY_LEDGER = "add --ledger, which needs no topic"


@dataclass
class Copies:
    """Tables whose copies are made in one run: none of them has read further in a partition than another."""

    tables: list[Table] = field(default_factory=list)
    #: The offset up to which each partition is read.
    goal: dict[Partition, int] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Returns what is compared, as JSON."""
        goal = [[topic, partition, end] for (topic, partition), end in sorted(self.goal.items())]
        tables = {}
        for table in self.tables:
            offsets = {
                topic: {str(n): end for n, end in ends.items()} for topic, ends in table.progress.offsets.items()
            }
            tables[table.name] = {"snapshot_id": table.state.head_id if table.state else None, "offsets": offsets}
        return {"goal": goal, "tables": tables}

    def restore(self, document: Mapping[str, Any] | None, snapshots: Mapping[str, Set[int]]) -> bool:
        """Makes the tables what they were when a document was made; returns whether they still have its snapshots.
        snapshots: the ids of the snapshots of each table.
        """
        if document is None:
            return False
        states = {}
        for table in self.tables:
            known, state = document["tables"].get(table.name), table.state
            if known is None or state is None or known["snapshot_id"] not in snapshots[table.name]:
                return False
            offsets = {topic: {int(n): end for n, end in ends.items()} for topic, ends in known["offsets"].items()}
            progress = replace(state.progress, offsets=offsets)
            states[table.name] = replace(state, head_id=known["snapshot_id"], progress=progress)
        for table in self.tables:
            table.state = states[table.name]
        self.goal = {(topic, partition): end for topic, partition, end in document["goal"]}
        return True

    def takes(self, goal: Mapping[Partition, int]) -> bool:
        """Whether a table with this goal can be copied in the same run."""
        return all(self.goal.get(partition, end) == end for partition, end in goal.items())

    def of(self, tables: Sequence[Table]) -> Copies:
        """Returns the copies of some of the tables."""
        goals = [goal_of(table, table.progress.offsets) for table in tables]
        return Copies(list(tables), {place: self.goal[place] for goal in goals for place in goal})

    @property
    def has_lookups(self) -> bool:
        """Whether the copies join reference tables."""
        return any(table.spec.query.lookup for table in self.tables)


def plan_copies(tables: Iterable[Table]) -> list[Copies]:
    """Returns the runs that copy loaded tables with progress."""
    runs: list[Copies] = []
    for table in tables:
        goal = goal_of(table, table.progress.offsets)
        # Tables with lookups are read in parts of their own.
        shared = () if table.spec.query.lookup else (run for run in runs if not run.has_lookups)
        run = next((candidate for candidate in shared if candidate.takes(goal)), None)
        if run is None:
            runs.append(run := Copies())
        run.tables.append(table)
        run.goal |= goal
    return runs


def goal_of(table: Table, ends: Offsets) -> dict[Partition, int]:
    """Returns the offset up to which a copy reads each partition of a table, so that it has the records before `ends`: the
    next record shows that a transaction is complete. A partition that `ends` lacks is not read.
    """
    ledger, behind = table.progress.ledger, int(table.spec.changes.atomic is not None)
    starts = by_partition(ledger.starts) if ledger is not None else {}
    goal = {place: end + behind for place, end in by_partition(ends).items()}
    return {place: goal.get(place, starts.get(place, 0)) for place in by_partition(table.progress.offsets)}


def load_for_copy(table: Table, catalog: Catalog, source: Source) -> Refusal | None:
    """Loads a table; returns why no copy of it proves anything, and None where one does."""
    spec, state = table.spec, catalog.load(table.name)
    table.state = state
    if state is None or not state.progress.offsets:
        return Refusal("it has no progress yet", NOT_YET)
    if spec.source.share is not None:
        return Refusal("it belongs to a route", _BY_JUDGE)
    if any(stage.keeps_aside for stage in table_stages(spec)):
        return Refusal(ASIDE, BY_PLACES)
    atomic = spec.changes.atomic
    if atomic is not None and atomic.transaction_topic is not None:
        return Refusal(f"no copy reads its topic of transactions {atomic.transaction_topic}", BY_PLACES)
    ledger = state.progress.ledger
    if spec.source.start.kind == "latest" and (ledger is None or ledger.partial):
        reason = "`start: latest` does not say which record was its first, and it is older than its ledger"
        return Refusal(reason, "add --independent and --from with the first offset that it has read")
    topics = source.topics(lambda topic: topic in state.progress.offsets)
    for topic, topic_id in sorted(state.progress.topic_ids.items()):
        if topic not in topics:
            return Refusal(f"the topic {topic} no longer exists", BY_LEDGER)
        if topics[topic].id != topic_id:
            return Refusal(f"the topic {topic} was deleted and created again", _BY_JUDGE)
    return None


def has_lost_records(table: Table, source: Source, catalog: Catalog | None = None) -> bool:
    """Whether Kafka has deleted records that a loaded table may have read, and that made rows which are still in it.
    catalog: has the commits from before a topic was recreated; None: they are not looked at.
    """
    ends, spec = table.progress.offsets, table.spec
    if catalog is not None and had_other_topics(table, catalog):
        return True
    changes = spec.changes
    # Otherwise compaction deletes what has no row any more.
    keeps_rows = changes.mode == "append" or changes.deletes == "soft" or changes.keeps_history
    if keeps_rows and source.compacted(ends.keys()):
        return True
    begins = source.beginnings([(topic, partition) for topic, partitions in ends.items() for partition in partitions])
    return any(begin > 0 and ends[topic][partition] > 0 for (topic, partition), begin in begins.items())


def had_other_topics(table: Table, catalog: Catalog) -> bool:
    """Whether commits of a table have read topics that were deleted and recreated since."""
    ids = table.progress.topic_ids
    texts = {snapshot.summary.get(_TOPIC_IDS, "{}") for snapshot in catalog.history(table.name, [_TOPIC_IDS])}
    return any(ids.get(topic, topic_id) != topic_id for text in texts for topic, topic_id in json.loads(text).items())


def _start_of_copy(table: Table) -> Start:
    """Returns where the copy of a table begins: where the table has begun, by its ledger."""
    start, ledger = table.spec.source.start, table.progress.ledger
    if start.kind == "earliest" or ledger is None or ledger.partial:
        return start
    firsts = {
        topic: {partition: ledger.starts.get(topic, {}).get(partition, 0) for partition in ends}
        for topic, ends in table.progress.offsets.items()
    }
    return Start(kind="offsets", offsets=firsts)


def _late_of_copy(table: Table, late: Mapping[str, LateTimes]) -> LateSpec | None:
    setting, recorded = table.spec.changes.late, late.get(table.name)
    return setting if setting is None or recorded is None else setting.of_copy(recorded.times)


def identity_of(spec: PipelineSpec, copies: Copies, scratch: str, summed: Set[str]) -> Mapping[str, Any]:
    """Returns what two calls have in common, of which the second continues the copies of the first."""
    return {
        "version": __version__,
        "pipeline": spec.pipeline,
        "kafka": spec.kafka.get("bootstrap.servers"),
        "scratch": scratch,
        "summed": sorted(summed),
        "tables": [
            [table.name, table.state.uuid if table.state else "", table.spec, table.progress.topic_ids]
            for table in copies.tables
        ],
    }


def copying(
    spec: PipelineSpec,
    copies: Copies,
    folder: Path,
    warehouse: str = "",
    late: Mapping[str, LateTimes] = MappingProxyType({}),
) -> PipelineSpec:
    """Returns the pipeline file of copies: in a catalog in `folder`, without what only concerns files. warehouse: the place
    of their files; empty: `folder`, too. late: what the commits of tables with `late` have recorded.
    """
    tables = tuple(
        table.spec.model_copy(
            update={
                "location": None,
                "start": _start_of_copy(table),
                "late": _late_of_copy(table, late),
                "properties": {},
                "partition_by": None,
                "sort_by": None,
                "dead_letters": table.spec.bad_records.dead_letters.model_copy(update={"table": None, "topic": None}),
            }
        ).with_stages(lambda stage: stage.of_copy())
        for table in copies.tables
    )
    properties = spec.catalog.properties if warehouse else {}
    catalog = CatalogSpec(
        uri=f"jdbc:sqlite:{folder}/catalog.db", warehouse=warehouse or f"{folder}/warehouse", properties=properties
    )
    own = {"catalog": catalog, "state_dir": folder, "tables": tables, "topics": (), "namespace": None, "routes": ()}
    own["follows_topic_keys"] = False
    return spec.model_copy(update=own)


class UpTo:
    """A source that ends at the goal of copies."""

    def __init__(self, source: Source, goal: Mapping[Partition, int]) -> None:
        self._source = source
        self._goal = goal

    def cluster_id(self) -> str:
        """See Source."""
        return self._source.cluster_id()

    def topics(self, wanted: Callable[[str], bool]) -> dict[str, TopicDescription]:
        """See Source."""
        return self._source.topics(wanted)

    def described(self, names: Collection[str]) -> dict[str, TopicDescription]:
        """See Source."""
        return self._source.described(names)

    def topic_keys(self, control_topic: str) -> dict[str, dict[str, str]]:
        """See Source."""
        return self._source.topic_keys(control_topic)

    def compacted(self, names: Collection[str]) -> frozenset[str]:
        """See Source."""
        return self._source.compacted(names)

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """See Source; the beginning for a partition that no table has read."""
        ends = self._source.ends(partitions)
        first = self._source.beginnings(ends)
        return {
            partition: max(first.get(partition, 0), min(end, self._goal.get(partition, 0)))
            for partition, end in ends.items()
        }

    def log_ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """See Source; nothing behind the goal counts."""
        return self.ends(partitions)

    def beginnings(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """See Source."""
        return self._source.beginnings(partitions)

    def at_time(self, times: Mapping[Partition, int]) -> dict[Partition, int]:
        """See Source."""
        return self._source.at_time(times)
