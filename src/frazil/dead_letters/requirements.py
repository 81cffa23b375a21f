"""What dead letters need before they can become rows: schemas of the registry, columns of the table, its key columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from frazil.catalog.port import Catalog
from frazil.decode.columns import Decoded
from frazil.errors import SpecError
from frazil.failpoints import hit
from frazil.ingest.no_op_changes import find_no_op_change
from frazil.ingest.schema_changes import accept_columns, adder, within_limit
from frazil.ingest.schemas import Schemas
from frazil.ingest.table import Table, set_key_columns
from frazil.schema.evolve import NameConflict, RequestedFields, merge_requested_fields


@dataclass
class Needs:
    """Missing prerequisites of dead letters."""

    #: The ids of schemas.
    missing: set[str] = field(default_factory=set)
    #: Schema requests: fields that the table lacks, or has in a narrower type.
    requested_fields: list[RequestedFields] = field(default_factory=list)
    #: Paths of required columns to be made optional.
    made_optional: set[tuple[str, ...]] = field(default_factory=set)
    #: The topics of the dead letters.
    topics: set[str] = field(default_factory=set)
    #: The key columns of an upsert table that does not know its key yet.
    key_columns: tuple[str, ...] = ()

    def note(self, decoded: Decoded, topics: Iterable[str], fixed: frozenset[tuple[str, ...]]) -> None:
        """Adds what some dead letters need. fixed: the columns that cannot become optional."""
        self.missing |= decoded.missing
        self.made_optional |= decoded.made_optional - fixed
        self.topics |= set(topics)
        if decoded.requested_fields:
            self.requested_fields.append(decoded.requested_fields)

    @property
    def is_met(self) -> bool:
        """Whether nothing is missing."""
        return not (self.missing or self.requested_fields or self.made_optional or self.key_columns)


def fetch_schemas(schemas: Schemas | None, table: Table, ids: Iterable[str], topics: Iterable[str]) -> None:
    """Fetches schemas that records name into `table.schemas`.

    Raises: UnavailableError where the registry does not answer; SpecError without a registry.
    """
    if schemas is None:
        raise SpecError("the dead letters need a schema registry, and the pipeline file names none", where=table.name)
    literals = [selector.literal for selector in table.spec.topics if selector.literal]
    table.schema.schemas |= schemas.fetch_for(table.spec, ids, min(literals or topics))


def meet(catalog: Catalog, schemas: Schemas | None, table: Table, needs: Needs) -> None:
    """Fetches schemas, or else changes the table as ingestion would.

    Raises: as these; SpecError where the table cannot have the columns, or stays unchanged for the second time in a
    row.
    """
    if needs.missing:
        fetch_schemas(schemas, table, needs.missing, needs.topics)
        return
    assert table.state is not None
    try:
        accepted, rejected = accept_columns(table, merge_requested_fields(needs.requested_fields, keeps_first=True))
        if rejected.keys() - table.schema.rejected.keys():
            table.schema.rejected |= rejected
            return
        change = within_limit(table, adder(table.spec, accepted, sorted(needs.made_optional)))
        hit("replay.evolving")
        state = set_key_columns(catalog, catalog.evolve(table.name, change), needs.key_columns)
        table.schema.no_op_change = find_no_op_change(
            table.state, state, accepted, needs.made_optional, table.schema.no_op_change
        )
        table.state = state
    except NameConflict as error:
        remedy = "leave these dead letters out, by --offset or --error-class, or leave the field out with `exclude`"
        raise SpecError(str(error), remedy=remedy, where=table.name) from None
