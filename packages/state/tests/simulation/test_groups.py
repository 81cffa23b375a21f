"""Tables whose query groups records hold what a query over all records in time gives, whatever happens between two steps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from frazil.ingest.tables.queries import SparkQueries
from packages.state.tests.simulation.groups import GroupHistory
from tests.fixtures.jvms import light_jvm
from tests.fixtures.slices import sliced

_SEED = os.environ.get("FRAZIL_SEED")
_SEEDS = [int(_SEED)] if _SEED else sliced(range(12), 6)


@pytest.fixture(scope="module")
def queries() -> Iterator[SparkQueries]:
    with light_jvm(needs_spark_jars=True) as jvm:
        gateway = jvm.gateway
        yield SparkQueries(lambda: gateway.jvm)


@pytest.mark.parametrize("seed", _SEEDS)
def test_every_snapshot_of_a_grouped_table_is_what_a_query_gives(
    seed: int, tmp_path: Path, queries: SparkQueries
) -> None:
    with capture_logs():
        GroupHistory(seed, tmp_path, queries).play(rounds=50)
