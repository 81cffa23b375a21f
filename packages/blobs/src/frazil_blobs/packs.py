"""Packs: files with the bytes of many objects, one behind the other, that a task writes beside the files of a table.

A pack is complete before the report of its task names the data files, and every reference to it is in these. So a commit
never refers to bytes that are not in the store; what a killed task, or a refused commit, has left is found by `upkeep`: a
pack that no snapshot refers to. Nothing else is in a pack: the rows have where each object is, and its checksum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from frazil.clock import new_id
from frazil.errors import SpecError
from frazil.failpoints import hit
from frazil.schema.arrow import one_array, unsliced
from frazil.store.file_io import StoreIO, store_of
from frazil.write.target import TableTarget
from frazil_blobs.settings import BlobSettings
from frazil_blobs.signatures import LONGEST, content_type_of
from frazil_blobs.stage import is_within
from frazil_blobs.values import (
    Ints,
    Path,
    blob_paths,
    blobs_of,
    checksum_of,
    member_at,
    members_of,
    sizes_of,
    slices_of,
    with_member,
)

SUFFIX = ".pack"
_NAMED_BYTES = 6


def folder_of(store: str, location: str) -> str:
    """Returns the folder with the packs of the table at a location. It stays the same when the table is renamed."""
    name = location.rstrip("/").rpartition("/")[2]
    return f"{store}/{name}-{hashlib.sha256(location.rstrip('/').encode()).hexdigest()[: 2 * _NAMED_BYTES]}"


class Packs:
    """The packs of one task, of which one is open at a time. An object of more than `pack_bytes` has a file of its own."""

    def __init__(self, io: StoreIO, folder: str, pack_bytes: int) -> None:
        self._io = io
        self._folder = folder
        self._pack_bytes = pack_bytes
        self._stream: Any = None
        self._size = 0
        self._begun: list[str] = []

    def append(self, content: memoryview | bytes) -> tuple[str, int]:
        """Writes an object; returns the pack and the object's offset in it. Raises: OSError."""
        if self._stream is not None and self._size + len(content) > self._pack_bytes:
            self.finish()
        if self._stream is None:
            self._begun.append(f"{self._folder}/{new_id()}{SUFFIX}")
            self._stream, self._size = self._io.new_output(self._begun[-1]).create(), 0
        hit("blobs.pack.write")
        offset = self._size
        self._stream.write(content)
        self._size += len(content)
        return self._begun[-1], offset

    def finish(self) -> None:
        """Completes the open pack. Raises: OSError."""
        if self._stream is not None:
            stream, self._stream = self._stream, None
            stream.close()
            hit("blobs.pack.finished")

    def abandon(self) -> None:
        """Removes every pack, as far as possible."""
        with suppress(OSError):
            self.finish()
        for uri in self._begun:
            with suppress(OSError):
                self._io.delete(uri)
        self._begun.clear()


class RowPacks:
    """Implements `stages.stage.RowWriter`: objects that are too large for the row are put into packs."""

    def __init__(self, packs: Packs, paths: Sequence[Path], above: int) -> None:
        """paths: of the columns that are structs for objects. above: the largest object that stays in its row."""
        self._packs = packs
        self._paths = paths
        self._above = above

    def write(self, rows: pa.Table) -> pa.Table:
        """See RowWriter."""
        for name, *inner in self._paths:
            place = rows.schema.get_field_index(name)
            column = unsliced(one_array(rows.column(place)))
            blobs = member_at(column, inner) if inner else column
            placed = self._placed(unsliced(blobs))
            rows = rows.set_column(place, rows.schema.field(place), with_member(column, inner, placed))
        return rows

    def _placed(self, blobs: pa.StructArray) -> pa.Array:
        """Returns structs of which none has more than `above` bytes inline, and all have size, type and checksum."""
        members = members_of(blobs)
        is_new = np.asarray(members["inline"].is_valid()) & np.asarray(members["size"].is_null())
        if is_new.any():
            members = self._described(members, np.flatnonzero(is_new))
        return blobs_of(members, blobs.type)

    def _described(self, members: dict[str, pa.Array], rows: Ints) -> dict[str, pa.Array]:
        """Returns the fields with all that follows from the bytes of these rows, and large objects out of them."""
        count, inline = len(members["inline"]), members["inline"]
        sizes = sizes_of(inline)
        columns = {name: members[name].to_pylist() for name in ("uri", "offset", "content_type", "checksum")}
        for row, content in zip(rows.tolist(), slices_of(inline, rows), strict=True):
            content_bytes = bytes(content)
            columns["content_type"][row] = content_type_of(content_bytes[:LONGEST])
            columns["checksum"][row] = checksum_of(content_bytes)
            if sizes[row] > self._above:
                columns["uri"][row], columns["offset"][row] = self._packs.append(content)
        is_new = np.zeros(count, np.bool_)
        is_new[rows] = True
        is_moved = is_new & (sizes > self._above)
        size = pa.compute.if_else(pa.array(is_new), pa.array(sizes), members["size"])
        described = {name: pa.array(values, members[name].type) for name, values in columns.items()}
        if is_moved.any():
            inline = pa.compute.if_else(pa.array(is_moved), None, inline)
        return {**members, **described, "size": size, "inline": inline}

    def finish(self) -> None:
        """See RowWriter."""
        self._packs.finish()

    def abandon(self) -> None:
        """See RowWriter."""
        self._packs.abandon()


def open_packs(settings: BlobSettings, target: TableTarget) -> RowPacks | None:
    """Returns what writes the packs of one task; None while the table has none of the columns.

    Raises: SpecError where the packs would be in the table's own folder.
    """
    wanted = {tuple(text.split(".")) for text in settings.columns}
    paths = [path for path in blob_paths(target.schema) if path in wanted]
    if not paths:
        return None
    location = target.files.location
    if is_within(settings.store, location):
        raise SpecError(
            "the packs are in the table's own folder, where maintenance removes files that no snapshot names",
            remedy=f"write another folder as `blobs.store`, outside of {location}",
            where=target.name,
        )
    io = store_of(target.files.io_properties)
    return RowPacks(Packs(io, folder_of(settings.store, location), settings.pack), paths, settings.above)
