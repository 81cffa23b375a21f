"""Packs: files with the bytes of many objects, one behind the other, that a task writes beside the files of a table.

A pack is complete before the report of its task names the data files, and every reference to it is in these. So a commit
never refers to bytes that are not in the store; what a killed task, or a refused commit, has left is found by `upkeep`: a
pack that no snapshot refers to. Nothing else is in a pack: the rows have where each object is, and its checksum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa

from frazil.clock import new_id
from frazil.errors import SpecError
from frazil.failpoints import hit
from frazil.schema.arrow import as_written, one_array, unsliced
from frazil.store.file_io import StoreIO, store_of
from frazil.write.cluster import arrangement_of, clusters
from frazil.write.target import TableTarget
from frazil_blobs.extract import INFO, Info, info_of, require_readers
from frazil_blobs.incoming import look, refuse_replaced
from frazil_blobs.settings import BlobSettings, MiB
from frazil_blobs.signatures import LONGEST, content_type_of
from frazil_blobs.stage import is_within
from frazil_blobs.values import (
    BLOB,
    FIELDS,
    Ints,
    Path,
    blob_paths,
    blobs_of,
    checksum_of,
    checksum_text,
    member_at,
    members_of,
    sizes_of,
    slices_of,
    with_member,
)

SUFFIX = ".pack"
MOST_OPEN = 8
"""The most packs of a task that are open at a time: each has parts in memory that are on their way."""
_NAMED_BYTES = 6
_PART_BYTES = 8 * MiB


def folder_of(store: str, location: str) -> str:
    """Returns the folder with the packs of the table at a location. It stays the same when the table is renamed."""
    name = location.rstrip("/").rpartition("/")[2]
    return f"{store}/{name}-{hashlib.sha256(location.rstrip('/').encode()).hexdigest()[: 2 * _NAMED_BYTES]}"


class Packs:
    """The packs of one task: one is open at a time for each of a few partitions of the table, so that dropping a partition
    leaves whole packs behind. An object of more than `pack_bytes` has a file of its own.
    """

    def __init__(self, io: StoreIO, folder: str, pack_bytes: int) -> None:
        self._io = io
        self._folder = folder
        self._pack_bytes = pack_bytes
        #: By partition, the one that was written last at the end.
        self._open: dict[str, _OpenPack] = {}
        self._begun: list[str] = []

    def append(self, content: pa.Buffer, partition: str = "") -> tuple[str, int]:
        """Writes an object; returns the pack and the object's offset in it. Raises: OSError."""
        return self.append_parts(content.size, (content,), partition)

    def append_parts(self, size: int, parts: Iterable[pa.Buffer], partition: str = "") -> tuple[str, int]:
        """Writes an object that is read in parts, as `append` does. size: of all parts."""
        pack = self._open.pop(partition, None)
        if pack is not None and pack.size + size > self._pack_bytes:
            _complete(pack)
            pack = None
        if pack is None:
            if len(self._open) >= MOST_OPEN:
                _complete(self._open.pop(next(iter(self._open))))
            self._begun.append(f"{self._folder}/{new_id()}{SUFFIX}")
            pack = _OpenPack(self._begun[-1], self._io.new_output(self._begun[-1]).create())
        self._open[partition] = pack
        hit("blobs.pack.write")
        offset = pack.size
        for part in parts:
            pack.stream.write(memoryview(part).cast("B"))
            pack.size += part.size
        return pack.uri, offset

    def finish(self) -> None:
        """Completes the open packs. Raises: OSError."""
        while self._open:
            _complete(self._open.popitem()[1])

    def abandon(self) -> None:
        """Removes every pack, as far as possible."""
        while self._open:
            with suppress(OSError):
                self.finish()
        for uri in self._begun:
            with suppress(OSError):
                self._io.delete(uri)
        self._begun.clear()


@dataclass
class _OpenPack:
    """A pack that is being written."""

    uri: str
    stream: Any
    size: int = 0


