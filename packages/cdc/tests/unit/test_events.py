"""CloudEvents (Kafka Protocol Binding 1.0.2), and events of an outbox (Debezium's Outbox Event Router), become rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from frazil.cdc.changes import read_envelope
from frazil.decode.settings import Envelope
from frazil.spec.settings import EnvelopeSpec, MetadataField
from frazil.stages.changes import Changes
from tests.unit.cdc.envelope_reference import records_of, target_for
from tests.unit.upsert.test_upsert_service import UpsertScenario

Headers = Mapping[str, bytes | None]
COLUMNS = {"id": "long", "name": "string"}
CE: tuple[MetadataField, ...] = (
    "ce_id", "ce_source", "ce_type", "ce_time", "ce_subject", "ce_dataschema", "ce_datacontenttype", "ce_extensions",
)  # fmt: skip
OUTBOX: tuple[MetadataField, ...] = ("event_id", "event_type", "aggregate_type", "aggregate_id")
JSON = {"content-type": b"application/json; charset=utf-8"}
STRUCTURED = {"content-type": b"application/cloudevents+json; charset=UTF-8"}
ATTRIBUTES = {"specversion": "1.0", "id": "e-1", "source": "/orders", "type": "order.placed"}
MORE = {
    "time": "2026-11-22T01:02:03.5+01:00",
    "subject": "o/1",
    "dataschema": "https://example.com/s",
    "traceparent": "00-ab",
}
DATA = {"id": 7, "name": "ü"}
_ROW = (7, "ü")


def ce(attributes: Mapping[str, str], **headers: bytes | None) -> Headers:
    return {**{f"ce_{name}": text.encode() for name, text in attributes.items()}, **headers}


def structured(**more: Any) -> bytes:
    return json.dumps({**ATTRIBUTES, **more}).encode()


def read(
    kind: str,
    records: Sequence[tuple[bytes | None, Headers]],
    metadata: Sequence[MetadataField] = (),
    keys: Sequence[bytes | None] | None = None,
) -> Changes:
    made = records_of([value for value, _ in records], [headers for _, headers in records])
    made["key"] = pa.array(keys if keys is not None else [None] * len(records), pa.binary())
    return read_envelope(target_for(Envelope(kind), COLUMNS, metadata), made)


def rows(changes: Changes) -> list[tuple[Any, ...]]:
    own = [array.to_pylist() for array in changes.own.values()]
    return list(zip(*(column.to_pylist() for column in changes.columns[:2]), *own, strict=True))


def bad(changes: Changes) -> dict[int, str]:
    return {one.row: one.reason for one in reversed(changes.decoded.mismatches)}


ALL = (
    "e-1", "/orders", "order.placed", datetime(2026, 11, 22, 0, 2, 3, 500000, UTC), "o/1", "https://example.com/s",
)  # fmt: skip


def test_events_of_either_mode_have_attributes_and_the_fields_of_their_data() -> None:
    value = json.dumps(DATA).encode()
    found = read(
        "cloudevents",
        [
            (value, {**ce({**ATTRIBUTES, **MORE}), **JSON}),
            (structured(data=DATA, datacontenttype="application/json", **MORE), STRUCTURED),
            (value, ce(ATTRIBUTES)),
            (structured(data=DATA), {}),
        ],
        CE,
    )
    assert found.decoded.mismatches == []
    assert rows(found) == [
        (*_ROW, *ALL, "application/json; charset=utf-8", [("traceparent", "00-ab")]),
        (*_ROW, *ALL, "application/json", [("traceparent", "00-ab")]),
        (*_ROW, "e-1", "/orders", "order.placed", None, None, None, None, []),
        (*_ROW, "e-1", "/orders", "order.placed", None, None, None, None, []),
    ]


def test_extensions_are_texts() -> None:
    found = read("cloudevents", [(structured(data=DATA, n=1, b=True, t='q"', z=None), STRUCTURED)], ("ce_extensions",))
    assert rows(found) == [(*_ROW, [("n", "1"), ("b", "true"), ("t", 'q"')])]


def test_extensions_that_are_no_text_are_kept_as_they_are_written() -> None:
    """Python's reader rounds fractions, and refuses integers of more than 4,300 digits: all extensions were lost then."""
    digits = "9" * 5000
    event = f'{{"more": {digits}, "rate": 1.10, "big": 1e400, "list": [1.10, "\\u00e9"],{structured(data=DATA).decode()[1:]}'
    changes = read("cloudevents", [(b"\xef\xbb\xbf" + event.encode(), STRUCTURED)], ("ce_extensions",))
    extensions = [("more", digits), ("rate", "1.10"), ("big", "1e400"), ("list", '[1.10, "\\u00e9"]')]
    assert (bad(changes), rows(changes)) == ({}, [(*_ROW, extensions)])


