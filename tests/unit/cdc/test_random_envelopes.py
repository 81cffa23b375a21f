"""Whatever a value is: no record is lost, none is counted twice, none changes another.

FRAZIL_EXAMPLES: how many times as many examples to try.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.cdc.changes import read_envelope
from frazil.decode.settings import PLACEHOLDER, Envelope, Reading
from frazil.schema.arrow import Records
from tests.needs import OF_FORMATS, needs
from tests.unit.cdc.envelope_reference import COLUMNS, as_rows, records_of, target_for

_TIMES = int(os.environ.get("FRAZIL_EXAMPLES", "1"))
_WORDS = st.sampled_from(
    ["c", "u", "d", "r", "t", "m", "x", "", "insert", "update", "delete", "I", "D", "INSERT", "UPDATE", "DELETE",
     "TRUNCATE", PLACEHOLDER]
)  # fmt: skip
_LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.floats(-2, 2), _WORDS)
_ROWS = st.dictionaries(st.sampled_from(["id", "name", "tags", "inner", "new"]), _LEAVES, max_size=4)
_MEMBERS = st.one_of(_LEAVES, _ROWS, st.lists(_ROWS, max_size=2), _ROWS.map(json.dumps))
_NAMES = st.sampled_from(
    ["op", "before", "after", "source", "transaction", "ts_ms", "payload", "schema", "__op", "__deleted", "status",
     "event_count", "databaseName", "ddl", "type", "data", "old", "ts", "xid", "ops", "id", "name", "isDdl",
     "mysqlType", "pkNames", "es", "metadata", "before-image", "specversion", "source"]
)  # fmt: skip
_OBJECTS = st.dictionaries(_NAMES, _MEMBERS, max_size=6)
_GOOD = st.fixed_dictionaries(
    {"op": st.sampled_from("curd"), "before": st.fixed_dictionaries({"id": st.integers(0, 3)}),
     "after": st.fixed_dictionaries({"id": st.integers(0, 3), "name": _WORDS})}
)  # fmt: skip
_DMS = st.fixed_dictionaries(
    {"data": _ROWS, "metadata": st.fixed_dictionaries({"operation": _WORDS}, optional={"timestamp": _LEAVES})},
    optional={"before-image": _MEMBERS},
)
_LISTS = st.lists(st.one_of(st.none(), _ROWS, st.dictionaries(st.sampled_from(["id", "name"]), _WORDS)), max_size=3)
_MANY = st.fixed_dictionaries(
    {"type": st.sampled_from(["INSERT", "UPDATE", "DELETE"]), "data": _LISTS, "mysqlType": st.one_of(st.none(), _ROWS)},
    optional={"old": _LISTS, "pkNames": st.just(["id"]), "es": _LEAVES},
)
_VALUES = st.one_of(
    st.none(),
    st.binary(max_size=12),
    st.one_of(_OBJECTS, _GOOD, _MANY, _DMS, st.fixed_dictionaries({"payload": _OBJECTS, "schema": st.none()})).map(
        lambda value: json.dumps(value, separators=(",", ":")).encode()
    ),
)
_KEYED = (("id",),)
_EVERY_MISMATCH = 2**31
"""Of the rows of a few messages there may be more mismatches than are kept otherwise."""
ENVELOPES = [
    Envelope(kind, *words, **use)
    for kind, words in (
        ("debezium", ()),
        ("maxwell", ()),
        ("canal", ()),
        ("dms", ()),
        ("operation", ("ops", ("I", "c"), ("u",), ("D", "d"))),
    )
    for use in ({}, {"is_log": True}, {"is_upsert": True, "keys": _KEYED})
] + [Envelope("cloudevents"), Envelope("outbox")]
CASES = [
    pytest.param(
        one,
        marks=needs(OF_FORMATS[one.kind]) if one.kind in OF_FORMATS else (),
        id=f"{one.kind} {one.is_log} {one.is_upsert}",
    )
    for one in ENVELOPES
]


def _records(values: list[bytes | None]) -> Records:
    """Records with headers of CloudEvents and of routed events at some of them: by their size, as each is read alone too."""
    kinds = [dict[str, bytes](), {"ce_specversion": b"1.0", "ce_id": b"1"}, {"id": b"1"}]
    headers = [kinds[len(value or b"") % 3] for value in values]
    return {**records_of(values, headers), "key": pa.array([b'{"id":"1"}'] * len(values), pa.binary())}


@pytest.mark.parametrize("envelope", CASES)
@given(values=st.lists(_VALUES, max_size=8))
@settings(max_examples=10 * _TIMES, deadline=None)
def test_every_record_is_a_change_a_bad_record_or_skipped(envelope: Envelope, values: list[bytes | None]) -> None:
    target = target_for(envelope, COLUMNS, ("op", "image") if envelope.is_log else ())
    records = _records(values)
    changes = read_envelope(target, records, _EVERY_MISMATCH)
    changed = set(changes.records.tolist())
    refused = set(changes.decoded.refused.nonzero()[0].tolist())
    assert not changed & refused
    assert len(changed) + len(refused) + sum(changes.ignored_records.values()) == len(values)
    assert {one.row for one in changes.decoded.mismatches} == refused
    assert all(len(column) == changes.records.size for column in [*changes.columns, *changes.own.values()])


@pytest.mark.parametrize("envelope", CASES)
@given(values=st.lists(_VALUES, min_size=1, max_size=5))
@settings(max_examples=10 * _TIMES, deadline=None)
def test_a_record_is_read_as_it_is_read_alone(envelope: Envelope, values: list[bytes | None]) -> None:
    """By the columns that there are: what type a new one gets, all records of a batch decide together."""
    target = target_for(envelope, reading=Reading(on_bad="dead_letter", unknown_fields="drop"))
    together = read_envelope(target, _records(values))
    alone: list[Any] = []
    for n, value in enumerate(values):
        changes = read_envelope(target, _records([value]))
        alone += [(n, *rest) for _, *rest in as_rows(target, changes)]
        assert changes.decoded.refused[0] == together.decoded.refused[n]
    assert as_rows(target, together) == alone
