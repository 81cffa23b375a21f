"""From an Avro type to a plan: the columns, and the steps that fill them.

docs/reference/avro.md has the table of types; tests/unit/decode/test_avro_types.py verifies it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from pyiceberg.types import BooleanType, ListType, MapType, NestedField, StringType, StructType

from frazil.decode.avro.code import (
    CALL,
    END,
    RECORDS,
    RETURN,
    SCRATCH,
    SCRATCH_SLOT,
    VALUE,
    Code,
    Part,
    Plan,
    scalar_type,
)
from frazil.decode.avro.json import Write, json_writer
from frazil.decode.avro.schema import MAX_FIELDS, MAX_LEVELS, MAX_PRECISION, Avro, branch_names, unusable
from frazil.decode.columns import EmptyStruct, UnionStruct
from frazil.decode.messages import OWN_FORMS, Forms


@dataclass(frozen=True)
class _Place:
    """The place of a type in the schema."""

    #: The fields on the way.
    path: tuple[str, ...] = ()
    #: The context of its rows.
    context: int = RECORDS
    #: The number of levels above it.
    level: int = 0

    @property
    def name(self) -> str:
        return ".".join(self.path)

    def inside(self, name: str, context: int | None = None) -> _Place:
        return replace(self, path=(*self.path, name), context=self.context if context is None else context)


def plan_columns(avro: Avro, forms: Forms = OWN_FORMS) -> Plan:
    """Returns the columns of a type and the steps that fill them. forms: of values that are read in another form than
    their schema's own.

    Raises: UnusableSchema for a type that no table can have.
    """
    planner = _Planner(forms=dict(forms))
    if avro.kind == "record":
        record = planner.value(avro, _Place())
        parts = record.children if record else ()
        names = [member.name for member in record.type.fields] if record and isinstance(record.type, StructType) else []
    else:
        record = planner.value(avro, _Place(("value",)))
        parts, names = ((record,), ["value"]) if record else ((), [])
    planner.code.add(END)
    planner.write_routines()
    code = planner.code
    return Plan(
        struct=_struct(names, parts),
        parts=parts,
        aliases={path: aliases for path, aliases in planner.aliases.items() if aliases},
        branches=planner.branches,
        steps=np.array(code.steps, np.int64),
        jumps=np.array(code.jumps or [(0, 0)], np.int64),
        paths=tuple(code.paths),
        slots=np.array(planner.slots, np.int64),
        widths=np.array(planner.widths, np.int64),
        lists=tuple(planner.lists),
    )


def _struct(names: list[str], parts: tuple[Part, ...], make: type[StructType] = StructType) -> StructType:
    return make(*(NestedField(0, n, part.type, required=False) for n, part in zip(names, parts, strict=True)))


def _in_form(avro: Avro, form: str) -> Avro:
    """Returns the type of the same bytes in another form: without its logical type, or text as bytes and the reverse,
    which Avro's schema resolution allows; a decimal that no column can have as its digits. A type without such a form is
    returned unchanged. Whether bytes are text is only found where they become a column.
    """
    if form == "text" and avro.precision > MAX_PRECISION:
        return replace(avro, logical="digits")
    if form == "number" and avro.kind in ("int", "long"):
        return replace(avro, logical="")
    if form == "text" and avro.kind in ("bytes", "string"):
        return replace(avro, logical="text" if avro.kind == "bytes" else "")
    if form == "bytes" and avro.precision:
        return replace(avro, logical="", precision=0, scale=0)
    return replace(avro, kind="bytes") if form == "bytes" and (avro.kind, avro.logical) == ("string", "") else avro


@dataclass
class _Planner:
    """Writes steps and parts together."""

    #: The forms of values that are not read in their schema's own form, by path.
    forms: Mapping[tuple[str, ...], str] = field(default_factory=dict)

    code: Code = field(default_factory=Code)
    #: The context of each slot.
    slots: list[int] = field(default_factory=lambda: [SCRATCH])
    #: The words that one row of each context takes.
    widths: list[int] = field(default_factory=lambda: [0, 0])
    #: The slot with the number of items, of each context.
    lists: list[int] = field(default_factory=lambda: [SCRATCH_SLOT, SCRATCH_SLOT])
    #: The earlier names of fields, by path.
    aliases: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)
    #: The names of union branches, by path of the value.
    branches: dict[tuple[str, ...], str] = field(default_factory=dict)
    #: The records around the place, None for each level that allows an end of recursion between them (a union, an
    #: array, a map).
    open: list[Avro | None] = field(default_factory=list)
    #: Records that take no bytes.
    zero_byte_records: set[Avro] = field(default_factory=set)
    #: The first step of each routine, for records that contain themselves.
    routines: dict[Avro, int] = field(default_factory=dict)
    #: How types are written as JSON.
    json_writers: dict[Avro, Write] = field(default_factory=dict)
    #: The number of fields so far.
    field_count: int = 0

    def value(self, avro: Avro, place: _Place) -> Part | None:
        """Returns the part for a type; None when it has no content: null, and records of nothing else."""
        if place.level > MAX_LEVELS:
            raise unusable(f"the schema is nested more than {MAX_LEVELS} levels deep", place.path[:8])
        writers: dict[str, Callable[[Avro, _Place], Part | None]] = {
            "record": self._record, "array": self._array, "map": self._map, "union": self._union,
        }  # fmt: skip
        if avro.kind == "null":
            return None
        if avro.kind not in ("record", "union"):
            self.branches[place.path] = avro.short_name
        if place.path in self.forms:
            avro = _in_form(avro, self.forms[place.path])
        if avro.kind in writers:
            return writers[avro.kind](avro, place)
        make, kind = scalar_type(avro)
        slot = self._slot(place, max(1, (avro.size + 7) // 8))
        self.code.scalar(avro, place.name, slot, avro.logical)
        return Part(make, kind, place.context, place.name, slot, avro=avro)

    def write_routines(self) -> None:
        """Adds the steps for records that contain themselves, once for each."""
        starts: list[int] = []
        waiting = list(self.routines)
        while waiting:
            for avro in waiting:
                starts.append(len(self.code.steps))
                for member in avro.fields:
                    self._skip(member.type)
                self.code.add(RETURN)
            waiting = list(self.routines)[len(starts) :]
        for step in self.code.steps:
            if step[0] in (VALUE, CALL):
                step[2] = starts[step[2]]

    def _slot(self, place: _Place, width: int = 1) -> int:
        self.slots.append(place.context)
        self.widths[place.context] += width
        return len(self.slots) - 1

    def _count_field(self, place: _Place) -> None:
        self.field_count += 1
        if self.field_count > MAX_FIELDS:
            raise unusable(f"the schema has more than {MAX_FIELDS:,} fields", place.path[:8])

    def _value_or_boolean(self, avro: Avro, place: _Place) -> Part:
        """Returns the part as `value` does; where a column is needed in any case, a boolean: true for a hollow record,
        null for null.
        """
        part = self.value(avro, place)
        if part is not None:
            return part
        make = "true" if avro.kind == "record" else "null"
        return Part(make, BooleanType(), place.context, place.name)

    def _record(self, avro: Avro, place: _Place) -> Part | None:
        if avro in self.open:
            return self._json(avro, place)
        self.open.append(avro)
        start, parts, names = len(self.code.steps), [], []
        inside = replace(place, level=place.level + 1)
        for member in avro.fields:
            at = inside.inside(member.name)
            self._count_field(at)
            part = self.value(member.type, at)
            if part is not None:
                self.aliases[at.path] = member.aliases
                parts.append(part)
                names.append(member.name)
        self.open.pop()
        if len(self.code.steps) == start:
            self.zero_byte_records.add(avro)
        if not parts and self.forms.get(place.path) != "struct":
            return None
        kind = _struct(names, tuple(parts)) if parts else EmptyStruct()
        return Part("struct", kind, place.context, place.name, children=tuple(parts))

    def _json(self, avro: Avro, place: _Place) -> Part:
        if None not in self.open[self.open.index(avro) :]:
            raise unusable(f"the record `{avro.name}` always contains another one of itself, without end", place.path)
        slot = self._slot(place)
        self.code.add(VALUE, place.name, slot, (self._routine(avro), place.level + 1))
        return Part(
            "json", StringType(), place.context, place.name, slot, avro=avro, json=json_writer(avro, self.json_writers)
        )

    def _routine(self, avro: Avro) -> int:
        return self.routines.setdefault(avro, len(self.routines))

    def _open_items(self, place: _Place) -> tuple[int, int]:
        """Adds a slot for the number of items, and a context for their rows."""
        slot = self._slot(place)
        self.widths.append(0)
        self.lists.append(slot)
        self.open.append(None)
        return slot, len(self.widths) - 1

    def _array(self, avro: Avro, place: _Place) -> Part:
        slot, context = self._open_items(place)
        inside = replace(place.inside("element", context), level=place.level + 1)
        parts: list[Part] = []
        self.code.items(place.name, slot, context, lambda: parts.append(self._value_or_boolean(avro.items[0], inside)))
        self.open.pop()
        kind = ListType(0, parts[0].type, False)
        return Part("list", kind, place.context, place.name, slot, tuple(parts))

    def _map(self, avro: Avro, place: _Place) -> Part:
        slot, context = self._open_items(place)
        inside = replace(place.inside("value", context), level=place.level + 1)
        keys = place.inside("key", context)
        parts: list[Part] = []

        def write() -> None:
            parts.append(self._value_or_boolean(Avro("string"), keys))
            parts.append(self._value_or_boolean(avro.items[0], inside))

        self.code.items(place.name, slot, context, write)
        self.open.pop()
        kind = MapType(0, parts[0].type, 0, parts[1].type, False)
        return Part("map", kind, place.context, place.name, slot, tuple(parts))

    def _union(self, avro: Avro, place: _Place) -> Part | None:
        slot = self._slot(place)
        names = branch_names(avro, place.path)
        is_optional = sum(branch.kind != "null" for branch in avro.items) <= 1
        parts: list[Part] = []

        def writer(branch: Avro, name: str) -> Callable[[], None] | None:
            inside = place if is_optional else place.inside(name)
            return None if branch.kind == "null" else lambda: parts.append(self._value_or_boolean(branch, inside))

        if not is_optional:
            for name in names:
                self._count_field(place.inside(name))
        self.open.append(None)
        self.code.union(place.name, slot, [writer(b, name) for b, name in zip(avro.items, names, strict=True)])
        self.open.pop()
        if not parts:
            return None
        choices = tuple(number for number, branch in enumerate(avro.items, 1) if branch.kind != "null")
        if is_optional:
            return Part("optional", parts[0].type, place.context, place.name, slot, tuple(parts), choices)
        present_names = [name for b, name in zip(avro.items, names, strict=True) if b.kind != "null"]
        kind = _struct(present_names, tuple(parts), UnionStruct)
        return Part("union", kind, place.context, place.name, slot, tuple(parts), choices)

    def _skip(self, avro: Avro) -> None:
        """Adds steps that skip a value, by its underlying type."""
        if avro.kind == "record":
            if avro not in self.zero_byte_records:
                self.code.add(CALL, operands=(self._routine(avro),))
        elif avro.kind in ("array", "map"):
            self.code.items("", SCRATCH_SLOT, SCRATCH, lambda: self._skip_item(avro))
        elif avro.kind == "union":
            branches = [None if b.kind == "null" else lambda b=b: self._skip(b) for b in avro.items]
            self.code.union("", SCRATCH_SLOT, branches)
        elif avro.kind != "null":
            self.code.scalar(avro, "", SCRATCH_SLOT)

    def _skip_item(self, avro: Avro) -> None:
        if avro.kind == "map":
            self.code.scalar(Avro("string"), "", SCRATCH_SLOT)
        self._skip(avro.items[0])
