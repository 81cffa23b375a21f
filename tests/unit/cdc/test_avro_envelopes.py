"""Envelopes and rows in Avro are the changes that they are in JSON."""

from __future__ import annotations

import pytest
from pyiceberg.types import ListType, StringType

from frazil.cdc.changes import read_envelope
from frazil.decode.settings import PLACEHOLDER, Envelope
from frazil.stages.changes import DELETE, UPSERT
from tests.unit.cdc.envelope_messages import UPSERT_ENVELOPE, avro, bad_records
from tests.unit.cdc.envelope_reference import target_for


def test_avro_is_read_as_json_is() -> None:
    rows = [{"id": 1, "v": "a", "tags": ["x"]}, {"id": 1, "v": PLACEHOLDER, "tags": [PLACEHOLDER]}]
    reading, records = avro(
        {"op": "c", "before": None, "after": rows[0]},
        {"op": "u", "before": None, "after": rows[1]},
        {"op": "u", "before": rows[0], "after": {**rows[0], "id": 2}},
        {"op": "d", "before": {"id": 2, "v": None, "tags": None}, "after": None},
        {"op": "c", "before": None, "after": None},
        {"op": "?", "before": None, "after": rows[0]},
        {"op": "m", "before": None, "after": None},
    )
    target = target_for(UPSERT_ENVELOPE, {"id": "long", "v": "string"}, ("position",), reading=reading)
    changes = read_envelope(target, records)
    assert changes.ops.tolist() == [UPSERT, UPSERT, DELETE, UPSERT, DELETE]
    assert changes.columns[0].to_pylist() == [1, 1, 1, 2, 2]
    assert changes.unavailable[1].tolist() == [False, True, False, False, False]
    assert changes.own["position"].to_pylist() == ["00000000000000000009"] * 5
    assert bad_records(changes) == [(4, "missing_image", ""), (5, "unknown_operation", "")]
    assert changes.ignored_records == {"message": 1}
    assert changes.decoded.requested_fields == {(): {"tags": ListType(0, StringType(), element_required=False)}}


def test_an_avro_schema_that_is_no_envelope_makes_bad_records() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    reading, records = avro({"id": 1}, {"id": 2}, schema=schema)
    changes = read_envelope(target_for(UPSERT_ENVELOPE, {"id": "long"}, reading=reading), records)
    assert bad_records(changes) == [(0, "not_an_envelope", ""), (1, "not_an_envelope", "")]


@pytest.mark.parametrize(
    ("envelope", "names"),
    [
        (Envelope("operation", "ops", ("I",), ("U",), ("D",), is_upsert=True, keys=(("id",),)), ("ops", "I", "U", "D")),
        (UPSERT_ENVELOPE, ("__op", "c", "u", "d")),
    ],
)
def test_a_field_of_an_avro_row_names_the_operation(envelope: Envelope, names: tuple[str, ...]) -> None:
    field, *words = names
    fields = [{"name": "id", "type": "long"}, {"name": field, "type": ["null", "string"]}]
    rows = [{"id": n, field: word} for n, word in enumerate([*words, "?", None])]
    reading, records = avro(*rows, schema={"type": "record", "name": "R", "fields": fields})
    changes = read_envelope(target_for(envelope, {"id": "long"}, reading=reading), records)
    assert (changes.ops.tolist(), changes.records.tolist()) == ([UPSERT, UPSERT, DELETE], [0, 1, 2])
    assert bad_records(changes) == [(3, "unknown_operation", ""), (4, "unknown_operation", "")]
    assert changes.decoded.requested_fields == {}
