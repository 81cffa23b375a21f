"""What dead letters need before they can become rows: schemas, columns of the table, key columns.

Records that crashed a task are read by a child process first. Those whose value nobody has read stay as they are: without
it they would count as tombstones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from frazil.catalog.port import Catalog
from frazil.dead_letters.files import places_of, records_of
from frazil.decode.columns import Decoded, Mismatch
from frazil.error_classes import ErrorClass
from frazil.errors import SpecError
from frazil.failpoints import hit
from frazil.ingest.tables.queries import QueryTables
from frazil.ingest.tables.schema_changes import accept_columns, adder, within_limit
from frazil.ingest.tables.schemas import Schemas
from frazil.ingest.tables.state import find_no_op_change
from frazil.ingest.tables.table import Table, set_key_columns
from frazil.ingest.tasks.isolate import MOST_FOUND, load_crashing, search
from frazil.ingest.tasks.task_job import Job
from frazil.schema.evolve import NameConflict, RequestedFields, merge_requested_fields
from frazil.types import Place
from frazil.write.target import TableTarget


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
    #: The paths of fields that have values of another type than their first one.
    mismatched: set[str] = field(default_factory=set)

    def note(self, decoded: Decoded, topics: Iterable[str], fixed: frozenset[tuple[str, ...]]) -> None:
        """Adds what some dead letters need. fixed: the columns that cannot become optional."""
        self.missing |= decoded.missing
        self.made_optional |= decoded.made_optional - fixed
        self.topics |= set(topics)
        self.mismatched |= {bad.path for bad in decoded.mismatches if bad.kind == ErrorClass.TYPE_MISMATCH}
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
        raise SpecError("the records need a schema registry, and the pipeline file names none", where=table.name)
    literals = [selector.literal for selector in table.spec.source.topics if selector.literal]
    table.schema.schemas |= schemas.fetch_for(table.spec, ids, min(literals or topics))


def meet(catalog: Catalog, queries: QueryTables, schemas: Schemas | None, table: Table, needs: Needs) -> None:
    """Fetches schemas, or else changes the table as ingestion would.

    Raises: as these; SpecError where the table cannot have the columns, or stays unchanged for the second time in a
    row.
    """
    if needs.missing:
        fetch_schemas(schemas, table, needs.missing, needs.topics)
        return
    assert table.state is not None
    records = table.records
    try:
        wanted = merge_requested_fields(needs.requested_fields, keeps_first=True)
        accepted, rejected = accept_columns(records, wanted, queries.checking(table))
        if rejected.keys() - table.schema.rejected.keys():
            table.schema.rejected |= rejected
            return
        change = within_limit(records, adder(records.spec, accepted, sorted(needs.made_optional)))
        hit("replay.evolving")
        state = set_key_columns(catalog, queries.evolve(table, change), needs.key_columns)
        table.schema.no_op_change = find_no_op_change(
            table.state, state, accepted, needs.made_optional, table.schema.no_op_change
        )
        table.state = state
    except NameConflict as error:
        remedy = "leave the field out with `exclude`; a replay can leave dead letters out by --offset or --error-class"
        raise SpecError(str(error), remedy=remedy, where=table.name) from None


def endless_changes(table: Table) -> SpecError:
    """Returns the error for dead letters whose needs were met many times."""
    return SpecError(
        "the dead letters need one schema change after another",
        remedy="replay fewer at a time, by --topic, --partition and --offset",
        where=table.name,
    )


def still_crashing(target: TableTarget, dead_letters: pa.Table) -> dict[Place, Mismatch]:
    """Returns the dead letters that crash the process which reads them, by place, with the current reason, and those whose
    value was too large to be read. Dead letters of other classes were read before, and are not tried.

    Raises: OSError where a trial fails for reasons of the machine.
    """
    is_crash = pc.equal(dead_letters["error_class"], ErrorClass.CRASHES_DECODER)
    suspects = dead_letters.filter(pc.fill_null(is_crash, False))
    # A value that was too large to be read is not in its dead letter.
    is_large = pc.fill_null(pc.equal(dead_letters["error_class"], ErrorClass.TOO_LARGE), False)
    unread = dead_letters.filter(pc.and_(is_large, pc.is_null(dead_letters["value"])))
    mismatches = [Mismatch(0, "", ErrorClass.TOO_LARGE, reason) for reason in unread["message"].to_pylist()]
    crashing = dict(zip(places_of(unread), mismatches, strict=True))
    for topic in pc.unique(suspects["topic"]).to_pylist():
        crashing |= _of_topic(target, topic, suspects.filter(pc.equal(suspects["topic"], topic)))
    return crashing


def split_crashing(target: TableTarget, dead_letters: pa.Table) -> tuple[pa.Table, pa.Table, list[Mismatch]]:
    """Returns the dead letters that can be read, those that crash the process which reads them or have no value to be
    read, and the current reasons of the latter.

    Raises: as `still_crashing`.
    """
    crashing = still_crashing(target, dead_letters)
    if not crashing:
        return dead_letters, dead_letters.slice(0, 0), []
    reasons = [crashing.get(place) for place in places_of(dead_letters)]
    is_bad = pa.array([reason is not None for reason in reasons], pa.bool_())
    known_reasons = [reason for reason in reasons if reason is not None]
    return dead_letters.filter(pc.invert(is_bad)), dead_letters.filter(is_bad), known_reasons


def _of_topic(target: TableTarget, topic: str, suspects: pa.Table) -> dict[Place, Mismatch]:
    job, crashing = Job({topic: target}), dict[Place, Mismatch]()
    while suspects.num_rows:
        batches = [pa.RecordBatch.from_pydict(records_of(target, batch)) for batch in suspects.to_batches()]
        answer = load_crashing(text for out in search(job, batches) for text in out.column("report").to_pylist())
        if answer.together:  # Nobody knows which of them can be read together.
            return crashing | dict.fromkeys(places_of(suspects), _mismatch(answer.together[0].reason))
        crashing |= {
            (crashing_record.topic, crashing_record.partition, crashing_record.offset): _mismatch(
                crashing_record.reason
            )
            for crashing_record in answer.records
        }
        if len(answer.records) < MOST_FOUND:
            break
        suspects = suspects.filter(pa.array([place not in crashing for place in places_of(suspects)], pa.bool_()))
    return crashing


def _mismatch(reason: str) -> Mismatch:
    return Mismatch(0, "", ErrorClass.CRASHES_DECODER, reason)
