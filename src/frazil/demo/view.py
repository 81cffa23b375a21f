"""Draws a frame of the demo for a terminal of 80 columns or more. Pure: from a frame to a rich renderable."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from frazil.demo.frames import Frame, Row
from frazil.ops.units import NOTHING, ago, count, duration, size

DONE = "done"
PICTURE_WIDTH = 88
_FONT_FACES = re.compile(r"@font-face\s*{.*?}\s*", re.DOTALL)


def draw(frame: Frame) -> RenderableType:
    """Returns the live view."""
    happened = [Text(), *_happened(frame)] if frame.happened else []
    foot = [Text(), *_foot(frame)] if frame.phase != DONE else []
    return Group(_head(frame), Text(), _tables(frame), *happened, *foot)


def line(frame: Frame) -> str:
    """Returns the frame in one line, for output that cannot be redrawn."""
    tables = ", ".join(f"{row.table} {row.rows:,} of {row.sent:,}" for row in frame.rows)
    return f"{_clock(frame.elapsed_s)}  {frame.phase}: {tables}"


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
    return [Text(one, style="dim", no_wrap=True, overflow="ellipsis") for one in words]


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}"
