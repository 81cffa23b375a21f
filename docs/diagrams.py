"""Draws the diagrams of the pages as SVG: `make docs`. A test fails when one of them is stale.

A diagram is boxes at places of a grid and arrows between them; it takes the colours of a light or a dark page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from docs.scan import ROOT

IMAGES = ROOT / "docs" / "images"
_COLUMN, _ROW, _MARGIN = 196, 118, 12
_BOX_WIDTH, _BOX_HEIGHT, _LINE = 152, 92, 15
_STYLE = """\
text{font:12px system-ui,sans-serif;fill:#1f2933}
.title{font-weight:600;font-size:13px}
.note{fill:#52606d;font-size:11px}
rect{fill:#f5f7fa;stroke:#9aa5b1}
.own{fill:#e3f2fd;stroke:#1976d2}
.kept{fill:#e8f5e9;stroke:#388e3c}
path{stroke:#52606d;fill:none;stroke-width:1.4}
marker path{fill:#52606d;stroke:none}
@media(prefers-color-scheme:dark){
text{fill:#e4e7eb}.note{fill:#9aa5b1}
rect{fill:#1f2933;stroke:#616e7c}.own{fill:#102a43;stroke:#4098d7}.kept{fill:#14301a;stroke:#66bb6a}
path{stroke:#9aa5b1}marker path{fill:#9aa5b1}}"""


@dataclass(frozen=True)
class Box:
    """A thing with a title and lines of text. column, row: of the grid, from 0. kind: `own` is Frazil, `kept` a table."""

    title: str
    lines: tuple[str, ...]
    column: float
    row: float
    kind: str = ""

    @property
    def corner(self) -> tuple[float, float]:
        """The upper left corner, in pixels."""
        return _MARGIN + self.column * _COLUMN, _MARGIN + self.row * _ROW


@dataclass(frozen=True)
class Arrow:
    """What flows from one box to another, by their titles."""

    start: str
    end: str
    label: str = ""


@dataclass(frozen=True)
class Diagram:
    """Boxes and arrows. about: what a reader sees who cannot see it."""

    about: str
    boxes: Sequence[Box]
    arrows: Sequence[Arrow]


OVERVIEW = Diagram(
    "Producers and Debezium write to Kafka topics; one process of Frazil reads them and commits rows together with their"
    " offsets to Iceberg tables, which query engines read.",
    (
        Box("Applications", ("events in JSON, Avro,", "Protobuf, JSON Schema"), 0, 0),
        Box("Databases", ("changes by Debezium,", "Maxwell, Canal, DMS"), 0, 1),
        Box("Kafka", ("topics", "schema registry"), 1, 0.5),
        Box("frazil run", ("one YAML file,", "one process: decode,", "transform, check, commit"), 2, 0.5, "own"),
        Box("Iceberg tables", ("each snapshot: the rows", "and the Kafka offsets"), 3, 0, "kept"),
        Box("Dead-letter tables", ("records that cannot be", "rows, with the reason"), 3, 1, "kept"),
        Box("Query engines", ("DuckDB, Spark, Trino,", "PyIceberg, Polars, …"), 4, 0),
    ),
    (
        Arrow("Applications", "Kafka"),
        Arrow("Databases", "Kafka"),
        Arrow("Kafka", "frazil run"),
        Arrow("frazil run", "Iceberg tables"),
        Arrow("frazil run", "Dead-letter tables"),
        Arrow("Iceberg tables", "Query engines"),
    ),
)
COMMIT = Diagram(
    "The driver plans exact offset ranges, Spark tasks read them and write Parquet files, and one Iceberg commit adds the"
    " files and the next offsets. A commit that another process has overtaken is refused and planned again.",
    (
        Box("Plan", ("the next offsets, from the", "newest snapshot, to the", "ends of the topics"), 0, 0, "own"),
        Box("Read and decode", ("tasks read exactly", "these offsets"), 1, 0, "own"),
        Box("Write Parquet", ("files that no reader", "sees yet"), 2, 0, "own"),
        Box("Commit", ("files and next offsets", "in one snapshot"), 3, 0, "own"),
        Box("Table", ("rows and progress are", "always in step"), 4, 0, "kept"),
        Box("Overtaken", ("somebody else has", "committed first"), 3, 1),
    ),
    (
        Arrow("Plan", "Read and decode"),
        Arrow("Read and decode", "Write Parquet"),
        Arrow("Write Parquet", "Commit"),
        Arrow("Commit", "Table"),
        Arrow("Commit", "Overtaken", "refused"),
        Arrow("Overtaken", "Plan", "discard the files, plan again"),
    ),
)
RECORD = Diagram(
    "A record's bytes are decoded to columns, shaped by the settings of its table, judged by its expectations, and are then"
    " a row of a data file. A record for which one of these fails is a dead letter, which can be replayed.",
    (
        Box("Record", ("bytes of key and value,", "headers, offset"), 0, 0),
        Box("Decode", ("by format and schema,", "open the envelope"), 1, 0, "own"),
        Box("Shape", ("where, look-ups, steps", "or a query; protect"), 2, 0, "own"),
        Box("Judge", ("types, expectations,", "limits"), 3, 0, "own"),
        Box("Row", ("in a Parquet file of", "the next snapshot"), 4, 0, "kept"),
        Box("Dead letter", ("the bytes, the place", "and the reason"), 3, 1, "kept"),
    ),
    (
        Arrow("Record", "Decode"),
        Arrow("Decode", "Shape"),
        Arrow("Shape", "Judge"),
        Arrow("Judge", "Row"),
        Arrow("Judge", "Dead letter", "any step fails"),
        Arrow("Dead letter", "Decode", "replayed, exactly once"),
    ),
)
UPSERT = Diagram(
    "Tasks keep the last change of each key and look up which rows of the table it replaces. One commit adds the new rows"
    " and marks the old ones as deleted by deletion vectors; maintenance later removes them from the files.",
    (
        Box("Changes", ("inserts, updates and", "deletes of a batch"), 0, 0),
        Box("Last per key", ("by order_by, or by", "partition and offset"), 1, 0, "own"),
        Box("Look up", ("which file and position", "has the key today"), 2, 0, "own"),
        Box("One commit", ("new rows, and deletion", "vectors for old ones"), 3, 0, "own"),
        Box("Table", ("readers leave out what", "the vectors mark"), 4, 0, "kept"),
        Box("Compaction", ("files without", "deleted rows"), 3, 1, "own"),
    ),
    (
        Arrow("Changes", "Last per key"),
        Arrow("Last per key", "Look up"),
        Arrow("Look up", "One commit"),
        Arrow("One commit", "Table"),
        Arrow("Compaction", "Table"),
    ),
)
STANDBY = Diagram(
    "An election in Kafka, Kubernetes or PostgreSQL says which process leads. The leader reads and commits; the standby is"
    " warm and follows the tables. When the leader is gone, the standby commits from the tables' own offsets; a leader that"
    " returns is refused by the table.",
    (
        Box("Election", ("Kafka, Kubernetes", "or PostgreSQL"), 0, 0.5),
        Box("Leader", ("reads and commits",), 1, 0, "own"),
        Box("Standby", ("warm, follows the", "tables' metadata"), 1, 1, "own"),
        Box("Tables", ("take only commits that", "begin at their offsets"), 2, 0.5, "kept"),
    ),
    (
        Arrow("Election", "Leader"),
        Arrow("Election", "Standby"),
        Arrow("Leader", "Tables"),
        Arrow("Standby", "Tables"),
    ),
)
DIAGRAMS: Mapping[str, Diagram] = {
    "overview.svg": OVERVIEW,
    "commit.svg": COMMIT,
    "record.svg": RECORD,
    "upsert.svg": UPSERT,
    "standby.svg": STANDBY,
}
"""The diagrams by their files in docs/images."""


def draw(diagram: Diagram) -> str:
    """Returns the SVG of a diagram."""
    boxes = {box.title: box for box in diagram.boxes}
    width = max(box.corner[0] for box in diagram.boxes) + _BOX_WIDTH + _MARGIN
    height = max(box.corner[1] for box in diagram.boxes) + _BOX_HEIGHT + _MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">',
        f"<title>{escape(diagram.about)}</title>",
        f"<style>{_STYLE}</style>",
        '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0L8 4L0 8z"/></marker></defs>',
        *(line for arrow in diagram.arrows for line in _arrow(boxes[arrow.start], boxes[arrow.end], arrow.label)),
        *(line for box in diagram.boxes for line in _box(box)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _box(box: Box) -> list[str]:
    left, top = box.corner
    middle = left + _BOX_WIDTH / 2
    kind = f' class="{box.kind}"' if box.kind else ""
    texts = [("title", box.title), *(("note", line) for line in box.lines)]
    first = top + (_BOX_HEIGHT - _LINE * len(texts)) / 2 + 11
    return [
        f'<rect{kind} x="{left:g}" y="{top:g}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="8"/>',
        *(
            f'<text class="{name}" x="{middle:g}" y="{first + _LINE * number:g}" text-anchor="middle">{escape(text)}</text>'
            for number, (name, text) in enumerate(texts)
        ),
    ]


def _arrow(start: Box, end: Box, label: str) -> list[str]:
    """A line from side to side: rightwards, downwards, or back to the left below all others."""
    (left, top), (end_left, end_top) = start.corner, end.corner
    half = _BOX_HEIGHT / 2
    if end_left > left:
        begin, stop = (left + _BOX_WIDTH, top + half), (end_left, end_top + half)
        bend = (begin[0] + stop[0]) / 2
        path, at = (
            f"M{begin[0]:g} {begin[1]:g}C{bend:g} {begin[1]:g} {bend:g} {stop[1]:g} {stop[0]:g} {stop[1]:g}",
            begin,
        )
    elif end_left == left:
        begin, stop = (left + _BOX_WIDTH / 2, top + _BOX_HEIGHT), (left + _BOX_WIDTH / 2, end_top)
        path, at = f"M{begin[0]:g} {begin[1]:g}L{stop[0]:g} {stop[1]:g}", (begin[0] + 6, (begin[1] + stop[1]) / 2 + 4)
    else:
        begin, stop = (left, top + half), (end_left + _BOX_WIDTH / 2, end_top + _BOX_HEIGHT)
        path, at = f"M{begin[0]:g} {begin[1]:g}H{stop[0]:g}V{stop[1]:g}", (stop[0] + 10, begin[1] - 6)
    text = [f'<text class="note" x="{at[0]:g}" y="{at[1]:g}">{escape(label)}</text>'] if label else []
    return [f'<path marker-end="url(#a)" d="{path}"/>', *text]


def write() -> None:
    """Writes each diagram into its file."""
    for name, diagram in DIAGRAMS.items():
        (IMAGES / name).write_text(draw(diagram), encoding="utf-8")
