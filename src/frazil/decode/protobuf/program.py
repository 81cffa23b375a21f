"""A schema as tables for the compiled walk, and the positions of its cells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from frazil.decode.protobuf import layout
from frazil.decode.protobuf.schema import Member
from frazil.decode.protobuf.wire import WIRE_BYTES, WIRE_FIXED32, WIRE_FIXED64, WIRE_GROUP, WIRE_VARINT

I64 = NDArray[np.int64]

_WIRES = {
    layout.VARINT: WIRE_VARINT, layout.FIXED32: WIRE_FIXED32, layout.FIXED64: WIRE_FIXED64, layout.TEXT: WIRE_BYTES,
    layout.BYTES: WIRE_BYTES, layout.MESSAGE: WIRE_BYTES, layout.GROUP: WIRE_GROUP, layout.LEAF: WIRE_BYTES,
    layout.LEAF_GROUP: WIRE_GROUP,
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """The positions of the cells of one field."""

    #: The field.
    member: Member
    #: The path of the field, for messages.
    path: str
    #: Its index in the table of fields.
    number: int
    #: The column of its values, or of the number of its elements.
    column: int
    #: The column of its elements.
    element: int
    #: The domain of its elements (0: not repeated).
    domain: int
    #: The column with the number of the member that is set (-1: in no oneof).
    oneof: int
    #: The fields of its message.
    inside: tuple[Place, ...]


@dataclass(frozen=True)
class Program:
    """The tables of one schema."""

    #: The fields of the record.
    places: tuple[Place, ...]
    #: The path of each field, for messages.
    paths: tuple[str, ...]
    #: The table of fields (see `layout`).
    fields: I64
    #: The table of messages (see `layout`).
    messages: I64
    #: The field numbers in the index.
    index_numbers: I64
    #: The field of each entry in the index.
    index_fields: I64
    #: The domain of each column.
    column_domain: I64
    #: For each domain the domain of its lists and the column with the number of their elements.
    parents: tuple[tuple[int, int], ...]
    #: For each field its column, its elements' column (or -1), and its oneof's (or -1).
    first_columns: I64

    @property
    def domain_count(self) -> int:
        """The number of domains, that of the records included."""
        return len(self.parents)

    def place_columns(self, capacity: I64) -> tuple[I64, int]:
        """Returns the start of each column when a domain has `capacity` cells, and the number of cells in all."""
        sizes = capacity[self.column_domain] + 1
        ends = np.cumsum(sizes)
        return ends - sizes, int(ends[-1]) if ends.size else 0

    def place_fields(self, column_at: I64) -> I64:
        """Returns the table of fields for columns that start there."""
        table = self.fields.copy()
        for attribute, columns in zip((layout.AT, layout.ELEMENT_AT, layout.ONEOF_AT), self.first_columns, strict=True):
            there = columns >= 0
            table[there, attribute] = column_at[columns[there]]
        return table


def compile_program(members: tuple[Member, ...]) -> Program:
    """Returns the tables for records with these fields."""
    builder = _Builder()
    places = builder.message(members, 0, "")
    cells = np.bincount(np.array(builder.column_domain, np.int64), minlength=len(builder.parents))
    fields = np.array(builder.fields, np.int64).reshape(-1, layout.FIELD_WIDTH)
    fields[:, layout.CELLS] = cells[fields[:, layout.DOMAIN]]
    return Program(
        places=places,
        paths=tuple(builder.paths),
        fields=fields,
        messages=np.array(builder.messages, np.int64),
        index_numbers=np.array(builder.index_numbers, np.int64),
        index_fields=np.array(builder.index_fields, np.int64),
        column_domain=np.array(builder.column_domain, np.int64),
        parents=tuple(builder.parents),
        first_columns=np.array(builder.columns, np.int64).reshape(-1, 3).T.copy(),
    )


class _Builder:
    def __init__(self) -> None:
        self.fields: list[list[int]] = []
        self.columns: list[list[int]] = []
        self.paths: list[str] = []
        self.messages: list[list[int]] = [[0, 0, 0, 0]]  # NOTHING: its index is one entry that no number finds.
        self.index_numbers: list[int] = [0]
        self.index_fields: list[int] = [-1]
        self.column_domain: list[int] = []
        self.parents: list[tuple[int, int]] = [(0, -1)]

    def message(self, members: tuple[Member, ...], domain: int, path: str) -> tuple[Place, ...]:
        """Adds a message whose fields have cells in `domain`; its fields are consecutive, in the order of their numbers."""
        first = len(self.fields)
        ordered = sorted(members, key=lambda member: member.number)
        self.messages.append([first, len(members), *self._index(ordered, first)])
        self.fields += [[0] * layout.FIELD_WIDTH for _ in members]
        self.columns += [[-1, -1, -1] for _ in members]
        self.paths += ["" for _ in members]
        oneofs = {name: self._column(domain) for name in sorted({m.oneof for m in members if m.oneof})}
        places = {
            member.name: self._field(number, member, domain, oneofs, path)
            for number, member in enumerate(ordered, first)
        }
        return tuple(places[member.name] for member in members)

    def _field(self, number: int, member: Member, domain: int, oneofs: dict[str, int], path: str) -> Place:
        column, element, inner = self._column(domain), -1, 0
        own_path = f"{path}.{member.name}".removeprefix(".")
        self.paths[number] = own_path
        if member.shape != "one":
            self.parents.append((domain, column))
            inner = len(self.parents) - 1
            element = self._column(inner)
        oneof = oneofs.get(member.oneof or "", -1)
        wire = _WIRES[member.value.op]
        likely = WIRE_BYTES if member.is_packable else wire
        child = len(self.messages) if member.value.op in (layout.MESSAGE, layout.GROUP) else 0
        self.fields[number] = [member.number << 3 | likely, member.value.op, wire, 0, -1, inner, child, -1, 0]
        self.columns[number] = [column, element, oneof]
        inside: tuple[Place, ...] = ()
        if child:
            below = f"{own_path}.element" if member.shape == "list" else own_path
            inside = self.message(member.value.members, inner if member.shape != "one" else domain, below)
            if member.shape != "map" and member.value.kind != "struct":  # Its fields are no columns of their own.
                self.paths[number + 1 :] = [below if p.startswith(f"{below}.") else p for p in self.paths[number + 1 :]]
        return Place(member, own_path, number, column, element, inner, oneof, inside)

    def _column(self, domain: int) -> int:
        self.column_domain.append(domain)
        return len(self.column_domain) - 1

    def _index(self, ordered: list[Member], first: int) -> tuple[int, int]:
        """Adds the numbers to the index (see SPREAD): an entry that is taken leads to the next free one."""
        size = 1
        while size < 2 * len(ordered) + 1:
            size *= 2
        at = len(self.index_numbers)
        self.index_numbers += [0] * size
        self.index_fields += [-1] * size
        for number, member in enumerate(ordered, first):
            k = (member.number * layout.SPREAD >> layout.SPREAD_SHIFT) & (size - 1)
            while self.index_numbers[at + k]:
                k = (k + 1) & (size - 1)
            self.index_numbers[at + k] = member.number
            self.index_fields[at + k] = number
        return at, size - 1
