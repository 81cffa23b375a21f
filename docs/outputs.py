"""The meaning of every key in the documents that commands print with `--output json`.

Where a document is a dataclass, the comments of its fields are the meanings. A test compares the keys with the documents.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from frazil.ingest.loop.leadership import LeadershipState
from frazil.maintenance.health import TableHealth
from frazil.ops.check import Finding
from frazil.ops.layouts import PlannedLayout
from frazil.ops.lineage import TableLineage
from frazil.ops.pipeline_status import (
    RECORDED,
    SHOWN,
    MaintenanceReport,
    PipelineReport,
    Process,
    TableCondition,
    VerificationReport,
)
from frazil.ops.plan import INNER, PlannedTable
from frazil.ops.seen_by_readers import FailedAudit, PublishReport
from frazil.stages.table import NOTES
from frazil.types import Resolved
from frazil_deadletters.documents import DeadLetterClass
from frazil_start.sizing import Size
from frazil_testing.compare import Verdict

Keys = Mapping[str, tuple[str, str]]
_WORDS = {bool: "boolean", int: "number", float: "number", str: "text"}
_COMMENTED = re.compile(r"((?:^ +#:.*\n)+)^ +(\w+):", re.MULTILINE)


@dataclass(frozen=True, eq=False)
class Document:
    """One kind of object. `title`: the command that prints it, and where in the document."""

    title: str
    about: str
    keys: Keys


def keys_of(*kinds: type, without: Collection[str] = ()) -> Keys:
    """Returns the keys of dataclasses whose fields they are, with their types and the comments above the fields."""
    keys: dict[str, tuple[str, str]] = {}
    for kind in kinds:
        comments = {name: comment for comment, name in _COMMENTED.findall(inspect.getsource(kind))}
        hints = get_type_hints(kind, include_extras=True)
        for name in [field.name for field in fields(kind) if field.name not in without]:
            keys[_key(name, hints[name])] = _type(hints[name]), " ".join(comments[name].replace("#:", " ").split())
    return keys


def _key(name: str, hint: Any) -> str:
    return next((part.alias for part in get_args(hint) if getattr(part, "alias", None)), name)


def _type(hint: Any) -> str:
    """Returns the type in words: those in `Annotated`, where there are some."""
    origin, parts = get_origin(hint), [part for part in get_args(hint) if part is not NoneType]
    if origin is Annotated:
        return next((part for part in parts[1:] if isinstance(part, str)), _type(parts[0]))
    if origin is tuple:
        return "list of objects" if is_dataclass(parts[0]) else f"list of {_type(parts[0])}s"
    if origin is Mapping:
        return f"object: name → {_type(parts[1])}"
    return _type(parts[0]) if parts else _WORDS.get(hint, "object")


_NOT_OF_WATERMARKS = (
    "branch", "state", "reason", "remedy", "failed_audits", "complete_to_ms", "candidate_id", "audited_ms",
)  # fmt: skip
_TELLING = keys_of(TableCondition, without=("state",))
STATUS = Document(
    "frazil status",
    "Printed even while Kafka, the catalog or the process does not answer: unknown values are null.",
    {
        "ok": ("boolean", "Whether everything is healthy; the exit code is 4 otherwise."),
        **keys_of(PipelineReport),
    },
)
PROCESS = Document("frazil status: process", "", keys_of(Process))
LEADERSHIP = Document(
    "frazil status: leadership", "From the last report of the process that runs here.", keys_of(LeadershipState)
)
TABLE = Document(
    "frazil status: tables.&lt;name&gt;",
    "Lag, rows and files are current; other values are from the process's last report.",
    keys_of(*SHOWN.values()),
)
LAST_UPSERT = Document(
    "frazil status: tables.&lt;name&gt;.last_upsert",
    "The last batch of changes of an upsert table, as the process reported it; null when there was none.",
    keys_of(Resolved),
)
MAINTENANCE = Document(
    "frazil status: tables.&lt;name&gt;.maintenance",
    inspect.getdoc(MaintenanceReport) or "",
    keys_of(MaintenanceReport),
)
VERIFICATION = Document(
    "frazil status: tables.&lt;name&gt;.verification",
    inspect.getdoc(VerificationReport) or "",
    keys_of(VerificationReport),
)
PUBLISHING = Document(
    "frazil status: tables.&lt;name&gt;.publishing",
    inspect.getdoc(PublishReport) or "",
    keys_of(PublishReport),
)
FAILED_AUDIT = Document(
    "frazil status: tables.&lt;name&gt;.publishing.failed_audits[]",
    "`frazil publish` prints the keys of `publishing`, with `pipeline` and `table`; with `--discard` the `snapshot_id` at"
    " which the branch begins again, and its next `offsets`.",
    keys_of(FailedAudit),
)
WATERMARK = Document(
    "frazil watermark",
    "The document also has `pipeline` and `table`.",
    {
        "complete_to": (
            "text",
            "The record timestamp up to which the table is complete for its readers, in ISO 8601; or null.",
        ),
        "complete_to_ms": ("number", "The same in milliseconds since the epoch."),
        **keys_of(PublishReport, without=_NOT_OF_WATERMARKS),
    },
)
RUN = Document(
    "frazil run: tables.&lt;name&gt;",
    "Printed when the run ends. The file `frazil-data/state/<pipeline>.json` has the same keys while the process runs.",
    keys_of(*RECORDED.values(), without=("maintenance", "verification", "publishing")),
)
PLAN = Document(
    "frazil plan: tables.&lt;name&gt;",
    "The document also has `pipeline`, `changes`, which is true when the exit code is 4, and `warnings` of the catalog's"
    " properties.",
    {**keys_of(PlannedTable, PlannedLayout, *NOTES, without=INNER), **_TELLING},
)
CHECK = Document(
    "frazil check: checks[]",
    "The document also has `ok` and `pipeline`; with `--offline`, `not_checked` lists the skipped checks; with"
    " `--show`, `settings` has each `key` of the file with its `value`, its place (`where`), and its `environment`"
    " and `variable`."
    " Checks of `frazil doctor` have `name`, `ok`, `found` and `remedy`.",
    keys_of(Finding),
)
LINEAGE = Document(
    "frazil lineage: tables.&lt;name&gt;",
    "The document also has `pipeline`.",
    keys_of(TableLineage, *NOTES, without=("name", "notes")),
)
INIT = Document(
    "frazil init",
    "",
    {
        "file": ("text", "The file that was written; null if it is only printed."),
        "pipeline_file": ("text", "The pipeline file."),
        "topics": (
            "list",
            "Each `topic` with the `settings` of its table (null if the topic was skipped), and the findings in its"
            " records (`seen`).",
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
        "records": ("number", "The total number of records that the replay has written."),
        "written_now": ("number", "The number of records that this command has written."),
        "consumer_group": ("text", "The consumer group with the progress; if it is deleted, the replay begins again."),
    },
)
IMPORT = Document(
    "frazil import",
    "The same for every tool.",
    {
        "pipeline_file": ("text", "The pipeline file."),
        "carried_over": ("list of texts", "The tool's settings that are in the pipeline file."),
        "not_carried_over": ("list", "The other settings, each with its `key`, the `reason` and the `remedy`."),
        "not_needed": ("list", "Settings that Frazil does not need, each with its `key` and the `reason`."),
        "notes": ("list of texts", "Further notes, such as a setting that the configuration lacks."),
    },
)
ADOPT = Document(
    "frazil adopt, frazil release: tables.&lt;name&gt;",
    "The document also has `pipeline`, and `applied`: whether the command was called with `--apply`.",
    {
        "action": ("text", "`adopt` or `release`; `none` where there is nothing to do; `refused`."),
        "place": ("text", "The source or the target of the offsets: a group, a checkpoint or a file."),
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
        "columns": ("list", "The table's columns, including new columns of the records, each with `name` and `type`."),
        "written": ("number", "Records that change the table."),
        "dropped": ("number", "Records that change nothing and are not bad records."),
        "failed": ("number", "Bad records; the exit code is 4 if there are any."),
        "records": ("list", "The records, in the order of their timestamps."),
    },
)
TEST = Document(
    "frazil test: cases[]",
    "The document also has `ok`, which is true when the exit code is 0.",
    {**keys_of(Verdict), "ok": ("boolean", "Whether everything is as expected, or was updated.")},
)
TRIED_RECORD = Document(
    "frazil try: records",
    "",
    {
        "topic": ("text", "The record's topic."),
        "partition": ("number", "Its partition."),
        "offset": ("number", "Its offset."),
        "timestamp": ("text", "Its timestamp in ISO 8601; null without one."),
        "table": ("text", "The table that the record belongs to, which a route may decide."),
        "outcome": ("text", "`written`, `dropped` or `failed`."),
        "input": (
            "list",
            "The fields of each row in the record, as a query sees them, with protected values; empty if the record"
            " has no fields, or cannot be read.",
        ),
        "output": (
            "list",
            "Each change of the table: `change` is `append`, `upsert`, `delete` or `truncate`; `row` has the row (for"
            " a delete its key), without values that do not change in the table.",
        ),
        "dropped": ("list of texts", "The settings that drop or ignore the record, such as `where`."),
        "error": ("object", "The `error_class`, `path` and `message` of a bad record; null otherwise."),
        "value": (
            "object",
            "The record's value as `text` or `base64`, if it cannot be read and the table protects no field; null"
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
            " done](../guides/maintain.md#what-is-done-and-when)).",
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
        **keys_of(TableHealth),
        "small_share": ("number", "The fraction of small files, 0 to 1."),
        "above_cap": ("list of texts", "Numbers so high that they slow readers down."),
    },
)
DEAD_LETTER_CLASS = Document(
    "frazil dead-letters list: tables.&lt;name&gt;.classes[]",
    "The table also has `dead_letter_table` (null when there is none) and `dead_letters`, the number of dead letters.",
    keys_of(DeadLetterClass),
)
DEAD_LETTER = Document(
    "frazil dead-letters show: tables.&lt;name&gt;[]",
    "An object with a key for each [column of dead letters](dead-letters.md): times as text in ISO 8601; bytes as an"
    " object with `text`, with `base64` if they are not UTF-8, or with `encrypted`, the id of their key; headers each"
    " with `key` (text) and `value` (bytes). `replay` prints per table the numbers of `replayed` and `remaining` dead"
    " letters; `drop` prints per table the number of `dead_letters` that it removed or would remove,"
    " and whether they are `dropped`.",
    {},
)
SIZE = Document(
    "frazil size",
    "",
    {
        **keys_of(Size),
        "load": ("object", "The load that the command estimates."),
        "prices": ("object", "The prices of the estimate."),
    },
)
DOCUMENTS = (
    STATUS, PROCESS, LEADERSHIP, TABLE, LAST_UPSERT, MAINTENANCE, VERIFICATION, PUBLISHING, FAILED_AUDIT, WATERMARK,
    RUN, PLAN, CHECK, SIZE, ADOPT, LINEAGE, INIT, REPLAY, IMPORT, TRY, TEST, TRIED_RECORD, MAINTAIN, ACTION, HEALTH,
    DEAD_LETTER_CLASS, DEAD_LETTER,
)  # fmt: skip
ABOUT = """\
With `--output json` every command prints one document, in one line; an error is [a document too](errors.md). Numbers of
bytes, milliseconds and seconds end in `_bytes`, `_ms` and `_s`. Commands without a section print:

- `frazil schema`: the JSON Schema itself
- `frazil topic set`, `unset` and `show`: the keys of each of `topics`
- `frazil dev broker`: its `bootstrap_servers`, `pid` and `directory`, once it listens
- `frazil demo`: its `tables` with the numbers of records sent and rows found, the result of a `query`, `catalog` and
  `warehouse`, and `ok`, which is true when all records arrived
- `frazil setup`: the number of `jars` for each use, the path of the `bundle` or null, and `slower`, the reason why starts
  will be slower than they could be, empty when all was compiled and recorded"""
