"""The meaning of every key in the documents that commands print with `--output json`.

A test compares the keys with the documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Keys = Mapping[str, tuple[str, str]]
_MS = "milliseconds since the epoch"
_TELLING: Keys = {
    "reason": ("text", "Why the table is stopped, or what it waits for; empty otherwise."),
    "remedy": ("text", "What to do."),
    "where": ("text", "The place: topic, partition and offset, or the table, or file and line."),
}


@dataclass(frozen=True, eq=False)
class Document:
    """One kind of object. `title`: the command that prints it, and where in the document."""

    title: str
    about: str
    keys: Keys


STATUS = Document(
    "frazil status",
    "Printed also while Kafka, the catalog or the process does not answer: unknown values are null.",
    {
        "pipeline": ("text", "The pipeline's name."),
        "ok": ("boolean", "Whether everything is healthy; the exit code is 4 otherwise."),
        "now_ms": (_MS, "The time of the report."),
        "process": ("object", "The process that runs the pipeline, or the last one that did."),
        "leadership": (
            "object",
            "The [processes of the pipeline](../how-to/standby.md) and who leads them; null while none runs.",
        ),
        "published_offsets": (
            "object",
            "The offsets for [lag tools](../how-to/lag.md): the consumer group `group`, `last_ms` when it last had them, and"
            " `failure`, why not; null while none runs, and with `publish_offsets: false`.",
        ),
        "problems": ("list", "Problems of more than one table: `message`, `remedy` and `where`."),
        "tables": ("object", "The tables by name."),
    },
)
PROCESS = Document(
    "frazil status: process",
    "",
    {
        "running": ("boolean", "Whether the process is running."),
        "silent": ("boolean", "Whether the process is running and has not written its state for a minute."),
        "pid": ("number", "The process id."),
        "host": ("text", "The host of the process."),
        "updated_ms": (_MS, "When the process last wrote its state."),
    },
)
LEADERSHIP = Document(
    "frazil status: leadership",
    "As the process that runs here last published it.",
    {
        "elect": ("text", "`kafka`, `kubernetes`, `postgres` or `none`."),
        "mode": ("text", "`lead` or `spread`."),
        "name": ("text", "The name of this process."),
        "members": (
            "list",
            "The known processes: `name`, `version`, `started_at_ms` and `warm` (whether it could take over at once).",
        ),
        "leader": ("text", "The name of the process that leads; null while none does."),
        "since_ms": (_MS, "Since when it leads."),
        "reason": ("text", "Why the last change happened."),
        "owners": ("object", "With `spread`: the process of each table."),
    },
)
TABLE = Document(
    "frazil status: tables.&lt;name&gt;",
    "Lag, rows and files are current; values that only the process knows are those that it last wrote.",
    {
        "state": (
            "text",
            "`waiting`, `running`, `backing off`, `stopped`, `paused`, `standby` or `not running`"
            " ([states](../operations/README.md)).",
        ),
        "ok": ("boolean", "Whether the table is healthy."),
        **_TELLING,
        "topics": ("list of texts", "The topics that the table reads."),
        "lag_records": (
            "number",
            "Offsets up to the ends of the topics' logs that are not committed. Null before they are measured, and where"
            " topics are gone or are other ones now.",
        ),
        "open_transactions": (
            "list of objects",
            "The offsets among them that wait for an [open transaction](../operations/open-transaction.md): `topic`,"
            " `partition`, `start` (its first offset) and `end` (that of the log).",
        ),
        "lag_s": ("number", "For how many seconds the table has been incomplete; 0 when everything is committed."),
        "watermark_ms": (_MS, "The record timestamp up to which the table is [complete](../concepts.md#watermark)."),
        "committed": ("boolean", "Whether the pipeline has ever committed to the table. Null where that is not known."),
        "last_commit_ms": (_MS, "The time of the pipeline's newest commit to the table."),
        "rows": (
            "number",
            "Rows of the newest snapshot minus rows deleted by delete files; equality deletes are not counted.",
        ),
        "files": ("number", "The number of data files."),
        "size_bytes": ("number", "The total size of the data files."),
        "average_file_bytes": ("number", "The average size of a data file."),
        "snapshots": ("number", "Snapshots that are not expired."),
        "partition_spec": ("list of texts", "The partition spec of new files, as in a pipeline file."),
        "sort_order": ("list of texts", "The sort order of new files."),
        "dropped_fields": (
            "list of texts",
            "Fields that `unknown_fields: drop` has dropped since the process started.",
        ),
        "dead_letters": ("number", "Rows of the dead-letter table."),
        "bad_skipped": ("number", "Bad records that `on_bad_record: skip` has skipped since the table was created."),
        "skipped_offsets": ("number", "Offsets that the process has skipped because Kafka had deleted their records."),
        "ignored_records": ("object: kind → number", "Records that change no row, by kind."),
        "expectations": (
            "object: name → number",
            "Records, or commits, since the table was created that did not meet each of its"
            " [expectations](../how-to/expect.md).",
        ),
        "stale": (
            "object: name → seconds",
            "The age of the newest record in the table, by the expectations with `max_age` that it is too great for.",
        ),
        "rest_records": (
            "object: reason → number",
            "Records that no other table of the [route](../how-to/route.md) takes, of the table of the rest.",
        ),
        "refused_changes": (
            "list",
            "Schema changes that the policy of the table forbids: `change`, `schemas`, `remedy`.",
        ),
        "last_upsert": ("object", "The last batch of an upsert table."),
        "maintenance": ("object", "The health of the table's files, and due maintenance."),
        "verification": ("object", "What comparing commits with the topics has found; null without `verify`."),
    },
)
VERIFICATION = Document(
    "frazil status: tables.&lt;name&gt;.verification",
    "What the running process has found with [`verify`](../how-to/verify.md#while-the-pipeline-runs), since it started.",
    {
        "last_ms": (_MS, "When commits were last compared."),
        "commits": ("number", "The compared commits."),
        "records": ("number", "Their records."),
        "missing": ("number", "Rows that records make, and that the table did not get or has lost."),
        "surplus": ("number", "Rows that no record makes."),
        "is_equal": ("true, false", "Whether the last comparison found no such row; null while there was none."),
        "reason": ("text", "Why commits were not compared the last time; empty where none was left out."),
    },
)
MAINTENANCE = Document(
    "frazil status: tables.&lt;name&gt;.maintenance",
    "The findings of [table maintenance](../how-to/maintain.md).",
    {
        "p50_bytes": ("number", "The median size of the data files."),
        "small_share": ("number", "The fraction of small files, 0 to 1."),
        "delete_files": ("number", "The number of delete files."),
        "deleted_rows": ("number", "Rows that delete files delete."),
        "manifests": ("number", "Manifests of the newest snapshot."),
        "metadata_bytes": ("number", "The size of the metadata file."),
        "last_ms": (_MS, "The last maintenance action."),
        "due": ("list of texts", "Due actions, with their reasons."),
        "waiting": ("list of texts", "Actions that must wait, with their reasons."),
        "above_cap": ("list of texts", "Numbers so high that they slow readers down."),
        "failure": ("text", "Why the last maintenance of the running process failed."),
        "slowed_by": ("number", "By which factor the commit interval is extended until maintenance has caught up."),
    },
)
LAST_UPSERT = Document(
    "frazil status: tables.&lt;name&gt;.last_upsert",
    "The last batch of changes of an upsert table, as the process reported it; null when there was none.",
    {
        "changes": ("number", "Changes that were read."),
        "keys": ("number", "Distinct keys among the changes."),
        "deleted": ("number", "Rows that were deleted, including replaced rows."),
        "late": ("number", "Late changes: the row in the table is newer by `order_by`."),
        "missing_required": ("number", "Values that a change did not carry and no existing row had."),
        "files": ("number", "Data files of the table at the lookup."),
        "inspected": ("number", "Data files whose keys were read."),
        "tries": (
            "number",
            "How often the rows were looked up; more than once when another writer committed in between.",
        ),
    },
)
_SHARED = (
    "state", "reason", "remedy", "where", "topics", "lag_records", "open_transactions", "watermark_ms", "committed",
    "last_commit_ms", "dropped_fields", "dead_letters", "bad_skipped", "skipped_offsets", "ignored_records", "expectations",
    "rest_records", "last_upsert",
)  # fmt: skip
RUN = Document(
    "frazil run: tables.&lt;name&gt;",
    "Printed when the run ends. The file `frazil-data/state/<pipeline>.json` has the same keys while the process runs.",
    {
        **{name: TABLE.keys[name] for name in _SHARED},
        "behind_since_ms": (
            "number",
            "Since when records wait; null where none does, and where some did when the process began.",
        ),
        "freshness_ms": ("number", "The age of the newest record of the last batch at its commit."),
        "records_per_s": ("number", "Records per second of the last batch."),
        "refused_changes": ("list of texts", "Schema changes that the policy of the table forbids."),
        "size": (
            "object",
            "`row_count` including deleted rows, `deleted_row_count`, `file_count`, `size_bytes`, `snapshot_count`.",
        ),
    },
)
PLAN = Document(
    "frazil plan: tables.&lt;name&gt;",
    "The document also has `pipeline`, `changes`, which is true when the exit code is 4, and `warnings` of the catalog's"
    " properties.",
    {
        "name": ("text", "The name of the table."),
        "action": (
            "text",
            "`create`, `change` (of columns or layout), `start` (to read more partitions), `wait`, `stop` or `none`.",
        ),
        "topics": ("list of texts", "The topics that the table reads."),
        "columns": (
            "list",
            "Columns that the table would get: `name`, `type`, and `source`, such as `inferred` or `declared`.",
        ),
        "first_offsets": (
            "list",
            "Where reading begins: `topic`, `partition`, `offset`, and `source`: `progress` or `start`.",
        ),
        "sampled": ("number", "Records in the sample."),
        "unread": ("number", "Unread records, those that wait for an open transaction included."),
        "open_transactions": (
            "list of objects",
            "The unread records that wait for an [open transaction](../operations/open-transaction.md), as in `frazil"
            " status`.",
        ),
        "bad": ("number", "Bad records in the sample."),
        "refused": ("list of texts", "Schema changes that `schema_evolution` forbids."),
        "warnings": (
            "list of texts",
            "Warnings: an `order_by` column that is text, several topics or partitions without an order, a key column that"
            " no record has, a field of keys that rows lack, changes without their `envelope`, old metadata files that are"
            " kept.",
        ),
        "in_spark": (
            "text",
            "The first expression of the query that Spark computes before the tasks, and why; empty where tasks compute the"
            " whole query.",
        ),
        "protected": ("list", "The fields of the records that `protect` finds: `field` and its `action`."),
        "partition_spec": ("list of texts", "The partition spec of new files."),
        "partition_spec_before": ("list of texts", "The current partition spec."),
        "sort_order": ("list of texts", "The sort order of new files."),
        "sort_order_before": ("list of texts", "The current sort order."),
        **_TELLING,
    },
)
CHECK = Document(
    "frazil check: checks[]",
    "The document also has `ok` and `pipeline`. Checks of `frazil doctor` have `name`, `ok`, `found` and `remedy`.",
    {
        "name": ("text", "The subject of the check, such as `kafka` or `table shop.orders`."),
        "ok": ("boolean", "Whether the check passed."),
        "tried": ("text", "What the check did."),
        "found": ("text", "The result."),
        "remedy": ("text", "What to do; empty when the check passed."),
        "where": ("text", "The place of the problem."),
    },
)
LINEAGE = Document(
    "frazil lineage: tables.&lt;name&gt;",
    "The document also has `pipeline`.",
    {
        "columns": ("list", "Each column with its `name`, and in `fields` the fields that it is made of."),
        "conditions": ("list of texts", "The fields that decide which records make rows."),
        "protected": ("list", "The fields that `protect` finds: `field` and its `action`."),
    },
)
INIT = Document(
    "frazil init",
    "",
    {
        "file": ("text", "The file that was written; null where it is only printed."),
        "pipeline_file": ("text", "The pipeline file."),
        "topics": (
            "list",
            "Each `topic` with the `settings` of its table, null for one left out, and what was `seen`.",
        ),
        "problems": ("list", "The checks that failed, as `frazil check` prints them."),
    },
)
REPLAY = Document(
    "frazil replay",
    "The document also has `pipeline` and `table`.",
    {
        "topic": ("text", "The topic that was written."),
        "from_snapshot": ("number", "The snapshot whose later changes were written; null for rows."),
        "to_snapshot": ("number", "The snapshot of the rows, or of the last changes."),
        "records": ("number", "The records that the replay has written in all."),
        "written_now": ("number", "Those that this command has written."),
        "consumer_group": ("text", "The consumer group that has the progress; deleted, the replay begins again."),
    },
)
IMPORT = Document(
    "frazil import",
    "The same for every tool.",
    {
        "pipeline_file": ("text", "The pipeline file."),
        "carried_over": ("list of texts", "The tool's settings that are in the pipeline file."),
        "not_carried_over": ("list", "Settings that are not, each with its `key`, the `reason` and the `remedy`."),
        "not_needed": ("list", "Settings that Frazil does not need, each with its `key` and the `reason`."),
        "notes": ("list of texts", "What else to know, such as a setting that the configuration lacks."),
    },
)
ADOPT = Document(
    "frazil adopt, frazil release: tables.&lt;name&gt;",
    "The document also has `pipeline`, and `applied`: whether the command was called with `--apply`.",
    {
        "action": ("text", "`adopt` or `release`; `none` where there is nothing to do; `refused`."),
        "place": ("text", "Where the offsets come from, or go to: a group, a checkpoint or a file."),
        "offsets": ("object", "The next offset of each partition, by topic and partition."),
        "unread": ("number", "The number of offsets between them and the ends of the topics."),
        **_TELLING,
    },
)
TRY = Document(
    "frazil try",
    "",
    {
        "pipeline": ("text", "The pipeline's name."),
        "table": ("text", "The table."),
        "columns": ("list", "The table's columns, each with `name` and `type`; those that the records bring included."),
        "written": ("number", "Records that change the table."),
        "dropped": ("number", "Records that change nothing and are not bad records."),
        "failed": ("number", "Bad records; the exit code is 4 where there are some."),
        "records": ("list", "The records, in the order of their timestamps."),
    },
)
TRIED_RECORD = Document(
    "frazil try: records",
    "",
    {
        "topic": ("text", "The record's topic."),
        "partition": ("number", "Its partition."),
        "offset": ("number", "Its offset."),
        "timestamp": ("text", "Its timestamp in ISO 8601; null without one."),
        "table": ("text", "The table that it goes to, which a route may decide."),
        "outcome": ("text", "`written`, `dropped` or `failed`."),
        "input": (
            "list",
            "The fields of each row in the record, as a query sees them, protected where the table protects them; empty"
            " where the record has none, or cannot be read.",
        ),
        "output": (
            "list",
            "Each change of the table: `change` is `append`, `upsert`, `delete` or `truncate`; `row` has the row, of a"
            " delete its key, without values that stay as they are in the table.",
        ),
        "dropped": ("list of texts", "What drops or ignores the record, such as `where`."),
        "error": ("object", "Of a bad record `error_class`, `path` and `message`; null otherwise."),
        "value": (
            "object",
            "The record's value as `text` or `base64`, where it cannot be read and the table protects no field; null"
            " otherwise.",
        ),
    },
)
MAINTAIN = Document(
    "frazil maintain: tables.&lt;name&gt;",
    "The document also has `dry_run`. Dead-letter tables are among the tables.",
    {
        "failure": ("text", "Why the table metadata could not be read; empty otherwise."),
        "actions": ("list", "Due actions, in the order of their execution."),
        "waiting": ("list of texts", "Actions that must wait, with their reasons."),
        "health": ("object", "The health of the table before the round; null when its metadata could not be read."),
    },
)
ACTION = Document(
    "frazil maintain: tables.&lt;name&gt;.actions[]",
    "Only the first three with `--dry-run`, or when the action did not start because an earlier one failed.",
    {
        "action": (
            "text",
            "`compact`, `deletes`, `manifests`, `carry`, `expire`, `orphans` or `statistics` ([what is"
            " done](../how-to/maintain.md#what-is-done-and-when)).",
        ),
        "reason": ("text", "Why the action is due."),
        "gain": ("text", "What the action improves."),
        "took_s": ("number", "The duration."),
        "failure": ("text", "Why the action failed; empty when it succeeded."),
        "conflict": (
            "boolean",
            "Whether the action was refused because of another writer's commit, which is not an error.",
        ),
        "rewritten": (
            "object",
            "The number of files that were `removed` and `added`, the `size_bytes` that were read, and `conflicts`:"
            " files whose rewrite was refused because of another writer's commit.",
        ),
    },
)
HEALTH = Document(
    "frazil maintain: tables.&lt;name&gt;.health",
    "",
    {
        "files": ("number", "The number of data files."),
        "size_bytes": ("number", "The total size of the data files."),
        "p50_bytes": ("number", "The median size of the data files."),
        "small_files": ("number", "Small files that are in the same partition as another small file."),
        "small_share": ("number", "The fraction of small files, 0 to 1."),
        "delete_files": ("number", "The number of delete files."),
        "equality_deletes": ("number", "Delete files with equality deletes, which only other writers add."),
        "deleted_rows": ("number", "Rows that delete files delete."),
        "deleted_share": ("number", "The fraction of deleted rows, 0 to 1."),
        "manifests": ("number", "Manifests of the newest snapshot."),
        "snapshots": ("number", "The number of snapshots."),
        "metadata_bytes": ("number", "The size of the metadata file."),
        "last_maintenance_ms": (_MS, "When table maintenance of any process last changed the table's files."),
        "above_cap": ("list of texts", "Numbers so high that they slow readers down."),
    },
)
DEAD_LETTER_CLASS = Document(
    "frazil dead-letters list: tables.&lt;name&gt;.classes[]",
    "The table also has `dead_letter_table` (null when there is none) and `dead_letters`, the number of dead letters.",
    {
        "error_class": ("text", "The [class of error](dead-letters.md#classes-of-error)."),
        "count": ("number", "The number of dead letters of this class."),
        "first": ("time, ISO 8601", "The earliest timestamp of the records."),
        "last": ("time, ISO 8601", "The latest timestamp of the records."),
        "path": ("text", "The field that is wrong in the example."),
        "example": ("text", "The message of one of the dead letters."),
    },
)
DEAD_LETTER = Document(
    "frazil dead-letters show: tables.&lt;name&gt;[]",
    "Bytes are an object with `text`, with `base64` where they are not UTF-8, or with `encrypted`, the id of their key."
    " `replay` prints per table the number"
    " of dead letters that were `replayed` and of those that are `remaining`; `drop` prints per table the number of"
    " `dead_letters` that it removed or would remove, and whether they are `dropped`.",
    {
        "topic": ("text", "The topic of the record."),
        "partition": ("number", "The partition of the record."),
        "offset": ("number", "The offset of the record."),
        "timestamp": (
            "time, ISO 8601",
            "The timestamp of the record; null when it has none, and outside of the years 1 to 9999.",
        ),
        "timestamp_ms": (
            "number",
            "The timestamp in milliseconds when it is outside of the years 1 to 9999; null otherwise.",
        ),
        "key": ("bytes", "The key of the record; null when it has none."),
        "value": ("bytes", "The value of the record; null when it has none."),
        "headers": ("list", "The headers of the record, each with `key` (text) and `value` (bytes)."),
        "schema_id": ("text", "The schema that the record names, when it is known."),
        "error_class": ("text", "The [class of error](dead-letters.md#classes-of-error)."),
        "message": ("text", "The error message."),
        "path": ("text", "The field that is wrong; null when the whole record is."),
        "retries": ("number", "How often a replay of the dead letter failed."),
        "frazil_version": ("text", "The version of Frazil that wrote the message."),
    },
)
DOCUMENTS = (
    STATUS, PROCESS, LEADERSHIP, TABLE, LAST_UPSERT, MAINTENANCE, VERIFICATION, RUN, PLAN, CHECK,
    ADOPT, LINEAGE, INIT, REPLAY, IMPORT, TRY, TRIED_RECORD, MAINTAIN, ACTION, HEALTH,
    DEAD_LETTER_CLASS, DEAD_LETTER,
)  # fmt: skip
ABOUT = """\
With `--output json` every command prints one document, in one line; an error is [a document too](errors.md). Numbers of \
bytes, milliseconds and seconds end in `_bytes`, `_ms` and `_s`. `frazil schema` prints the JSON Schema itself, \
`frazil topic set`, `unset` and `show` the keys of each of `topics`, `frazil dev \
broker` its `bootstrap_servers`, `pid` and `directory` once it listens. `frazil demo` prints its `tables` with the \
numbers of records sent and rows found, the result of a `query`, `catalog` and `warehouse`, and `ok`, which is true \
when all records arrived. `frazil setup` prints the number of `jars` for each use, the path of the `bundle` or null, and \
`slower`, the reason why starts will be slower than they could be, empty when all was compiled and recorded."""
