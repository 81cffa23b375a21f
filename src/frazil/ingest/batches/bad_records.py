"""Bad records: the remedy by the class of their error, and the errors with which a table stops."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.schema import Schema

from frazil.errors import ConflictError, FrazilError, RecordError
from frazil.ingest.batches.job import JobRunner, job_of
from frazil.ingest.tables.schema_changes import WIDE_REMEDY
from frazil.ingest.tables.state import FEWEST_TO_JUDGE
from frazil.ingest.tables.table import Planned
from frazil.report import TaskReport, merge_reports
from frazil.spec import TableSpec

TOO_MANY_REMEDY = "fix the producer or the declared columns; `dead_letters: {stop_above: …}` tolerates more"
TOMBSTONE_REMEDY = (
    "write `tombstones: ignore` where records without a value are expected, `tombstones: row` to keep them as rows, or"
    " `mode: upsert` where they delete rows"
)
FORMAT_REMEDY = (
    "write the format of the topic's values under `value.format`, such as avro, json or text, or fix the producer"
)
_KEYLESS_REMEDY = (
    "name the `key_columns`, with `_source_table` among them where a topic has rows of several tables, or read the topic"
    " into a table with `mode: append`: rows of a source table without a primary key cannot be identified"
)
_REMEDIES: Mapping[str, str] = {
    "tombstone": TOMBSTONE_REMEDY,
    "no_wire_format": FORMAT_REMEDY,
    "too_many_fields": WIDE_REMEDY,
    "unknown_field": "write `schema_evolution: add_only`, or leave the field out with `exclude`",
    "failed_expression": (
        'write the expression so that it cannot fail, with `try_cast` or another `try_` function, or `on_error: "null"`'
        " for null in its place; or fix the producer"
    ),
    "unavailable_value": (
        "let the source send whole rows, as with PostgreSQL's `replica identity full`, or let the query take such a field as"
        " it is, and have no condition over it"
    ),
    "lookup_miss": 'add the row to the reference table, or write `on_miss: "null"` or `on_miss: drop` for the lookup',
}
"""The remedy for bad records, by the class of their error."""


def remedy_for(kind: str, spec: TableSpec, usual: str) -> str:
    """Returns the remedy for bad records of a class of error; `usual` where the class has none of its own."""
    if kind == "no_key" and spec.mode == "upsert" and not spec.key_columns:
        return _KEYLESS_REMEDY
    return _REMEDIES.get(kind, usual)


def may_commit_some(planned: Planned) -> bool:
    """Whether a new table may commit fewer records than are judged before it stops: their dead letters show the reasons."""
    table = planned.table
    is_cut = table.schedule.most_records is not None and table.schedule.most_records < FEWEST_TO_JUDGE
    is_new = table.progress.snapshot_id is None
    return table.spec.on_bad_record == "dead_letter" and is_new and not is_cut and planned.batch.span >= FEWEST_TO_JUDGE


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
        remedy=remedy_for(first.kind, planned.table.spec, remedy),
    )


def too_many_bad(jobs: JobRunner, planned: Planned, report: TaskReport) -> FrazilError:
    """Returns the error of a batch with too many bad records; it names the first."""
    error = first_bad_record(jobs, planned, remedy=TOO_MANY_REMEDY)
    limit = planned.table.spec.dead_letters.stop_above
    if isinstance(error, RecordError):
        bad, count = report.bad_records.count, report.counts.record_count
        error.message = (
            f"{bad} of {count} records are bad, more than {100 * limit:g}% of recent records: {error.message}"
        )
    return error
