"""First values of fields of another kind than the table's settings need, such as a list where a query reads a struct.

The first value of a field of JSON makes its column. One odd record would stop the table, or give it a column of a type
that no other record has: so its kind is refused where other records have another one, and the field is read again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from frazil.column_names import fold_case
from frazil.decode.lossless import format_type
from frazil.errors import SpecError, UnavailableError, UnusableType
from frazil.ingest.tables.schema_changes import unknown_column
from frazil.ingest.tables.table import Table
from frazil.process.catalyst import TypeRefused
from frazil.schema.evolve import Path, RequestedFields, hints_of
from frazil.schema.parts import types_in

_QUOTED = re.compile(r'"([^"]*)"|`([^`]*)`')
_WORD = re.compile(r"\w+")
_WITH_MEMBERS = ("array", "object")

RefusedKinds = Mapping[Path, tuple[str, str]]
"""By path of a field the kind of the values that are refused, as in `hints_of`, and why."""


def refused_kinds(
    table: Table,
    error: TypeRefused | UnusableType | UnavailableError,
    requested_fields: RequestedFields,
    mismatched: Iterable[str],
) -> RefusedKinds:
    """Returns the kinds of first values that are to be refused, as the table cannot have columns of them; of a field one
    kind.

    requested_fields: with the types of the first values. mismatched: the paths of fields with values of another type.

    Raises: SpecError or UnavailableError, as `error`, where that would not help.
    """
    # Paths begin at the top of the row, not of an envelope.
    others = {path.partition(".")[2] if table.spec.changes.envelope is not None else path for path in mismatched}
    kinds = {
        path: (kind, f"{{value}} is of a kind that the table cannot have here: {error.message}")
        for path, kind in hints_of(requested_fields)
        if ".".join(path) in others and path not in table.schema.refused_kinds and _concerns(table, error, path, kind)
    }
    if kinds:
        return kinds
    raise _with_types(error, requested_fields) if isinstance(error, TypeRefused) else error


def _concerns(table: Table, error: TypeRefused | UnusableType | UnavailableError, path: Path, kind: str) -> bool:
    """Whether an error may come from the first value of a field. kind: of this value."""
    if isinstance(error, UnusableType):
        return [*map(fold_case, path)] == [*map(fold_case, error.path)]
    name = fold_case(path[-1])
    if isinstance(error, TypeRefused):
        return name in _names_in(error)
    query = table.spec.query
    is_missing = unknown_column(error) != "" and kind in _WITH_MEMBERS  # The field lacks a member that others have.
    return is_missing and name in map(fold_case, _WORD.findall(f"{query.select or ''} {query.where or ''}"))


def _with_types(error: TypeRefused, requested_fields: RequestedFields) -> SpecError:
    """Returns the refusal of a query with the types of the fields that it names: the first records, of which one may be
    odd, have given them these.
    """
    names = _names_in(error)
    types = {
        path: kind
        for path, kind in _types_of(requested_fields)
        if fold_case(path[-1]) in names and kind not in error.message
    }
    if not types:
        return error
    has = ", ".join(f"`{'.'.join(path)}` as {kind}" for path, kind in types.items())
    remedy = f"{error.remedy}; or declare what most records have, `columns: {{{next(iter(types))[0]}: TYPE}}`"
    return SpecError(f"{error.message}; the first records have {has}", remedy=remedy, where=error.where)


def _types_of(requested_fields: RequestedFields) -> Iterator[tuple[Path, str]]:
    """Yields the path and the type of each field."""
    inside = (
        types_in(kind, (*parent, name))
        for parent, members in requested_fields.items()
        for name, kind in members.items()
    )
    return ((path, format_type(kind)) for path, kind in chain.from_iterable(inside))


def _names_in(error: TypeRefused) -> set[str]:
    """Returns the words of the expressions that the refusal of a query quotes, in small letters."""
    texts = (text for quoted in _QUOTED.findall(error.message) for text in quoted)
    return {fold_case(word) for text in texts for word in _WORD.findall(text)}
