"""Kafka's record batches (version 2) to columns, by compiled loops: no object is made for a record.

Source: Kafka's message format, "Record Batch" and "Record"; integers of headers are big-endian, those of records are
zigzag varints.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from frazil.raw_memory import COMPILED, copy_bytes, load8, load64, store8

I64 = NDArray[np.int64]

HEADER_BYTES = 61
"""The bytes of a batch before its records."""
LENGTH_BYTES = 12
"""The bytes of a batch before what its length counts."""
CRC_START = 21
"""Where the bytes begin that the checksum is of."""
(BEGIN, END, BASE, LAST, FIRST_MS, MOST_MS, COUNT, ATTRIBUTES, PRODUCER, CRC, FORMAT, EPOCH, RAW, RAW_END) = range(14)
"""The columns of a table of batches: where a batch begins and ends in its answer, its first and last offset, the first and
the latest timestamp (ms), the number of records, its attributes, the producer's id, the checksum, the version of the
format, the leader's epoch; and, set once they are decompressed, the addresses of its records' first byte and of the byte
after them.
"""
FIELDS = 14
CODEC, APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
"""Bits of the attributes."""
DONE, FULL, NEEDS_BYTES, DAMAGED = 0, 1, 2, 3
"""How `read_records` ends: all batches are read; no room for another record; no room for the bytes of the next one; a
record that is none.
"""
(ROW, NUMBER, AT, ROWS, LAST_DELTA, VALUE_NEEDS, KEY_NEEDS, HEADERS_NEED, NAMES_NEED) = range(9)
"""The state of `read_records`: the row of the batch to read, the number of the next record in it, that record's address (0
at the beginning), the rows that the columns have, the record's offset before it, less the batch's; and what the next record
needs: bytes of its value, its key and its headers, and the number of its headers.
"""
STATES = 9
_NONE = -1
_LEAST_BATCH_BYTES, _LEAST_MESSAGE_BYTES = 49, 14


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _big(address: int, size: int) -> int:
    number = 0
    for i in range(size):
        number = (number << 8) | load8(address + i)
    if size < 8 and number >> (8 * size - 1):
        number -= 1 << (8 * size)
    return number


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def find_batches(base: int, start: int, end: int, table: I64) -> tuple[int, int, bool]:
    """Fills a row of `table` for each whole batch in the bytes from `start` up to `end`, and returns their number, where
    the rest begins, and whether that is damaged: it has a length that no batch has. A row of another format (version 0 or 1,
    or an unknown one) has only its place, its offset as BASE and LAST, and FORMAT.

    base: the address of the answer. table: int64 of shape (n_most, FIELDS).
    """
    position, row = start, 0
    while position + 17 <= end and row < table.shape[0]:
        p = base + position
        size = _big(p + 8, 4)
        version = load8(p + 16)
        if size < (_LEAST_BATCH_BYTES if version == 2 else _LEAST_MESSAGE_BYTES):
            return row, position, True
        if position + LENGTH_BYTES + size > end:
            break
        first = _big(p, 8)
        table[row, BEGIN], table[row, END] = position, position + LENGTH_BYTES + size
        table[row, BASE], table[row, LAST], table[row, FORMAT] = first, first, version
        if version == 2:
            table[row, EPOCH] = _big(p + 12, 4)
            table[row, CRC] = _big(p + 17, 4) & 0xFFFFFFFF
            table[row, ATTRIBUTES] = _big(p + 21, 2)
            table[row, LAST] = first + _big(p + 23, 4)
            table[row, FIRST_MS] = _big(p + 27, 8)
            table[row, MOST_MS] = _big(p + 35, 8)
            table[row, PRODUCER] = _big(p + 43, 8)
            table[row, COUNT] = _big(p + 57, 4)
        position += LENGTH_BYTES + size
        row += 1
    return row, position, False


def _checksums() -> NDArray[np.uint32]:
    """Returns the tables of CRC32C by which eight bytes are taken at a time."""
    tables = np.zeros((8, 256), np.uint32)
    tables[0] = np.arange(256)
    for _ in range(8):
        tables[0] = (tables[0] >> 1) ^ np.where(tables[0] & 1, np.uint32(0x82F63B78), np.uint32(0))
    for n in range(1, 8):
        tables[n] = (tables[n - 1] >> 8) ^ tables[0][tables[n - 1] & 0xFF]
    return tables


CHECKSUMS = _checksums()


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def wrong_checksum(base: int, table: I64, checksums: NDArray[np.uint32], short: int) -> int:
    """Returns the row of the first batch with fewer bytes than `short` whose checksum is another one; -1 for none.

    base: the address of the answer. checksums: CHECKSUMS.
    """
    low = np.uint64(0xFF)
    for row in range(table.shape[0]):
        if table[row, FORMAT] != 2 or table[row, END] - table[row, BEGIN] >= short:
            continue
        address, end = base + table[row, BEGIN] + CRC_START, base + table[row, END]
        crc = np.uint64(0xFFFFFFFF)
        while address + 8 <= end:
            word = load64(address) ^ crc
            crc = np.uint64(0)
            for n in range(8):
                crc ^= np.uint64(checksums[7 - n, (word >> np.uint64(8 * n)) & low])
            address += 8
        while address < end:
            crc = np.uint64(checksums[0, (crc ^ np.uint64(load8(address))) & low]) ^ (crc >> np.uint64(8))
            address += 1
        if np.int64(crc ^ np.uint64(0xFFFFFFFF)) != table[row, CRC]:
            return row
    return -1


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _varint(address: int, end: int) -> tuple[int, int]:
    """Returns the number and the address after it; 0 as the address where there is none."""
    number, shift = np.uint64(0), 0
    while address < end and shift < 70:
        byte = load8(address)
        address += 1
        number |= np.uint64(byte & 0x7F) << np.uint64(shift)
        if byte < 0x80:
            return int(np.int64(number >> np.uint64(1)) ^ -np.int64(number & np.uint64(1))), address
        shift += 7
    return 0, 0


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def read_records(
    table: I64,
    state: I64,
    start: int,
    end: int,
    most_value: int,
    values: I64,
    keys: I64,
    names: I64,
    contents: I64,
    wanted_names: I64,
    lists: NDArray[np.int32],
    offsets: I64,
    times: I64,
    left_out: I64,
) -> int:
    """Appends the records of batches with offsets from `start` up to `end`, and returns one of DONE, FULL, NEEDS_BYTES and
    DAMAGED.

    table: the batches, with RAW and RAW_END; those with RAW 0 are left out. state: int64 of shape (STATES,), zeros at the
    beginning but for ROWS. most_value: a value with more bytes is null, and `left_out` has its size.
    values, keys, names, contents: byte columns, int64 of shape (7,): the address of its data, how many bytes that has and
    may have, the address of its int32 offsets, the address of its flags (a byte for each entry, 1 for null), and how many
    entries it has and may have. Those with an address of offsets of 0 are not wanted; headers are none where `names` is not.
    wanted_names: the addresses and lengths of the names of headers that are kept, in turn; all are where it is empty.
    lists: int32 of shape (n_rows + 1,): where each record's headers end in `names`. offsets, times, left_out: int64 of shape
    (n_rows,).
    """
    row, number, address, count, last_delta = state[ROW], state[NUMBER], state[AT], state[ROWS], state[LAST_DELTA]
    most_rows = offsets.shape[0]
    has_values, has_keys, has_headers = values[3] != 0, keys[3] != 0, names[3] != 0
    n_wanted = wanted_names.shape[0]
    while row < table.shape[0]:
        raw, raw_end, of_batch = table[row, RAW], table[row, RAW_END], table[row, COUNT]
        if raw == 0:
            row, number, address = row + 1, 0, 0
            continue
        state[ROW] = row
        if address == 0:
            address, last_delta = raw, _NONE
            if of_batch < 0:
                return DAMAGED
        base, first_ms, most_ms = table[row, BASE], table[row, FIRST_MS], table[row, MOST_MS]
        of_append = table[row, ATTRIBUTES] & APPEND_TIME
        most_delta = table[row, LAST] - base
        while number < of_batch:
            if count >= most_rows:
                state[NUMBER], state[AT], state[ROWS], state[LAST_DELTA] = number, address, count, last_delta
                return FULL
            size, p = _varint(address, raw_end)
            if p == 0 or size < 6 or size > raw_end - p:
                return DAMAGED
            stop = p + size
            delta_ms, p = _varint(p + 1, stop)
            if p == 0:
                return DAMAGED
            delta, p = _varint(p, stop)
            if p == 0 or delta <= last_delta or delta > most_delta:
                return DAMAGED
            offset = base + delta
            if offset < start:
                number, address, last_delta = number + 1, stop, delta
                continue
            if offset >= end:
                number, address = of_batch, raw_end
                break
            key_size, p = _varint(p, stop)
            if p == 0 or key_size < _NONE or key_size > stop - p:
                return DAMAGED
            key = p
            p += max(key_size, 0)
            value_size, p = _varint(p, stop)
            if p == 0 or value_size < _NONE or value_size > stop - p:
                return DAMAGED
            value = p
            p += max(value_size, 0)
            n_headers, p = _varint(p, stop)
            if p == 0 or n_headers < 0 or n_headers > (stop - p) >> 1:
                return DAMAGED
            kept = value_size if value_size <= most_value else _NONE
            if (
                (has_values and values[1] + kept > values[2])
                or (has_keys and keys[1] + key_size > keys[2])
                or (
                    has_headers
                    and n_headers
                    and (
                        names[1] + stop - p > names[2]
                        or contents[1] + stop - p > contents[2]
                        or names[5] + n_headers > names[6]
                    )
                )
            ):
                state[NUMBER], state[AT], state[ROWS], state[LAST_DELTA] = number, address, count, last_delta
                state[VALUE_NEEDS], state[KEY_NEEDS] = max(kept, 0), max(key_size, 0)
                state[HEADERS_NEED], state[NAMES_NEED] = stop - p, n_headers
                return NEEDS_BYTES
            if has_headers:
                for _ in range(n_headers):
                    name_size, p = _varint(p, stop)
                    if p == 0 or name_size < 0 or name_size > stop - p:
                        return DAMAGED
                    name = p
                    p += name_size
                    content_size, p = _varint(p, stop)
                    if p == 0 or content_size < _NONE or content_size > stop - p:
                        return DAMAGED
                    content = p
                    p += max(content_size, 0)
                    if n_wanted and not _is_wanted(wanted_names, name, name_size):
                        continue
                    _append(names, name, name_size)
                    _append(contents, content, content_size)
                lists[count + 1] = names[5]
            if p != stop and (has_headers or not n_headers):
                return DAMAGED
            if has_values:
                _append(values, value, kept)
                left_out[count] = value_size if kept < value_size else 0
            if has_keys:
                _append(keys, key, key_size)
            offsets[count] = offset
            times[count] = most_ms if of_append else first_ms + delta_ms
            count += 1
            number, address, last_delta = number + 1, stop, delta
        if address != raw_end:
            return DAMAGED  # There are more records than their number.
        row, number, address = row + 1, 0, 0
    state[ROW], state[NUMBER], state[AT], state[ROWS] = row, 0, 0, count
    return DONE


@njit(inline="always", **COMPILED)  # type: ignore[untyped-decorator]
def _is_wanted(wanted_names: Any, name: int, size: int) -> bool:
    is_wanted = False
    for n in range(0, wanted_names.shape[0], 2):
        if not is_wanted and wanted_names[n + 1] == size:
            is_wanted = True
            for i in range(size):
                if load8(wanted_names[n] + i) != load8(name + i):
                    is_wanted = False
                    break
    return is_wanted


@njit(inline="always", **COMPILED)  # type: ignore[untyped-decorator]
def _append(column: Any, source: int, size: int) -> None:
    """Appends bytes to a byte column with room for them; null where the size is -1."""
    entry, end = column[5], column[1]
    if size > 0:
        copy_bytes(column[0] + end, source, size)
        end += size
        column[1] = end
    store8(column[4] + entry, 1 if size < 0 else 0)
    address = column[3] + 4 * (entry + 1)
    for i in range(4):
        store8(address + i, end >> (8 * i))
    column[5] = entry + 1
