"""Any mix of Canal's messages is read as plain Python reads them one by one.

FRAZIL_EXAMPLES: how many times as many examples to try.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.cdc.changes import read_envelope
from frazil.decode.settings import Envelope
from frazil.stages.changes import DELETE
from tests.unit.cdc.canal_reference import COLUMNS, Message, Row, expected_changes
from tests.unit.cdc.envelope_reference import records_of, target_for

_EXAMPLES = int(os.environ.get("FRAZIL_EXAMPLES", "1"))
_TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", 'q"\\', "ü", "\u4e2d", "null", "1"]))
_BYTES = st.one_of(st.none(), st.binary(max_size=4).map(lambda raw: raw.decode("latin-1")))
_PRICES = st.one_of(st.none(), st.sampled_from(["0.00", "-12345678.90", "99999999.99", "1", "1.5"]))
_TIMES = st.one_of(
    st.none(), st.sampled_from(["2020-01-02 03:04:05", "1969-12-31 23:59:59.999999", "9999-12-31 23:59:59.1"])
)
_BIGS = st.one_of(st.none(), st.sampled_from(["0", "18446744073709551615", "9223372036854775808"]))


@st.composite
def _rows(draw: st.DrawFn) -> Row:
    return {
        "id": str(draw(st.integers(-2, 3))),
        "name": draw(_TEXTS),
        "price": draw(_PRICES),
        "at": draw(_TIMES),
        "raw": draw(_BYTES),
        "big": draw(_BIGS),
    }


@st.composite
def _messages(draw: st.DrawFn) -> Message:
    kind = draw(st.sampled_from(["INSERT", "UPDATE", "UPDATE", "DELETE", "ALTER", "QUERY"]))
    if kind in ("ALTER", "QUERY"):
        return Message(kind, None, more={"isDdl": kind == "ALTER", "sql": "alter table t"})
    data = draw(st.lists(_rows(), min_size=1, max_size=4))
    old = None
    if kind == "UPDATE" and draw(st.booleans()):
        old = [draw(_changed()) for _ in data]
    return Message(kind, data, old)


@st.composite
def _changed(draw: st.DrawFn) -> Row | None:
    row = draw(_rows())
    names = draw(st.sets(st.sampled_from(list(row)), max_size=3))
    return {name: row[name] for name in names}


_USES = [
    pytest.param({}, id="append"),
    pytest.param({"is_log": True}, id="log"),
    pytest.param({"is_upsert": True, "keys": (("id",),)}, id="upsert"),
]


@pytest.mark.parametrize("use", _USES)
@given(messages=st.lists(_messages(), max_size=8))
@settings(max_examples=30 * _EXAMPLES, deadline=None)
def test_canal(use: dict[str, Any], messages: list[Message]) -> None:
    envelope = replace(Envelope("canal"), **use)
    target = target_for(envelope, COLUMNS)
    changes = read_envelope(target, records_of([message.value() for message in messages]))
    assert changes.decoded.mismatches == []
    assert changes.decoded.requested_fields == {}
    table = pa.table(changes.columns, names=list(COLUMNS)).to_pylist()
    found = []
    for row, record, op in zip(table, changes.records.tolist(), changes.ops.tolist(), strict=True):
        found.append((record, op, row if op != DELETE else {**dict.fromkeys(row), "id": row["id"]}))
    assert found == expected_changes(messages, envelope)


@given(messages=st.lists(_messages(), min_size=1, max_size=6))
@settings(max_examples=20 * _EXAMPLES, deadline=None)
def test_the_columns_that_messages_ask_for_hold_all_of_them(messages: list[Message]) -> None:
    envelope, records = Envelope("canal", is_log=True), records_of([message.value() for message in messages])
    requested_fields = read_envelope(target_for(envelope, {}), records).decoded.requested_fields.get((), {})
    assert {name: str(kind).replace(", ", ",") for name, kind in requested_fields.items()} == (
        COLUMNS if any(message.data for message in messages) else {}
    )
    again = read_envelope(target_for(envelope, requested_fields), records)
    assert (again.decoded.requested_fields, again.decoded.mismatches) == ({}, [])
