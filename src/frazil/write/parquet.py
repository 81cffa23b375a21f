"""One Parquet file while it is written. Arrow's writer takes nulls of required fields inside structs that are null for
missing values, so these are replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import OutputFile

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


Convert = Callable[[Any, Any], None]
"""Reads a Parquet file and writes its rows to a stream in another format."""


class OpenFile:
    """A Parquet file at `path` with rows of one partition. A small file is sent to the store in one piece when it is
    complete.
    """

    def __init__(
        self,
        path: str,
        partition: Partition,
        output: OutputFile,
        schema: pa.Schema,
        options: Mapping[str, Any],
        is_small: bool,
        convert: Convert | None = None,
    ) -> None:
        """Opens the file. convert: makes the file in the store from the Parquet file, which is a temporary one then.

        Raises: OSError when the store refuses it.
        """
        self.path = path
        self.partition = partition
        self._output = output
        self._buffer = pa.BufferOutputStream() if is_small else None
        self._hides_nulls = [n for n, kind in enumerate(schema.types) if hides_nulls(kind)]
        self._convert = convert
        self._stream: Any = self._buffer or (output.create(overwrite=True) if convert is None else TemporaryFile())  # noqa: SIM115
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
        if self._buffer is None:
            count = min(count, rows.num_rows * row_group_bytes // max(1, rows.nbytes))
        self._writer.write_table(rows, row_group_size=max(1, count))

    def close(self) -> tuple[pq.FileMetaData, int]:
        """Closes the file and returns its footer and its size in bytes."""
        self._writer.close()
        size = self.size_bytes
        hit("task.close")
        if self._convert is not None:
            size = self._write_converted(self._convert)
        elif self._buffer is not None:
            with self._output.create(overwrite=True) as stream:
                stream.write(self._buffer.getvalue())
        else:
            self._stream.close()
        return self._writer.writer.metadata, size

    def _write_converted(self, convert: Convert) -> int:
        """Writes the file in its own format, and returns its size in bytes."""
        parquet = pa.BufferReader(self._buffer.getvalue()) if self._buffer is not None else self._stream
        parquet.seek(0)
        with self._output.create(overwrite=True) as stream:
            convert(parquet, stream)
            size: int = stream.tell()
        parquet.close()
        return size

    def discard(self) -> None:
        """Releases the file's resources, whatever its state."""
        for part in (self._writer, self._stream):
            with suppress(OSError, pa.ArrowException):
                part.close()
