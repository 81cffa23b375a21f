"""Values that a source has not sent, as they stand in JSON and in columns."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from frazil.cdc.placeholders import find_unsent, json_forms
from frazil.decode.settings import PLACEHOLDER, Envelope
from tests.unit.cdc.envelope_messages import UPSERT_ENVELOPE, debezium, read_changes


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


def test_numbers_have_no_value_that_stands_for_one_that_was_not_sent() -> None:
    assert find_unsent(pa.array([1]), PLACEHOLDER) is None
    assert find_unsent(pa.array([[1.5]]), PLACEHOLDER) is None
