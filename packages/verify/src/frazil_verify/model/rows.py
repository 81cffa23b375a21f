"""What a record becomes: each of its fields a column's value, rescued, left out by a setting, or why it is a dead letter.

The walk is the same for all formats; a format defines what its values are (`Node`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from frazil_verify.model.faults import Fault
from frazil_verify.model.json_values import How
from frazil_verify.model.settings import (
    MOST_NAME_BYTES,
    RESERVED,
    Column,
    Names,
    Path,
    Settings,
    Table,
    takes,
)
from frazil_verify.model.types import ListOf, MapOf, Plain, StructOf, Type

MOST_INFERRED_LEVELS = 60


class Node(Protocol):
    """A value of a record in some format. The methods return None where the value is of another kind."""

    @property
    def is_null(self) -> bool:
        """Whether it is no value."""

    @property
    def has_type(self) -> bool:
        """Whether a new column can have its type from it."""

    @property
    def levels(self) -> int:
        """The levels of lists and records that a column may be too deep for."""

    def members(self) -> Sequence[tuple[str, Node]] | None:
        """Returns the fields of a record."""

    def elements(self) -> Sequence[Node] | None:
        """Returns the elements of a list."""

    def entries(self, kind: MapOf) -> Sequence[tuple[Node, Node]] | None:
        """Returns the entries of a map."""

    def plain(self, kind: Plain, how: How) -> Any:
        """Returns the value of a plain column, or raises Fault."""

    def own_faults(self) -> Sequence[str]:
        """Returns the classes of faults of a record's names."""

    def inner_faults(self) -> Sequence[str]:
        """Returns the classes of faults that a value has in itself, whatever its column is."""

    def unfit(self, numbers: str, /) -> tuple[Sequence[tuple[Path, Node, tuple[str, ...]]], bool]:
        """Returns the parts that no new column can have, by path inside of the value, with the classes of their faults; and
        whether there are others. numbers: the setting.
        """

    def rescued(self) -> Any:
        """Returns how `_rescued` has it, for comparison."""


@dataclass
class Outcome:
    """What one record becomes. kinds: the classes of its dead letter, none where it is a row."""

    kinds: set[str] = field(default_factory=set)
    #: The fields that are at fault, their names joined by dots; None for the entire record.
    paths: set[str | None] = field(default_factory=set)
    row: dict[str, Any] = field(default_factory=dict)
    rescued: list[tuple[str, Any]] = field(default_factory=list)
    #: Fields that a setting leaves out by name, and counts.
    dropped: set[str] = field(default_factory=set)
    #: Values that may be rescued, or not.
    may_rescue: list[tuple[str, Any]] = field(default_factory=list)
    #: Fields that it may count too: without a value, or with a name that is no text.
    may_drop: set[str] = field(default_factory=set)
    #: Fields that have no place.
    lost: list[str] = field(default_factory=list)
    #: New columns that the record's fields would be, nested ones counted.
    new_columns: int = 0
    #: Reasons of faults that columns without a declaration give rise to, by path.
    inferred: dict[str, str] = field(default_factory=dict)
    #: Classes of a dead letter that the record may be though it could be a row: the documentation leaves it open.
    may_be: set[str] = field(default_factory=set)

    @classmethod
    def dead(cls, fault: Fault, path: str | None = None) -> Outcome:
        """Returns that of a record that cannot be read."""
        return cls(set(fault.kinds), {path})


