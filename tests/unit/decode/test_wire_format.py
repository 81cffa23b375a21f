"""Wire formats of record values, and schema ids in headers."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import header_schema_id_serializer, prefix_schema_id_serializer
from confluent_kafka.schema_registry.common.serde import SchemaId
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st

from frazil.decode.columns import Bodies
from frazil.decode.settings import Framing
from frazil.decode.wire_format import (
    KEY_HEADER,
    VALUE_HEADER,
    HeaderId,
    HeaderSplit,
    group_rows,
    guids_of,
    select_bodies,
    split_headers,
)
from tests.needs import has_package, needs

if has_package("protobuf"):
    from frazil_protobuf.wire import split_message_indexes

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
GUID = uuid.UUID("0123abcd-0000-4000-8000-00000000000f")


def confluent(schema_id: int, body: bytes = b"body") -> bytes:
    return struct.pack(">bI", 0, schema_id) + body


def apicurio(schema_id: int, body: bytes = b"body") -> bytes:
    return struct.pack(">bq", 0, schema_id) + body


def bodies_of(bodies: Bodies) -> list[bytes]:
    return [bodies.buffer[a:b].tobytes() for a, b in zip(bodies.start.tolist(), bodies.end.tolist(), strict=True)]


def split(values: list[bytes | None], framing: Framing = "confluent") -> list[tuple[int, bytes, str]]:
    """Per record its id, its body and the kind of its fault."""
    return plain(split_headers(pa.array(values, pa.binary()), framing))


def plain(split: HeaderSplit) -> list[tuple[int, bytes, str]]:
    kinds = ["", *(fault.kind for fault in split.faults)]
    faults = [kinds[number] for number in split.fault.tolist()]
    return list(zip(split.ids.tolist(), bodies_of(split.bodies), faults, strict=True))


def test_ids_and_bodies_of_confluent_s_frame() -> None:
    values: list[bytes | None] = [confluent(n, b"x" * n) for n in (1, 7, 258, 1)]
    assert split(values) == [(1, b"x", ""), (7, b"x" * 7, ""), (258, b"x" * 258, ""), (1, b"x", "")]
    assert split([confluent(2**31 - 1), confluent(2**32 - 1), confluent(0, b"")]) == [
        (2**31 - 1, b"body", ""),
        (2**32 - 1, b"body", ""),
        (0, b"", ""),
    ]


def test_ids_and_bodies_of_apicurio_s_frame() -> None:
    assert split([apicurio(1), apicurio(2**40 + 3, b"")], "apicurio") == [(1, b"body", ""), (2**40 + 3, b"", "")]
    assert split([apicurio(-1), apicurio(3)[:8]], "apicurio") == [(-1, b"", "malformed"), (-1, b"", "malformed")]


def test_without_frames_the_value_is_the_body() -> None:
    assert split([b"", b"x", None], "none") == [(0, b"", ""), (0, b"x", ""), (-1, b"", "tombstone")]


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        (None, "tombstone", "there is no value"),
        (b"", "malformed", "shorter than the 5 bytes"),
        (b"\x00", "malformed", "shorter than the 5 bytes"),
        (b"\x00\x00\x00\x01", "malformed", "shorter than the 5 bytes"),
        (b"\x01", "no_wire_format", "does not begin with the magic byte 0"),
        (b"\x01\x00\x00\x00\x01xyz", "no_wire_format", "does not begin with the magic byte 0"),
        (b"\xff\xff\xff\xff\xff", "no_wire_format", "does not begin with the magic byte 0"),
        (b"{}", "no_wire_format", "begins with {"),
        (b'{"id": 17}', "no_wire_format", "begins with {"),
    ],
)
def test_a_faulty_frame_is_named_and_changes_no_neighbour(value: bytes | None, kind: str, words: str) -> None:
    split = split_headers(pa.array([confluent(7), value, confluent(8, b"")], pa.binary()), "confluent")
    assert plain(split) == [(7, b"body", ""), (-1, b"", kind), (8, b"", "")]
    assert words in split.faults[int(split.fault[1]) - 1].message


@pytest.mark.parametrize("values", [[], [None], [b""], [b"\x00"], [None, b"", b"{"]])
@pytest.mark.parametrize("framing", ["confluent", "apicurio"])
def test_a_batch_without_one_good_frame_is_no_trouble(values: list[bytes | None], framing: Framing) -> None:
    assert all(number == -1 and body == b"" and kind for number, body, kind in split(values, framing))


def test_a_slice_of_a_batch_is_read_as_that_slice() -> None:
    values = pa.array([b"{", confluent(7, b"a"), None, confluent(8, b"b"), b""], pa.binary())
    assert plain(split_headers(values.slice(1, 3), "confluent")) == [
        (7, b"a", ""),
        (-1, b"", "tombstone"),
        (8, b"b", ""),
    ]


@given(st.lists(st.none() | st.binary(max_size=12) | st.integers(0, 2**32 - 1).map(confluent), max_size=30), st.data())
def test_frames_are_read_as_one_record_at_a_time_would_be(values: list[bytes | None], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(values)))
    expected = []
    for value in values[first:]:
        if value is not None and len(value) >= 5 and value[0] == 0:
            expected.append((int.from_bytes(value[1:5], "big"), value[5:], ""))
        elif value is None:
            expected.append((-1, b"", "tombstone"))
        else:
            expected.append((-1, b"", "no_wire_format" if value[:1] not in (b"", b"\x00") else "malformed"))
    assert plain(split_headers(pa.array(values, pa.binary()).slice(first), "confluent")) == expected


# ---- groups


def test_one_id_for_all_is_one_group() -> None:
    bodies = split_headers(pa.array([confluent(7, b"a"), confluent(7, b"b")], pa.binary()), "confluent").bodies
    ((number, rows),) = group_rows(np.array([7, 7]))
    assert (number, rows.tolist()) == (7, [0, 1])
    assert select_bodies(bodies, rows) is bodies


def test_the_rows_of_each_id_come_in_order_and_faulty_ones_not_at_all() -> None:
    groups = [(number, rows.tolist()) for number, rows in group_rows(np.array([9, -1, 7, 9, 7, -1, 9]))]
    assert groups == [(9, [0, 3, 6]), (7, [2, 4])]
    assert group_rows(np.array([], np.int64)) == group_rows(np.array([-1, -1])) == []


def test_bodies_of_some_rows() -> None:
    split = split_headers(pa.array([confluent(n, b"%d" % n) for n in (1, 2, 1)], pa.binary()), "confluent")
    picked = {number: bodies_of(select_bodies(split.bodies, rows)) for number, rows in group_rows(split.ids)}
    assert picked == {1: [b"1", b"1"], 2: [b"2"]}


@pytest.mark.parametrize("distinct", [3, 70_000])
def test_many_ids_are_grouped_whole(distinct: int) -> None:
    ids = np.arange(200_000, dtype=np.int64) * 7919 % distinct
    groups = group_rows(ids)
    assert len(groups) == distinct
    assert sum(rows.size for _, rows in groups) == ids.size
    assert all((ids[rows] == number).all() and (np.diff(rows) > 0).all() for number, rows in groups[:50])


# ---- headers


def headers(*records: list[tuple[str | None, bytes | None]] | None) -> pa.ListArray:
    return pa.array(
        [held if held is None else [{"key": key, "value": value} for key, value in held] for held in records], HEADERS
    )


def reported(array: pa.ListArray, name: str = VALUE_HEADER) -> list[HeaderId | None]:
    found = guids_of(array, name)
    return [found.headers[code] if code >= 0 else None for code in found.codes.tolist()]


def test_a_header_names_the_guid_of_the_schema() -> None:
    value = b"\x01" + GUID.bytes
    array = headers([(VALUE_HEADER, value)], [("x", b"y"), (VALUE_HEADER, value)], [], None, [(KEY_HEADER, value)])
    guid = HeaderId(guid=str(GUID))
    assert reported(array) == [guid, guid, None, None, None]
    assert reported(array, KEY_HEADER) == [None, None, None, None, guid]
    assert reported(array.slice(1, 3)) == [guid, None, None]
    assert len(guids_of(array).headers) == 1


def test_a_header_may_hold_an_id_and_of_protobuf_the_message_s_path() -> None:
    array = headers([(VALUE_HEADER, confluent(7, b""))], [(VALUE_HEADER, b"\x01" + GUID.bytes + b"\x02\x02")])
    assert reported(array) == [HeaderId(id=7), HeaderId(guid=str(GUID), path=b"\x02\x02")]


def test_of_several_headers_the_last_one_with_a_value_counts() -> None:
    first, last = b"\x01" + GUID.bytes, confluent(7, b"")
    array = headers(
        [(VALUE_HEADER, first), (VALUE_HEADER, last)],
        [(VALUE_HEADER, last), (VALUE_HEADER, first), (VALUE_HEADER, None)],
        [(VALUE_HEADER, None)],
        [(None, first)],
    )
    assert reported(array) == [HeaderId(id=7), HeaderId(guid=str(GUID)), None, None]


@pytest.mark.parametrize("indexes", [[0], [1], [0, 0], [2, 5, 1], [300]])
@pytest.mark.parametrize("schema_id", [1, 2**31 - 1])
@needs("protobuf")
def test_what_confluent_s_client_writes_of_a_message_is_read(schema_id: int, indexes: list[int]) -> None:
    named = SchemaId("PROTOBUF", schema_id, str(GUID), indexes)
    values = pa.array([prefix_schema_id_serializer(b"body", None, named)], pa.binary())
    split = split_headers(values, "confluent")
    indexed = split_message_indexes(split.bodies)
    assert (split.ids.tolist(), indexed.paths, bodies_of(indexed.bodies)) == ([schema_id], [tuple(indexes)], [b"body"])
    written: list[Any] = []
    context = SerializationContext("t", MessageField.VALUE, written)
    assert header_schema_id_serializer(b"body", context, named) == b"body"
    (found,) = reported(headers(written))
    assert found is not None
    assert found.guid == str(GUID)
    rest = Bodies(np.frombuffer(found.path, np.uint8), np.zeros(1, np.int32), np.full(1, len(found.path), np.int32))
    assert split_message_indexes(rest).paths == [tuple(indexes)]


@pytest.mark.parametrize("value", [b"", b"\x01", b"\x01" + GUID.bytes[:15], b"\x00\x00", b"\x02" + GUID.bytes, b"7"])
def test_a_header_that_is_no_schema_s_is_a_fault_of_its_record(value: bytes) -> None:
    broken, good = reported(headers([(VALUE_HEADER, value)], [(VALUE_HEADER, confluent(7, b""))]))
    assert broken is not None
    assert broken.fault is not None
    assert broken.fault.kind == "malformed"
    assert good == HeaderId(id=7)


def test_no_headers_at_all() -> None:
    assert reported(headers()) == []
    assert reported(headers(None, [])) == [None, None]
