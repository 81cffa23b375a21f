"""What a comparison has done so far, kept in a folder for temporary files, so that the same command continues after a kill.

Each part is a file that is renamed when it is complete. Nothing is kept of a comparison that has ended.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Set
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import BaseModel

from frazil.clock import SystemClock
from frazil.failpoints import hit

_PREFIX = "frazil-kept-"
_OLDEST_S = 7 * 24 * 3600.0
"""The age at which a comparison that nobody continued is removed."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_DOCUMENT, _LOCK = "comparison.json", "lock"
_FACTS = b"facts"


class Kept:
    """The folder of one comparison, which no other process uses."""

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder = folder
        self._lock = lock

    @property
    def document(self) -> dict[str, Any] | None:
        """What is compared; None where nothing was kept."""
        try:
            document: dict[str, Any] = json.loads((self.folder / _DOCUMENT).read_text())
        except (OSError, ValueError):
            return None
        return document

    def begin(self, document: Mapping[str, Any]) -> None:
        """Removes what was kept, and keeps what is compared."""
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != _LOCK:
                path.unlink()
        place = self.folder / f"{_DOCUMENT}.new"
        place.write_bytes(json.dumps(document).encode())
        place.replace(self.folder / _DOCUMENT)

    def part(self, name: str) -> tuple[pa.Table, dict[str, Any]] | None:
        """Returns a part and the facts on it; None where it was not kept."""
        try:
            with pa.OSFile(str(self._path_of(name))) as source, pa.ipc.open_file(source) as reader:
                table = reader.read_all()
                return table, json.loads(table.schema.metadata[_FACTS])
        except (OSError, ValueError, pa.ArrowException):
            return None

    def keep(self, name: str, table: pa.Table, facts: Mapping[str, Any]) -> None:
        """Keeps a part."""
        table = table.replace_schema_metadata({_FACTS: json.dumps(facts)})
        path = self._path_of(name)
        with pa.OSFile(f"{path}.new", "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        Path(f"{path}.new").replace(path)
        hit("verify.kept")

    def discard(self) -> None:
        """Removes everything."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.close()

    def close(self) -> None:
        """Leaves the folder to another call."""
        with suppress(OSError):
            os.close(self._lock)

    def _path_of(self, name: str) -> Path:
        return self.folder / f"{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.arrow"


def open_kept(what: Mapping[str, Any]) -> Kept | None:
    """Returns the folder of a comparison; None where none can be had, or another process uses it. what: decides whether two
    comparisons are the same.
    """
    oldest_s = SystemClock().now_ms() / 1000 - _OLDEST_S
    for old in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if old.stat().st_mtime < oldest_s and old.stat().st_uid == os.getuid():
                shutil.rmtree(old, ignore_errors=True)
    text = _ADDRESS.sub("", json.dumps(_ordered(what), sort_keys=True, default=repr))
    folder = Path(tempfile.gettempdir(), f"{_PREFIX}{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:24]}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return None
        lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    os.utime(folder)
    return Kept(folder, lock)


def _ordered(value: Any) -> Any:
    """Returns a value as JSON has it, sets in an order that does not change."""
    if isinstance(value, BaseModel):
        return {name: _ordered(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        return {str(name): _ordered(part) for name, part in value.items()}
    if isinstance(value, Set):
        return sorted((_ordered(part) for part in value), key=repr)
    return [_ordered(part) for part in value] if isinstance(value, list | tuple) else value
