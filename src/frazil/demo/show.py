"""Watches the demo until everything sent has arrived, redrawn in a terminal, a line every few seconds elsewhere; prints
what arrived.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from typing import Any
from xml.etree import ElementTree

from rich.console import Console
from rich.live import Live

from frazil.clock import Clock
from frazil.demo.lake import TOP_PAGES, Arrival, Lake
from frazil.demo.session import Session
from frazil.demo.view import DONE, Frame, Watcher, draw, line
from frazil.errors import UnavailableError
from frazil.ops.reports import count

_REDRAW_S = 0.25
_WRITE_EVERY_S = 5.0
_PATIENCE_S = 180.0
_BODY = """\
DuckDB
  INSTALL iceberg; LOAD iceberg;
  SELECT page, count(*) AS views
  FROM iceberg_scan('{metadata}')
  GROUP BY page ORDER BY views DESC LIMIT 5;

PyIceberg
  from pyiceberg.table import StaticTable
  StaticTable.from_metadata("{metadata}").scan(limit=10).to_pandas()

Spark
  pyspark --packages {package}
  spark.read.format("iceberg").load("{metadata}").groupBy("page").count().show()
"""
_PACKAGE = "iceberg-spark-runtime"
_HEADS = ("table", "sent", "rows", "lost", "doubled", "columns")


class Show:
    """Runs the demo's live view. write_line: writes a line for people."""

    def __init__(self, session: Session, clock: Clock, write_line: Callable[[str], None]) -> None:
        #: The last frame while producers and pipeline both worked.
        self.best: Frame | None = None
        self._session = session
        self._clock = clock
        self._write_line = write_line
        self._console = Console(stderr=True)
        self._live: Live | None = None
        self._written_at_s = float("-inf")
        self._watcher = Watcher(session, clock)
        self._signals = 0

    def listen(self) -> None:
        """Makes Ctrl-C, SIGTERM and a closed terminal end the show and not the process, from now on."""
        for kind in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(kind, self._on_signal)

    def run(self) -> None:
        """Returns when everything sent has arrived: after the producers' last record, or after the first signal, which
        stops them. The next signal ends the waiting too.

        Raises: UnavailableError where a part fails.
        """
        if not self._console.is_terminal:
            self._run()
            return
        with Live(console=self._console, auto_refresh=False, screen=False) as self._live:
            self._run()

    def _run(self) -> None:
        self._until("running", lambda: self._signals > 0 or self._session.producers.is_done)
        self._session.producers.stop()
        asked = self._signals
        self._until("reading the last records", lambda: self._signals > asked or self._session.has_arrived())
        self._show(DONE, is_last=True)

    def _until(self, phase: str, is_over: Callable[[], bool]) -> None:
        moved_at_s, rows = self._clock.monotonic_s(), -1
        while not is_over():
            frame = self._show(phase)
            self._session.check()
            arrived = sum(row.rows for row in frame.rows)
            if arrived != rows:
                moved_at_s, rows = self._clock.monotonic_s(), arrived
            elif self._clock.monotonic_s() - moved_at_s > _PATIENCE_S:
                message = f"no row has arrived for {_PATIENCE_S:.0f} s"
                raise UnavailableError(message, remedy="read the pipeline's log", where=str(self._session.log))
            self._clock.sleep(_REDRAW_S)

    def _show(self, phase: str, is_last: bool = False) -> Frame:
        is_up = bool(self._session.state())
        if is_up and not self._signals:
            self._session.producers.start()
        is_warm = any(size.get("row_count") for size in self._session.sizes().values())
        words = phase if is_warm else "the first batch is on its way" if is_up else "the pipeline is starting"
        frame = self._watcher.frame(words)
        if all(row.rows for row in frame.rows) and phase == "running":
            self._session.producers.let_late_events_go()
            self.best = frame
        now_s = self._clock.monotonic_s()
        if self._live is not None:
            self._live.update(draw(frame), refresh=True)
        elif is_last or now_s - self._written_at_s >= _WRITE_EVERY_S:
            self._written_at_s = now_s
            self._write_line(line(frame))
        return frame

    def _on_signal(self, *_: object) -> None:
        self._signals += 1


def summarise(
    arrivals: Sequence[Arrival], top_pages: Sequence[tuple[str, int]], lake: Lake
) -> tuple[dict[str, Any], str]:
    """Returns the result as a JSON document and as text. The metadata files in it are the current ones."""
    is_equal = all(arrival.is_equal for arrival in arrivals)
    document = {
        "ok": is_equal,
        "tables": {arrival.table: arrival.document() for arrival in arrivals},
        "query": {"sql": TOP_PAGES, "rows": [{"page": page, "views": views} for page, views in top_pages]},
        "catalog": f"jdbc:sqlite:{lake.catalog}",
        "warehouse": str(lake.warehouse),
    }
    figures = [(a.table, a.sent.records, a.rows, a.lost, a.doubled, len(a.columns)) for a in arrivals]
    good, bad = "every record arrived once, with its values", "the tables do not have the records that were sent"
    parts = [
        f"what arrived: {good if is_equal else bad}",
        _aligned(_HEADS, figures),
        TOP_PAGES,
        _aligned(("page", "views"), top_pages),
    ]
    if arrivals[0].metadata:
        # The long part comes first, so that the terminal still shows what arrived.
        parts = ["how to query the tables", how_to_query(arrivals[0].metadata).rstrip(), *parts]
    return document, "\n\n".join(parts)


def how_to_query(metadata: str) -> str:
    """Returns snippets for other engines that read the table from its metadata file."""
    return _BODY.format(metadata=metadata.removeprefix("file:"), package=_coordinate())


def _aligned(head: Sequence[str], rows: Iterable[tuple[str, *tuple[int, ...]]]) -> str:
    """Returns the rows, each a name and its numbers, as lines under their heads."""
    cells = [tuple(head), *((name, *map(count, numbers)) for name, *numbers in rows)]
    first, *others = (max(map(len, column)) for column in zip(*cells, strict=True))
    lines = []
    for name, *numbers in cells:
        right = (number.rjust(width) for number, width in zip(numbers, others, strict=True))
        lines.append("  ".join(("", name.ljust(first), *right)))
    return "\n".join(lines)


def _coordinate() -> str:
    """Returns the package that Spark needs, in the version that Frazil uses."""
    root = ElementTree.fromstring((resources.files("frazil.runtime") / "ivy.xml").read_text())
    found = (dependency.attrib for dependency in root.iter("dependency"))
    return next(f"{d['org']}:{d['name']}:{d['rev']}" for d in found if d["name"].startswith(_PACKAGE))
