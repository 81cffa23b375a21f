"""A page for people: the pictures nearest to some vectors, in one snapshot or in several, one above the other."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
from pyiceberg.table import Table

from frazil.store.file_io import store_of
from frazil_blobs.reading import read_with
from frazil_blobs.signatures import LONGEST, content_type_of
from frazil_blobs.values import is_blob
from frazil_blobs.vectors import search

_NEWEST: Mapping[str, int | None] = MappingProxyType({"the newest snapshot": None})
_STYLE = (
    "body{font:15px/1.4 system-ui,sans-serif;margin:2em auto;max-width:76em;padding:0 1em;color:#222;background:#fafafa}"
    "section{background:#fff;border:1px solid #ddd;border-radius:10px;margin:1.2em 0;padding:.4em 1.2em 1em}"
    "h2{font-size:1.1em;margin:.6em 0}h3{font-size:.85em;font-weight:600;color:#666;margin:1em 0 .3em}"
    "div{display:flex;flex-wrap:wrap;gap:.6em}figure{margin:0;text-align:center}"
    "img{height:96px;min-width:64px;object-fit:contain;background:#eee;border-radius:6px}figcaption{font-size:.8em;color:#777}"
)


def write_gallery(  # noqa: PLR0913  (each is a choice of the caller)
    table: Table,
    vectors: Mapping[str, Sequence[float]],
    file: Path,
    *,
    title: str = "",
    image: str = "image",
    column: str = "embedding",
    k: int = 12,
    snapshots: Mapping[str, int | None] = _NEWEST,
) -> None:
    """Writes a page of HTML, with nothing from elsewhere in it: for each vector, in each snapshot, the k pictures whose
    vectors are nearest. vectors: by their titles. title: of the page. image: the column with pictures, or with
    small ones. column: that with vectors. snapshots: by their titles; None for the newest.

    Raises: as `search` and `read`.
    """
    heading = escape(title or f"{'.'.join(table.name())}: {image} by {column}")
    parts = [f"<!doctype html><meta charset=utf-8><title>{heading}</title><style>{_STYLE}</style><h1>{heading}</h1>"]
    for name, vector in vectors.items():
        parts.append(f"<section><h2>{escape(name)}</h2>")
        for day, snapshot_id in snapshots.items():
            nearest = search(table, vector, k, column=column, as_of=snapshot_id, columns=(image, column))
            distances = nearest.column("_distance").to_pylist()
            figures = map(_figure, _pictures(table, nearest.column(image)), distances)
            parts.append(f"<h3>{escape(day)}</h3><div>{''.join(figures)}</div>")
        parts.append("</section>")
    file.write_text("".join(parts) + "\n", encoding="utf-8")


def _pictures(table: Table, column: pa.ChunkedArray) -> list[bytes | None]:
    if not is_blob(column.type):
        small: list[bytes | None] = column.to_pylist()
        return small
    io = store_of(tuple(sorted((name, str(value)) for name, value in table.io.properties.items())))
    pictures: list[bytes | None] = read_with(io, column).to_pylist()
    return pictures


def _figure(content: bytes | None, distance: float) -> str:
    """Returns a picture with its distance; its bytes are in the page, and only those of pictures."""
    kind = content_type_of((content or b"")[:LONGEST])
    words = f"{round(distance, 3) + 0:.3f}"  # Not -0.000.
    if content is None or not kind.startswith("image/"):
        return f"<figure>no picture<figcaption>{words}</figcaption></figure>"
    address = f"data:{kind};base64,{base64.b64encode(content).decode()}"
    return f'<figure><img src="{address}" alt=""><figcaption>{words}</figcaption></figure>'