@pytest.mark.parametrize("odd", ['"x": "\\ud800"', '"\\udc00": "x"', '"\\ud800": 1'])
def test_half_of_a_surrogate_pair_in_an_extension_is_one_bad_record(odd: str) -> None:
    """It ended the task, and with it the batch."""
    good = structured(data=DATA, n="1")
    event = f"{{{odd},{good.decode()[1:]}".encode()
    changes = read("cloudevents", [(good, {}), (event, {}), (good, {})], ("ce_extensions",))
    assert rows(changes) == [(*_ROW, [("n", "1")])] * 2
    assert list(bad(changes)) == [1]
    assert "half of a surrogate pair" in bad(changes)[1]


def test_data_behind_a_byte_order_mark_is_read_in_binary_mode_and_behind_a_router() -> None:
    value = b"\xef\xbb\xbf" + json.dumps(DATA).encode()
    assert rows(read("cloudevents", [(value, ce(ATTRIBUTES))], ("ce_id",))) == [(*_ROW, "e-1")]
    assert rows(read("outbox", [(value, {"id": b"1"})], ("event_id",))) == [(*_ROW, "1")]


def test_new_fields_of_data_are_columns_and_attributes_are_not() -> None:
    found = read("cloudevents", [(structured(data={"id": 1, "more": {"a": 1.5}}, region="eu"), STRUCTURED)])
    assert {name: str(kind) for name, kind in found.decoded.requested_fields[()].items()} == {
        "more": "struct<0: a: optional double>"
    }


@pytest.mark.parametrize(
    ("value", "headers", "reason"),
    [
        (structured(data=DATA, specversion="0.3"), STRUCTURED, 'the envelope has no such operation: "0.3"'),
        (b'{"id":7}', {}, "the record has none of the fields of the envelope"),
        (b'{"id":7}', ce({"specversion": "1.0", "id": "1", "source": "s"}), "the record lacks a member"),
        (structured(data=DATA, id=None), STRUCTURED, "the record lacks a member"),
        (structured(), STRUCTURED, "the record has none of the fields of the envelope"),
        (structured(data=None), STRUCTURED, "the operation needs the row after the change"),
        (
            structured(data=[1]),
            STRUCTURED,
            "the row before or after the change, or the data of the event, is not an object",
        ),
        (structured(data_base64="AAE="), STRUCTURED, "the event's data is not JSON"),
        (b"<a/>", ce(ATTRIBUTES, **{"content-type": b"text/xml"}), "the event's data is not JSON"),
        (b"[{}]", {"content-type": b"application/cloudevents-batch+json"}, "the record is a batch of CloudEvents"),
        (b"Obj", {"content-type": b"application/cloudevents+avro"}, "the record is a batch of CloudEvents"),
        (b'{"id":7}', {**ce(ATTRIBUTES), "ce_x": b"\xff"}, "a header of the event"),
        (structured(data=DATA, time="soon"), STRUCTURED, 'string "soon"'),
        (b'{"id":"x"}', ce(ATTRIBUTES), 'string "x" does not fit long'),
        (b'{"id":1},"more":{"a":1}', ce(ATTRIBUTES), ""),
        (b"{", ce(ATTRIBUTES), ""),
        (b"[]", ce(ATTRIBUTES), "the row before or after the change, or the data of the event, is not an object"),
        (b'{"id":7}', ce({**ATTRIBUTES, "data": "x"}), "the object has the same key twice"),
        (b"\xff", STRUCTURED, ""),
    ],
)
def test_what_is_no_event_is_one_bad_record(value: bytes, headers: Headers, reason: str) -> None:
    good = (structured(data=DATA), STRUCTURED)
    found = read("cloudevents", [good, (value, headers), good], CE)
    assert [row[:2] for row in rows(found)] == [_ROW, _ROW]
    assert list(bad(found)) == [1]
    assert bad(found)[1].startswith(reason)


def test_an_event_without_data_in_binary_mode_is_a_tombstone() -> None:
    found = read("cloudevents", [(None, ce(ATTRIBUTES)), (None, {})], CE)
    assert (rows(found), bad(found), found.ignored_records) == ([], {}, {"tombstone": 2})


