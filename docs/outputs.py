"""The meaning of every key in the documents that commands print with `--output json`.

A key that a document has and this page lacks fails a test, and so does the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Keys = Mapping[str, tuple[str, str]]
_MS = "milliseconds since the epoch"
_TELLING: Keys = {
    "reason": ("text", "Why it does not go on, or what it waits for; empty when there is nothing to say."),
    "remedy": ("text", "What to do about it."),
    "where": ("text", "Where: topic, partition and offset, or the table, or file and line."),
}


@dataclass(frozen=True, eq=False)
class Document:
    """One kind of object. `title`: where it stands."""

    title: str
    about: str
    keys: Keys


STATUS = Document(
    "frazil status",
    "Also while Kafka, the catalog or the process does not answer: what could not be found out is null.",
    {
        "pipeline": ("text", "The pipeline's name."),
        "ok": ("boolean", "Whether all is well; the exit code is 4 otherwise."),
        "now_ms": (_MS, "When it was asked."),
        "process": ("object", "The process that runs the pipeline, or the last one that did."),
        "problems": ("list", "What concerns more than one table: `message`, `remedy` and `where`."),
        "tables": ("object", "The tables by name."),
    },
)
PROCESS = Document(
    "frazil status: process",
    "",
    {
        "running": ("boolean", "Whether it is there."),
        "silent": ("boolean", "Whether it is there and has said nothing for a minute."),
        "pid": ("number", "Its process id."),
        "host": ("text", "Its machine."),
        "updated_ms": (_MS, "When it last said something."),
    },
)
TABLE = Document(
    "frazil status: tables.&lt;name&gt;",
    "Lag, rows and files are those of the table and of Kafka now; what only the process knows is as it last said it.",
    {
        "state": (
            "text",
            "`waiting`, `running`, `backing off`, `stopped` or `not running` ([states](../operations/README.md)).",
        ),
        "ok": ("boolean", "Whether nothing is wrong with this table."),
        **_TELLING,
        "topics": ("list of texts", "The topics that it reads."),
        "lag_records": ("number", "Offsets up to the topics' ends that are not committed."),
        "lag_s": ("number", "For how many seconds the table has not been complete; 0 when all is read."),
        "watermark_ms": (_MS, "The record timestamp up to which it is [complete](../concepts.md#watermark)."),
        "last_commit_ms": (_MS, "The newest commit of this pipeline."),
        "rows": (
            "number",
            "Rows of the newest snapshot, less those that delete files take away; equality deletes count for nothing.",
        ),
        "files": ("number", "Its data files."),
        "size_bytes": ("number", "Their size."),
        "average_file_bytes": ("number", "The same, divided by the files."),
        "snapshots": ("number", "Snapshots that can still be read."),
        "partition_spec": ("list of texts", "How new files are partitioned, as a pipeline file writes it."),
        "sort_order": ("list of texts", "How they are sorted."),
        "dropped_fields": (
            "list of texts",
            "Fields that `unknown_fields: drop` has left out, as the process has met them.",
        ),
        "dead_letters": ("number", "Rows of its dead-letter table."),
        "bad_skipped": ("number", "Bad records that `on_bad_record: skip` has left out since the table began."),
        "skipped_offsets": ("number", "Offsets that Kafka no longer had and the process has passed over."),
        "ignored_records": ("object: kind → number", "Records that are no change of a row, by what they are."),
        "refused_changes": ("list", "Changes of its columns that its policy forbids: `change`, `schemas`, `remedy`."),
        "last_upsert": ("object", "What the last batch of changes did, of a mirror."),
        "maintenance": ("object", "How it is stored, and what is due."),
    },
)
CARE = Document(
    "frazil status: tables.&lt;name&gt;.care",
    "What [table care](../how-to/maintain.md) sees.",
    {
        "p50_bytes": ("number", "The median size of the data files."),
        "small_share": ("number", "The share of small files, 0 to 1."),
        "delete_files": ("number", "Delete files."),
        "deleted_rows": ("number", "Rows that readers must leave out because of them."),
        "manifests": ("number", "Manifests of the newest snapshot."),
        "metadata_bytes": ("number", "The size of the metadata file."),
        "last_ms": (_MS, "The last care."),
        "due": ("list of texts", "What is worth doing, and why."),
        "waiting": ("list of texts", "What must not be done yet."),
        "above_cap": ("list of texts", "What is so much that readers suffer."),
        "failure": ("text", "Why the running process's last care failed."),
        "slowed_by": ("number", "How many times as far apart as usual changes are committed until care has caught up."),
    },
)
LAST_UPSERT = Document(
    "frazil status: tables.&lt;name&gt;.last_upsert",
    "What the last batch of changes did to a mirror, as the process said it; null where there was none.",
    {
        "changes": ("number", "Changes, as they were read."),
        "keys": ("number", "Different keys among them."),
        "deleted": ("number", "Rows that were taken away, those that were replaced included."),
        "late": ("number", "Changes that came too late: the row in the table is newer by `order_by`."),
        "missing_required": ("number", "Values that a change left to the old row, and there was none."),
        "files": ("number", "Data files that the table had."),
        "inspected": ("number", "Those of them whose keys were read."),
        "tries": ("number", "How often the rows were looked up; more than once where another writer came between."),
    },
)
_SHARED = (
    "state", "reason", "remedy", "where", "topics", "lag_records", "watermark_ms", "last_commit_ms", "dropped_fields",
    "dead_letters", "bad_skipped", "skipped_offsets", "ignored_records", "last_upsert",
)  # fmt: skip
RUN = Document(
    "frazil run: tables.&lt;name&gt;",
    "Printed at its end. The file `frazil-data/state/<pipeline>.json` has the same of a running process.",
    {
        **{name: TABLE.keys[name] for name in _SHARED},
        "freshness_ms": ("number", "How old the newest record of the last batch was when it was committed."),
        "records_per_s": ("number", "Records of the last batch by the time that it took."),
        "refused_changes": ("list of texts", "Changes of its columns that its policy forbids."),
        "size": (
            "object",
            "`row_count`, deleted ones included, `deleted_row_count`, `file_count`, `size_bytes`, `snapshot_count`.",
        ),
    },
)
PLAN = Document(
    "frazil plan: tables.&lt;name&gt;",
    "Beside `pipeline` and `changes`, which is true when the exit code is 4.",
    {
        "name": ("text", "The table."),
        "action": (
            "text",
            "`create`, `change` (of columns or layout), `start` (to read more partitions), `wait`, `stop` or `none`.",
        ),
        "topics": ("list of texts", "The topics that it reads."),
        "columns": (
            "list",
            "Columns that it would get: `name`, `type`, and `source`, such as `inferred` or `declared`.",
        ),
        "first_offsets": (
            "list",
            "Where reading begins: `topic`, `partition`, `offset`, and `source`: `progress` or `start`.",
        ),
        "sampled": ("number", "Records that were looked at."),
        "unread": ("number", "Records that there are to read."),
        "bad": ("number", "Records of the sample that do not fit."),
        "refused": ("list of texts", "Changes that `schema_evolution` forbids."),
        "warnings": (
            "list of texts",
            "What to mind: an `order_by` that is text, a key column that no record has, changes without their `envelope`,"
            " old metadata files that stay.",
        ),
        "partition_spec": ("list of texts", "How new files will be partitioned."),
        "partition_spec_before": ("list of texts", "How they are until now."),
        "sort_order": ("list of texts", "How new files will be sorted."),
        "sort_order_before": ("list of texts", "How they are until now."),
        **_TELLING,
    },
)
CHECK = Document(
    "frazil check: checks[]",
    "Beside `ok` and `pipeline`. `frazil doctor` has `name`, `ok`, `found` and `remedy` of each.",
    {
        "name": ("text", "What was looked at, such as `kafka` or `table shop.orders`."),
        "ok": ("boolean", "Whether it is well."),
        "tried": ("text", "What was done."),
        "found": ("text", "What came of it."),
        "remedy": ("text", "What to do; empty when it is well."),
        "where": ("text", "Where it is wrong."),
    },
)
MAINTAIN = Document(
    "frazil maintain: tables.&lt;name&gt;",
    "Beside `dry_run`. Dead-letter tables are among the tables.",
    {
        "failure": ("text", "Why the table could not be looked at; empty when it could."),
        "actions": ("list", "What is due, in the order in which it is done."),
        "waiting": ("list of texts", "What must not be done yet, and why."),
        "health": ("object", "What the table owes, before the round; null when it could not be looked at."),
    },
)
ACTION = Document(
    "frazil maintain: tables.&lt;name&gt;.actions[]",
    "With `--dry-run`, and of an action that was not begun because one before it failed, the first three alone.",
    {
        "action": (
            "text",
            "`compact`, `deletes`, `manifests`, `carry`, `expire`, `orphans` or `statistics` ([what is"
            " done](../how-to/maintain.md#what-is-done-and-when)).",
        ),
        "reason": ("text", "Why."),
        "gain": ("text", "What will be better."),
        "took_s": ("number", "How long it took."),
        "failure": ("text", "Why it came to nothing; empty when it did not."),
        "lost": ("boolean", "Whether another writer's commit was in the way, which is no fault."),
        "rewritten": (
            "object",
            "Files that were `removed` and `added`, `size_bytes` read, files whose rewrite was `lost`.",
        ),
    },
)
DEBT = Document(
    "frazil maintain: tables.&lt;name&gt;.debt",
    "",
    {
        "files": ("number", "Data files."),
        "size_bytes": ("number", "Their size."),
        "p50_bytes": ("number", "The median of it."),
        "small_files": ("number", "Small ones that lie in a partition with another small one."),
        "small_share": ("number", "Their share of all files, 0 to 1."),
        "delete_files": ("number", "Delete files."),
        "equality_deletes": ("number", "Those of them with equality deletes, which other writers make."),
        "deleted_rows": ("number", "Rows that readers must leave out, as delete files count them."),
        "deleted_share": ("number", "Their share of all rows, 0 to 1."),
        "manifests": ("number", "Manifests of the newest snapshot."),
        "snapshots": ("number", "Snapshots."),
        "metadata_bytes": ("number", "The size of the metadata file."),
        "last_maintenance_ms": (_MS, "When table care of any process last changed the table's files."),
        "above_cap": ("list of texts", "What is so much that readers suffer."),
    },
)
LETTER_CLASS = Document(
    "frazil dead-letters list: tables.&lt;name&gt;.classes[]",
    "Beside `dead_letter_table` (null where there is none) and `dead_letters`, how many there are.",
    {
        "error_class": ("text", "The [class of error](dead-letters.md#classes-of-error)."),
        "count": ("number", "How many letters have it."),
        "first": ("time, ISO 8601", "The earliest timestamp of their records."),
        "last": ("time, ISO 8601", "The latest."),
        "path": ("text", "The field that is wrong, in the example."),
        "example": ("text", "What is wrong, of one of them."),
    },
)
LETTER = Document(
    "frazil dead-letters show: tables.&lt;name&gt;[]",
    "Bytes are an object with `text`, or with `base64` where they are not UTF-8. `retry` returns per table how many"
    " dead letters are `in_table` now and how many `stayed`; `drop` returns per table how many `dead_letters` it removed or"
    " would remove, and whether they are `dropped`.",
    {
        "topic": ("text", "Where the record lies in Kafka."),
        "partition": ("number", ""),
        "offset": ("number", ""),
        "timestamp": (
            "time, ISO 8601",
            "The record's own; null where it has none, and outside of the years 1 to 9999.",
        ),
        "timestamp_ms": ("number", "The same in milliseconds where it is outside of these years; null otherwise."),
        "key": ("bytes", "Its key; null where it has none."),
        "value": ("bytes", "Its value; null where it has none."),
        "headers": ("list", "Its headers, `key` (text) and `value` (bytes) of each."),
        "schema_id": ("text", "The schema that it names, where that is known."),
        "error_class": ("text", "The [class of error](dead-letters.md#classes-of-error)."),
        "message": ("text", "What is wrong."),
        "path": ("text", "The field that is wrong; null when it is the whole record."),
        "retries": ("number", "How often it was tried again, in vain."),
        "frazil_version": ("text", "The version that wrote the reason."),
    },
)
DOCUMENTS = (
    STATUS, PROCESS, TABLE, LAST_UPSERT, CARE, RUN, PLAN, CHECK, MAINTAIN, ACTION, DEBT, LETTER_CLASS, LETTER,
)  # fmt: skip
ABOUT = """\
With `--output json` every command prints one document, in one line; an error is [a document too](errors.md). Numbers of \
bytes, milliseconds and seconds end in `_bytes`, `_ms` and `_s`. `frazil schema` prints the JSON Schema itself, `frazil dev \
broker` its `bootstrap_servers`, `pid` and `directory` once it listens, `frazil demo` its `tables` with what was sent and \
what arrived, the answer of a `query`, `catalog` and `warehouse`, and whether all of it is `ok`."""
