"""What other tools write: changes as of Maxwell, Debezium for MongoDB, Canal and AWS DMS, and events in several formats.
From a real broker, through a kill, to a reader that knows nothing of Frazil.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Producer

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.jvm import Jvm
from tests.integration.canal import CanalSource
from tests.integration.event_formats import COUNT, FAR, formats
from tests.integration.pipelines import Ledger, Pipeline
from tests.integration.test_changelog import rows
from tests.unit.cdc.mongodb_source import change, key_of, key_with_schema, value_with_schema

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(900)]
KEYS = 30
FORMS = ("hash", "array", "plain", "schema")


@dataclass
class Source:
    """A table or a collection whose changes go to a topic of its own. form: `hash` and `array` as Maxwell's keys are,
    `plain` and `schema` as Debezium's messages of MongoDB. rows: what is in it.
    """

    ledger: Ledger
    form: str
    seed: int
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def work(self, changes: int) -> None:
        """So many changes, each of a row by chance."""
        self._producer = Producer(
            {"bootstrap.servers": self.ledger.servers, "enable.idempotence": True, "linger.ms": 5}
        )
        is_maxwell = self.form in ("hash", "array")
        for _ in range(changes):
            key = int(self._rng.integers(KEYS))
            before = self.rows.get(key)
            made = {"v": f'a "{self._rng.integers(1000)}"', "n": int(self._rng.integers(2**40))}
            if before is not None and self._rng.integers(3) == 0:
                del self.rows[key]
            else:
                self.rows[key] = made
            (self._tell_maxwell if is_maxwell else self._tell_document)(key, before, self.rows.get(key))
        assert self._producer.flush(30) == 0

    def _tell_maxwell(self, key: int, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        kind = "delete" if after is None else "insert" if before is None else "update"
        row = {"id": key, "part": "x", **(after or before or {})}
        reported = {"database": "shop", "table": "e", "type": kind, "ts": 1, "xid": 1, "commit": True, "data": row}
        if kind == "update" and before is not None and after is not None:
            reported["old"] = {name: old for name, old in before.items() if after[name] != old}
        named = {"database": "shop", "table": "e", "pk.id": key, "pk.part": "x"}
        told: Any = named if self.form == "hash" else ["shop", "e", [{"id": key}, {"part": "x"}]]
        self._send(json.dumps(told).encode(), json.dumps(reported).encode())

    def _tell_document(self, key: int, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        op = "d" if after is None else "c" if before is None else "u"
        document = None if after is None else json.dumps(document_of(key, after))
        name, reported = key_of(json.dumps(_oid(key))), change(op, document)
        is_bare = self.form == "plain"
        raw = json.dumps(name).encode() if is_bare else key_with_schema(name)
        self._send(raw, json.dumps(reported).encode() if is_bare else value_with_schema(reported))
        if op == "d":
            self._send(raw, None)

    def _send(self, key: bytes, value: bytes | None) -> None:
        self._producer.produce(self.ledger.topic, value, key)


def _oid(key: int) -> dict[str, str]:
    return {"$oid": f"596e275826f08b27307{key:05x}"}


def document_of(key: int, row: dict[str, Any]) -> dict[str, Any]:
    """A document with an object id, as the connector writes it."""
    return {"_id": _oid(key), **row}


@dataclass(frozen=True)
class Ran:
    """A pipeline of all sources that was killed and started again, and what the second run reported of its tables."""

    folder: Path
    sources: Mapping[str, Source]
    canal: CanalSource
    reported: Mapping[str, Any]

    def rows(self, table: str) -> list[dict[str, Any]]:
        return sorted(rows(self.folder, table), key=str)

    def counts(self, table: str) -> tuple[int, dict[str, int]]:
        """How many dead letters there are, and how many records were ignored."""
        return self.reported[f"s.{table}"]["dead_letters"], self.reported[f"s.{table}"]["ignored_records"]


@pytest.fixture(scope="module")
def ran(broker: EmbeddedBroker, jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    servers, folder = broker.bootstrap_servers, tmp_path_factory.mktemp("sources")
    sources = {form: Source(Ledger(servers, new_id(), 2), form, n) for n, form in enumerate(FORMS)}
    canal = CanalSource(Ledger(servers, new_id(), 1), 7)
    tables: dict[str, Any] = formats(servers)
    for form, source in sources.items():
        envelope = "maxwell" if form in ("hash", "array") else "debezium"
        tables[f"s.t_{form}"] = {"topic": source.ledger.topic, "envelope": envelope, "mode": "upsert"}
    reported = {"topic": canal.ledger.topic, "envelope": "canal"}
    tables |= {
        "s.upsert_table": {**reported, "mode": "upsert"},
        "s.history": {**reported, "changelog": True, "metadata": ["offset"]},
    }
    kafka, commit = {"bootstrap.servers": servers}, {"interval": "200ms"}
    document = {"pipeline": "sources", "kafka": kafka, "commit": commit, "tables": tables}
    pipeline = Pipeline(folder, document, jvm=jvm)

    def work(changes: int) -> None:
        for source in sources.values():
            source.work(changes)
        canal.work(changes)

    work(150)
    with pipeline.start() as running:
        running.wait_for("batch_committed", len(tables))
        work(150)
        running.wait_for("batch_committed", len(tables) + 3)
    work(80)
    return Ran(folder, sources, canal, pipeline.run()["tables"])


@pytest.mark.parametrize("form", FORMS)
def test_upsert_tables_find_their_keys_by_themselves_though_the_process_is_killed(ran: Ran, form: str) -> None:
    assert ran.reported[f"s.t_{form}"]["dead_letters"] == 0
    there, found = sorted(ran.sources[form].rows.items()), rows(ran.folder, f"t_{form}")
    if form in ("hash", "array"):
        whole = [{"id": key, "part": "x", **row} for key, row in there]
        assert sorted(found, key=lambda row: int(row["id"])) == whole
    else:
        assert sorted(found, key=lambda row: str(row["_id"])) == [
            {"_id": _oid(key)["$oid"], **row} for key, row in there
        ]


def test_a_table_of_mysql_is_upserted_and_keeps_every_change_through_kills(ran: Ran) -> None:
    source = ran.canal
    assert {row["id"]: row for row in rows(ran.folder, "upsert_table")} == source.rows
    history = sorted(rows(ran.folder, "history"), key=lambda row: int(row["_offset"]))
    told = [(row["_op"], row["_image"], row["id"], row["price"]) for row in history]
    assert sorted(told, key=str) == sorted(source.images, key=str)
    assert [image[0] for image in source.images] == [row["_op"] for row in history]
    upsert_table, log = ran.reported["s.upsert_table"], ran.reported["s.history"]
    assert (upsert_table["ignored_records"], log["ignored_records"]) == ({"schema_change": source.ddl},) * 2
    assert log["dead_letters"] == 0


def test_a_table_of_dms_has_the_rows_of_its_source(ran: Ran) -> None:
    assert ran.rows("dms") == [{"id": 1, "name": "b"}, {"id": 9, "name": "c"}]
    assert ran.counts("dms") == (1, {"schema_change": 1})


def test_every_change_of_dms_is_kept(ran: Ran) -> None:
    at = {"_source_ts": datetime(2026, 11, 22, 0, 0, 1, 500000, UTC), "_source_table": "foo"}
    at |= {"_connector_ts": datetime(2026, 11, 22, 0, 0, 2, tzinfo=UTC)}
    changes: list[tuple[str, str, int, str | None]] = [("r", "after", n, "a") for n in range(3)]
    changes += [("u", "after", 1, "b"), ("u", "identity", 2, None), ("u", "after", 9, "c"), ("d", "identity", 0, None)]
    named = [{"id": n, "name": name, "_op": op, "_image": image, **at} for op, image, n, name in changes]
    found = [dict(sorted(row.items())) for row in ran.rows("changes")]
    assert sorted(found, key=str) == sorted((dict(sorted(row.items())) for row in named), key=str)


def test_keys_and_values_of_connects_converter_have_their_types(ran: Ran) -> None:
    assert ran.rows("connect") == [{"id": 0, "price": Decimal("2.56")}, {"id": 2, "price": Decimal("12.50")}]
    assert ran.counts("connect")[0] == 1


def test_cloud_events_of_both_modes_are_rows(ran: Ran) -> None:
    own = {"_ce_source": "/orders", "_ce_type": "placed", "_ce_time": datetime(2026, 11, 22, 0, 0, 1, tzinfo=UTC)}
    own |= {"_ce_subject": None}
    assert ran.rows("cloud") == [
        {"id": 1, "_ce_extensions": [("region", "eu")], "_ce_id": "e-1", **own},
        {"id": 2, "_ce_extensions": [], "_ce_id": "e-2", **own},
    ]
    assert ran.counts("cloud") == (1, {})


def test_events_of_an_outbox_are_rows_whether_they_were_routed_or_not(ran: Ran) -> None:
    own = {"_event_type": "placed", "_aggregate_id": "7"}
    assert ran.rows("outbox") == [
        {"id": 1, "_event_id": "8a", "_aggregate_type": None, **own},
        {"id": 2, "_event_id": "9f", "_aggregate_type": "order", **own},
    ]
    assert ran.counts("outbox") == (1, {"delete": 1})


def test_records_with_timestamps_in_nanoseconds_are_rows_without_timestamp_columns(
    ran: Ran,
) -> None:
    plain = ran.rows("plain")
    assert sorted(row["n"] for row in plain) == list(range(COUNT))
    assert all(row["_key"] == f"k{row['n']}".encode() for row in plain)
    headers = {row["_headers"][0]["value"] for row in plain if row["n"] in FAR}
    assert headers == {str(n).encode() for n in FAR}
    for partition in (0, 1):
        mine = sorted(
            (row for row in plain if row["_kafka_partition"] == partition), key=lambda row: int(row["_offset"])
        )
        assert [row["n"] for row in mine] == [n for n in range(COUNT) if n % 7 % 2 == partition]
        assert [row["_offset"] for row in mine] == list(range(len(mine)))
    assert {row["n"] for row in ran.rows("timed")} == set(range(COUNT)) - FAR
    dead = ran.rows("timed__dead_letters")
    assert {json.loads(row["value"])["n"] for row in dead} == FAR
    assert {row["error_class"] for row in dead} == {"out_of_range"}


def test_records_with_timestamps_in_nanoseconds_have_an_order_among_changes(ran: Ran) -> None:
    assert {row["key"]: row["n"] for row in ran.rows("newest")} == {n % 7: n for n in range(COUNT)}
