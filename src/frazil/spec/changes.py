"""How a table takes changes: the envelope of its records, mode, keys and order, deletes, tombstones and transactions.

Once the file is read, a table with `mode: history`, which has a row for each version of what its keys identify, is one with
`mode: upsert`, whose rows are looked up by key, that `keeps_history`. How versions are made is in `frazil_state.history`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, cast

from pyiceberg.types import DateType, TimestampType, TimestamptzType

from frazil.column_names import Spellings
from frazil.plugins.driver import TABLE_KEYS
from frazil.plugins.formats import ENVELOPES
from frazil.spec.models import TableSpec
from frazil.spec.publishing import NEWEST_FORMAT, OLDER_FORMAT, Reader, refusing_reader
from frazil.spec.settings import HISTORY, METADATA_COLUMNS, AtomicSpec, EnvelopeSpec, MetadataField
from frazil.spec.syntax.problems import LABEL, Mistake, try_check

_OPERATIONS = ("insert", "update", "delete")
_OF_CHANGES: tuple[MetadataField, ...] = ("op", "image")
_OF_DELETES: tuple[MetadataField, ...] = ("deleted", "deleted_at")
_OF_LOGS: tuple[MetadataField, ...] = ("source_ts", "connector_ts", "unavailable")
"""The metadata columns that a changelog table always has, besides those of changes, where its envelope has them."""
_OF_ANY = METADATA_COLUMNS.keys() - {"topic", "partition", "offset", "timestamp", "headers", "key"}
"""The fields of `metadata` that are of a change or an event, and not of every record."""
_UPSERT_VERSION = 3
_OF_TOMBSTONES: tuple[MetadataField, ...] = ("timestamp", "offset", "partition")
_NO_ORDERS: Mapping[MetadataField, str] = {
    "total_order": "counts the changes of one transaction and restarts with the next",
    "collection_order": "counts the changes of one transaction and restarts with the next",
    "transaction_id": "names a transaction and does not order transactions",
}
"""Metadata of transactions that does not order changes, and the reason."""
_TIMES = (TimestampType, TimestamptzType, DateType)
_OF_TIMES = ("timestamp", "source_ts", "connector_ts", "ce_time")
_WITH_DELETED_ROWS = ("cloudevents", "outbox", "operation")
"""The envelopes whose deletes have the row's columns as they are at the time of the delete."""
_NOT_OF_HISTORY = (
    ("merge", "`merge` makes one row of all records of a key, and `mode: history` a row of each version"),
    ("changelog", "`changelog: true` appends every change, and the table has `mode: history`"),
    ("atomic", "`atomic` shows transactions whole, and `mode: history` does not keep them apart"),
)
_Spec = TypeVar("_Spec", bound=TableSpec)


def settings_of_changes(table: TableSpec) -> dict[str, Any]:
    """The format version and the metadata columns that the table's way to take changes brings about."""
    kind = table.changes.envelope_kind
    metadata = {name: METADATA_COLUMNS[name] for name in added_metadata(table, kind) if name not in table.metadata}
    has_version = table.changes.mode != "upsert" or "format_version" in table.layout.model_fields_set
    is_refused = refusing_engine(table, _UPSERT_VERSION) is not None
    version = table.layout.format_version if has_version else _UPSERT_VERSION - is_refused
    return {"metadata": table.metadata | metadata, "format_version": version}


def refusing_engine(table: TableSpec, format_version: int) -> Reader | None:
    """Returns the first engine of `readers` that cannot read the table in this format version; None where all can."""
    has_deletes = table.changes.mode == "upsert" and not table.publishing.copies_rows
    return refusing_reader(table.publishing.readers, format_version, has_deletes)


def check_readers(table: TableSpec) -> Iterator[Mistake]:
    """Yields a format version that an engine of `readers` cannot read."""
    version = table.layout.format_version
    reader = refusing_engine(table, version)
    if reader is not None:
        named = f"{reader.label} {reader.version}".rstrip()
        message = f"{named} is not known to read what Frazil writes with `format_version: {version}`"
        other = OLDER_FORMAT if version == NEWEST_FORMAT else NEWEST_FORMAT
        remedy = f"write `format_version: {other}`, or take it out of `readers`"
        if refusing_engine(table, other) is not None:
            remedy = "take it out of `readers`, or publish the table with `delete_mode: copy_on_write`"
        yield Mistake("format_version", message, remedy)


