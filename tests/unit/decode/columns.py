"""Short ways to decode JSON in a test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
from pyiceberg.types import IcebergType, NestedField, StructType

from frazil.decode.columns import Decoded, Mismatch
from frazil.decode.json.records import decode_json
from frazil.decode.settings import Reading
from frazil.spec.syntax.types import parse_type


def values_of(texts: Iterable[str | bytes | None]) -> pa.BinaryArray:
    """Record values as the source gives them."""
    return pa.array([text.encode() if isinstance(text, str) else text for text in texts], pa.binary())


def fields_of(columns: Mapping[str, str | IcebergType]) -> tuple[NestedField, ...]:
    """Optional fields of the types that the words spell."""
    kinds = {name: parse_type(kind) if isinstance(kind, str) else kind for name, kind in columns.items()}
    return tuple(
        NestedField(number, name, kind, required=False) for number, (name, kind) in enumerate(kinds.items(), 1)
    )


def decode(
    texts: Iterable[str | bytes | None],
    unknown_fields: str = "add",
    **columns: str | IcebergType,
) -> Decoded:
    """Decodes the texts into the columns; what comes out must be well-formed Arrow."""
    decoded = decode_json(values_of(texts), fields_of(columns), Reading(unknown_fields=unknown_fields))
    for array in decoded.columns:
        array.validate(full=True)
    return decoded


def faults(decoded: Decoded) -> list[tuple[int, str, str]]:
    """The misfits as plain tuples."""
    return [(mismatch.row, mismatch.path, mismatch.reason) for mismatch in decoded.mismatches]


def infer_json(values: pa.BinaryArray) -> tuple[StructType | None, list[Mismatch]]:
    """Returns the struct that holds every object of `values`, and a mismatch for each record without one."""
    decoded = decode_json(values, ())
    fields = decoded.requested_fields.get(())
    if not fields:
        return None, decoded.mismatches
    struct = StructType(*(NestedField(0, name, kind, required=False) for name, kind in fields.items()))
    return struct, decoded.mismatches
