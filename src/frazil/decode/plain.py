"""Values without a structure: each entire value becomes the column `value`, as text or as bytes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from pyiceberg.types import BinaryType, NestedField, StringType, StructType

from frazil.decode.cast import convert_columns
from frazil.decode.columns import Columns, Decoded, Fault, read_utf8
from frazil.decode.conversion import Conversion
from frazil.decode.settings import Reading
from frazil.error_classes import ErrorClass

_NOT_TEXT = Fault(ErrorClass.INVALID_TEXT, "the value is not UTF-8")


def read_text(values: pa.BinaryArray) -> Columns:
    """Returns the values as text; a null value is null, bytes that are not UTF-8 are a fault."""
    texts = read_utf8(values)
    bad = np.asarray(values.is_valid()) & np.asarray(texts.is_null())
    return Columns([texts], bad.astype(np.uint8), (_NOT_TEXT,))


def plain_struct(text: bool) -> StructType:
    """Returns the struct of the single column."""
    return StructType(NestedField(0, "value", StringType() if text else BinaryType(), required=False))


def decode_plain(
    reading: Reading, fields: tuple[NestedField, ...], records: Mapping[str, pa.Array], limit: int
) -> Decoded:
    """Returns the columns `fields` of records' values in the format `text` or `raw`."""
    values, is_text = records["value"], reading.format == "text"
    columns = read_text(values) if is_text else Columns([values], np.zeros(len(values), np.uint8), ())
    return convert_columns(Conversion(reading, "", len(values), limit), plain_struct(is_text), columns, fields)
