"""The command line: `python -m bench all`, or some benchmarks by name, then `python -m bench report`."""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import (
    connect,
    console,
    figures,
    freshness,
    idle,
    lakes,
    maintenance,
    many,
    metadata,
    metrics,
    new_schema,
    new_topics,
    process,
    publish,
    replay,
    report,
    spread,
    standby,
    start,
    throughput,
    upsert,
)
from bench.place import Place, open_place
from bench.settings import Settings

_BENCHMARKS: dict[str, Callable[[Place], None]] = {
    "throughput": throughput.measure,
    "connect": connect.measure,
    "freshness": freshness.measure,
    "new_schema": new_schema.measure,
    "idle": idle.measure,
    "many": many.measure,
    "new_topics": new_topics.measure,
    "start": start.measure,
    "standby": standby.measure,
    "spread": spread.measure,
    "upsert": upsert.measure,
    "scattered": upsert.measure_scattered,
    "metadata": metadata.measure,
    "lakes": lakes.measure,
    "process": process.measure,
    "replay": replay.measure,
    "metrics": metrics.measure,
    "console": console.measure,
    "maintenance": maintenance.measure,
    "publish": publish.measure,
    "copies": upsert.measure_copies,
    "figures": figures.measure,
    "connect_kill": figures.measure_recovery_of_connect,
}

_LONG = ("maintenance", "standby", "spread", "publish", "copies", "figures", "connect_kill")
"""Take so long that they are asked for by name alone."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("benchmarks", nargs="*", default="all", choices=["all", "report", *_BENCHMARKS])
    for field in dataclasses.fields(Settings):
        option = f"--{field.name.replace('_', '-')}"
        default = getattr(Settings(), field.name)
        if isinstance(default, bool):
            parser.add_argument(option, action="store_true")
        elif isinstance(default, tuple):
            parser.add_argument(option, nargs="+", default=default, choices=default)
        else:
            parser.add_argument(option, type=type(default) if not isinstance(default, Path) else Path, default=default)
    return parser


def main() -> None:
    # What was started is ended on the way out, also when this is stopped from outside.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    arguments: dict[str, Any] = vars(_parser().parse_args())
    chosen = arguments.pop("benchmarks")
    for name in ("subjects", "variants"):
        arguments[name] = tuple(arguments[name])
    settings = Settings(**arguments)
    if "report" in chosen:
        report.write(settings)
        return
    with open_place(settings) as place:
        for name, measure in _BENCHMARKS.items():
            if name in chosen or ("all" in chosen and name not in _LONG):
                measure(place)
    if "all" in chosen:
        report.write(settings)
    if place.failures:
        sys.exit("failed: " + ", ".join(place.failures))


if __name__ == "__main__":
    main()
