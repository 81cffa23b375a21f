"""A page for people: the pictures nearest to a vector, of one snapshot or of several side by side."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path

from pyiceberg.table import Table

from frazil.store.file_io import store_of
from frazil_blobs.reading import read_with
from frazil_blobs.signatures import LONGEST, content_type_of
from frazil_blobs.vectors import search

_STYLE = (
    "body{font:14px system-ui;margin:2em}section{margin-bottom:2em}"
    "figure{display:inline-block;margin:.4em;text-align:center}"
    "img{height:128px;min-width:64px;object-fit:contain;image-rendering:pixelated;background:#eee}figcaption{color:#555}"
)


def write_gallery(
    table: Table,
    vector: Sequence[float],
    file: Path,
    *,
    image: str = "image",
    column: str = "embedding",
    k: int = 12,
    snapshots: Sequence[int | None] = (None,),
) -> None:
    """Writes a page of HTML, with nothing from elsewhere in it: for each snapshot the k pictures whose vectors are nearest.
    image: the column with pictures. column: the one with vectors. snapshots: None for the newest.

    Raises: as `search` and `read`.
    """
    io = store_of(tuple(sorted((name, str(value)) for name, value in table.io.properties.items())))
    sections = []
    for snapshot_id in snapshots:
        nearest = search(table, vector, k, column=column, as_of=snapshot_id, columns=(image, column))
        pictures = read_with(io, nearest.column(image)).to_pylist()
        figures = map(_figure, pictures, nearest.column("_distance").to_pylist())
        title = "the newest snapshot" if snapshot_id is None else f"snapshot {snapshot_id}"
        sections.append(f"<section><h2>{title}</h2>{''.join(figures)}</section>")
    heading = f"{escape('.'.join(table.name()))}: {escape(image)} by {escape(column)}"
    head = f"<!doctype html><meta charset=utf-8><title>{heading}</title><style>{_STYLE}</style>"
    file.write_text(f"{head}<h1>{heading}</h1>{''.join(sections)}\n", encoding="utf-8")


def _figure(content: bytes | None, distance: float) -> str:
    """Returns a picture with its distance; its bytes are in the page, and only those of pictures."""
    kind = content_type_of((content or b"")[:LONGEST])
    if content is None or not kind.startswith("image/"):
        return f"<figure>no picture<figcaption>{distance:.3f}</figcaption></figure>"
    address = f"data:{kind};base64,{base64.b64encode(content).decode()}"
    return f'<figure><img src="{address}" alt=""><figcaption>{distance:.3f}</figcaption></figure>'
