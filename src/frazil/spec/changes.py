"""How a table takes changes: the envelope of its records, mode, keys and order, deletes, tombstones and transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from frazil.spec.columns import read_paths
from frazil.spec.document import Entry, Items, Scalar, Section
from frazil.spec.keys import keys_of
from frazil.spec.models import METADATA_COLUMNS, AtomicSpec, EnvelopeSpec, MetadataField, TopicSelector
from frazil.spec.problems import Problems
from frazil.spec.reading import Fields, read_items, read_text
from frazil.spec.topics import parse_topic

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
"""The columns that a change log has without being asked."""
_OF_ANY = frozenset((*_OF_CHANGES, *_OF_DELETES, *(name for names in _OF_SOURCES.values() for name in names)))
_UPSERT_VERSION = 3
_OF_TOMBSTONES: tuple[MetadataField, ...] = ("timestamp", "offset", "partition")
_NO_ORDERS: Mapping[str, str] = {
    "total_order": "counts the changes of one transaction and begins anew with the next",
    "collection_order": "counts the changes of one transaction and begins anew with the next",
    "transaction_id": "names a transaction and does not say which came first",
}
"""What an envelope tells of transactions that orders no changes, and why."""


def read_change_settings(
    fields: Fields, mode: str, value_format: str, metadata: dict[MetadataField, str], problems: Problems
) -> dict[str, Any]:
    """`envelope`, `changelog` and `deletes`, and `metadata` with the columns that they bring along."""
    envelope = _read_envelope(fields.get("envelope"), fields, problems)
    is_log, deletes = bool(fields.choice("changelog")), fields.choice("deletes")
    kind = envelope.kind if envelope else "none"
    _check_format(fields.get("envelope"), kind, value_format, problems)
    _check_log(fields.get("changelog"), kind, mode, is_log, problems)
    if deletes == "soft" and mode != "upsert":
        entry = fields.get("deletes")
        message = "`deletes: soft` keeps rows that are deleted, and a table with `mode: append` deletes none"
        problems.add(entry.line if entry else 0, message, "write `mode: upsert`, or remove it")
    _check_metadata(fields.get("metadata"), kind, deletes == "soft", metadata, problems)
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
        "tombstones": _read_tombstones(fields, mode, kind, problems),
        "metadata": metadata | {name: column for name, column in brought.items() if name not in metadata},
    }


def _read_tombstones(fields: Fields, mode: str, kind: str, problems: Problems) -> str:
    """The word, empty where the file has none; refused where the table has no use for it."""
    entry = fields.get("tombstones")
    if entry is None:
        return ""
    word = str(fields.choice("tombstones"))
    if not isinstance(entry.value, Scalar) or entry.value.text != word:
        return ""  # Its word has been refused already.
    if word == "delete" and mode != "upsert":
        message = "`tombstones: delete` deletes the row of a key, and a table with `mode: append` deletes none"
        problems.add(entry.line, message, "write `tombstones: ignore`, `dead_letter` or `row`, or `mode: upsert`")
    if word == "row" and (mode == "upsert" or kind != "none"):
        what = "the table has `mode: upsert`" if mode == "upsert" else "the table has an `envelope`"
        message = f"`tombstones: row` is for records that are appended as they are, and {what}"
        others = "`delete`, `ignore` or `dead_letter`" if mode == "upsert" else "`ignore` or `dead_letter`"
        problems.add(entry.line, message, f"write one of: {others}")
    return word


def _read_envelope(entry: Entry | None, fields: Fields, problems: Problems) -> EnvelopeSpec | None:
    if entry is None or not isinstance(entry.value, Section):
        kind = fields.choice("envelope")
        return None if kind == "none" else EnvelopeSpec.model_validate({"kind": kind})
    inner = Fields(entry.value, keys_of(EnvelopeSpec), "envelope", problems)
    if inner.get("type") is not None:
        return _read_debezium(inner, problems)
    operation = inner.get("operation")
    if operation is None:
        message = "`envelope` names no field with the operation"
        problems.add(entry.line, message, "write `operation: FIELD`, or `envelope: debezium`")
        return None
    stray = inner.get("unavailable_value")
    if stray is not None:
        message = "`envelope.unavailable_value` is for Debezium's envelope"
        problems.add(stray.line, message, "remove it, or write `type: debezium`")
    name = inner.text("operation")
    if name is None:
        return None
    words = {key: _read_words(inner.get(key), f"envelope.{key}", problems) for key in _OPERATIONS}
    _check_words(entry, words, problems)
    given = {key: found for key, found in words.items() if found}
    return EnvelopeSpec.model_validate({"kind": "operation", "operation": name, **given})


def _read_debezium(inner: Fields, problems: Problems) -> EnvelopeSpec:
    inner.choice("type")
    for key in ("operation", *_OPERATIONS):
        stray = inner.get(key)
        if stray is not None:
            message = f"`envelope.{key}` is for rows with a field of their own that names the operation"
            problems.add(stray.line, message, "remove it, or remove `type`")
    chosen: dict[str, Any] = {"kind": "debezium"}
    placeholder = inner.text("unavailable_value")
    if placeholder is not None:
        chosen["placeholder"] = placeholder
    return EnvelopeSpec.model_validate(chosen)


def _read_words(entry: Entry | None, label: str, problems: Problems) -> tuple[str, ...]:
    if entry is None:
        return ()
    nodes = read_items(entry.value, label, problems) if isinstance(entry.value, Items) else (entry.value,)
    if not nodes:
        problems.add(entry.line, f"`{label}` is empty", "write the values of the field, or remove it")
    words = []
    for node in nodes:
        is_number = isinstance(node, Scalar) and node.kind == "integer"
        word = node.text if is_number and isinstance(node, Scalar) else read_text(node, label, problems)
        if word is not None:
            words.append(word)
    return tuple(words)


def _check_words(entry: Entry, words: Mapping[str, tuple[str, ...]], problems: Problems) -> None:
    seen: dict[str, str] = {}
    chosen = {key: found or EnvelopeSpec.model_fields[key].default for key, found in words.items()}
    for key, found in chosen.items():
        for word in found:
            if seen.setdefault(word, key) != key:
                message = f"`{word}` stands for two operations in `envelope`: {seen[word]} and {key}"
                problems.add(entry.line, message, "keep one of them")


def _check_format(entry: Entry | None, kind: str, value_format: str, problems: Problems) -> None:
    if entry is None or kind == "none" or value_format in _FORMATS[kind]:
        return
    shown = "a field for the operation" if kind == "operation" else kind
    message = f"`envelope`: {shown} is not read from the format {value_format}"
    problems.add(entry.line, message, f"write `value: {{format: …}}` with one of: {', '.join(_FORMATS[kind])}")


def _check_log(entry: Entry | None, kind: str, mode: str, is_log: bool, problems: Problems) -> None:
    if entry is None or not is_log:
        return
    if kind == "none":
        message = "`changelog: true` is for records that wrap changes, and the table has no `envelope`"
        problems.add(entry.line, message, "write `envelope: debezium`, or remove it")
    if mode == "upsert":
        message = "`changelog: true` appends every change, and the table has `mode: upsert`"
        problems.add(entry.line, message, "give the change log a table of its own; both may read one topic")


def _check_metadata(
    entry: Entry | None, kind: str, is_marking: bool, metadata: Mapping[MetadataField, str], problems: Problems
) -> None:
    known = {*_OF_CHANGES, *_OF_SOURCES[kind]} if kind != "none" else set()
    for name in metadata:
        if name not in _OF_ANY or name in known or (name in _OF_DELETES and is_marking):
            continue
        if name in _OF_DELETES:
            message, remedy = f"`{name}` in `metadata` is for rows that stay when they are deleted", "`deletes: soft`"
        else:
            message, remedy = f"`{name}` in `metadata` is told by envelopes that the table does not have", "`envelope`"
        problems.add(entry.line if entry else 0, message, f"write {remedy}, or take it out of `metadata`")


def read_changes(
    fields: Fields, mode: str, key_format: str, wrapped: Mapping[str, Any], problems: Problems
) -> dict[str, Any]:
    """The settings by name, with the format version and the metadata columns that they bring about. wrapped: what the table
    says of envelopes, with its metadata columns so far.
    """
    metadata: Mapping[MetadataField, str] = wrapped["metadata"]
    version = fields.choice("format_version")
    key_columns = [".".join(path) for path in read_paths(fields.get("key_columns"), "key_columns", problems)]
    order_by = fields.text("order_by")
    if mode != "upsert":
        for key in ("key_columns", "order_by"):
            entry = fields.get(key)
            if entry is not None:
                problems.add(
                    entry.line, f"`{key}` says nothing of `mode: append`", "write `mode: upsert`, or remove it"
                )
    else:
        version = version if fields.get("format_version") is not None else _UPSERT_VERSION
        if not key_columns and key_format == "text" and wrapped["envelope"] is not None:
            _refuse_text_keys(fields.get("key"), problems)
        if not key_columns and key_format in ("raw", "text") and wrapped["envelope"] is None:
            metadata = {**metadata, "key": metadata.get("key", METADATA_COLUMNS["key"])}
    entry = fields.get("order_by")
    if entry is not None and order_by is not None:
        _check_order(entry, order_by, metadata, problems)
        if mode == "upsert" and wrapped["deletes"] == "soft" and wrapped["envelope"] is None:
            _check_marks(entry, order_by, metadata, problems)
    return {
        "mode": mode,
        "key_columns": tuple(key_columns),
        "order_by": order_by,
        "format_version": version,
        "metadata": metadata,
    }


def _check_marks(entry: Entry, order_by: str, metadata: Mapping[MetadataField, str], problems: Problems) -> None:
    """A tombstone has what Kafka knows of every record, and nothing else, to say when it came."""
    if order_by in [metadata.get(name) for name in _OF_TOMBSTONES]:
        return
    problems.add(
        entry.line,
        f"a tombstone has no value for `order_by: {order_by}`, and `deletes: soft` makes a row of it",
        f"name a column that `metadata` makes of one of: {', '.join(_OF_TOMBSTONES)}",
    )


def _refuse_text_keys(entry: Entry | None, problems: Problems) -> None:
    problems.add(
        entry.line if entry else 0,
        "`key: {format: text}` has no fields, and rows in an envelope are found by the fields of the record's key",
        "write the format that the keys have, or name the `key_columns`",
    )


def _check_order(entry: Entry, order_by: str, metadata: Mapping[MetadataField, str], problems: Problems) -> None:
    """Refuses a column inside another one, and an order that holds inside one transaction alone."""
    if "." in order_by:
        problems.add(
            entry.value.line,
            f"`order_by: {order_by}` is inside another column",
            "name a column of the table itself, such as one that `columns` or `flatten` makes of the field",
        )
    for field, reason in _NO_ORDERS.items():
        if metadata.get(cast(MetadataField, field)) == order_by:
            message = f"`order_by: {order_by}` would order changes by `{field}`, which {reason}"
            remedy = "write `metadata: [source_order]` and `order_by: _source_order`, or leave `order_by` out"
            problems.add(entry.value.line, message, remedy)


def read_atomic(
    fields: Fields, topics: tuple[TopicSelector, ...], envelope: EnvelopeSpec | None, problems: Problems
) -> AtomicSpec | None:
    """None where a snapshot may show a part of a transaction. topics: none where the file does not say."""
    entry = fields.get("atomic")
    if entry is None:
        return None
    chosen = AtomicSpec()
    if isinstance(entry.value, Section):
        inner = Fields(entry.value, keys_of(AtomicSpec), "atomic", problems)
        topic = inner.text("transaction_topic")
        if inner.get("transaction_topic") is None:
            message = "`atomic` names no topic of transactions"
            problems.add(entry.line, message, "write `transaction_topic: TOPIC`, or `atomic: transaction`")
        if topic is not None:
            problems.attempt(entry.line, None, parse_topic, topic)
            chosen = AtomicSpec(transaction_topic=topic)
    elif fields.choice("atomic") != "transaction":
        return None
    if envelope is None or envelope.kind != "debezium":
        message = "`atomic` shows transactions whole that Debezium's envelope tells of, and the table has none"
        problems.add(entry.line, message, "write `envelope: debezium`, or remove it")
    if len(topics) > 1 or any(selector.pattern is not None for selector in topics):
        message = "`atomic` shows transactions whole in a table of one topic, and this one may read several"
        problems.add(entry.line, message, "give each topic its table, or remove it")
    return chosen
