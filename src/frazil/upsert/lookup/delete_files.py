"""Deleted rows as files: deletion vectors (format version 3) in Puffin, position deletes (version 2) in Parquet.

A deletion vector is a length and a CRC-32 checksum, both big-endian, around a magic number and a 64-bit Roaring bitmap,
both little-endian. Source: Iceberg specification, "Deletion Vectors"; Puffin specification, "deletion-vector-v1". One
Puffin file contains the vectors of a whole commit, except large vectors, which get a file each: PyIceberg decodes every
vector of a file once for each vector that a table references in it.
"""

from __future__ import annotations

import json
import struct
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.table.locations import load_location_provider
from pyiceberg.types import StructType
from pyroaring import BitMap64

from frazil import __version__
from frazil.catalog.scans import FILE_PATH_ID, LiveFile
from frazil.clock import new_id
from frazil.errors import UnavailableError
from frazil.failpoints import hit
from frazil.schema.arrow import Bools, Ints
from frazil.schema.selection import Path
from frazil.types import DeleteFile
from frazil.upsert.deduplicate import key_codes
from frazil.upsert.lookup.live_rows import ColumnCache, in_threads, key_columns, opened, reserved_column
from frazil.write.target import TableTarget
from frazil.write.write import file_io

_MAGIC = struct.pack("<I", 1681511377)
_PUFFIN = b"PFA1"
_CACHE_BYTES = 64 * 1024 * 1024
# Most vectors that a batch replaces were written by the batch before it.
_vectors = ColumnCache(_CACHE_BYTES)
_ROW_POSITION_ID = 2147483645
_POSITION_ID = 2147483545
_LARGE = 20_000  # Row positions.
_WRITERS = 8


@dataclass(frozen=True)
class _Vector:
    """The deletion vector of one data file, serialized."""

    file: LiveFile
    cardinality: int
    blob: bytes


def bits_of(rows: Ints) -> BitMap64:
    """Returns a bitmap with these row positions. There may be millions, and a Python integer takes forty bytes."""
    return BitMap64(array("Q", rows.astype(np.uint64).tobytes()))


def rows_of(bits: BitMap64) -> Ints:
    """Returns the positions in the bitmap in ascending order, int64."""
    return np.asarray(bits.to_array()).astype(np.int64)


def are_in(rows: Ints, bits: BitMap64) -> Bools:
    """Returns which of these row positions are in the bitmap, bool `(n_rows,)`."""
    common = bits_of(rows) & bits if bits else bits
    return np.isin(rows, rows_of(common)) if common else np.zeros(rows.size, np.bool_)


def dump_vector(positions: BitMap64) -> bytes:
    """Returns the blob of a deletion vector with these positions."""
    positions.run_optimize()
    body = _MAGIC + positions.serialize()
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def load_vector(blob: bytes) -> BitMap64:
    """Returns the positions of a deletion vector.

    Raises: UnavailableError where the bytes are damaged.
    """
    (length,) = struct.unpack_from(">I", blob)
    body = blob[4 : 4 + length]
    if (
        len(blob) != length + 8
        or not body.startswith(_MAGIC)
        or struct.unpack_from(">I", blob, 4 + length)[0] != zlib.crc32(body)
    ):
        raise UnavailableError("a deletion vector of the table is damaged", remedy="check the table's store")
    return BitMap64.deserialize(body[len(_MAGIC) :])


def write_deletes(target: TableTarget, deleted: Mapping[LiveFile, BitMap64], format_version: int) -> list[DeleteFile]:
    """Writes a delete file per data file with its deleted rows, including all rows deleted before; returns the delete
    files.

    Raises: OSError where the store fails.
    """
    if not deleted:
        return []
    hit("upsert.deletes")
    if format_version >= 3:
        return _write_vectors(target, deleted)
    return list(
        in_threads(lambda deleted_rows: _write_positions(target, *deleted_rows), list(deleted.items()), _WRITERS)
    )


def _new_path(target: TableTarget, suffix: str) -> str:
    locations = load_location_provider(target.files.location, dict(target.files.properties))
    return str(locations.new_data_location(f"{new_id()}-deletes.{suffix}"))


