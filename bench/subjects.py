"""How Frazil and stock Spark Structured Streaming are started for the same job: topics, a table, a local catalog."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

from bench.running import Command
from bench.settings import CHECKOUT
from bench.table import Table

NAMESPACE, TABLE = "bench", "t"


def catalog_file(folder: Path) -> Path:
    """The SQLite file of a run's catalog."""
    return folder / "catalog.db"


def frazil_pipeline(folder: Path, bootstrap: str, heap: str, interval: str) -> dict[str, object]:
    """What every pipeline file of the benchmarks says; the tables are added by the caller."""
    return {
        "pipeline": folder.name,
        "kafka": {"bootstrap.servers": bootstrap},
        "catalog": {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{catalog_file(folder)}",
            "warehouse": str(folder / "warehouse"),
        },
        "spark": {"master": "local[*]", "conf": {"spark.driver.memory": heap}},
        "commit": {"interval": interval},
    }


def frazil_command(frazil: Path, folder: Path, pipeline: Mapping[str, object], *options: str) -> Command:
    """Writes the pipeline file and says how it is run."""
    file = folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump(dict(pipeline), sort_keys=False))
    arguments = [str(frazil), "run", "-f", str(file), *options]
    return Command("frazil", arguments, folder, Table(catalog_file(folder), NAMESPACE, TABLE))


def frazil_table_command(
    frazil: Path,
    folder: Path,
    pipeline: Mapping[str, object],
    topic: str,
    settings: Mapping[str, object],
    *options: str,
) -> Command:
    """Frazil with one topic and one table, which has these settings."""
    table = {"topic": topic, **settings}
    return frazil_command(frazil, folder, {**pipeline, "tables": {f"{NAMESPACE}.{TABLE}": table}}, *options)


def stock_command(folder: Path, job: Mapping[str, object], module: str = "bench.stock") -> Command:
    """Stock Spark with one topic and one table, as `module` does it; `job` says which trigger and which settings."""
    file = folder / "job.json"
    file.write_text(json.dumps({"folder": str(folder), "catalog": str(catalog_file(folder)), **job}, indent=1))
    arguments = [sys.executable, "-m", module, str(file)]
    path = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
    return Command("stock", arguments, folder, Table(catalog_file(folder), NAMESPACE, TABLE), {"PYTHONPATH": path})
