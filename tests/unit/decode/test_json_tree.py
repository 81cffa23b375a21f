"""Objects inside objects: taken apart in one pass, they give what a pass for each of them gives."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.types import NestedField

from frazil.decode.columns import Decoded
from frazil.decode.json.records import decode_json
from frazil.decode.settings import Reading
from frazil.schema.selection import Selection
from frazil.spec.syntax.types import parse_type
from tests.unit.decode.columns import values_of

_TIMES = int(os.environ.get("FRAZIL_EXAMPLES", "1"))
_COLUMNS = {
    "id": "long",
    "n": "int",
    "x": "double",
    "f": "float",
    "t": "string",
    "longer_than_one_word": "boolean",
    "o": "struct<id: long, t: string, p: struct<n: int, x: double, l: list<long>>, l: list<struct<id: long, t: string>>>",
    "l": "list<list<double>>",
    "m": "map<string, long>",
}
# A field that no record has, left out: then each level of objects gets a pass of its own.
_LEVEL_BY_LEVEL = Selection((), (("nobody",),))
_FIELDS = tuple(
    NestedField(number, name, parse_type(text), required=False)
    for number, (name, text) in enumerate(_COLUMNS.items(), 1)
)
_numbers = st.integers(-(2**64), 2**64) | st.integers(-20, 20) | st.floats(allow_nan=False, allow_infinity=False)
_scalars = st.none() | st.booleans() | _numbers | st.text(st.characters(codec="utf-8"), max_size=20)


def _object(conversion: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """Mostly objects with these members, some absent; at times one member more, or something else."""
    members = {name: st.one_of(kind, kind, kind, kind, kind, _scalars) for name, kind in conversion.items()}
    objects = st.fixed_dictionaries({}, optional=members)
    more = st.tuples(objects, st.sampled_from(["new", "é\t", "id2"]), _scalars).map(lambda t: {**t[0], t[1]: t[2]})
    return st.one_of(objects, objects, objects, more)


_longs = st.integers(-(2**63), 2**63 - 1)
_ints = st.integers(-(2**31), 2**31 - 1)
_texts = st.text(st.characters(codec="utf-8"), max_size=20)
_doubles = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-999, 999).map(lambda n: n / 100)
_part = _object({"n": _ints, "x": _doubles, "l": st.lists(_longs, max_size=9)})
_inner = _object(
    {"id": _longs, "t": _texts, "p": _part, "l": st.lists(_object({"id": _longs, "t": _texts}), max_size=3)}
)
_record = _object(
    {
        "id": _longs,
        "n": _ints,
        "x": _doubles,
        "f": st.floats(width=32, allow_nan=False, allow_infinity=False),
        "t": _texts,
        "longer_than_one_word": st.booleans(),
        "o": _inner,
        "l": st.lists(st.lists(_doubles, max_size=3), max_size=3),
        "m": st.dictionaries(_texts, _longs, max_size=3),
    }
)
_DAMAGE = [
    b"", b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"0", b"-", b".", b"e1", b" ", b"null", b"true", b"\xff",
    b'"id":1,', b'"t":"x",', b'"p":{"n":1},', b'"o":{},', b'"l":[1],', b'"\\u0069d":1,', b"[" * 600, b'{"p":' * 600,
]  # fmt: skip


@st.composite
def _values(draw: st.DrawFn) -> list[bytes]:
    """Records, one in four of them damaged."""
    texts = []
    for record in draw(st.lists(_record, min_size=1, max_size=8)):
        separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\t")]))
        text = bytearray(json.dumps(record, ensure_ascii=draw(st.booleans()), separators=separators).encode())
        for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
            at = draw(st.integers(0, len(text)))
            width = draw(st.sampled_from([0, 0, 1, 3]))
            text[at : at + width] = draw(st.sampled_from(_DAMAGE))
        texts.append(bytes(text))
    return texts


def _outcome(decoded: Decoded) -> dict[str, Any]:
    for array in decoded.columns:
        array.validate(full=True)
    return {
        "columns": [repr(array.to_pylist()) for array in decoded.columns],
        "refused": decoded.refused.tolist(),
        "mismatches": sorted(map(repr, decoded.mismatches)),
        "wanted": {path: dict(sorted(members.items())) for path, members in decoded.requested_fields.items()},
        "dropped": decoded.dropped,
        "rescued": None if decoded.rescued is None else decoded.rescued.to_pylist(),
    }


@settings(max_examples=40 * _TIMES, deadline=None, suppress_health_check=list(HealthCheck))
@given(_values(), st.sampled_from(["add", "drop", "rescue", "refuse"]), st.booleans())
def test_one_pass_finds_what_a_pass_for_each_level_finds(texts: list[bytes], unknown_fields: str, rescue: bool) -> None:
    reading = Reading(unknown_fields=unknown_fields, is_rescuing=rescue)
    by_level = Reading(unknown_fields=unknown_fields, is_rescuing=rescue, selection=_LEVEL_BY_LEVEL)
    assert _outcome(decode_json(values_of(texts), _FIELDS, reading, 1000)) == _outcome(
        decode_json(values_of(texts), _FIELDS, by_level, 1000)
    )


def test_lists_with_more_elements_than_there_is_room_for_are_read_by_a_pass_of_their_own() -> None:
    texts = [json.dumps({"l": [[n]] * (n % 50), "o": {"l": [{"id": n}] * (n % 40)}}).encode() for n in range(200)]
    texts.append(b'{"l": [%b[]]}' % (b"[]," * 20_000))
    decoded = decode_json(values_of(texts), _FIELDS)
    assert not decoded.refused.any()
    columns = dict(zip(_COLUMNS, decoded.columns, strict=True))
    assert columns["l"].to_pylist() == [[[float(n)]] * (n % 50) for n in range(200)] + [[[]] * 20_001]
    inner = [row["l"] if row else None for row in columns["o"].to_pylist()]
    assert [None if row is None else [e["id"] for e in row] for row in inner] == [
        *([n] * (n % 40) for n in range(200)),
        None,
    ]


def test_a_value_of_another_kind_changes_no_neighbour() -> None:
    wrong = [b"1.5", b"7", b"true", b'"x"', b"[1]", b'{"a": 1}']
    texts = [b'{"x": 1.25, "l": [[1]], "o": {"p": {"x": 2.5, "l": [1]}}}'] * 3
    for name in _COLUMNS:
        for value in wrong:
            decoded = decode_json(values_of([*texts, b'{"%b": %b}' % (name.encode(), value), *texts]), _FIELDS)
            columns = dict(zip(_COLUMNS, decoded.columns, strict=True))
            good = [0, 1, 2, 4, 5, 6]
            assert [columns["x"][row].as_py() for row in good] == [1.25] * 6
            assert [columns["o"][row].as_py()["p"]["x"] for row in good] == [2.5] * 6
            assert [columns["l"][row].as_py() for row in good] == [[[1.0]]] * 6
            assert not decoded.refused[good].any()


def test_objects_that_are_left_keep_the_order_of_the_rows_of_their_lists() -> None:
    texts = [b'{"o": {%b"p": {"l": [%d]}}}' % (b'"new": 1, ' if n % 3 == 0 else b"", n) for n in range(50)]
    decoded = decode_json(values_of(texts), _FIELDS, Reading(unknown_fields="drop"))
    inner = dict(zip(_COLUMNS, decoded.columns, strict=True))["o"]
    assert [row["p"]["l"] for row in inner.to_pylist()] == [[n] for n in range(50)]
    assert decoded.dropped == {"o.new"}


def test_a_column_without_nulls_has_no_bitmap() -> None:
    texts = [b'{"id": 1, "x": 2, "t": "a", "o": {"id": 3}}', b'{"id": 4, "x": null, "t": "b", "o": {"id": 5}}']
    columns = dict(zip(_COLUMNS, decode_json(values_of(texts), _FIELDS).columns, strict=True))
    has_bitmap = {name: columns[name].buffers()[0] is not None for name in ("id", "x", "t", "o")}
    assert has_bitmap == {"id": False, "x": True, "t": False, "o": False}
    assert columns["o"].field("id").equals(columns["o"].field("id").cast("int64"))
    assert np.asarray(columns["o"].field("id")).tolist() == [3, 5]
