"""Values that a source has not sent, as they are in JSON and in columns."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from frazil.cdc.changes import read_envelope
from frazil.cdc.placeholders import find_unsent, json_forms
from frazil.decode.settings import PLACEHOLDER, Envelope
from tests.unit.cdc.envelope_messages import AVRO, UPSERT_ENVELOPE, avro, debezium, read_changes
from tests.unit.cdc.envelope_reference import target_for


@pytest.mark.parametrize("form", json_forms(PLACEHOLDER), ids=lambda form: form[:30].decode())
def test_a_value_that_was_not_sent_is_known_in_every_form_that_json_has_for_it(form: bytes) -> None:
    values = [b'{"op":"u","after":{"id":1,"v":%s}}' % form, debezium("u", after={"id": 1, "v": "sent"})]
    changes = read_changes(UPSERT_ENVELOPE, *values)
    assert changes.unavailable[1].tolist() == [True, False]
    assert changes.columns[1].to_pylist() == [None, "sent"]


def test_the_text_that_stands_for_what_was_not_sent_is_the_connectors_to_choose() -> None:
    own = Envelope("debezium", is_upsert=True, keys=(("id",),), placeholder="?")
    values = [debezium("u", after={"id": 1, "v": "?"}), debezium("u", after={"id": 2, "v": PLACEHOLDER})]
    changes = read_changes(own, *values)
    assert (changes.unavailable[1].tolist(), changes.columns[1].to_pylist()) == ([True, False], [None, PLACEHOLDER])


def test_a_value_that_was_not_sent_is_known_where_somebody_has_written_the_message_again() -> None:
    after = {"id": 1, "v": {PLACEHOLDER: PLACEHOLDER}}
    changes = read_changes(UPSERT_ENVELOPE, json.dumps({"op": "u", "before": None, "after": after}).encode())
    assert (changes.unavailable[1].tolist(), changes.decoded.requested_fields) == ([True], {})


_RAW = PLACEHOLDER.encode()


@pytest.mark.parametrize(
    "array",
    [
        pa.array([PLACEHOLDER, "x", None]),
        pa.array([_RAW, b"x", None]),
        pa.array([[PLACEHOLDER], ["x"], None]),
        pa.array([[_RAW], [b"x"], None]),
        pa.array([list(_RAW), list(_RAW)[:-1], None], pa.list_(pa.int32())),
        pa.array([list(_RAW), [None] * len(_RAW), None], pa.list_(pa.int64())),
        pa.array([[(PLACEHOLDER, PLACEHOLDER)], [("x", "y")], None], pa.map_(pa.string(), pa.string())),
        pa.array([{"wkb": bytes.fromhex("0101000020e6100000000000fc83d797c1000000fc83d797c1")}, {"wkb": b"x"}, None]),
    ],
    ids=lambda array: str(array.type),
)
def test_a_value_that_was_not_sent_is_known_in_columns_of_every_type(array: pa.Array) -> None:
    found = find_unsent(array, PLACEHOLDER)
    assert found is not None
    assert found.tolist() == [True, False, False]
    assert find_unsent(array[1:], PLACEHOLDER) is None


_ARRAYS = [
    ("int32", "time.Date", list(_RAW), [20_000], "list<date>"),
    ("string", "data.Uuid", ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"], [str(UUID(int=7))], "list<uuid>"),
    ("string", "data.Json", [PLACEHOLDER], ["{}"], "list<string>"),
]


@pytest.mark.parametrize(("kind", "name", "unsent", "sent", "column"), _ARRAYS, ids=[one[1] for one in _ARRAYS])
def test_an_array_that_was_not_sent_is_known_whatever_its_elements_mean(
    kind: str, name: str, unsent: list[Any], sent: list[Any], column: str
) -> None:
    """The placeholder of a `date[]` is 28 days of 1970, and that of a `uuid[]` is a UUID."""
    element = {"type": kind, "name": f"io.debezium.{name}", "optional": True}
    row = [{"field": "id", "type": "int64"}, {"field": "v", "type": "array", "items": element, "optional": True}]
    after = {"field": "after", "type": "struct", "fields": row, "optional": True}
    schema = {"type": "struct", "fields": [after, {"field": "op", "type": "string"}]}
    payloads = [{"after": {"id": 1, "v": value}, "op": "u"} for value in (unsent, sent)]
    in_json = [json.dumps({"schema": schema, "payload": one}).encode() for one in payloads]
    changes = read_changes(UPSERT_ENVELOPE, *in_json, columns={"id": "long", "v": column})
    item = {"type": {"int32": "int"}.get(kind, kind), "connect.name": f"io.debezium.{name}"}
    fields = [{"name": "id", "type": "long"}, {"name": "v", "type": ["null", {"type": "array", "items": item}]}]
    image = {"name": "after", "type": ["null", {"type": "record", "name": "Value", "fields": fields}]}
    reading, records = avro(*payloads, schema={**AVRO, "fields": [image, *AVRO["fields"][2:]]})
    target = target_for(UPSERT_ENVELOPE, {"id": "long", "v": column}, reading=reading)
    for one in (changes, read_envelope(target, records)):
        assert one.unavailable[1].tolist() == [True, False]
        assert [len(value or ()) for value in one.columns[1].to_pylist()] == [0, 1]


def test_java_counts_the_bytes_of_a_placeholder_from_minus_128_on() -> None:
    own = Envelope("debezium", is_upsert=True, keys=(("id",),), placeholder="\u00fc")
    changes = read_changes(own, b'{"op":"u","after":{"id":1,"v":[-61,-68]}}', columns={"id": "long", "v": "list<int>"})
    assert changes.unavailable[1].tolist() == [True]
    found = find_unsent(pa.array([[-61, -68], [-61]], pa.list_(pa.int32())), "\u00fc")
    assert found is not None
    assert found.tolist() == [True, False]


def test_numbers_have_no_value_that_stands_for_one_that_was_not_sent() -> None:
    assert find_unsent(pa.array([1]), PLACEHOLDER) is None
    assert find_unsent(pa.array([[1.5]]), PLACEHOLDER) is None
