"""The meaning of summary keys, log events, failpoints, exit codes and environment variables.

A test compares the names with those in the source.
"""

from __future__ import annotations

SUMMARY_KEYS: dict[str, tuple[str, str]] = {
    "offsets": (
        "JSON: topic → partition → offset",
        "The next offset to read, of every partition of every topic: the table has the rows of all offsets from the"
        " first one that was read up to this one. Topics are sorted by name and partitions by number, so that equal"
        " progress is equal text.",
    ),
    "topic-ids": (
        "JSON: topic → id",
        "Kafka's id of each topic; a topic that is deleted and recreated has another id.",
    ),
    "cluster-id": ("text", "Kafka's id of the cluster that the offsets belong to."),
    "commit-id": (
        "UUID",
        "The id of this commit. The next commit succeeds only while this commit is the newest one; when the answer of a"
        " commit is lost, the id shows whether the commit landed.",
    ),
    "epoch": (
        "integer",
        "The number of the run that committed: one more than the greatest epoch in the tables at its start. If two runs"
        " conflict, the one with the greater epoch continues.",
    ),
    "run-id": ("UUID", "The process that committed; decides between two runs of the same epoch."),
    "schemas": (
        "texts, joined by commas",
        "The schemas that values were decoded with: ids of the schema registry (numbers or GUIDs, the last 200 that"
        " this table has met), `latest`, or the format (`json`, `text`, `raw`) if values have no schema.",
    ),
    "watermarks": (
        "JSON: topic → partition → milliseconds",
        "The latest record timestamp that was read from each partition.",
    ),
    "watermark": (
        "milliseconds since the epoch",
        "The record timestamp up to which the table is complete: the minimum over the partitions that still hold the"
        " watermark back. It never decreases. Absent while it is unknown.",
    ),
    "skipped": (
        "JSON: topic → partition → [from, to]",
        "Offsets that this commit skipped because Kafka had deleted their records and the table has `on_data_loss:"
        " skip`; `to` is the first offset that still existed. Absent when there are none.",
    ),
    "bad-skipped": (
        "integer",
        "Bad records that were skipped since the table was created, with `on_bad_record: skip`. Absent when there"
        " are none.",
    ),
    "ignored-records": (
        "JSON: kind → count",
        "Records since the table was created that change no row, such as heartbeats, by kind (see"
        " [envelopes](envelopes.md)). Absent when there are none.",
    ),
    "released-to": (
        "text",
        "The tool that continues from these offsets in place of the pipeline (see [release](../migrate/adopt.md)). Absent"
        " while the pipeline continues itself.",
    ),
    "lookups": (
        "JSON: lookup → table and snapshot-id, or file and version",
        "The version of each reference table that the rows of this commit were joined with: the snapshot of an Iceberg"
        " table, the ETag of an object, or the size and modification time of a local file (see"
        " [lookup](../guides/lookup.md)). Absent without `lookup`.",
    ),
    "dead-letters": (
        "JSON: table, files, since, topic",
        "The pending dead letters of this commit: files that belong to the dead-letter table `table`, and the offsets"
        " where the batch began. Frazil commits them to the dead-letter table under the same commit id before it does"
        " anything else with the table. Absent when the batch had no bad records.",
    ),
    "source-positions": (
        "JSON: topic → partition → text",
        "In a table with `atomic`, the position in the source's log of the newest change that each partition has seen."
        " Changes up to this position are repetitions. The texts sort in the source's commit order.",
    ),
    "last-truncate": (
        "text",
        "In an upsert table with `order_by: _source_order`, the position of the newest TRUNCATE. Changes from before"
        " it are ignored, whenever they arrive. Absent when there was none.",
    ),
    "last-deletes": (
        "JSON: topic → partition → [offset, key]",
        "In an upsert table that reads tombstones, partitions whose last record is a delete, with a hash of its key. A"
        " tombstone of the same key that follows the delete changes nothing. Absent when there are none.",
    ),
    "routed-tables": (
        "JSON: list of from, tables",
        "In the rest table of a [route](../guides/route.md), the tables that the route has made, each with the values"
        " of its records, and the offsets from which it reads them. Absent when there are none.",
    ),
    "rest-records": (
        "JSON: reason → number",
        "In the rest table of a route, records since the table was created that no other table received. Absent when"
        " there were none.",
    ),
    "balance": (
        "JSON: read, written, bad, dropped, fields",
        "The numbers of records of this commit: `read` is the sum of `written` (as rows, or as changes of"
        " an upsert table, superseded ones included), `bad` (dead letters, or skipped with `on_bad_record: skip`) and"
        " `dropped`, by the setting that dropped them or by the kind of a record that changes no row. `fields` counts"
        " fields of JSON"
        " records ([below](#fields-of-json-records)). Checked before each commit.",
    ),
    "ledger": (
        "JSON: sums",
        "Sums over all commits up to this one, which do not depend on expired snapshots: `commits`, the `offsets`"
        " that they covered, and the `records` that they read, which were `written`, `bad` or `dropped`. `record_digest`"
        " is the sum of a hash of each record. An append-only table also has `rows` and `row_digest`, the number and"
        " the hashes of its rows ([below](#the-ledger)). `before` is the commit that this one continues, and `starts`"
        " has the"
        " first offsets that are not 0. `partial` is `true` if the table also has rows of earlier records."
        " `hash_version` is the kind of the hashes.",
    ),
    "expectations": (
        "JSON: name → number",
        "In a table with [`expect`](../guides/expect.md), by expectation, the records since the table was created that"
        " did not meet it, or with `min_rows` the commits. Absent without expectations.",
    ),
    "event-times": (
        "JSON: topic → partition → microseconds",
        "The greatest time of the records of each partition, which decides which of its next records are late, in a table"
        " with [`late`](../guides/aggregate.md#late-records). Absent before the first record.",
    ),
    "event-time": (
        "microseconds",
        "The time that all partitions with records have reached, in a table with `late`. It never decreases.",
    ),
    "windows-complete-to": (
        "microseconds",
        "Windows that end by this time no longer change, in a table with `late`: `event-time` minus `late`.",
    ),
}

