"""Every key that a table may have; see `vocabulary`."""

from __future__ import annotations

from collections.abc import Mapping

from frazil.spec.models import METADATA_COLUMNS
from frazil.spec.vocabulary import (
    COMMIT,
    PATHS,
    PIPELINE,
    SELECTORS,
    STRINGS,
    TEXT,
    TOPIC,
    TYPE_WORD,
    VALUE,
    JsonSchema,
    Setting,
)

_COUNT: JsonSchema = {"type": "integer", "minimum": 0}
_OFFSETS: JsonSchema = {
    "type": "object",
    "minProperties": 1,
    "propertyNames": {"pattern": "^[0-9]+$"},
    "additionalProperties": _COUNT,
}
_OFFSETS_OF_TOPICS: JsonSchema = {"type": "object", "minProperties": 1, "additionalProperties": _OFFSETS}
_START: JsonSchema = {
    "anyOf": [
        {"enum": ["earliest", "latest"]},
        {"type": "string", "pattern": "^[0-9]{4}-?[0-9]{2}-?[0-9]{2}", "examples": ["2026-01-31T00:00:00Z"]},
        {"type": "integer", "minimum": 0, "description": "Milliseconds since the epoch."},
        {**_OFFSETS, "description": "Partition to first offset, of a table with one topic."},
        {**_OFFSETS_OF_TOPICS, "description": "Topic to partition to first offset."},
    ]
}
_WORD: JsonSchema = {"anyOf": [TEXT, {"type": "integer"}]}
_WORDS: JsonSchema = {"type": "array", "items": _WORD, "minItems": 1}
_TERM: JsonSchema = {**TEXT, "examples": ["region", "day(_timestamp)", "bucket(user.id, 16)", "truncate(email, 5)"]}
_SORT: JsonSchema = {**TEXT, "examples": ["user.id", "ts desc", "hour(ts) asc nulls last"]}
_TERMS: JsonSchema = {"anyOf": [_TERM, {"type": "array", "items": _TERM, "uniqueItems": True}]}
_SORTS: JsonSchema = {"anyOf": [_SORT, {"type": "array", "items": _SORT, "uniqueItems": True}]}
_OPERATIONS: JsonSchema = {"anyOf": [*_WORD["anyOf"], _WORDS]}
_ENVELOPE: JsonSchema = {
    "anyOf": [{"enum": ["none", "debezium", "maxwell", "canal"]}, {"$ref": "#/$defs/envelope"}],
}
ENVELOPE: Mapping[str, Setting] = {
    "type": Setting("`debezium`, to write its settings beside it.", choices=("debezium",), default="debezium"),
    "unavailable_value": Setting(
        "What Debezium writes for a value that it was not given: its `unavailable.value.placeholder`.",
        TEXT,
        default="__debezium_unavailable_value",
    ),
    "operation": Setting("The field of the row that names the operation.", TEXT),
    "insert": Setting("Its values for an insert; c, i and insert unless written.", _OPERATIONS),
    "update": Setting("Its values for an update; u and update unless written.", _OPERATIONS),
    "delete": Setting("Its values for a delete; d and delete unless written.", _OPERATIONS),
}
ATOMIC: Mapping[str, Setting] = {
    "transaction_topic": Setting(
        "The topic to which Debezium writes when transactions begin and end, `<prefix>.transaction`.", TOPIC
    ),
}
INFER: Mapping[str, Setting] = {
    "timestamps": Setting(
        "Whether text that is always an ISO 8601 time becomes timestamptz, timestamp or date.",
        choices=(True, False),
        default=False,
    ),
}
OF_ONE_TABLE = ("topic", "topics", "start")
"""Settings that are no defaults for others."""

