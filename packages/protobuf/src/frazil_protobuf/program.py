"""A schema as tables for the compiled walk, and the cells that the walk fills (`scan`)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numba import njit
from numpy.typing import NDArray

from frazil.decode.columns import Bodies, Fault
from frazil.raw_memory import COMPILED, U8, copy_bytes, is_utf8
from frazil_protobuf import layout
from frazil_protobuf.schema import Member
from frazil_protobuf.wire import WIRE_BYTES, WIRE_FIXED32, WIRE_FIXED64, WIRE_GROUP, WIRE_VARINT

I64 = NDArray[np.int64]

_WIRES = {
    layout.VARINT: WIRE_VARINT, layout.FIXED32: WIRE_FIXED32, layout.FIXED64: WIRE_FIXED64, layout.TEXT: WIRE_BYTES,
    layout.BYTES: WIRE_BYTES, layout.MESSAGE: WIRE_BYTES, layout.GROUP: WIRE_GROUP, layout.LEAF: WIRE_BYTES,
    layout.LEAF_GROUP: WIRE_GROUP,
}  # fmt: skip


@dataclass(frozen=True)
class FieldPlace:
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
    inside: tuple[FieldPlace, ...]


@dataclass(frozen=True)
class Program:
    """The tables of one schema."""

    #: The fields of the record.
    places: tuple[FieldPlace, ...]
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
            has_column = columns >= 0
            table[has_column, attribute] = column_at[columns[has_column]]
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

    def message(self, members: tuple[Member, ...], domain: int, path: str) -> tuple[FieldPlace, ...]:
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

    def _field(self, number: int, member: Member, domain: int, oneofs: dict[str, int], path: str) -> FieldPlace:
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
        inside: tuple[FieldPlace, ...] = ()
        if child:
            below = f"{own_path}.element" if member.shape == "list" else own_path
            inside = self.message(member.value.members, inner if member.shape != "one" else domain, below)
            if member.shape != "map" and member.value.kind != "struct":  # Its fields are no columns of their own.
                self.paths[number + 1 :] = [below if p.startswith(f"{below}.") else p for p in self.paths[number + 1 :]]
        return FieldPlace(member, own_path, number, column, element, inner, oneof, inside)

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


Flags = NDArray[np.bool_]
LENGTH_MASK = 2**32 - 1  # A text's cell is its place times 2**32 plus its length.


@dataclass(frozen=True)
class Cells:
    """The results of a walk; see `scan`."""

    program: Program
    bodies: Bodies
    #: The start of each column in `words` and `flags`.
    column_at: I64
    #: The 64 bits of every cell.
    words: I64
    #: Whether every cell was written.
    flags: U8
    #: The number of cells per domain.
    used: I64
    #: Which records have a fault.
    refused: Flags

    def words_of(self, column: int, domain: int) -> I64:
        """Returns the 64 bits of each cell: int64 of shape (n_cells,)."""
        at = self.column_at[column]
        return self.words[at : at + self.used[domain]]

    def flags_of(self, column: int, domain: int) -> Flags:
        """Returns which cells were written: bool of shape (n_cells,)."""
        at = self.column_at[column]
        return self.flags[at : at + self.used[domain]].view(np.bool_)

    def owners(self, domain: int) -> I64:
        """Returns the record that each cell of the domain belongs to: int64 of shape (n_cells,)."""
        if domain == 0:
            return np.arange(self.used[0], dtype=np.int64)
        parent, column = self.program.parents[domain]
        return np.repeat(self.owners(parent), self.words_of(column, parent))


@dataclass
class Refusals:
    """Faults of records that are found only in their columns.

    A value that Protobuf's parser drops from a message makes it faulty only where the parser itself refuses it.
    """

    #: The fault and the path, by record.
    by_row: dict[int, tuple[Fault, str]] = field(default_factory=dict)
    #: The value by record, where the message shows it.
    values: dict[int, str] = field(default_factory=dict)
    #: Which map entries have a later entry with the same key, by domain.
    _replaced: dict[int, Flags] = field(default_factory=dict)

    def replace(self, domain: int, entries: Flags) -> None:
        """Records which entries of a map, whose cells are in `domain`, have a later entry with the same key."""
        self._replaced[domain] = entries

    def add(
        self, cells: Cells, domain: int, bad: Flags, fault: Fault, path: str, *, is_malformed: bool = False
    ) -> None:
        """Refuses the records of the cells in `bad`, unless these are in map entries that later ones replace.

        is_malformed: no parser accepts such a record, so replaced entries count too.
        """
        if not bad.any():
            return
        if not is_malformed:
            bad = bad & ~self._are_replaced(cells, domain)
        for row in np.unique(cells.owners(domain)[bad]).tolist():
            self.by_row.setdefault(row, (fault, path))

    def add_times(self, cells: Cells, spot: Spot, bad: Flags, fault: Fault, times: tuple[I64, I64]) -> None:
        """Refuses the records of the times in `bad`. times: their seconds and nanoseconds."""
        if not bad.any():
            return
        before = set(self.by_row)
        self.add(cells, spot.domain, bad, fault, spot.path)
        owners, seconds, nanos = cells.owners(spot.domain), *times
        for cell in np.flatnonzero(bad)[::-1].tolist():
            row = int(owners[cell])
            if row in self.by_row and row not in before:
                self.values[row] = f'{{"seconds":{seconds[cell]},"nanos":{nanos[cell]}}}'

    def _are_replaced(self, cells: Cells, domain: int) -> Flags:
        if domain == 0:
            return np.zeros(int(cells.used[0]), np.bool_)
        parent, column = cells.program.parents[domain]
        are_replaced: Flags = np.repeat(self._are_replaced(cells, parent), cells.words_of(column, parent))
        own = self._replaced.get(domain)
        return are_replaced if own is None else are_replaced | own


@dataclass(frozen=True)
class Spot:
    """One column of values to be read."""

    #: The field.
    place: FieldPlace
    #: The column of the values.
    column: int
    #: The domain of the values.
    domain: int
    #: Which of its cells are values; None: all.
    valid: Flags | None

    @property
    def path(self) -> str:
        """The field, with `element` for the elements of a list."""
        return f"{self.place.path}.element" if self.place.member.shape == "list" else self.place.path


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def copy_slices(base: int, limit: int, places: I64, out: int, out_limit: int) -> None:
    """Copies the bytes at `places`, one after another, to the address `out`; never reads or writes beyond the limits.

    A copy of a fixed size is one instruction, so short texts are copied with the bytes after them, which the next text
    overwrites.
    """
    for n in range(places.size):
        i = base + (places[n] >> 32)
        length = places[n] & LENGTH_MASK
        if length <= 16 and i + 16 <= limit and out + 16 <= out_limit:
            copy_bytes(out, i, 16)
        else:
            copy_bytes(out, i, length)
        out += length


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def may_repeat_keys(counts: I64, codes: I64) -> bool:
    """Whether a map may have a key twice. codes: equal for equal keys. A large map is not checked: it may."""
    at = 0
    for n in range(counts.size):
        count = counts[n]
        if count > 16:
            return True
        for k in range(at + 1, at + count):
            for j in range(at, k):
                if codes[k] == codes[j]:
                    return True
        at += count
    return False


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def find_no_texts(base: int, places: I64) -> Flags:
    """Returns which of the places hold bytes that are not UTF-8."""
    are_no_texts = np.zeros(places.size, np.bool_)
    for n in range(places.size):
        i = base + (places[n] >> 32)
        are_no_texts[n] = not is_utf8(i, i + (places[n] & LENGTH_MASK))
    return are_no_texts
