"""The settings of tables under which the topics of the corpus are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.corpus.topics import TOPIC, Stream

TABLE = "n.t"
FOLDER = "@FOLDER@"
"""Stands for the folder of a case, in settings that name a file."""
LABELS_FILE = f"{FOLDER}/labels.csv"
LABELS = "code,name,region\nRome,Roma,south\nOslo,Oslo,north\n"


@dataclass(frozen=True)
class Setting:
    """Settings of a table."""

    name: str
    table: Mapping[str, Any] = field(default_factory=dict)
    #: The keys that make a route of them; empty for a table.
    route: Mapping[str, Any] = field(default_factory=dict)
    #: Settings of a second table that the same records feed; empty for none.
    beside: Mapping[str, Any] = field(default_factory=dict)

    def file(self, stream: Stream) -> dict[str, Any]:
        """Returns the tables or routes of the pipeline file that reads a stream."""
        table = _written(stream, self.table)
        if self.route:
            return {"routes": [{**table, **self.route}]}
        return {"tables": {TABLE: table, **({"n.beside": _written(stream, self.beside)} if self.beside else {})}}


def _written(stream: Stream, settings: Mapping[str, Any]) -> dict[str, Any]:
    given = {"topic": TOPIC, **stream.settings, **settings}
    if given.get("mode") != "upsert":
        given.pop("key_columns", None)
    metadata = given.get("metadata", [])
    if isinstance(metadata, list):
        given["metadata"] = {name: f"_{name}" for name in ("partition", "offset", *metadata)}
    if "columns" in given:
        columns = given["columns"].items()
        given["columns"] = {name: "string" if name in stream.texts else one for name, one in columns}
    given.setdefault("dead_letters", {"stop_above": "100%"})
    return given


_TYPES: Mapping[str, Any] = {
    "id": "long",
    "amount": "decimal(12,2)",
    "createdAt": "timestamptz",
    "day": "date",
    "attributes": "map<string,string>",
}
_NARROW: Mapping[str, Any] = {**_TYPES, "quantity": "int", "price": "float", "place": "struct<x: int>"}
_FROZEN: Mapping[str, Any] = {
    **_TYPES,
    **dict.fromkeys(("kind", "email", "phone", "note"), "string"),
    "quantity": "int",
    "price": "double",
    "paid": "boolean",
    "place": "struct<x: int, label: string>",
    "tags": "list<string>",
    "items": "list<struct<x: int, label: string>>",
    "data": "binary",
}
_KEYED: Mapping[str, Any] = {"mode": "upsert", "key": {"format": "json"}, "key_columns": ["id"]}
_TYPED: Mapping[str, Any] = {"columns": _TYPES}
_PROTECT: Mapping[str, Any] = {
    "email": "hash",
    "phone": {"action": "mask", "keep": 2},
    "note": "tokenize",
    "place.label": {"action": "constant", "value": "somewhere"},
    "price": "null",
    "data": "drop",
    "day": {"action": "truncate", "length": 4},
    "/^attr/": "hash",
    "_key": "hash",
    "_headers.trace": "hash",
}
_PROTECTED: Mapping[str, Any] = {"protect": _PROTECT, "protect_key": "${env:PROTECT_KEY}"}
APPEND = (
    Setting("plain"),
    Setting("declared", _TYPED),
    Setting("drop", {**_TYPED, "unknown_fields": "drop"}),
    Setting("rescue_unknown", {**_TYPED, "unknown_fields": "rescue", "rescue": True}),
    Setting("rescue", {"columns": _NARROW, "rescue": True}),
    Setting("narrow", {"columns": _NARROW}),
    Setting("add_only", {"schema_evolution": "add_only"}),
    Setting("freeze", {"columns": _FROZEN, "schema_evolution": "freeze"}),
    Setting("freeze_rescue", {**_TYPED, "schema_evolution": "freeze", "rescue": True}),
    Setting("flatten_snake", {**_TYPED, "flatten": True, "column_case": "snake"}),
    Setting("flatten_depth", {"flatten": {"separator": "__", "depth": 1}, "column_case": "lower"}),
    Setting(
        "camel_include", {"column_case": "camel", "include": ["id", "place.*", "items", "created_at", "createdAt"]}
    ),
    Setting("exclude", {"exclude": ["place.label", "items.element.x", "attributes", "email"]}),
    Setting(
        "fields",
        {
            "columns": {
                "total": {"type": "string", "field": "phone"},
                "city": {"type": "string", "field": "place.label"},
                "region": {"type": "string", "constant": "eu"},
                "trace": {"type": "string", "header": "trace"},
                "count": {"type": "int", "header": "count"},
                "context": {"type": "struct<user: string>", "header": "context", "value": {"format": "json"}},
            },
            "rescue": True,
        },
    ),
    Setting(
        "coerce",
        {
            "columns": {
                name: {"type": kind, "coerce": True}
                for name, kind in {
                    "quantity": "string",
                    "paid": "string",
                    "place": "string",
                    "tags": "list<string>",
                    "attributes": "map<string,string>",
                    "note": "string",
                }.items()
            }
        },
    ),
    Setting(
        "zones", {"columns": {"createdAt": {"type": "timestamp", "zone": "Europe/Berlin"}}, "unknown_fields": "drop"}
    ),
    Setting("numbers", {"numbers": "decimal(18,4)", "infer": {"timestamps": True}}),
    Setting("doubles", {"numbers": "double"}),
    Setting("metadata", {"metadata": ["topic", "timestamp", "headers", "key"], "key": {"format": "text"}}),
    Setting("json_keys", {"metadata": ["key"], "key": {"format": "json"}}),
    Setting("partitioned", {**_TYPED, "partition_by": ["kind", "month(createdAt)", "bucket(id, 3)"]}),
    Setting(
        "sorted", {**_TYPED, "sort_by": ["kind desc nulls last", "amount"], "partition_by": ["truncate(email, 5)"]}
    ),
    Setting("stop", {"on_bad_record": "stop"}),
    Setting("skip", {"on_bad_record": "skip"}),
    Setting("share_of_bad", {"columns": _NARROW, "dead_letters": {"stop_above": "5%"}}),
    Setting("tombstone_rows", {"tombstones": "row"}),
    Setting("tombstones_ignored", {"tombstones": "ignore"}),
    Setting("record_size", {"limits": {"record_size": "300B"}}),
    Setting("format_3", {"format_version": 3, "properties": {"write.parquet.compression-codec": "gzip"}}),
    Setting("start", {"start": {"0": 40, "1": 7}}),
    Setting("protect", {**_PROTECTED, "metadata": ["key", "headers"]}),
    Setting("protect_rescue", {**_PROTECTED, "columns": _NARROW, "rescue": True}),
    Setting("where", {"where": "kind = 'order' and id > 3"}),
    Setting(
        "steps",
        {
            "where": "kind <> 'visit'",
            "rename": {"email": "mail", "place.label": "city"},
            "drop_fields": ["phone", "items"],
            "cast": {"quantity": "string", "paid": "string"},
            "add_fields": {"origin": "web", "read_from": "_topic"},
            "filter": "price > 2000",
        },
    ),
    Setting(
        "select",
        {
            "select": "select id, lower(email) as mail, cast(note as int) as number, place.label as city, _timestamp as at"
            " from records where kind in ('order', 'refund')"
        },
    ),
    Setting("select_null", {"select": "select id, cast(note as int) as number from records", "on_error": "null"}),
    Setting("select_all", {"select": "select *, quantity * 2 as twice, _offset as place_in_log from records"}),
    Setting("explode", {"select": "select id, tag from (select id, explode(tags) as tag from records)"}),
    Setting(
        "expect",
        {
            "expect": {
                "has_mail": "email is not null",
                "paid": {"that": "paid is not null", "else": "drop"},
                "few": {"that": "quantity < 45", "else": "dead_letter"},
                "some": {"that": "note is not null", "at_most": "50%"},
                "enough": {"min_rows": 500},
            }
        },
    ),
    Setting("expect_stop", {"expect": {"first": {"that": "id < 148", "else": "stop"}}}),
    Setting(
        "lookup",
        {"lookup": {"label": {"file": LABELS_FILE, "on": "place.label = code", "take": ["name", "region"]}}},
    ),
    Setting(
        "lookup_dead_letter",
        {
            "lookup": {
                "label": {
                    "file": LABELS_FILE,
                    "on": "place.label = code",
                    "take": ["name"],
                    "on_miss": "dead_letter",
                }
            },
            "select": "select id, label.name as name from records",
            **_PROTECTED,
            "protect": {"email": "hash"},
        },
    ),
    Setting("upsert", _KEYED),
    Setting("upsert_typed", {**_KEYED, **_TYPED, "rescue": True}),
    Setting("upsert_record_key", {"mode": "upsert", "key": {"format": "json"}}),
    Setting("upsert_whole_key", {"mode": "upsert", "key": {"format": "text"}}),
    Setting(
        "upsert_format_2",
        {**_KEYED, **_TYPED, "format_version": 2, "partition_by": ["bucket(id, 3)"], "sort_by": ["id"]},
    ),
    Setting(
        "upsert_soft",
        {**_KEYED, "deletes": "soft", "order_by": "_timestamp", "metadata": ["timestamp", "deleted", "deleted_at"]},
    ),
    Setting(
        "upsert_ordered", {**_KEYED, "order_by": "quantity", "columns": {"quantity": "long"}, "tombstones": "ignore"}
    ),
    Setting("upsert_tombstones", {**_KEYED, "tombstones": "dead_letter"}),
    Setting("upsert_where", {**_KEYED, "where": "paid", "rename": {"email": "mail"}}),
    Setting(
        "upsert_select", {**_KEYED, "select": "select id, upper(kind) as kind, quantity from records where id > 5"}
    ),
    Setting(
        "upsert_expect",
        {**_KEYED, "expect": {"few": {"that": "quantity < 45", "else": "dead_letter"}, "paid": {"that": "paid"}}},
    ),
    Setting(
        "upsert_protect",
        {**_KEYED, "protect": {"id": "hash", "email": "mask", "note": "null"}, "protect_key": "${env:PROTECT_KEY}"},
    ),
    Setting("two_tables", {"where": "kind = 'order'"}, beside={"columns": {"id": "long"}, "unknown_fields": "rescue"}),
    Setting("route", {}, {"by": "kind", "to": "n.${kind}", "rest": "n.rest"}),
    Setting("route_header", {"flatten": True}, {"by": "header.kind", "to": "n.${header.kind}", "rest": "n.rest"}),
    Setting("route_limit", _TYPED, {"by": "place.label", "to": "n.l_${place.label}", "rest": "n.rest", "limit": 1}),
    Setting("route_upsert", {**_KEYED, "tombstones": "ignore"}, {"by": "kind", "to": "n.${kind}", "rest": "n.rest"}),
)
"""Of records without an envelope."""
_UPSERT: Mapping[str, Any] = {"mode": "upsert"}
_CHANGE_TYPES: Mapping[str, Any] = {"id": "long", "amount": "decimal(12,2)", "changedAt": "timestamptz(ms)"}
_CHANGE_FROZEN: Mapping[str, Any] = {
    **_CHANGE_TYPES,
    **dict.fromkeys(("kind", "note", "big"), "string"),
    "quantity": "long",
    "place": "struct<x: int, label: string>",
    "tags": "list<string>",
}
CHANGES = (
    Setting("append"),
    Setting("append_typed", {"columns": _CHANGE_TYPES, "unknown_fields": "rescue", "rescue": True}),
    Setting("append_steps", {"where": "kind = 'order'", "rename": {"note": "text"}, "add_fields": {"origin": "web"}}),
    Setting("log", {"changelog": True}),
    Setting("log_flat", {"changelog": True, "flatten": True, "column_case": "snake", "columns": _CHANGE_TYPES}),
    Setting(
        "log_query", {"changelog": True, "select": "select id, upper(kind) as kind, amount from records where id > 5"}
    ),
    Setting("log_protect", {"changelog": True, "protect": {"note": "hash"}, "protect_key": "${env:PROTECT_KEY}"}),
    Setting("upsert", _UPSERT),
    Setting("upsert_keyed", {**_UPSERT, "key_columns": ["id"], "columns": _CHANGE_TYPES, "rescue": True}),
    Setting("upsert_other_key", {**_UPSERT, "key_columns": ["id", "kind"]}),
    Setting("upsert_format_2", {**_UPSERT, "format_version": 2, "sort_by": ["id"]}),
    Setting("upsert_partitioned", {**_UPSERT, "partition_by": ["bucket(id, 3)", "kind"]}),
    Setting("upsert_flat", {**_UPSERT, "flatten": True, "column_case": "lower"}),
    Setting("upsert_narrow", {**_UPSERT, "columns": {"id": "long", "note": "long", "place": "struct<x: int>"}}),
    Setting(
        "upsert_freeze", {**_UPSERT, "key_columns": ["id"], "columns": _CHANGE_FROZEN, "schema_evolution": "freeze"}
    ),
    Setting("upsert_drop", {**_UPSERT, "columns": _CHANGE_TYPES, "unknown_fields": "drop"}),
    Setting("soft", {**_UPSERT, "deletes": "soft", "metadata": ["deleted", "deleted_at", "op"]}),
    Setting("upsert_ordered", {**_UPSERT, "order_by": "quantity", "columns": {"quantity": "long"}}),
    Setting("upsert_dead_tombstones", {**_UPSERT, "tombstones": "dead_letter"}),
    Setting("upsert_no_tombstones", {**_UPSERT, "tombstones": "ignore"}),
    Setting("upsert_where", {**_UPSERT, "where": "kind <> 'visit'", "drop_fields": ["tags"]}),
    Setting("upsert_select", {**_UPSERT, "select": "select id, upper(kind) as kind, length(big) as size from records"}),
    Setting(
        "upsert_expect",
        {
            **_UPSERT,
            "expect": {
                "few": {"that": "quantity < 18", "else": "dead_letter"},
                "large": {"that": "big <> 'large 7'", "else": "drop"},
                "kind": "kind is not null",
            },
        },
    ),
    Setting(
        "upsert_protect",
        {**_UPSERT, "protect": {"id": "hash", "note": "mask", "big": "hash"}, "protect_key": "${env:PROTECT_KEY}"},
    ),
    Setting(
        "upsert_lookup",
        {
            **_UPSERT,
            "lookup": {
                "label": {"file": LABELS_FILE, "on": "place.label = code", "take": ["name"], "on_miss": "drop"},
            },
        },
    ),
    Setting("two_tables", _UPSERT, beside={"changelog": True, "on_bad_record": "skip"}),
    Setting("skip", {**_UPSERT, "on_bad_record": "skip"}),
    Setting("stop", {**_UPSERT, "on_bad_record": "stop"}),
)
"""Of records in an envelope of changes."""
SOURCED = (
    Setting(
        "log_metadata",
        {
            "changelog": True,
            "metadata": [
                "timestamp",
                "transaction_id",
                "total_order",
                "collection_order",
                "position",
                "source_order",
                "source_database",
                "source_schema",
                "source_table",
            ],
        },
    ),
    Setting("upsert_source_order", {**_UPSERT, "order_by": "_source_order", "metadata": ["source_order"]}),
    Setting("atomic", {**_UPSERT, "atomic": "transaction"}),
    Setting("atomic_log", {"changelog": True, "atomic": "transaction"}),
    Setting(
        "route_table",
        _UPSERT,
        {"by": "source.table", "to": "n.${source.db}_${source.table}", "rest": "n.rest"},
    ),
)
"""Of changes in Debezium's envelope with the place in the log of the source."""
EVENTS = (
    Setting("append"),
    Setting("typed", {"columns": {"amount": "decimal(12,2)"}, "unknown_fields": "rescue", "rescue": True}),
    Setting("where", {"where": "kind = 'order'"}),
    Setting("protect", {"protect": {"id": "hash"}, "protect_key": "${env:PROTECT_KEY}"}),
    Setting("upsert", {"mode": "upsert", "key": {"format": "raw"}, "key_columns": ["id"]}),
)
"""Of events."""
PLAIN = (
    Setting("append"),
    Setting("metadata", {"metadata": ["timestamp", "key", "headers"], "tombstones": "row"}),
    Setting("protect", {"protect": {"_key": "hash", "/./": "mask"}, "protect_key": "${env:PROTECT_KEY}"}),
    Setting("record_size", {"limits": {"record_size": "1KiB"}, "on_bad_record": "skip"}),
    Setting("upsert", {"mode": "upsert"}),
)
"""Of values that are text or bytes."""
ODD = (
    Setting("inferred"),
    Setting(
        "declared",
        {
            "columns": {
                "id": "long",
                "text": "string",
                "amount": "double",
                "where": "struct<city: string, zip: long>",
                "tags": "list<string>",
            }
        },
    ),
    Setting("rescue", {"rescue": True}),
    Setting("upsert", {"mode": "upsert", "key": {"format": "json"}}),
    Setting("where", {"where": "id > 3"}),
    Setting("skip", {"on_bad_record": "skip"}),
)
"""Of values that nobody should have produced."""
WIDE = (
    Setting("inferred", {"numbers": "double"}),
    Setting("limit", {"limits": {"columns": 200}}),
    Setting("rescue", {"columns": {"id": "long"}, "unknown_fields": "rescue"}),
    Setting("flatten", {"flatten": True, "column_case": "camel"}),
    Setting("select", {"select": "select id, nested from records"}),
)
"""Of records with very many fields."""