def _complete(pack: _OpenPack) -> None:
    pack.stream.close()
    hit("blobs.pack.finished")


class _Source:
    """An object that is copied, in parts that memory has room for."""

    def __init__(self, io: StoreIO, uri: str, size: int) -> None:
        self._io = io
        self._uri = uri
        self._size = size
        self._state = 0

    def parts(self) -> Iterator[pa.Buffer]:
        """Yields the parts. Raises: OSError, also for an object that has become shorter."""
        for begin in range(0, self._size, _PART_BYTES):
            end = min(self._size, begin + _PART_BYTES)
            part = self._io.read_range(self._uri, begin, end)
            if part.size != end - begin:
                raise OSError(f"{self._uri}: the object was replaced while it was copied")
            self._state = google_crc32c.extend(self._state, part)
            yield part

    @property
    def checksum(self) -> str:
        """The checksum of the parts so far."""
        return checksum_text(self._state)


class RowPacks:
    """Implements `stages.stage.RowWriter`: objects that are too large for the row are put into packs."""

    def __init__(
        self, packs: Packs, paths: Sequence[Path], settings: BlobSettings, io: StoreIO, target: TableTarget
    ) -> None:
        """paths: of the columns that are structs for objects."""
        self._target = target
        self._partitions: Sequence[str] = ()
        self._packs = packs
        self._paths = paths
        self._above = settings.above
        self._settings = settings
        self._io = io

    def write(self, rows: pa.Table) -> pa.Table:
        """See RowWriter."""
        self._partitions = partitions_of(self._target, rows)
        for name, *inner in self._paths:
            place = rows.schema.get_field_index(name)
            column = unsliced(one_array(rows.column(place)))
            blobs = member_at(column, inner) if inner else column
            text = ".".join((name, *inner))
            placed = self._referring(unsliced(blobs), text) if text in self._settings.referring else unsliced(blobs)
            infos: dict[int, Info] = {}
            # No object has more than `above` bytes inline, and all have size, type and checksum.
            members = members_of(placed)
            is_new = np.asarray(members["inline"].is_valid()) & np.asarray(members["size"].is_null())
            if is_new.any():
                members = self._described(
                    members, np.flatnonzero(is_new), infos if text in self._settings.extract else None
                )
            placed = blobs_of(members, placed.type)
            rows = rows.set_column(place, rows.schema.field(place), with_member(column, inner, placed))
            if infos:
                rows = _with_infos(rows, self._settings.extract[text], infos)
        return rows

    def _referring(self, blobs: pa.StructArray, text: str) -> pa.Array:
        """Returns structs whose addresses have what they lead to beside them; copied objects are inline."""
        references, members = self._settings.references, members_of(blobs)
        assert references is not None
        is_new = np.asarray(members["uri"].is_valid()) & np.asarray(members["size"].is_null())
        columns = {name: members[name].to_pylist() for name in FIELDS}
        for row in np.flatnonzero(is_new).tolist():
            uri = columns["uri"][row]
            looked = look(self._settings, references, self._io, text, uri)
            if looked.reason:
                raise OSError(f"{uri}: {looked.reason}")  # It was there a moment ago.
            columns["size"][row], columns["content_type"][row] = looked.size, looked.content_type
            columns["checksum"][row] = f"ETAG:{looked.version}" if looked.version else None
            if references.copies and looked.size <= self._above:
                columns["uri"][row], columns["inline"][row] = (
                    None,
                    self._io.read_range(uri, 0, looked.size).to_pybytes(),
                )
                columns["checksum"][row] = checksum_of(columns["inline"][row])
            elif references.copies:
                source = _Source(self._io, uri, looked.size)
                columns["uri"][row], columns["offset"][row] = self._packs.append_parts(
                    looked.size, source.parts(), self._partitions[row]
                )
                columns["checksum"][row] = source.checksum
            if references.copies:
                refuse_replaced(self._io, uri, looked)
        return blobs_of({name: pa.array(values, BLOB.field(name).type) for name, values in columns.items()}, blobs.type)

    def _described(
        self, members: dict[str, pa.Array], rows: Ints, infos: dict[int, Info] | None
    ) -> dict[str, pa.Array]:
        """Returns the fields with all that follows from the bytes of these rows, and large objects out of them."""
        count, inline = len(members["inline"]), members["inline"]
        sizes = sizes_of(inline)
        columns = {name: members[name].to_pylist() for name in ("uri", "offset", "content_type", "checksum")}
        for row, content in zip(rows.tolist(), slices_of(inline, rows), strict=True):
            columns["content_type"][row] = content_type_of(content[:LONGEST].to_pybytes())
            columns["checksum"][row] = checksum_of(content)
            info = info_of(content.to_pybytes(), columns["content_type"][row]) if infos is not None else None
            if infos is not None and info is not None:
                infos[row] = info
            if sizes[row] > self._above:
                columns["uri"][row], columns["offset"][row] = self._packs.append(content, self._partitions[row])
        is_new = np.zeros(count, np.bool_)
        is_new[rows] = True
        is_moved = is_new & (sizes > self._above)
        size = pa.compute.if_else(pa.array(is_new), pa.array(sizes), members["size"])
        described = {name: pa.array(values, members[name].type) for name, values in columns.items()}
        if is_moved.any():
            inline = inline.take(
                pa.array(np.arange(count), mask=is_moved)
            )  # `if_else` would touch memory for all bytes.
        return {**members, **described, "size": size, "inline": inline}

    def finish(self) -> None:
        """See RowWriter."""
        self._packs.finish()

    def abandon(self) -> None:
        """See RowWriter."""
        self._packs.abandon()


