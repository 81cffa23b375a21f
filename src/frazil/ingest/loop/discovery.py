"""Updates the topics, partitions, first offsets and progress of a running pipeline's tables from Kafka and the catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import structlog

from frazil.catalog.port import Catalog, TableState
from frazil.column_names import fold_accents
from frazil.errors import SpecError, UnavailableError
from frazil.ingest.failures import TableStopped, describe_error
from frazil.ingest.loop.topics import TopicTables, tolerate_empty_patterns
from frazil.ingest.tables.preflight import declared_mismatch, layout_mismatch
from frazil.ingest.tables.table import Table
from frazil.kafka.port import Partition, Source, TopicDescription
from frazil.shares.settings import NAME_REMEDY, clashes_of, name_remedy
from frazil.spec import PipelineSpec, TableSpec
from frazil.spec.topic_keys import is_enabled
from frazil.spec.topics import select_topics, topic_filter
from frazil.types import OffsetRange, Offsets, by_topic

log = structlog.get_logger("frazil")


class Discovery:
    """Requests topics and offsets from Kafka, and tables from the catalog; changes only the tables it is given."""

    def __init__(self, spec: PipelineSpec, source: Source, catalog: Catalog) -> None:
        self._spec = spec
        self._source = source
        self._catalog = catalog
        self.tables: dict[str, Table] = {}
        self._by_alike_name: dict[str, list[Table]] = {}
        for table in spec.tables:
            self._add(table)
        #: When topics were last requested, on the monotonic clock in seconds.
        self.asked_at_s = float("-inf")
        #: The error of the last request for topics; None where it succeeded.
        self.outage: UnavailableError | None = None
        self._found: dict[str, TopicDescription] = {}
        #: The number of tables that have been matched with these topics.
        self._matched = 0
        self._in_order: list[Table] = []
        self._behind: set[str] = set()
        self._has_topics = False
        self._owner_of_dead_letter_table: dict[str, str] = {}
        self._beginnings: dict[Partition, int] = {}
        self._topic_tables = TopicTables(spec)

    @property
    def in_order(self) -> list[Table]:
        """All tables, by name."""
        if len(self._in_order) != len(self.tables):  # Tables are only ever added.
            self._in_order = [self.tables[name] for name in sorted(self.tables)]
        return self._in_order

    def _add(self, table: TableSpec) -> None:
        self.tables[table.name] = added = Table(table)
        self._by_alike_name.setdefault(fold_accents(table.name), []).append(added)

    def refresh_topics(self) -> None:
        """Requests topics and partitions, and adds the tables of new topics."""
        self.set_topics(self.find_topics())

    def find_topics(self) -> dict[str, TopicDescription]:
        """Returns the topics that match the pipeline file. It changes nothing, so that any thread may call it."""
        selectors = [
            *self._spec.new_topics,
            *(s for table in [*self.tables.values()] for s in table.spec.source.topics),
        ]
        wanted = topic_filter(selectors)
        if not self._spec.selected.follows_topic_keys:
            return self._source.topics(wanted)
        keys = self._source.topic_keys(self._spec.control_topic)
        topics = self._source.topics(lambda name: is_enabled(keys.get(name, {})) or wanted(name))
        return {name: replace(topic, keys=keys.get(name, {})) for name, topic in topics.items()}

    def set_topics(self, found: dict[str, TopicDescription]) -> None:
        """Sets the topics of all tables to those found, and adds the table of each new topic that `topics` selects."""
        for name in select_topics(self._spec.selected.topics, found):
            if f"{self._spec.selected.namespace}.{name}" not in self.tables:
                self._add(self._spec.table_for(name))
        declared = self._refuse_clashes(found)
        for spec in self._spec.tables_by_topic(found):
            if spec.name not in declared:
                if spec.name not in self.tables:
                    self._add(spec)
                self.tables[spec.name].spec = spec
        self._follow_keys(found)
        self._found, self.outage = found, None
        for table in self.tables.values():
            if table.schedule.in_flight:
                self._behind.add(table.name)
            else:
                self._match(table, found)
        self._has_topics, self._matched = True, len(self.tables)
        writing = (table for table in self.tables.values() if table.spec.bad_records.on_bad_record == "dead_letter")
        self._owner_of_dead_letter_table = {table.dead_letter_table_name: table.name for table in writing}

    def are_matched(self, found: dict[str, TopicDescription]) -> bool:
        """Whether all tables have been matched with just these topics, so that matching them again would change nothing."""
        return self.outage is None and self._matched == len(self.tables) and self._found == found

    def _refuse_clashes(self, topics: dict[str, TopicDescription]) -> set[str]:
        """Returns the tables under `tables`, and refuses those that other topics make too."""
        clashes = clashes_of(self._spec, topics)
        for spec in self._spec.tables:
            clash = clashes.get(spec.name)
            self.tables[spec.name].refusal = (*clash, spec.name) if clash is not None else None
        return {spec.name for spec in self._spec.tables}

    def _follow_keys(self, topics: dict[str, TopicDescription]) -> None:
        """Adds the tables that topics ask for, and notes which of them their keys no longer make."""
        self._topic_tables.update(topics.values(), self.tables)
        for name, spec in self._topic_tables.settings.items():
            if name not in self.tables:
                self._add(spec)
            table, refusal = self.tables[name], self._topic_tables.refusals.get(name)
            if None not in (table.refusal, refusal) and table.refusal != refusal and not table.schedule.in_flight:
                table.begin_again(table.spec)  # It stops again, for the new reason.
            table.refusal = refusal

    def add_derived(self, rest: Table) -> None:
        """Adds the tables that were derived from values, as the progress of their table of the rest names them, and those
        that a run would derive from a sample. A table that no longer divides its records has none.
        """
        if rest.spec.source.share is None:
            return
        for derived in (*rest.progress.rest.derived, *rest.found_tables):
            if derived.name not in self.tables:
                self._add(self._spec.derived_table(rest.spec, derived))
                self._match(self.tables[derived.name], self._found)

    def load_derived(self) -> None:
        """Adds the tables that were derived from values, as the catalog has them, for commands that run no table.

        Raises: the errors of `Catalog.load`.
        """
        for table in [candidate for candidate in self.tables.values() if candidate.spec.source.share is not None]:
            table.state = self._catalog.load(table.name)
            self.add_derived(table)

    def warn_of_empty_patterns(self) -> None:
        """Logs each regular expression that matches no topic yet.

        Raises: the error of `tolerate_empty_patterns`.
        """
        for error in tolerate_empty_patterns(self._spec, self._source):
            log.warning("pattern_matches_no_topic", reason=error.message, where=error.where, remedy=error.remedy)

    def add_named(self) -> None:
        """Adds the tables of topics that `topics` names and Kafka does not have; they wait for their topics."""
        for topic in (selector.literal for selector in self._spec.selected.topics):
            if topic is not None and f"{self._spec.selected.namespace}.{topic}" not in self.tables:
                self._add(self._spec.table_for(topic))

    def is_behind(self, table: Table) -> bool:
        """Whether the table was in a batch when topics were last found, so that its topics are not up to date."""
        return table.name in self._behind

    def load(self, table: Table, cluster_id: str) -> bool:
        """Loads the table's state from the catalog; returns False where it is the one that is in use already, which
        needs no further check.

        Raises: TableStopped when its progress belongs to another cluster or to other topics, or its columns differ from
        the file.
        """
        self._refuse_name(table)
        before, was_loaded = table.state, table.catalog.is_loaded
        try:
            table.state = self._catalog.load(table.name)
        except SpecError as error:
            raise TableStopped(*describe_error(error)) from None
        if was_loaded and before is not None and table.state is before:
            return False
        if before is not None and (table.state is None or table.state.uuid != before.uuid):
            table.forget_batches()  # They were read for a dropped table: offsets begin at `start` again.
        table.catalog.is_loaded = True
        table.offsets.forget_skipped(table.progress.offsets)
        self._check_loaded(table, cluster_id)
        if table.state is not None:
            table.catalog.size = self._catalog.size(table.name)
        return True

    def _check_loaded(self, table: Table, cluster_id: str) -> None:
        """Raises TableStopped when the table's progress or columns differ from the pipeline file, cluster or topics."""
        mismatch = declared_mismatch(table.spec, table.known_fields)
        if mismatch is not None:
            raise TableStopped(*describe_error(mismatch))
        if table.state is None:
            return
        self.refuse_shared(table, self._catalog.load)
        self._check_state(table, cluster_id)
        self._check_topic_ids(table)

    @contextmanager
    def beginnings_asked(self, tables: Iterable[Table]) -> Iterator[None]:
        """Requests the first offsets of all tables whose offsets must be checked, for the time of its block: with one
        question instead of two for each of a thousand new tables.

        Raises: UnavailableError when Kafka does not answer.
        """
        unchecked = (table for table in tables if table.catalog.is_loaded and table.offsets.needs_check)
        partitions = {partition for table in unchecked for partition in table.partitions()}
        self._beginnings = self._source.beginnings(partitions) if partitions else {}
        try:
            yield
        finally:
            self._beginnings = {}

    def _beginnings_of(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Returns the first offsets that exist, of partitions with a leader."""
        remembered = {partition: self._beginnings.get(partition) for partition in partitions}
        missing = [partition for partition, offset in remembered.items() if offset is None]
        beginnings = {partition: offset for partition, offset in remembered.items() if offset is not None}
        return beginnings | (self._source.beginnings(missing) if missing else {})

    def check_start(self, table: Table) -> None:
        """Raises TableStopped when `start` has an offset of a partition that the topic does not have."""
        if table.progress.snapshot_id is not None:
            return
        for name, offsets in table.spec.source.start.offsets.items():
            for topic in table.offsets.topics.values():
                strange = [number for number in sorted(offsets) if number >= topic.partition_count]
                if strange and name in (None, topic.name):
                    raise TableStopped(
                        f"`start` has an offset of partition {strange[0]}, and the topic has {topic.partition_count}",
                        "correct `start`: partitions are counted from 0",
                        f"topic {topic.name}, partition {strange[0]}",
                    )

    def add_first_offsets(self, table: Table) -> None:
        """Sets the first offsets of partitions without progress, as far as Kafka answers.

        A new partition of a topic with progress begins at 0: records that are gone from it were never read. The topics
        of a table without progress begin at `start`. Topics that `start` does not name, and new topics of a table with
        progress, begin at the first record that exists.
        """
        fresh = table.unplaced()
        if not fresh:
            return
        joined = [partition for partition in fresh if partition[0] in table.progress.offsets]
        begun = () if table.progress.snapshot_id is not None else table.offsets.at_start or ()
        declared = [partition for partition in fresh if partition in begun]
        rest = [partition for partition in fresh if partition not in {*joined, *declared}]
        offsets = dict.fromkeys(joined, 0) | self._starts(table, declared)
        offsets |= self._beginnings_of(rest)
        table.offsets.needs_check |= bool(joined)
        for (topic, partition), offset in offsets.items():
            table.offsets.first.setdefault(topic, {})[partition] = offset
            table.offsets.first_ids[topic] = table.offsets.topics[topic].id

    def start_offsets(self, table: Table) -> Offsets:
        """Returns the offsets that the setting `start` gives to the partitions of the table's topics now.

        Raises: UnavailableError when Kafka does not answer.
        """
        return by_topic(self._starts(table, table.partitions()))

    def _starts(self, table: Table, partitions: list[Partition]) -> dict[Partition, int]:
        """Returns the offsets that `start` gives to partitions; a partition without a leader is missing."""
        start = table.spec.source.start
        if not partitions:
            return {}
        if start.kind == "latest":
            return self._source.ends(partitions)
        if start.kind == "timestamp":
            return self._source.at_time(dict.fromkeys(partitions, start.timestamp_ms or 0))
        declared = {p: offset for p in partitions if (offset := self._declared(table, p)) is not None}
        rest = [p for p in partitions if p not in declared]
        return declared | self._beginnings_of(rest)

    def check_offsets(self, table: Table, ends: dict[Partition, int]) -> list[OffsetRange]:
        """Compares the table's offsets with those that Kafka still has; returns the ranges that are skipped now because
        their records are gone.

        Raises: TableStopped when records are gone and may not be skipped.
        """
        vector = table.position()
        partitions = [(t, p) for t, p in table.partitions() if p in vector.get(t, {})]
        beginnings = self._beginnings_of(partitions)
        lost: list[OffsetRange] = []
        for topic, partition in partitions:
            offset = vector[topic][partition]
            first = beginnings.get((topic, partition), offset)
            where = f"topic {topic}, partition {partition}, offset {offset}"
            if offset > ends.get((topic, partition), offset):
                self.verify_again(table)
                if (
                    topic,
                    partition,
                ) in table.unplaced():  # The topic was recreated before any of its records was committed.
                    return lost
                if offset <= self._source.log_ends([(topic, partition)]).get((topic, partition), 0):
                    continue  # It is behind an open transaction, as of a tool that has read uncommitted records.
                raise TableStopped(
                    f"the topic ends at offset {ends[topic, partition]}, before the table's next offset {offset}",
                    "the topic lost records (an unclean leader election, or it was recreated): check that the table"
                    " and the topic belong together, then set `start` for a new table",
                    where,
                )
            if offset < first and table.spec.source.on_data_loss == "stop":
                raise TableStopped(
                    f"records {offset} to {first - 1} were deleted from Kafka before they were read (retention)",
                    "set `on_data_loss: skip` on the table to continue from the first record that still exists",
                    where,
                )
            if offset < first:
                table.offsets.skip(topic, partition, offset, first)
                lost.append(OffsetRange(topic, partition, offset, first))
        table.offsets.needs_check = False
        return lost

    def _check_state(self, table: Table, cluster_id: str) -> None:
        state = table.state
        assert state is not None
        mismatch = layout_mismatch(table.spec, state, self._spec.file.path)
        if mismatch is not None:
            raise TableStopped(*describe_error(mismatch))
        if table.spec.changes.mode == "upsert" and state.format_version < 2:
            raise TableStopped(
                "the table has format version 1, and upsert tables need version 2 or 3",
                "upgrade the table, in Spark: ALTER TABLE … SET TBLPROPERTIES ('format-version' = '2')",
                table.name,
            )
        if state.history_lost:
            raise TableStopped(
                "the snapshot with this pipeline's progress was expired, or the catalog shows no older snapshots",
                f"restore a snapshot with the summary key frazil.{self._spec.pipeline}.offsets, or drop the table to"
                " load it again",
                table.name,
            )
        if state.progress.released_to:
            raise TableStopped(
                f"the table was released to {state.progress.released_to}, which continues in place of this pipeline",
                "remove it from the pipeline file, or take it over again with `frazil adopt`",
                table.name,
            )
        recorded_id = state.progress.cluster_id
        if recorded_id and recorded_id != cluster_id:
            raise TableStopped(
                f"the table's progress belongs to Kafka cluster {recorded_id}, and this is {cluster_id}",
                "point `bootstrap.servers` at that cluster, or use another `pipeline` name for this one",
                table.name,
            )

    def _refuse_name(self, table: Table) -> None:
        """Raises TableStopped for a new topic whose table would be another's dead-letter table, or would have no name, and
        for a topic whose keys make no table.
        """
        if table.refusal is not None:
            raise TableStopped(*table.refusal)
        if not all(table.name.split(".")):
            raise TableStopped(
                f"`{table.name}` is not a table name: one of its parts is empty",
                NAME_REMEDY,
                table.name,
            )
        try:
            self._spec.catalog.kind.check_name(table.name)
        except SpecError as error:
            raise TableStopped(error.message, name_remedy(self._spec, table.spec), table.name) from None
        owner = self._owner_of_dead_letter_table.get(table.name)
        if owner is not None:
            raise TableStopped(
                f"this table is the dead-letter table of {owner}",
                "leave its topic out of `topics`, or give one of the two a table of its own under `tables`",
                table.name,
            )

    def refuse_shared(self, table: Table, load: Callable[[str], TableState | None] = lambda _: None) -> None:
        """Raises TableStopped where the catalog takes two names of the pipeline, alike but for case or accents, for one.
        load: loads a table that is not loaded yet.
        """
        for other in self._by_alike_name.get(fold_accents(table.name), ()):
            if other.name == table.name or table.state is None:
                continue
            state = other.state or load(other.name)
            if state is not None and state.uuid == table.state.uuid:
                raise TableStopped(
                    f"the catalog has one table for `{table.name}` and `{other.name}`: it ignores case or accents",
                    "leave its topic out of `topics`, or give one of the two a table of its own under `tables`",
                    table.name,
                )

    def _check_topic_ids(self, table: Table) -> None:
        for topic, topic_id in table.progress.topic_ids.items():
            now = table.offsets.topics.get(topic)
            if now is not None and now.id != topic_id:
                raise TableStopped(
                    f"topic {topic} was deleted and recreated: its offsets refer to other records now",
                    "to load the new topic, use another table, or another `pipeline` name for this one",
                    f"topic {topic}",
                )

    def verify(self, table: Table) -> None:
        """Raises TableStopped when a topic was recreated since it was read, or the table's name belongs to another."""
        self._refuse_name(table)
        if self.is_behind(table):
            self._match(table, self._found)
        self._check_topic_ids(table)

    def verify_again(self, table: Table) -> None:
        """Requests the table's topics, also for a table in a batch; raises TableStopped when one was recreated."""
        self._match(table, self._source.described(set(table.offsets.topics)))
        self._check_topic_ids(table)

    def _match(self, table: Table, topics: dict[str, TopicDescription]) -> None:
        self._behind.discard(table.name)
        spec = self._topic_tables.settings.get(table.name, table.spec)
        if spec is not table.spec and table.refusal is None:
            table.begin_again(spec)
        table.offsets.topics = {name: topics[name] for name in select_topics(table.spec.source.topics, topics)}
        if table.offsets.at_start is None and table.offsets.topics:
            # `latest` means records produced after the start: of a topic that was created since then that is every record.
            is_late = self._has_topics and table.spec.source.start.kind == "latest"
            table.offsets.at_start = frozenset() if is_late else frozenset(table.partitions())
        # A topic that was recreated before any record of it was committed begins where a new one does.
        first_ids = table.offsets.first_ids
        for recreated in [t.name for t in table.offsets.topics.values() if first_ids.get(t.name, t.id) != t.id]:
            del table.offsets.first[recreated], table.offsets.first_ids[recreated]
            table.offsets.skipped.pop(recreated, None)
            table.offsets.read_to, table.offsets.needs_check = None, True
            if table.spec.source.start.kind == "latest" and table.offsets.at_start is not None:
                table.offsets.at_start = frozenset(
                    partition for partition in table.offsets.at_start if partition[0] != recreated
                )

    @staticmethod
    def _declared(table: Table, partition: Partition) -> int | None:
        offsets = table.spec.source.start.offsets
        mine = offsets.get(partition[0]) or offsets.get(None) or {}
        return mine.get(partition[1])
