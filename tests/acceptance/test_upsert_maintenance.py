"""Table maintenance of upsert tables, beside the ingestion that takes rows from the very
files that maintenance rewrites. Both are killed; what a dictionary reports is what the tables hold, at every snapshot.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from contextlib import suppress

import pytest

from frazil.runtime.jvm import Jvm
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.running import Run
from tests.acceptance.soaking import live_on
from tests.acceptance.upsert_tables import UpsertTable
from tests.acceptance.verifier import unnamed

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(900)]

EAGER = {"min_input_files": 4, "snapshots": {"count": 10}}
KILLS = ("maintenance.compact.written=kill", "upsert.resolved=kill@7")
PARTITIONS = {2: ["bucket(id, 2)"], 3: ["truncate(id, 100)"]}
"""Of the table of each format."""
PAUSE_S = 1.0
"""Between changes, so that time does not pass by their number: what is due is looked for every ten seconds."""


def load(run: Run, upsert_tables: list[UpsertTable], times: int) -> None:
    """Changes, a batch after the other, while the run lives."""
    for _ in range(times):
        live_on(run, PAUSE_S)
        with suppress(AssertionError):  # It may die meanwhile.
            for upsert_table in upsert_tables:
                upsert_table.change(count=40)
            for upsert_table in upsert_tables:
                upsert_table.wait(run)
        if not run.is_running:
            return


# In time: the other format in integration/test_upsert_maintenance.py and integration/test_maintenance_layouts.py; a driver
# killed at the other step, in ingestion, in test_upserts.py.
@pytest.mark.parametrize(
    ("kills", "versions"),
    [
        pytest.param(KILLS[:1], (3,), id="one"),
        pytest.param(KILLS, (2, 3), marks=pytest.mark.slow, id="both"),
    ],
)
def test_upsert_tables_are_maintained_under_load_whatever_is_killed(
    pipeline: Pipeline, jvm: Jvm, kills: Sequence[str], versions: Sequence[int]
) -> None:
    pipeline.document["maintenance"] = EAGER
    upsert_tables = [
        UpsertTable(pipeline, f"of_{version}", format_version=version, partition_by=PARTITIONS[version])
        for version in versions
    ]
    for kill in kills:
        with pipeline.running(failpoints=kill) as run:
            load(run, upsert_tables, times=500)
            assert run.wait() == -signal.SIGKILL, kill
    for upsert_table in upsert_tables:
        upsert_table.check()
    with pipeline.running() as run:
        load(run, upsert_tables, times=3)
        for upsert_table in upsert_tables:
            run.wait_for("maintenance_done", action="compact", table=upsert_table.table, conflicts=0)
        load(run, upsert_tables, times=1)
        assert run.stop() == 0, run.tail()
        assert not run.seen("table_stopped")
        assert not run.seen("unexpected_error")
    pipeline.document["maintenance"] = {**EAGER, "orphans": {"age": "1ms"}}
    pipeline.command_on(jvm, "maintain")
    for upsert_table in upsert_tables:
        upsert_table.check_all()
        assert unnamed(pipeline.metadata(upsert_table.table)) == frozenset()
