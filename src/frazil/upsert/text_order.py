"""A warning about `order_by` columns of type text: text is compared byte by byte, and rarely sorts by its meaning."""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.types import StringType

from frazil.spec.models import MetadataField, TableSpec

_PLACES: tuple[MetadataField, ...] = ("source_order", "position")


def text_order(spec: TableSpec, schema: Schema) -> str:
    """Returns a warning where `order_by` names a text column; empty where it does not, or where it names a position in
    the source's log, whose text form sorts correctly. schema: the schema of the table, or of the table to be created.
    """
    name = spec.order_by
    if name is None or name in [spec.metadata.get(place) for place in _PLACES]:
        return ""
    kind = next((field.field_type for field in schema.fields if field.name == name), None)
    if not isinstance(kind, StringType):
        return ""
    return (
        f"`order_by: {name}` is text, and texts are compared by their bytes: `9` counts as newer than `10`, and"
        " `03:04:05Z` as newer than `03:04:05.5Z`, so newer changes may be dropped. Declare the column, as"
        " `timestamptz` or `decimal(p,s)`, before the table is created, unless all of its texts have one form"
    )
