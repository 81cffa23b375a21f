"""The queries that `frazil import` makes of documented examples, analysed by Spark as `frazil check` does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from frazil.errors import SpecError
from frazil.queries.analysis import METADATA, analyse
from frazil.queries.catalyst import Catalyst
from frazil.runtime.jvm import Jvm
from frazil.spec.syntax.types import parse_column_type
from packages.migrate.tests.unit.imports.test_documented_examples import EXAMPLES
from tests.integration.queries import with_metadata

pytestmark = pytest.mark.jvm

_FIELDS: dict[str, IcebergType] = {
    "id": LongType(), "item": StringType(), "price": DecimalType(10, 2), "placed": TimestampType(), "name": StringType(),
    "quantity": IntegerType(), "province": StringType(), "reason": StringType(), "status": StringType(),
    "operation": StringType(), "op": StringType(), "updated_at": StringType(), "amount": StringType(),
    "region": StringType(), "value": StringType(),
}  # fmt: skip
_OF_CHANGES: dict[str, IcebergType] = {
    "_op": StringType(), "_source_ts": TimestamptzType(), "_source_database": StringType(), "_source_schema": StringType(),
    "_source_table": StringType(), "_image": StringType(),
}  # fmt: skip
_REFUSED = {"functions of one's own": "inc", "a schema that is not written out": "schema_of_json"}
"""Kinds whose queries have functions that Spark lacks or a query refuses, as the import reports."""


def queries() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the settings of tables and routes with a query or a condition, each query once, by the kind of its example."""
    seen: set[tuple[str | None, str | None]] = set()
    for example in EXAMPLES:
        for one in (*example.makes.get("tables", {}).values(), *example.makes.get("routes", ())):
            query = (one.get("select"), one.get("where"))
            if query not in seen | {(None, None)}:
                yield example.kind, one
            seen.add(query)


def test_the_queries_of_documented_examples_are_taken(jvm: Jvm) -> None:
    catalyst, seen = Catalyst(jvm.gateway.jvm), 0
    for kind, settings in queries():
        own = {name: StringType() for name in settings.get("metadata", {}).values() if name not in METADATA}
        own |= {name: parse_column_type(text) for name, text in settings.get("columns", {}).items()}
        fields = {**_FIELDS, **own, **(_OF_CHANGES if "envelope" in settings else {})}
        records = with_metadata(
            Schema(*(NestedField(number, name, kind, False) for number, (name, kind) in enumerate(fields.items(), 1)))
        )
        query, where = settings.get("select", "select * from records"), settings.get("where", "")
        if word := _REFUSED.get(kind):
            with pytest.raises(SpecError, match=word):
                analyse(catalyst, query, records, where)
        else:
            assert analyse(catalyst, query, records, where, metadata={*METADATA, *_OF_CHANGES}).columns, kind
        seen += 1
    assert seen > 20
