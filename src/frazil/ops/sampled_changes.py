"""What a sample of records shows of the changes in them, for `plan` and `check`.

These are envelopes that a table does not open, and records that change no row. A sample is decoded before
(`sampling.decode_sample`), which counts the latter in the table's `bad_records`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from frazil.cdc.envelope import IGNORED, NO_DOCUMENT
from frazil.ingest.batches.outcome import WITHOUT_DOCUMENT
from frazil.ingest.tables.table import Table
from frazil.kafka.port import ReadRecord
from frazil.printable import plural
from frazil.spec import TableSpec
from frazil.upsert.records.key_fields import leaves_of

_MARKS = {
    "debezium": {"op", "source", "after"},
    "canal": {"database", "table", "type", "data", "isDdl"},
    "maxwell": {"database", "table", "type", "data", "ts"},
    "dms": {"data", "metadata.operation", "metadata.record-type"},
}
"""Fields, also in a top-level object, that together identify an envelope; the first match counts."""
_SOURCES = {"dms": "AWS DMS"}


def unopened_envelopes(spec: TableSpec, schema: Schema) -> Iterator[str]:
    """Yields a warning where records look like envelopes, and the table takes them for rows."""
    if spec.envelope is not None:
        return
    names = {field.name for field in schema.fields}
    payload = next((field.field_type for field in schema.fields if field.name == "payload"), None)
    record = payload if isinstance(payload, StructType) and "schema" in names else schema.as_struct()
    inner = {".".join(path[:2]) for path in leaves_of(record)} | {field.name for field in record.fields}
    kind = next((kind for kind, marks in _MARKS.items() if marks <= inner), None)
    if kind is not None:
        yield (
            f"the records look like changes as {_SOURCES.get(kind, kind.capitalize())} writes them, and each becomes a"
            f" row as it is: for"
            f" rows of the source table write `envelope: {kind}`, and `mode: upsert` for its current state"
        )


def kinds_without_rows(table: Table, records: Sequence[ReadRecord]) -> tuple[str, ...]:
    """Returns the kinds of the decoded records of a sample where all of them change no row; else nothing."""
    ignored = table.bad_records.ignored_records
    return tuple(sorted(ignored)) if records and ignored.total() == len(records) else ()


def updates_without_document(table: Table) -> Iterator[str]:
    """Yields a warning for updates of MongoDB documents in the decoded sample that lack the document."""
    if count := table.bad_records.ignored_records[IGNORED[NO_DOCUMENT]]:
        yield f"{plural(count, 'update')} of the sample {WITHOUT_DOCUMENT}"
