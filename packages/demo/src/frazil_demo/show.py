"""The live view: watches the demo until everything sent has arrived, and prints what arrived.

It is redrawn in a terminal, and is a line every few seconds elsewhere. Its content is from the state file, the tables
and the producers.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from frazil.catalog.port import TableSize
from frazil.clock import Clock
from frazil.errors import UnavailableError
from frazil.ops.pipeline_status import ProcessState, TableStatus
from frazil.ops.reports import NOTHING, ago, count, duration, size
from frazil_demo.lake import TOP_PAGES, VIEWS_PER_MINUTE, Arrival, Lake
from frazil_demo.producers import KINDS, Kind
from frazil_demo.session import Session

DONE = "done"
PICTURE_WIDTH = 88
_FONT_FACES = re.compile(r"@font-face\s*{.*?}\s*", re.DOTALL)
_RATE_OVER_S = 6.0
_KEPT_EVENTS = 8
_REDRAW_S = 0.25
_READ_MINUTE_S = 1.0
_WRITE_EVERY_S = 5.0
PATIENCE_S = 180.0
NO_ERROR_REMEDY = "read the pipeline's log; if it shows no error, the machine is busy: start the demo again"
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


@dataclass(frozen=True)
class Row:
    """One table; None for what is not known yet."""

    table: str
    state: str
    sent: int
    rows: int
    rows_per_s: float
    lag_records: int
    freshness_ms: int | None
    files: int
    size_bytes: int
    last_commit_ms: int | None


@dataclass(frozen=True)
class Frame:
    """The whole view."""

    #: What the demo is doing.
    phase: str
    elapsed_s: float
    now_ms: int
    servers: str
    directory: str
    #: How Frazil is called from that folder.
    command: str
    rows: tuple[Row, ...]
    #: Events of the demo, with the seconds since its start.
    happened: tuple[tuple[float, str], ...]
    #: The newest minute of the table of minutes, and its page views; None before there is one.
    minute: tuple[datetime, int] | None = None
    #: The first table that has a reason for making no progress, such as an outage, with it; empty without such a table.
    problem: str = ""


class Watcher:
    """Makes frames of a session; remembers what rates and news need."""

    def __init__(self, session: Session, clock: Clock) -> None:
        self._session = session
        self._clock = clock
        self._began_s = clock.monotonic_s()
        self._history: deque[tuple[float, dict[str, int]]] = deque()
        self._happened: deque[tuple[float, str]] = deque(maxlen=_KEPT_EVENTS)
        self._columns: dict[str, tuple[str, ...]] = {}
        self._metadata: dict[str, str] = {}
        self._is_late = False
        self._minute: tuple[datetime, int] | None = None
        self._minute_read_s = float("-inf")

    def happen(self, words: str) -> None:
        """Adds an event of the demo."""
        self._happened.append((self._clock.monotonic_s() - self._began_s, words))

    def frame(self, phase: str) -> Frame:
        """Returns the current view."""
        now_s = self._clock.monotonic_s()
        state = self._session.state()
        self._history.append((now_s, {name: _size(table).row_count for name, table in state.tables.items()}))
        while len(self._history) > 2 and now_s - self._history[0][0] > _RATE_OVER_S:
            self._history.popleft()
        self._notice()
        return Frame(
            phase=phase,
            elapsed_s=now_s - self._began_s,
            now_ms=self._clock.now_ms(),
            servers=self._session.broker.bootstrap_servers,
            directory=str(self._session.directory),
            command=command_from(self._session.directory),
            rows=tuple(self._row(kind, state.tables.get(kind.table)) for kind in sorted(KINDS, key=lambda k: k.table)),
            happened=tuple(self._happened),
            minute=self._newest_minute(now_s),
            problem=next(iter(problems(state)), ("", ""))[0],
        )

    def _newest_minute(self, now_s: float) -> tuple[datetime, int] | None:
        metadata = self._metadata.get(VIEWS_PER_MINUTE)
        if metadata is not None and now_s >= self._minute_read_s + _READ_MINUTE_S:
            self._minute_read_s = now_s
            with suppress(OSError):  # The pipeline has replaced the files meanwhile.
                self._minute = self._session.lake.newest_minute(metadata) or self._minute
        return self._minute

    def _row(self, kind: Kind, table: TableStatus | None) -> Row:
        sent, size = self._session.producers.ledger[kind.topic].records, _size(table)
        return Row(
            table=kind.table,
            state=table.condition.state if table else "starting",
            sent=sent,
            rows=size.row_count,
            rows_per_s=self._rate(kind.table),
            lag_records=max(0, sent - size.row_count),
            freshness_ms=table.recorded.freshness_ms if table else None,
            files=size.file_count,
            size_bytes=size.size_bytes,
            last_commit_ms=table.progress.last_commit_ms if table else None,
        )

    def _rate(self, table: str) -> float:
        (began_s, before), (ended_s, after) = self._history[0], self._history[-1]
        return (after.get(table, 0) - before.get(table, 0)) / (ended_s - began_s) if ended_s > began_s else 0.0

    def _notice(self) -> None:
        if self._session.producers.is_late and not self._is_late:
            self._is_late = True
            self.happen("the events get new fields: " + ", ".join(kind.late_field for kind in KINDS))
        for table, metadata in self._session.lake.metadata_files().items():
            if self._metadata.get(table) != metadata:
                self._metadata[table] = metadata
                self._notice_columns(table, metadata)

    def _notice_columns(self, table: str, metadata: str) -> None:
        try:
            now = self._session.lake.columns(metadata)
        except OSError:
            return  # The pipeline has replaced it meanwhile; the next frame finds its successor.
        before = self._columns.get(table)
        self._columns[table] = now
        added = [name for name in now if name not in (before or ())]
        if before is None:
            self.happen(f"{table}: made with {', '.join(now)}")
        elif added:
            self.happen(f"{table}: new {'column' if len(added) == 1 else 'columns'} {', '.join(added)}")


def command_from(directory: Path) -> str:
    """Returns how a shell in the directory calls this program: `frazil` may not be on the path."""
    program = Path(sys.argv[0]).absolute()
    if program.name != "frazil" or shutil.which("frazil"):
        return "frazil"
    return min(str(program), os.path.relpath(program, directory), key=len)


def problems(state: ProcessState) -> Iterator[tuple[str, str]]:
    """Yields each table that has a reason for making no progress, with it, and the remedy."""
    for name, table in sorted(state.tables.items()):
        condition = table.condition
        if condition.reason:
            place = f" ({condition.where})" if condition.where else ""
            yield f"{name} is {condition.state}: {condition.reason}{place}", condition.remedy


def _size(table: TableStatus | None) -> TableSize:
    return (table and table.recorded.size) or TableSize(0, 0, 0, 0)


def draw(frame: Frame) -> RenderableType:
    """Returns the live view."""
    happened = [Text(), *_happened(frame)] if frame.happened else []
    foot = [Text(), *_foot(frame)] if frame.phase != DONE else []
    problem = [Text(), Text(frame.problem, style="yellow")] if frame.problem else []
    return Group(_head(frame), Text(), _tables(frame), *_minute(frame), *problem, *happened, *foot)


def line(frame: Frame) -> str:
    """Returns the frame in one line, for output that cannot be redrawn."""
    return f"{_clock(frame.elapsed_s)}  {_progress(frame)}"


def _progress(frame: Frame) -> str:
    tables = ", ".join(f"{row.table} {row.rows:,} of {row.sent:,}" for row in frame.rows)
    return f"{frame.phase}: {tables}" + (f"; {frame.problem}" if frame.problem else "")


def save_picture(frame: Frame, path: Path) -> None:
    """Writes the view as an SVG that loads no fonts from the network."""
    console = Console(record=True, width=PICTURE_WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(draw(frame))
    svg = console.export_svg(title="frazil demo", unique_id="demo")
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not every renderer keeps the spaces that a line begins with.
    path.write_text(_FONT_FACES.sub("", svg).replace("<text ", '<text xml:space="preserve" '))


def _head(frame: Frame) -> Text:
    parts: list[tuple[str, str] | str] = [
        ("frazil demo", "bold"),
        ("  ", ""),
        (_clock(frame.elapsed_s), "cyan"),
        ("  ", ""),
        frame.phase,
    ]
    if not frame.servers.endswith(":0"):
        parts += [("   Kafka on ", "dim"), frame.servers]
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _tables(frame: Frame) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("table", no_wrap=True)
    for name in ("rows", "rows/s", "lag", "freshness", "files", "size"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("commit", justify="right", no_wrap=True, min_width=8)
    for row in frame.rows:
        table.add_row(*_cells(row, frame.now_ms))
    return table


def _minute(frame: Frame) -> list[Text]:
    """Returns the line of the newest minute; none before there is one."""
    if frame.minute is None:
        return []
    begin, views = frame.minute
    parts: list[tuple[str, str] | str] = [
        (VIEWS_PER_MINUTE, "bold"),
        f"  {begin:%H:%M} UTC  ",
        (count(views), "green"),
        " page views so far",
    ]
    return [Text(), Text.assemble(*parts, no_wrap=True, overflow="ellipsis")]


def _cells(row: Row, now_ms: int) -> tuple[Text | str, ...]:
    is_new = row.last_commit_ms is not None and now_ms - row.last_commit_ms < 1000
    return (
        Text(row.table, style="red" if row.state == "stopped" else "bold" if row.state == "running" else ""),
        Text(count(row.rows), style="green"),
        count(row.rows_per_s),
        Text(count(row.lag_records), style="yellow" if row.lag_records > max(1000.0, 3 * row.rows_per_s) else ""),
        NOTHING if row.freshness_ms is None else duration(row.freshness_ms / 1000),
        count(row.files),
        size(row.size_bytes),
        Text(ago(row.last_commit_ms, now_ms), style="green" if is_new else ""),
    )


def _happened(frame: Frame) -> list[Text]:
    return [
        Text.assemble((f"{_clock(at_s)}  ", "dim"), words, no_wrap=True, overflow="ellipsis")
        for at_s, words in frame.happened
    ]


def _foot(frame: Frame) -> list[Text]:
    folder = os.path.relpath(frame.directory)
    shown = folder if not folder.startswith("..") else frame.directory
    words = ("Ctrl-C ends it.", f"In another terminal: cd {shown} && {frame.command} status")
    return [Text(words_line, style="dim", no_wrap=True, overflow="ellipsis") for words_line in words]


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}"


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
        moved_at_s, last = self._clock.monotonic_s(), ("", -1)
        while not is_over():
            frame = self._show(phase)
            self._session.check()
            progress = frame.phase, sum(row.rows for row in frame.rows)
            if progress != last:
                moved_at_s, last = self._clock.monotonic_s(), progress
            elif self._clock.monotonic_s() - moved_at_s > PATIENCE_S:
                message = f"no row has arrived for {PATIENCE_S:.0f} s, {_progress(frame)}"
                remedies = (remedy for _, remedy in problems(self._session.state()) if remedy)
                remedy = next(remedies, "") or NO_ERROR_REMEDY
                raise UnavailableError(message, remedy=remedy, where=str(self._session.log))
            self._clock.sleep(_REDRAW_S)

    def _show(self, phase: str, is_last: bool = False) -> Frame:
        is_up = self._session.state().pid is not None
        if is_up and not self._signals:
            self._session.producers.start()
        is_warm = any(self._session.rows().values())
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
    # The package that Spark needs, in the version that Frazil uses.
    root = ElementTree.fromstring((resources.files("frazil.runtime") / "ivy.xml").read_text())
    dependencies = (dependency.attrib for dependency in root.iter("dependency"))
    return _BODY.format(
        metadata=metadata.removeprefix("file:"),
        package=next(f"{d['org']}:{d['name']}:{d['rev']}" for d in dependencies if d["name"].startswith(_PACKAGE)),
    )


def _aligned(head: Sequence[str], rows: Iterable[tuple[str, *tuple[int, ...]]]) -> str:
    """Returns the rows, each a name and its numbers, as lines under their heads."""
    cells = [tuple(head), *((name, *map(count, numbers)) for name, *numbers in rows)]
    first, *others = (max(map(len, column)) for column in zip(*cells, strict=True))
    lines = []
    for name, *numbers in cells:
        right = (number.rjust(width) for number, width in zip(numbers, others, strict=True))
        lines.append("  ".join(("", name.ljust(first), *right)))
    return "\n".join(lines)