def _store(target: TableTarget, path: str, payload: bytes) -> None:
    with file_io(target).new_output(path).create(overwrite=True) as stream:
        stream.write(payload)


def _write_vectors(target: TableTarget, deleted: Mapping[LiveFile, BitMap64]) -> list[DeleteFile]:
    vectors = [_Vector(file, len(positions), dump_vector(positions)) for file, positions in deleted.items()]
    groups = [[vector] for vector in vectors if vector.cardinality >= _LARGE]
    if small := [vector for vector in vectors if vector.cardinality < _LARGE]:
        groups.append(small)
    written = in_threads(lambda group: _write_puffin(target, group), groups, _WRITERS)
    by_file = {delete.data_file: delete for deletes in written for delete in deletes}
    return [by_file[vector.file.path] for vector in vectors]


def _write_puffin(target: TableTarget, vectors: Sequence[_Vector]) -> list[DeleteFile]:
    # The first blob begins behind the 4 bytes that mark the file.
    ends = np.cumsum([len(vector.blob) for vector in vectors])
    offsets = [4, *(4 + int(end) for end in ends[:-1])]
    footer = json.dumps(
        {
            "blobs": [
                {
                    "type": "deletion-vector-v1",
                    "fields": [_ROW_POSITION_ID],
                    "snapshot-id": -1,
                    "sequence-number": -1,
                    "offset": offset,
                    "length": len(vector.blob),
                    "properties": {"referenced-data-file": vector.file.path, "cardinality": str(vector.cardinality)},
                }
                for vector, offset in zip(vectors, offsets, strict=True)
            ],
            "properties": {"created-by": f"Frazil {__version__}"},
        },
        separators=(",", ":"),
    ).encode()
    tail = _PUFFIN + footer + struct.pack("<I", len(footer)) + bytes(4) + _PUFFIN
    payload = b"".join((_PUFFIN, *(vector.blob for vector in vectors), tail))
    path = _new_path(target, "puffin")
    _store(target, path, payload)
    for vector, offset in zip(vectors, offsets, strict=True):
        _vectors.put((path, offset), (pa.array([vector.blob], pa.binary()),))
    return [
        _described(
            vector.file,
            path,
            "vector",
            vector.cardinality,
            {
                "file-format": "puffin",
                "file-size-in-bytes": len(payload),
                "content-offset": offset,
                "content-size-in-bytes": len(vector.blob),
            },
        )
        for vector, offset in zip(vectors, offsets, strict=True)
    ]


def _write_positions(target: TableTarget, file: LiveFile, positions: BitMap64) -> DeleteFile:
    # A dictionary with one path: as plain texts they would take a hundred bytes each.
    paths = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int8()), len(positions)), [file.path])
    schema = pa.schema(
        [
            pa.field("file_path", paths.type, False, metadata={b"PARQUET:field_id": str(FILE_PATH_ID).encode()}),
            pa.field("pos", pa.int64(), False, metadata={b"PARQUET:field_id": str(_POSITION_ID).encode()}),
        ]
    )
    places = pa.array(rows_of(positions))
    rows = pa.Table.from_arrays([paths, places], schema=schema)
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd", store_schema=False)
    payload, path = sink.getvalue().to_pybytes(), _new_path(target, "parquet")
    _store(target, path, payload)
    bound = {"keys": [FILE_PATH_ID], "values": [file.path.encode().hex().upper()]}
    sizes = {"file-format": "parquet", "file-size-in-bytes": len(payload), "lower-bounds": bound, "upper-bounds": bound}
    return _described(file, path, "positions", len(positions), sizes)


def _described(file: LiveFile, path: str, kind: str, count: int, more: Mapping[str, Any]) -> DeleteFile:
    content = {
        "spec-id": file.description["spec-id"],
        "content": "position-deletes",
        "file-path": path,
        "partition": file.description["partition"],
        "record-count": count,
        "referenced-data-file": file.path,
        **more,
    }
    return DeleteFile(path, kind, file.path, count, json.dumps(content))