REPLAY_KEYS: dict[str, tuple[str, str]] = {
    "replay": (
        "JSON: id, table, uuid, since, files",
        "In a dead-letter table: the rows of dead letters that this snapshot removed. The files are appended to the"
        " table, unless a snapshot of the table after `since` has them already.",
    ),
    "replay-id": (
        "UUID",
        "In a table: the replay whose rows this snapshot added. An empty snapshot with this key keeps a replay that"
        " died from committing later.",
    ),
    "replayed-dead-letters": (
        "JSON: id, table, since, read_at, removed, added",
        "In a table with `mode: upsert`: files of the dead-letter table to remove, because this snapshot has the rows"
        " of their dead letters, and the files with the remaining dead letters that replace them.",
    ),
    "rewrite-id": (
        "UUID",
        "In a dead-letter table: the replay or the drop that made this snapshot. If two read the same snapshot,"
        " one is refused. An empty snapshot with this key keeps a replay that died from committing later.",
    ),
}
"""Summary keys of snapshots that replays and drops of dead letters make."""

LOG_EVENTS: dict[str, str] = {
    "archive_packed": "On a cluster, an archive for executors is built: its size, and the duration.",
    "archive_removed": "On a cluster, an archive that no process has used for a week is removed.",
    "batch_committed": "A batch was committed as a snapshot: records, files, bad records, remaining lag and duration.",
    "batch_planned": "A batch was handed to Spark: number of offsets, worker pool, and the tables that share the read.",
    "batch_shortened": "A batch ends before a primary-key update whose delete part and insert part are not both in it:"
    " `incomplete_updates` counts such updates.",
    "batch_size_reduced": "Records that a task can read one by one took too much memory or processor time together:"
    " from now on batches of the table have at most `records` records, and more again once they are fast. Also"
    " logged when too many of a new table's first records are bad: a few of them are committed, so that their dead"
    " letters can be inspected.",
    "command_failed": "With `--log-format json`: the error with which the command ends, and its exit code.",
    "commit_conflict": "A commit was refused, or a topic changed during a read: the batch is planned again. Harmless"
    " when it happens now and then; see [conflicts](../troubleshoot/conflicts.md).",
    "commit_interval_raised": "Commits of an upsert table repeatedly undo the work of table maintenance, or the table's"
    " maintenance backlog is too large: the table commits less often until maintenance has caught up. See [table"
    " maintenance](../troubleshoot/table-maintenance.md).",
    "commit_interval_restored": "Table maintenance has caught up: the table uses the commit interval of the pipeline"
    " file.",
    "connected": "Kafka and the catalog answered at the start: cluster id, number of tables, epoch of this run.",
    "catalog_changed": "The last run has committed to tables in a catalog that differs from the pipeline file's"
    " catalog: tables that the present catalog lacks begin at their start. See [catalog"
    " unavailable](../troubleshoot/catalog-unavailable.md).",
    "crashing_record_found": "A record crashes the task that reads it: its topic, partition and offset, and the"
    " signal or the exception."
    " The record becomes a dead letter of the class `crashes_decoder`. See [task"
    " failed](../troubleshoot/task-failed.md).",
    "crashing_record_search_started": "A task of this table failed: Frazil searches for the record that crashes it."
    " Other tables continue.",
    "dead_letter_capture_started": "The first bad record in a while: from now on batches contain keys, headers and"
    " timestamps for dead letters, and the current batch is planned again.",
    "decoder_not_compiled": "On a cluster, the decoder could not be compiled on this machine, with the reason. Each"
    " executor compiles the decoder itself, like executors on another kind of processor. See"
    " [cluster](../deploy/cluster.md#what-executors-need).",
    "election_unavailable": "The service that elects a leader does not answer, or refuses this process: the present"
    " leader continues, and no other process can lead until the service answers. Logged once per cause.",
    "invalid_election_record": "The [control topic](../operate/standby.md) of the election has a record that no process of"
    " the pipeline wrote, at this offset. It is ignored.",
    "expectation_not_met": "Records, or a commit, do not meet `expect` of the table: how many since the last such"
    " event, and the first of them. At most once a minute for each [expectation](../guides/expect.md).",
    "first_value_refused": "The first value of a field has a type that the table's query or settings cannot use: the"
    " field's column comes from other records, and records with such a value are bad records until the column exists.",
    "fetching_jars": "The cache lacks the jars for `use`: they are fetched, for a minute or two.",
    "grace_period_exceeded": "The batch in flight was not committed within `--grace` of SIGTERM: the batch is"
    " abandoned, and the next run reads it again.",
    "history_unavailable": "The file with the console's history cannot be read or written: until then, charts show"
    " only the last hours.",
    "fenced_to_standby": "A later run has written the table: this process [stands by](../operate/standby.md) for it.",
    "http_command": "A user called a command of the HTTP service: `operation`, its table and its parameters.",
    "operator_action": "A user requested a change, which is in the [audit log](../security/audit.md) too: `through`"
    " (command, api or console), `who`, `place`, `operation`, and its arguments.",
    "http_certificate_expiring": "The certificate of `http.tls` is in its last two weeks, or in the last tenth of a shorter"
    " time (`reason`). Renewed files are used without a restart.",
    "http_certificate_invalid": "The certificate of `http.tls` has expired or is not valid yet (`reason`): it is served, and"
    " clients refuse it. Renewed files are used without a restart.",
    "http_certificate_kept": "The files of `http.tls` have changed and cannot be used (`reason`), for example because"
    " the key is not replaced yet: the last certificate stays in use. Frazil tries the files again when they change.",
    "http_certificate_renewed": "The files of `http.tls` have changed: the new certificate is in use.",
    "http_request_failed": "A request to the HTTP service failed with an unexpected error; the pipeline continues.",
    "http_started": "The [HTTP service](../operate/http.md) answers at `address`.",
    "http_unavailable": "Another process listens at the default address of the HTTP service, or this machine lacks the"
    " address: the pipeline runs without the service.",
    "leadership_lost": "Another process leads now, with its name and the reason (`cause`). This process stands by.",
    "leadership_released": "This process was requested to stand down, and has finished its batches: another process"
    " may lead.",
    "leadership_taken": "This process leads now, with the reason: `start`, no process led; `released`, the last"
    " leader stood down; `lost`, the last leader has ended; `forced`, the last leader did not answer.",
    "logical_type_ignored": "An Avro schema has a `logicalType` next to a field's `type`, where Avro ignores it: the"
    " column has the plain type. `value: {format: avro, logical_types: lenient}` applies the logical type. Logged"
    " once per schema.",
    "lookup_repeated": "Another writer changed an upsert table between the lookup of the rows to replace and the"
    " commit: the lookup was repeated `retries` times. The batch was not planned again.",
    "maintenance_conflict": "A maintenance action was refused because another commit was faster: the action is"
    " planned again.",
    "maintenance_done": "A maintenance action is finished: action, reason, files removed and added, duration.",
    "maintenance_failed": "A maintenance action failed: see [table maintenance](../troubleshoot/table-maintenance.md).",
    "maintenance_skipped": "The metadata of a table could not be read for its maintenance, which is retried later.",
    "observer_failed": "An observer of an installed package has raised an error, which is logged once: the pipeline"
    " continues without the observer.",
    "observer_unavailable": "An observer of an installed package cannot be loaded, with the reason: the pipeline runs"
    " without it.",
    "offsets_not_published": "The offsets of the tables cannot be published in the pipeline's consumer group, with"
    " the reason: publishing is retried, and ingestion continues. See [offsets not"
    " published](../troubleshoot/offsets-not-published.md).",
    "offsets_refused": "The pipeline's consumer group is used by another client: this run publishes no more offsets,"
    " and ingestion continues. See [offsets not published](../troubleshoot/offsets-not-published.md).",
    "old_metadata_kept": "The table properties do not set the removal of old metadata files, so every commit leaves"
    " one behind; `reason` has what to do. Logged once per table and process; see [existing"
    " tables](../guides/existing-table.md#old-metadata-files).",
    "old_metadata_removed": "Every commit removes the oldest metadata file of the table, which its catalog needs"
    " (`hadoop` and `nessie`); `reason` has what to do. Logged once per table and process; see [existing"
    " tables](../guides/existing-table.md#old-metadata-files).",
    "column_without_field": "A declared column names a member of the envelope instead of a field of the row, and"
    " stays null; `reason` has the setting to write instead. Logged once per table and process; see"
    " [a field under another name](../guides/shape.md#a-field-under-another-name).",
    "ordered_by_text": "The column that `order_by` names is text, which is compared byte by byte: newer changes may be"
    " dropped. See [upserts](../guides/upsert.md#which-change-is-the-last).",
    "other_format_version": "The format version of the new table differs from `format_version`: `asked` and `found`."
    " Frazil writes the table in the version that it has; see [managed catalogs](../catalogs/README.md).",
    "topic_key_ignored": "A key of a topic's own configuration has no effect on its table, or an effect that differs"
    " from AutoMQ's: `topic`, `key`, the reason and what to do. See"
    " [topics from their configuration](../guides/topics-from-configuration.md).",
    "control_record_ignored": "A record of the control topic with the keys of topics is not a JSON object; `topic` counts as"
    " one without keys there. See [topics from their configuration](../guides/topics-from-configuration.md).",
    "packing_archive": "On a cluster, the cache lacks an archive for executors; building it takes up to two minutes.",
    "pages_unavailable": "Pages of an installed package cannot be loaded, with the reason: the HTTP service answers"
    " without them.",
    "pattern_matches_no_topic": "At the start a regular expression of the pipeline file matches no topic: the run"
    " continues with the other topics and checks again. See [topic missing](../troubleshoot/topic-missing.md).",
    "primary_key_update_pending": "A table waits for the other part of a primary-key update: see"
    " [upserts](../troubleshoot/upserts.md).",
    "primary_key_updates_found": "The batch has primary-key updates: it is planned again as one task, which takes"
    " large values that were not sent from the rows of the old keys. `dead_letters` records become dead letters"
    " because the row of their old key no longer exists.",
    "properties_refused": "The catalog refused these `properties` of Frazil for a new table; the table was created"
    " without them. See [managed catalogs](../catalogs/README.md).",
    "process_ending": "The process ends, with the reason: another run has taken over, or the JVM has ended.",
    "records_ignored": "A table received its first records of a kind that changes no row, such as heartbeats: the"
    " kind, and their number in the batch. A warning with a `reason` for updates of MongoDB without a document. See"
    " [envelopes](envelopes.md).",
    "records_skipped": "Kafka had deleted records before they were read, and the table has `on_data_loss: skip`: the"
    " first and the last offset that were skipped. The next commit has them in its summary.",
    "topics_not_ordered": "Several topics feed an upsert table, and nothing orders their changes: a row that moves from"
    " one topic to another may be lost. See [partitioned tables](../guides/cdc-keys.md#partitioned-tables-and-shards).",
    "required_values_missing": "Rows of an upsert table have no value for a required column: the value was not sent,"
    " and no existing row has it. The table's policy forbids making the column optional, so the batch is planned"
    " again, and `dead_letters` records become dead letters.",
    "route_limit_reached": "A [route](../guides/route.md) has as many tables as its `limit` allows: records of"
    " further values are written to the rest table.",
    "routed_tables_found": "Records of a [route](../guides/route.md) have new values: a commit of the rest table,"
    " without a row, has recorded their tables.",
    "sample_failed": "A task failed that read a sample of the records after a table's first batch: these records do"
    " not influence the first columns. Frazil searches for the crashing record when its batch is read.",
    "schema_change_refused": "Records need a schema change that the table cannot make, or that its `schema_evolution`"
    " forbids: the column, the change, the ids of the schemas that need it, and what to do. Logged once per change and"
    " process; see [schema change refused](../troubleshoot/schema-change-refused.md).",
    "schema_changed": "The table was created, or got columns or wider types that records need: the batch is planned"
    " again.",
    "schemas_fetched": "Records named schemas that this process did not know: they were fetched from the registry,"
    " and the batch is planned again.",
    "service_available_again": "Kafka answers again, after `after_failures` failures.",
    "service_unavailable": "Kafka or the catalog does not answer: every table retries after `retry_in_s` seconds; `remedy`"
    " has what to do.",
    "settings_ignored": "Settings under `kafka` that `client` (librdkafka or the client of tasks) does not know, by"
    " name. Logged"
    " once per client.",
    "shared_job_failed": "A job that read several tables failed with `reason`, which may concern another of these"
    " tables: the table is read again at once, in a separate job.",
    "spark_application_lost": "On a cluster, the master was restarted, is unavailable, or has ended the application,"
    " which can no longer get executors. Its batches are planned again; the next batch starts another application. See"
    " [cluster](../deploy/cluster.md#restarts-and-outages).",
    "spark_executors_available_again": "On a cluster, the application has executors again.",
    "spark_executors_missing": "On a cluster, the application has no executors, with the reason: batches wait with"
    " back-off until it has executors. See [cluster](../deploy/cluster.md#restarts-and-outages).",
    "spark_session_started": "The Spark session is started, and batches can run. Logged again after a cluster has"
    " lost the application.",
    "starting": "The command has read the pipeline file.",
    "stopping": "The process was requested to stop: the batches of `tables_in_flight` are finished and committed. A"
    " second Ctrl-C does not wait for them.",
    "table_load_slow": "The catalog or the store has not answered the load of a table for `waited_s` seconds: it"
    " accepts connections and does not answer, or it is slow. See [catalog"
    " unavailable](../troubleshoot/catalog-unavailable.md).",
    "table_backing_off": "A service that the table needs does not answer: the table retries after `retry_in_s`"
    " seconds.",
    "branch_discarded": "An operator made the branch of a table begin again at main: records since then are read again. See"
    " [publish](../guides/publish.md#when-an-audit-does-not-hold).",
    "publish_failed": "A table could not be audited or published, with the reason; Frazil tries again within ten"
    " seconds.",
    "publish_held": "The newest snapshot of a table's branch is not published: the `audits` that do not hold, or another"
    " `reason`. See [a table is not published](../troubleshoot/publish-held.md).",
    "table_tagged": "A table has a new [tag by calendar](../guides/publish.md#tags-by-calendar).",
    "table_published": "From now on readers see the `snapshot`, which is complete to `complete_to_ms`; tables of a"
    " `group` are published together. See [publish](../guides/publish.md).",
    "table_differs": "Some of the newest commits do not have the rows of their records: `missing` and `surplus` rows, with"
    " [`verify`](../troubleshoot/table-differs.md) in the pipeline file.",
    "table_not_verified": "Some of the newest commits, or a whole table, were not compared with the topics, with the"
    " reason. This is not a fault. See [verify](../guides/verify-schedule.md).",
    "table_verified": "Some of the newest commits were compared with the topics: they have exactly the rows of their"
    " records.",
    "table_paused": "An operator has [paused](../operate/http.md#commands) the table.",
    "table_recreated": "The table was dropped and recreated under its name: Frazil fills it from `start`, or from the"
    " offsets that it has. See [changes by hand](../guides/existing-table.md#changes-by-hand-while-it-runs).",
    "table_reset": "An operator made the table begin again at `start`; `offsets` are the next offsets to read.",
    "table_resumed": "An operator lets a paused or stopped table continue.",
    "table_stopped": "The table stops until its operator has decided: reason, place and remedy.",
    "tables_released": "Another process of the pipeline works on `count` tables from now on, for `reason`; the first"
    " of them are named. This process [stands by](../operate/standby.md).",
    "tables_taken": "This process works on `count` tables from now on, for `reason`; the first of them are named.",
    "table_taken_over": "An earlier run of this pipeline committed a batch first. An empty commit of this run has"
    " taken the table over, and the earlier run ends with exit code 3 at its next commit: see [another run has taken"
    " over](../troubleshoot/fenced.md).",
    "transaction_incomplete": "A table with `atomic` waits for the rest of a transaction: see"
    " [transactions](../troubleshoot/transactions.md).",
    "telemetry_failed": "A request to `destination` (`otlp` or `openlineage`) failed: `reason`. Logged again only after one"
    " has succeeded; the pipeline is not affected. See [metrics, traces and lineage](../operate/telemetry.md).",
    "telemetry_sent_again": "A request to `destination` has succeeded after failures; `dropped_batches` batches were"
    " not sent since the process started.",
    "telemetry_unavailable": "An environment variable names a service, and the package that sends to it is not"
    " installed: nothing is sent.",
    "telemetry_unsent": "The process ended while `batches` waited to be sent to `destination`, after `waited_s` seconds.",
    "warm_up_failed": "The job that warms up a standby has failed: Frazil tries again after 30 seconds.",
    "unexpected_error": "An error inside Frazil, with its stack trace: the table stops. Please report it.",
    "windows_closed": "Windows of a table with [`emit: closed`](../guides/aggregate.md#closed-windows) became"
    " complete and are in main: their number, and the time up to which main has all windows.",
    "waiting_records_failed": "Records that [wait](../guides/lookup.md#records-that-wait) for a reference table could"
    " not be replayed, with the reason; Frazil tries again. Logged once per cause.",
    "waiting_records_replayed": "Records that [waited](../guides/lookup.md#records-that-wait) for a reference table became"
    " `rows`, or were dropped or made dead letters by `on_miss`; `waiting` records still wait.",
    "waiting_for_archive": "Another process builds the same archive for executors: this process waits until it is"
    " stored.",
    "waiting_for_jars": "Another process fetches the same jars: this process waits until they are stored.",
}

