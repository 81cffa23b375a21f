"""`protect`: which fields of the records are protected, and how. Pure.

It is made from the records' schema: a stage of the program that replaces these fields before anything else sees them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from frazil.column_names import fold_case
from frazil.queries.program import Call, Expression, Field, Project
from frazil.queries.program import Literal as Constant
from frazil.schema.arrow import arrow_type
from frazil.schema.parts import Path
from frazil.schema.projection import HEADERS, in_record
from frazil.stages.notes import Action, ProtectedField, ProtectedFields
from frazil.stages.record_key import RecordKey

PROTECT, PROTECT_HEADERS = "Protect", "ProtectHeaders"
"""The functions of the stage: they take a column and the key; the option `actions` names what happens inside it."""
_STEPS = ("element", "value")


@dataclass(frozen=True)
class Rule:
    """What happens to the fields that a selector finds."""

    #: The path of a field, names joined by dots, or a `/regular expression/` that is searched for in such paths; in any
    #: case, as names that differ in case alone are one column, whose name is that of the first record.
    selector: str
    action: Action
    #: Separates hashes and tokens of fields; empty: the field's path does.
    label: str = ""
    #: Of `mask`, the characters at the end that stay.
    keep: int = 4
    #: Of `truncate`, the characters at the beginning that stay.
    length: int = 4
    #: Of `constant`, the text.
    value: str = ""
    #: The names of the path, where one of them has a dot; empty where dots separate all names of the selector.
    names: tuple[str, ...] = ()

    def matches(self, paths: Iterable[str]) -> bool:
        """Whether the selector finds a field that has these paths."""
        if self._pattern is None:
            return self._folded in map(fold_case, paths)
        return any(self._pattern.search(path) for path in paths)

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        return re.compile(self.selector[1:-1], re.IGNORECASE) if self.selector.startswith("/") else None

    @cached_property
    def _folded(self) -> str:
        return fold_case(self.selector)

    def is_inside(self, path: str) -> bool:
        """Whether the selector names a field inside the field at `path`."""
        return fold_case(path) in self._around

    @cached_property
    def _around(self) -> frozenset[str]:
        """The paths of the fields that the field of the selector is in, without case."""
        names = () if self.selector.startswith("/") else self.names or self.selector.split(".")
        return frozenset(fold_case(".".join(names[:depth])) for depth in range(1, len(names)))


@dataclass(frozen=True)
class Protection:
    """What protects the records of one table. `repr` does not show the key."""

    #: The first rule that finds a field decides.
    rules: tuple[Rule, ...]
    key: RecordKey

    def rule_for(self, paths: Iterable[str]) -> Rule | None:
        """Returns the rule of a field that has these paths; None without one."""
        path_set = tuple(paths)
        return next((rule for rule in self.rules if rule.matches(path_set)), None)

    def rule_inside(self, paths: Iterable[str]) -> Rule | None:
        """Returns the rule of a value that is not a struct and has these paths, where a rule names a field inside it:
        nothing shows where in the value that field is, so the whole is hashed. None without such a rule.
        """
        path_set = tuple(paths)
        selectors = (rule.selector for rule in self.rules if any(map(rule.is_inside, path_set)))
        return next((Rule(selector, "hash") for selector in selectors), None)


#: The path inside a column, as `schema.parts.Path`, also with `key` for the keys of a map, and the rule of that part.
Parts = list[tuple[Path, Rule]]


def protecting(
    records: Schema, protection: Protection, origins: Mapping[str, Path | None] | None = None
) -> Project | None:
    """Returns the stage that protects records of this schema; None where no rule finds a field.

    origins: the field or the part of the record that feeds a column, where it has another name; None for a column that no
    rule is for, such as the record's offset.
    """
    names = origins or {}
    columns = []
    is_changed = False
    for field in records.fields:
        kind, origin = arrow_type(field.field_type), names.get(field.name, (field.name,))
        column: Expression | None = Field(field.name, kind)
        if origin == (HEADERS,):
            column = _headers(protection, Field(field.name, kind))
        elif origin is not None:
            column = _protected(protection, field, origin)
        is_changed |= not isinstance(column, Field)
        if column is not None:
            columns.append((field.name, column))
    return Project(tuple(columns), is_in_place=True) if is_changed else None


def protected_paths(
    records: Schema, protection: Protection, origins: Mapping[str, Path | None] | None = None
) -> dict[str, Rule]:
    """Returns the rules of the protected fields of records of this schema, by each of the paths that a field has, without
    case (`fold_case`).
    """
    rules: dict[str, Rule] = {}
    for field in records.fields:
        origin = (origins or {}).get(field.name, (field.name,))
        if origin is not None:
            for _, paths, rule in _parts_of(protection, field, origin):
                rules |= dict.fromkeys(map(fold_case, paths), rule)
    return rules


@dataclass(frozen=True)
class Unprotected:
    """A rule for a name that a query gives to fields which no rule protects."""

    rule: Rule
    #: The path of the column, or of the part of one.
    path: str
    #: The fields that its values are made of, as paths.
    sources: tuple[str, ...]


def find_unprotected(
    column: str, kind: pa.DataType, sources: Iterable[Path], protection: Protection, rules: Mapping[str, Rule]
) -> Unprotected | None:
    """Returns the first rule that finds a column of a query's result, or a part of it, and nothing that it is made of; None
    without one. sources: of the column. rules: the protected fields of the records, as `protected_paths` returns them.
    """
    paths = set(sources)
    around = {path[:cut] for path in paths for cut in range(1, len(path))}
    fields = sorted(".".join(path) for path in paths - around)
    for path in _paths_in(column, kind):
        rule = protection.rule_for(spelled(path))
        if fields and rule is not None and not any(_is_covered(field, rule, rules) for field in fields):
            return Unprotected(rule, path, tuple(fields))
    return None


def _paths_in(path: str, kind: pa.DataType) -> Iterator[str]:
    yield path
    for name, inner in inner_types(kind):
        yield from _paths_in(f"{path}.{name}", inner)


def _is_covered(field: str, rule: Rule, rules: Mapping[str, Rule]) -> bool:
    """Whether the field is protected, or something in it by this very rule."""
    plain = fold_case(field)
    return any(
        f"{plain}.".startswith(f"{path}.") or (field_rule.selector == rule.selector and path.startswith(f"{plain}."))
        for path, field_rule in rules.items()
    )


def spelled(path: str) -> frozenset[str]:
    """Returns the path, and the path without the steps into lists and maps."""
    return frozenset((path, ".".join(part for part in path.split(".") if part not in _STEPS)))


def protected_fields(records: Schema, protection: Protection, origins: Mapping[str, Path | None]) -> ProtectedFields:
    """Returns the protected fields of records of this schema, in its order. origins: as for `protecting`."""
    fields = []
    for field in records.fields:
        origin = origins.get(field.name, (field.name,))
        if origin == (HEADERS,):
            mine = (rule for rule in protection.rules if rule.is_inside(HEADERS) or rule.matches((HEADERS,)))
            fields += [ProtectedField(rule.selector, rule.action) for rule in mine]
        elif origin is not None:
            parts = _parts_of(protection, field, origin)
            fields += [ProtectedField(".".join((*origin, *inside)), rule.action) for inside, _, rule in parts]
    return ProtectedFields(tuple(fields))


def rule_around(protection: Protection, path: Path) -> Rule | None:
    """Returns the rule of the innermost of the fields that a field is in which a rule finds; None without one. path: of the
    field in the records, which `flatten` and `columns` may have made a column without the struct.
    """
    above = (".".join(path[:depth]) for depth in range(len(path) - 1, 0, -1))
    return next(filter(None, (protection.rule_for(spelled(outer_path)) for outer_path in above)), None)


def _protected(protection: Protection, field: NestedField, origin: Path) -> Expression | None:
    """Returns the column as the table may have it; None where it is dropped. origin: the field that feeds it."""
    kind = arrow_type(field.field_type)
    parts = [(inside, rule) for inside, _, rule in _parts_of(protection, field, origin)]
    if not parts:
        return Field(field.name, kind)
    protected = protected_type(kind, dict(parts))
    if protected is None:
        return None
    return _call(PROTECT, protection, Field(field.name, kind), protected, (("actions", dump_parts(parts)),))


def _headers(protection: Protection, field: Field) -> Expression:
    """Returns the column of headers: their names, known only when they are read, decide."""
    mine = [rule for rule in protection.rules if rule.selector.startswith("/") or rule.is_inside(HEADERS)]
    mine += [rule for rule in protection.rules if rule.matches((HEADERS,)) and rule not in mine]
    if not mine:
        return field
    return _call(PROTECT_HEADERS, protection, field, field.type, (("actions", dump_parts([((), r) for r in mine])),))


def _call(name: str, protection: Protection, field: Field, kind: pa.DataType, options: tuple[tuple[str, str]]) -> Call:
    return Call(name, (field, Constant(protection.key, pa.binary())), kind, options, f"{name.lower()}({field.name})")


def _parts_of(protection: Protection, field: NestedField, origin: Path) -> Iterator[tuple[Path, frozenset[str], Rule]]:
    """Yields the parts of a column that are replaced, as `_parts` does. origin: the field that feeds it. Members of structs
    have the names of the table and, with `column_case`, others in the records: rules may name both.
    """
    paths, around = frozenset((field.name, ".".join(origin))), rule_around(protection, origin)
    kind, in_records = arrow_type(field.field_type), arrow_type(in_record(field.field_type))
    return _parts(protection, (kind, in_records), (), paths, around)


def _parts(
    protection: Protection,
    kinds: tuple[pa.DataType, pa.DataType],
    path: Path,
    paths: frozenset[str],
    around: Rule | None,
    are_keys: bool = False,
) -> Iterator[tuple[Path, frozenset[str], Rule]]:
    """Yields the parts of a column that are replaced, each with the paths by which rules may name it, and its rule. kinds:
    the type with the names of the table, and with those of the records. paths: of the whole. around: the rule of what the
    whole is in. are_keys: whether the whole is the keys of a map: these are hashed, whatever the action, so that they stay
    distinct.
    """
    kind, in_records = kinds
    rule = protection.rule_for(paths) or around
    if rule is None and not pa.types.is_nested(kind):
        rule = protection.rule_inside(paths)
    if rule is not None and (rule.action in ("drop", "null") or not pa.types.is_nested(kind)):
        action: Action = "hash" if are_keys else rule.action
        label = rule.label or min(paths, key=lambda candidate: (len(candidate), candidate))
        yield path, paths, replace(rule, action=action, label=label)
        return
    for (name, inner), (other, inner_in_records) in zip(inner_types(kind), inner_types(in_records), strict=True):
        inner_paths = {f"{path_text}.{given}" for path_text in paths for given in (name, other)}
        if not pa.types.is_struct(kind) and name != "key":
            inner_paths |= (
                paths  # `phones.number` names the member of a list's elements, as `phones.element.number` does.
            )
        are_inner_keys = pa.types.is_map(kind) and name == "key"
        inner_kinds = (inner, inner_in_records)
        yield from _parts(protection, inner_kinds, (*path, name), frozenset(inner_paths), rule, are_inner_keys)


def inner_types(kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
    """Returns the parts of a nested type, with their names in paths."""
    if pa.types.is_struct(kind):
        return [(kind.field(n).name, kind.field(n).type) for n in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return [("key", kind.key_type), ("value", kind.item_type)]
    return [("element", kind.value_type)] if pa.types.is_list(kind) else []


def protected_type(kind: pa.DataType, parts: Mapping[Path, Rule], path: Path = ()) -> pa.DataType | None:
    """Returns the type of protected values; None where nothing is left of them."""
    rule = parts.get(path)
    if rule is not None:
        return {"drop": None, "null": kind}.get(rule.action, pa.string())
    inner = [(name, protected_type(of, parts, (*path, name))) for name, of in inner_types(kind)]
    left = [(name, of) for name, of in inner if of is not None]
    if not inner:
        return kind
    if pa.types.is_struct(kind):
        members = [pa.field(name, of) for name, of in left]
        return pa.struct(members) if members else None
    if len(left) < len(inner):
        return None
    return pa.map_(left[0][1], left[1][1]) if pa.types.is_map(kind) else pa.list_(left[0][1])


def dump_parts(parts: Parts) -> str:
    """Returns the parts as text, for the option `actions`."""
    return json.dumps([[path, asdict(rule)] for path, rule in parts], ensure_ascii=False)


def load_parts(text: str) -> Parts:
    """Returns the parts that `dump_parts` wrote."""
    return [(tuple(path), Rule(**rule | {"names": tuple(rule["names"])})) for path, rule in json.loads(text)]
