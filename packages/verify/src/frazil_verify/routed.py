"""The tables of routes with the values whose records they take, which the tables of the rest have in their progress."""

from __future__ import annotations

from collections.abc import Sequence

from frazil.catalog.port import Catalog
from frazil.ingest.tables.table import Table
from frazil.spec import PipelineSpec


def with_values(spec: PipelineSpec, catalog: Catalog, tables: Sequence[Table], is_every: bool) -> list[Table]:
    """Returns tables whose settings name the records that each takes. A state file, or a name, knows only that a route makes
    the table: it seems to take all records of its topics. is_every: whether tables of routes that are not among `tables`
    are returned too.
    """
    derived = {}
    for rest in (Table(of) for of in spec.tables if of.source.share is not None):
        rest.state = catalog.load(rest.name)
        for of in rest.progress.rest.derived:
            derived[of.name] = spec.derived_table(rest.spec, of)
    known = [Table(derived.pop(table.name)) if table.name in derived else table for table in tables]
    return [*known, *(Table(of) for of in derived.values() if is_every)]
