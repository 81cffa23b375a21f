"""Tables of a real PostgreSQL whose changes Debezium unwraps, a row and its key each, and their upsert tables: equal
after every pause, whatever was killed meanwhile.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.runtime.broker import EmbeddedBroker
from tests.acceptance.databases import UpsertTables
from tests.acceptance.pipelines import Pipeline
from tests.fixtures.source import Source, running
from tests.fixtures.workload import whole_tables

pytestmark = [pytest.mark.timeout(1800), pytest.mark.soak]

_UNWRAPPED = {
    "decimal.handling.mode": "string",
    "transforms": "unwrap",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
    "transforms.unwrap.delete.tombstone.handling.mode": "tombstone",
    "transforms.unwrap.replace.null.with.default": "false",
    "provide.transaction.metadata": "false",
}


def test_upsert_tables_of_unwrapped_changes_equal_their_tables_after_every_pause(
    pipeline: Pipeline, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    made = Source(tmp_path / "connect", broker.bootstrap_servers, 20, _UNWRAPPED, whole_tables())
    with running(made) as source:
        UpsertTables(pipeline, source, {}).live_through(rounds=2, connector_killed_at=1, seed=20)
