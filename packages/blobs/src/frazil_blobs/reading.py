"""The bytes of objects, read as few ranges: those of one pack that are close to each other by one request.

Several ranges are read at a time. A request to an object store takes tens of milliseconds however little it reads, so a
gap is read where that is quicker than another request. Memory is that of the objects, and of the ranges that are read at
the moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from frazil.errors import InvariantError, UnavailableError
from frazil.schema.arrow import unsliced
from frazil.store.file_io import StoreIO, store_of
from frazil_blobs.settings import MiB
from frazil_blobs.values import Ints, is_blob, is_intact, members_of, sizes_of, slices_of

GAP_BYTES = MiB // 2
"""A larger gap between two objects costs more than the request that leaves it out, at 20 ms and 16 requests at a time."""
RANGE_BYTES = 8 * MiB
"""The largest range with several objects: larger ones are not quicker, and PARALLEL of them are in memory."""
PARALLEL = 16
"""The number of requests at a time."""
Blobs: TypeAlias = "pa.StructArray | pa.ChunkedArray"


@dataclass
class Span:
    """A range of a pack that is read at once."""

    uri: str
    begin: int
    end: int
    #: The objects in it, by their place among all.
    rows: list[int]


def read(
    blobs: Blobs, properties: Mapping[str, str] | None = None, *, verify: bool = True, parallel: int = PARALLEL
) -> pa.LargeBinaryArray:
    """Returns the bytes of objects, in their order; null for none. blobs: a column of a table that has objects.
    properties: of the store, by Iceberg's names, such as `table.io.properties`. verify: whether checksums are
    compared.

    Raises: UnavailableError where an object cannot be read; InvariantError for one that has another checksum.
    """
    io = store_of(tuple(sorted((str(name), str(value)) for name, value in (properties or {}).items())))
    return read_with(io, blobs, verify=verify, parallel=parallel)


def read_with(io: StoreIO, blobs: Blobs, *, verify: bool = True, parallel: int = PARALLEL) -> pa.LargeBinaryArray:
    """Returns the bytes of objects as `read` does. io: the access to the store."""
    return Reader(io, blobs, parallel).contents(verify=verify)


class Reader:
    """Reads the objects of one array."""

    def __init__(self, io: StoreIO, blobs: Blobs, parallel: int = PARALLEL) -> None:
        if isinstance(blobs, pa.ChunkedArray):
            blobs = blobs.combine_chunks()
        if isinstance(blobs, pa.ChunkedArray):  # Some versions of Arrow return one without chunks.
            blobs = pa.concat_arrays(blobs.chunks) if blobs.num_chunks else pa.array([], blobs.type)
        if not is_blob(blobs.type):
            raise TypeError(
                f"a column of objects is a struct with uri, offset, size and so on, and this is {blobs.type}"
            )
        self._io = io
        self._members = members_of(unsliced(blobs))
        self._members["inline"] = self._members["inline"].cast(
            pa.binary()
        )  # PyIceberg writes files with larger offsets.
        self._is_inline = np.asarray(self._members["inline"].is_valid())
        self._is_outside = ~self._is_inline & np.asarray(self._members["uri"].is_valid())
        self._count = len(blobs)
        self._parallel = parallel

    def contents(self, *, verify: bool = False) -> pa.LargeBinaryArray:
        """Returns the bytes of all objects, null for none. verify: whether checksums are compared.

        Raises: UnavailableError, InvariantError.
        """
        whole = self._whole()
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(self._sizes(whole))])
        content_bytes = np.empty(int(offsets[-1]), np.uint8)
        checksums = self._members["checksum"].to_pylist() if verify else [None] * self._count

        def place(row: int, content: pa.Buffer) -> None:
            if not is_intact(content, checksums[row]):
                raise self._damage(row)
            # Other threads read meanwhile: NumPy lets them.
            content_bytes[offsets[row] : offsets[row + 1]] = np.frombuffer(content, np.uint8)

        self._place(whole, place)
        validity = pa.py_buffer(np.packbits(self._is_inline | self._is_outside, bitorder="little"))
        buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(content_bytes)]
        return pa.Array.from_buffers(pa.large_binary(), self._count, buffers)

    def objects(self) -> list[bytes | None]:
        """Returns the bytes of all objects, None for none, once their checksums are compared.

        Raises: UnavailableError, InvariantError.
        """
        objects: list[bytes | None] = [None] * self._count
        checksums = self._members["checksum"].to_pylist()

        def place(row: int, content: pa.Buffer) -> None:
            if not is_intact(content, checksums[row]):
                raise self._damage(row)
            objects[row] = content.to_pybytes()

        self._place(self._whole(), place)
        return objects

    def damaged(self, contents: pa.LargeBinaryArray) -> Iterator[int]:
        """Yields the places of objects with another checksum."""
        for row, checksum in enumerate(self._members["checksum"].to_pylist()):
            if checksum is not None and contents[row].is_valid and not is_intact(contents[row].as_buffer(), checksum):
                yield row

    def _damage(self, row: int) -> InvariantError:
        return InvariantError(
            "an object does not have its checksum",
            remedy="restore the pack from a copy of the store; `frazil blobs verify` lists every damaged object",
            where=f"{self._members['uri'][row].as_py()}, offset {self._members['offset'][row].as_py() or 0}",
        )

    def _whole(self) -> dict[int, pa.Buffer]:
        """Returns the bytes of objects whose size is not known: whole files."""
        rows = np.flatnonzero(self._is_outside & np.asarray(self._members["size"].is_null()))
        return {row: _read_file(self._io, self._members["uri"][row].as_py()) for row in rows.tolist()}

    def _sizes(self, whole: Mapping[int, pa.Buffer]) -> Ints:
        """Returns the bytes of each object: int64 of shape (n_objects,)."""
        outside = np.asarray(self._members["size"].fill_null(0)).astype(np.int64)
        sizes = np.where(self._is_inline, sizes_of(self._members["inline"]), outside * self._is_outside)
        for row, content in whole.items():
            sizes[row] = content.size
        return sizes

    def _place(self, whole: Mapping[int, pa.Buffer], place: Callable[[int, pa.Buffer], None]) -> None:
        """Hands over each object, by its place among all: those of packs by the threads that read them."""
        inline_rows = np.flatnonzero(self._is_inline)
        for row, content in zip(inline_rows.tolist(), slices_of(self._members["inline"], inline_rows), strict=True):
            place(row, content)
        for row, content in whole.items():
            place(row, content)
        uris = self._members["uri"].to_pylist()
        offsets = np.asarray(self._members["offset"].fill_null(0)).astype(np.int64)
        sizes = self._sizes(whole)
        rows = [row for row in np.flatnonzero(self._is_outside).tolist() if row not in whole]
        spans = spans_of([(uris[row], int(offsets[row]), int(sizes[row]), row) for row in rows])

        def read_span(span: Span) -> None:
            try:
                content = self._io.read_range(span.uri, span.begin, span.end)
            except OSError as error:
                raise UnavailableError(f"an object cannot be read: {error}", where=span.uri) from None
            if content.size != span.end - span.begin:
                message = f"a pack ends before its objects do: bytes={content.size} wanted={span.end - span.begin}"
                raise UnavailableError(message, where=span.uri)
            for row in span.rows:
                place(row, content.slice(int(offsets[row]) - span.begin, int(sizes[row])))

        if len(spans) <= 1:
            for span in spans:
                read_span(span)
            return
        pool = ThreadPoolExecutor(self._parallel, "blobs")
        try:
            for _ in pool.map(read_span, spans):  # No thread holds more than a range.
                pass
        finally:
            pool.shutdown(cancel_futures=True)


def spans_of(places: Sequence[tuple[str, int, int, int]]) -> list[Span]:
    """Returns the ranges that are read for objects: uri, offset, size and place among all of each."""
    spans: list[Span] = []
    for uri, begin, size, row in sorted(places):
        last = spans[-1] if spans else None
        is_near = last is not None and last.uri == uri and begin - last.end <= GAP_BYTES
        if last is not None and is_near and max(last.end, begin + size) - last.begin <= RANGE_BYTES:
            last.rows.append(row)
            last.end = max(last.end, begin + size)
        else:
            spans.append(Span(uri, begin, begin + size, [row]))
    return spans


def _read_file(io: StoreIO, uri: str) -> pa.Buffer:
    try:
        with io.new_input(uri).open() as stream:
            return pa.py_buffer(bytes(stream.read()))
    except OSError as error:
        raise UnavailableError(f"an object cannot be read: {error}", where=uri) from None
