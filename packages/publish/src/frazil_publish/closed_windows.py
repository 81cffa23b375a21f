"""`emit: closed`: readers of a table get its windows when they are complete, each once and for good.

The branch takes the commits and is the state of all windows. Main gets the rows of windows that have become complete, in a
commit whose progress has the time up to which main has them: so a process that dies repeats what main lacks, and of two
processes one commits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import structlog
from pyiceberg.types import PrimitiveType

from frazil.catalog.port import Catalog, TableState
from frazil.catalog.scans import LiveFile
from frazil.clock import Clock, new_id
from frazil.errors import ConflictError, SpecError
from frazil.failpoints import hit
from frazil.ops.seen_by_readers import PublishReport
from frazil.schema.arrow import Ints
from frazil.spec.grouped_tables import groups_of
from frazil.spec.grouping import WINDOW_END, WINDOW_START
from frazil.spec.models import TableSpec
from frazil.types import Commit, Progress, Watermark
from frazil.upsert.late_records import has_closed_windows
from frazil.upsert.lookup.delete_files import live_rows
from frazil.upsert.lookup.live_rows import read_columns
from frazil.upsert.lookup.pruning import bounds_of
from frazil.write.plain_target import plain_target
from frazil.write.target import TableTarget
from frazil.write.write import FileWriter

log = structlog.get_logger("frazil")
_EARLIEST_US = -(2**63) + 1
_US_PER_MS = 1000


class ClosedWindows:
    """Gives main the windows of tables with `emit: closed`. catalog: reads and commits tables at their branches."""

    def __init__(self, catalog: Catalog, clock: Clock) -> None:
        self._catalog, self._clock = catalog, clock

    def publish(self, spec: TableSpec) -> PublishReport:
        """Gives main the windows that have become complete; returns what readers see then.

        Raises: ConflictError where another process has done so meanwhile; SpecError where main has rows of open windows;
        UnavailableError where the catalog or the store does not answer.
        """
        report = PublishReport(spec.publishing.branch)
        state, main = self._catalog.load(spec.name), self._catalog.on_main(spec.name)
        readers = main.load(spec.name)
        if state is None or readers is None:
            return report
        before = readers.progress
        complete_us, closed_us = state.progress.order.windows_complete_to_us, before.order.windows_complete_to_us
        if before.commit_id and not has_closed_windows(before):
            raise SpecError(
                "main has windows that were not complete, from before `emit: closed`",
                remedy="drop the table, so that it reads its topics again, or remove `emit: closed`",
                where=spec.name,
            )
        if closed_us is None:
            closed_us = _EARLIEST_US
        if complete_us is not None and complete_us > closed_us:
            before = self._close(spec, state, main, readers, (closed_us, complete_us))
        return replace(
            report,
            state="published" if before.snapshot_id is not None else "waiting",
            snapshot_id=before.snapshot_id,
            published_ms=before.committed_at_ms,
            complete_to_ms=before.watermark.complete_to_ms,
        )

    def _close(
        self, spec: TableSpec, state: TableState, main: Catalog, readers: TableState, ends_us: tuple[int, int]
    ) -> Progress:
        """Commits the windows that end behind the first of two times, and not behind the second one, to main."""
        target, writer = plain_target(state), FileWriter(plain_target(readers))
        windows = 0
        try:
            for rows in self._closed(spec, target, ends_us):
                windows += rows.num_rows
                writer.write(rows)
            files = tuple(writer.finish())
        except BaseException:
            writer.abandon()
            raise
        hit("windows.written")
        progress = replace(
            state.progress,
            commit_id=new_id(),
            watermark=Watermark({}, ends_us[1] // _US_PER_MS),
            order=replace(state.progress.order, windows_complete_to_us=ends_us[1]),
            batch=replace(state.progress.batch, balance=None, skipped={}),
            dead_letters=None,
            ledger=None,
            snapshot_id=None,
            committed_at_ms=None,
        )
        try:
            done = main.commit(Commit(spec.name, files, progress, readers.progress, shape=readers.shape))
        except ConflictError:
            main.delete_files(spec.name, [file.path for file in files])
            raise
        hit("windows.landed")
        log.info("windows_closed", table=spec.name, windows=windows, complete_to_ms=ends_us[1] // _US_PER_MS)
        return done

    def _closed(self, spec: TableSpec, target: TableTarget, ends_us: tuple[int, int]) -> Iterator[pa.Table]:
        """Yields the rows of these windows."""
        grouping = groups_of(spec)
        assert grouping is not None
        assert grouping.window is not None
        names = {column.function: column.name for column in grouping.columns}
        column, ahead_us = names.get(WINDOW_END), 0
        if column is None:
            column, ahead_us = names[WINDOW_START], grouping.window.size_us
        if grouping.session is not None:
            ahead_us = 1  # A record at its very end extends a session.
        wanted = ends_us[0] - ahead_us, ends_us[1] - ahead_us
        for file in self._catalog.scan(spec.name).files:
            if _may_have(target, file, column, wanted):
                rows = _chosen(target, file, column, wanted)
                if rows.size:
                    schema = target.arrow_schema
                    columns = read_columns(target, file, [(field.name,) for field in schema], rows)
                    yield pa.Table.from_arrays(columns, schema=schema)


def _may_have(target: TableTarget, file: LiveFile, column: str, wanted: tuple[int, int]) -> bool:
    """Whether a file may have a value of the column behind the first of two times, and not behind the second one."""
    field = target.schema.find_field(column)
    assert isinstance(field.field_type, PrimitiveType)
    lower, upper = bounds_of(file, field.field_id, field.field_type)
    return not (lower is not None and lower > wanted[1]) and not (upper is not None and upper <= wanted[0])


def _chosen(target: TableTarget, file: LiveFile, column: str, wanted: tuple[int, int]) -> Ints:
    """Returns the positions of these rows in the file, without deleted rows."""
    (times,) = read_columns(target, file, [(column,)])
    micros = np.asarray(times.cast(pa.int64()).fill_null(_EARLIEST_US))
    rows = live_rows(target, file)
    return rows[(micros[rows] > wanted[0]) & (micros[rows] <= wanted[1])]
