"""Full reads of a table's snapshot, deletes taken off, by readers that share no code with the product."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from statistics import median

import duckdb
import polars
from pyiceberg.table import StaticTable

from bench.machine import CLOCK
from bench.table import local_path

_READS = 11


def _by_pyiceberg(location: str) -> None:
    StaticTable.from_metadata(location).scan().to_arrow()


def _by_polars(location: str) -> None:
    polars.scan_iceberg(f"file://{local_path(location)}", reader_override="native").collect()


def _by_duckdb() -> Callable[[str], None]:
    connection = duckdb.connect(config={"threads": 2})
    for name in ("avro", "iceberg"):
        found = importlib.util.find_spec(f"duckdb_extension_{name}")
        if found is None or found.origin is None:
            raise RuntimeError(f"no package duckdb-extension-{name}: run `make setup`")
        (extension,) = Path(found.origin).parent.glob(f"extensions/*/{name}.duckdb_extension")
        connection.execute(f"load '{extension}'")

    def read(location: str) -> None:
        connection.sql(f"from iceberg_scan('{local_path(location)}')").to_arrow_table()

    return read


def seconds(locations: dict[str, str]) -> dict[str, dict[str, float]]:
    """By reader and by name of the location, the median of some reads of the table with this metadata file, in turn."""
    readers = {"pyiceberg": _by_pyiceberg, "duckdb": _by_duckdb(), "polars": _by_polars}
    return {reader: medians(read, locations) for reader, read in readers.items()}


def medians(read: Callable[[str], None], locations: dict[str, str]) -> dict[str, float]:
    """By name of the location, the median seconds of some reads, in turn, after one of each that is not counted."""
    for location in locations.values():
        read(location)
    took: dict[str, list[float]] = {name: [] for name in locations}
    for _ in range(_READS):
        for name, location in locations.items():
            began_s = CLOCK.monotonic_s()
            read(location)
            took[name].append(CLOCK.monotonic_s() - began_s)
    return {name: median(times) for name, times in took.items()}
