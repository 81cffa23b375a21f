"""What must be there before letters can be written as rows: schemas of the registry, columns of the table, its key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from frazil.catalog.port import Catalog
from frazil.decode.columns import Decoded
from frazil.errors import SpecError
from frazil.failpoints import hit
from frazil.ingest.no_op_changes import find_no_op_change
from frazil.ingest.pipeline import accept_columns, adder, within_limit
from frazil.ingest.schemas import Schemas
from frazil.ingest.table import Table, note_key_columns
from frazil.schema.evolve import NamesClash, Wanted, merge_wanted


@dataclass
class Needs:
    """What letters were found to need. key_columns: of an upsert table that does not know its key yet."""

    missing: set[str] = field(default_factory=set)
    wanted: list[Wanted] = field(default_factory=list)
    loosened: set[tuple[str, ...]] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)
    key_columns: tuple[str, ...] = ()

    def note(self, decoded: Decoded, topics: Iterable[str], fixed: frozenset[tuple[str, ...]]) -> None:
        """What some letters need. fixed: the columns that cannot become optional."""
        self.missing |= decoded.missing
        self.loosened |= decoded.loosened - fixed
        self.topics |= set(topics)
        if decoded.wanted:
            self.wanted.append(decoded.wanted)

    @property
    def is_met(self) -> bool:
        """Whether all of it is there."""
        return not (self.missing or self.wanted or self.loosened or self.key_columns)


def fetch_schemas(schemas: Schemas | None, table: Table, ids: Iterable[str], topics: Iterable[str]) -> None:
    """Fetches schemas that records name. UnavailableError, and SpecError where there is no registry to ask."""
    if schemas is None:
        raise SpecError("the dead letters need a schema registry, and the pipeline file names none", where=table.name)
    literals = [selector.literal for selector in table.spec.topics if selector.literal]
    table.schemas |= schemas.fetch_for(table.spec, ids, min(literals or topics))


def meet(catalog: Catalog, schemas: Schemas | None, table: Table, needs: Needs) -> None:
    """Fetches schemas, or else changes the table as ingestion would. Raises as these do, SpecError where the table cannot
    have the columns, or is left as it was for the second time in a row.
    """
    if needs.missing:
        fetch_schemas(schemas, table, needs.missing, needs.topics)
        return
    assert table.state is not None
    try:
        accepted, rejected = accept_columns(table, merge_wanted(needs.wanted, keeps_first=True))
        if rejected.keys() - table.rejected.keys():
            table.rejected |= rejected
            return
        change = within_limit(table, adder(table.spec, accepted, sorted(needs.loosened)))
        hit("replay.evolving")
        state = note_key_columns(catalog, catalog.evolve(table.name, change), needs.key_columns)
        table.no_op_change = find_no_op_change(table.state, state, accepted, needs.loosened, table.no_op_change)
        table.state = state
    except NamesClash as error:
        remedy = "leave these dead letters out, by --offset or --error-class, or leave the field out with `exclude`"
        raise SpecError(str(error), remedy=remedy, where=table.name) from None
