"""Whether another table's metadata lies among files that a table does not name: what is whose cannot be told then."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable

_VERSION = re.compile(r"v?(\d+)[^/]*$")


def find_stranger(paths: Iterable[str], uuid: str, read: Callable[[str], str | None]) -> str | None:
    """The first of these metadata files that is of another table than the one with this uuid; None where none is.

    read: the text of a metadata file; None where it is gone, or no metadata. Few are read of a table that keeps all it ever
    had, hundreds of thousands of them: metadata lists those that came before it, which are of the same table.
    """
    own = set[str]()
    for path in sorted(paths, key=_version, reverse=True):
        text = read(path) if plain(path) not in own else None
        if text is None:
            continue
        metadata = json.loads(text)
        if metadata.get("table-uuid") != uuid:
            return path
        own.update(plain(entry["metadata-file"]) for entry in metadata.get("metadata-log", ()))
    return None


def plain(path: str) -> str:
    """A path without the ways of writing `file:` and its slashes that listings and locations differ in."""
    return re.sub(r"^(file:)?/+", "/", path)


def is_own(path: str, location: str) -> bool:
    """Whether a path is where this table's files lie: the folder of `a.b` also holds that of a table `a.b.c`."""
    own = plain(location).rstrip("/") + "/"
    inside = plain(path).removeprefix(own) if plain(path).startswith(own) else ""
    folder, _, rest = inside.partition("/")
    return (folder == "data" and bool(rest)) or (folder == "metadata" and bool(rest) and "/" not in rest)


def _version(path: str) -> int:
    """The newest lists most of the others, and is to be read first."""
    found = _VERSION.match(path.rpartition("/")[2])
    return int(found[1]) if found is not None else 0
