"""What cannot be read from the code: the meaning of summary keys, log events, failpoints and environment variables.

A name that the source has and this page lacks fails a test, and so does the other way round.
"""

from __future__ import annotations

SUMMARY_KEYS: dict[str, tuple[str, str]] = {
    "offsets": (
        "JSON: topic → partition → offset",
        "The next offset to read, of every partition of every topic; the table holds the rows of all offsets"
        " before it (and after where it began). Topics by name, partitions by number: equal vectors are equal texts.",
    ),
    "topic-ids": ("JSON: topic → id", "Kafka's id of each topic; a topic that is made anew has another one."),
    "cluster-id": ("text", "Kafka's id of the cluster that the offsets belong to."),
    "commit-id": (
        "UUID",
        "This commit's own name. The next commit succeeds only while this is the newest one; after a lost answer it"
        " tells whether the commit landed.",
    ),
    "epoch": (
        "integer",
        "The run that wrote it: one more than the greatest epoch found at its start. Of two runs the greater goes on.",
    ),
    "run-id": ("UUID", "The process that wrote it; decides between runs of one epoch."),
    "schemas": (
        "texts, joined by commas",
        "What the values were decoded with: ids of the schema registry (numbers or GUIDs, the last 200 that this table"
        " has met), `latest`, or the format (`json`, `text`, `raw`) where there is no schema.",
    ),
    "watermarks": (
        "JSON: topic → partition → milliseconds",
        "The latest record timestamp that was read from each partition.",
    ),
    "watermark": (
        "milliseconds since the epoch",
        "The record timestamp up to which the table is complete: the least of those of the partitions that still hold"
        " it back. It never goes back. Absent while it is not known.",
    ),
    "skipped": (
        "JSON: topic → partition → [from, to]",
        "Offsets that this commit passed over because Kafka no longer had them and the table says `on_data_loss: skip`;"
        " `to` is the first one that was there. Absent when there are none.",
    ),
    "bad-skipped": (
        "integer",
        "Bad records that were left out since the table began, as `on_bad_record: skip` says. Absent while there are"
        " none.",
    ),
    "passed-over": (
        "JSON: kind → count",
        "Records since the table began that are no change of a row, such as heartbeats, by what they are (see"
        " [envelopes](envelopes.md)). Absent while there are none.",
    ),
    "dead-letters": (
        "JSON: table, files, since, topic",
        "The letters of this commit's bad records: files that belong to the dead-letter table `table`, and where the"
        " batch began. They are promised here and committed there, under the same commit id, before anything else is"
        " done with the table. Absent when the batch had none.",
    ),
    "places": (
        "JSON: topic → partition → text",
        "Of a table that shows transactions whole: the place among the source's commits of the newest change that each"
        " partition has seen. What comes up to it is a repetition. The texts sort as the source has committed.",
    ),
    "emptied": (
        "text",
        "Of a mirror with `order_by: _source_order`: the place of the newest TRUNCATE. Changes from before it count no more,"
        " whenever they come. Absent while there was none.",
    ),
    "last-deletes": (
        "JSON: topic → partition → [offset, key]",
        "Of a mirror that takes tombstones: partitions whose last record is a delete, with a hash of its key. A tombstone of"
        " that key which comes next says nothing new. Absent when there are none.",
    ),
}

RETRY_KEYS: dict[str, tuple[str, str]] = {
    "retry": (
        "JSON: id, table, uuid, since, files",
        "In a dead-letter table: rows of retried letters that this snapshot took out; the files are appended to the table"
        " unless it has them already, in a snapshot after `since`.",
    ),
    "retry-id": (
        "UUID",
        "In a table: the retry whose rows this snapshot added. A snapshot without files that has it stands in the way of a"
        " retry that died.",
    ),
    "retry-letters": (
        "JSON: id, table, since, read_at, removed, added",
        "In a table with `mode: upsert`: files of the dead-letter table that go, now that the rows of their letters are"
        " here, and the files with the letters that stay, which come in their place.",
    ),
    "rewrite-id": (
        "UUID",
        "In a dead-letter table: the retry or the drop that made this snapshot; of two that have read the same snapshot one"
        " is refused. A snapshot without files that has it stands in the way of a retry that died.",
    ),
}

