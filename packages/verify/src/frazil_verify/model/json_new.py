"""What of a JSON value no new column can have, whatever other records have: docs/guides/evolve.md and declare-columns.md."""

from __future__ import annotations

import math
from collections.abc import Sequence

from frazil_verify.model.faults import Fault
from frazil_verify.model.json_text import Json, has_half
from frazil_verify.model.json_values import as_decimal, exact
from frazil_verify.model.settings import MOST_NAME_BYTES, Path
from frazil_verify.model.types import Plain, parse_type

Unfit = tuple[Path, Json, tuple[str, ...]]
"""The path of a value, the value, and the classes of its fault."""


def has_type(node: Json) -> bool:
    """Whether a value is something else than null, and lists and objects of nothing else."""
    if node.kind == "array":
        return any(map(has_type, node.value))
    if node.kind == "object":
        return any(has_type(value) for _, value in node.value)
    return node.kind != "null"


def unfit_parts(nodes: Sequence[Json], path: Path, numbers: str) -> tuple[list[Unfit], bool]:
    """Returns the parts of one new column's values in a record that do not fit it, and whether there are others.

    numbers: the setting.
    """
    first = next((node.kind for node in nodes if has_type(node)), None)
    if first is None:
        return [], False
    result: list[Unfit] = [(path, node, ("type_mismatch",)) for node in nodes if node.kind not in (first, "null")]
    same = [node for node in nodes if node.kind == first]
    if first == "array":
        inner, is_left = unfit_parts([item for node in same for item in node.value], (*path, "element"), numbers)
        return result + inner, is_left
    if first == "object":
        inner, is_left = _unfit_members(same, path, numbers)
        return result + inner, is_left
    bad = _bad_scalars(same, numbers)
    return result + [(path, node, kinds) for node, kinds in bad], len(bad) < len(same)


def _unfit_members(objects: Sequence[Json], path: Path, numbers: str) -> tuple[list[Unfit], bool]:
    result: list[Unfit] = [(path, node, ("invalid_text",)) for node in objects if any(map(has_half, node.keys))]
    members = dict[str, tuple[str, list[Json]]]()
    for node in objects:
        for name, value in node.value if not any(map(has_half, node.keys)) else ():
            members.setdefault(name.lower(), (name, []))[1].append(value)
    is_left = False
    for name, values in members.values():
        inner = (*path, name)
        kind = "" if name else "name_conflict"
        if len(name.encode()) > MOST_NAME_BYTES:
            kind = "name_too_long"
        if kind:
            result += [(inner, value, (kind,)) for value in values if has_type(value)]
            continue
        parts, is_more = unfit_parts(values, inner, numbers)
        result += parts
        is_left |= is_more
    return result, is_left


def _bad_scalars(nodes: Sequence[Json], numbers: str) -> list[tuple[Json, tuple[str, ...]]]:
    """Returns those of scalars of one kind that their column cannot have."""
    if nodes[0].kind == "string":
        return [(node, ("invalid_text",)) for node in nodes if has_half(node.value)]
    if nodes[0].kind != "number":
        return []
    kind = numbers
    if numbers == "as_seen":
        kind = "double" if any(set(node.value) & set(".eE") for node in nodes) else "long"
    return [(node, ("out_of_range",)) for node in nodes if not _is_held(node.value, kind)]


def _is_held(number: str, kind: str) -> bool:
    if kind == "long":
        return -(2**63) <= exact(number) < 2**63
    if kind == "double":
        return math.isfinite(float(number))
    decimal = parse_type(kind)
    assert isinstance(decimal, Plain)
    try:
        as_decimal(exact(number), decimal)
    except Fault:
        return False
    return True