FAILPOINTS: dict[str, str] = {
    "windows.written": "the rows of windows that are complete are written, their commit to main is not sent",
    "windows.landed": "the commit of complete windows to main has landed",
    "repair.before": "the rows that a repair removes are about to be looked up",
    "repair.written": "the files of a repair are written, its commit is not sent",
    "repair.landed": "the commit of a repair has landed",
    "verify.kept": "a part of a comparison is stored, so that a later call continues after it",
    "maintenance.planned": "a maintenance action is about to begin",
    "maintenance.compact.begins": "groups of data files are about to be rewritten",
    "maintenance.compact.written": "the new data files are written, their commit is not sent",
    "maintenance.compact.landed": "the commit of a compaction has landed",
    "maintenance.deletes.begins": "delete files are about to be rewritten",
    "maintenance.deletes.landed": "the commit of rewritten delete files has landed",
    "maintenance.manifests.begins": "manifests are about to be rewritten",
    "maintenance.manifests.landed": "the commit of rewritten manifests has landed",
    "maintenance.carry.begins": "progress is about to be repeated in an empty commit",
    "maintenance.carry.landed": "the empty commit that repeats progress has landed",
    "maintenance.expire.begins": "snapshots are about to be expired",
    "maintenance.expire.landed": "snapshots are expired and the files that only they referenced are removed",
    "maintenance.orphans.found": "orphan files are found, none is removed",
    "maintenance.orphans.deleting": "some orphan files are about to be removed, others are removed already",
    "maintenance.statistics.begins": "distinct values are about to be counted",
    "maintenance.statistics.landed": "statistics are committed",
    "job.before": "a batch is planned, its Spark job is not started",
    "pass.write": "the first of two passes of a task is about to write decoded records to a temporary file",
    "task.batch": "a task has received a batch of records",
    "blobs.pack.write": "a task is about to write an object to a pack",
    "blobs.pack.finished": "a pack is complete, and no commit refers to it",
    "blobs.sweep.found": "packs that no snapshot refers to are found, none is removed",
    "task.write": "a task is about to write rows to its file",
    "task.close": "a task's file is written and not yet closed",
    "job.after": "all tasks have reported, nothing is committed",
    "create.before": "a table is about to be created",
    "create.landed": "a table is created, and empty",
    "evolve.before": "a table is about to get new columns",
    "query.evolved": "a table has the columns that its query makes of new fields, which are not recorded yet",
    "evolve.landed": "a table has got new columns, and no data for them yet",
    "upsert.deletes": "the rows that changes replace are found, the delete files are not written",
    "upsert.resolved": "the delete files are written, the commit is not prepared",
    "layout.before": "a table is about to get another partition spec or sort order",
    "layout.spec-changed": "the partition spec of a table is changed, its sort order is not",
    "commit.before": "the commit is prepared, not sent",
    "commit.validating": "the catalog checks whether the progress in the table is still the expected one",
    "commit.landed": "the commit has landed, its answer is not used yet",
    "commit.after": "the commit is known to have succeeded",
    "dead_letters.before": "a batch is committed, its dead letters are not",
    "dead_letters.after": "the dead letters of a batch are committed to the dead-letter table",
    "dead_letters.published": "dead letters are in their Kafka topic, and the dead-letter table does not record it yet",
    "replay.evolving": "a table is about to get columns that replayed dead letters need",
    "replay.written": "the rows of replayed dead letters are written to files that no snapshot references",
    "replay.marked": "the dead-letter table has the mark of a replay that has committed nothing yet",
    "replay.replace-landed": "rows of replayed dead letters have landed in an upsert table, the answer is not used yet",
    "replay.replaced": "rows of replayed dead letters are known to be in an upsert table, the dead letters still exist",
    "replay.rewrite-landed": "a commit that removes dead letters has landed, its answer is not used yet",
    "replay.pending": "dead letters are removed, their rows are pending",
    "replay.append-landed": "the pending rows have landed, the answer is not used yet",
    "replay.appended": "the pending rows are known to be in the table",
    "replay.done": "the mark of the replay is removed",
    "publish.audited": "the audits of a table hold, and main is not moved yet",
    "branch.copied": "data files without deletes are written, and main is not moved to a snapshot with them yet",
    "branch.between": "main of a table is moved, that of the next table of its group is not",
    "branch.before": "the change of a branch is prepared, not sent",
    "branch.landed": "the change of a branch has landed, its answer is not used yet",
    "outbox.before": "dead letters are written to their topic, the transaction is not committed",
    "outbox.after": "the transaction is committed, its answer is not used yet",
}

