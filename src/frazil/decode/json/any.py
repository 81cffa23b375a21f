"""JSON texts of any type, as those of keys and headers: each entire text becomes a value of one column."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from pyiceberg.types import IcebergType

from frazil.decode.columns import Decoded, Fault
from frazil.decode.conversion import Conversion
from frazil.decode.json import scan
from frazil.decode.json.as_sent import unescape_keys
from frazil.decode.json.columns import read_value
from frazil.decode.json.grammar import MAX_DEPTH
from frazil.decode.json.infer import infer_type
from frazil.decode.json.records import open_any
from frazil.error_classes import ErrorClass


def decode_any(
    values: pa.BinaryArray,
    name: str,
    kind: IcebergType | None,
    conversion: Conversion,
    what: str = "the key",
    has_canonical_keys: bool = False,
) -> Decoded:
    """Returns the column `name` of the type `kind` from one JSON value per text, none of them null.

    kind: None while there is no such column: its type is inferred and requested. Paths of mismatches begin with `name`.
    what: the input, for messages.
    """
    texts, slices, error = open_any(values, conversion, has_canonical_keys)
    columns = []
    if kind is None:
        inferred = infer_type(texts, slices, (name,))
        if inferred is not None:
            conversion.request((name,), inferred)
    else:
        columns.append(read_value(texts, slices, kind, (name,)))
    if texts.has_escaped_keys and not has_canonical_keys:
        canonical = pa.array([unescape_keys(value) for value in values.to_pylist()], pa.binary())
        return decode_any(canonical, name, kind, conversion.apart(), what, has_canonical_keys=True)
    texts.refuse(slices, error, name, _faults(what))
    return replace(conversion.decoded(columns), refusals=set())  # A key changes no column of the table.


def _faults(what: str) -> dict[int, Fault]:
    return {
        scan.MALFORMED: Fault(ErrorClass.MALFORMED, f"{what} is not well-formed JSON"),
        scan.TOO_DEEP: Fault(ErrorClass.TOO_DEEP, f"{what} is nested more than {MAX_DEPTH} levels deep"),
        scan.NOT_UTF8: Fault(ErrorClass.INVALID_TEXT, f"{what} is not UTF-8"),
    }
