"""Tables of a real PostgreSQL under a random load, and their upsert tables: equal after every pause, in every reader,
whatever was killed meanwhile. In time: a database of accounts in test_transactions.py, random changes of keys and rows in
unit/cdc/test_random_envelopes.py and simulation/test_histories.py.
"""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from frazil.runtime.broker import EmbeddedBroker
from tests.acceptance.databases import UpsertTables
from tests.acceptance.pipelines import Pipeline
from tests.fixtures.debezium import in_avro
from tests.fixtures.registry import ApicurioRegistry
from tests.fixtures.source import Source, running
from tests.fixtures.source_types import BIGINT, ENDLESS_DOUBLE, ENDLESS_REAL, INTEGER, LONG_TEXT
from tests.fixtures.workload import SourceTable, usual_tables

pytestmark = pytest.mark.timeout(1800)

_KINDS: dict[str, dict[str, str]] = {
    "without schemas": {"decimal.handling.mode": "string"},
    "with schemas": {
        "time.precision.mode": "microseconds",
        "key.converter.schemas.enable": "true",
        "value.converter.schemas.enable": "true",
    },
}
_BY_ARRIVAL: dict[str, Any] = {"envelope": "debezium"}
_IN_ORDER = {**_BY_ARRIVAL, "metadata": ["source_order"], "order_by": "_source_order"}


def _endless() -> SourceTable:
    return SourceTable("endless", {"id": BIGINT}, {"d": ENDLESS_DOUBLE, "r": ENDLESS_REAL})


@pytest.mark.parametrize(
    ("kind", "rounds"),
    [
        pytest.param("with schemas", 1, marks=pytest.mark.slow),
        *(pytest.param(kind, 5, marks=pytest.mark.soak) for kind in _KINDS),
    ],
)
def test_upsert_tables_equal_their_tables_after_every_pause(
    kind: str, rounds: int, pipeline: Pipeline, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    seed = zlib.crc32(kind.encode())
    tables = usual_tables()
    if kind == "with schemas":
        tables.append(_endless())
    made = Source(tmp_path / "connect", broker.bootstrap_servers, seed, _KINDS[kind], tables, moves_alone=True)
    with running(made) as source:
        upsert_table = UpsertTables(pipeline, source, _IN_ORDER, others=_BY_ARRIVAL)
        upsert_table.live_through(rounds, connector_killed_at=rounds - 1, seed=seed)


@pytest.mark.soak
def test_upsert_tables_of_avro_equal_their_tables_after_every_pause(
    registry: ApicurioRegistry, pipeline: Pipeline, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    settings = in_avro(registry.url)
    # The converter itself fails at rows of a table that has got another column.
    tables = [*(replace(table, can_be_altered=False) for table in usual_tables()), _endless()]
    made = Source(tmp_path / "connect", broker.bootstrap_servers, 9, settings, tables, moves_alone=True)
    pipeline.document["registry"] = {"url": registry.api}
    avro = {part: {"format": "avro"} for part in ("key", "value")}
    with running(made) as source:
        upsert_table = UpsertTables(pipeline, source, _IN_ORDER | avro, others=_BY_ARRIVAL | avro)
        upsert_table.live_through(2, connector_killed_at=1, seed=9)


@pytest.mark.soak
@pytest.mark.parametrize("is_repeated", [False, True])
def test_upsert_tables_by_arrival_equal_their_tables_after_every_pause(
    is_repeated: bool, pipeline: Pipeline, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """By arrival nothing tells a row that has got the old key since from the one that got another: where a connector that is
    killed repeats changes of keys, long texts come with them.
    """
    settings = _KINDS["without schemas"]
    made = Source(tmp_path / "connect", broker.bootstrap_servers, 5, settings, moves_alone=not is_repeated)
    with running(made) as source:
        UpsertTables(pipeline, source, _BY_ARRIVAL).live_through(
            4, connector_killed_at=3 if is_repeated else -1, seed=5
        )


@pytest.mark.slow
def test_keys_and_primary_keys_change(pipeline: Pipeline, broker: EmbeddedBroker, tmp_path: Path) -> None:
    table = SourceTable("moving", {"id": BIGINT}, {"v": INTEGER, "note": LONG_TEXT})
    made = Source(tmp_path / "connect", broker.bootstrap_servers, 1, _KINDS["without schemas"], [table])
    with running(made, transactions_before=0) as source, source.postgres.connected() as connection:
        upsert_table = UpsertTables(pipeline, source, _BY_ARRIVAL)
        connection.run("insert into moving select n, n, repeat(md5(n::text), 99) from generate_series(1, 40) n")
        ends = source.pause()
        run = pipeline.run()
        upsert_table.wait_for(ends, run)
        with run.frozen():  # So that all of it is one batch.
            connection.run("update moving set v = v + 1 where id % 2 = 0")
            connection.run("update moving set id = id + 100, v = 0 where id <= 10")
            connection.run("update moving set id = id + 100 where id > 100 and id % 3 = 0")
            connection.run("insert into moving values (4, 4, 'again')")
            ends = source.pause()
        upsert_table.wait_for(ends, run)
        upsert_table.check()  # Large values went along with their keys.

        before = table.rows(source.postgres)
        with run.frozen():
            connection.run("alter table moving drop constraint moving_pkey, add primary key (id, v)")
            connection.run("update moving set note = 'told again' where id % 5 = 0")
            changed = connection.row_count
            connection.run("delete from moving where id % 5 = 1")
            changed += connection.row_count
            connection.run("insert into moving values (4, 99, 'beside')")
            ends = source.pause()
        upsert_table.wait_for(ends, run)
        assert run.stop() == 0, run.tail()
        assert table.in_words(upsert_table.rows(table)) == before
        assert Counter(dead_letter["error_class"] for dead_letter in upsert_table.dead_letters(table)) == {
            "key_mismatch": changed + 1
        }

        pipeline.document["defaults"]["key_columns"] = ["id", "v"]
        pipeline.command("dead-letters", "replay", upsert_table.name(table))
        upsert_table.check()
