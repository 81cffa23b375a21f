"""What a sample of records shows of the changes in them, for `plan` and `check`.

These are envelopes that a table does not open, and records that change no row. A sample is decoded before
(`sampling.decode_sample`), which counts the latter in the table's `bad_records`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from frazil.cdc.envelope import IGNORED, NO_DOCUMENT
from frazil.cdc.mongodb.document_ids import ID
from frazil.decode.limits import plain_columns
from frazil.ingest.batches.outcome import WITHOUT_DOCUMENT
from frazil.ingest.tables.preflight import SOURCE_ORDER, has_apart_rows, may_have_source_order, topics_without_order
from frazil.ingest.tables.schemas import Schemas
from frazil.ingest.tables.table import Table
from frazil.ingest.tables.target import target_of
from frazil.kafka.port import ReadRecord
from frazil.name_case import fold_case
from frazil.printable import plural
from frazil.rows.record_batch import batch_of
from frazil.spec import TableSpec
from frazil.upsert.lookup.live_rows import has_column
from frazil.upsert.records.key_fields import column_of, find_key_fields, leaves_of
from frazil.upsert.records.read_changes import apart_by_table

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
    if spec.changes.envelope is not None:
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


def keys_beside(table: Table, records: Sequence[ReadRecord], schema: Schema, schemas: Schemas | None) -> Iterator[str]:
    """Yields warnings where records' keys have fields that rows lack, or fields besides the `key_columns` that the pipeline
    file names: changes of one row may then have several keys, and be in several partitions. schema: of the table, with the
    fields of the records.

    Raises: UnavailableError where the registry does not answer.
    """
    envelope, named = table.spec.changes.envelope, table.spec.changes.key_columns
    if not records or table.spec.changes.mode != "upsert" or envelope is None or envelope.kind != "debezium":
        return
    target = target_of(table, schema)
    key_fields = find_key_fields(target, plain_columns(batch_of(records)))
    if key_fields.missing and schemas is not None:
        table.schema.schemas |= schemas.fetch_for(table.spec, key_fields.missing, min(table.offsets.topics, default=""))
        target = target_of(table, schema)
        key_fields = find_key_fields(target, plain_columns(batch_of(records)))
    assert target.changes is not None
    columns = {name: column_of(target, (name,)) for name in dict.fromkeys(chain(*key_fields.names))}
    present = [name for name, column in columns.items() if has_column(target, column)]
    if ID in named or not present:  # Keys of documents name it differently.
        return
    absent = [name for name in columns if name not in present]
    if absent and not has_apart_rows(table):
        effect = "" if named else "every change would be a bad record; "
        words = apart_by_table(named or [".".join(columns[name]) for name in present])
        yield f"the records' keys have the field {', '.join(absent)}, and their rows do not: {effect}{words}"
    key_columns = {fold_case(name.split(".")[0]) for name in target.changes.key_columns}
    left = [name for name in present if named and fold_case(columns[name][0]) not in key_columns]
    if left and len(table.partitions()) > 1 and may_have_source_order(table) and not topics_without_order(table):
        yield (
            f"the records' keys have {', '.join(left)} besides `key_columns`: changes of one row may be in several"
            f" partitions, which are read in no order of their changes, and newer ones may be lost."
            f" {SOURCE_ORDER.capitalize()}"
        )


def kinds_without_rows(table: Table, records: Sequence[ReadRecord]) -> tuple[str, ...]:
    """Returns the kinds of the decoded records of a sample where all of them change no row; else nothing."""
    ignored = table.bad_records.ignored_records
    return tuple(sorted(ignored)) if records and ignored.total() == len(records) else ()


def updates_without_document(table: Table) -> Iterator[str]:
    """Yields a warning for updates of MongoDB documents in the decoded sample that lack the document."""
    if count := table.bad_records.ignored_records[IGNORED[NO_DOCUMENT]]:
        yield f"{plural(count, 'update')} of the sample {WITHOUT_DOCUMENT}"
