"""The message indexes of Confluent's wire format."""

from __future__ import annotations

import pytest

from frazil.decode.messages import Indexed
from frazil_protobuf.wire import MESSAGE_INDEX_FAULTS, split_message_indexes
from packages.protobuf.tests.unit.protobuf_schemas import bodies_of


def _split(records: list[bytes]) -> Indexed:
    indexed = split_message_indexes(bodies_of(records, gap=b"\x00frame"))
    assert len(indexed.bodies) == len(records) == indexed.path.size == indexed.fault.size
    return indexed


def _rests(indexed: Indexed) -> list[bytes]:
    bodies = indexed.bodies
    return [bodies.buffer[a:b].tobytes() for a, b in zip(bodies.start, bodies.end, strict=True)]


def test_nearly_always_the_first_message_is_meant_in_one_byte() -> None:
    indexed = _split([b"\x00abc", b"\x00", b"\x00\x00"])
    assert (indexed.paths, indexed.path.tolist(), indexed.fault.tolist()) == ([(0,)], [0, 0, 0], [0, 0, 0])
    assert _rests(indexed) == [b"abc", b"", b"\x00"]


def test_no_records_have_no_path() -> None:
    assert _split([]).paths == []


def test_paths_are_told_apart_in_the_order_in_which_they_are_met() -> None:
    long = b"\x14" + b"\x02" * 10
    indexed = _split([b"\x02\x02a", b"\x00b", b"\x04\x02\x00c", b"\x02\x02d", long + b"e", b"\x02\x80\x02f"])
    paths = [indexed.paths[n] for n in indexed.path.tolist()]
    assert paths == [(1,), (0,), (1, 0), (1,), (1,) * 10, (128,)]
    assert len(indexed.paths) == 5
    assert indexed.paths[:3] == [(1,), (0,), (1, 0)]
    assert _rests(indexed) == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_the_first_message_spelt_out_is_the_same_path() -> None:
    indexed = _split([b"\x00a", b"\x02\x00b", b"\x80\x00c"])
    assert (indexed.paths, indexed.path.tolist()) == ([(0,)], [0, 0, 0])
    assert _rests(indexed) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        (b"", 1),
        (b"\x02", 1),
        (b"\x04\x02", 1),
        (b"\x80", 1),
        (b"\xff" * 11, 1),
        (b"\x01", 2),
        (b"\x02\x01", 2),
        (b"\x42" + b"\x00" * 40, 2),
        (b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", 2),
        (b"\x02\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", 2),
    ],
)
def test_a_faulty_record_is_named_and_changes_no_other(record: bytes, fault: int) -> None:
    indexed = _split([b"\x02\x02a", record, b"\x00b"])
    assert indexed.fault.tolist() == [0, fault, 0]
    assert indexed.path.tolist() == [0, -1, 1]
    assert [_rests(indexed)[0], _rests(indexed)[2]] == [b"a", b"b"]
    assert MESSAGE_INDEX_FAULTS[fault - 1].kind == "malformed"


def test_the_largest_number_of_indexes_is_read() -> None:
    indexed = _split([b"\x40" + b"\x00" * 32 + b"x"])
    assert (indexed.paths, _rests(indexed)) == ([(0,) * 32], [b"x"])
