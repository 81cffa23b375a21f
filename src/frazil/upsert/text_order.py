"""Changes that a text orders: texts are compared by their bytes, and few of them sort as what they mean."""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.types import StringType

from frazil.spec.models import MetadataField, TableSpec

_PLACES: tuple[MetadataField, ...] = ("source_order", "position")


def text_order(spec: TableSpec, schema: Schema) -> str:
    """What to mind where `order_by` names a column of text; empty where it does not, or names a place in the source's log,
    which is spelt so that it sorts. schema: of the table, or of what it would be.
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