def check_changes(table: TableSpec) -> Iterator[Mistake]:
    """Yields settings of changes that contradict each other."""
    kind, is_upsert = table.changes.envelope_kind, table.changes.mode == "upsert"
    yield from _check_envelope(table, kind)
    if table.changes.deletes == "soft" and not is_upsert:
        message = "`deletes: soft` keeps rows that are deleted, and a table with `mode: append` deletes none"
        yield Mistake("deletes", message, "write `mode: upsert`, or remove it")
    yield from _check_metadata(table, kind)
    yield from _check_tombstones(table)
    if is_upsert:
        yield from _check_keys(table)
    else:
        for key in ("key_columns", "order_by"):
            if key in table.changes.model_fields_set:
                message = f"`{key}` has no effect with `mode: append`"
                yield Mistake(key, message, "write `mode: upsert`, or remove it")
    if table.changes.order_by is not None:
        yield from _check_order(table, table.changes.order_by)


def _metadata_of(kind: str) -> tuple[str, ...]:
    """The fields of `metadata` that an envelope has, besides those of every change."""
    return ENVELOPES.get(kind).all_metadata if kind != "none" else ()


def added_metadata(table: TableSpec, kind: str) -> tuple[MetadataField, ...]:
    """The metadata columns that the table has unasked."""
    added: tuple[MetadataField, ...] = ()
    sources = _metadata_of(kind)
    if table.changes.changelog and kind != "none":
        added = (*_OF_CHANGES, *(name for name in _OF_LOGS if name in sources))
    elif table.changes.mode == "append" and not table.changes.changelog and "unavailable" in sources:
        added = ("unavailable",)
    if kind != "none":
        added = (*added, *cast("tuple[MetadataField, ...]", ENVELOPES.get(kind).columns))
    if table.changes.deletes == "soft":
        added = (*added, *_OF_DELETES)
    if table.changes.keeps_history:
        added = (*added, *HISTORY)
    has_own_keys = (
        table.changes.key_columns
        or table.changes.envelope is not None
        or table.source.key.format not in ("raw", "text")
    )
    return added if has_own_keys or table.changes.mode != "upsert" else (*added, "key")


def _check_tombstones(table: TableSpec) -> Iterator[Mistake]:
    """Yields the word where the table has no use for it."""
    is_upsert = table.changes.mode == "upsert"
    if table.changes.tombstones == "delete" and not is_upsert:
        message = "`tombstones: delete` deletes the row of a key, and a table with `mode: append` deletes none"
        remedy = "write `tombstones: ignore`, `dead_letter` or `row`, or `mode: upsert`"
        yield Mistake("tombstones", message, remedy)
    if table.changes.tombstones == "row" and (is_upsert or table.changes.envelope is not None):
        what = "the table has `mode: upsert`" if is_upsert else "the table has an `envelope`"
        message = f"`tombstones: row` is for records that are appended as they are, and {what}"
        others = "`delete`, `ignore` or `dead_letter`" if is_upsert else "`ignore` or `dead_letter`"
        yield Mistake("tombstones", message, f"write one of: {others}")


def check_envelope_keys(envelope: EnvelopeSpec) -> Iterator[Mistake]:
    """Yields keys of an envelope's section that are not for this envelope, and words that stand for two operations."""
    written = envelope.model_fields_set
    if "kind" in written:
        for other in ("operation", *_OPERATIONS):
            if other in written:
                message = f"`{LABEL}` is for rows with a field of their own that names the operation"
                yield Mistake(other, message, "remove it, or remove `type`")
    elif "operation" not in written:
        remedy = "write `operation: FIELD`, or `envelope: debezium`"
        yield Mistake((), f"`{LABEL}` names no field with the operation", remedy)
    elif "placeholder" in written:
        message = f"`{LABEL}` is for Debezium's envelope"
        yield Mistake("unavailable_value", message, "remove it, or write `type: debezium`")
    yield from _check_words(envelope)


