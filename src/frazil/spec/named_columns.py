"""Columns that other settings of a table name: whether the file lets them be there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from frazil.spec.models import METADATA_COLUMNS, ColumnSpec
from frazil.spec.partitioning import PartitionTerm
from frazil.spec.problems import Problems
from frazil.spec.reading import Fields

Path = tuple[str, ...]


def check_named_columns(
    fields: Fields, settings: Mapping[str, Any], columns: Sequence[ColumnSpec], problems: Problems
) -> None:
    """Notes columns of record metadata that `metadata` does not ask for, and keys and orders of fields that are left out.
    settings: of the table, by name.
    """
    declared = {column.name: column for column in columns}
    metadata = set(settings["metadata"].values())
    for key, line, name, text in _named(fields, settings):
        first = name.split(".")[0]
        field = next((field for field, usual in METADATA_COLUMNS.items() if usual == first), None)
        if field is not None and first not in declared and first not in metadata:
            message = f"`{key}` has `{text}`, and there is no column `{first}`: `metadata` does not ask for it"
            problems.add(line, message, f"write `metadata: [{field}]`")
        elif key in ("key_columns", "order_by") and first not in metadata:
            if first not in declared and columns and settings["unknown_fields"] != "add":
                message = f"`{key}` has `{name}`, which `columns` does not declare and `unknown_fields` keeps away"
                problems.add(line, message, "declare it under `columns`")
            path = _field_of(name, declared)
            if path is not None and not _makes_names(settings):
                taken = () if first in declared else settings["include"]
                _check_taken(key, line, path, taken, settings["exclude"], problems)


def _named(fields: Fields, settings: Mapping[str, Any]) -> Iterator[tuple[str, int, str, str]]:
    """Each setting that names a column, its line, the column, and how it is written."""
    terms: list[tuple[str, PartitionTerm]] = [("partition_by", term) for term in settings["partition_by"] or ()]
    terms += [("sort_by", sort.term) for sort in settings["sort_by"] or ()]
    yield from ((key, term.line, term.column, term.text) for key, term in terms)
    for key, names in (("key_columns", settings["key_columns"]), ("order_by", (settings["order_by"],))):
        entry = fields.get(key)
        yield from ((key, entry.line, name, name) for name in names if entry is not None and name)


def _field_of(name: str, declared: Mapping[str, ColumnSpec]) -> Path | None:
    """The path of the field that feeds a column; None where it comes from something else than the record's value."""
    first, *rest = name.split(".")
    column = declared.get(first)
    if column is None:
        return (first, *rest)
    return None if column.is_own else (*(column.field or (first,)), *rest)


def _makes_names(settings: Mapping[str, Any]) -> bool:
    """Whether nobody knows yet which field a column will come from."""
    return settings["flatten"] is not None or settings["column_case"] != "keep"


def _check_taken(
    key: str, line: int, path: Path, include: Sequence[Path], exclude: Sequence[Path], problems: Problems
) -> None:
    """Without a value every record would be a bad one."""
    name = ".".join(path)
    if any(path[: len(out)] == out for out in exclude):
        problems.add(line, f"`exclude` leaves out `{name}`, which `{key}` asks for", "take it out of one of them")
    elif include and not any(path[: len(taken)] == taken[: len(path)] for taken in include):
        problems.add(line, f"`include` does not take `{name}`, which `{key}` asks for", "add it to `include`")
