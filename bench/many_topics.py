"""Frazil with a crowd of topics in one pipeline file: what the benchmarks of idle and of trickling topics share."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import subjects
from bench.machine import CLOCK
from bench.place import Place, Surroundings
from bench.running import Running
from bench.subjects import NAMESPACE, catalog_file
from bench.table import Table
from bench.topics import Feed, Feeder, delete_topics, make_topics

_FIRST_FEED_PER_S = 2000


def _make_topics(place: Place, kind: str, count: int) -> list[str]:
    """Topics of one partition with one record each, so that each gets its table at once."""
    names = [f"{kind}_{number:04d}" for number in range(count)]
    make_topics(place.bootstrap, names, 1)
    Feeder(Feed(place.bootstrap, names, 1, _FIRST_FEED_PER_S, len(names) / _FIRST_FEED_PER_S, 0.0)).finish()
    return names


def _start_pipeline(place: Place, folder: Path, names: Sequence[str], interval: str) -> Running:
    """Starts Frazil on a file that names the topics and a namespace, and no table."""
    pipeline = subjects.frazil_pipeline(folder, place.bootstrap, place.settings.heap, interval)
    pipeline |= {"namespace": NAMESPACE, "topics": list(names)}
    return Running(subjects.frazil_command(place.settings.frazil, folder, pipeline))


@dataclasses.dataclass(frozen=True)
class ManyTopics:
    """Topics of one record each, and the running pipeline that reads them."""

    folder: Path
    names: Sequence[str]
    running: Running
    around: Surroundings

    @property
    def tables(self) -> list[Table]:
        """The tables of the topics."""
        return [Table(catalog_file(self.folder), NAMESPACE, name) for name in self.names]


@contextlib.contextmanager
def many_topics(place: Place, kind: str, count: int, interval: str) -> Iterator[ManyTopics]:
    """So many topics, read until the block ends; then they are gone, with their tables."""
    folder, names = place.run_folder(kind), _make_topics(place, kind, count)
    around = Surroundings(place)
    running = _start_pipeline(place, folder, names, interval)
    try:
        yield ManyTopics(folder, names, running, around)
        running.stop_well()
    except BaseException:
        running.kill()
        raise
    place.discard(folder)
    delete_topics(place.bootstrap, names)


def wait_for_rows(running: Running, tables: Sequence[Table], rows: Sequence[int], patience_s: float) -> float:
    """Waits until every table holds its rows; how many seconds that took."""
    began, waiting = CLOCK.monotonic_s(), dict(zip(tables, rows, strict=True))
    while waiting:
        running.check()
        waiting = {table: wanted for table, wanted in waiting.items() if table.committed() < wanted}
        if waiting and CLOCK.monotonic_s() - began > patience_s:
            raise RuntimeError(f"{len(waiting)} tables lack rows after {patience_s} s: {running.tail()}")
        CLOCK.sleep(0.5)
    return round(CLOCK.monotonic_s() - began, 1)
