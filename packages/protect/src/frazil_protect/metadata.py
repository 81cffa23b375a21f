"""What a record leaves beside its columns in a protected table: reasons of refusal, rescued values, key and headers."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import takewhile
from typing import Any

import pyarrow as pa

from frazil.column_names import fold_case
from frazil.decode.columns import as_text
from frazil.decode.conversion import UNKNOWN_FIELD
from frazil.error_classes import ErrorClass
from frazil.schema.arrow import pick
from frazil.schema.projection import HEADERS, KEY
from frazil.stages.changes import Changes, ReadRecords
from frazil.types import RESCUED_COLUMN
from frazil.write.target import TableTarget
from frazil_protect.kernels import protect_headers, protected_values
from frazil_protect.rules import Protection, Rule, protected_paths, rule_around, spelled

HIDDEN = "the value does not fit; it is not shown, because the table protects fields"
"""The reason of every refused value of a protected table: most reasons quote the record."""
_QUOTES_NOTHING = frozenset(error_class for error_class in ErrorClass if not error_class.entry.quotes_values)
"""Classes of errors whose reasons have no part of a record, or only what is protected already."""
_AGAIN = re.compile(r"#[0-9]+$")
_DROPPED = object()


def protect_metadata(protection: Protection, target: TableTarget, read: ReadRecords, changes: Changes) -> Changes:
    """Returns the changes with rescued values, keys and headers protected, and without any part of a record in reasons."""
    names = _known_names(target) | (_known_names(target.source) if target.source is not None else frozenset())
    # A path is kept up to the first name that only the record has.
    mismatches = [
        replace(
            mismatch,
            path=".".join(takewhile(names.__contains__, mismatch.path.split("."))),
            reason=mismatch.reason if mismatch.kind in _QUOTES_NOTHING else HIDDEN,
        )
        for mismatch in changes.decoded.mismatches
    ]
    fields = {field for field, _ in target.metadata} & {"key", "headers"}
    metadata = pick({field: read.columns[field] for field in fields}, changes.records)
    own = {field: _protected_metadata(protection, field, values) for field, values in metadata.items()}
    return replace(
        changes,
        decoded=replace(changes.decoded, mismatches=mismatches),
        own={**changes.own, **own, **_protected_rescued(target, protection, changes.rescued)},
    )


def _protected_rescued(target: TableTarget, protection: Protection, rescued: pa.Array | None) -> dict[str, pa.Array]:
    """Returns the column of rescued values protected, one per change."""
    if rescued is None:
        return {}
    source = target.source or target
    rules = protected_paths(source.schema, protection, source.origins)
    texts = (None if text is None else _rescued(protection, rules, text) for text in rescued.to_pylist())
    return {RESCUED_COLUMN: pa.array(texts, pa.string())}


def _protected_metadata(protection: Protection, field: str, values: pa.Array) -> pa.Array:
    """Returns the records' keys or headers protected, in the type that they have: `null` for a key that is dropped."""
    if field == "headers":
        return protect_headers(values, protection)
    rule = protection.rule_for((KEY,)) or protection.rule_inside((KEY,))
    if rule is None:
        return values
    rule = replace(rule, action="null" if rule.action == "drop" else rule.action, label=rule.label or KEY)
    return protected_values(values, rule, protection.key).cast(values.type)


def _known_names(target: TableTarget) -> frozenset[str]:
    """Returns the names of all fields that the records are known to have."""
    return frozenset(part for path in target.schema.column_names for part in path.split("."))


class _Digits(str):
    """A number of JSON as it is written."""


class _Object(tuple[tuple[str, Any], ...]):
    """The members of an object of JSON, in order; a name may be there twice."""


def _rescued(protection: Protection, rules: Mapping[str, Rule], text: str) -> str | None:
    """Returns the rescued values of one record protected. rules: the rules of fields that the records are known to have."""
    members = []
    for name, member in json.loads(text, parse_float=_Digits, parse_int=_Digits, object_pairs_hook=_Object):
        path, parts = _AGAIN.sub("", name), dict(member)
        value = _protected(protection, rules, spelled(path), parts["value"], _around(protection, rules, path))
        if value is not _DROPPED:
            reason = parts["reason"] if parts["reason"] == UNKNOWN_FIELD else HIDDEN
            members.append((name, _Object((("value", value), ("reason", reason)))))
    return as_text(_written(_Object(members))) if members else None


def _around(protection: Protection, rules: Mapping[str, Rule], path: str) -> Rule | None:
    """Returns the rule of what a rescued value is in. Of a header the whole value is rescued, whatever is wrong in it."""
    names = path.split(".")
    above = (".".join(names[:depth]) for depth in range(2, len(names))) if names[0] == HEADERS else ()
    inside = (_rule_inside(protection, rules, {header}) for header in above)
    return rule_around(protection, tuple(names)) or next(filter(None, inside), None)


def _protected(
    protection: Protection, rules: Mapping[str, Rule], paths: frozenset[str], value: Any, around: Rule | None
) -> Any:
    """Returns a value of JSON protected; _DROPPED where it is dropped. around: the rule of what the value is in.

    A value that is no object is hashed where a rule is for a field inside it.
    """
    rule = protection.rule_for(paths) or next((rules[path] for path in map(fold_case, paths) if path in rules), around)
    if rule is not None and rule.action == "drop":
        return _DROPPED
    if isinstance(value, _Object):
        inner = [
            (name, _protected(protection, rules, frozenset(f"{path}.{name}" for path in paths), member, rule))
            for name, member in value
        ]
        return _Object((name, member) for name, member in inner if member is not _DROPPED)
    if isinstance(value, list):
        return [_protected(protection, rules, paths, element, rule) for element in value]
    rule = rule or _rule_inside(protection, rules, paths)
    if rule is None or value is None:
        return value
    text = value if isinstance(value, str) else _written(value)
    rule = replace(rule, label=rule.label or min(paths, key=lambda path: (len(path), path)))
    return protected_values(pa.array([as_text(text)], pa.string()), rule, protection.key)[0].as_py()


def _rule_inside(protection: Protection, rules: Mapping[str, Rule], paths: Collection[str]) -> Rule | None:
    """Returns the rule of a value that is no object, where a rule is for a field inside it."""
    is_known = any(name.startswith(f"{fold_case(path)}.") for path in paths for name in rules)
    return Rule("", "hash") if is_known else protection.rule_inside(paths)


def _written(value: Any) -> str:
    """Returns a value of JSON as text, numbers as they were written."""
    if isinstance(value, _Object):
        members = (f"{json.dumps(name, ensure_ascii=False)}:{_written(member)}" for name, member in value)
        return f"{{{','.join(members)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_written, value))}]"
    return str(value) if isinstance(value, _Digits) else json.dumps(value, ensure_ascii=False)
