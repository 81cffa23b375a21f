"""Records in memory between pages that nobody may touch: a reader that goes one byte too far dies on the spot.

A format is a line in FORMATS: good records, what is read of records in such memory, and a reading by other code.
"""

from __future__ import annotations

import ctypes
import json
import mmap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from frazil.decode.columns import Bodies
from frazil.decode.json.grammar import MAX_DEPTH
from frazil.decode.json.records import decode_json
from frazil.decode.settings import Envelope, Reading
from frazil.ingest.tasks.task import read_records
from tests.fixtures.chance import Chance
from tests.needs import cases, has_package
from tests.unit.decode.avro_bodies import plain as plain_avro
from tests.unit.decode.avro_bodies import read as read_avro
from tests.unit.decode.avro_bodies import reader_of as avro_reader_of
from tests.unit.decode.avro_strict import Refused, Strict
from tests.unit.decode.columns import fields_of
from tests.unit.decode.hostile import mutate, worlds
from tests.unit.ingest.targets import target_of

if has_package("protobuf"):
    from packages.protobuf.tests.unit.protobuf_chance import fill
    from packages.protobuf.tests.unit.protobuf_rows import NoRowError, plain, row_of
    from packages.protobuf.tests.unit.protobuf_schemas import SHOP, class_of, fault_of, rows_of
    from packages.protobuf.tests.unit.protobuf_schemas import read as read_protobuf
    from packages.protobuf.tests.unit.protobuf_schemas import reader_of as protobuf_reader_of

PAGE = mmap.PAGESIZE
REFUSED = "refused"
UNKNOWN = "unknown"
"""The other reading does not say: nothing is compared."""
MOST_CHARACTERS = 36
"""Of numbers in columns of decimals that are compared; longer ones have tests of their own."""
_NO_ACCESS, _BOTH = 0, 3
_NOWHERE = Path("nowhere")
_LIBC = ctypes.CDLL(None, use_errno=True)
COLUMNS = {"id": "long", "d": "decimal(9,2)", "e": "decimal(38,10)", "t": "string", "tags": "list<long>"}


class Guarded:
    """Memory for records, each of which ends where a page begins that kills whoever touches it."""

    def __init__(self, sizes: Sequence[int]) -> None:
        pages = [-(-max(1, size) // PAGE) for size in sizes]
        self._memory = mmap.mmap(-1, (sum(pages) + len(pages) + 1) * PAGE)
        self.buffer = np.frombuffer(self._memory, np.uint8)
        self._base = int(self.buffer.ctypes.data)
        self.ends = [int(end) for end in np.cumsum([count + 1 for count in pages]) * PAGE]
        self._guards = [0, *self.ends]
        self._protect(_NO_ACCESS)

    def put(self, values: Sequence[bytes]) -> tuple[list[int], list[int]]:
        """Writes the records: their first bytes, and the bytes after their last."""
        starts = [end - len(value) for end, value in zip(self.ends, values, strict=True)]
        for start, end, value in zip(starts, self.ends, values, strict=True):
            self.buffer[start:end] = np.frombuffer(value, np.uint8)
        return starts, self.ends

    def free(self) -> None:
        """Makes the memory ordinary again."""
        self._protect(_BOTH)

    def _protect(self, how: int) -> None:
        for at in self._guards:
            assert _LIBC.mprotect(ctypes.c_void_p(self._base + at), ctypes.c_size_t(PAGE), how) == 0


def guarded_bodies(values: Sequence[bytes]) -> tuple[Bodies, Guarded]:
    """Each body before a page of its own."""
    memory = Guarded([len(value) for value in values])
    starts, ends = memory.put(values)
    return Bodies(memory.buffer, np.array(starts, np.int32), np.array(ends, np.int32)), memory


def joined_bodies(values: Sequence[bytes]) -> tuple[Bodies, Guarded]:
    """The bodies side by side in one buffer, of which every byte may be read; the last one before such a page."""
    array, memory = guarded_array(values)
    offsets = np.frombuffer(array.buffers()[1], np.int32)
    [end] = memory.ends
    buffer = memory.buffer[end - int(offsets[-1]) : end]
    return Bodies(buffer, offsets[:-1].copy(), offsets[1:].copy()), memory


def guarded_array(values: Sequence[bytes]) -> tuple[pa.BinaryArray, Guarded]:
    """The values side by side, the last one before such a page."""
    whole = b"".join(values)
    memory = Guarded([len(whole)])
    [start], [end] = memory.put([whole])
    offsets = np.cumsum([0, *(len(value) for value in values)]).astype(np.int32)
    address = int(memory.buffer.ctypes.data) + start
    held = pa.foreign_buffer(address, end - start, memory.buffer)
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), held]), memory


