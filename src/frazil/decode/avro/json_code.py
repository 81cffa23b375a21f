"""The steps that the compiled writer of JSON (`json_scan`) takes for a type that contains itself: written once per schema.

A step is a row of five numbers: what to do, which bytes of `literals` to write before that (first, count), and two
operands. So names, braces and commas are bytes that are ready, and only values are left to be spelt.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from frazil.decode.avro.schema import Avro, branch_names

# FIXED: bytes. ENUM, UNION: place in the table. JUMP: step. LIST: its ITEM step. ITEM: first step of the item, whether it
# has a key. CALL: first step of the routine.
WRITE, INTEGER, BOOLEAN, FLOAT, DOUBLE, TEXT, BYTES, FIXED, ENUM, UNION, JUMP, LIST, ITEM, CALL, RETURN = range(15)

_PLAIN = {
    "boolean": BOOLEAN, "int": INTEGER, "long": INTEGER, "float": FLOAT, "double": DOUBLE, "bytes": BYTES, "string": TEXT,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class JsonCode:
    """steps: those of the type itself first. table: of each branch of a union the step it goes on with, of each symbol of
    an enum its first byte in `literals` and their count.
    """

    steps: NDArray[np.int64]
    table: NDArray[np.int64]
    literals: NDArray[np.uint8]


def plan_json(record: Avro) -> JsonCode:
    """The steps that write values of a record type."""
    planner = _Planner()
    planner.write_routines(record)
    return JsonCode(
        np.array(planner.steps, np.int64),
        np.array(planner.table or [(0, 0)], np.int64),
        np.frombuffer(bytes(planner.literals) or b" ", np.uint8),
    )


class _Planner:
    """pending: what the next step is to write first; nothing where steps come together."""

    def __init__(self) -> None:
        self.steps: list[list[int]] = []
        self.table: list[tuple[int, int]] = []
        self.literals = bytearray()
        self.pending = ""
        self.routines: dict[Avro, int] = {}

    def write_routines(self, record: Avro) -> None:
        """The steps of each record type, once."""
        self.routines[record] = 0
        starts: list[int] = []
        while len(starts) < len(self.routines):
            avro = list(self.routines)[len(starts)]
            starts.append(len(self.steps))
            self._record(avro)
        for step in self.steps:
            if step[0] == CALL:
                step[3] = starts[step[3]]

    def _literal(self, text: str) -> tuple[int, int]:
        raw = text.encode()
        self.literals += raw
        return len(self.literals) - len(raw), len(raw)

    def _add(self, op: int, *operands: int) -> int:
        self.steps.append([op, *self._literal(self.pending), *operands, *[0] * (2 - len(operands))])
        self.pending = ""
        return len(self.steps) - 1

    def _record(self, avro: Avro) -> None:
        self.pending = "{"
        for number, member in enumerate(avro.fields):
            self.pending += f'{"," if number else ""}"{member.name}":'
            self._value(member.type)
        self.pending += "}"
        self._add(RETURN)

    def _value(self, avro: Avro) -> None:
        if avro.kind == "null":
            self.pending += "null"
        elif avro.kind == "record":
            self._add(CALL, self.routines.setdefault(avro, len(self.routines)))
        elif avro.kind in ("array", "map"):
            self._items(avro)
        elif avro.kind == "union":
            self._union(avro)
        elif avro.kind == "enum":
            self._add(ENUM, len(self.table))
            self.table += [self._literal(f'"{symbol}"') for symbol in avro.symbols]
        elif avro.kind == "fixed":
            self._add(FIXED, avro.size)
        else:
            self._add(_PLAIN[avro.kind])

    def _items(self, avro: Avro) -> None:
        is_map = avro.kind == "map"
        self.pending += "{" if is_map else "["
        start = self._add(LIST)
        self._value(avro.items[0])
        if self.pending:
            self._add(WRITE)
        self.steps[start][3] = self._add(ITEM, start + 1, int(is_map))
        self.pending = "}" if is_map else "]"

    def _union(self, avro: Avro) -> None:
        is_optional = sum(branch.kind != "null" for branch in avro.items) <= 1
        first = len(self.table)
        self._add(UNION, first)
        self.table += [(0, 0)] * len(avro.items)
        leave: list[int] = []
        for number, (branch, name) in enumerate(zip(avro.items, branch_names(avro), strict=True)):
            self.table[first + number] = (len(self.steps), 0)
            is_named = not is_optional and branch.kind != "null"
            self.pending = f'{{"{name}":' if is_named else ""
            self._value(branch)
            self.pending += "}" if is_named else ""
            leave.append(self._add(JUMP))
        for step in leave:
            self.steps[step][3] = len(self.steps)