LOG_EVENTS: dict[str, str] = {
    "available_again": "Kafka answers again, after so many failures.",
    "batch_committed": "A batch is a snapshot now; how many records and files, what is left to read, how long it took.",
    "batch_planned": "A batch was handed to Spark: how many offsets, in which lane, and tables that the same read is for.",
    "care_done": "An action of table care is done: which, why, files that went and came, how long it took.",
    "care_failed": "An action of table care came to nothing: see [table care](../operations/table-care.md).",
    "care_lost": "An action of table care was refused because another commit was quicker; the table is looked at anew.",
    "care_put_off": "A table could not be looked at for its care; it is tried again later.",
    "commits_as_usual": "Table care has caught up; the table commits as often as its file says.",
    "commits_slowed": "Commits of changes keep undoing what table care does, or the table owes too much: it commits"
    " less often until care has caught up: see [table care](../operations/table-care.md).",
    "conflict": "A commit was refused, or a topic changed during a read: the batch is planned again. Now and then it is"
    " harmless; see [conflicts](../operations/conflicts.md).",
    "connected": "Kafka and the catalog answered at the start; says the cluster, the number of tables and this run's"
    " epoch.",
    "dead_letters_begin": "The first bad record for a while: batches carry what dead letters need from now on, and this"
    " one is planned again.",
    "decoder_not_compiled": "On a cluster: the decoder could not be compiled on this machine, and why; each executor"
    " compiles it, as those on another kind of processor do. See [cluster](../how-to/cluster.md#what-executors-need).",
    "ending": "The process ends, and why: another run has taken over, or the JVM is gone.",
    "large_records": "A record, with its key and headers where they are read, was larger than 8 KiB: this batch, and later"
    " ones, are read in pieces of limited size.",
    "old_metadata_kept": "The properties of a table do not say what becomes of its old metadata files, so that every commit"
    " leaves one: what to do about it. Said once of each table by a process; see [existing"
    " tables](../how-to/existing-table.md#old-metadata-files).",
    "ordered_by_text": "The column that `order_by` names is text, which is compared by its bytes: newer changes may be"
    " dropped. See [upserts](../how-to/upsert.md#which-change-is-the-last).",
    "pattern_without_topic": "At the start a regular expression of the file matches no topic; the run goes on with the"
    " others and looks again. See [topic missing](../operations/topic-missing.md).",
    "record_isolated": "A record ends the task that reads it: its place and the signal or the exception. It becomes a dead"
    " letter of the class `crashes_decoder`. See [task failed](../operations/task-failed.md).",
    "batches_cut": "Records that a task can read each alone took more memory or processor time together than it may: batches"
    " of the table have so many records from now on, and more again while they are quick. Also where too many of a new"
    " table's first records are bad: those few are committed, so that their dead letters can be looked at.",
    "sample_failed": "A task that reads a sample of the records behind a table's first batch has failed: these records have"
    " no say in the first columns. The record that it fails for is searched once its batch is read.",
    "records_searched": "A task of this table alone has failed: the record that it fails for is searched. The others go on.",
    "grace_over": "The batch in hand was not committed within `--grace` of SIGTERM: it is given up, and the next run reads"
    " it again.",
    "records_passed_over": "A table met records that are no change of a row, such as heartbeats, for the first time: what"
    " they are, and how many the batch had. See [envelopes](envelopes.md).",
    "logical_type_ignored": "An Avro schema has a `logicalType` beside a field's `type`, where Avro ignores it: the column"
    " has the type alone. `value: {format: avro, logical_types: lenient}` reads it as meant. Logged once for each schema.",
    "records_skipped": "Records were gone from Kafka before they were read, and the table says `on_data_loss: skip`: the"
    " first and the last offset that were passed over. The next commit has them in its summary.",
    "values_gone": "Rows of a mirror lack a value for a required column: it was not sent, and no row had it. The table's"
    " policy forbids that the column becomes optional, so the batch is planned again, and `lost` records are dead letters.",
    "rows_moved": "Rows of a mirror get another key: the batch is planned again, for one task to read, which finds large"
    " values that were not sent with the old keys. `lost` records had a row that is gone: they are dead letters.",
    "batch_shortened": "A row of a mirror gets another key, and not all records that tell of it are in the batch: it ends"
    " before them.",
    "key_change_awaited": "A row of a mirror gets another key, and the table waits for the rest of what tells of it: see"
    " [upserts](../operations/upserts.md).",
    "rows_looked_up_again": "Another writer changed an upsert table between the look at it and the commit: the rows to"
    " replace were looked up again, so many times. The batch itself was not planned again.",
    "schema_change_refused": "Records ask for a change that the table cannot make, or that its `schema_evolution` forbids:"
    " the column and what would have to change, the ids of the schemas that ask for it, and what to do. Said once by a"
    " process, whichever further schemas ask; see [schema change refused](../operations/schema-change-refused.md).",
    "table_made_anew": "The table was dropped, and another one is there under its name: it is read into from `start`, or"
    " from the offsets it has. See [changes by hand](../how-to/existing-table.md#changes-by-hand-while-it-runs).",
    "table_taken_over": "An earlier run of this pipeline had been quicker with a batch; an empty commit in this run's name"
    " has made the table this run's, and the earlier one ends with exit code 3 at its next commit: see [another run has"
    " taken over](../operations/fenced.md).",
    "schema_changed": "The table was made, or got columns that records needed, or a wider type; the batch is planned again.",
    "schemas_fetched": "Records named schemas that this process had not met; the registry was asked for them, and the"
    " batch is planned again.",
    "session_started": "Spark is up: the first batch can run.",
    "settings_left_out": "Settings under `kafka` that only the other of the two clients knows, by name; said once for"
    " each client.",
    "starting": "The command has read its file.",
    "stopping": "Asked to end: what is in hand, of the tables that are named, is finished and committed. A second"
    " Ctrl-C does not wait for that.",
    "table_backs_off": "Something this table needs does not answer; it tries again after the time that is named.",
    "table_stopped": "The table does not go on until its operator has decided; says reason, place and remedy.",
    "transaction_held": "A table that shows transactions whole waits for the rest of one: see"
    " [transactions](../operations/transactions.md).",
    "unavailable": "Kafka or the catalog does not answer; everything tries again after the time that is named.",
    "unexpected": "A fault of Frazil's own, with its stack trace; the table stops. Please report it.",
}