OUTBOX_ROW = {"id": "9f", "aggregatetype": "order", "aggregateid": "7", "type": "OrderPlaced"}


def change(op: str, after: Any, before: Any = None, **more: Any) -> bytes:
    source = {"connector": "postgresql", "table": "outbox"}
    return json.dumps({"before": before, "after": after, "source": source, "op": op, "ts_ms": 1, **more}).encode()


@pytest.mark.parametrize("payload", [DATA, json.dumps(DATA)])
@pytest.mark.parametrize("has_schema", [False, True])
def test_rows_of_an_outbox_are_events_whose_payload_has_the_columns(payload: Any, has_schema: bool) -> None:
    values = [change(op, {**OUTBOX_ROW, "payload": payload}) for op in ("c", "r")]
    values += [change("d", None, OUTBOX_ROW), change("d", None, {"id": "9f"})]
    if has_schema:
        schema = {"type": "struct", "fields": []}
        values = [json.dumps({"schema": schema, "payload": json.loads(value)}).encode() for value in values]
    found = read("outbox", [(value, {}) for value in values], OUTBOX)
    assert rows(found) == [(*_ROW, "9f", "OrderPlaced", "order", "7")] * 2
    assert (bad(found), found.ignored_records) == ({}, {"delete": 2})


@pytest.mark.parametrize(
    "value",
    [
        json.dumps(DATA).encode(),
        json.dumps(json.dumps(DATA)).encode(),
        json.dumps({"schema": {"type": "string", "optional": True}, "payload": json.dumps(DATA)}).encode(),
    ],
    ids=["object", "text", "text with a schema"],
)
@pytest.mark.parametrize("key", [b"7", b'"7"', b'{"schema":{"type":"string"},"payload":"7"}'])
def test_routed_events_have_their_id_in_a_header_and_their_aggregate_in_the_key(value: bytes, key: bytes) -> None:
    headers: list[Headers] = [{"id": b"9f"}, {"id": b'"9f"', "eventType": b"OrderPlaced", "aggregateType": b"order"}]
    found = read("outbox", [(value, one) for one in headers], OUTBOX, [key, key])
    assert bad(found) == {}
    assert rows(found) == [(*_ROW, "9f", None, None, "7"), (*_ROW, "9f", "OrderPlaced", "order", "7")]


def test_a_payload_with_the_names_of_an_envelope_is_a_payload() -> None:
    value = b'{"id":7,"name":"x","op":"d","before":{},"after":null}'
    found = read("outbox", [(value, {"id": b"1"})], ("event_id",))
    assert rows(found) == [(7, "x", "1")]


@pytest.mark.parametrize(
    ("value", "headers", "reason"),
    [
        (change("u", {**OUTBOX_ROW, "payload": DATA}), {}, "the envelope has no such operation"),
        (change("c", {**OUTBOX_ROW, "payload": None}), {}, "the operation needs the row after the change"),
        (change("c", {**OUTBOX_ROW, "payload": "text"}), {}, ""),
        (
            change("c", {**OUTBOX_ROW, "payload": 5}),
            {},
            "the row before or after the change, or the data of the event, is not an object",
        ),
        (change("c", {"payload": DATA}), {}, "the record lacks a member"),
        (change("c", None), {}, "the record lacks a member"),
        (json.dumps(DATA).encode(), {}, "the record has none of the fields of the envelope"),
        (b"5", {"id": b"1"}, "the row before or after the change, or the data of the event, is not an object"),
        (b"not json", {"id": b"1"}, ""),
        (b'{"id":7}', {"id": b"\xff"}, "a header of the event"),
        (b"{}}", {"id": b"1"}, ""),
    ],
)
def test_what_is_no_event_of_an_outbox_is_one_bad_record(value: bytes, headers: Headers, reason: str) -> None:
    good = (json.dumps(DATA).encode(), {"id": b"1"})
    found = read("outbox", [good, (value, headers), good], OUTBOX)
    assert [row[:2] for row in rows(found)] == [_ROW, _ROW]
    assert list(bad(found)) == [1]
    assert bad(found)[1].startswith(reason)


