"""Waits up to 10 s so that new tables that divide records among them share the first read.

New tables and the table of the rest wait until none of the new ones is loaded, read for its columns or created any more:
once out of step they would stay so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table

# The longest time for which tables wait for new ones, so that one which hangs does not hold up the others.
_GATHER_S = 10.0


class Gathering:
    """Knows which new tables of a division are not ready, as of a turn of the loop."""

    def __init__(self) -> None:
        #: By table of the rest, its tables without a commit, as of a turn of the loop, and since when tables wait for them.
        self._new: Mapping[str, Sequence[Table]] = {}
        self._new_at_s = float("-inf")
        self._gathering_from_s: dict[str, float] = {}

    def waits(self, table: Table, tables: Iterable[Table], now_s: float) -> bool:
        """Whether new tables are about to be ready for the read that serves this one too. tables: all tables."""
        share = table.spec.source.share
        if share is None or (not share.is_rest and table.progress.snapshot_id is not None):
            return False
        if now_s != self._new_at_s:
            self._new_at_s, self._new = now_s, _new_tables(tables)
        if any(_is_unready(new, share.is_rest) for new in self._new.get(share.rest, ())):
            return now_s < self._gathering_from_s.setdefault(table.name, now_s) + _GATHER_S
        self._gathering_from_s.pop(table.name, None)
        return False


def _new_tables(tables: Iterable[Table]) -> dict[str, list[Table]]:
    """Returns by table of the rest those derived tables that have no commit yet, and that nothing keeps from one."""
    tables_by_rest: dict[str, list[Table]] = {}
    for table in tables:
        share, schedule = table.spec.source.share, table.schedule
        if (
            share is not None
            and not share.is_rest
            and table.progress.snapshot_id is None
            and schedule.is_owned
            and not (schedule.is_paused or schedule.failures)
            and table.status.run_state is not RunState.STOPPED
        ):
            tables_by_rest.setdefault(share.rest, []).append(table)
    return tables_by_rest


def _is_unready(table: Table, is_rest: bool) -> bool:
    """Whether a new table cannot be read yet for its rows, or at all. is_rest: it is the table of the rest that would wait
    for it, also while its columns are to be found.
    """
    return table.schedule.in_flight or not table.catalog.is_loaded or (is_rest and table.is_trial)
