"""How a table takes changes: the envelope of its records, mode, keys and order, deletes, tombstones and transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from frazil.spec.document import Scalar, Section
from frazil.spec.forms import read_paths
from frazil.spec.keys import Fields
from frazil.spec.models import METADATA_COLUMNS, AtomicSpec, EnvelopeSpec, MetadataField, TopicSelector

_FORMATS: Mapping[str, tuple[str, ...]] = {
    "debezium": ("json", "avro", "protobuf", "json_schema"),
    "maxwell": ("json",),
    "canal": ("json",),
    "operation": ("json", "avro", "protobuf", "json_schema"),
}
_OPERATIONS = ("insert", "update", "delete")
_OF_CHANGES = ("op", "image")
_OF_DELETES = ("deleted", "deleted_at")
_OF_PLACES = ("source_database", "source_schema", "source_table")
_OF_SOURCES: Mapping[str, tuple[str, ...]] = {
    "debezium": (
        "source_ts", "connector_ts", "transaction_id", "total_order", "collection_order", "position", "source_order",
        *_OF_PLACES, "unavailable",
    ),
    "maxwell": ("source_ts", "transaction_id", *_OF_PLACES),
    "canal": ("source_ts", "connector_ts", *_OF_PLACES, "unavailable"),
    "operation": (),
}  # fmt: skip
_OF_LOGS: Mapping[str, tuple[str, ...]] = {
    "debezium": ("op", "image", "source_ts", "connector_ts", "unavailable"),
    "maxwell": ("op", "image", "source_ts"),
    "canal": ("op", "image", "source_ts", "connector_ts", "unavailable"),
    "operation": ("op", "image"),
}
"""The metadata columns that a changelog table always has."""
_OF_ANY = frozenset((*_OF_CHANGES, *_OF_DELETES, *(name for names in _OF_SOURCES.values() for name in names)))
_UPSERT_VERSION = 3
_OF_TOMBSTONES: tuple[MetadataField, ...] = ("timestamp", "offset", "partition")
_NO_ORDERS: Mapping[str, str] = {
    "total_order": "counts the changes of one transaction and restarts with the next",
    "collection_order": "counts the changes of one transaction and restarts with the next",
    "transaction_id": "names a transaction and does not order transactions",
}
"""Metadata of transactions that does not order changes, and the reason."""


def read_change_settings(
    fields: Fields, mode: str, value_format: str, metadata: dict[MetadataField, str]
) -> dict[str, Any]:
    """The settings `envelope`, `changelog`, `deletes` and `tombstones`, and `metadata` with the columns that they add."""
    envelope = _read_envelope(fields)
    is_log, deletes = bool(fields.choice("changelog")), fields.choice("deletes")
    kind = envelope.kind if envelope else "none"
    _check_envelope(fields, kind, mode, value_format)
    if deletes == "soft" and mode != "upsert":
        message = "`deletes: soft` keeps rows that are deleted, and a table with `mode: append` deletes none"
        fields.refuse_key("deletes", message, "write `mode: upsert`, or remove it")
    _check_metadata(fields, kind, deletes == "soft", metadata)
    added: tuple[str, ...] = ()
    if is_log:
        added = _OF_LOGS.get(kind, ())
    elif mode == "append" and "unavailable" in _OF_SOURCES.get(kind, ()):
        added = ("unavailable",)
    if deletes == "soft":
        added = (*added, *_OF_DELETES)
    brought = {cast(MetadataField, name): METADATA_COLUMNS[cast(MetadataField, name)] for name in added}
    return {
        "envelope": envelope,
        "changelog": is_log,
        "deletes": deletes,
        "tombstones": _read_tombstones(fields, mode, kind),
        "metadata": metadata | {name: column for name, column in brought.items() if name not in metadata},
    }


def _read_tombstones(fields: Fields, mode: str, kind: str) -> str:
    """The word, empty where the file has none; refused where the table has no use for it."""
    entry = fields.get("tombstones")
    if entry is None:
        return ""
    word = str(fields.choice("tombstones"))
    if not isinstance(entry.value, Scalar) or entry.value.text != word:
        return ""  # Its word has been refused already.
    if word == "delete" and mode != "upsert":
        message = "`tombstones: delete` deletes the row of a key, and a table with `mode: append` deletes none"
        remedy = "write `tombstones: ignore`, `dead_letter` or `row`, or `mode: upsert`"
        fields.refuse_key("tombstones", message, remedy)
    if word == "row" and (mode == "upsert" or kind != "none"):
        what = "the table has `mode: upsert`" if mode == "upsert" else "the table has an `envelope`"
        message = f"`tombstones: row` is for records that are appended as they are, and {what}"
        others = "`delete`, `ignore` or `dead_letter`" if mode == "upsert" else "`ignore` or `dead_letter`"
        fields.refuse_key("tombstones", message, f"write one of: {others}")
    return word


def _read_envelope(fields: Fields) -> EnvelopeSpec | None:
    entry = fields.get("envelope")
    if entry is None or not isinstance(entry.value, Section):
        kind = fields.choice("envelope")
        return None if kind == "none" else EnvelopeSpec.model_validate({"kind": kind})
    inner = fields.section("envelope", EnvelopeSpec)
    found = inner.values()
    if inner.get("type") is not None:
        for key in filter(inner.get, ("operation", *_OPERATIONS)):
            message = f"`envelope.{key}` is for rows with a field of their own that names the operation"
            inner.refuse_key(key, message, "remove it, or remove `type`")
        return EnvelopeSpec(**found)
    if inner.get("operation") is None:
        message = "`envelope` names no field with the operation"
        fields.refuse_key("envelope", message, "write `operation: FIELD`, or `envelope: debezium`")
        return None
    if inner.get("unavailable_value") is not None:
        message = "`envelope.unavailable_value` is for Debezium's envelope"
        inner.refuse_key("unavailable_value", message, "remove it, or write `type: debezium`")
    envelope = EnvelopeSpec(**found, kind="operation")
    _check_words(fields, envelope)
    return envelope


def _check_words(fields: Fields, envelope: EnvelopeSpec) -> None:
    """Notes a value of the operation's field that stands for two operations."""
    seen: dict[str, str] = {}
    for operation in _OPERATIONS:
        for word in getattr(envelope, operation):
            if seen.setdefault(word, operation) != operation:
                message = f"`{word}` stands for two operations in `envelope`: {seen[word]} and {operation}"
                fields.refuse_key("envelope", message, "keep one of them")