def _check_words(envelope: EnvelopeSpec) -> Iterator[Mistake]:
    """Yields a value of the operation's field that stands for two operations."""
    seen: dict[str, str] = {}
    for operation in _OPERATIONS:
        for word in getattr(envelope, operation):
            if seen.setdefault(word, operation) != operation:
                message = f"`{word}` stands for two operations in `{LABEL}`: {seen[word]} and {operation}"
                yield Mistake((), message, "keep one of them")


def _check_envelope(table: TableSpec, kind: str) -> Iterator[Mistake]:
    """Yields an envelope that is not read from the format of the values, and a changelog table without one."""
    if kind != "none" and table.source.value.format not in ENVELOPES.get(kind).formats:
        shown = "a field for the operation" if kind == "operation" else kind
        message = f"`envelope`: {shown} is not read from the format {table.source.value.format}"
        remedy = f"write `value: {{format: …}}` with one of: {', '.join(ENVELOPES.get(kind).formats)}"
        yield Mistake("envelope", message, remedy)
    if table.changes.changelog and kind == "none":
        message = "`changelog: true` is for records that wrap changes, and the table has no `envelope`"
        yield Mistake("changelog", message, "write `envelope: debezium`, or remove it")
    if table.changes.changelog and table.changes.mode == "upsert" and not table.changes.keeps_history:
        message = "`changelog: true` appends every change, and the table has `mode: upsert`"
        yield Mistake("changelog", message, "give the changelog a table of its own; both may read one topic")


def _check_metadata(table: TableSpec, kind: str) -> Iterator[Mistake]:
    usable = {*_OF_CHANGES, *_metadata_of(kind)} if kind != "none" else set()
    for name in table.metadata:
        if name not in _OF_ANY or name in usable or (name in _OF_DELETES and table.changes.deletes == "soft"):
            continue
        if name in HISTORY and table.changes.keeps_history:
            continue
        if name in HISTORY:
            message, remedy = f"`{name}` in `metadata` is for versions of rows", "`mode: history`"
        elif name in _OF_DELETES:
            message, remedy = f"`{name}` in `metadata` is for deleted rows that are kept", "`deletes: soft`"
        elif kind == "none":
            message, remedy = f"`{name}` in `metadata` needs an envelope, and the table has none", "`envelope`"
        else:
            shown = "with the operation in a field" if kind == "operation" else kind
            message = f"`{name}` in `metadata` is not contained in the envelope {shown}"
            yield Mistake("metadata", message, "take it out of `metadata`")
            continue
        yield Mistake("metadata", message, f"write {remedy}, or take it out of `metadata`")


def _check_keys(table: TableSpec) -> Iterator[Mistake]:
    kind = table.changes.envelope_kind
    if kind != "none" and not table.changes.key_columns and not ENVELOPES.get(kind).has_key_fields:
        message = f"the record keys of `envelope: {kind}` do not have the fields that identify a row"
        yield Mistake("envelope", message, "name the table's `key_columns`")
    if table.source.key.format == "text" and not table.changes.key_columns and table.changes.envelope is not None:
        what = "rows in an envelope are found by the fields of the record's key"
        remedy = "write the format that the keys have, or name the `key_columns`"
        yield Mistake("key", f"`key: {{format: text}}` has no fields, and {what}", remedy)


def _check_order(table: TableSpec, order_by: str) -> Iterator[Mistake]:
    """Yields a column inside another one, an order that holds inside one transaction alone and, where tombstones mark rows
    as deleted, a column that a tombstone has no value for.
    """
    metadata = table.metadata
    if "." in order_by:
        message = f"`order_by: {order_by}` is inside another column"
        remedy = "name a column of the table itself, such as one that `columns` or `flatten` makes of the field"
        yield Mistake("order_by", message, remedy)
    for field, reason in _NO_ORDERS.items():
        if metadata.get(field) == order_by:
            message = f"`order_by: {order_by}` would order changes by `{field}`, which {reason}"
            remedy = "write `metadata: [source_order]` and `order_by: _source_order`, or leave `order_by` out"
            yield Mistake("order_by", message, remedy)
    is_marking = table.changes.mode == "upsert" and table.changes.deletes == "soft" and table.changes.envelope is None
    if is_marking and order_by not in [metadata.get(name) for name in _OF_TOMBSTONES]:
        message = f"a tombstone has no value for `order_by: {order_by}`, and `deletes: soft` makes a row of it"
        remedy = f"name a column that `metadata` makes of one of: {', '.join(_OF_TOMBSTONES)}"
        yield Mistake("order_by", message, remedy)


