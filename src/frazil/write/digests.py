"""Digests of records and of rows: sums modulo 2**64 of a hash of each one, whatever their order and their batches.

A row's hash is that of its values by field id: it stays the same when the row is moved to another file, when a column is
renamed, widened or added, and when a reader returns the row. A null counts as no value. The keys are constants, so the
hashes find accidents alone: whoever wants to deceive can make others with equal sums.

The hash of bytes takes 64 of them at a time, in the vectors of the processor: half a clock for each 8 bytes. Each word of 8
bytes is added to a product of its halves, which a key hides that differs from word to word (the hash NH of UMAC, RFC 4418,
section 5.2, as XXH3 has it). The loops over words are such that the compiler takes eight at a time. Another hash needs
another `HASH_VERSION` of ledgers.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from frazil.ledger import MODULUS
from frazil.raw_memory import COMPILED, I32, U8, high64, load8, load64
from frazil.schema.arrow import Ints, field_id_of

STRIPE = 64
SHORT = 16
"""Bytes that two words have."""
_WORD = ir.IntType(64)
_VECTOR, _ENDS = ir.VectorType(_WORD, 8), ir.VectorType(_WORD, 4)
_PLACE = ir.IntType(32)
_KEYS = (
    0xA0761D6478BD642F, 0xE7037ED1A0B428DB, 0x8EBC6AF09C88C6E3, 0x589965CC75374CC3,
    0x1D8E4E27C47D124F, 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB,
)  # fmt: skip
KEYS = tuple(np.uint64(key) for key in _KEYS)
_HALF, _THIRD = np.uint64(32), np.uint64(17)
FIRST_MASKS = np.array([2 ** (8 * min(size, 8)) - 1 for size in range(SHORT + 1)], np.uint64)
SECOND_MASKS = np.array([2 ** (8 * max(size - 8, 0)) - 1 for size in range(SHORT + 1)], np.uint64)
"""Of the words at a value's first and ninth byte, the bits that are its own, by its size."""


def _constant(words: Any) -> Any:
    return ir.Constant(_VECTOR, [ir.Constant(_WORD, word % 2**64) for word in words])


def _keyed(builder: Any, seed: Any) -> Any:
    """Returns the keys of eight words."""
    nothing, zeros = ir.Constant(_VECTOR, ir.Undefined), ir.Constant(ir.VectorType(_PLACE, 8), [0] * 8)
    spread = builder.insert_element(nothing, seed, ir.Constant(_PLACE, 0))
    return builder.xor(builder.shuffle_vector(spread, nothing, zeros), _constant(_KEYS))


def _added(builder: Any, words: Any, keys: Any) -> Any:
    """Returns eight words, each added to the product of its halves."""
    hidden = builder.xor(words, keys)
    halves = builder.and_(hidden, _constant([2**32 - 1] * 8)), builder.lshr(hidden, _constant([32] * 8))
    return builder.add(builder.mul(*halves), words)


def _load(builder: Any, address: Any, kind: Any) -> Any:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)


def _reduced(builder: Any, sums: Any) -> Any:
    sum_of = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(_WORD, [_VECTOR]), "llvm.vector.reduce.add.v8i64"
    )
    return builder.call(sum_of, [sums])


