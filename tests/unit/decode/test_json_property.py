"""The decoder against Python's json module, over generated records and over bytes that were damaged at random.

FRAZIL_EXAMPLES: how many times as many examples to try (`make soak` tries hundreds of times as many).
"""

from __future__ import annotations

import json
import os
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    IcebergType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

from frazil.decode.json.records import decode_json
from tests.unit.decode.columns import decode, infer_json, values_of

_TIMES = int(os.environ.get("FRAZIL_EXAMPLES", "1"))
_MODEST = settings(max_examples=20 * _TIMES, deadline=None, suppress_health_check=list(HealthCheck))
_TEXT_FAULTS = ("well-formed", "not a JSON object", "not UTF-8", "same key twice", "surrogate", "levels deep")
_names = st.text(st.characters(codec="utf-8"), max_size=4)
_texts = st.text(st.characters(codec="utf-8"), max_size=12)
_scalars: dict[type[IcebergType], st.SearchStrategy[Any]] = {
    BooleanType: st.booleans(),
    LongType: st.integers(-(2**63), 2**63 - 1),
    DoubleType: st.floats(allow_nan=False, allow_infinity=False),
    StringType: _texts,
}


@st.composite
def _kinds(draw: st.DrawFn, depth: int = 0) -> IcebergType:
    choice = draw(st.sampled_from(["scalar"] * 3 + (["list", "struct"] if depth < 3 else [])))
    if choice == "list":
        return ListType(0, draw(_kinds(depth + 1)), False)
    if choice == "struct":
        return draw(_structs(depth + 1))
    return draw(st.sampled_from(list(_scalars)))()


@st.composite
def _structs(draw: st.DrawFn, depth: int = 0) -> StructType:
    names = draw(st.lists(_names, min_size=1, max_size=4, unique=True))
    return StructType(*(NestedField(0, name, draw(_kinds(depth)), required=False) for name in names))


def _values(kind: IcebergType) -> st.SearchStrategy[Any]:
    if isinstance(kind, StructType):
        return st.fixed_dictionaries({}, optional={f.name: st.none() | _values(f.field_type) for f in kind.fields})
    if isinstance(kind, ListType):
        return st.lists(st.none() | _values(kind.element_type), max_size=3)
    return _scalars[type(kind)]


@st.composite
def _record_lists(draw: st.DrawFn) -> tuple[StructType, list[dict[str, Any]], list[bytes]]:
    kind = draw(_structs())
    records = draw(st.lists(_values(kind), max_size=8))
    ascii_only, separators = draw(st.booleans()), draw(st.sampled_from([(",", ":"), (" ,\n", " :\t")]))
    return (
        kind,
        records,
        [json.dumps(record, ensure_ascii=ascii_only, separators=separators).encode() for record in records],
    )


def _stored(kind: IcebergType, value: Any) -> Any:
    """A value as its column gives it back."""
    if value is None:
        return None
    if isinstance(kind, StructType):
        return {f.name: _stored(f.field_type, value.get(f.name)) for f in kind.fields}
    if isinstance(kind, ListType):
        return [_stored(kind.element_type, element) for element in value]
    return float(value) if isinstance(kind, DoubleType) else value


def _seen(kind: IcebergType, values: list[Any]) -> IcebergType | None:
    """The part of `kind` that `values` show."""
    there = [value for value in values if value is not None]
    if isinstance(kind, StructType):
        parts = {f.name: _seen(f.field_type, [value.get(f.name) for value in there]) for f in kind.fields}
        fields = [NestedField(0, name, part, required=False) for name, part in parts.items() if part is not None]
        return StructType(*fields) if fields else None
    if isinstance(kind, ListType):
        element = _seen(kind.element_type, [element for value in there for element in value])
        return ListType(0, element, False) if element is not None else None
    return kind if there else None


def _plain(kind: IcebergType | None) -> Any:
    """A type without the order of its fields, which is that of their first sight."""
    if isinstance(kind, StructType):
        return {f.name: _plain(f.field_type) for f in kind.fields}
    if isinstance(kind, ListType):
        return [_plain(kind.element_type)]
    return kind


