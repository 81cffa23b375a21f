"""What fits what: the reference page is what the decoder does, and a refused value leaves null."""

from __future__ import annotations

import json

import pytest

from tests.unit.decode.columns import decode, faults
from tests.unit.decode.json_reference import EDGES, PAGE, page


def test_the_reference_page_reports_what_the_decoder_does() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


def test_the_reference_page_has_every_type_that_a_pipeline_file_can_declare() -> None:
    words = [
        "boolean",
        "int",
        "long",
        "float",
        "double",
        "date",
        "time",
        "timestamp",
        "timestamptz",
        "string",
        "uuid",
        "binary",
    ]
    assert {*words} <= EDGES.keys()


def test_a_refused_value_is_null_in_its_column() -> None:
    for kind in EDGES:
        decoded = decode(['{"v": null}', '{"v": true}' if kind != "boolean" else '{"v": 1}'], v=kind)
        assert decoded.columns[0].null_count == 2, kind
        assert [fault[:2] for fault in faults(decoded)] == [(1, "v")], kind


def test_a_number_beyond_every_double_is_refused_and_not_stored_as_infinity() -> None:
    decoded = decode(['{"v": 1e400}', '{"v": -1e400}', '{"v": 1}'], v="double")
    assert decoded.columns[0].to_pylist() == [None, None, 1.0]
    assert faults(decoded) == [
        (0, "v", "number 1e400 is out of the range of double"),
        (1, "v", "number -1e400 is out of the range of double"),
    ]


def test_whole_numbers_with_an_exponent_are_exact_beyond_53_bits() -> None:
    texts = ["9007199254740993e0", "9007199254740993.0", "900719925474099.3e1", "0.000009007199254740993e21", "1e18"]
    decoded = decode([f'{{"v": {text}}}' for text in texts], v="long")
    assert decoded.columns[0].to_pylist() == [9007199254740993] * 3 + [9007199254740993, 10**18]


def test_absurd_exponents_cost_nothing() -> None:
    texts = ["1e99999999999999999999", "1e-99999999999999999999", "0e99999999999999999999", "1" + "0" * 5000 + "e-5000"]
    decoded = decode([f'{{"v": {text}}}' for text in texts], v="long")
    assert decoded.columns[0].to_pylist() == [None, None, 0, 1]
    assert decoded.mismatch_count == 2


_FAR = "is out of the range of"


@pytest.mark.parametrize(
    ("kind", "ends", "far"),
    [
        ("date", ["0001-01-01", "9999-12-31"], ["0000-12-31", "10000-01-01", "-0001-01-01", "+99999-01-01"]),
        (
            "timestamp",
            ["0001-01-01T00:00:00", "9999-12-31T23:59:59.9999999", -62_135_596_800_000, 253_402_300_799_999],
            ["0000-12-31T23:59:59", "10000-01-01T00:00:00", -62_135_596_800_001, 253_402_300_800_000, 2**63, -(10**30)],
        ),
        (
            "timestamptz",
            ["0001-01-01T05:30:00+05:30", "9999-12-31T18:59:59.999999-05:00", "0000-12-31T23:30:00-01:00"],
            [
                "9999-12-31T23:59:59-05:00",
                "0001-01-01T00:00:00+05:30",
                "0000-01-01T00:00:00Z",
                "+10000-01-01T00:00:00Z",
            ],
        ),
    ],
)
def test_times_are_of_the_years_1_to_9999_after_their_offset_is_applied(
    kind: str, ends: list[object], far: list[object]
) -> None:
    decoded = decode([f'{{"v": {json.dumps(value)}}}' for value in [*ends, *far, "2026-01-31x"]], v=kind)
    assert [value is None for value in decoded.columns[0].to_pylist()] == [False] * len(ends) + [True] * (len(far) + 1)
    words = {str: "string", int: "integer"}
    reported = [(len(ends) + n, "v", f"{words[type(v)]} {json.dumps(v)} {_FAR} {kind}") for n, v in enumerate(far)]
    assert faults(decoded)[:-1] == reported
    assert faults(decoded)[-1][2].endswith(f"cannot be read as {kind}")


def test_times_of_day_are_read_without_a_zone() -> None:
    decoded = decode(['{"v": "00:00:00"}', '{"v": "23:59:59.999999"}', "{}"], v="time")
    assert decoded.columns[0].cast("int64").to_pylist() == [0, 86_399_999_999, None]


@pytest.mark.parametrize(
    ("kind", "day", "zone"), [("time", "", ""), ("timestamp", "1970-01-01T", ""), ("timestamptz", "1970-01-01T", "Z")]
)
def test_digits_beyond_the_microsecond_are_cut_off_and_change_no_other_value(kind: str, day: str, zone: str) -> None:
    written = [
        "00:00:01.1234567",
        "00:00:01.123456999999999999",
        "00:00:01.5",
        "00:00:01",
        "soon.1234567",
        "00:00:01.1234567x",
    ]
    decoded = decode([*(f'{{"v": "{day}{text}{zone}"}}' for text in written), "{}"], v=kind)
    assert decoded.columns[0].cast("int64").to_pylist() == [
        1_123_456,
        1_123_456,
        1_500_000,
        1_000_000,
        None,
        None,
        None,
    ]
    reported = [f'string "{day}{text}{zone}" cannot be read as {kind}' for text in written[4:]]
    assert faults(decoded) == [(4, "v", reported[0]), (5, "v", reported[1])]


def test_milliseconds_and_text_mix_in_one_timestamp_column() -> None:
    decoded = decode(['{"v": 1}', '{"v": "1970-01-01T00:00:00.002Z"}', '{"v": 1.5}', "{}"], v="timestamptz")
    assert decoded.columns[0].cast("int64").to_pylist() == [1000, 2000, None, None]


def test_a_map_key_that_is_no_text_refuses_its_record_only() -> None:
    decoded = decode([r'{"m": {"\ud800": 1}}', '{"m": {"b": 2}}'], m="map<string,long>")
    assert decoded.columns[0][1].as_py() == [("b", 2)]
    assert faults(decoded) == [(0, "m.key", r'string "\ud800" has half of a surrogate pair, which is not text')]
