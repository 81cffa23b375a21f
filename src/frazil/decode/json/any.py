"""JSON texts of any type, as those of keys and headers: each entire text becomes a value of one column."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.types import IcebergType

from frazil.decode.columns import Decoded, Fault, first_mismatches
from frazil.decode.json import scan
from frazil.decode.json.columns import Findings, read_value
from frazil.decode.json.grammar import MAX_DEPTH
from frazil.decode.json.infer import infer_type
from frazil.decode.json.records import text_slices, texts_of, unescape_keys, unreadable
from frazil.decode.json.slices import JsonOptions
from frazil.error_classes import ErrorClass


def decode_any(
    values: pa.BinaryArray,
    name: str,
    kind: IcebergType | None,
    options: JsonOptions,
    what: str = "the key",
    has_canonical_keys: bool = False,
) -> Decoded:
    """Returns the column `name` of the type `kind` from one JSON value per text, none of them null.

    kind: None while there is no such column: its type is inferred and requested. Paths of mismatches begin with `name`.
    what: the input, for messages.
    """
    texts, error, slices = texts_of(values, options, has_canonical_keys), unreadable(values), text_slices(values)
    scan.scan_any(texts.base, slices.start, slices.end, slices.kind, error, texts.stack)
    findings = Findings(options.unknown_fields, rejected=options.rejected)
    columns = []
    if kind is None:
        inferred = infer_type(texts, slices, (name,))
        if inferred is not None:
            findings.requested_fields[()] = {name: inferred}
    else:
        columns.append(read_value(texts, slices, kind, findings, (name,)))
    if texts.has_escaped_keys and not has_canonical_keys:
        canonical = pa.array([unescape_keys(value) for value in values.to_pylist()], pa.binary())
        return decode_any(canonical, name, kind, options, what, has_canonical_keys=True)
    texts.refuse(slices, error, name, _faults(what))
    mismatches = first_mismatches(texts.mismatches, options.limit)
    return Decoded(columns, texts.refused, mismatches, findings.requested_fields, dropped=findings.dropped)


def _faults(what: str) -> dict[int, Fault]:
    return {
        scan.MALFORMED: Fault(ErrorClass.MALFORMED, f"{what} is not well-formed JSON"),
        scan.TOO_DEEP: Fault(ErrorClass.TOO_DEEP, f"{what} is nested more than {MAX_DEPTH} levels deep"),
        scan.NOT_UTF8: Fault(ErrorClass.INVALID_TEXT, f"{what} is not UTF-8"),
    }