@intrinsic  # type: ignore[untyped-decorator]
def _hash_ends(typingctx: Any, start: Any, end: Any, seed: Any) -> Any:
    """Returns the hash of 32 to 64 bytes: of the first 32 and the last 32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first = _load(builder, args[0], _ENDS)
        last = _load(builder, builder.sub(args[1], ir.Constant(_WORD, STRIPE // 2)), _ENDS)
        both = builder.shuffle_vector(first, last, ir.Constant(ir.VectorType(_PLACE, 8), list(range(8))))
        return _reduced(builder, _added(builder, both, _keyed(builder, args[2])))

    return types.uint64(types.int64, types.int64, types.uint64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def _hash_stripes(typingctx: Any, start: Any, end: Any, seed: Any) -> Any:
    """Returns the hash of 64 bytes or more. The last 64 are taken together, whatever was taken before."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start, end, seed = args
        last = builder.sub(end, ir.Constant(_WORD, STRIPE))
        first_keys, entry = _keyed(builder, seed), builder.block
        head, body, done = (builder.append_basic_block(name) for name in ("stripes", "stripe", "last"))
        builder.branch(head)
        builder.position_at_end(head)
        address, keys, sums = builder.phi(_WORD), builder.phi(_VECTOR), builder.phi(_VECTOR)
        builder.cbranch(builder.icmp_signed("<", address, last), body, done)
        builder.position_at_end(body)
        more = builder.add(sums, _added(builder, _load(builder, address, _VECTOR), keys))
        next_keys = builder.add(keys, _constant([key * _KEYS[5] | 1 for key in _KEYS]))
        next_address = builder.add(address, ir.Constant(_WORD, STRIPE))
        builder.branch(head)
        begins = (start, next_address), (first_keys, next_keys), (_constant([0] * 8), more)
        for value, (begin, following) in zip((address, keys, sums), begins, strict=True):
            value.add_incoming(begin, entry)
            value.add_incoming(following, body)
        builder.position_at_end(done)
        return _reduced(builder, builder.add(sums, _added(builder, _load(builder, last, _VECTOR), keys)))

    return types.uint64(types.int64, types.int64, types.uint64), codegen


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def mixed(word: np.uint64, seed: np.uint64, factor: np.uint64) -> np.uint64:
    """Returns a word for each one, another for another. factor: an odd number.

    With two shifts, few bits that differ leave no difference in the highest bit alone. No factor has an effect on that, and
    it would cancel the difference of another column.
    """
    word ^= seed
    return (word ^ (word >> _THIRD) ^ (word >> _HALF)) * factor


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def factor_of(seed: np.uint64, number: int) -> np.uint64:
    """Returns one of eight odd numbers."""
    return (seed ^ KEYS[number]) | np.uint64(1)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def hash_middle(start: int, end: int, seed: np.uint64) -> np.uint64:
    """Returns the hash of 32 bytes or more, and less than 64."""
    words: np.uint64 = _hash_ends(start, end, seed)
    words += np.uint64(end - start) * factor_of(seed, 1)
    return words


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def hash_bytes(start: int, end: int, limit: int, seed: np.uint64) -> np.uint64:
    """Returns a hash of the bytes from one address to another. limit: the address from which on nothing may be read."""
    size = end - start
    words: np.uint64
    if size >= STRIPE:
        words = _hash_stripes(start, end, seed)
    elif size >= STRIPE // 2:
        words = _hash_ends(start, end, seed)
    elif size > SHORT:
        words = mixed(load64(start), seed, factor_of(seed, 4)) + mixed(load64(start + 8), seed, factor_of(seed, 2))
        words += mixed(load64(end - 16), seed, factor_of(seed, 5)) + mixed(load64(end - 8), seed, factor_of(seed, 6))
    else:
        first, second = np.uint64(0), np.uint64(0)
        if start + SHORT <= limit:
            first, second = load64(start) & FIRST_MASKS[size], load64(start + 8) & SECOND_MASKS[size]
        else:
            for n in range(size):
                byte = np.uint64(load8(start + n)) << np.uint64(8 * (n & 7))
                first, second = (first | byte, second) if n < 8 else (first, second | byte)
        words = mixed(first, seed, factor_of(seed, 4)) + mixed(second, seed, factor_of(seed, 2))
    words += np.uint64(size) * factor_of(seed, 1)
    return words


U64 = NDArray[np.uint64]
_K0, _K1, _K2, _K3, _K4, *_ = KEYS
_HALF = np.uint64(32)
_ALL_VALID: U8 = np.zeros(0, np.uint8)


def record_hashes(topic: str, columns: Mapping[str, pa.Array]) -> U64:
    """Returns a hash of each record's topic, partition, offset and value, uint64 `(n_records,)`. columns: `partition`,
    `offset` and `value`, as tasks read them.
    """
    values = columns["value"]
    hashes: U64 = np.zeros(len(values), np.uint64)
    places = (np.asarray(columns[name]).astype(np.int64, copy=False) for name in ("partition", "offset"))
    _hash_places(*places, _seed_of(topic), hashes)
    _hash_values(*_bytes_of(values), _validity(values), hashes)
    _finish(hashes)
    return hashes


def row_hashes(rows: pa.Table | pa.RecordBatch) -> U64:
    """Returns a hash of each row's values, uint64 `(n_rows,)`. The schema has Iceberg's field ids."""
    hashes: U64 = np.zeros(rows.num_rows, np.uint64)
    for field, column in zip(rows.schema, rows.columns, strict=True):
        begin = 0
        for array in column.chunks if isinstance(column, pa.ChunkedArray) else (column,):
            end = begin + len(array)
            _add_hashes(array, field.type, _seed_below(field_id_of(field), _K0), hashes[begin:end])
            begin = end
    _finish(hashes)
    return hashes