@_MODEST
@given(_record_lists())
def test_generated_records_are_inferred_and_decoded_as_python_reads_them(
    generated: tuple[StructType, list[dict[str, Any]], list[bytes]],
) -> None:
    kind, _, texts = generated
    parsed = [json.loads(text) for text in texts]
    inferred, mismatches = infer_json(values_of(texts))
    assert mismatches == []
    assert _plain(inferred) == _plain(_seen(kind, parsed))
    decoded = decode_json(values_of(texts), kind.fields)
    for array in decoded.columns:
        array.validate(full=True)
    rows = [
        dict(zip([f.name for f in kind.fields], row, strict=True))
        for row in zip(*(c.to_pylist() for c in decoded.columns), strict=True)
    ]
    assert [repr(row) for row in rows] == [repr(_stored(kind, record)) for record in parsed]
    assert (decoded.mismatches, decoded.requested_fields) == ([], {})


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3),
    max_leaves=8,
)
_TOKENS = [
    b"{", b"}", b"[", b"]", b":", b",", b'"', b"\\", b"\\u", b"\\ud800", b"0", b"-", b".", b"e", b"E+", b"1e5", b" ",
    b"\n", b"\t", b"\x00", b"\x0b", b"\xa0", b"\xef\xbb\xbf", b"\xff", b"\xc3", b"\xed\xa0\x80", b"null", b"true",
    b"NaN", b"Infinity", b'"a":1,', b'"a":1', b"//", b"'", b'"\\u0061":', b"01",
]  # fmt: skip


@st.composite
def _damaged(draw: st.DrawFn) -> bytes:
    record = draw(st.dictionaries(_names | st.just("a"), _json, max_size=4))
    text = bytearray(json.dumps(record, ensure_ascii=draw(st.booleans())).encode())
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        width = draw(st.sampled_from([0, 0, 1, 1, 2, 5]))
        text[at : at + width] = draw(st.sampled_from([b"", *_TOKENS]))
    return bytes(text)


class _RefusedError(Exception):
    """The reference refuses the text."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _RefusedError("twice")
    if any("\ud800" <= c <= "\udfff" for name in found for c in name):
        raise _RefusedError("surrogate")
    return found


def _constant(name: str) -> Any:
    raise _RefusedError(name)


def _reference(text: bytes) -> dict[str, Any] | None:
    """What Python's json module, told to be strict, makes of a record; None when it is none."""
    try:
        found = json.loads(
            text.removeprefix(b"\xef\xbb\xbf").decode(), object_pairs_hook=_pairs, parse_constant=_constant
        )
    except (ValueError, _RefusedError):
        return None
    return found if isinstance(found, dict) else None


@settings(_MODEST, max_examples=40 * _TIMES)
@given(_damaged())
def test_a_damaged_record_is_refused_exactly_when_python_refuses_it(text: bytes) -> None:
    expected = _reference(text)
    decoded = decode([text], "drop", a="string")
    whole = [m for m in decoded.mismatches if m.path == ""]
    inferred = decode([text])
    if expected is None:
        assert inferred.mismatch_count == 1
    else:
        assert whole == []
        assert not [m for m in inferred.mismatches if any(words in m.reason for words in _TEXT_FAULTS)]
        columns = decode([text], "drop", a="boolean")
        assert columns.columns[0].to_pylist() == [expected["a"] if isinstance(expected.get("a"), bool) else None]


@_MODEST
@given(st.lists(_damaged(), min_size=1, max_size=6), st.booleans())
def test_a_record_s_row_is_the_same_whatever_its_neighbours_are(texts: list[bytes], add: bool) -> None:
    unknown_fields = "add" if add else "drop"
    columns = {"a": "long", "b": "struct<a: string>", "c": "list<double>", "d": "map<string,string>"}
    together = decode(texts, unknown_fields, **columns)
    for row, text in enumerate(texts):
        alone = decode([text], unknown_fields, **columns)
        assert [repr(c.to_pylist()[row]) for c in together.columns] == [repr(c.to_pylist()[0]) for c in alone.columns]
        if not add:
            # Not the reasons: they quote the record, in which escapes of keys may have been spelt out.
            assert [m.path for m in together.mismatches if m.row == row] == [m.path for m in alone.mismatches]
