"""Rows of files that were not written for the table as it is: imported ones, or older than a column with a default."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

from frazil.catalog.layout import spec_of
from frazil.catalog.scans import LiveFile
from frazil.decode.settings import Reading
from frazil.schema.arrow import arrow_type
from frazil.spec.partitioning import parse_term
from frazil.spec.syntax.types import parse_type
from frazil.upsert.lookup.live_rows import column_pieces, read_columns
from frazil.upsert.lookup.search import find_rows
from frazil.write.target import ChangeReading, TableTarget
from tests.unit.ingest.targets import changed, target_of

_UUID = UUID("00000000-0000-0000-0000-00000000002a")
VALUES: dict[str, tuple[Any, Any]] = {
    "long": (7, 7),
    "string": ("a", "a"),
    "date": ("2026-01-31", date(2026, 1, 31)),
    "decimal(9,2)": ("1.50", Decimal("1.50")),
    "boolean": (False, False),
    "binary": ("0A0B", b"\n\x0b"),
    "uuid": (str(_UUID), _UUID.bytes),
    "double": ("NaN", float("nan")),
}
"""By type a value as Iceberg's JSON has it, and as it is read."""


def _target(folder: Path, **columns: str) -> TableTarget:
    return replace(target_of(folder, columns), changes=ChangeReading(Reading(), tuple(columns)))


def _plain_file(folder: Path, columns: dict[str, pa.Array], **description: Any) -> LiveFile:
    """As another program writes it, which knows no field ids."""
    path = folder / "plain.parquet"
    pq.write_table(pa.table(columns), path)
    content = {"file-path": str(path), "file-format": "PARQUET", "spec-id": 0, "partition": [], **description}
    return LiveFile(str(path), len(next(iter(columns.values()))), json.dumps(content))


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("is_newest", [True, False])
def test_the_value_of_its_partition_is_that_of_all_rows_of_a_file(
    tmp_path: Path, kind: str, is_listed: bool, is_newest: bool
) -> None:
    word, value = VALUES[kind]
    target = _target(tmp_path, k="long", p=kind)
    spec = spec_of((parse_term("truncate(k, 10)"), parse_term("p")), target.schema)
    text, ids = spec.model_dump_json(), [field.field_id for field in spec.fields]
    reported = [0, word] if is_listed else {str(ids[0]): 0, str(ids[1]): word}
    if is_newest:
        target = changed(target, partition_spec=text)
    else:
        target = changed(target, spec_id=spec.spec_id + 1, older_specs=(text,))
    file = _plain_file(tmp_path, {"k": pa.array([1, 2, 3])}, **{"spec-id": spec.spec_id, "partition": reported})
    (column,) = read_columns(target, file, [("p",)])
    assert repr(column.to_pylist()) == repr([value] * 3)
    if kind != "double":
        (hit,) = find_rows(target, [file], [pa.array([2]), column[:1]], [("k",), ("p",)]).hits
        assert hit.rows.tolist() == [1]


@pytest.mark.parametrize("kind", VALUES)
def test_a_column_that_was_added_with_a_default_has_it_in_older_files(tmp_path: Path, kind: str) -> None:
    word, value = VALUES[kind]
    if kind == "double":
        word, value = 0.5, 0.5
    default = NestedField(2, "p", parse_type(kind), required=False, initial_default=word)
    schema = Schema(NestedField(1, "k", LongType(), required=False), default)
    target = replace(_target(tmp_path, k="long"), schema_json=schema.model_dump_json())
    file = _plain_file(tmp_path, {"k": pa.array([1, 2, 3])})
    assert read_columns(target, file, [("p",)])[0].to_pylist() == [value] * 3
    assert [piece.to_pylist() for piece in column_pieces(target, file, ("p",))] == [[value] * 3]


def test_what_files_without_ids_call_a_column_the_name_mapping_reports(tmp_path: Path) -> None:
    target = _target(tmp_path, new="long", o="struct<inner: long>", later="long")
    numbers, inner = pa.array([5, 6]), pa.array([{"was": 8}, {"was": 9}])
    file = _plain_file(tmp_path, {"old": numbers, "o": inner, "later": numbers})
    ids = {name: target.schema.find_field(name).field_id for name in ("new", "o", "o.inner")}
    mapping = [
        {"field-id": ids["new"], "names": ["old", "new"]},
        {"field-id": ids["o"], "names": ["o"], "fields": [{"field-id": ids["o.inner"], "names": ["was"]}]},
    ]
    mapped = changed(target, properties=(("schema.name-mapping.default", json.dumps(mapping)),))
    found = read_columns(mapped, file, [("new",), ("o", "inner"), ("later",)])
    assert [column.to_pylist() for column in found] == [[5, 6], [8, 9], [None, None]]
    assert read_columns(target, file, [("later",)])[0].to_pylist() == [5, 6]


def test_members_of_structs_are_found_wherever_an_older_file_has_them(tmp_path: Path) -> None:
    path = tmp_path / "older.parquet"
    before = pa.struct([_numbered("a", 11, pa.int32()), _numbered("b", 12, pa.int64())])
    kinds = {
        "s": before,
        "l": pa.list_(_numbered("element", 21, before)),
        "m": pa.map_(_numbered("key", 31, pa.string(), nullable=False), _numbered("value", 32, before)),
    }
    rows: list[Any] = [{"a": 1, "b": 2}, None, {"a": None, "b": 4}]
    values: dict[str, list[Any]] = {
        "s": rows,
        "l": [[rows[0], None], None, []],
        "m": [[("x", rows[0])], None, [("y", None)]],
    }
    fields = [_numbered(name, place, kind) for place, (name, kind) in enumerate(kinds.items(), 1)]
    pq.write_table(pa.table([pa.array(values[f.name], f.type) for f in fields], pa.schema(fields)), path)
    file = LiveFile(str(path), 3, json.dumps({"file-path": str(path), "file-format": "PARQUET", "partition": []}))
    # `b` was dropped, `c` and a `b` of its own were added, `a` was renamed, widened and moved to the end.
    now = StructType(
        NestedField(13, "c", LongType(), required=False),
        NestedField(14, "b", LongType(), required=False, initial_default=7),
        NestedField(11, "z", LongType(), required=False),
    )
    schema = Schema(
        NestedField(1, "s", now, required=False),
        NestedField(2, "l", ListType(21, now, element_required=False), required=False),
        NestedField(3, "m", MapType(31, StringType(), 32, now, value_required=False), required=False),
    )
    target = replace(_target(tmp_path, k="long"), schema_json=schema.model_dump_json())
    first, last = {"c": None, "b": 7, "z": 1}, {"c": None, "b": 7, "z": None}
    expected: list[list[Any]] = [[first, None, last], [[first, None], None, []], [[("x", first)], None, [("y", None)]]]
    paths = [(name,) for name in values]
    found = read_columns(target, file, paths)
    assert [column.to_pylist() for column in found] == expected
    assert [column.type for column in found] == [arrow_type(field.field_type) for field in schema.fields]
    some = read_columns(target, file, paths, np.array([2, 0]))
    assert [column.to_pylist() for column in some] == [[column[2], column[0]] for column in expected]
    for column, known in zip(paths, expected, strict=True):
        assert [value for piece in column_pieces(target, file, column) for value in piece.to_pylist()] == known


def _numbered(name: str, field_id: int, kind: pa.DataType, nullable: bool = True) -> pa.Field:
    return pa.field(name, kind, nullable, metadata={"PARQUET:field_id": str(field_id)})
