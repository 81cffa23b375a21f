"""Schema changes by fixture pairs: a table, what tasks want, and the table afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pyiceberg.exceptions import ResolveError
from pyiceberg.schema import Schema, assign_fresh_schema_ids, promote
from pyiceberg.types import DateType, IcebergType, NestedField, StructType, TimestampType

from frazil.schema.evolve import (
    NameConflict,
    TypesDiffer,
    can_promote,
    compare_schemas,
    dump_requested_fields,
    extend_schema,
    load_requested_fields,
    merge_requested_fields,
    new_schema,
)
from frazil.spec.syntax.types import parse_type

_PAGES = sorted((Path(__file__).parents[2] / "fixtures" / "evolve").glob("*.yaml"))
_CASES = [case for page in _PAGES for case in yaml.safe_load(page.read_text())]


def _columns(words: dict[str, str]) -> dict[str, IcebergType]:
    return {name: parse_type(word) for name, word in words.items()}


def _wanted(case: dict[str, Any]) -> list[dict[tuple[str, ...], dict[str, IcebergType]]]:
    return [
        {tuple(path.split(".")) if path else (): _columns(fields) for path, fields in one.items()}
        for one in case["requested_fields"]
    ]


def _shape(columns: dict[str, IcebergType]) -> list[str]:
    """Names and types with ids in reading order, so that only what a table reports is compared."""
    fields = [NestedField(0, name, kind, required=False) for name, kind in columns.items()]
    fresh = assign_fresh_schema_ids(Schema(*StructType(*fields).fields))
    return [str(field) for field in fresh.fields]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in _CASES])
def test_a_table_becomes_what_its_records_need(case: dict[str, Any]) -> None:
    before = new_schema(_columns(case["before"]).items())
    travelled = [load_requested_fields(dump_requested_fields(one)) for one in _wanted(case)]
    if "differs" in case:
        with pytest.raises(TypesDiffer) as differs:
            merge_requested_fields(_wanted(case))
        assert str(differs.value) == case["differs"]
        kept = merge_requested_fields(_wanted(case), keeps_first=True)
        assert _shape(kept[()]) == _shape(_columns(case["first"])), "what is not contradicted is merged all the same"
        return
    requested_fields = merge_requested_fields(travelled)
    if "clashes" in case:
        with pytest.raises(NameConflict):
            extend_schema(before, requested_fields)
        return
    after = extend_schema(before, requested_fields)
    assert _shape({f.name: f.field_type for f in after.fields}) == _shape(_columns(case["after"]))
    assert len(after.field_ids) == len(set(after.field_ids)), "every id is there once"
    assert {before.find_column_name(i): i for i in before.field_ids}.items() <= {
        after.find_column_name(i): i for i in after.field_ids
    }.items(), "what was there keeps its id"
    assert extend_schema(after, requested_fields) == after, "the same change twice changes nothing"
    changes = {change.path: _shape({"x": change.kind}) for change in compare_schemas(before, after)}
    assert changes == {path: _shape({"x": kind}) for path, kind in _columns(case["changes"]).items()}


def test_new_columns_whose_names_contain_dots_are_changes_at_every_depth() -> None:
    before = new_schema(_columns({"s": "struct<x: int>", "m": "map<string, struct<x: int>>"}).items())
    dotted = {
        (): _columns({"a.b": "long", "c.d": "struct<e.f: int>"}),
        ("s",): _columns({"g.h": "int"}),
        ("m", "value"): _columns({"i.j": "int"}),
    }
    changes = compare_schemas(before, extend_schema(before, dotted))
    assert sorted(change.path for change in changes) == ["a.b", "c.d", "m.value.i.j", "s.g.h"]


def test_a_date_does_not_become_a_timestamp_as_no_library_of_iceberg_reads_that() -> None:
    assert not can_promote(DateType(), TimestampType())
    with pytest.raises(ResolveError):  # Once this is gone, see docs/decisions/0018.
        promote(DateType(), TimestampType())