@pytest.mark.parametrize("empty", [None, b"", b'""'])
def test_a_routed_event_whose_id_has_no_value_is_one_bad_record(empty: bytes | None) -> None:
    """With an empty id, an upsert table by `_event_id` would keep the last of all such events alone."""
    value, good = json.dumps(DATA).encode(), {"id": b"1", "eventType": None}
    changes = read("outbox", [(value, good), (value, {"id": empty, "eventType": b"T"})], OUTBOX, [b"7", b"7"])
    assert rows(changes) == [(*_ROW, "1", None, None, "7")]
    assert bad(changes) == {1: "the record lacks a member that every record of its envelope has"}


def test_an_attribute_of_a_header_without_a_value_is_absent() -> None:
    value = json.dumps(DATA).encode()
    lacking = ce({name: text for name, text in ATTRIBUTES.items() if name != "id"}, ce_id=None)
    events = [(value, ce(ATTRIBUTES, ce_subject=None, ce_extra=None)), (value, lacking)]
    changes = read("cloudevents", events, ("ce_id", "ce_subject", "ce_extensions"))
    assert rows(changes) == [(*_ROW, "e-1", None, [])]
    assert bad(changes)[1].startswith("the record lacks a member")


def test_a_routed_event_without_payload_is_a_tombstone() -> None:
    found = read("outbox", [(None, {"id": b"1"})], OUTBOX, [b"7"])
    assert (rows(found), bad(found), found.ignored_records) == ([], {}, {"tombstone": 1})


def test_an_event_that_was_sent_twice_is_stored_once(tmp_path: Path) -> None:
    metadata = {name: f"_{name}" for name in ("ce_id", "ce_source")}
    keys = ("_ce_source", "_ce_id")
    table = UpsertScenario(tmp_path, envelope=EnvelopeSpec(kind="cloudevents"), key_columns=keys, metadata=metadata)
    for numbers in ((1, 2, 1), (2, 3)):
        for number in numbers:
            table.source.produce("a", 0, structured(data={"n": number}, id=f"e-{number}"))
        table.catch_up()
    assert table.upsert_table("n", "_ce_id") == [{"n": number, "_ce_id": f"e-{number}"} for number in (1, 2, 3)]


def outbox_change(**columns: Any) -> bytes:
    """An insert into an outbox table, in Debezium's envelope."""
    row = {"id": "e", "aggregatetype": "o", "aggregateid": "a", "type": "T", "payload": DATA, **columns}
    return json.dumps({"before": None, "after": row, "op": "c"}).encode()


@pytest.mark.parametrize("number", [7, 2**63 - 1, -1])
def test_an_attribute_that_is_an_integer_is_kept_as_its_digits(number: int) -> None:
    """Tables have numbers as ids, and producers write them as such: a null in their place would lose them."""
    changes = read("outbox", [(outbox_change(id=number, aggregateid=number), {}), (outbox_change(), {})], OUTBOX)
    assert rows(changes) == [(*_ROW, str(number), "T", "o", str(number)), (*_ROW, "e", "T", "o", "a")]
    event = structured(id=number, subject=number, data=DATA)
    changes = read("cloudevents", [(event, {}), (structured(data=DATA), {})], ("ce_id", "ce_subject"))
    assert rows(changes) == [(*_ROW, str(number), str(number)), (*_ROW, "e-1", None)]
    assert bad(changes) == {}


@pytest.mark.parametrize("value", [1.5, True, {"a": 1}, ["a"], 2**64])
def test_an_attribute_that_is_no_text_is_a_bad_record_and_not_null(value: Any) -> None:
    for kind, values, path in (
        ("outbox", [outbox_change(id=value), outbox_change()], "after.id"),
        ("cloudevents", [structured(id=value, data=DATA), structured(data=DATA)], "id"),
    ):
        changes = read(kind, [(one, {}) for one in values], OUTBOX if kind == "outbox" else CE)
        assert [(one.row, one.path) for one in changes.decoded.mismatches] == [(0, path)]
        assert [row[:2] for row in rows(changes)] == [_ROW]


def test_events_with_numbers_as_ids_replace_the_row_of_their_id(tmp_path: Path) -> None:
    metadata = {name: f"_{name}" for name in OUTBOX}
    table = UpsertScenario(
        tmp_path, envelope=EnvelopeSpec(kind="outbox"), key_columns=("_event_id",), metadata=metadata
    )
    for name in ("a", "b"):
        table.source.produce("a", 0, outbox_change(id=7, payload={"id": 1, "name": name}))
        table.catch_up()
    assert table.upsert_table("name", "_event_id") == [{"name": "b", "_event_id": "7"}]
