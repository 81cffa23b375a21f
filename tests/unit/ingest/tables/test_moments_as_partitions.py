"""A timestamp that is a partition as it is makes a partition of each moment, which `check` and `plan` warn of."""

from __future__ import annotations

import pytest
from pyiceberg.types import DateType, IcebergType, LongType, StringType, TimestampType, TimestamptzType

from frazil.ingest.tables.preflight import moments_as_partitions
from frazil.schema.evolve import new_schema
from frazil.spec import TableSpec
from frazil.spec.partitioning import parse_term


@pytest.mark.parametrize(
    ("terms", "kind", "is_warned"),
    [
        ("at", TimestamptzType(), True),
        ("id, at", TimestampType(), True),
        ("day(at)", TimestamptzType(), False),
        ("at", DateType(), False),
        ("at", StringType(), False),
        ("id", TimestamptzType(), False),
    ],
)
def test_a_timestamp_as_a_partition_is_warned_of(terms: str, kind: IcebergType, is_warned: bool) -> None:
    partitions = tuple(parse_term(term) for term in terms.split(", "))
    spec = TableSpec(name="n.a", topics=(), partition_by=partitions)
    found = moments_as_partitions(spec, new_schema([("id", LongType()), ("at", kind)]))
    assert bool(found) is is_warned
    assert not is_warned or "write `day(at)` or `hour(at)`" in found