def check_transaction_topic(atomic: AtomicSpec) -> Iterator[Mistake]:
    """Yields a section without the topic of transactions."""
    if atomic.transaction_topic is None:
        message = f"`{LABEL}` names no topic of transactions"
        yield Mistake((), message, "write `transaction_topic: TOPIC`, or `atomic: transaction`")


def check_atomic(table: TableSpec) -> Iterator[Mistake]:
    """Yields `atomic` of a table that cannot have it."""
    if table.changes.atomic is None:
        return
    yield from try_check("atomic", TABLE_KEYS.get, "atomic")
    if table.changes.envelope_kind != "debezium":
        message = "`atomic` needs Debezium's envelope, and the table has none"
        yield Mistake("atomic", message, "write `envelope: debezium`, or remove it")
    if len(table.source.topics) > 1 or any(selector.pattern is not None for selector in table.source.topics):
        message = "`atomic` needs a table of one topic, and this table may read several"
        yield Mistake("atomic", message, "give each topic its table, or remove it")


def as_upserts(table: _Spec) -> _Spec:
    """Returns a table with `mode: history` as an upsert table that keeps history, and any other table unchanged."""
    if table.changes.mode != "history":
        return table
    return table.model_copy(update={"mode": "upsert", "keeps_history": True})


def describe_history(table: TableSpec) -> Iterator[str]:
    """Yields how versions are made, in a line."""
    changes = table.changes
    if changes.keeps_history:
        what = ", ".join(changes.track) or "any column"
        order = changes.order_by or "the order of the records"
        keys = ", ".join(changes.key_columns) or "the record's key"
        yield f"keeps each version of {what} by {keys}, from {order}, in {', '.join(_version_columns(table))}"


def check_history(table: TableSpec) -> Iterator[Mistake]:
    """Yields settings that contradict the table's history, and history's settings of another table."""
    changes = table.changes
    if not changes.keeps_history:
        if changes.track:
            message = "`track` chooses the columns whose changes make a version, and the table keeps no history"
            yield Mistake("track", message, "write `mode: history` and `key_columns: [NAME]`, or remove it")
        return
    for key, message in _NOT_OF_HISTORY:
        if getattr(changes, key):
            yield Mistake(key, message, "remove one of them")
    if changes.deletes == "soft":
        message = "`deletes: soft` marks a row, and with `mode: history` a delete closes its last version"
        yield Mistake("deletes", message, "remove it")
    keys, own = Spellings(changes.key_columns), Spellings(_version_columns(table))
    for name in changes.track:
        if keys.find(name) is not None or own.find(name) is not None:
            message = f"`track` has `{name}`, which identifies a version and does not change in it"
            yield Mistake("track", message, "take it out of `track`")
    yield from _check_order_of_versions(table)


def _version_columns(table: TableSpec) -> list[str]:
    """The columns that show when a version was valid."""
    return [table.metadata.get(field, field) for field in HISTORY]


def _check_order_of_versions(table: TableSpec) -> Iterator[Mistake]:
    name, envelope = table.changes.order_by, table.changes.envelope
    if name is None:
        return
    field = next((field for field, column in table.metadata.items() if column == name), None)
    if field in _OF_TIMES:
        return
    column = table.declared_column(name)
    if field is not None or (column is not None and not isinstance(column.type, _TIMES)):
        message = f"`order_by: {name}` is not a time, and with `mode: history` versions are valid from the time in it"
        remedy = f"name a column with a time, such as `columns: {{{name}: timestamptz}}`, or remove it"
        yield Mistake("order_by", message, remedy)
    elif envelope is not None and envelope.kind not in _WITH_DELETED_ROWS:
        message = f"a delete has no value for `order_by: {name}`: the row before it has the time of an earlier change"
        has_time = "source_ts" in ENVELOPES.get(envelope.kind).all_metadata
        order = "write `metadata: [source_ts]` and `order_by: _source_ts`, or " if has_time else ""
        yield Mistake("order_by", message, f"{order}remove it")
