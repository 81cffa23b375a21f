"""The settings of a table whose records replace rows: `mode`, `key_columns`, `order_by`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frazil.spec.columns import read_paths
from frazil.spec.models import METADATA_COLUMNS, MetadataField
from frazil.spec.problems import Problems
from frazil.spec.reading import Fields

_UPSERT_VERSION = 3


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
        if not key_columns and key_format in ("raw", "text") and wrapped["envelope"] is None:
            metadata = {**metadata, "key": metadata.get("key", METADATA_COLUMNS["key"])}
    entry = fields.get("order_by")
    if entry is not None and order_by is not None and "." in order_by:
        problems.add(
            entry.value.line,
            f"`order_by: {order_by}` is inside another column",
            "name a column of the table itself, such as one that `columns` or `flatten` makes of the field",
        )
    return {
        "mode": mode,
        "key_columns": tuple(key_columns),
        "order_by": order_by,
        "format_version": version,
        "metadata": metadata,
    }
