"""What a planned Avro schema consists of: the steps that the compiled walk takes, and the columns made of its words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from pyiceberg import types as t

from frazil.decode.avro.numbers import NO_SYMBOL, NO_TIME, WIDE_INT
from frazil.decode.avro.schema import Avro
from frazil.decode.columns import TextBytes

# NUMBER: least, most, fault otherwise, whether the type is int. FIXED: bytes. UNION: branches, place in the jumps.
# JUMP: step. LIST: its ITEM step. ITEM: context, first step of the item. EMPTY_ITEMS: none. VALUE: first step of the
# routine, level. CALL: first step of the routine.
NUMBER, BOOLEAN, FLOAT, DOUBLE, BYTES, FIXED, UNION, JUMP, LIST, ITEM, EMPTY_ITEMS, VALUE, CALL, RETURN, END = range(15)

RECORDS = 0
"""The context with one row per record."""

SCRATCH = 1
"""The context of values that are skipped: it has one row, and one slot, SCRATCH_SLOT."""

SCRATCH_SLOT = 0

_LONG = (-(2**63), 2**63 - 1)
_INT = (-(2**31), 2**31 - 1)
_DAY_MS = 86_400_000
_NUMBERS: dict[tuple[str, str], tuple[tuple[int, int], int]] = {
    ("int", ""): (_INT, WIDE_INT),
    ("int", "date"): (_INT, WIDE_INT),
    ("int", "time-millis"): ((0, _DAY_MS - 1), NO_TIME),
    ("long", ""): (_LONG, 0),
    ("long", "time-micros"): ((0, _DAY_MS * 1000 - 1), NO_TIME),
    ("long", "timestamp-millis"): (_LONG, 0),
    ("long", "timestamp-micros"): (_LONG, 0),
    ("long", "local-timestamp-millis"): (_LONG, 0),
    ("long", "local-timestamp-micros"): (_LONG, 0),
}
_PLAIN = {"boolean": BOOLEAN, "float": FLOAT, "double": DOUBLE, "bytes": BYTES, "string": BYTES}


@dataclass
class Code:
    """Steps while they are written."""

    #: Each step as six numbers.
    steps: list[list[int]] = field(default_factory=list)
    #: The field that each step reads.
    paths: list[str] = field(default_factory=list)
    #: For each branch of each union the step to continue with and the word to store, 0 for null.
    jumps: list[tuple[int, int]] = field(default_factory=list)

    def add(self, op: int, path: str = "", slot: int = SCRATCH_SLOT, operands: Sequence[int] = ()) -> int:
        """Adds a step and returns its number."""
        self.steps.append([op, slot, *operands, *[0] * (4 - len(operands))])
        self.paths.append(path)
        return len(self.steps) - 1

    def scalar(self, avro: Avro, path: str, slot: int, logical: str = "") -> None:
        """Adds the step for a value without parts."""
        if avro.kind == "enum":
            self.add(NUMBER, path, slot, (0, len(avro.symbols) - 1, NO_SYMBOL, 0))
        elif avro.kind == "fixed":
            self.add(FIXED, path, slot, (avro.size,))
        elif avro.kind in _PLAIN:
            self.add(_PLAIN[avro.kind], path, slot)
        else:
            (least, most), fault = _NUMBERS[avro.kind, logical]
            self.add(NUMBER, path, slot, (least, most, fault, int(avro.kind == "int")))

    def union(self, path: str, slot: int, branches: Sequence[Callable[[], None] | None]) -> None:
        """Adds the steps for a union. branches: each writes the steps of its branch, None for null."""
        first = len(self.jumps)
        self.add(UNION, path, slot, (len(branches), first))
        self.jumps += [(0, 0)] * len(branches)
        leave: list[int] = []
        for number, write in enumerate(branches):
            if write is None:
                continue
            if any(word for _, word in self.jumps[first:]):
                leave.append(self.add(JUMP, path))
            self.jumps[first + number] = (len(self.steps), number + 1)
            write()
        for step in leave:
            self.steps[step][2] = len(self.steps)
        for number, write in enumerate(branches):
            if write is None:
                self.jumps[first + number] = (len(self.steps), 0)

    def items(self, path: str, slot: int, context: int, write: Callable[[], None]) -> None:
        """Adds the steps for the blocks of an array or map; `write` adds those of one item. The slot gets the number of
        items.
        """
        start = self.add(LIST, path, slot)
        write()
        if len(self.steps) == start + 1:
            self.steps[start][0] = EMPTY_ITEMS
        else:
            self.steps[start][2] = self.add(ITEM, path, slot, (context, start + 1))


_TYPES: dict[tuple[str, str], tuple[str, t.IcebergType]] = {
    ("boolean", ""): ("boolean", t.BooleanType()),
    ("int", ""): ("number", t.IntegerType()),
    ("long", ""): ("number", t.LongType()),
    ("float", ""): ("number", t.FloatType()),
    ("double", ""): ("number", t.DoubleType()),
    ("bytes", ""): ("binary", t.BinaryType()),
    ("bytes", "text"): ("binary", TextBytes()),
    ("string", ""): ("string", t.StringType()),
    ("string", "uuid"): ("uuid_text", t.UUIDType()),
    ("enum", ""): ("enum", t.StringType()),
    ("fixed", "uuid"): ("fixed", t.UUIDType()),
    ("int", "date"): ("number", t.DateType()),
    ("int", "time-millis"): ("millis", t.TimeType()),
    ("long", "time-micros"): ("number", t.TimeType()),
    ("long", "timestamp-millis"): ("millis", t.TimestamptzType()),
    ("long", "timestamp-micros"): ("number", t.TimestamptzType()),
    ("long", "local-timestamp-millis"): ("millis", t.TimestampType()),
    ("long", "local-timestamp-micros"): ("number", t.TimestampType()),
}


@dataclass(frozen=True)
class Part:
    """A planned column, or a part of one."""

    #: How its array is made from words.
    make: str
    type: t.IcebergType
    #: The context whose rows it has.
    context: int
    #: The path of the field, for messages.
    path: str
    #: The slot with its words.
    slot: int = SCRATCH_SLOT
    #: The fields of a struct or union, the elements of a list, keys and values of a map, or the value of an optional.
    children: tuple[Part, ...] = ()
    #: The word of each child, of a union.
    choices: tuple[int, ...] = ()
    #: The Avro type that it is read from.
    avro: Avro | None = None
    #: The function that writes its value as JSON, of a type that contains itself.
    json: Callable[[bytes], str] | None = None


@dataclass(frozen=True)
class Plan:
    """Everything that reading a schema's records requires."""

    #: The Iceberg type of a record.
    struct: t.StructType
    #: The columns.
    parts: tuple[Part, ...]
    #: The earlier names of fields, by path.
    aliases: dict[tuple[str, ...], tuple[str, ...]]
    #: The name that a union gives to the type of its value, by the value's path, except for records.
    branches: dict[tuple[str, ...], str]
    #: The steps of the walk.
    steps: NDArray[np.int64]
    #: The jumps of the walk's unions.
    jumps: NDArray[np.int64]
    #: The field of each step.
    paths: tuple[str, ...]
    #: The context of each slot.
    slots: NDArray[np.int64]
    #: The words that one row of each context takes.
    widths: NDArray[np.int64]
    #: For each context the slot with the number of its items, by which they belong to the rows of another context.
    lists: tuple[int, ...]


def scalar_type(avro: Avro) -> tuple[str, t.IcebergType]:
    """Returns how the column of a type without parts is made, and its Iceberg type."""
    if avro.logical == "decimal":
        return "decimal", t.DecimalType(avro.precision, avro.scale)
    if avro.logical == "digits":
        return "digits", t.StringType()
    if avro.kind == "fixed" and not avro.logical:
        return "fixed", t.FixedType(avro.size)
    return _TYPES[avro.kind, avro.logical]
