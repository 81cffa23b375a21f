"""What a dead letter reports: of its record's schema, and in words."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from frazil.dead_letters.files import with_new_reason
from frazil.dead_letters.record import named_schemas
from frazil.decode.columns import Mismatch
from frazil.decode.conversion import members_of
from frazil.decode.settings import Reading, WireFormat
from frazil.error_classes import ErrorClass

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_GUID = bytes(range(16))


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        (Reading(), [None, None, None, None]),
        (Reading(format="avro"), ["7", None, None, None]),
        (Reading(format="protobuf", wire=WireFormat("apicurio")), [None, "9", None, None]),
        (Reading(format="avro", wire=WireFormat("none")), [None, None, None, None]),
        (
            Reading(format="avro", wire=WireFormat("none", is_by_header=True)),
            [None, "00010203-0405-0607-0809-0a0b0c0d0e0f", "5", None],
        ),
    ],
)
def test_the_schema_that_a_record_names_is_read_from_its_frame_or_its_header(
    reading: Reading, expected: list[str | None]
) -> None:
    values = [b"\x00\x00\x00\x00\x07x", b"\x01" + bytes(8), b"{}", None]
    if reading.wire.framing == "apicurio":
        values[:2] = [b"\x00\x07", bytes(8) + b"\x09x"]
    headers = [None, b"\x01" + _GUID, b"\x00\x00\x00\x00\x05", b"?"]
    named = [[{"key": "__value_schema_id", "value": value}] if value is not None else [] for value in headers]
    records = {"value": pa.array(values, pa.binary()), "headers": pa.array(named, _HEADERS)}
    found = named_schemas(reading, records)
    assert (found.to_pylist(), found.type) == (expected, pa.string())


def test_words_that_quote_half_of_a_character_have_it_as_an_escape() -> None:
    mismatch = Mismatch(0, "a\ud800", ErrorClass.TYPE_MISMATCH, "\udc00 is no text", '"x"')
    (told,) = members_of([mismatch], 1).to_pylist()
    assert json.loads(f"{{{told}}}") == {"a\ud800": {"value": "x", "reason": "\udc00 is no text"}}
    words = {name: pa.array(["old"]) for name in ("error_class", "message", "path", "frazil_version")}
    (dead_letter,) = with_new_reason(pa.table({**words, "retries": pa.array([0], pa.int32())}), [mismatch]).to_pylist()
    assert (dead_letter["message"], dead_letter["path"], dead_letter["retries"]) == (
        "\\udc00 is no text",
        "a\\ud800",
        1,
    )
