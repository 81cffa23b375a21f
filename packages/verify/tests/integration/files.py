"""Faults in data files that every reader reads: other rows in a file of the same size, which manifests have."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def replace_rows(path: Path, rows: pa.Table) -> None:
    """Writes other rows into a Parquet file, whose size stays: readers look for its footer at the end that they know."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd", compression_level=19, write_statistics=False, store_schema=False)
    content = sink.getvalue().to_pybytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    gap = path.stat().st_size - len(content)
    assert gap >= 0, "the rows take more bytes than the file has"
    path.write_bytes(content[:footer] + bytes(gap) + content[footer:])
