"""Changes of a table that its records ask for, and that leave it as it is. Planned again, their batch would ask for them
again, without end: the second time in a row the table stops.
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
    """Fields that records asked for in vain, and what the table was before and after: uuid, shape and marks as in
    TableState.
    """

    fields: frozenset[Path]
    uuid: str
    shape: tuple[int, int, int]
    marks: Mapping[str, str]


def find_no_op_change(
    before: TableState,
    after: TableState,
    requested_fields: RequestedFields,
    made_optional: Iterable[Path],
    last: NoOpChange | None,
) -> NoOpChange | None:
    """What left the table as it was; None where it is another now, whoever has changed it.

    before: the table that the records were read for. after: the same when it had been changed for them. last: what this said
    of the batch before. Raises SpecError where that is the same.
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
