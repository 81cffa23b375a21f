"""Any mix of change messages is read as plain Python reads them one by one.

FRAZIL_EXAMPLES: how many times as many examples to try.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.cdc.changes import read_envelope
from frazil.decode.settings import PLACEHOLDER, Envelope
from tests.needs import needs
from tests.unit.cdc.envelope_reference import (
    COLUMNS,
    ENVELOPES,
    Message,
    as_rows,
    expected_changes,
    records_of,
    target_for,
)

_TIMES = int(os.environ.get("FRAZIL_EXAMPLES", "1"))
_KEYS = (("id",),)
_TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", 'q"\\', "ü", PLACEHOLDER[:-1], "before"]))
_DEBEZIUM = st.sampled_from(["plain", "schema", "flat"])


@st.composite
def _rows(draw: st.DrawFn, has_unsent: bool) -> dict[str, Any]:
    unsent = st.sampled_from([True, False, False]) if has_unsent else st.just(False)
    return {
        "id": draw(st.integers(0, 3)),
        "name": PLACEHOLDER if draw(unsent) else draw(_TEXTS),
        "tags": [PLACEHOLDER] if draw(unsent) else draw(st.one_of(st.none(), st.lists(_TEXTS, max_size=2))),
        "inner": draw(st.one_of(st.none(), st.fixed_dictionaries({"a": st.one_of(st.none(), st.integers(0, 5))}))),
    }


@st.composite
def _messages(draw: st.DrawFn, forms: st.SearchStrategy[str], is_debezium: bool) -> Message:
    form = draw(forms)
    ops = ["c", "u", "u", "d"] + (
        ["r", "t", "heartbeat", "tombstone"] if is_debezium and form != "flat" else ["tombstone"]
    )
    op = draw(st.sampled_from(ops))
    before, after = draw(_rows(False)), draw(_rows(is_debezium and op == "u"))
    has_before = op == "d" or form == "maxwell" or (op == "u" and draw(st.booleans()))
    return Message(
        op,
        before if has_before and op in "ud" else None,
        after if op in "cru" else None,
        "plain" if op == "heartbeat" else form,
    )


def _check(messages: list[Message], envelope: Envelope) -> None:
    target = target_for(envelope)
    changes = read_envelope(target, records_of([message.value() for message in messages]))
    assert changes.decoded.mismatches == []
    assert as_rows(target, changes) == expected_changes(messages, envelope)
    assert changes.decoded.requested_fields == {}


_USES = [
    pytest.param({}, id="append"),
    pytest.param({"is_log": True}, id="log"),
    pytest.param({"is_upsert": True, "keys": _KEYS}, id="upsert"),
]


@pytest.mark.parametrize("use", _USES)
@given(messages=st.lists(_messages(_DEBEZIUM, True), max_size=12))
@settings(max_examples=20 * _TIMES, deadline=None)
def test_debezium(use: dict[str, Any], messages: list[Message]) -> None:
    _check(messages, replace(Envelope("debezium"), **use))


@pytest.mark.parametrize("use", _USES)
@given(messages=st.lists(_messages(st.just("maxwell"), False), max_size=12))
@settings(max_examples=12 * _TIMES, deadline=None)
@needs("cdc")
def test_maxwell(use: dict[str, Any], messages: list[Message]) -> None:
    _check(messages, replace(ENVELOPES["maxwell"], **use))


@pytest.mark.parametrize("use", _USES)
@given(messages=st.lists(_messages(st.just("operation"), False), max_size=12))
@settings(max_examples=12 * _TIMES, deadline=None)
def test_a_field_of_the_row(use: dict[str, Any], messages: list[Message]) -> None:
    _check(messages, replace(ENVELOPES["operation"], **use))


@given(messages=st.lists(_messages(_DEBEZIUM, True), min_size=1, max_size=12))
@settings(max_examples=20 * _TIMES, deadline=None)
def test_the_columns_that_records_ask_for_hold_all_of_them(messages: list[Message]) -> None:
    envelope = Envelope("debezium", is_log=True)
    requested_fields = read_envelope(
        target_for(envelope, {}), records_of([message.value() for message in messages])
    ).decoded.requested_fields
    assert set(requested_fields.get((), {})) <= set(COLUMNS)
    target = target_for(envelope, requested_fields.get((), {}))
    again = read_envelope(target, records_of([message.value() for message in messages]))
    assert again.decoded.requested_fields == {}
