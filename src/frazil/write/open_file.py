"""One Parquet file while it is written."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import OutputFile

from frazil.failpoints import hit
from frazil.write.cluster import Partition
from frazil.write.hidden_nulls import hides_nulls, without_hidden_nulls


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
    ) -> None:
        """Opens the file.

        Raises: OSError when the store refuses it.
        """
        self.path = path
        self.partition = partition
        self._output = output
        self._buffer = pa.BufferOutputStream() if is_small else None
        self._hides_nulls = [n for n, kind in enumerate(schema.types) if hides_nulls(kind)]
        self._stream: Any = self._buffer or output.create(overwrite=True)
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
        if self._buffer is not None:
            with self._output.create(overwrite=True) as stream:
                stream.write(self._buffer.getvalue())
        else:
            self._stream.close()
        return self._writer.writer.metadata, size

    def discard(self) -> None:
        """Releases the file's resources, whatever its state."""
        for part in (self._writer, self._stream):
            with suppress(OSError, pa.ArrowException):
                part.close()
