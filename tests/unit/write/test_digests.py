"""Digests of records and rows: equal for equal values, whatever their order, files and types, and others for others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import types as t

from frazil.schema.arrow import arrow_field
from frazil.write.digests import digest_of, record_hashes, row_hashes

NESTED = t.StructType(
    t.NestedField(11, "a", t.IntegerType(), required=False),
    t.NestedField(12, "b", t.ListType(13, t.StringType(), element_required=False), required=False),
)
KINDS: Mapping[str, t.IcebergType] = {
    "id": t.LongType(),
    "name": t.StringType(),
    "price": t.DecimalType(9, 2),
    "ratio": t.DoubleType(),
    "ok": t.BooleanType(),
    "inner": NESTED,
    "tags": t.MapType(21, t.StringType(), 22, t.IntegerType(), value_required=False),
    "raw": t.BinaryType(),
}
ROWS: list[dict[str, Any]] = [
    {"id": 1, "name": "a", "inner": {"a": 1, "b": ["x", None]}, "tags": [("k", 1)], "ok": True, "raw": b"\0"},
    {"id": 2, "name": "bb", "ratio": 0.5, "inner": {"a": None, "b": []}, "tags": [], "ok": False, "raw": b""},
    {"id": 3, "name": None, "inner": None, "tags": None},
    {"id": 4, "name": "a longer text than sixteen bytes, and longer than thirty-two", "ratio": -0.0},
]


def table(rows: list[dict[str, Any]], kinds: Mapping[str, t.IcebergType] = KINDS, names: Any = None) -> pa.Table:
    """The rows in columns with field ids. names: of columns, where they are called otherwise."""
    fields = [t.NestedField(n, (names or {}).get(name, name), kind) for n, (name, kind) in enumerate(kinds.items(), 1)]
    schema = pa.schema([arrow_field(field) for field in fields])
    columns = [pa.array([row.get(name) for row in rows], of.type) for name, of in zip(kinds, schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def digest(rows: list[dict[str, Any]], **settings: Any) -> int:
    """The digest of rows."""
    return digest_of(row_hashes(table(rows, **settings)))


def records(values: list[bytes | None], first: int = 0, partition: int = 0) -> dict[str, pa.Array]:
    """Records of one partition, from the offset `first` on."""
    count = len(values)
    return {
        "partition": pa.array([partition] * count, pa.int32()),
        "offset": pa.array(range(first, first + count), pa.int64()),
        "value": pa.array(values, pa.binary()),
    }


def test_the_digest_of_rows_does_not_depend_on_their_order_or_their_batches() -> None:
    together = digest(ROWS)
    assert digest(ROWS[::-1]) == together
    assert (digest(ROWS[:1]) + digest(ROWS[1:])) % 2**64 == together
    sliced = table([ROWS[3], *ROWS, ROWS[0]]).slice(1, len(ROWS))
    assert digest_of(row_hashes(sliced)) == together
    chunked = pa.concat_tables([table(ROWS[:2]), table(ROWS[2:])])
    assert digest_of(row_hashes(chunked)) == together
    whole = table(ROWS)
    place = whole.schema.get_field_index("name")
    encoded = whole.column(place).dictionary_encode()
    field = whole.schema.field(place).with_type(encoded.type)
    assert digest_of(row_hashes(whole.set_column(place, field, encoded))) == together


def test_maps_that_arrow_has_built_have_the_digest_of_those_that_were_stored() -> None:
    kinds = {
        "tags": t.ListType(20, t.MapType(21, t.StringType(), 22, NESTED, value_required=False), element_required=False)
    }
    built = table([{"tags": [[("k", {"a": 1})], None]}, {"tags": []}], kinds=kinds)
    file = pa.BufferOutputStream()
    pq.write_table(built, file)
    assert (row_hashes(pq.read_table(pa.BufferReader(file.getvalue()))) == row_hashes(built)).all()


def test_a_column_that_is_renamed_widened_or_added_changes_no_digest() -> None:
    narrow = {**KINDS, "id": t.IntegerType(), "price": t.DecimalType(7, 2)}
    rows = [{**row, "id": -row["id"], "price": None} for row in ROWS]
    assert digest(rows, kinds=narrow) == digest(rows)
    assert digest(ROWS, names={"name": "title"}) == digest(ROWS)
    assert digest(ROWS, kinds={**KINDS, "later": t.StringType()}) == digest(ROWS)
    floats = {"id": t.LongType(), "x": t.FloatType()}
    assert digest([{"x": 0.1}], kinds=floats) != digest([{"x": 0.1}], kinds={**floats, "x": t.DoubleType()})
    assert digest([{"x": 0.5}], kinds=floats) == digest([{"x": 0.5}], kinds={**floats, "x": t.DoubleType()})


@pytest.mark.parametrize(
    "changed",
    [
        {"id": 2},
        {"name": "b"},
        {"name": None},
        {"name": ""},
        {"inner": {"a": 1, "b": [None, "x"]}},
        {"inner": {"a": 1, "b": ["x"]}},
        {"inner": None},
        {"inner": {"a": None, "b": None}},
        {"tags": []},
        {"tags": None},
        {"tags": [("k", None)]},
        {"tags": [("l", 1)]},
        {"ok": False},
        {"raw": b""},
        {"ratio": 0.0},
    ],
    ids=str,
)
def test_another_value_is_another_digest(changed: dict[str, Any]) -> None:
    assert digest([{**ROWS[0], **changed}, *ROWS[1:]]) != digest(ROWS)


def test_values_that_change_places_change_the_digest() -> None:
    one, other = {"id": 1, "name": "a"}, {"id": 2, "name": "b"}
    swapped = [{**one, "name": "b"}, {**other, "name": "a"}]
    assert digest(swapped) != digest([one, other])
    kinds = {"x": t.LongType(), "y": t.LongType()}
    assert digest([{"x": 1, "y": 2}], kinds=kinds) != digest([{"x": 2, "y": 1}], kinds=kinds)
    assert digest([one, one]) != digest([one])


def test_values_that_differ_in_few_bits_and_change_places_change_the_digest() -> None:
    bits = [*(sign << place for place in range(63) for sign in (1, -1)), -(2**63), 0]
    halves = [text * 2 for text in ("aaaa", "aaab", "aaaA", "bbbb", "2026", "2025")]
    for values, kind in ((bits, t.LongType()), (halves, t.StringType())):
        rows = [{"x": first, "y": second} for first in values for second in values]
        assert np.unique(row_hashes(table(rows, kinds={"x": kind, "y": kind}))).size == len(rows)


def test_zeros_at_the_end_of_a_value_count() -> None:
    values = [bytes(range(1, size + 1)) + bytes(zeros) for size in (0, 1, 15, 16, 31, 64, 100) for zeros in range(80)]
    hashes = record_hashes("t", {**records([*values]), "offset": pa.array([0] * len(values))})
    assert np.unique(hashes).size == len(set(values))


def test_every_length_of_a_text_counts_every_byte_of_it() -> None:
    texts = [bytes(range(1, size + 1)) for size in range(70)]
    hashes = record_hashes("t", records([*texts]))
    assert np.unique(hashes).size == len(texts)
    for size, text in enumerate(texts):
        for place in range(size):
            other = text[:place] + b"\0" + text[place + 1 :]
            alone, changed = (record_hashes("t", records([value])) for value in (text, other))
            assert alone[0] != changed[0], (size, place)


def test_the_digest_of_records_has_their_places_and_values() -> None:
    values = [b"{}", None, b"", b"x" * 100]
    together = digest_of(record_hashes("t", records(values)))
    parts = [record_hashes("t", records(values[:2])), record_hashes("t", records(values[2:], first=2))]
    assert sum(map(digest_of, parts)) % 2**64 == together
    assert digest_of(record_hashes("u", records(values))) != together
    assert digest_of(record_hashes("t", records(values, first=1))) != together
    assert digest_of(record_hashes("t", records(values, partition=1))) != together
    assert digest_of(record_hashes("t", records([b"{}", b"", None, b"x" * 100]))) != together


@pytest.mark.parametrize("longest", [3, 8, 12, 16, 20, 40, 63, 200])
def test_the_hash_of_a_text_does_not_depend_on_the_others_of_its_column(longest: int) -> None:
    kinds = {"name": t.StringType()}
    texts = ["x" * (n % (longest + 1)) for n in range(2 * longest + 2)] + ["y" * longest] * 3
    alone = [row_hashes(table([{"name": text}], kinds))[0] for text in texts]
    assert row_hashes(table([{"name": text} for text in texts], kinds)).tolist() == alone
    with_null = table([{"name": text} for text in [*texts, None]], kinds)
    assert row_hashes(with_null)[:-1].tolist() == alone
    assert row_hashes(table([{"name": "z" * longest}, *({"name": text} for text in texts)], kinds)[1:])[0] == alone[0]


@pytest.mark.parametrize("length", range(70))
def test_the_hash_of_a_value_does_not_depend_on_what_lies_before_it(length: int) -> None:
    value = bytes(range(1, length + 1))
    schema = pa.schema([pa.field("a", pa.binary(), metadata={b"PARQUET:field_id": b"1"})])
    first = row_hashes(pa.table([pa.array([value], pa.binary())], schema=schema))
    later = row_hashes(pa.table([pa.array([b"x" * 40, value, b""], pa.binary())], schema=schema))
    assert first[0] == later[1]
    assert first[0] != later[0]
