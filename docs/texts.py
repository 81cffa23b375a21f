"""The text of the generated pages of docs/reference around their tables."""

from __future__ import annotations

from collections.abc import Mapping

FORMS: Mapping[str, str] = {
    "start": "`earliest`, `latest`, a timestamp such as `2026-01-31T00:00:00Z` or in milliseconds, or offsets by partition",
}
"""Shapes of values, by key, whose JSON Schema reads badly."""
DEFAULTS: Mapping[str, str] = {"format_version": "`2`; `3` for upsert"}
"""Defaults, by key, that depend on other settings: JSON Schema has one of their values."""

PIPELINE_FILE = """\
The pipeline file is YAML in UTF-8. An unknown key is an error with its line and the nearest valid name. Durations and
sizes have a unit (`500ms`, `2s`, `5m`, `1h`; `64MiB`, `1GiB`). Values under `kafka`, `registry`, `catalog`, `spark`,
`http`, `telemetry` and `ha`, and `protect_key`, may refer to secrets as `${env:NAME}` or `${file:PATH}`
([secrets](../security/secrets.md)). Every other value may contain variables, `${env:NAME}`. `environments` has the
settings that differ in an environment ([environments](../guides/environments.md)).

`frazil schema` prints the JSON Schema from which this page is generated. Use it in your editor to validate the file."""