@dataclass(frozen=True)
class Format:
    """values: good records. read: what is made of records in guarded memory, as text. reference: the same by other code.
    may_refuse: whether a record may be refused that the other code reads.
    """

    values: Sequence[bytes]
    read: Callable[[Sequence[bytes]], list[str]]
    reference: Callable[[bytes], str]
    may_refuse: Callable[[bytes], bool] = lambda _: False


def strike(one: Format, chance: Chance, count: int) -> int:
    """Reads so many damaged records and compares; how many of them were rows."""
    values = [mutate(chance.one_of(one.values), one.values, chance) or b"" for _ in range(count)]
    found = one.read(values)
    expected = [one.reference(value) for value in values]
    wrong = [
        (value, mine, other)
        for value, mine, other in zip(values, found, expected, strict=True)
        if other not in (mine, UNKNOWN) and not (mine == REFUSED and one.may_refuse(value))
    ]
    assert not wrong, wrong[0]
    return sum(mine != REFUSED for mine in found)


# ---- Avro and Protobuf


def _avro_schema() -> Any:
    return json.loads(dict(worlds()["avro"].reading.schemas)["1"].text)


def _read_avro(values: Sequence[bytes]) -> list[str]:
    bodies, memory = guarded_bodies(values)
    columns = read_avro(_avro_schema(), bodies)
    memory.free()
    names = [field.name for field in avro_reader_of(_avro_schema()).struct.fields]
    return [
        REFUSED if fault else repr({name: plain_avro(a[row]) for name, a in zip(names, columns.arrays, strict=True)})
        for row, fault in enumerate(columns.fault.tolist())
    ]


def _avro_reference(value: bytes) -> str:
    try:
        return repr(Strict(_avro_schema(), value).row())
    except Refused:
        return REFUSED


def _protobuf_values() -> list[bytes]:
    chance, values = Chance(1), []
    for share in (0.1, 0.5, 0.9) * 8:
        message = class_of(SHOP, "shop.Order")()
        fill(message, chance, share)
        values.append(message.SerializePartialToString())
    return values


def _read_protobuf(values: Sequence[bytes]) -> list[str]:
    reader = protobuf_reader_of(SHOP, "shop.Order")
    bodies, memory = joined_bodies(values)
    columns = read_protobuf(reader, bodies)
    memory.free()
    return [
        REFUSED if fault_of(columns, n) is not None else repr(plain(row))
        for n, row in enumerate(rows_of(reader, columns))
    ]


def _protobuf_reference(value: bytes) -> str:
    try:
        return repr(plain(row_of(SHOP, "shop.Order", value)))
    except (DecodeError, NoRowError, UnicodeDecodeError):
        return REFUSED


def _has_wide_varint(value: bytes) -> bool:
    """Whether ten bytes anywhere might be a number of more than 64 bits: Protobuf's own parser cuts what is too much off."""
    run = 0
    for byte in value:
        if run == 9 and 1 < byte < 0x80:
            return True
        run = run + 1 if byte >= 0x80 else 0
    return False


def _may_refuse(value: bytes) -> bool:
    """Protobuf's own parser does not look at the numbers of fields inside of groups that it does not know."""
    bodies, memory = joined_bodies([value])
    fault = fault_of(read_protobuf(protobuf_reader_of(SHOP, "shop.Order"), bodies), 0)
    memory.free()
    return _has_wide_varint(value) or (fault is not None and fault.message.startswith("a field has the number 0"))


