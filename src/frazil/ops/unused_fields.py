"""Fields that `protect` and the single steps name and no record has. Records may have them later, so nothing stops for
them; but a misspelt one leaves in the table what was to be dropped or protected.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.schema import Schema

from frazil.ingest.queries import field_origins, steps_of
from frazil.ingest.settings import protection_of
from frazil.ingest.table import Table
from frazil.ops.reports import plural
from frazil.process.protect import HEADERS, KEY, Protection, protected_paths
from frazil.process.steps import compile_steps
from frazil.spec.problems import nearest
from frazil.types import RESCUED_COLUMN


def unused_fields(table: Table, records: Schema, count: int) -> Iterator[str]:
    """Yields a warning for each field that a setting of the table names and none of its records has. records: the columns of
    the records. count: how many records are in the sample; without any, nothing is known of their fields.
    """
    if not count:
        return
    fields = Schema(*(one for one in records.fields if one.name != RESCUED_COLUMN))
    for setting, path, close in (*_of_protect(table, fields), *_of_steps(table, fields)):
        meant = f"; did you mean `{close}`?" if close else ""
        yield f"`{setting}` names `{path}`, and none of {plural(count, 'record')} in the sample has it{meant}"


def _of_protect(table: Table, fields: Schema) -> Iterator[tuple[str, str, str | None]]:
    protection = protection_of(table.spec)
    if protection is None:
        return
    origins = field_origins(table, fields)
    names = {name for name in (*origins, *fields.column_names) if name not in (KEY, HEADERS)}
    for rule in protection.rules:
        is_named = not rule.selector.startswith("/") and rule.selector.split(".")[0] not in (KEY, HEADERS)
        if is_named and not protected_paths(fields, Protection((rule,), protection.key), origins):
            yield "protect", rule.selector, nearest(rule.selector, names)


def _of_steps(table: Table, fields: Schema) -> Iterator[tuple[str, str, str | None]]:
    if not table.spec.has_steps:
        return
    looked_up = {one.name for one in table.spec.lookup}
    for one in compile_steps(steps_of(table.spec), fields).missing:
        if one.path[0] not in looked_up:
            yield one.step, ".".join(one.path), ".".join(one.nearest) if one.nearest else None
