"""Bad records: the remedy by the class of their error, and the errors with which a table stops."""

from __future__ import annotations

import re

from pyiceberg.schema import Schema

from frazil.error_classes import ErrorClass
from frazil.errors import ConflictError, FrazilError, RecordError
from frazil.ingest.batches.job import JobRunner, job_of
from frazil.ingest.tables.table import Planned
from frazil.report import TaskReport, merge_reports
from frazil.schema.conflicts import declaration_for
from frazil.spec import TableSpec
from frazil.stages.watch import FEWEST_TO_JUDGE

TOO_MANY_REMEDY = "fix the producer or the declared columns; `dead_letters: {stop_above: …}` tolerates more"
_UNREADABLE = {ErrorClass.MALFORMED, ErrorClass.NOT_AN_OBJECT, ErrorClass.DUPLICATE_KEY}
"""Classes of records that no column can take, whatever its type."""
SET_ASIDE = "fix the producer, and write `on_bad_record: dead_letter`, which sets aside the records already in Kafka"
"""The remedy where a record cannot be read at all, so that no column can take it."""
_OTHER_KIND = re.compile(r"field ([^:]+): (\w+) .*(?:does not fit (\w+)|meets values of another kind)", re.DOTALL)


def remedy_for(kind: ErrorClass, spec: TableSpec, usual: str) -> str:
    """Returns the remedy for bad records of a class of error; `usual` where the class has none of its own."""
    if kind == ErrorClass.NO_KEY and (spec.changes.mode != "upsert" or spec.changes.key_columns):
        return usual
    if kind in _UNREADABLE and spec.bad_records.on_bad_record == "stop":
        return SET_ASIDE
    # A package that is not type-checked may give a text in place of a class.
    return ErrorClass(kind).entry.remedy or usual


def remedy_for_many(fault: str) -> str:
    """Returns the remedy where too many records are bad, with the declaration that takes such values where there is one.
    fault: of the first of them, with its field.
    """
    match = _OTHER_KIND.match(fault)
    declaration = declaration_for(match[1].split("."), match[2], match[3] or "string") if match else ""
    return f"{declaration}; or {TOO_MANY_REMEDY}" if declaration else TOO_MANY_REMEDY


def may_commit_some(planned: Planned) -> bool:
    """Whether a new table may commit fewer records than are judged before it stops: their dead letters show the reasons."""
    table = planned.table
    is_cut = table.schedule.most_records is not None and table.schedule.most_records < FEWEST_TO_JUDGE
    is_new = table.progress.snapshot_id is None
    return (
        table.spec.bad_records.on_bad_record == "dead_letter"
        and is_new
        and not is_cut
        and planned.batch.span >= FEWEST_TO_JUDGE
    )


def first_bad_record(jobs: JobRunner, planned: Planned, schema: Schema | None = None, remedy: str = "") -> FrazilError:
    """Returns the error of the first bad record, after reading the batch again for it.

    schema: replaces the table's schema, to find the record with a type mismatch.
    """
    job = job_of([planned], is_trial=True, schema=schema)
    merged = merge_reports(planned.table.name, jobs.run([planned.batch], job, pool="small"))
    if not merged.bad_records.first:
        return ConflictError("a bad record no longer existed when it was read again", where=planned.table.name)
    first = merged.bad_records.first[0]
    field = f"field {first.path}: " if first.path else ""
    more = f" (and {merged.bad_records.count - 1} more in this batch)" if merged.bad_records.count > 1 else ""
    return RecordError(
        f"{field}{first.reason}{more}",
        topic=first.topic,
        partition=first.partition,
        offset=first.offset,
        remedy=remedy_for(first.kind, planned.table.spec, remedy or ("" if first.path else SET_ASIDE)),
    )


def too_many_bad(jobs: JobRunner, planned: Planned, report: TaskReport) -> FrazilError:
    """Returns the error of a batch with too many bad records; it names the first."""
    error = first_bad_record(jobs, planned, remedy=TOO_MANY_REMEDY)
    limit = planned.table.spec.bad_records.dead_letters.stop_above
    if isinstance(error, RecordError):
        if error.remedy == TOO_MANY_REMEDY:
            error.remedy = remedy_for_many(error.message)
        bad, count = report.bad_records.faulty_count, report.counts.record_count
        error.message = (
            f"{bad} of {count} records are bad, more than {100 * limit:g}% of recent records: {error.message}"
        )
    return error
