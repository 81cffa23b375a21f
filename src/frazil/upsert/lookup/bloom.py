"""Bloom filters of the key columns of Parquet files: a file that contains none of a few keys is not read.

Column bounds exclude no file where keys are spread over all files, such as UUIDs. A filter of ten bits per row excludes
99 of 100 files without the key. Source: Parquet format, "Split block Bloom filter"; XXH64 of the plain encoding of a
value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from xxhash import xxh64_intdigest

from frazil.catalog.scans import LiveFile
from frazil.upsert.lookup.column_cache import ColumnCache
from frazil.upsert.lookup.live_rows import Path, as_numbers
from frazil.write.target import TableTarget
from frazil.write.write import file_io

_MOST_KEYS = 10_000
"""With more keys, every file is likely to contain some."""
_ENABLED = "write.parquet.bloom-filter-enabled.column."
_CACHE_BYTES = 256 * 1024 * 1024
_filters = ColumnCache(_CACHE_BYTES)
_SALT = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32
)
# The rest of the header in Thrift's compact protocol: algorithm BLOCK, hash XXHASH, UNCOMPRESSED.
_REST_OF_HEADER = bytes.fromhex("1c1c00001c1c00001c1c000000")
_LONGEST_HEADER = 32
_WIDTHS = {"INT32": 4, "INT64": 8}
Bools = NDArray[np.bool_]
Words = NDArray[np.uint64]


class KeyFilters:
    """Checks keys against the Bloom filters of files. The keys are distinct and in top-level columns of the table."""

    def __init__(self, target: TableTarget, keys: Sequence[pa.Array], paths: Sequence[Path]) -> None:
        properties = dict(target.properties)
        self._target = target
        self._columns: list[tuple[int, pa.Array]] = []
        self._hashes: dict[tuple[int, str], tuple[Words, Bools]] = {}
        if len(keys[0]) > _MOST_KEYS:
            return
        for key, path in zip(keys, paths, strict=True):
            is_filtered = properties.get(_ENABLED + ".".join(path)) == "true"
            if is_filtered and len(path) == 1 and _has_plain_bytes(key.type):
                self._columns.append((target.schema.find_field(path[0]).field_id, key))

    def may_have(self, file: LiveFile) -> bool:
        """Returns whether the file's filters admit some key.

        Raises: OSError where the store fails.
        """
        masks = [mask for column in self._columns if (mask := self._mask(file, *column)) is not None]
        return not masks or bool(np.logical_and.reduce(masks).any())

    def _mask(self, file: LiveFile, field_id: int, key: pa.Array) -> Bools | None:
        """Returns per key whether the file may contain it, bool `(n_keys,)`; None without a usable filter."""
        if str(file.description["file-format"]).lower() != "parquet":
            return None
        name = (file.path, field_id)
        buffered = _filters.get(name)
        if buffered is None:
            buffered = _read(self._target, file.path, field_id)
            _filters.put(name, buffered)
        kind, *groups = buffered
        physical = str(kind[0].as_py())
        if not physical:
            return None
        if (field_id, physical) not in self._hashes:
            self._hashes[field_id, physical] = hashes(key, physical)
        words, is_there = self._hashes[field_id, physical]
        found = np.zeros(len(key), np.bool_)
        for blocks in groups:
            found |= is_in(np.asarray(blocks), words)
        return found & is_there


def _read(target: TableTarget, path: str, field_id: int) -> tuple[pa.Array, ...]:
    """Returns the physical type of the file's column with this field id and, per row group, the words of its filter.
    The type is empty where some row group has no filter.
    """
    nothing = (pa.array([""]),)
    with file_io(target).new_input(path).open() as stream:
        footer = pq.read_metadata(stream)
        ids = {int((f.metadata or {}).get(b"PARQUET:field_id", b"-1")): f.name for f in footer.schema.to_arrow_schema()}
        if field_id not in ids:
            return nothing
        kind, groups = "", []
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            columns = (group.column(place) for place in range(group.num_columns))
            column = next((one for one in columns if one.path_in_schema == ids[field_id]), None)
            blocks = _blocks(stream, column) if column is not None else None
            if column is None or blocks is None:
                return nothing
            kind = column.physical_type
            groups.append(pa.array(blocks))
    return (pa.array([kind]), *groups) if groups else nothing


def _blocks(stream: Any, column: Any) -> NDArray[np.uint32] | None:
    """Returns the filter of one column chunk, uint32 words; None without a filter of a supported kind."""
    offset = column.bloom_filter_offset
    if offset is None:
        return None
    stream.seek(offset)
    header = stream.read(_LONGEST_HEADER)
    size, end = 0, 1
    while header[:1] == b"\x15" and end < len(header):
        size |= (header[end] & 0x7F) << (7 * (end - 1))
        end += 1
        if header[end - 1] < 0x80:
            break
    size >>= 1  # Thrift encodes integers as zigzag, and this one is not negative.
    if not size or size % 32 or header[end : end + len(_REST_OF_HEADER)] != _REST_OF_HEADER:
        return None
    stream.seek(offset + end + len(_REST_OF_HEADER))
    payload = stream.read(size)
    return np.frombuffer(payload, "<u4").astype(np.uint32) if len(payload) == size else None


def is_in(blocks: NDArray[np.uint32], words: Words) -> Bools:
    """Returns per hash whether the filter admits its value, bool `(n_hashes,)`."""
    table = blocks.reshape(-1, len(_SALT))
    place = ((words >> np.uint64(32)) * np.uint64(len(table))) >> np.uint64(32)
    low = words.astype(np.uint32)
    bits = (low[:, None] * _SALT[None, :]) >> np.uint32(27)
    return np.asarray(((table[place] >> bits) & np.uint32(1)).all(axis=1), np.bool_)


def hashes(key: pa.Array, physical: str) -> tuple[Words, Bools]:
    """Returns the XXH64 of each value in its encoding for this physical type, and whether a column of this type can
    contain the value.
    """
    is_there = np.asarray(key.is_valid())
    if physical not in _WIDTHS:
        raw = [b"" if value is None else bytes(value) for value in (value.as_buffer() for value in key)]
    else:
        numbers = np.asarray(as_numbers(key).fill_null(0)).astype(np.int64)
        if physical == "INT32":  # Also in a file that is older than the column's wider type.
            is_there = is_there & (numbers >= -(2**31)) & (numbers < 2**31)
        width = _WIDTHS[physical]
        raw = [(number % 2 ** (8 * width)).to_bytes(width, "little") for number in numbers.tolist()]
    return np.array([xxh64_intdigest(value) for value in raw], np.uint64), is_there


def _has_plain_bytes(kind: pa.DataType) -> bool:
    """Returns whether Parquet encodes values of this type unchanged: integers, times, texts and bytes."""
    tests = (pa.types.is_integer, pa.types.is_temporal, pa.types.is_string, pa.types.is_binary)
    return any(test(kind) for test in (*tests, pa.types.is_fixed_size_binary)) and not pa.types.is_decimal(kind)
