"""Digests of records and of rows: sums modulo 2**64 of a hash of each one, whatever their order and their batches.

A row's hash is that of its values by field id: it stays the same when the row is moved to another file, when a column is
renamed, widened or added, and when a reader returns the row. A null counts as no value. The hashes find accidents; whoever
wants to deceive can make others with equal sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from frazil.ledger import MODULUS
from frazil.raw_memory import COMPILED, I32, U8, high64, load8, load64
from frazil.schema.arrow import Ints, field_id_of, one_array

U64 = NDArray[np.uint64]
_K = tuple(
    np.uint64(word)
    for word in (0xA0761D6478BD642F, 0xE7037ED1A0B428DB, 0x8EBC6AF09C88C6E3, 0x589965CC75374CC3, 0x1D8E4E27C47D124F)
)
_K0, _K1, _K2, _K3, _K4 = _K
_ALL_VALID: U8 = np.zeros(0, np.uint8)


def record_hashes(topic: str, columns: Mapping[str, pa.Array]) -> U64:
    """Returns a hash of each record's topic, partition, offset and value, uint64 `(n_records,)`. columns: `partition`,
    `offset` and `value`, as tasks read them.
    """
    values = columns["value"]
    hashes: U64 = np.zeros(len(values), np.uint64)
    places = (np.asarray(columns[name]).astype(np.int64, copy=False) for name in ("partition", "offset"))
    _hash_records(_address(values), _starts_of(values), _validity(values), *places, _seed_of(topic), hashes)
    return hashes


def row_hashes(rows: pa.Table | pa.RecordBatch) -> U64:
    """Returns a hash of each row's values, uint64 `(n_rows,)`. The schema has Iceberg's field ids."""
    hashes: U64 = np.zeros(rows.num_rows, np.uint64)
    for field, column in zip(rows.schema, rows.columns, strict=True):
        array = one_array(column) if isinstance(column, pa.ChunkedArray) else column
        _add_hashes(array, _mixed(field_id_of(field), _K0), hashes)
    _finish(hashes)
    return hashes


def digest_of(hashes: U64) -> int:
    """Returns the sum of hashes, modulo 2**64."""
    return int(np.sum(hashes, dtype=np.uint64))


def _add_hashes(array: pa.Array, seed: np.uint64, hashes: U64) -> None:
    """Adds the hash of each value to the hashes of its row."""
    kind, is_valid = array.type, _validity(array)
    if pa.types.is_struct(kind):
        _add_words(np.ones(len(array), np.int64), is_valid, seed, hashes)
        for field, member in zip(kind, array.flatten(), strict=True):
            _add_hashes(member, _mixed(field_id_of(field), seed), hashes)
    elif pa.types.is_map(kind) or pa.types.is_list(kind):
        is_map = pa.types.is_map(kind)
        parts = [(kind.key_field, array.keys), (kind.item_field, array.items)] if is_map else []
        elements: U64 = np.zeros(len(array.keys if is_map else array.values), np.uint64)
        for field, part in parts or [(kind.value_field, array.values)]:
            _add_hashes(part, _mixed(field_id_of(field), seed), elements)
        _add_lists(elements, np.asarray(array.offsets), is_valid, seed, hashes)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        _add_bytes(_address(array), _starts_of(array), is_valid, seed, hashes)
    elif pa.types.is_fixed_size_binary(kind) or pa.types.is_decimal(kind):
        width = kind.byte_width
        starts = (np.arange(len(array) + 1, dtype=np.int64) + array.offset) * width
        _add_bytes(_address(array, 1), starts, is_valid, seed, hashes)
    else:
        _add_words(_words_of(array), is_valid, seed, hashes)


def _words_of(array: pa.Array) -> Ints:
    """Returns values without parts as numbers, the same for a type and for the wider one that it may become."""
    kind = array.type
    if pa.types.is_floating(kind):
        array = array.cast(pa.float64()).view(pa.int64())
    elif pa.types.is_date32(kind):
        array = array.view(pa.int32()).cast(pa.int64())
    elif pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        array = array.cast(pa.int64())
    else:
        array = array.view(pa.int64())
    raw = array.buffers()[1]
    return np.frombuffer(raw, np.int64)[array.offset : array.offset + len(array)] if raw else np.zeros(0, np.int64)


def _starts_of(array: pa.Array) -> I32:
    """Returns where the bytes of each value begin, int32 `(n_values + 1,)`."""
    if not len(array):
        return np.zeros(1, np.int32)
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)


def _address(array: pa.Array, place: int = 2) -> int:
    raw = array.buffers()[place]
    return raw.address if raw else 0


def _validity(array: pa.Array) -> U8:
    return np.asarray(array.is_valid()).view(np.uint8) if array.null_count else _ALL_VALID


@lru_cache(maxsize=1024)
def _seed_of(topic: str) -> np.uint64:
    return np.uint64(int.from_bytes(blake2b(topic.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little"))


@lru_cache(maxsize=65_536)
def _mixed(field_id: int, seed: np.uint64) -> np.uint64:
    return np.uint64(_multiply(np.uint64(field_id % MODULUS) ^ _K3, seed ^ _K4))


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _multiply(word: np.uint64, other: np.uint64) -> np.uint64:
    """Returns both halves of a product of 128 bits as one word."""
    return (word * other) ^ high64(word, other)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _hash(base: int, i: int, end: int, seed: np.uint64) -> np.uint64:
    """Returns a hash of the bytes from one address to another, sixteen at a time in two halves. The last bytes are read
    together with some before them: a branch for what is left would be guessed wrongly for every other record. base: an
    address from which on everything may be read.
    """
    count = np.uint64(end - i)
    if end - i >= 32:
        other = seed ^ _K2
        while end - i > 32:
            seed = _multiply(load64(i) ^ _K1, load64(i + 8) ^ seed)
            other = _multiply(load64(i + 16) ^ _K3, load64(i + 24) ^ other)
            i += 32
        seed = _multiply(load64(end - 32) ^ _K1, load64(end - 24) ^ seed)
        other = _multiply(load64(end - 16) ^ _K3, load64(end - 8) ^ other)
        return _multiply(_K4 ^ count, seed ^ other)
    if end - i > 16:
        seed = _multiply(load64(i) ^ _K1, load64(i + 8) ^ seed)
        i += 16
    first, second = np.uint64(0), np.uint64(0)
    if end - i >= 8:
        first, second = load64(i), load64(end - 8)
    elif i < end:
        unused = np.uint64(64 - 8 * (end - i))
        if end - 8 >= base:
            first = load64(end - 8) >> unused
        else:
            while i < end:
                end -= 1
                first = (first << np.uint64(8)) | np.uint64(load8(end))
    return _multiply(_K4 ^ count, _multiply(first ^ _K1, second ^ seed))


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _hash_records(
    base: int, starts: I32, is_valid: U8, partitions: Ints, offsets: Ints, seed: np.uint64, hashes: U64
) -> None:
    for n in range(hashes.size):
        place = _multiply(np.uint64(partitions[n]) ^ seed, np.uint64(offsets[n]) ^ _K0)
        if is_valid.size == 0 or is_valid[n]:
            hashes[n] = _hash(base, base + starts[n], base + starts[n + 1], place)
        else:
            hashes[n] = _multiply(place ^ _K2, _K3)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _add_bytes(base: int, starts: Ints, is_valid: U8, seed: np.uint64, hashes: U64) -> None:
    for n in range(hashes.size):
        if is_valid.size == 0 or is_valid[n]:
            hashes[n] += _hash(base, base + starts[n], base + starts[n + 1], seed)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _add_words(words: Ints, is_valid: U8, seed: np.uint64, hashes: U64) -> None:
    other = seed ^ _K4
    for n in range(hashes.size):
        if is_valid.size == 0 or is_valid[n]:
            hashes[n] += _multiply(np.uint64(words[n]) ^ seed, other)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _add_lists(elements: U64, starts: I32, is_valid: U8, seed: np.uint64, hashes: U64) -> None:
    for n in range(hashes.size):
        if is_valid.size == 0 or is_valid[n]:
            mixed = seed
            for place in range(starts[n], starts[n + 1]):
                mixed = _multiply(elements[place] ^ _K1, mixed ^ _K2)
            hashes[n] += _multiply(mixed ^ np.uint64(starts[n + 1] - starts[n]), seed ^ _K3)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _finish(hashes: U64) -> None:
    """Mixes the hash of each row once more, so that values of two rows cannot change places."""
    for n in range(hashes.size):
        hashes[n] = _multiply(hashes[n] ^ _K0, _K1)
