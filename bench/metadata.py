"""What ten thousand commits leave of a table's metadata with expiry on: its size, and how long a commit takes.

No Kafka and no Spark, a catalog on SQLite in a folder of its own. Each commit brings a small data file, as ingestion does.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from bench.machine import CLOCK
from bench.place import Place, Run, Surroundings, say
from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.maintenance import IcebergMaintenance
from frazil.clock import SystemClock, new_id
from frazil.dead_letters.tables import NEW_TABLE_PROPERTIES
from frazil.maintenance.plan import MaintenanceTask, Plan
from frazil.maintenance.run import MaintainedTable, MaintenanceRunner
from frazil.runtime.light_jvm import LightJvm
from frazil.spec.settings import MaintenanceSpec
from frazil.types import Commit, DataFile, Progress, Writer
from frazil.write.plain_target import plain_target
from frazil.write.target import TableTarget
from frazil.write.write import FileWriter

_TABLE = "bench.metadata"
_PARTITIONS = 4
_ROWS = 100
_FIRST = 100
_LOOK_EVERY = 50
_TARGET_BYTES = 128 * 1024 * 1024


def measure(place: Place) -> None:
    """Size and times."""
    with place.attempt("metadata"):
        around, folder = Surroundings(place), place.run_folder("metadata")
        run: Run = {**_one_run(folder, place.settings.metadata_commits), **around.end()}
        say(json.dumps(run))
        place.write_result("metadata", "frazil", "", [run])
        place.discard(folder)


def _one_run(folder: Path, commits: int) -> dict[str, float]:
    """Care looks as often as it would beside ingestion. It puts no files together, which takes Spark: the table has more of
    them than it would.
    """
    jvm = LightJvm({})
    jvm.listen()
    try:
        properties = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder / 'catalog.db'}", "warehouse": str(folder)}
        catalog = IcebergCatalog(jvm.gateway, "bench", {**properties, "jdbc.schema-version": "V1"}, {})
        schema = Schema(NestedField(1, "id", LongType(), required=False))
        state = catalog.create(_TABLE, schema, NEW_TABLE_PROPERTIES, 2)
        progress, target = state.progress, plain_target(state)
        runner = MaintenanceRunner(IcebergMaintenance(catalog), "bench", SystemClock())
        maintained = MaintainedTable(
            _TABLE, MaintenanceTask(MaintenanceSpec(min_input_files=commits + 1), _TARGET_BYTES)
        )
        runner.plan(maintained, begins=True)
        catalog.load(_TABLE)
        times = []
        for number in range(commits):
            files = written(target, number)
            offsets = {"topic": dict.fromkeys(range(_PARTITIONS), number)}
            after = Progress(offsets, {"topic": new_id()}, "cluster", new_id(), Writer(1, new_id()))
            began_s = CLOCK.monotonic_s()
            progress = catalog.commit(Commit(_TABLE, files, after, progress))
            times.append(CLOCK.monotonic_s() - began_s)
            if number % _LOOK_EVERY == 0:
                assert all(
                    not outcome.failure for outcome in runner.run(_plan(runner, maintained), maintained.maintenance)
                )
        health = _plan(runner, maintained).health
        if health.files != commits:
            raise RuntimeError(f"the table has {health.files} data files of {commits} commits")
        location = str(catalog.java_table(_TABLE).operations().current().metadataFileLocation())
        first, last = median(times[:_FIRST]), median(times[-_FIRST:])
        return {
            "commits": commits,
            "metadata_bytes": Path(location).stat().st_size,
            "snapshots": health.snapshots,
            "manifests": health.manifests,
            "first_ms": round(first * 1000, 1),
            "last_ms": round(last * 1000, 1),
            "ratio": round(last / first, 2),
        }
    finally:
        jvm.close()


def written(target: TableTarget, number: int) -> tuple[DataFile, ...]:
    """A small data file of a table with the column `id`."""
    writer, first = FileWriter(target), number * _ROWS
    writer.write(pyarrow.table({"id": list(range(first, first + _ROWS))}, schema=target.arrow_schema))
    return tuple(writer.finish())


def _plan(runner: MaintenanceRunner, maintained: MaintainedTable) -> Plan:
    plan = runner.plan(maintained, "busy")
    assert plan is not None
    return plan