FAILPOINTS: dict[str, str] = {
    "care.planned": "an action of table care is about to begin",
    "care.compact.begins": "groups of data files are about to be rewritten",
    "care.compact.written": "the new data files are written, their commit is not sent",
    "care.compact.landed": "the commit of a compaction has landed",
    "care.deletes.begins": "delete files are about to be rewritten",
    "care.deletes.landed": "the commit of rewritten delete files has landed",
    "care.manifests.begins": "manifests are about to be rewritten",
    "care.manifests.landed": "the commit of rewritten manifests has landed",
    "care.carry.begins": "progress is about to be said again in an empty commit",
    "care.carry.landed": "that commit has landed",
    "care.expire.begins": "snapshots are about to be expired",
    "care.expire.landed": "snapshots are expired and the files removed that only they named",
    "care.orphans.found": "orphans are found, none is removed",
    "care.orphans.deleting": "some orphans are about to be removed, others have been",
    "care.statistics.begins": "distinct values are about to be counted",
    "care.statistics.landed": "statistics are committed",
    "job.before": "a batch is planned, its Spark job not started",
    "task.batch": "a task has got a batch of records",
    "task.write": "a task is about to write rows to its file",
    "task.close": "a task's file is written and not yet closed",
    "job.after": "all tasks have reported, nothing is committed",
    "create.before": "a table is about to be made",
    "create.landed": "a table is made, and empty",
    "evolve.before": "a table is about to get new columns",
    "evolve.landed": "a table has got new columns, and no data for them yet",
    "upsert.deletes": "the rows that changes replace are found, which they are is not written",
    "upsert.resolved": "the files with what is deleted are written, the commit is not prepared",
    "arrange.before": "a table is about to get another partition spec or sort order",
    "arrange.spec-changed": "its partition spec is changed, its sort order is not yet",
    "commit.before": "the commit is prepared, not sent",
    "commit.validating": "the catalog asks whether the progress is still the expected one",
    "commit.landed": "the commit has landed, its answer was not used yet",
    "commit.after": "the commit is known to have succeeded",
    "letters.before": "a batch is committed, its dead letters are not",
    "letters.after": "its dead letters are committed too",
    "letters.sent": "they are in their Kafka topic too, their table does not say so yet",
    "retry.evolving": "a table is about to get columns that retried letters need",
    "retry.written": "retried letters are written to files that no snapshot names",
    "retry.announced": "the dead-letter table has the mark of a retry that has promised nothing yet",
    "retry.replace-landed": "rows of retried letters have landed where rows are replaced, the answer was not used yet",
    "retry.replaced": "these rows are known to be in the table, their letters are still there",
    "retry.rewrite-landed": "a commit that takes letters out has landed, its answer was not used yet",
    "retry.promised": "letters are taken out, their rows are promised",
    "retry.append-landed": "the promised rows have landed, the answer was not used yet",
    "retry.appended": "the promised rows are known to be in the table",
    "retry.done": "the mark of the retry is gone",
    "outbox.before": "dead letters are written to their topic, the transaction is not committed",
    "outbox.after": "the transaction is committed, its answer was not used yet",
}

EXIT_CODES: tuple[tuple[str, str], ...] = (
    ("0", "done, or stopped when asked to"),
    ("1", "failed, or something needed does not answer"),
    ("2", "the pipeline file or the arguments are wrong"),
    ("3", "another run of this pipeline has taken over"),
    ("4", "some table stopped (`run`), is not well (`status`), or would be changed (`plan`)"),
    ("130", "ended by a second Ctrl-C"),
)

ENVIRONMENT: dict[str, str] = {
    "FRAZIL_CACHE": "Where jars and what else can be fetched again are kept; by default `frazil` in the user's cache"
    " folder.",
    "FRAZIL_FAILPOINTS": "For tests: makes the process die, stall or fail at a [failpoint](failpoints.md).",
    "FRAZIL_IVY_SETTINGS": "An Ivy settings file, for a mirror or a repository of your own to fetch the jars from.",
    "FRAZIL_PYTHON": "Set by Frazil for its executors on a cluster: which Python the shipped packages are for.",
    "FRAZIL_RECORD_CLASSES": "Set by Frazil for a JVM of its own: makes it note the classes that the next start maps.",
    "FRAZIL_YOUNGEST_ORPHAN": "For tests: the least that `maintenance.orphans.age` may be, in place of 24 hours.",
}
