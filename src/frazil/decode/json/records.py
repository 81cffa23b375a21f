"""JSON record values to columns: one pass validates and decodes.

The scan reads every key and every value's kind, so new fields, mismatches and malformed texts are all found, for the
price of decoding alone (docs/decisions/0002). A bad record does not affect the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import IcebergType, NestedField, StructType

from frazil.decode.columns import Bodies, Decoded, Fate, Fault, Mismatch, bytes_of, first_mismatches, offsets_of
from frazil.decode.conversion import NOT_ADDED
from frazil.decode.json import scan
from frazil.decode.json.as_sent import unescape_keys
from frazil.decode.json.columns import Findings, read_members
from frazil.decode.json.extended import quote_bare_words
from frazil.decode.json.grammar import MAX_DEPTH, NULL, OBJECT
from frazil.decode.json.names import all_members
from frazil.decode.json.slices import JsonOptions, Slices, Texts
from frazil.decode.rescue import rescued_column
from frazil.error_classes import ErrorClass
from frazil.raw_memory import I32
from frazil.schema.parts import Path

FAULTS = {
    scan.NOT_OBJECT: Fault(ErrorClass.NOT_AN_OBJECT, "the value is not a JSON object"),
    scan.MALFORMED: Fault(ErrorClass.MALFORMED, "the value is not well-formed JSON"),
    scan.DUPLICATE_KEY: Fault(ErrorClass.DUPLICATE_KEY, "the object has the same key twice"),
    scan.TOO_DEEP: Fault(ErrorClass.TOO_DEEP, f"the value is nested more than {MAX_DEPTH} levels deep"),
    scan.HALF_KEY: Fault(ErrorClass.INVALID_TEXT, "a key has half of a surrogate pair, which is no text"),
    scan.NOT_UTF8: Fault(ErrorClass.INVALID_TEXT, "the value is not UTF-8"),
    scan.TOMBSTONE: Fault(ErrorClass.TOMBSTONE, "the record has no value (a tombstone), so it is not a JSON object"),
}
"""The faults of an entire text, by the codes of the scan."""
_DEFAULT = JsonOptions()
_NULL, _SPACE = b"null", b" \t\r\n"
_MAY_BEGIN_NULL, _MAY_END_NULL = (np.frombuffer(_SPACE + _NULL[place : place + 1], np.uint8) for place in (0, 3))
_MAX_ROUNDS = 20
"""The limit on repeated decoding without contradicting records; after it all refused records are left out at once."""


def decode_json(values: pa.BinaryArray, fields: tuple[NestedField, ...], options: JsonOptions = _DEFAULT) -> Decoded:
    """Decodes one JSON object per value into the columns `fields`.

    values: binary. Bad records raise nothing: they are refused; a value that does not fit is null, and so are all
    columns of a text that is no object.
    """
    decoded = _decode(values, texts_of(values, options), fields, options)
    return (
        _without_refused(values, fields, options, decoded)
        if decoded.requested_fields and decoded.refused.any()
        else decoded
    )


def _without_refused(
    values: pa.BinaryArray, fields: tuple[NestedField, ...], options: JsonOptions, decoded: Decoded
) -> Decoded:
    """Returns the result without the fields that only refused records request, and with types inferred without them."""
    alone = _decode(values, texts_of(values, options), fields, replace(options, unknown_fields="drop"))
    refused, mismatches = alone.refused.copy(), list(alone.mismatches)
    requested_fields: dict[Path, dict[str, IcebergType]] = {}
    for n in range(_MAX_ROUNDS):
        rows = np.flatnonzero(~refused)
        remaining = values.take(pa.array(rows))
        texts = texts_of(remaining, options)
        among = _decode(remaining, texts, fields, options)
        requested_fields = among.requested_fields
        out = among.refused if n == _MAX_ROUNDS - 1 else _certainly_refused(texts.contradictions, among)
        if not out.any():
            break
        refused[rows[out]] = True
        mismatches += [
            replace(mismatch, row=int(rows[mismatch.row])) for mismatch in among.mismatches if out[mismatch.row]
        ]
    in_order = first_mismatches(mismatches, options.limit)
    return replace(decoded, refused=refused, mismatches=in_order, requested_fields=requested_fields)


def _certainly_refused(contradictions: Sequence[tuple[int, I32]], among: Decoded) -> NDArray[np.bool_]:
    """Returns the refused records except those that contradict only another refused one: the result is as if the records
    had been read one after another.
    """
    at_odds = np.zeros(among.refused.size, np.bool_)
    certain, after_another = at_odds.copy(), at_odds.copy()
    for teller, rows in contradictions:
        at_odds[rows] = True
        after_another[rows[rows > teller]] = True
        if teller < 0 or not among.refused[teller]:
            certain[rows] = True
        certain[rows[rows == teller]] = True  # As a list of numbers and texts.
    found: NDArray[np.bool_] = among.refused & (certain | ~at_odds)
    if found.any():
        return found
    # Each contradicts another refused one: an empty object may be before the record whose text contradicts it.
    for teller, rows in contradictions:
        if teller >= 0 and not after_another[teller]:
            found[rows[rows > teller]] = True
    return found & among.refused


def infer_json(values: pa.BinaryArray) -> tuple[StructType | None, list[Mismatch]]:
    """Returns the struct that holds every object of `values`, and a mismatch for each record without one."""
    decoded = decode_json(values, ())
    found = decoded.requested_fields.get(())
    if not found:
        return None, decoded.mismatches
    return StructType(*(NestedField(0, name, kind, required=False) for name, kind in found.items())), decoded.mismatches


def list_paths(values: pa.BinaryArray, depth: int) -> list[tuple[Path, bool]]:
    """Returns the paths of all fields of these records, each with whether its values are objects; of objects down to
    `depth` the members too. Faulty records are ignored: they are reported when they are decoded.
    """
    return _list_paths(values, texts_of(values, JsonOptions()), depth)


def _list_paths(values: pa.BinaryArray, texts: Texts, depth: int) -> list[tuple[Path, bool]]:
    error = unreadable(values)
    slices = text_slices(values)
    scan.scan_texts(texts.base, slices.start, slices.end, slices.kind, error)
    found: list[tuple[Path, bool]] = []
    waiting: list[tuple[Path, Slices, NDArray[Any]]] = [((), slices, error)]
    while waiting:
        path, objects, error = waiting.pop()
        names, members = all_members(texts, objects, [], error)
        if (error == scan.ESCAPED_KEY).any() and not texts.has_canonical_keys:
            canonical = pa.array([unescape_keys(value) for value in values.to_pylist()], pa.binary())
            return _list_paths(canonical, texts_of(canonical, JsonOptions(), has_canonical_keys=True), depth)
        for name, column in zip(names, members.columns, strict=True):
            inner, is_object = (*path, name), column.kind == OBJECT
            if (~is_object & (column.kind > NULL)).any():
                found.append((inner, False))
            if is_object.any():
                found.append((inner, True))
                if len(inner) <= depth:
                    waiting.append((inner, column.only(OBJECT), np.zeros(len(column), np.uint8)))
    return found


def _decode(values: pa.BinaryArray, texts: Texts, fields: tuple[NestedField, ...], options: JsonOptions) -> Decoded:
    error = unreadable(values)
    slices = text_slices(values)
    scan.scan_texts(texts.base, slices.start, slices.end, slices.kind, error)
    findings = Findings(options.unknown_fields, rejected=options.rejected)
    texts.fates = np.zeros((len(Fate), len(values)), np.int32)
    columns = read_members(texts, slices, fields, findings, (), error)
    if (texts.has_escaped_keys or (error == scan.ESCAPED_KEY).any()) and not texts.has_canonical_keys:
        canonical = pa.array([unescape_keys(value) for value in values.to_pylist()], pa.binary())
        again = texts_of(canonical, options, has_canonical_keys=True, sent=values)
        return _decode(canonical, _instead_of(texts, again), fields, options)
    if options.is_extended and (error == scan.MALFORMED).any():
        quoted = quote_bare_words(values)
        if quoted is not None:
            again = texts_of(quoted, options, texts.has_canonical_keys)
            return _decode(quoted, _instead_of(texts, again), fields, options)
    texts.refuse(slices, error, "", FAULTS, is_whole=True)
    return Decoded(
        columns=columns,
        refused=texts.refused,
        mismatches=first_mismatches(texts.mismatches, options.limit),
        requested_fields=findings.requested_fields,
        dropped=findings.dropped,
        rescued=rescued_column(texts, len(values)) if texts.rescued or texts.unknown_fields else None,
        refusals={f"column {path}: the field is {NOT_ADDED}" for path in findings.refusals},
        fates=texts.fates,
    )


def _instead_of(texts: Texts, again: Texts) -> Texts:
    """Returns texts of the same records that are read from the beginning: theirs are the contradictions."""
    texts.contradictions.clear()
    return replace(again, contradictions=texts.contradictions)


def texts_of(
    values: pa.BinaryArray, options: JsonOptions, has_canonical_keys: bool = False, sent: pa.BinaryArray | None = None
) -> Texts:
    """Returns the texts at the beginning of their decoding. sent: before escaped keys were replaced."""
    sent = sent if options.coerced else None
    starts = None if sent is None else text_slices(values).start
    refused = np.zeros(len(values), np.bool_)
    return Texts(bytes_of(values), refused, options, has_canonical_keys, sent, starts)


def text_slices(values: pa.BinaryArray) -> Slices:
    """Returns every text as one slice of unknown kind."""
    rows, offsets = len(values), offsets_of(values)
    return Slices(offsets[:-1].copy(), offsets[1:].copy(), np.zeros(rows, np.uint8), np.arange(rows, dtype=np.int32))


def are_null(texts: Bodies) -> NDArray[np.bool_]:
    """Returns which texts are the word `null`, with white space or without: bool of shape (n_texts,)."""
    found = np.zeros(len(texts), np.bool_)
    rows = np.flatnonzero(texts.end - texts.start >= len(_NULL))
    first, last = texts.buffer[texts.start[rows]], texts.buffer[texts.end[rows] - 1]
    for row in rows[np.isin(first, _MAY_BEGIN_NULL) & np.isin(last, _MAY_END_NULL)].tolist():
        found[row] = texts.buffer[texts.start[row] : texts.end[row]].tobytes().strip(_SPACE) == _NULL
    return found


def unreadable(values: pa.BinaryArray) -> NDArray[Any]:
    """Returns for each record TOMBSTONE without a value, NOT_UTF8 where the bytes are no text: uint8 of shape
    (n_records,).
    """
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


__all__ = ["Decoded", "JsonOptions", "Mismatch", "decode_json", "infer_json", "unescape_keys"]