TABLE: Mapping[str, Setting] = {
    "topic": Setting("The topic that feeds the table.", TOPIC),
    "topics": Setting("The topics, or a /regular expression/, that feed the table.", SELECTORS),
    "start": Setting(
        "Where to begin without progress: earliest, latest, a timestamp, or offsets.", _START, default="earliest"
    ),
    "value": Setting("The records' values.", {"$ref": "#/$defs/value"}),
    "key": Setting("The records' keys.", {"$ref": "#/$defs/key"}),
    "partition_by": Setting(
        "How the table is partitioned: columns, or year, month, day, hour, bucket, truncate or void of one. An"
        " existing table keeps its partition spec unless this is written; `[]` is for none.",
        _TERMS,
    ),
    "sort_by": Setting(
        "How rows are sorted inside a file: terms as in `partition_by`, each with asc or desc, nulls first or last.",
        _SORTS,
    ),
    "schema_evolution": Setting(
        "What to do when records have other fields or types than the table.",
        choices=("evolve", "add_only", "freeze"),
        default="evolve",
    ),
    "on_bad_record": Setting(
        "What to do with a record that cannot become a row.",
        choices=("dead_letter", "stop", "skip"),
        default="dead_letter",
    ),
    "dead_letters": Setting("Where bad records go, and how many are too many.", {"$ref": "#/$defs/dead_letters"}),
    "limits": Setting("Limits of columns, partitions and record sizes.", {"$ref": "#/$defs/limits"}),
    "on_data_loss": Setting(
        "What to do when Kafka has deleted the record at the next offset.", choices=("stop", "skip"), default="stop"
    ),
    "columns": Setting(
        "Declared columns and overrides of inferred ones: name to type.",
        {"type": "object", "additionalProperties": {"anyOf": [TYPE_WORD, {"$ref": "#/$defs/column"}]}},
    ),
    "unknown_fields": Setting(
        "What happens to fields that `columns` does not name.",
        choices=("add", "drop", "rescue"),
        default="add",
    ),
    "numbers": Setting(
        "What numbers of JSON without a schema become where no column is declared: `as_seen` long, or double where a"
        " sample of the topic has a fraction; `double`; or `decimal(p,s)`.",
        {"type": "string", "pattern": r"^(as_seen|double|decimal\s*\(.*\))$", "examples": ["double", "decimal(18,4)"]},
        default="as_seen",
    ),
    "infer": Setting(
        "What fields of JSON without a schema may become where no column is declared.", {"$ref": "#/$defs/infer"}
    ),
    "rescue": Setting(
        "Whether values that do not fit their column go to the column _rescued.",
        choices=(True, False),
        default=False,
    ),
    "flatten": Setting(
        "Whether nested records become columns of their own: `user: {id: 1}` the column user_id. Lists and maps stay.",
        {"anyOf": [{"enum": [True, False]}, {"$ref": "#/$defs/flatten"}]},
        choices=(True, False),
        default=False,
    ),
    "column_case": Setting(
        "How columns, and members of structs in them, are named after fields: as they are, in small letters, as"
        " user_id, or as userId.",
        choices=("keep", "lower", "snake", "camel"),
        default="keep",
    ),
    "include": Setting("Paths of the fields to take, each with everything in it; all unless written.", PATHS),
    "exclude": Setting("Paths of the fields to leave out, each with everything in it.", PATHS),
    "metadata": Setting(
        "Metadata of a record besides its value, in columns _topic, _partition, _offset and so on, or in the columns"
        " that a mapping names.",
        {
            "anyOf": [
                {"type": "array", "items": {"enum": list(METADATA_COLUMNS)}, "uniqueItems": True},
                {
                    "type": "object",
                    "propertyNames": {"enum": list(METADATA_COLUMNS)},
                    "additionalProperties": {"type": "string"},
                },
            ]
        },
    ),
    "commit": Setting("When to commit and how large files should be.", {"$ref": "#/$defs/commit"}),
    "maintenance": Setting(
        "Table maintenance.", {"anyOf": [{"type": "boolean"}, {"$ref": "#/$defs/table_maintenance"}]}
    ),
    "envelope": Setting(
        "The envelope of change records: none, debezium, maxwell, canal, or a field that names the operation.",
        _ENVELOPE,
        choices=("none", "debezium", "maxwell", "canal"),
        default="none",
    ),
    "mode": Setting(
        "Whether records are appended (append) or replace rows by key (upsert).",
        choices=("append", "upsert"),
        default="append",
    ),
    "key_columns": Setting(
        "The columns that identify a row; by default the record key's, or those that Canal's messages name.", PATHS
    ),
    "order_by": Setting("The column that orders the changes of a key; by default partition and offset.", TEXT),
    "changelog": Setting(
        "Whether every change becomes a row, with the rows before and after it.", choices=(True, False), default=False
    ),
    "deletes": Setting(
        "Whether a deleted row is removed (hard), or kept with `_deleted` and `_deleted_at` (soft).",
        choices=("hard", "soft"),
        default="hard",
    ),
    "tombstones": Setting(
        "What happens to a record without a value (a tombstone): `delete` deletes the row of its key, `ignore` counts"
        " it only, `dead_letter` makes a dead letter, `row` a row with null in the columns of the value. Unless"
        " written `delete` for upsert; for append `dead_letter`, or `ignore` with an `envelope`.",
        choices=("delete", "ignore", "dead_letter", "row"),
    ),
    "atomic": Setting(
        "Whether a snapshot may show a part of a transaction of the source: `transaction` of a table of one topic, with"
        " Debezium's envelope.",
        {"anyOf": [{"enum": ["batch", "transaction"]}, {"$ref": "#/$defs/atomic"}]},
        choices=("batch", "transaction"),
        default="batch",
    ),
    "format_version": Setting(
        "Iceberg's format version of a new table; unless written 2 for append, 3 for upsert.",
        choices=(2, 3),
        default=2,
    ),
    "properties": Setting(
        "Iceberg's table properties, with Iceberg's names, of a new table; an existing table keeps its own.",
        STRINGS,
    ),
}
STRANGE_IN_TABLE: Mapping[str, str] = {
    **dict.fromkeys(PIPELINE, "write it at the top of the file"),
    **dict.fromkeys(COMMIT, "write it under `commit`"),
    **dict.fromkeys(VALUE, "write it under `value`, or under `key`"),
}
"""Keys of other places that are easily written into a table, and what to do about them."""
STRANGE_IN_DEFAULTS: Mapping[str, str] = {
    **STRANGE_IN_TABLE,
    **dict.fromkeys(OF_ONE_TABLE, "write it in each table: it is no default for others"),
}
STRANGE_AT_THE_TOP: Mapping[str, str] = {
    name: "write it in a table, or under `defaults`" for name in TABLE if name not in OF_ONE_TABLE
}