def digest_of(hashes: U64) -> int:
    """Returns the sum of hashes, modulo 2**64."""
    return int(_sum(hashes)) if hashes.size else 0


def warm_up() -> None:
    """Loads the compiled loops; compiles those that are not on disk."""
    columns = {"partition": pa.array([0], pa.int32()), "offset": pa.array([0]), "value": pa.array([b"{}"])}
    digest_of(record_hashes("", columns))
    kinds = {pa.int64(): 1, pa.int32(): 1, pa.bool_(): True, pa.string(): "a", pa.list_(pa.int64()): [1]}
    rows = [pa.array([value], kind) for kind, value in kinds.items()]
    fields = [pa.field(f"c{n}", of.type, metadata={b"PARQUET:field_id": b"%d" % n}) for n, of in enumerate(rows, 1)]
    row_hashes(pa.RecordBatch.from_arrays(rows, schema=pa.schema(fields)))


def _add_hashes(array: pa.Array, kind: pa.DataType, seed: np.uint64, hashes: U64) -> None:
    """Adds the hash of each value to the hashes of its row. kind: the array's type with the field ids of its parts, which
    the type of a map that Arrow has built itself lacks.
    """
    if pa.types.is_dictionary(kind):
        array, kind = array.dictionary_decode(), kind.value_type
    is_valid = _validity(array)
    if pa.types.is_struct(kind):
        _add_words(np.ones(len(array), np.uint8), is_valid, seed, hashes)
        for field, member in zip(kind, array.flatten(), strict=True):
            _add_hashes(member, field.type, _seed_below(field_id_of(field), seed), hashes)
    elif pa.types.is_map(kind) or pa.types.is_list(kind):
        is_map = pa.types.is_map(kind)
        parts = [(kind.key_field, array.keys), (kind.item_field, array.items)] if is_map else []
        elements: U64 = np.zeros(len(array.keys if is_map else array.values), np.uint64)
        for field, part in parts or [(kind.value_field, array.values)]:
            _add_hashes(part, field.type, _seed_below(field_id_of(field), seed), elements)
        _add_lists(elements, np.asarray(array.offsets), is_valid, seed, hashes)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        _add_bytes(*_bytes_of(array), is_valid, seed, hashes)
    elif pa.types.is_fixed_size_binary(kind) or pa.types.is_decimal(kind):
        raw = array.buffers()[1]
        starts = (np.arange(len(array) + 1, dtype=np.int64) + array.offset) * kind.byte_width
        _add_bytes(raw.address if raw else 0, raw.size if raw else 0, starts, is_valid, seed, hashes)
    else:
        _add_words(_words_of(array), is_valid, seed, hashes)


