"""What a table says of changes: how its records wrap them, and what becomes of those that are no new rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from frazil.spec.document import Entry, Items, Scalar, Section
from frazil.spec.keys import keys_of
from frazil.spec.models import METADATA_COLUMNS, EnvelopeSpec, MetadataField
from frazil.spec.problems import Problems
from frazil.spec.reading import Fields, read_items, read_text

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
