"""One Parquet file while it is written.

Arrow's writer takes nulls of required fields inside structs that are null for missing values, so these are replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from io import BytesIO
from shutil import copyfileobj
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from frazil.failpoints import hit
from frazil.write.cluster import Partition


def hides_nulls(kind: pa.DataType) -> bool:
    """Whether the type contains a struct with a required field of a primitive type."""
    fields = [kind.field(n) for n in range(kind.num_fields)] if pa.types.is_nested(kind) else []
    has_own = pa.types.is_struct(kind) and any(_is_required(field) for field in fields)
    return has_own or any(hides_nulls(field.type) for field in fields)


def without_hidden_nulls(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns the column without nulls in required fields whose struct is null itself; the values put in their place
    are not written.
    """
    return pa.chunked_array([_shown(chunk) for chunk in column.chunks], column.type)


def _is_required(field: pa.Field) -> bool:
    return not field.nullable and not pa.types.is_nested(field.type)


def _shown(array: pa.Array) -> pa.Array:
    kind = array.type
    if not hides_nulls(kind):
        return array
    if array.offset:
        # The buffers below are used entirely: an array that is a slice must begin where they do.
        array = pa.concat_arrays([array])
    if pa.types.is_struct(kind):
        return _shown_struct(array)
    if pa.types.is_map(kind):
        parts = [array.keys, _shown(array.items)]
        children = [pa.StructArray.from_arrays(parts, fields=[kind.key_field, kind.item_field])]
    else:
        children = [_shown(array.values)]
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, children=children)


def _shown_struct(array: pa.StructArray) -> pa.StructArray:
    kind, is_gone = array.type, np.asarray(array.is_null())
    children = []
    for n in range(kind.num_fields):
        child = _shown(array.field(n))
        if _is_required(kind.field(n)) and child.null_count and not (np.asarray(child.is_null()) & ~is_gone).any():
            child = pa.Array.from_buffers(child.type, len(child), [None, *child.buffers()[1:]], 0, child.offset)
        children.append(child)
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:1], array.null_count, children=children)


class OpenFile:
    """A Parquet file at `path` with rows of one partition. A staged file is in memory until it is complete, and then sent
    to the store in one piece.
    """

    def __init__(
        self,
        path: str,
        partition: Partition,
        io: FileIO,
        schema: pa.Schema,
        options: Mapping[str, Any],
        is_staged: bool,
    ) -> None:
        """Opens the file.

        Raises: OSError when the store refuses it.
        """
        self.path = path
        self.partition = partition
        self._io = io
        self._is_staged = is_staged
        self._hides_nulls = [n for n, kind in enumerate(schema.types) if hides_nulls(kind)]
        self._stream: Any = BytesIO() if is_staged else io.new_output(path).create(overwrite=True)
        self._writer = pq.ParquetWriter(self._stream, schema, store_schema=False, **options)

    @property
    def size_bytes(self) -> int:
        """The number of bytes written so far."""
        size: int = self._stream.tell()
        return size

    def append(self, rows: pa.Table, row_group_bytes: int) -> None:
        """Writes the rows in row groups of about `row_group_bytes`.

        Raises: OSError when the store refuses them.
        """
        for n in self._hides_nulls:
            rows = rows.set_column(n, rows.schema.field(n), without_hidden_nulls(rows.column(n)))
        count = rows.num_rows
        if not self._is_staged:
            count = min(count, rows.num_rows * row_group_bytes // max(1, rows.nbytes))
        self._writer.write_table(rows, row_group_size=max(1, count))

    def finish(self) -> pq.FileMetaData:
        """Ends the Parquet file and returns its footer; `store` must follow."""
        self._writer.close()
        return self._writer.writer.metadata

    def store(self) -> int:
        """Closes the file, and copies a staged one to the store; returns its size in bytes.

        Raises: OSError when the store refuses it.
        """
        size = self.size_bytes
        hit("task.close")
        if self._is_staged:
            self._stream.seek(0)
            with self._io.new_output(self.path).create(overwrite=True) as stream:
                copyfileobj(self._stream, stream)
        self._stream.close()
        return size

    def discard(self) -> None:
        """Releases the file's resources, whatever its state."""
        for part in (self._writer, self._stream):
            with suppress(OSError, pa.ArrowException):
                part.close()