# ---- JSON, and envelopes in it


def _json_values() -> list[bytes]:
    numbers = ["0", "1.5", "-12.25", "9999999.99", "1e3", "12345678901234567890.5", "-0.000001", "1E-2"]
    return [
        f'{{"id": {n * 7919 - 40000}, "d": {numbers[n % 4]}, "e": {numbers[n % 8]}, "t": "é {n}\\u00e9\\n", '
        f'"tags": [{n}, null, {-n}], "more": {{"x": [1, {{}}, "y"]}}}}'.encode()
        for n in range(24)
    ]


def _debezium_values(is_wrapped: bool) -> list[bytes]:
    found = []
    for n, row in enumerate(_json_values()):
        text = b'{"before": null, "after": %s, "source": {"lsn": %d}, "op": "%s", "ts_ms": 5}' % (
            row,
            n,
            b"cr"[n % 2 :][:1],
        )
        found.append(b'{"schema": null, "payload": %s}' % text if is_wrapped else text)
    return found


class _BadError(Exception):
    """A text that is no JSON, or a value that is none of its column."""


class _UnsaidError(Exception):
    """What becomes of the record is not for this reading to say: it is tested elsewhere, or depends on more than that."""


class _Odd(dict[str, Any]):
    """An object with keys that are there twice, or with half of a character: where they are left out, nothing is wrong."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        names = [name for name, _ in pairs]
        self.twice = {name for name in self if names.count(name) > 1}
        self.has_half = any(_is_half(name) for name in names)


class _Number(str):
    """A number as it is written."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    is_odd = len(dict(pairs)) < len(pairs) or any(_is_half(name) for name, _ in pairs)
    return _Odd(pairs) if is_odd else dict(pairs)


def _is_half(text: str) -> bool:
    return any("\ud800" <= c <= "\udfff" for c in text)


def _refuse(_: str) -> Any:
    raise _BadError


def _parsed(value: bytes) -> dict[str, Any]:
    try:
        text = value.removeprefix(b"\xef\xbb\xbf").decode()
        found = json.loads(
            text, object_pairs_hook=_pairs, parse_constant=_refuse, parse_int=_Number, parse_float=_Number
        )
    except (ValueError, RecursionError):
        raise _BadError from None
    if not isinstance(found, dict):
        raise _BadError
    if _depth(found) > MAX_DEPTH - 2:
        raise _UnsaidError
    return found


def _depth(value: Any) -> int:
    deepest, waiting = 0, [(value, 1)]
    while waiting:
        one, level = waiting.pop()
        if isinstance(one, dict | list):
            deepest = max(deepest, level)
            waiting += [(inner, level + 1) for inner in (one.values() if isinstance(one, dict) else one)]
    return deepest


def _row(found: Mapping[str, Any]) -> str:
    if isinstance(found, _Odd) and found.twice & COLUMNS.keys():
        raise _BadError
    if isinstance(found, _Odd) and found.has_half:
        raise _UnsaidError
    if isinstance(found, _Odd) and {name.lower() for name in found.twice} & COLUMNS.keys():
        raise _UnsaidError
    respelt = {name.lower(): value for name, value in found.items() if name.lower() in COLUMNS.keys() - found.keys()}
    if len(respelt) < sum(name.lower() in respelt for name in found):
        raise _UnsaidError  # Which of two spellings counts is tested elsewhere.
    found = {**found, **respelt}
    readers = {"id": _long, "d": _decimal(9, 2), "e": _decimal(38, 10), "t": _text, "tags": _longs}
    return repr({name: None if found.get(name) is None else read(found[name]) for name, read in readers.items()})


def _long(value: Any) -> int:
    number = _number(value) if isinstance(value, _Number) else None
    if number is None or number != number.to_integral_value() or not -(2**63) <= number < 2**63:
        raise _BadError
    return int(number)


def _longs(value: Any) -> list[int | None]:
    if not isinstance(value, list):
        raise _BadError
    return [None if one is None else _long(one) for one in value]


def _text(value: Any) -> str:
    if not isinstance(value, str) or isinstance(value, _Number) or _is_half(value):
        raise _BadError
    return value