def _check_envelope(fields: Fields, kind: str, mode: str, value_format: str) -> None:
    """Notes an envelope that is not read from the format of the values, and a changelog table without one."""
    if fields.get("envelope") is not None and kind != "none" and value_format not in _FORMATS[kind]:
        shown = "a field for the operation" if kind == "operation" else kind
        message = f"`envelope`: {shown} is not read from the format {value_format}"
        remedy = f"write `value: {{format: …}}` with one of: {', '.join(_FORMATS[kind])}"
        fields.refuse_key("envelope", message, remedy)
    is_log = fields.get("changelog") is not None and fields.choice("changelog")
    if is_log and kind == "none":
        message = "`changelog: true` is for records that wrap changes, and the table has no `envelope`"
        fields.refuse_key("changelog", message, "write `envelope: debezium`, or remove it")
    if is_log and mode == "upsert":
        message = "`changelog: true` appends every change, and the table has `mode: upsert`"
        fields.refuse_key("changelog", message, "give the changelog a table of its own; both may read one topic")


def _check_metadata(fields: Fields, kind: str, is_marking: bool, metadata: Mapping[MetadataField, str]) -> None:
    known = {*_OF_CHANGES, *_OF_SOURCES[kind]} if kind != "none" else set()
    for name in metadata:
        if name not in _OF_ANY or name in known or (name in _OF_DELETES and is_marking):
            continue
        if name in _OF_DELETES:
            message, remedy = f"`{name}` in `metadata` is for deleted rows that are kept", "`deletes: soft`"
        else:
            message, remedy = f"`{name}` in `metadata` needs an envelope that the table does not have", "`envelope`"
        fields.refuse_key("metadata", message, f"write {remedy}, or take it out of `metadata`")