EXIT_CODES: tuple[tuple[str, str], ...] = (
    ("0", "done, or stopped on request"),
    ("1", "failed, or a service does not answer"),
    ("2", "the pipeline file or the arguments are wrong"),
    ("3", "another run of this pipeline has taken over"),
    (
        "4",
        "a table stopped (`run`), is unhealthy (`status`), or would be changed (`plan`, `adopt`, `release`);"
        " a record failed (`try`), a case is not as expected (`test`), a table differs from its topic (`verify`) or is not"
        " published (`publish`, `watermark`), or a setting was not carried over (`import`)",
    ),
    ("130", "ended by a second Ctrl-C"),
    ("141", "the reader of standard output has closed it, as `head` does"),
)

ENVIRONMENT: dict[str, str] = {
    "FRAZIL_CACHE": "The folder of jars and other files that can be fetched again; by default `frazil` in the user's"
    " cache folder.",
    "FRAZIL_ENV": "The [environment](../guides/environments.md) of the pipeline file, where `--env` names none.",
    "FRAZIL_FAILPOINTS": "For tests: makes the process die, stall or fail at a [failpoint](failpoints.md).",
    "FRAZIL_IVY_SETTINGS": "An Ivy settings file that names another repository to fetch the jars from.",
    "FRAZIL_MIN_ORPHAN_AGE": "For tests: the lower limit of `maintenance.orphans.age`, instead of 24 hours.",
    "FRAZIL_PYTHON": "Set by Frazil for its executors on a cluster: the Python version of the shipped packages.",
    "FRAZIL_RECORD_CLASSES": "Set by Frazil for its JVM: makes the JVM record the classes that the next start maps.",
}