def _number(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise _BadError from None


def _decimal(precision: int, scale: int) -> Callable[[Any], Decimal]:
    def read(value: Any) -> Decimal:
        if not isinstance(value, str):
            raise _BadError
        if not isinstance(value, _Number):
            raise _UnsaidError  # Which texts are numbers is tested elsewhere.
        if len(value) > MOST_CHARACTERS:
            raise _UnsaidError
        number = _number(value)
        if number and not -scale - 400 < number.adjusted() < precision - scale:
            raise _BadError
        _, digits, exponent = (number.normalize() if number else Decimal(0)).as_tuple()
        if int(exponent) < -scale or len(digits) + int(exponent) > precision - scale:
            raise _BadError
        return Decimal(f"{number:.{scale}f}") if number else Decimal(f"{0:.{scale}f}")

    return read


def _reference(value: bytes, row_in: Callable[[dict[str, Any]], Mapping[str, Any]]) -> str:
    try:
        return _row(row_in(_parsed(value)))
    except _BadError:
        return REFUSED
    except _UnsaidError:
        return UNKNOWN


def _read_json(values: Sequence[bytes]) -> list[str]:
    array, memory = guarded_array(values)
    decoded = decode_json(array, fields_of(COLUMNS), Reading(unknown_fields="drop"))
    memory.free()
    return _texts(decoded.columns, np.flatnonzero(~decoded.refused).tolist(), len(values))


def _read_debezium(values: Sequence[bytes]) -> list[str]:
    array, memory = guarded_array(values)
    target = target_of(_NOWHERE, COLUMNS, reading=Reading(unknown_fields="drop"), envelope=Envelope("debezium"))
    nothing = pa.nulls(len(values))
    records = {"value": array, "key": nothing.cast(pa.binary()), "partition": pa.array([0] * len(values), pa.int32()),
               "timestamp": pa.array([0] * len(values), pa.timestamp("us", tz="UTC"))}  # fmt: skip
    changes = read_records(target, "a", records)
    memory.free()
    return _texts(changes.columns, changes.records.tolist(), len(values))


def _texts(columns: Sequence[pa.Array], rows: Sequence[int], count: int) -> list[str]:
    found = [REFUSED] * count
    for place, row in enumerate(rows):
        at = place if len(columns[0]) == len(rows) else row
        found[row] = repr({name: column[at].as_py() for name, column in zip(COLUMNS, columns, strict=True)})
    return found


def _after(found: dict[str, Any]) -> Mapping[str, Any]:
    """The row of a change that inserts; of what may be another kind of record nothing is reported."""
    if found.get("op") not in ("c", "r") or not isinstance(found.get("after"), dict):
        raise _UnsaidError
    if found.get("before") is not None or not isinstance(found.get("source"), dict):
        raise _UnsaidError
    after: dict[str, Any] = found["after"]
    if "payload" in found or any(isinstance(one, _Odd) for one in (found, found["source"])):
        raise _UnsaidError
    if "__debezium_unavailable_value" in repr(after):
        raise _UnsaidError  # A value that was not sent.
    return after


def _payload(found: dict[str, Any]) -> Mapping[str, Any]:
    if isinstance(found, _Odd) or found.get("schema", 1) is not None or not isinstance(found.get("payload"), dict):
        raise _UnsaidError
    return _after(found["payload"])


FORMATS: Mapping[str, Callable[[], Format]] = {
    "json": lambda: Format(_json_values(), _read_json, lambda value: _reference(value, lambda found: found)),
    "avro": lambda: Format([raw[5:] for raw in worlds()["avro"].values], _read_avro, _avro_reference),
    "protobuf": lambda: Format(_protobuf_values(), _read_protobuf, _protobuf_reference, _may_refuse),
    "debezium": lambda: Format(_debezium_values(False), _read_debezium, lambda value: _reference(value, _after)),
    "connect json": lambda: Format(_debezium_values(True), _read_debezium, lambda value: _reference(value, _payload)),
}
CASES = cases(FORMATS)
