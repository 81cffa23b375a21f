"""Other catalogs and an S3 store beside the catalog and the folder of the other benchmarks: the time of a commit, and
throughput. Their servers are those of the tests.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from bench import subjects
from bench.loads import json_load
from bench.machine import CLOCK
from bench.metadata import written
from bench.place import Place, Run, Surroundings, say
from bench.table import Table
from bench.throughput import DEBUG_LOG, one_run
from bench.tree import Tree
from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.clock import new_id
from frazil.dead_letters.tables import NEW_TABLE_PROPERTIES
from frazil.runtime.gateway import hadoop_settings
from frazil.runtime.light_jvm import LightJvm
from frazil.runtime.properties import catalog_properties, spark_conf
from frazil.spec import PipelineSpec, load_spec
from frazil.types import Commit, Progress, Writer
from frazil.write.plain_target import plain_target
from tests.acceptance.catalogs import AnyLake, running_lake
from tests.integration.servers import ObjectStore

CATALOGS = {"jdbc": "jdbc on SQLite", "rest": "rest", "hive": "hive", "glue": "glue"}
"""Names in results, and those of the tests' servers."""
_TABLE = "bench.lakes"
_PARTITIONS = 4
_WARM = 100
# A pipeline's JVM runs for long: its code is compiled.
_JVM = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4 -Xmx1g"}


def measure(place: Place) -> None:
    """The commits, and the throughput."""
    if "frazil" not in place.settings.subjects:
        return
    with place.attempt("commits to catalogs"):
        run = _commits(place)
        say(json.dumps(run))
        place.write_result("lakes", "frazil", "commits", [run])
    with place.attempt("throughput to a folder and to S3"):
        runs: dict[str, list[Run]] = {label: [] for label in STORES}
        # In turn: the machine is not the same from one minute to the next.
        for _ in range(place.settings.runs_of("frazil")):
            for label, one in STORES.items():
                runs[label].append(one(place))
                say(f"{label}: {json.dumps(runs[label][-1])}")
        for label, found in runs.items():
            place.write_result("lakes", "frazil", label, found)


def _commits(place: Place) -> Run:
    """A commit in each catalog in turn, in one process: what disturbs the machine disturbs all of them."""
    around, folder = Surroundings(place), place.run_folder("commits")
    with ExitStack() as opened:
        specs = {name: _opened(opened, kind, folder / name) for name, kind in CATALOGS.items()}
        conf = {name: text for spec in specs.values() for name, text in spark_conf(spec).items()}
        jvm = LightJvm({**conf, **_JVM}, needs_s3=True, needs_spark_jars=True)
        opened.callback(jvm.close)
        jvm.listen()
        tables = {name: _Committing(jvm, spec) for name, spec in specs.items()}
        for _ in range(_WARM + place.settings.lake_commits):
            for table in tables.values():
                table.commit()
    times = {name: median(table.times_s[_WARM:]) for name, table in tables.items()}
    place.discard(folder)
    return {
        **{f"{name}_ms": round(1000 * time_s, 1) for name, time_s in times.items()},
        **{f"{name}_times": round(time_s / times["jdbc"], 2) for name, time_s in times.items() if name != "jdbc"},
        **around.end(),
    }


def _opened(opened: ExitStack, kind: str, folder: Path) -> PipelineSpec:
    """Starts a catalog's server; a pipeline that uses it."""
    folder.mkdir()
    lake: AnyLake = opened.enter_context(running_lake(kind, folder))
    os.environ.update(lake.environment())
    file = folder / "pipeline.yaml"
    pipeline = {"pipeline": "bench", "kafka": {"bootstrap.servers": "localhost:9"}, "catalog": lake.section()}
    file.write_text(
        yaml.safe_dump({**pipeline, "spark": {"conf": dict(lake.conf)}, "tables": {_TABLE: {"topic": "t"}}})
    )
    return load_spec(file)


class _Committing:
    """A table that gets small commits, as ingestion makes them."""

    def __init__(self, jvm: LightJvm, spec: PipelineSpec) -> None:
        self._catalog = IcebergCatalog(
            jvm.gateway,
            spec.pipeline,
            catalog_properties(spec),
            hadoop_settings(spark_conf(spec)),
            spec.catalog.kind.vends_credentials,
        )
        schema = Schema(NestedField(1, "id", LongType(), required=False))
        state = self._catalog.create(_TABLE, schema, NEW_TABLE_PROPERTIES, 2)
        self._progress, self._target = state.progress, plain_target(state)
        self._numbers = count()
        self.times_s: list[float] = []

    def commit(self) -> None:
        """One more."""
        number = next(self._numbers)
        files = written(self._target, number)
        offsets = {"topic": dict.fromkeys(range(_PARTITIONS), number)}
        after = Progress(offsets, {"topic": new_id()}, "cluster", new_id(), Writer(1, new_id()))
        began_s = CLOCK.monotonic_s()
        self._progress = self._catalog.commit(Commit(_TABLE, files, after, self._progress))
        self.times_s.append(CLOCK.monotonic_s() - began_s)


def _to_folder(place: Place) -> Run:
    return _one_run(place, place.run_folder("folder"), {})


def _to_s3(place: Place) -> Run:
    """The catalog is the same, so that the store makes the difference."""
    folder = place.run_folder("s3")
    store = ObjectStore(folder / "store", "AKFRAZILBENCHKEY", "not-a-secret")
    store.start()
    try:
        store.make_bucket("lake")
        run = _one_run(place, folder, {"warehouse": "s3://lake/bench", "properties": store.references()}, store)
        records = place.settings.records * (1 + place.settings.running_batches)
        return {**run, "store_cpu_s_per_million": round(Tree(store.pid).cpu_s() / records * 1e6, 3)}
    finally:
        store.kill()


def _one_run(place: Place, folder: Path, catalog: Mapping[str, Any], store: ObjectStore | None = None) -> Run:
    """A process that has had its first batch. catalog: what differs from the pipeline of other benchmarks."""
    settings, load = place.settings, json_load(place, "running")
    pipeline: dict[str, Any] = subjects.frazil_pipeline(
        folder, place.bootstrap, settings.heap, settings.catch_up_interval
    )
    pipeline["catalog"] |= catalog
    command = subjects.frazil_table_command(
        settings.frazil, folder, pipeline, load.topic, load.table, "--until-caught-up", *DEBUG_LOG
    )
    if store is not None:
        table = Table(command.table.catalog, command.table.namespace, command.table.name, store.properties())
        command = replace(command, table=table, environment=store.environment())
    return one_run(place, command, load)


STORES = {"local": _to_folder, "s3": _to_s3}
"""Who measures each, by names in results."""
