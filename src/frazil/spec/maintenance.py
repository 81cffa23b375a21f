"""Table maintenance: the section `maintenance` of the file and of a table, and every key that it may have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from frazil.errors import SpecError
from frazil.spec.document import Entry, Scalar, Section
from frazil.spec.keys import Key
from frazil.spec.models import MAINTENANCE_KEYS, STRANGE_IN_MAINTENANCE, WINDOW_PATTERN, MaintenanceSpec
from frazil.spec.partitioning import find_type, is_declared_otherwise
from frazil.spec.problems import Problems, advice
from frazil.spec.reading import Fields, read_items, read_text

_SORT_COLUMN = re.compile(r"([^\s,()]+)(?: (asc|desc))?", re.IGNORECASE)
_CURVE_COLUMN = re.compile(r"[^\s,()]+")
_ON_A_CURVE = (
    BooleanType, IntegerType, LongType, FloatType, DoubleType, DateType, TimestampType, TimestamptzType, StringType,
    UUIDType, FixedType, BinaryType,
)  # fmt: skip
"""Types whose values Iceberg places on a Z-curve."""


def read_maintenance(
    entry: Entry | None, inherited: MaintenanceSpec, problems: Problems, keys: Mapping[str, Key] = MAINTENANCE_KEYS
) -> MaintenanceSpec:
    """Table care as the file wants it; what it leaves out is `inherited`. keys: those that are known here."""
    if entry is None:
        return inherited
    switch = _switch(entry, problems)
    if switch is not None:
        return inherited.model_copy(update={"is_on": switch})
    fields = Fields(entry.value, keys, "maintenance", problems, strange=STRANGE_IN_MAINTENANCE)
    found = {"is_on": True, **fields.values(), **_orders(fields, problems)}
    for key in ("snapshots", "orphans"):
        inner = fields.section(key, MaintenanceSpec, key)
        found |= inner.values() if inner else {}
    window = fields.text("window") if "window" in keys else None
    if window is not None:
        found["window"] = problems.attempt(entry.line, None, _parse_window, window)
    return inherited.model_copy(update=found)


def _switch(entry: Entry, problems: Problems) -> bool | None:
    """`maintenance: false` and the like; None for a section."""
    if isinstance(entry.value, Section):
        return None
    if isinstance(entry.value, Scalar) and entry.value.kind == "boolean":
        return entry.value.text.lower() in ("true", "yes", "on")
    problems.add(entry.value.line, "`maintenance` is no mapping", "write true, false, or its settings")
    return True


def _orders(fields: Fields, problems: Problems) -> dict[str, Any]:
    sort, zorder = fields.get("sort"), fields.get("zorder")
    if sort is not None and zorder is not None:
        line = max(sort.line, zorder.line)
        problems.add(line, "`maintenance` has both `sort` and `zorder`", "keep one of them")
    found: dict[str, Any] = {}
    for key, entry, form in (("sort", sort, _SORT_COLUMN), ("zorder", zorder, _CURVE_COLUMN)):
        if entry is not None:
            columns = _columns(entry, f"maintenance.{key}", form, problems)
            found = {"sort": (), "zorder": (), key: tuple(text for text, _ in columns)}
            found["order_lines"] = tuple(line for _, line in columns)
    return found


def check_order(
    maintenance: MaintenanceSpec, fields: Mapping[str, IcebergType], is_complete: bool, others: Sequence[str] = ()
) -> Iterator[tuple[int, SpecError]]:
    """Columns that compaction is to order rows by and cannot, each with its line. fields: columns of the table; others:
    those of unknown types; is_complete: it has no more.
    """
    key, texts = ("zorder", maintenance.zorder) if maintenance.zorder else ("sort", maintenance.sort)
    for text, line in zip(texts, maintenance.order_lines, strict=True) if maintenance.is_on else ():
        name = text.partition(" ")[0]
        if name.split(".")[0] in others:
            continue
        kind = find_type(name, fields)
        what = f"`maintenance.{key}` names a column that"
        if kind is None and (is_complete or is_declared_otherwise(name, fields)):
            yield line, SpecError(f"{what} the table does not have: `{name}`", remedy=advice(name, fields))
        elif kind is not None and key == "zorder" and not (name in fields and isinstance(kind, _ON_A_CURVE)):
            remedy = "name columns of numbers, text, bytes or times that lie in no other one"
            yield line, SpecError(f"{what} has no place on a Z-curve: `{name}`", remedy=remedy)
        elif kind is not None and not kind.is_primitive:
            remedy = "name a column that is no list, map or struct, or one inside it, such as `a.b`"
            yield line, SpecError(f"{what} is no single value: `{name}`", remedy=remedy)


def _columns(entry: Entry, label: str, form: re.Pattern[str], problems: Problems) -> list[tuple[str, int]]:
    """What the items say, with their lines."""
    texts = []
    for item in read_items(entry.value, label, problems):
        text = read_text(item, label, problems)
        if text is not None and form.fullmatch(text) is None:
            remedy = "write the column's name" + (", with asc or desc after it if need be" if "sort" in label else "")
            problems.add(item.line, f"`{text}` under `{label}` is not a column", remedy)
        texts.append((text or "", item.line))
    return texts


def _parse_window(text: str) -> tuple[int, int]:
    """Minutes of the day (UTC) from and to."""
    if re.fullmatch(WINDOW_PATTERN, text) is None:
        raise SpecError(f"`{text}` is not a window", remedy="write two times of the day (UTC), such as `22:00-06:00`")
    begin, end = (int(part[:2]) * 60 + int(part[3:]) for part in text.split("-"))
    if begin == end:
        raise SpecError(f"the window `{text}` is empty", remedy="write two different times, or remove it")
    return (begin, end)
