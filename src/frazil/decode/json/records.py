"""JSON record values to columns: one pass validates and decodes.

The scan reads every key and every value's kind, so new fields, mismatches and malformed texts are all found, for the
price of decoding alone (docs/decisions/0002). A bad record does not affect the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import IcebergType, NestedField

from frazil.decode.columns import Bodies, Decoded, Fate, Fault, bytes_of, first_mismatches, offsets_of
from frazil.decode.conversion import Conversion
from frazil.decode.json import scan
from frazil.decode.json.as_sent import unescape_keys
from frazil.decode.json.columns import read_members
from frazil.decode.json.extended import quote_bare_words
from frazil.decode.json.grammar import MAX_DEPTH, NULL, OBJECT
from frazil.decode.json.names import all_members
from frazil.decode.json.slices import MAX_MISMATCHES, Slices, Texts
from frazil.decode.settings import Reading
from frazil.error_classes import ErrorClass
from frazil.raw_memory import I32, U8
from frazil.schema.parts import Path

FAULTS = {
    scan.NOT_OBJECT: Fault(ErrorClass.NOT_AN_OBJECT, "the value is not a JSON object"),
    scan.MALFORMED: Fault(ErrorClass.MALFORMED, "the value is not well-formed JSON"),
    scan.DUPLICATE_KEY: Fault(ErrorClass.DUPLICATE_KEY, "the object has the same key twice"),
    scan.TOO_DEEP: Fault(ErrorClass.TOO_DEEP, f"the value is nested more than {MAX_DEPTH} levels deep"),
    scan.HALF_KEY: Fault(ErrorClass.INVALID_TEXT, "a key has half of a surrogate pair, which is not text"),
    scan.NOT_UTF8: Fault(ErrorClass.INVALID_TEXT, "the value is not UTF-8"),
    scan.TOMBSTONE: Fault(ErrorClass.TOMBSTONE, "the record has no value (a tombstone), so it is not a JSON object"),
}
"""The faults of an entire text, by the codes of the scan."""
_DEFAULT = Reading()
_LOOKING_UP = Reading(unknown_fields="drop")
_NULL, _SPACE = b"null", b" \t\r\n"
_MAY_BEGIN_NULL, _MAY_END_NULL = (np.frombuffer(_SPACE + _NULL[place : place + 1], np.uint8) for place in (0, 3))
_MAX_ROUNDS = 20
"""The limit on repeated decoding without contradicting records; after it all refused records are left out at once."""
Result = TypeVar("Result")


def decode_json(
    values: pa.BinaryArray, fields: tuple[NestedField, ...], reading: Reading = _DEFAULT, limit: int = MAX_MISMATCHES
) -> Decoded:
    """Decodes one JSON object per value into the columns `fields`.

    values: binary. Bad records raise nothing: they are refused; a value that does not fit is null, and so are all
    columns of a text that is no object. limit: the number of mismatches that are kept.
    """
    decoded, _ = _decode(values, fields, reading, limit)
    return (
        _without_refused(values, fields, (reading, limit), decoded)
        if decoded.requested_fields and decoded.refused.any()
        else decoded
    )


def _without_refused(
    values: pa.BinaryArray, fields: tuple[NestedField, ...], settings: tuple[Reading, int], decoded: Decoded
) -> Decoded:
    """Returns the result without the fields that only refused records request, and with types inferred without them."""
    reading, limit = settings
    alone, _ = _decode(values, fields, replace(reading, unknown_fields="drop"), limit)
    refused, mismatches = alone.refused.copy(), list(alone.mismatches)
    requested_fields: dict[Path, dict[str, IcebergType]] = {}
    for n in range(_MAX_ROUNDS):
        rows = np.flatnonzero(~refused)
        among, contradictions = _decode(values.take(pa.array(rows)), fields, reading, limit)
        requested_fields = among.requested_fields
        out = among.refused if n == _MAX_ROUNDS - 1 else _certainly_refused(contradictions, among)
        if not out.any():
            break
        refused[rows[out]] = True
        mismatches += [
            replace(mismatch, row=int(rows[mismatch.row])) for mismatch in among.mismatches if out[mismatch.row]
        ]
    in_order = first_mismatches(mismatches, limit)
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
    refused: NDArray[np.bool_] = among.refused & (certain | ~at_odds)
    if refused.any():
        return refused
    # Each contradicts another refused one: an empty object may be before the record whose text contradicts it.
    for teller, rows in contradictions:
        if teller >= 0 and not after_another[teller]:
            refused[rows[rows > teller]] = True
    return refused & among.refused


def list_paths(values: pa.BinaryArray, depth: int) -> list[tuple[Path, bool]]:
    """Returns the paths of all fields of these records, each with whether its values are objects; of objects down to
    `depth` the members too. Faulty records are ignored: they are reported when they are decoded.
    """

    def read(texts: Texts, slices: Slices, error: U8) -> list[tuple[Path, bool]]:
        paths: list[tuple[Path, bool]] = []
        waiting: list[tuple[Path, Slices, U8]] = [((), slices, error)]
        while waiting:
            path, objects, faults = waiting.pop()
            names, members = all_members(texts, objects, [], faults)
            texts.has_escaped_keys |= bool((faults == scan.ESCAPED_KEY).any())
            for name, column in zip(names, members.columns, strict=True):
                inner, is_object = (*path, name), column.kind == OBJECT
                if (~is_object & (column.kind > NULL)).any():
                    paths.append((inner, False))
                if is_object.any():
                    paths.append((inner, True))
                    if len(inner) <= depth:
                        waiting.append((inner, column.only(OBJECT), np.zeros(len(column), np.uint8)))
        return paths

    return read_objects(values, Conversion(_LOOKING_UP, "", len(values), 0), read)[0]


def _decode(
    values: pa.BinaryArray, fields: tuple[NestedField, ...], reading: Reading, limit: int
) -> tuple[Decoded, list[tuple[int, I32]]]:
    """Returns the columns, and the contradictions between records (see Texts)."""

    def read(texts: Texts, slices: Slices, error: U8) -> list[pa.Array]:
        texts.conversion.fates = np.zeros((len(Fate), len(values)), np.int32)
        return read_members(texts, slices, fields, (), error)

    columns, texts, _, error = read_objects(values, Conversion(reading, "", len(values), limit), read)
    texts.conversion.refuse_records(error, FAULTS)
    return replace(texts.conversion.decoded(columns), untyped=texts.untyped), texts.contradictions


def read_objects(
    values: pa.BinaryArray,
    conversion: Conversion,
    read: Callable[[Texts, Slices, U8], Result],
    has_canonical_keys: bool = False,
    sent: pa.BinaryArray | None = None,
) -> tuple[Result, Texts, Slices, U8]:
    """Returns the result of `read`, which is given the texts, one slice for each, and the fault of each (uint8); and these
    three, as it leaves them.

    The texts are read again, with a conversion of their own, where escaped keys or bare words must be replaced first.
    """
    texts, slices, error = open_texts(values, conversion, has_canonical_keys, sent)
    result = read(texts, slices, error)
    if (texts.has_escaped_keys or (error == scan.ESCAPED_KEY).any()) and not has_canonical_keys:
        canonical = pa.array([unescape_keys(value) for value in values.to_pylist()], pa.binary())
        return read_objects(canonical, conversion.apart(), read, True, values)
    if conversion.reading.json.is_extended and (error == scan.MALFORMED).any():
        quoted = quote_bare_words(values)
        if quoted is not None:
            return read_objects(quoted, conversion.apart(), read, has_canonical_keys)
    return result, texts, slices, error


def open_texts(
    values: pa.BinaryArray,
    conversion: Conversion | None = None,
    has_canonical_keys: bool = False,
    sent: pa.BinaryArray | None = None,
) -> tuple[Texts, Slices, U8]:
    """Returns the texts at the beginning of their decoding, the object that each of them is, and the fault of each.

    conversion: None where members are looked up and no values are read. sent: before escaped keys were replaced.
    """
    texts, slices, error = (
        _texts_of(values, conversion, has_canonical_keys, sent),
        _text_slices(values),
        _unreadable(values),
    )
    scan.scan_texts(texts.base, slices.start, slices.end, slices.kind, error)
    return texts, slices, error


def open_any(
    values: pa.BinaryArray, conversion: Conversion | None = None, has_canonical_keys: bool = False
) -> tuple[Texts, Slices, U8]:
    """Returns the same of texts that are values of any kind."""
    texts, slices, error = _texts_of(values, conversion, has_canonical_keys), _text_slices(values), _unreadable(values)
    scan.scan_any(texts.base, slices.start, slices.end, slices.kind, error, texts.stack)
    return texts, slices, error


def _texts_of(
    values: pa.BinaryArray, conversion: Conversion | None, has_canonical_keys: bool, sent: pa.BinaryArray | None = None
) -> Texts:
    conversion = conversion or Conversion(_LOOKING_UP, "", len(values), 0)
    sent = sent if conversion.reading.has_coerced else None
    starts = None if sent is None else _text_slices(values).start
    return Texts(bytes_of(values), conversion, has_canonical_keys, sent, starts)


def _text_slices(values: pa.BinaryArray) -> Slices:
    """Returns every text as one slice of unknown kind."""
    rows, offsets = len(values), offsets_of(values)
    return Slices(offsets[:-1].copy(), offsets[1:].copy(), np.zeros(rows, np.uint8), np.arange(rows, dtype=np.int32))


def are_null(texts: Bodies) -> NDArray[np.bool_]:
    """Returns which texts are the word `null`, with white space or without: bool of shape (n_texts,)."""
    are_words = np.zeros(len(texts), np.bool_)
    rows = np.flatnonzero(texts.end - texts.start >= len(_NULL))
    first, last = texts.buffer[texts.start[rows]], texts.buffer[texts.end[rows] - 1]
    for row in rows[np.isin(first, _MAY_BEGIN_NULL) & np.isin(last, _MAY_END_NULL)].tolist():
        are_words[row] = texts.buffer[texts.start[row] : texts.end[row]].tobytes().strip(_SPACE) == _NULL
    return are_words


def _unreadable(values: pa.BinaryArray) -> NDArray[Any]:
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
