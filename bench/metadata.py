"""What ten thousand commits leave of a table's metadata with expiry on: its size, and how long a commit takes.

No Kafka and no Spark, a catalog on SQLite in a folder of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from bench.machine import CLOCK
from bench.place import Place, Run, Surroundings, say
from frazil.catalog.iceberg import IcebergCatalog
from frazil.catalog.iceberg_upkeep import IcebergUpkeep
from frazil.clock import SystemClock, new_id
from frazil.ingest.letters.letter_box import NEW_TABLE_PROPERTIES
from frazil.maintain.plan import Care
from frazil.maintain.run import Carer, Charge
from frazil.runtime.light_jvm import LightJvm
from frazil.spec.models import MaintenanceSpec
from frazil.types import Commit, Progress

_TABLE = "bench.metadata"
_PARTITIONS = 4
_FIRST = 100
_LOOK_EVERY = 50


def measure(place: Place) -> None:
    """Size and times."""
    with place.attempt("metadata"):
        around, folder = Surroundings(place), place.run_folder("metadata")
        run: Run = {**_one_run(folder, place.settings.metadata_commits), **around.end()}
        say(json.dumps(run))
        place.write_result("metadata", "frazil", "", [run])
        place.discard(folder)


def _one_run(folder: Path, commits: int) -> dict[str, float]:
    """Commits of nothing but progress; care looks as often as it would beside ingestion."""
    jvm = LightJvm({})
    jvm.listen()
    try:
        properties = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder / 'catalog.db'}", "warehouse": str(folder)}
        catalog = IcebergCatalog(jvm.gateway, "bench", {**properties, "jdbc.schema-version": "V1"}, {})
        schema = Schema(NestedField(1, "id", LongType(), required=False))
        progress = catalog.create(_TABLE, schema, NEW_TABLE_PROPERTIES, 2).progress
        carer = Carer(IcebergUpkeep(catalog), "bench", SystemClock())
        charge = Charge(_TABLE, Care(MaintenanceSpec(), 128 * 1024 * 1024))
        carer.first_note(charge)
        catalog.load(_TABLE)
        times = []
        for number in range(commits):
            offsets = {"topic": dict.fromkeys(range(_PARTITIONS), number)}
            after = Progress(offsets, {"topic": new_id()}, "cluster", new_id(), 1, new_id())
            began_s = CLOCK.monotonic_s()
            progress = catalog.commit(Commit(_TABLE, (), after, progress))
            times.append(CLOCK.monotonic_s() - began_s)
            if number % _LOOK_EVERY == 0:
                plan = carer.plan(charge, "busy")
                assert plan is not None
                assert all(not outcome.failure for outcome in carer.run(plan, charge.care))
        location = str(catalog.java_table(_TABLE).operations().current().metadataFileLocation())
        first, last = median(times[:_FIRST]), median(times[-_FIRST:])
        return {
            "commits": commits,
            "metadata_bytes": Path(location).stat().st_size,
            "first_ms": round(first * 1000, 1),
            "last_ms": round(last * 1000, 1),
            "ratio": round(last / first, 2),
        }
    finally:
        jvm.close()