def read_changes(fields: Fields, mode: str, key_format: str, wrapped: Mapping[str, Any]) -> dict[str, Any]:
    """The settings `mode`, `key_columns` and `order_by`, with the format version and the metadata columns that they bring
    about. wrapped: the settings of `read_change_settings`.
    """
    metadata: Mapping[MetadataField, str] = wrapped["metadata"]
    version, has_envelope = fields.choice("format_version"), wrapped["envelope"] is not None
    order_by = fields.text("order_by")
    paths = read_paths(fields, "key_columns")
    if mode != "upsert":
        for key in ("key_columns", "order_by"):
            if fields.get(key) is not None:
                message = f"`{key}` has no effect with `mode: append`"
                fields.refuse_key(key, message, "write `mode: upsert`, or remove it")
    else:
        version = version if fields.get("format_version") is not None else _UPSERT_VERSION
        if not paths and key_format == "text" and has_envelope:
            what = "rows in an envelope are found by the fields of the record's key"
            remedy = "write the format that the keys have, or name the `key_columns`"
            fields.refuse_key("key", f"`key: {{format: text}}` has no fields, and {what}", remedy)
        if not paths and key_format in ("raw", "text") and not has_envelope:
            metadata = {**metadata, "key": metadata.get("key", METADATA_COLUMNS["key"])}
    if order_by is not None:
        is_marking = mode == "upsert" and wrapped["deletes"] == "soft" and not has_envelope
        _check_order(fields, order_by, metadata, is_marking)
    return {
        "mode": mode,
        "key_columns": tuple(".".join(path) for path in paths),
        "order_by": order_by,
        "format_version": version,
        "metadata": metadata,
    }


def _check_order(fields: Fields, order_by: str, metadata: Mapping[MetadataField, str], is_marking: bool) -> None:
    """Refuses a column inside another one, an order that holds inside one transaction alone and, where tombstones mark rows
    as deleted, a column that a tombstone has no value for.
    """
    if "." in order_by:
        message = f"`order_by: {order_by}` is inside another column"
        remedy = "name a column of the table itself, such as one that `columns` or `flatten` makes of the field"
        fields.refuse_value("order_by", message, remedy)
    for field, reason in _NO_ORDERS.items():
        if metadata.get(cast(MetadataField, field)) == order_by:
            message = f"`order_by: {order_by}` would order changes by `{field}`, which {reason}"
            remedy = "write `metadata: [source_order]` and `order_by: _source_order`, or leave `order_by` out"
            fields.refuse_value("order_by", message, remedy)
    if is_marking and order_by not in [metadata.get(name) for name in _OF_TOMBSTONES]:
        message = f"a tombstone has no value for `order_by: {order_by}`, and `deletes: soft` makes a row of it"
        remedy = f"name a column that `metadata` makes of one of: {', '.join(_OF_TOMBSTONES)}"
        fields.refuse_key("order_by", message, remedy)


def read_atomic(fields: Fields, topics: tuple[TopicSelector, ...], envelope: EnvelopeSpec | None) -> AtomicSpec | None:
    """The setting `atomic`; None where a snapshot may show a part of a transaction. topics: none in `defaults`."""
    entry = fields.get("atomic")
    if entry is None:
        return None
    chosen = AtomicSpec()
    if isinstance(entry.value, Section):
        inner = fields.section("atomic", AtomicSpec)
        chosen = AtomicSpec(**inner.values())
        if inner.get("transaction_topic") is None:
            message = "`atomic` names no topic of transactions"
            fields.refuse_key("atomic", message, "write `transaction_topic: TOPIC`, or `atomic: transaction`")
    elif fields.choice("atomic") != "transaction":
        return None
    if envelope is None or envelope.kind != "debezium":
        message = "`atomic` needs Debezium's envelope, and the table has none"
        fields.refuse_key("atomic", message, "write `envelope: debezium`, or remove it")
    if len(topics) > 1 or any(selector.pattern is not None for selector in topics):
        message = "`atomic` needs a table of one topic, and this table may read several"
        fields.refuse_key("atomic", message, "give each topic its table, or remove it")
    return chosen
