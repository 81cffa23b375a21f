"""JSON record values to columns: one pass that is gate and decoder at once.

The scan knows every key and every value's kind, so drift, misfits and malformed texts are found exactly, for the price
of a decode alone (docs/decisions/0002). One bad record is named and changes no other.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import IcebergType, NestedField, StructType

from frazil.ingest.decode import json_scan as scan
from frazil.ingest.decode.json_columns import Findings, read_members
from frazil.ingest.decode.json_grammar import MAX_DEPTH
from frazil.ingest.decode.json_infer import infer_struct
from frazil.ingest.decode.slices import MAX_MISFITS, MAX_NAMES, Misfit, Slices, Texts, spell_key

_FAULTS = {
    scan.NOT_OBJECT: "the value is not a JSON object",
    scan.MALFORMED: "the value is not well-formed JSON",
    scan.DUPLICATE_KEY: "the object has the same key twice",
    scan.TOO_DEEP: f"the value is nested more than {MAX_DEPTH} levels deep",
    scan.HALF_KEY: "a key has half of a surrogate pair, which is no text",
    scan.TOO_MANY_KEYS: f"the object has one of more than {MAX_NAMES} names",
    scan.NOT_UTF8: "the value is not UTF-8",
    scan.TOMBSTONE: "the record has no value (a tombstone), so it is not a JSON object",
}
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"(\s*:)?', re.DOTALL)


@dataclass(frozen=True)
class Decoded:
    """What became of an array of record values.

    columns: one Arrow array per field asked for, as long as the input. misfits: the first values that do not fit, at
    most MAX_MISFITS, in row order; misfit_count: the records that have any. wanted: fields with their inferred types
    that the struct lacks, by path. dropped: paths of fields left out.
    """

    columns: list[pa.Array]
    misfits: list[Misfit]
    misfit_count: int
    wanted: dict[tuple[str, ...], dict[str, IcebergType]]
    dropped: set[str]


def decode_json(values: pa.BinaryArray, fields: tuple[NestedField, ...], undeclared: str = "add") -> Decoded:
    """Decodes one JSON object per value into the columns `fields`.

    values: binary. undeclared: `add` reports fields that `fields` lacks as wanted, `drop` leaves them out. Raises
    nothing for bad records: they are misfits; what does not fit is null, and of a text that is no object everything.
    """
    return _decode(values, _texts(values), fields, undeclared)


def infer_json(values: pa.BinaryArray) -> tuple[StructType | None, list[Misfit]]:
    """The struct that holds every object of `values`, and the records that have none."""
    decoded = decode_json(values, ())
    found = decoded.wanted.get(())
    if not found:
        return None, decoded.misfits
    return StructType(*(NestedField(0, name, kind, required=False) for name, kind in found.items())), decoded.misfits


def _decode(values: pa.BinaryArray, texts: Texts, fields: tuple[NestedField, ...], undeclared: str) -> Decoded:
    error = _unreadable(values)
    slices = _record_slices(values)
    scan.scan_texts(texts.base, slices.start, slices.end, slices.kind, error)
    findings = Findings(undeclared)
    columns = read_members(texts, slices, fields, findings, (), error)
    if (texts.has_slow_keys or (error == scan.SLOW_KEY).any()) and not texts.spelt_out:
        spelt = pa.array([_spell_out(value) for value in values.to_pylist()], pa.binary())
        return _decode(spelt, _texts(spelt, spelt_out=True), fields, undeclared)
    texts.refuse(slices, error, "", _FAULTS)
    misfits = sorted(texts.misfits, key=lambda misfit: misfit.row)[:MAX_MISFITS]
    return Decoded(columns, misfits, int(np.count_nonzero(texts.refused)), findings.wanted, findings.dropped)


def _texts(values: pa.BinaryArray, spelt_out: bool = False) -> Texts:
    return Texts(_buffer(values), np.zeros(len(values), np.bool_), spelt_out)


def _buffer(values: pa.BinaryArray) -> NDArray[Any]:
    buffer = values.buffers()[2]
    return np.frombuffer(buffer, np.uint8) if buffer is not None and buffer.size else np.zeros(1, np.uint8)


def _record_slices(values: pa.BinaryArray) -> Slices:
    rows = len(values)
    offsets = (
        np.frombuffer(values.buffers()[1], np.int32, rows + 1, values.offset * 4) if rows else np.zeros(1, np.int32)
    )
    kind = np.zeros(rows, np.uint8)
    return Slices(offsets[:-1].copy(), offsets[1:].copy(), kind, np.arange(rows, dtype=np.int32))


def _unreadable(values: pa.BinaryArray) -> NDArray[Any]:
    """Per record: TOMBSTONE without a value, NOT_UTF8 where the bytes are no text."""
    error = np.zeros(len(values), np.uint8)
    if values.null_count:
        error[np.asarray(values.is_null())] = scan.TOMBSTONE
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        for row, value in enumerate(values.to_pylist()):
            if value is not None and not _is_utf8(value):
                error[row] = scan.NOT_UTF8
    return error


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _spell_out(value: bytes | None) -> bytes | None:
    """The same text with every key in canonical escapes, so that equal keys are equal bytes."""
    if value is None or b"\\" not in value:
        return value
    try:
        return _STRING.sub(_spell_key, value)
    except ValueError:
        return value  # It is no JSON, and the scan will say so.


def _spell_key(match: re.Match[bytes]) -> bytes:
    if match.group(1) is None:
        return match.group()
    key = json.loads(match.group()[: -len(match.group(1))].decode())
    return b'"' + spell_key(key) + b'"' + match.group(1)


__all__ = ["Decoded", "Misfit", "decode_json", "infer_json", "infer_struct"]