class Walk:
    """One record on its way to a row."""

    def __init__(self, settings: Settings, table: Table, above: Path = ()) -> None:
        """above: what leads to the row in a record's envelope, before the paths of bad and of rescued values."""
        self.above = above
        self.settings = settings
        self.table = table
        self.result = Outcome()

    def run(self, root: Node) -> Outcome:
        """Returns what becomes of a record."""
        try:
            self.result.row = self._members(root, self.table.columns, self.table.names, (), How(), top=None)
        except Fault as fault:
            self._die(fault, None)
        return self.result

    def _members(
        self, node: Node, kinds: Mapping[str, Type], names: Names, path: Path, how: How, top: Column | None
    ) -> dict[str, Any]:
        """Returns the values by column of a record's fields, or by member of a struct."""
        members = node.members()
        if members is None:
            raise Fault("type_mismatch")
        self._note_names(node, path)
        by_column, unknown = dict[str, list[tuple[Path, Node]]](), dict[str, Path]()
        for inner, value, column, is_fed in self._sorted_out(members, names, path):
            if column is None:
                self._unknown(inner, value)
                is_another = not value.is_null and unknown.setdefault(inner[-1].lower(), inner) != inner
                # Fields whose names differ in case alone cannot have two columns.
                if is_another and self.settings.unknown_fields == "add" and not self.settings.rescue:
                    self._die(Fault("name_conflict"), ".".join((*self.above, *inner)))
            elif is_fed:
                self._feed(column, inner, value)
            elif not value.is_null:
                by_column.setdefault(column, []).append((inner, value))
        row = {column: self._of_column(column, values, kinds, how, top) for column, values in by_column.items()}
        return {column: value for column, value in row.items() if value is not None}

    def _of_column(
        self, column: str, values: list[tuple[Path, Node]], kinds: Mapping[str, Type], how: How, top: Column | None
    ) -> Any:
        """Returns a column's value, of the fields that are its own; a field of exactly its name comes first."""
        values.sort(key=lambda item: item[0][-1] != column)
        (path, value), others = values[0], values[1:]
        for second, more in others:
            if self.settings.unknown_fields == "drop":
                self.result.dropped.add(".".join(second))
            elif self.settings.unknown_fields == "rescue":
                self._rescue(second, more)
            else:
                self._refuse(second, more, Fault("name_conflict", "unknown_field"))
        if len(path) == 1:
            top = self.settings.columns.get(column)
            how = How(top.coerce, top.zone, how.is_connect) if top is not None else how
        return self._value(value, kinds[column], path, how, top)

    def _sorted_out(
        self, members: Sequence[tuple[str, Node]], names: Names, path: Path
    ) -> list[tuple[Path, Node, str | None, bool]]:
        """Returns the fields that are taken, with their columns, and whether these are declared for fields of other names.

        Raises: Fault where a name is there twice.
        """
        result, seen = list[tuple[Path, Node, str | None, bool]](), set[str]()
        for name, value in members:
            inner = (*path, name)
            fed = self.settings.fields.get(tuple(map(str.lower, inner)))
            column = fed if fed is not None else self._column(names, name, path)
            is_out = takes(self.settings, inner) == "none" and not self._is_kept(column, path)
            if name in seen:
                # The documentation leaves open what becomes of a repeated name where the field is left out.
                if is_out:
                    self.result.may_be |= {"duplicate_key"}
                elif column is not None or self.settings.unknown_fields != "drop":
                    self._spoil(Fault("duplicate_key"), path)
            seen.add(name)
            if is_out:
                continue
            result.append((inner, value, column, fed is not None))
        return result

    def _note_names(self, node: Node, path: Path) -> None:
        for fault in node.own_faults():
            if self.settings.unknown_fields == "drop":  # Of fields that are left out the grammar alone is validated.
                self.result.may_be.add(fault)
            else:
                self._spoil(Fault(fault), path)

    def _spoil(self, fault: Fault, path: Path) -> None:
        """An object that is at fault itself: a value to be rescued inside of a record, or a bad record with what else is
        bad in it.
        """
        if path and self.settings.rescue:
            raise fault
        self._die(fault, ".".join((*self.above, *path)) or None)

    def _is_kept(self, column: str | None, path: Path) -> bool:
        """Declared columns need not be among those that are included."""
        if path or column is None or not self.settings.include:
            return False
        return column in self.settings.columns and not any(
            len(out) == 1 and out[0].lower() == column.lower() for out in self.settings.exclude
        )

    def _column(self, names: Names, name: str, path: Path) -> str | None:
        if not path and name.lower() in self.settings.own_columns:
            return None
        for wanted in (name, self.settings.case_of(name)):
            column = names.find(wanted)
            if column is not None and not self._is_of_another(column, name, path):
                return column
        return None if path else self.table.bound.get(name.lower())

    def _is_of_another(self, column: str, name: str, path: Path) -> bool:
        """Whether a column is that of a field of another name."""
        if path:
            return False
        declared = self.settings.columns.get(column)
        if declared is not None and declared.field:
            return True
        fed_by = self.table.field_of(column)
        return fed_by is not None and [part.lower() for part in fed_by] != [name.lower()]

    def _feed(self, column: str, path: Path, value: Node) -> None:
        """A field that a column of another name is declared for."""
        declared = self.settings.columns[column]
        kind = self.table.columns[column]
        if not value.is_null:
            result = self._value(value, kind, path, How(declared.coerce, declared.zone), declared)
            if result is not None:
                self.fed(column, result)

    def fed(self, column: str, value: Any) -> None:
        """Takes the value of a column with a field."""
        self.result.row[column] = value

    def _value(self, node: Node, kind: Type, path: Path, how: How, top: Column | None) -> Any:
        """Returns the value of a column, an element or a member; None where there is none."""
        if node.is_null:
            return None
        try:
            return self._parts(node, kind, path, how, top)
        except Fault as fault:
            if top is None and fault.because:
                self.result.inferred[".".join((*self.above, *path))] = fault.because
            if top is None and not node.has_type:
                # A list or an object without contents, whose column may be younger than the record.
                self.result.may_be |= fault.kinds
                self.result.may_rescue.append((".".join((*self.above, *path)), node.rescued()))
            elif top is None:  # The column may be younger than the record.
                self._refuse(path, node, Fault(*fault.kinds, *self._faults_of_new(path, node)))
            else:
                self._refuse(path, node, fault)
            return None

    def _parts(self, node: Node, kind: Type, path: Path, how: How, top: Column | None) -> Any:
        """Returns the value of a column, or raises Fault where it has none."""
        match kind:
            case StructOf(members):
                known = dict(members)
                return self._members(node, known, Names(known), path, how, top)
            case ListOf(element):
                elements = node.elements()
                if elements is None:
                    raise Fault("type_mismatch")
                return [self._value(item, element, (*path, "element"), how, top) for item in elements]
            case MapOf():
                return self._map(node, kind, path, how, top)
        return node.plain(kind, how)

    def _map(self, node: Node, kind: MapOf, path: Path, how: How, top: Column | None) -> list[tuple[Any, Any]]:
        entries = node.entries(kind)
        if entries is None or isinstance(kind.key, StructOf | ListOf | MapOf):
            raise Fault("type_mismatch")
        keys = [key.plain(kind.key, how) for key, _ in entries]
        if len(set(keys)) < len(keys):
            raise Fault("duplicate_key")
        values = [self._value(value, kind.value, (*path, "value"), how, top) for _, value in entries]
        return list(zip(keys, values, strict=True))

    def _unknown(self, path: Path, value: Node) -> None:
        """A field without a column."""
        settings = self.settings
        if settings.unknown_fields == "drop":
            is_counted = not value.is_null and path[-1].isprintable()
            (self.result.dropped if is_counted else self.result.may_drop).add(".".join(path))
        if value.is_null or settings.unknown_fields == "drop":
            return
        if settings.unknown_fields == "rescue":
            self._rescue(path, value)
        elif settings.schema_evolution == "freeze":
            self._refuse(path, value, Fault("unknown_field", *self._impossible(path)))
        else:
            self._add(path, value)

    def _add(self, path: Path, value: Node) -> None:
        """A field that must be a column, and is none."""
        if self._impossible(path):
            self._refuse(path, value, Fault(*self._impossible(path)))
        elif self._is_too_deep(path, value):
            self._refuse(path, value, Fault("too_deep"))
        elif value.has_type and value.inner_faults():
            self._refuse(path, value, Fault(*value.inner_faults()))
        elif value.has_type:
            self.result.new_columns += 1
            unfit, is_left = value.unfit(self.settings.numbers)
            for inner, part, kinds in unfit:
                self._refuse((*path, *inner), part, Fault(*kinds))
            if is_left:
                self.result.lost.append(".".join(path))

    def _faults_of_new(self, path: Path, value: Node) -> list[str]:
        """Returns the classes of the faults that a value would have without its column."""
        deep = ["too_deep"] if self._is_too_deep(path, value) else []
        return deep + [kind for _, _, kinds in value.unfit(self.settings.numbers)[0] for kind in kinds]

    def _is_too_deep(self, path: Path, value: Node) -> bool:
        return value.levels + len(path) - 1 > MOST_INFERRED_LEVELS

    def _impossible(self, path: Path) -> tuple[str, ...]:
        """Returns the class of a field whose name no column can have."""
        name = path[-1]
        if len(name.encode("utf-8", "surrogatepass")) > MOST_NAME_BYTES:
            return ("name_too_long",)
        if not name or (len(path) == 1 and name.lower() in RESERVED | self.settings.own_columns):
            return ("name_conflict",)
        if self.settings.column_case == "keep" or len(path) > 1:
            return ()
        column = self.table.names.find(self.settings.case_of(path[0]))
        return ("name_conflict",) if column is not None else ()

    def _refuse(self, path: Path, node: Node, fault: Fault) -> None:
        if self.settings.rescue and "missing_value" not in fault.kinds:
            self._rescue(path, node)
        else:
            self._die(Fault(*fault.kinds, *node.inner_faults()), ".".join((*self.above, *path)))

    def _rescue(self, path: Path, node: Node) -> None:
        self.result.rescued.append((".".join((*self.above, *path)), node.rescued()))

    def _die(self, fault: Fault, path: str | None) -> None:
        self.result.kinds |= fault.kinds
        self.result.paths.add(path)