CLI = """\
Results are written to standard output, logs, notes and errors to standard error. With `--output json` standard output
contains only JSON documents, one per line, even when the command fails.

`frazil --env NAME COMMAND` (or the variable `FRAZIL_ENV`) and `frazil --set KEY=VALUE COMMAND` change the pipeline file as
the command reads it ([environments](../guides/environments.md)).

Each option can also be set with the environment variable in its row; the command line takes precedence. An error names
the problem, its place and the remedy; a stack trace is printed only with `--debug` ([errors](errors.md)).
`frazil --install-completion` makes bash, zsh or fish complete commands, options and the names of tables, `frazil
--show-completion` prints the script for that. `frazil --version` prints the version, with `--output json` as
`{"version": "…"}`.

On a terminal, a command that takes longer than two seconds shows its progress on standard error: the present step, its
duration and, if the total is known, the finished share. `NO_COLOR=1` switches colours off, `FORCE_COLOR=1` switches
them on even if standard output is not a terminal ([no-color.org](https://no-color.org))."""
SHARED_OPTIONS = """\
`COMMAND` in a variable stands for the name of the command: `FRAZIL_RUN_OUTPUT`, `FRAZIL_DEAD_LETTERS_LIST_OUTPUT`.
Variables without a command apply to every command: `FRAZIL_FILE`, `FRAZIL_OUTPUT`, `FRAZIL_DEBUG`, `FRAZIL_LOG_FORMAT`
and `FRAZIL_LOG_LEVEL`; a variable with a command takes precedence.

`--output`, `--debug`, `--log-format` and `--log-level` work before the command as well: `frazil --output json
status`."""
ERRORS = """\
Frazil has six errors, one for each reaction of the operator. Each error names the problem, its place and the remedy; the
table has the default texts."""
ERRORS_END = """\
The exit code is returned by a command that fails with the error. `frazil run` continues if possible: a `RecordError` or
`InvariantError` stops one table (exit code 4 at the end), a `ConflictError` or `UnavailableError` is retried.
[Troubleshooting](../troubleshoot/README.md) explains each message. All errors of a pipeline file are reported at once; in
JSON the first error has the other errors in `others`.

As text, on standard error:

```
error: unknown key `topik` in table `shop.page_views`
where: frazil.yaml:4
remedy: did you mean `topic`?
```

With `--output json`, on standard output:"""
PROGRESS = """\
The summary of every snapshot that a pipeline commits contains these keys, each as `frazil.<pipeline>.<key>`; the examples
are for a pipeline `shop`. To read the progress, go back from the newest snapshot of the main branch, or of the
table's [`branch`](../guides/publish.md), to the first snapshot
with the pipeline's `offsets`: snapshots of compactions and other writers have none."""
REPLAYS = """\
Replays and drops of [dead letters](../guides/dead-letters.md) commit snapshots without progress, with these keys:"""
PROGRESS_FIELDS = """\
## The ledger

The `ledger` of a commit holds sums over all commits up to it, so its length stays the same. The difference from the
ledger of the previous commit shows what one commit has read. `records` is the sum of `written`, `bad` and `dropped`;
`offsets` is at least `records`, as compaction and transactions leave gaps. Both are checked before each commit. Only
the first part of a value that is [abandoned](../guides/chunks.md#a-value-that-never-ends) is read, and counted, a
second time.

`record_digest` is the sum, modulo 2^64, of a hash of each record's topic, partition, offset and value. `row_digest` is
the sum of a hash of each row's values by field id. It stays the same when rows move to other files and when a column is
renamed, widened or added. The sums find accidents; they are not a signature. A topic that was deleted and recreated
begins a new ledger, and so does `frazil reset`. A table from before ledgers gets a ledger with its next commit, without
`rows`. Such a ledger, and a ledger after a reset, is `partial`: it does not count all rows of the table. A ledger keeps
the `hash_version` of its first commit. If the hashes of a version differ, its `frazil verify` reports this, and
compares offsets and numbers, but no digests. `frazil verify --ledger` [checks the ledgers](../guides/verify.md#levels).

## Fields of JSON records

The `fields` of a balance count the fields with a value (not null) of JSON records without an envelope. Fields of
objects inside a record are not counted. `read` is the sum of the other numbers, and each field is counted under one of
these keys:

| key | fields |
| --- | --- |
| `column` | fields with a column, even if the value was rescued because the column cannot hold it |
| `rescued` | fields without a column, whose value is in `_rescued` |
| `left_out` | fields that `include`, `exclude` or `unknown_fields: drop` excludes |
| `no_column` | fields without a column so far, because an empty object or list has no type |
| `bad` | fields of bad records |

Records of Avro, Protobuf and JSON Schema are not counted: their schema names the fields, and a field is handled in the
same way in all records of a schema."""
PROGRESS_END = """\
A table that Frazil has created or committed to has the property `frazil.<pipeline>.created` = `true`. It distinguishes
a table with lost progress from a table without progress. `frazil.<pipeline>.dead-letters` is the name of its
dead-letter table. A dead-letter table has `frazil.<pipeline>.replaying.<id>` during an unfinished replay, and
`frazil.<pipeline>.dead-letters-published`, the commit id whose dead letters are in their Kafka topic.
`frazil.<pipeline>.orphans-removed-at` is the time, in milliseconds, of the last search for orphan files; in a running
pipeline the first search is due a day after `frazil.<pipeline>.created-at`, the time at which the pipeline created the
table, or, for a table of another writer, after `frazil.<pipeline>.maintenance-started-at`, the time at which the
pipeline first maintained it. `frazil.<pipeline>.maintained-at` is the time of the last action of `frazil maintain`.

A table with a [`branch`](../guides/publish.md) has its progress there. `frazil.<pipeline>.published-snapshot` is the
snapshot to which main was moved, `published-at` the time of the move, `published-complete-to` the record timestamp up
to which the snapshot is complete, and `publish-id` a UUID that identifies the change after a lost response.
`published-from` is the snapshot of the branch whose rows main has in a separate snapshot, [without delete
files](../guides/publish-without-deletes.md). `frazil.<pipeline>.publish-held` is the reason why nothing is published by
schedule. A table of a [group](../guides/publish-together.md) has `published-generation`, the number of the publish to
which main belongs, and `published-plan`, the snapshots of all tables of the group in it, as JSON.

After a table's last record, table maintenance repeats the newest progress in a commit without files, unless the newest
snapshot contains it ([reason](../guides/maintain.md#other-writers)): with the same `commit-id`, without `skipped`,
`balance` and `lookups`, and with `frazil.<pipeline>.committed-at`, the time of the repeated commit in milliseconds.
Snapshots in which maintenance replaced files have `frazil.<pipeline>.maintenance-id`, a UUID that identifies a commit
after a lost response.

See also [how to query progress](../engines/query.md#progress) and [the commit
protocol](../../ARCHITECTURE.md#the-commit)."""
LOGS = """\
Log lines are written to standard error as `key=value`, or as one JSON document each with `--log-format json`:
`timestamp`, `level`, `event`, and the event's own keys. No line contains a secret of the pipeline file."""
STORES = """\
Data files are written by Spark tasks in Python, metadata by Iceberg's Java client in the driver. Java and Python
clients have different names for keys, encryption and addresses, and ignore names that they do not know. Frazil applies
these properties to both, or refuses them if tasks cannot obey them. The properties are under `catalog.properties`, or
come from a catalog with its configuration and its tables.

| treatment | meaning |
| --- | --- |
| honoured | has the same effect on the objects that tasks write and read |
| translated | tasks get the same effect by other means |
| ignored | has no effect on files |
| refused | is an error in the pipeline file; a table whose catalog returns it stops. The last column has the remedy |

Every other property is passed only to Iceberg's Java client, to open connections for the driver, to get credentials,
which Frazil sends to tasks, or to tune that client. `frazil check` names properties that Java's classes do not have,
with the nearest name. An unknown name that refers to encryption (`sse`, `crypt`, `kms`, `acl`) is refused, because
files would be written unencrypted. An empty value is refused too, except for keys and tags."""
STORES_HADOOP = """\
Tasks reach `hdfs:` with the settings that the driver's Hadoop has: `spark.hadoop.NAME` under `spark.conf`, and the
files of `HADOOP_CONF_DIR`. Files of an executor's own environment have no effect. If a setting differs from Hadoop's
default, the first matching row decides; a refused setting is an error of `frazil check`, and stops a table. Every other
setting applies only to the driver, and `check` reports such a setting of the pipeline file if it begins with `dfs.`:"""
STORES_TABLE = """\
These properties of a table (`properties` in the pipeline file, or set by another client) concern its store:"""
IMPORT = """\
The table lists how [`frazil import {tool}`](../migrate/{tool}.md) handles each setting. The first row that matches a
setting decides; `*` stands for any text. A setting that is not carried over, or is unknown, is reported with the reason
and what to do."""
DEAD_LETTERS = """\
The table `<table>__dead_letters`, or the table in `dead_letters: {table: …}`, has a row for each bad record. See [work
with dead letters](../guides/dead-letters.md).

| column | type | meaning |
|---|---|---|
| `topic` | string | the record's topic |
| `partition` | int | its partition |
| `offset` | long | its offset |
| `timestamp` | timestamptz | the record's timestamp; null outside the years 1 to 9999 |
| `timestamp_ms` | long | the timestamp in milliseconds if it is outside the years 1 to 9999; null otherwise |
| `key` | binary | as in Kafka; null if the record has none |
| `value` | binary | as in Kafka; null if the record has none (a tombstone) |
| `headers` | list of structs `key`, `value` | as in Kafka, in their order; a key may occur twice |
| `schema_id` | string | the record's schema id, if known |
| `error_class` | string | one of the classes below |
| `message` | string | the error message |
| `path` | string | the invalid field, with names joined by dots; null for the whole record |
| `retries` | int | the number of unsuccessful replays |
| `frazil_version` | string | the Frazil version that wrote the message |
| `held_at` | timestamptz | since when a record [waits](../guides/lookup.md#records-that-wait); only with `wait` |

A dead letter contains the first error of its record; there may be more.

If the table has [`protect`](../guides/protect.md#dead-letters), the key, the value and the values of headers are encrypted,
the message quotes no protected value, and the path has only names that the table knows."""
DEAD_LETTERS_CLASSES = """\
Frazil reports the remedy when a bad record [stops its table](../troubleshoot/bad-record.md). The remedy for classes without
one depends on the settings of the table. Installed packages may have [classes of their own](../contributing/format.md)."""
DEAD_LETTERS_QUOTES = """\
The messages of these classes quote no value that a table with `protect` protects, so they are stored as they are. The
messages of all other classes are replaced:"""
METRICS = """\
`/metrics` of the [HTTP service](../operate/http.md) has these metrics. Each metric has the label `pipeline`, metrics of
tables also `table`. Counters count the process's events and begin at 0. A metric of a table is absent while it is unknown.
If another process works on a table, a [standby](../operate/standby.md) has only `frazil_table_state` of it, so sums over
processes are right.
The usual metrics of Prometheus about the process, such as `process_resident_memory_bytes`, are included.

A table has about 45 series: 1,000 tables have 45,000. Histograms cover all tables together. `code` and `kind` have few
values: the classes of [errors](errors.md), of [dead letters](dead-letters.md#classes-of-error), and the kinds of
[ignored records](envelopes.md)."""
API = """\
The [HTTP service](../operate/http.md) answers these requests; `/openapi.json` describes them for programs. Parameters
are in the query: an unknown parameter is an error, and so is a body. A request returns the document that the
corresponding command prints with `--output json` ([its keys](output.md))."""
API_END = """\
A long POST is answered with 202, an `id` and the header `Location`; the work's `state` is `running`, `done` with its
`result`, or `failed` with its `problem`.

An error is `application/problem+json` (RFC 9457):

```json
{
  "type": "about:blank",
  "title": "Not Found",
  "status": 404,
  "detail": "the pipeline has no table `shop.orderz`",
  "message": "the pipeline has no table `shop.orderz`",
  "remedy": "did you mean `shop.orders`?",
  "where": "",
  "code": "UnknownTable"
}
```

| status | meaning |
| --- | --- |
| 400 | a parameter is wrong, or the table refuses the command |
| 401, 403 | no known token; a token that may only read, or a page of another site |
| 404, 405 | no such table, operation or path; no such method |
| 409 | another process works on the table, or has committed to it; no process could take over |
| 421 | the request names another host |
| 503 | the pipeline starts, or a service does not answer |"""
LIKE: Mapping[str, str] = {"defaults": "table", "route": "table", "table_maintenance": "maintenance"}
"""Sections whose keys are mostly those of another one, where the page has them once."""
SECTIONS: Mapping[str, tuple[str, str]] = {
    "": ("The file", "The keys at the top level."),
    "kafka": ("kafka", "All Kafka client properties are passed on; the following keys have a special meaning."),
    "registry": ("registry", ""),
    "auth": ("registry.auth", ""),
    "tls": ("registry.tls", ""),
    "catalog": ("catalog", ""),
    "spark": ("spark", ""),
    "http": ("http", "The HTTP service of `frazil run`; short forms: `true`, `false`."),
    "http_tokens": ("http.tokens", ""),
    "http_tls": ("http.tls", ""),
    "telemetry": (
        "telemetry",
        "Where `frazil run` sends metrics, traces and lineage ([how to](../operate/telemetry.md)); nothing by default.",
    ),
    "ha": ("ha", "How several processes of the pipeline choose who works; `ha: {}` elects by Kafka."),
    "publish": (
        "tables.&lt;name&gt;.publish",
        "When readers see the rows of a [`branch`](../guides/publish.md); `publish: {}` has the defaults, and no"
        " audits.",
    ),
    "tag": (
        "tables.&lt;name&gt;.tags.&lt;tag&gt;",
        "A [tag by calendar](../guides/publish.md#tags-by-calendar).",
    ),
    "verify": (
        "verify",
        "How some of the newest commits are [compared with the topics](../guides/verify.md); `verify: {}` has the defaults.",
    ),
    "commit": ("commit", "At the top level for all tables; in a table for that table."),
    "maintenance": (
        "maintenance",
        "The settings of [table maintenance](../guides/maintain.md), at the top level; short forms: `true`, `false`.",
    ),
    "table_maintenance": (
        "tables.&lt;name&gt;.maintenance",
        "All keys of [`maintenance`](#maintenance) except `cores` and `window`; missing keys are taken from the top"
        " level.",
    ),
    "route": (
        "routes",
        "A list; each entry has all settings of [a table](#tablesname) except `location`, for"
        " [its tables](../guides/route.md), and:",
    ),
    "snapshots": ("maintenance.snapshots", "Snapshots beyond either limit are expired."),
    "orphans": ("maintenance.orphans", ""),
    "defaults": (
        "defaults",
        "All settings of [a table](#tablesname) except `topic`, `topics`, `start` and `location`. They apply to all tables,"
        " under `tables` and `topics`, without the setting; a table's setting replaces the whole default."
        " A table with its own `mode: append` ignores `key_columns`, `order_by` and `deletes` in `defaults`.",
    ),
    "table": ("tables.&lt;name&gt;", "One table, with its topics in `topic` or `topics`."),
    "flatten": ("tables.&lt;name&gt;.flatten", "How nested records become columns; the short form is `true`."),
    "protect_rule": (
        "tables.&lt;name&gt;.protect.&lt;field&gt;",
        "The long form of a [rule](../guides/protect.md); the short form is the action alone.",
    ),
    "expectation": (
        "tables.&lt;name&gt;.expect.&lt;expectation&gt;",
        "The long form of an [expectation](../guides/expect.md), with `that`, `min_rows` or `max_age`; the short form is the"
        " condition alone.",
    ),
    "lookup": (
        "tables.&lt;name&gt;.lookup.&lt;column&gt;",
        "A [reference table](../guides/lookup.md) that records are joined with.",
    ),
    "envelope": (
        "tables.&lt;name&gt;.envelope",
        "The long form: `operation` names the operation field of the row; `type: debezium` has settings.",
    ),
    "atomic": (
        "tables.&lt;name&gt;.atomic",
        "The long form of `transaction` ([how](../guides/transactions.md#whole-transactions)).",
    ),
    "late": (
        "tables.&lt;name&gt;.late",
        "Records that are late for the windows of a query ([how](../guides/aggregate.md#late-records)).",
    ),
    "dedupe": ("tables.&lt;name&gt;.dedupe", "Duplicates that an append table drops ([how](../guides/dedupe.md))."),
    "infer": ("tables.&lt;name&gt;.infer", "Types that are inferred from [text](../guides/declare-columns.md#times)."),
    "dead_letters": ("tables.&lt;name&gt;.dead_letters", ""),
    "limits": ("tables.&lt;name&gt;.limits", ""),
    "value": ("tables.&lt;name&gt;.value", ""),
    "key": ("tables.&lt;name&gt;.key", ""),
    "column": (
        "tables.&lt;name&gt;.columns.&lt;column&gt;",
        "The long form of a column; the short form is its type.",
    ),
}
