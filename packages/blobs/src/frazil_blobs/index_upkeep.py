"""Indexes of vectors that maintenance makes once a day, in the folder of the packs, and how readers come to them.

The table's property has the address of the newest one. A reader of an object store copies it into a folder of its machine,
where other processes find it; the next copy removes those that were not used for a day.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pyiceberg.table import Table

from frazil.catalog.maintenance_port import Rewritten
from frazil.clock import SystemClock, new_id
from frazil.maintenance.plan import DAILY_MS, Action, Planning
from frazil.maintenance.run import Round
from frazil.store.addresses import address_of
from frazil.store.file_io import StoreIO, store_of
from frazil_blobs.packs import folder_of
from frazil_blobs.references import opened
from frazil_blobs.settings import MiB
from frazil_blobs.upkeep import settings_in

INDEXED_NOTE, SNAPSHOT_NOTE = "blobs-indexed-at", "blobs-indexed-snapshot"
"""Table properties, behind `frazil.<pipeline>.`: when the indexes were last made, in milliseconds, and of which snapshot."""
INDEX_NOTE = "blobs-index."
"""The table property with the address of the newest index, before the column's name."""
_PART_BYTES = 8 * MiB
_COPIES = "frazil-indexes-"
_UNUSED_S = 24 * 3600.0


def plan_index(planning: Planning) -> Iterator[Action]:
    """Yields the making of indexes, once a day, when the table has another snapshot than they are of."""
    settings = settings_in(planning.maintenance.stages)
    is_wanted = settings is not None and any(embedding.index for embedding in settings.embeddings.values())
    is_old = planning.metadata.head is not None and planning.metadata.head != planning.noted.get(SNAPSHOT_NOTE)
    if is_wanted and is_old and planning.now_ms - planning.noted.get(INDEXED_NOTE, 0) >= DAILY_MS:
        reason = "the indexes of vectors are of an older snapshot, and a day old"
        yield Action("blobs_index", planning.metadata.name, reason, "a search compares few vectors that no index has")


def index(action: Action, current: Round) -> Rewritten:
    """Makes an index of each column of vectors that is to have one, and removes all but the one before it."""
    from frazil_blobs.vectors import build_index  # noqa: PLC0415  (it imports this module)

    settings = settings_in(current.maintenance.stages)
    assert settings is not None
    maintenance, now_ms = current.table_maintenance, current.clock.now_ms()
    metadata_json, io_properties = maintenance.described(action.table)
    table, io = opened(action.table, metadata_json, io_properties), store_of(tuple(sorted(io_properties.items())))
    metadata = maintenance.metadata(action.table, with_files=False)
    if metadata is None or metadata.head is None:
        return Rewritten()
    root = f"{folder_of(settings.store, table.location())}/indexes"
    for column, embedding in settings.embeddings.items():
        if not embedding.index or not _has_column(table, metadata.head, column):
            continue
        before = _address_in(table, column)
        with tempfile.TemporaryDirectory(prefix="frazil-index-") as folder:
            build_index(table, Path(folder), column=column, distance=embedding.distance, as_of=metadata.head)
            [made] = Path(folder).iterdir()
            address = f"{root}/{new_id()}/{made.name}"
            for file in sorted(made.iterdir()):
                with file.open("rb") as source, io.new_output(f"{address}/{file.name}").create() as target:
                    while part := source.read(_PART_BYTES):
                        target.write(part)
        maintenance.note(action.table, f"{INDEX_NOTE}{column}", address)
        _remove_others(io, root, column, {address, before})
    maintenance.note(action.table, SNAPSHOT_NOTE, str(metadata.head))
    maintenance.note(action.table, INDEXED_NOTE, str(now_ms))
    return Rewritten()


def _has_column(table: Table, snapshot_id: int, column: str) -> bool:
    """Whether a snapshot has the column already: the first record with vectors may be yet to come."""
    return column in table.scan(snapshot_id=snapshot_id).projection().column_names


def _remove_others(io: StoreIO, root: str, column: str, kept: set[str]) -> None:
    """Removes the indexes of a column but for some: a reader may have just learnt of the one before."""
    for file in list(io.files(root)):
        folder = file.location.rpartition("/")[0]
        if folder.rpartition("-")[0].endswith(f"-{column}") and folder not in kept:
            with suppress(FileNotFoundError):  # Another process removes it too.
                io.delete(file.location)


def _address_in(table: Table, column: str) -> str:
    """Returns the address of the newest index of a column; empty without one."""
    names = (name for name in table.metadata.properties if name.startswith("frazil."))
    return next((table.metadata.properties[name] for name in names if name.endswith(f".{INDEX_NOTE}{column}")), "")


def kept_indexes(table: Table, column: str) -> Path | None:
    """Returns the folder, on this machine, with the index of a column that maintenance has made; None without one.

    Raises: OSError where it cannot be copied from its store.
    """
    uri = _address_in(table, column)
    if not uri:
        return None
    address = address_of(uri)
    if address.kind == "local":
        return Path(address.key).parent
    folder = Path(tempfile.gettempdir()) / f"{_COPIES}{os.getuid()}-{hashlib.sha256(uri.encode()).hexdigest()[:16]}"
    if not folder.exists():
        # Copies that no process has looked for in a day are removed; a process that has one open keeps what it has.
        oldest_s = SystemClock().now_ms() / 1000 - _UNUSED_S
        for copy in folder.parent.glob(f"{_COPIES}*"):
            with suppress(OSError):
                status = copy.lstat()
                if status.st_uid == os.getuid() and status.st_mtime < oldest_s:
                    shutil.rmtree(copy, ignore_errors=True)
        with suppress(FileNotFoundError):  # It was removed, as the table that is read is an old one.
            _fetch(
                store_of(tuple(sorted((name, str(value)) for name, value in table.io.properties.items()))), uri, folder
            )
    if not folder.exists():
        return None
    os.utime(folder)
    return folder


def _fetch(io: StoreIO, uri: str, folder: Path) -> None:
    draft = Path(tempfile.mkdtemp(prefix=_COPIES, dir=folder.parent))
    try:
        inner = draft / uri.rpartition("/")[2]
        inner.mkdir()
        for file in io.files(uri):
            with (inner / file.location.rpartition("/")[2]).open("wb") as target:
                for begin in range(0, file.size_bytes, _PART_BYTES):
                    target.write(io.read_range(file.location, begin, min(file.size_bytes, begin + _PART_BYTES)))
        with suppress(OSError):  # Another process was quicker.
            draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