def _words_of(array: pa.Array) -> NDArray[Any]:
    """Returns values without parts as whole numbers, the same for a type and for the wider one that it may become."""
    kind = array.type
    if pa.types.is_floating(kind):
        array = array.cast(pa.float64())
    raw, count = array.buffers()[1], len(array)
    if raw is None:
        return np.zeros(0, np.int64)
    if pa.types.is_boolean(kind):
        bits = np.frombuffer(raw, np.uint8)[array.offset // 8 : (array.offset + count + 7) // 8]
        return np.unpackbits(bits, bitorder="little")[array.offset % 8 :][:count]
    numbers = np.dtype(f"i{array.type.bit_width // 8}")
    return np.frombuffer(raw, numbers, count, array.offset * numbers.itemsize)


def _bytes_of(array: pa.Array) -> tuple[int, int, I32]:
    """Returns the address of the bytes of all values, how many may be read from there, and where those of each value begin,
    int32 `(n_values + 1,)`.
    """
    _, starts, raw = array.buffers()
    if not len(array):
        return 0, 0, np.zeros(1, np.int32)
    begins = np.frombuffer(starts, np.int32, len(array) + 1, array.offset * 4)
    return (raw.address, raw.size, begins) if raw else (0, 0, begins)


def _validity(array: pa.Array) -> U8:
    return np.asarray(array.is_valid()).view(np.uint8) if array.null_count else _ALL_VALID


@lru_cache(maxsize=1024)
def _seed_of(topic: str) -> np.uint64:
    return np.uint64(int.from_bytes(blake2b(topic.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little"))


@lru_cache(maxsize=65_536)
def _seed_below(field_id: int, seed: np.uint64) -> np.uint64:
    return np.uint64(_multiply(np.uint64(field_id % MODULUS) ^ _K3, seed ^ _K4))


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _multiply(word: np.uint64, other: np.uint64) -> np.uint64:
    """Returns both halves of a product of 128 bits as one word."""
    return (word * other) ^ high64(word, other)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _hash_places(partitions: Ints, offsets: Ints, seed: np.uint64, hashes: U64) -> None:
    for n in range(hashes.size):
        hashes[n] = _multiply(np.uint64(partitions[n]) ^ seed, np.uint64(offsets[n]) ^ _K0)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _hash_values(base: int, size: int, starts: I32, is_valid: U8, hashes: U64) -> None:
    """Adds the hash of each value to that of its place, which keys it."""
    for n in range(hashes.size):
        if is_valid.size == 0 or is_valid[n]:
            hashes[n] += hash_bytes(base + starts[n], base + starts[n + 1], base + size, hashes[n])
        else:
            hashes[n] ^= _K2


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _add_bytes(base: int, size: int, starts: Ints, is_valid: U8, seed: np.uint64, hashes: U64) -> None:
    """Adds the hashes of bytes. Values that all have one or two words, or 32 to 64 bytes, take loops without a branch for
    their sizes, which would be guessed wrongly for every other value.
    """
    least, most = STRIPE, 0
    for n in range(hashes.size):
        count = int(starts[n + 1] - starts[n])
        least, most = min(least, count), max(most, count)
    quick = hashes.size if is_valid.size == 0 and (most <= SHORT or (least >= STRIPE // 2 and most < STRIPE)) else 0
    while most <= SHORT and quick and starts[quick - 1] + SHORT > size:
        quick -= 1  # Two words may not be read there.
    if most <= SHORT:
        _add_short(base, starts, most <= 8, seed, hashes[:quick])
    else:
        for n in range(quick):
            hashes[n] += hash_middle(base + starts[n], base + starts[n + 1], seed)
    for n in range(quick, hashes.size):
        if is_valid.size == 0 or is_valid[n]:
            hashes[n] += hash_bytes(base + starts[n], base + starts[n + 1], base + size, seed)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _add_short(base: int, starts: Ints, has_one: bool, seed: np.uint64, hashes: U64) -> None:
    """Adds the hashes of values of up to 16 bytes, or 8 where `has_one`."""
    of_first, of_second, of_size = factor_of(seed, 4), factor_of(seed, 2), factor_of(seed, 1)
    nothing = mixed(np.uint64(0), seed, of_second)
    if has_one:
        for n in range(hashes.size):
            place, count = base + starts[n], starts[n + 1] - starts[n]
            first = mixed(load64(place) & FIRST_MASKS[count], seed, of_first)
            hashes[n] += first + nothing + np.uint64(count) * of_size
    else:
        for n in range(hashes.size):
            place, count = base + starts[n], starts[n + 1] - starts[n]
            first = mixed(load64(place) & FIRST_MASKS[count], seed, of_first)
            second = mixed(load64(place + 8) & SECOND_MASKS[count], seed, of_second)
            hashes[n] += first + second + np.uint64(count) * of_size


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _add_words(words: Any, is_valid: U8, seed: np.uint64, hashes: U64) -> None:
    factor = factor_of(seed, 4)
    if is_valid.size == 0:
        for n in range(hashes.size):
            hashes[n] += mixed(np.uint64(words[n]), seed, factor)
    else:
        for n in range(hashes.size):
            hashes[n] += mixed(np.uint64(words[n]), seed, factor) * np.uint64(is_valid[n])


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _add_lists(elements: U64, starts: I32, is_valid: U8, seed: np.uint64, hashes: U64) -> None:
    for n in range(hashes.size):
        if is_valid.size == 0 or is_valid[n]:
            chain = seed
            for place in range(starts[n], starts[n + 1]):
                chain = _multiply(elements[place] ^ _K1, chain ^ _K2)
            hashes[n] += _multiply(chain ^ np.uint64(starts[n + 1] - starts[n]), seed ^ _K3)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _finish(hashes: U64) -> None:
    """Mixes each hash once more, so that values of two rows cannot change places."""
    for n in range(hashes.size):
        word = hashes[n] ^ _K0
        word = (word ^ (word >> _HALF)) * _K1
        word = (word ^ (word >> _HALF)) * _K3
        hashes[n] = word ^ (word >> _HALF)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _sum(hashes: U64) -> np.uint64:
    total = np.uint64(0)
    for n in range(hashes.size):
        total += hashes[n]
    return total
