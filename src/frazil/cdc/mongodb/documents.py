"""MongoDB documents in envelopes with a schema: the schema describes a document only as text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import NestedField, StringType, StructType

from frazil.cdc.envelope import BY_KEY, NO_DOCUMENT
from frazil.cdc.envelope_columns import IMAGES_OF, open_columns
from frazil.cdc.json.row_images import read_documents
from frazil.decode.cast import convert_columns
from frazil.decode.columns import Columns, Decoded
from frazil.decode.conversion import Conversion
from frazil.schema.arrow import arrow_type, as_written, spread_places


def open_documents(
    conversion: Conversion, struct: StructType, columns: Columns, fields: Sequence[NestedField]
) -> Decoded:
    """Returns the columns `fields` of `cdc.envelope`, for envelopes in columns whose images are JSON texts."""
    reading, rows = conversion.reading, conversion.row_count
    assert reading.envelope is not None
    raw = {
        field.name: array.cast(pa.binary())
        for field, array in zip(struct.fields, columns.arrays, strict=True)
        if field.name in IMAGES_OF and isinstance(field.field_type, StringType)
    }
    others = [field for field in fields if field.name not in IMAGES_OF]
    decoded = convert_columns(conversion, *open_columns(reading, struct, columns, {}, fields), others)
    columns_by_name = {field.name: array for field, array in zip(others, decoded.columns, strict=True)}
    conversion.requested_fields = {}
    for field in fields:
        if field.name in IMAGES_OF:
            columns_by_name[field.name] = _read(conversion, raw.get(field.name), field)
            op, kind = ("u", NO_DOCUMENT) if field.name == "after" else ("d", BY_KEY)
            texts = raw.get(field.name)
            has_text = np.zeros(rows, np.bool_) if texts is None else np.asarray(texts.is_valid())
            lacks = np.asarray(pc.fill_null(pc.equal(columns_by_name["op"], op), False)) & ~has_text
            columns_by_name["record_kind"] = pc.if_else(
                pa.array(lacks), pa.scalar(kind, pa.int32()), columns_by_name["record_kind"]
            )
    return conversion.decoded([columns_by_name[field.name] for field in fields])


def _read(conversion: Conversion, raw: pa.Array | None, field: NestedField) -> pa.Array:
    """Returns one image of the row per record, null where there is none."""
    kind, rows = field.field_type, conversion.row_count
    assert isinstance(kind, StructType)
    if raw is None:
        return pa.nulls(rows, arrow_type(kind))
    present_rows = np.flatnonzero(np.asarray(raw.is_valid())).astype(np.int32)
    image = read_documents(conversion, raw.drop_null(), present_rows, kind, field.name)
    return as_written(image, arrow_type(kind)).take(spread_places(present_rows, rows))