def read_deletes(target: TableTarget, path: str, deletes: Iterable[DeleteFile]) -> BitMap64:
    """Returns the positions of the data file `path` that deletion vectors and position deletes have deleted.

    Raises: OSError where the store fails; SpecError where a file of another writer cannot be read.
    """
    positions = BitMap64()
    for delete in deletes:
        if delete.kind == "vector":
            positions |= _read_vector(target, delete)
        elif delete.kind == "positions":
            # A dictionary of paths: deletes of many files may name each a million times.
            with opened(target, delete, read_dictionary=["file_path"]) as parquet:
                rows = parquet.read(columns=["file_path", "pos"], use_threads=False)
            mine = rows.filter(pc.equal(rows["file_path"], path))["pos"]
            positions |= bits_of(np.asarray(mine))
    return positions


def _read_vector(target: TableTarget, delete: DeleteFile) -> BitMap64:
    described = json.loads(delete.content)
    name = (delete.path, described["content-offset"])
    buffered = _vectors.get(name)
    if buffered is not None:
        return load_vector(buffered[0][0].as_py())
    with file_io(target).new_input(delete.path).open() as stream:
        stream.seek(described["content-offset"])
        blob = stream.read(described["content-size-in-bytes"])
    _vectors.put(name, (pa.array([blob], pa.binary()),))
    return load_vector(blob)


def are_deleted(target: TableTarget, file: LiveFile, rows: Ints) -> Bools:
    """Returns which rows at these positions of the file equality deletes have deleted, bool `(n_rows,)`.

    Raises: OSError where the store fails; UnavailableError where a delete file cannot be read.
    """
    gone = np.zeros(rows.size, np.bool_)
    for delete in file.deletes:
        if delete.kind == "equality" and not gone.all():
            gone |= _are_named(target, file, rows, delete)
    return gone


def live_rows(target: TableTarget, file: LiveFile) -> Ints:
    """Returns the positions of the file's rows that none of its delete files has deleted, ascending.

    Raises: as `are_deleted`.
    """
    rows = np.delete(np.arange(file.record_count), rows_of(read_deletes(target, file.path, file.deletes)))
    return rows[~are_deleted(target, file, rows)]


def _are_named(target: TableTarget, file: LiveFile, rows: Ints, delete: DeleteFile) -> Bools:
    deletes, places = LiveFile(delete.path, delete.record_count, delete.content), pa.array(rows)
    by_id = dict(_columns(target.schema.as_struct()))
    pairs = []
    for number in json.loads(delete.content)["equality-ids"]:
        if number in by_id:
            named, own = (key_columns(target, source_file, [by_id[number]])[0] for source_file in (deletes, file))
        else:
            named, own = _dropped(target, deletes, file, number)
        pairs.append(pa.concat_arrays([named, own.take(places)]))
    codes, count = key_codes(pairs), len(pairs[0]) - rows.size
    return np.isin(codes[count:], codes[:count])


def _dropped(target: TableTarget, deletes: LiveFile, file: LiveFile, field_id: int) -> tuple[pa.Array, pa.Array]:
    """Returns a column of a delete file and of a data file that the table has dropped, both in the wider of their
    types.
    """
    named, own = (reserved_column(target, source_file, field_id) for source_file in (deletes, file))
    if named is None or own is None:  # It was inside a struct, or had a name in files without field ids, or a default.
        raise UnavailableError(
            "equality deletes of another writer have columns that the table no longer has",
            remedy="wait for table maintenance, or run `frazil maintain`: either applies the deletes permanently",
            where=target.name,
        )
    schemas = [pa.schema([pa.field("c", column.type)]) for column in (named, own)]
    kind = pa.unify_schemas(schemas, promote_options="permissive").field("c").type
    return named.cast(kind), own.cast(kind)


def _columns(struct: StructType, above: Path = ()) -> Iterator[tuple[int, Path]]:
    """Yields the id and path of each field outside of lists and maps."""
    for field in struct.fields:
        path = (*above, field.name)
        yield field.field_id, path
        if isinstance(field.field_type, StructType):
            yield from _columns(field.field_type, path)
