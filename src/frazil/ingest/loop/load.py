"""Loads tables from the catalog, creates those whose columns are declared, and detects a later run of the pipeline."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from frazil.errors import ConflictError, FencedError
from frazil.ingest.batches.pipeline import Identity, Pipeline
from frazil.ingest.batches.services import Services
from frazil.ingest.loop.discovery import Discovery
from frazil.ingest.loop.table_updates import forget_batch
from frazil.ingest.tables.preflight import (
    arranged,
    field_in_image,
    has_needed_columns,
    keeps_old_metadata,
    removes_needed_metadata,
    text_order,
    topics_without_order,
)
from frazil.ingest.tables.schemas import may_change
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.ingest.tables.target import target_of
from frazil.kafka.port import Partition
from frazil.rows.writer_schemas import LATEST
from frazil.types import Offsets, Writer, by_partition
from frazil.upsert.kinds import check_kind
from frazil.upsert.lookup.live_rows import check_columns, check_ids
from frazil.write.file_formats import check_properties

log = structlog.get_logger("frazil")

_CREDENTIALS_MARGIN_S = 5 * 60.0
_CREDENTIALS_EVERY_S = 10.0
_SCHEMAS_EVERY_S = 60.0
RELOAD_IDLE_EVERY_S = 60.0
# Attempts to take a table over from an earlier run, before a batch of this run's own must win.
_CLAIMS = 3


@dataclass(frozen=True)
class Restart:
    """A table that begins again at its setting `start`."""

    #: The next offsets before.
    committed: Offsets
    #: The next offsets after.
    start: Offsets
    #: The table's mode: records that are read again are rows twice with `append`, and replace their rows with `upsert`.
    mode: str

    @property
    def read_again(self) -> int:
        """The number of offsets that are read again."""
        return sum(
            max(0, offset - self._start(place, offset)) for place, offset in by_partition(self.committed).items()
        )

    @property
    def left_unread(self) -> int:
        """The number of offsets that have not been read and never will be."""
        return sum(
            max(0, self._start(place, offset) - offset) for place, offset in by_partition(self.committed).items()
        )

    def _start(self, place: Partition, otherwise: int) -> int:
        return self.start.get(place[0], {}).get(place[1], otherwise)


class Loader:
    """Loads the tables of one process, and keeps the identity with which the process writes: cluster, epoch and run id."""

    def __init__(self, pipeline_name: str, services: Services, discovery: Discovery, run_id: str) -> None:
        self._name = pipeline_name
        self._services = services
        self._discovery = discovery
        self._run_id = run_id
        self._epoch: int | None = None
        self._taking = threading.Lock()
        self._are_unloaded_first = False
        self._warned: set[tuple[str, str]] = set()
        #: The id of the Kafka cluster; empty until it is known.
        self.cluster_id = ""

    @property
    def pipeline(self) -> Pipeline:
        """The steps of a batch, with this process's identity."""
        identity = Identity(self._name, self.cluster_id, Writer(self._epoch or 1, self._run_id))
        return Pipeline(self._services, identity)

    def take_epoch(self, epoch: int) -> None:
        """Sets the epoch of this process to `epoch`, unless a table that was loaded meanwhile required a later one."""
        with self._taking:
            self._epoch = max(epoch, self._epoch or epoch)

    def load(self, table: Table) -> None:
        """Loads a table, and creates it when its columns are declared. It requests only the catalog: schemas are loaded
        separately (`load_schemas`), so that waits for the registry do not delay tables that need none.

        Raises:
            TableStopped: the table's progress belongs to another cluster or topic, or its columns differ from the file.
            NameConflict: two columns have one name.
            FencedError: a later run writes the table.
            UnavailableError, ConflictError: as raised by the catalog.
        """
        clock = self._services.clock
        table.catalog.asked_at_s, table.catalog.is_outdated = clock.monotonic_s(), False
        was_known = table.catalog.loaded_at_s > 0
        is_changed = self._discovery.load(table, self.cluster_id)
        if self._epoch is not None:
            self._compare_writers(table, was_known)
        self.pipeline.settle(table)
        if is_changed:
            self._prepare(table)
        unordered = topics_without_order(table)
        if unordered and self._is_first("topics_not_ordered", table):
            log.warning("topics_not_ordered", table=table.name, reason=unordered)
        table.catalog.loaded_at_s = clock.monotonic_s()

    def _prepare(self, table: Table) -> None:
        """Creates a table whose columns are declared, gives it the columns and the layout of the pipeline file, and checks
        and warns of the rest.
        """
        null = field_in_image(table.spec)
        if null and self._is_first("column_without_field", table):
            log.warning("column_without_field", table=table.name, reason=null)
        if (
            table.state is None
            and table.spec.shape.columns
            and not table.spec.has_query
            and has_needed_columns(table.spec)
        ):
            table.state = self.pipeline.schema_updates.new_tables.create(table)
        if table.state is None:
            return
        table.state = self.pipeline.schema_updates.new_tables.with_declared(table, table.state)
        if table.spec.has_query:
            table.state = self.pipeline.schema_updates.queries.load(table)
        check_properties(table.state.properties, table.name)
        table.state = arranged(self._services.catalog, table.spec, table.state)
        if table.spec.changes.dedupe is not None:
            check_ids(target_of(table))
        if table.spec.changes.mode == "upsert":
            check_columns(target_of(table))
            check_kind(target_of(table))
            text = text_order(table.spec, table.state.schema)
            if text and self._is_first("ordered_by_text", table):
                log.warning("ordered_by_text", table=table.name, order_by=table.spec.changes.order_by, reason=text)
        self._warn_of_metadata(table)

    def _warn_of_metadata(self, table: Table) -> None:
        kept, removed = keeps_old_metadata(table.state), removes_needed_metadata(table.state)
        if kept and self._is_first("old_metadata_kept", table):
            log.warning("old_metadata_kept", table=table.name, reason=kept)
        if removed and self._is_first("old_metadata_removed", table):
            log.warning("old_metadata_removed", table=table.name, reason=removed)

    def watch(self, table: Table) -> None:
        """Loads a table that another process works on, and writes nothing.

        Raises: TableStopped, UnavailableError as `load`.
        """
        clock = self._services.clock
        table.catalog.asked_at_s = clock.monotonic_s()
        self._discovery.load(table, self.cluster_id)
        table.catalog.loaded_at_s = clock.monotonic_s()

    def measure(self, table: Table) -> None:
        """Brings the size of a table up to date, and nothing else: whatever has stopped the table stays as it is.

        Raises: UnavailableError as the catalog.
        """
        if self._services.catalog.load(table.name) is not None:
            table.catalog.size = self._services.catalog.size(table.name)

    def must_measure(self, table: Table) -> bool:
        """Whether `measure` is due, of a table that is paused or stopped, which is not loaded: maintenance and other
        writers change it all the same.
        """
        schedule = table.schedule
        if not schedule.is_owned or schedule.in_flight or table.state is None:
            return False
        if not schedule.is_paused and table.status.run_state is not RunState.STOPPED:
            return False
        age_s = self._services.clock.monotonic_s() - table.catalog.asked_at_s
        return table.catalog.is_outdated or age_s >= RELOAD_IDLE_EVERY_S

    def reload(self, table: Table) -> None:
        """Loads a table after its commit was refused, and takes it over from an earlier run, as the two would otherwise
        alternate.

        Raises: the errors of `load`, and UnavailableError when Kafka does not answer.
        """
        for _ in range(_CLAIMS):
            self.load(table)
            try:
                if self.claim(table):
                    log.info("table_taken_over", table=table.name)
                break
            except ConflictError:  # The earlier run committed first again.
                continue
        self._discovery.verify_again(table)

    def claim(self, table: Table) -> bool:
        """Takes a table over from an earlier run that has just committed before this one; returns whether there is such
        a run. The commit is empty, as that of a whole batch could lose against the earlier run for long, while this
        process is warming up.

        Raises: ConflictError when the earlier run committed first again, UnavailableError as the catalog does.
        """
        writer = table.progress.writer
        if self._epoch is None or table.state is None or not writer[1] or writer >= (self._epoch, self._run_id):
            return False
        table.state = self.pipeline.claim(table)
        return True

    def restart(self, table: Table, is_dry: bool) -> Restart:
        """Commits the offsets of the setting `start` as the progress of a table that no batch is running for, unless
        `is_dry`; returns the offsets before and after.

        Raises: the errors of `load`, ConflictError when another run committed first, UnavailableError when Kafka does not
        answer.
        """
        if not is_dry:
            self.load(table)
        restart = Restart(table.progress.offsets, self._discovery.start_offsets(table), table.spec.changes.mode)
        if not is_dry:
            table.state = self.pipeline.restart(table, restart.start)
            table.forget_batches()
            forget_batch(table)
            log.info("table_reset", table=table.name, offsets=restart.start)
        return restart

    def in_turn(self, tables: Iterable[Table]) -> list[Table]:
        """Returns the tables in the order in which they are loaded or refreshed. Those that are not loaded come first
        or last by turns: neither kind may occupy a slow catalog.
        """
        self._are_unloaded_first = first = not self._are_unloaded_first
        return sorted(tables, key=lambda table: (table.catalog.is_loaded is first, table.catalog.asked_at_s))

    def is_due(self, table: Table) -> bool:
        """Whether the table must be loaded: it is not loaded, its credentials end soon, or another writer may have
        changed it since the last commit. A loaded table is checked for a due batch before it is loaded again.
        """
        if not table.catalog.is_loaded:
            return True
        if table.catalog.was_asked:
            return False
        is_stale = self._services.clock.monotonic_s() - table.catalog.loaded_at_s >= RELOAD_IDLE_EVERY_S
        return is_stale or table.catalog.is_outdated or self._needs_credentials(table)

    def lacks_schemas(self, table: Table) -> bool:
        """Whether `load_schemas` has schemas to load."""
        return (
            table.catalog.is_loaded
            and table.spec.source.value.needs_registry
            and bool(_first_ids(table) - table.schema.schemas.keys())
        )

    def has_old_schemas(self, table: Table) -> bool:
        """Whether `refresh_schemas` is due: not twice before the table is checked for a due batch."""
        age_s = self._services.clock.monotonic_s() - table.schema.schemas_at_s
        return bool(table.schema.schemas) and not table.schema.was_asked and age_s >= _SCHEMAS_EVERY_S

    def refresh_schemas(self, table: Table) -> None:
        """Requests the newest schema again for a table that is read with it, and forgets ids without a usable schema,
        which the registry may have by now.

        Raises: UnavailableError when the registry does not answer.
        """
        table.schema.was_asked, table.schema.schemas_at_s = True, self._services.clock.monotonic_s()
        # A schema that is forgotten before a batch is read with it would be missing again, without end for slow batches.
        if not table.schema.has_new_schemas:
            table.schema.schemas = {
                name: schema for name, schema in table.schema.schemas.items() if not may_change(schema)
            }
        if table.spec.source.value.source == "latest":
            table.schema.schemas |= self.pipeline.schemas_of(table, [LATEST])
        others = [name for name in table.schema.schemas if name.endswith(f":{LATEST}")]
        if others:
            table.schema.schemas |= self.pipeline.schemas_of(table, others)

    def _is_first(self, warning: str, table: Table) -> bool:
        """Whether the table has not had this warning before."""
        count_before = len(self._warned)
        self._warned.add((warning, table.name))
        return len(self._warned) > count_before

    def load_schemas(self, table: Table) -> None:
        """Requests the schemas of the last batch, so that they are not missing in the first batch of this process.

        Raises: UnavailableError when the registry does not answer.
        """
        table.schema.was_asked = True
        table.schema.schemas |= self.pipeline.schemas_of(table, _first_ids(table) - table.schema.schemas.keys())
        table.schema.schemas_at_s = self._services.clock.monotonic_s()

    def _needs_credentials(self, table: Table) -> bool:
        """Whether the table's credentials end soon: only a load renews them, however often a busy table is committed."""
        clock = self._services.clock
        if table.state is None or table.state.credentials_end_ms is None:
            return False
        if clock.monotonic_s() - table.catalog.asked_at_s < _CREDENTIALS_EVERY_S:
            return False
        return table.credentials_left_s(clock.now_ms()) <= _CREDENTIALS_MARGIN_S

    def _compare_writers(self, table: Table, was_known: bool) -> None:
        """Raises FencedError when a later run has written a table that this process has loaded before, even when there
        is nothing to commit, as the two runs would alternate. Of two runs that began from the same progress the greater
        run id is the later one. On the first load of a table a later epoch is adopted instead: the epoch came from other
        tables.
        """
        epoch, run_id = table.progress.writer
        if (epoch, run_id) <= (self._epoch or 1, self._run_id):
            return
        if not was_known:
            self.take_epoch(epoch + 1)
            return
        message = f"a later run of pipeline {self._name} writes this table: epoch={epoch}"
        if epoch == (self._epoch or 1):
            message = f"another run of pipeline {self._name}, which began at the same time, writes this table"
        raise FencedError(
            message,
            remedy="let that run continue, or stop it and start this one again; with `ha: {elect: kafka}` a second process"
            " stands by instead",
            where=table.name,
        )


def _first_ids(table: Table) -> set[str]:
    return (
        {LATEST}
        if table.spec.source.value.source == "latest"
        else {i for i in table.progress.batch.schemas if _is_id(i)}
    )


def _is_id(word: str) -> bool:
    return word.isdecimal() or "-" in word
