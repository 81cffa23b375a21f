"""Schema changes that records request and that leave the table unchanged. A batch that is planned again would request
them again, without end: the second time in a row the table stops.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from frazil.catalog.port import TableState
from frazil.errors import SpecError
from frazil.schema.evolve import Path, RequestedFields
from frazil.schema.projection import KEY_ROOT, format_path


@dataclass(frozen=True)
class NoOpChange:
    """A requested schema change that left the table unchanged."""

    #: Paths of the requested fields.
    fields: frozenset[Path]
    #: The table's uuid, before and after the change.
    uuid: str
    #: The table's shape, as in TableState.
    shape: tuple[int, int, int]
    #: The table's marks, as in TableState.
    marks: Mapping[str, str]


def find_no_op_change(
    before: TableState,
    after: TableState,
    requested_fields: RequestedFields,
    made_optional: Iterable[Path],
    last: NoOpChange | None,
) -> NoOpChange | None:
    """Returns the requested change where the table is unchanged by it; None where the table differs, whoever has
    changed it.

    before: the table that the records were read for. after: the table after the change. last: the result of this
    function for the batch before.

    Raises: SpecError where the result equals `last`.
    """
    if (before.uuid, before.shape, before.marks) != (after.uuid, after.shape, after.marks):
        return None
    fields = {(*parent, name) for parent, members in requested_fields.items() for name in members}
    found = NoOpChange(frozenset(fields.union(made_optional)), after.uuid, after.shape, after.marks)
    if found != last:
        return found
    names = sorted(format_path(("_key", *path[1:]) if path[0] == KEY_ROOT else path) for path in found.fields)
    raise SpecError(
        f"records need a schema change that changes nothing: field {', '.join(names)}",
        remedy="leave the field out with `exclude`, or declare a column for it or for the field that contains it, and"
        " report this error",
        where=after.name,
    )