def _with_infos(rows: pa.Table, name: str, infos: Mapping[int, Info]) -> pa.Table:
    """Returns the rows with what was extracted of some of them."""
    place = rows.schema.get_field_index(name)
    if place < 0:
        return rows
    values: list[Info | None] = rows.column(place).to_pylist()
    for row, info in infos.items():
        values[row] = info
    column = as_written(pa.array(values, INFO), rows.schema.types[place])
    return rows.set_column(place, rows.schema.field(place), column)


def partitions_of(target: TableTarget, rows: pa.Table) -> list[str]:
    """Returns the partition of each row; all the same where rows have more of them than packs may be open."""
    arrangement = replace(arrangement_of(target), sort_keys=())
    partitions = [""] * rows.num_rows
    if not arrangement.fields or not rows.num_rows:
        return partitions
    places = {source.path[0] for source in arrangement.fields if source.path}
    nothing = pa.nulls(rows.num_rows)
    columns = [column if place in places else nothing for place, column in enumerate(rows.columns)]
    numbered = pa.table([*columns, pa.array(range(rows.num_rows))], [str(n) for n in range(len(columns) + 1)])
    of_rows = [
        (cluster.partition.path, cluster.rows.column(len(columns)).to_pylist())
        for cluster in clusters(arrangement, [numbered])
    ]
    if len({path for path, _ in of_rows}) <= MOST_OPEN:
        for path, some in of_rows:
            for row in some:
                partitions[row] = path
    return partitions


def open_packs(settings: BlobSettings, target: TableTarget) -> RowPacks | None:
    """Returns what writes the packs of one task; None while the table has none of the columns.

    Raises: SpecError where the packs would be in the table's own folder.
    """
    wanted = {tuple(text.split(".")) for text in (*settings.columns, *settings.referring)}
    paths = [path for path in blob_paths(target.schema) if path in wanted]
    if not paths:
        return None
    location = target.files.location
    if is_within(settings.store, location):
        raise SpecError(
            "the packs are in the table's own folder, where maintenance removes files that no snapshot names",
            remedy=f"write another folder as `blobs.store`, outside {location}",
            where=target.name,
        )
    if settings.extract or settings.thumbnails:
        require_readers()
    io = store_of(target.files.io_properties)
    return RowPacks(Packs(io, folder_of(settings.store, location), settings.pack), paths, settings, io, target)
