"""The files of a table by their paths: which are its own, and whether the folder contains another table's metadata."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable

_VERSION = re.compile(r"v?(\d+)[^/]*$")


def find_foreign_metadata(paths: Iterable[str], uuid: str, read: Callable[[str], str | None]) -> str | None:
    """Returns the first of these metadata files that belongs to another table than the one with this UUID; None without
    one.

    read: returns the text of a metadata file; None where it is deleted or not metadata. Few files are read of a table
    with hundreds of thousands: a metadata file lists those before it, which belong to the same table.
    """
    own = set[str]()
    for path in sorted(paths, key=_version, reverse=True):
        text = read(path) if normalize_path(path) not in own else None
        if text is None:
            continue
        metadata = json.loads(text)
        if metadata.get("table-uuid") != uuid:
            return path
        own.update(normalize_path(entry["metadata-file"]) for entry in metadata.get("metadata-log", ()))
    return None


def normalize_path(path: str) -> str:
    """Returns the path without the variants of `file:` and its slashes in which listings and locations differ."""
    return re.sub(r"^(file:)?/+", "/", path)


def is_own(path: str, location: str) -> bool:
    """Returns whether a path is in the folders that this table writes to: the folder of `a.b` also contains that of a
    table `a.b.c`.
    """
    own = normalize_path(location).rstrip("/") + "/"
    inside = normalize_path(path).removeprefix(own) if normalize_path(path).startswith(own) else ""
    folder, _, rest = inside.partition("/")
    return (folder == "data" and bool(rest)) or (folder == "metadata" and bool(rest) and "/" not in rest)


def _version(path: str) -> int:
    """Returns the version of a metadata file; the newest one lists most of the others and is read first."""
    found = _VERSION.match(path.rpartition("/")[2])
    return int(found[1]) if found is not None else 0
