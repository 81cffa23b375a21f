"""The steps that the compiled walk over Avro bodies takes in order: written once per schema.

A step is a row of six numbers: the operation, the slot it fills, and up to four operands. A slot is a column of 64-bit
words, and belongs to a context: the rows of the records, or the rows of one array's or map's items. So a new schema
needs a list of numbers and no compilation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from frazil.decode.avro.faults import NO_SYMBOL, NO_TIME, WIDE_INT
from frazil.decode.avro.schema import Avro

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
