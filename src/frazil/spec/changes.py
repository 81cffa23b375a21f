"""The settings of a table whose records replace rows: `mode`, `key_columns`, `order_by`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from frazil.spec.columns import read_paths
from frazil.spec.document import Entry
from frazil.spec.models import METADATA_COLUMNS, MetadataField
from frazil.spec.problems import Problems
from frazil.spec.reading import Fields

_UPSERT_VERSION = 3
_OF_TOMBSTONES: tuple[MetadataField, ...] = ("timestamp", "offset", "partition")
_NO_ORDERS: Mapping[str, str] = {
    "total_order": "counts the changes of one transaction and restarts with the next",
    "collection_order": "counts the changes of one transaction and restarts with the next",
    "transaction_id": "names a transaction and does not order transactions",
}
"""What an envelope tells of transactions that orders no changes, and why."""


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
                    entry.line, f"`{key}` has no effect with `mode: append`", "write `mode: upsert`, or remove it"
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
