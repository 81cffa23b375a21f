"""Tables with a query, as their user runs them: from a real broker to a reader that knows nothing of Frazil."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from tests.integration.pipelines import Ledger, Pipeline, ended
from tests.integration.test_changelog import rows

pytestmark = pytest.mark.timeout(600)
ORDERS = [
    {"id": 1, "email": "Ann@Example.org", "amount": "12.50", "kind": "order"},
    {"id": 2, "email": "Bob@Example.org", "amount": "1,5", "kind": "order"},
    {"id": 3, "email": None, "amount": "7", "kind": "order"},
    {"id": 4, "email": "c@x", "amount": "1", "kind": "visit"},
]
SELECT = "select id, lower(email) as email, {amount} as amount, _offset as at from records where kind = 'order'"
STRICT, LENIENT = "cast(amount as decimal(12,2))", "cast(replace(amount, ',', '.') as decimal(12,2))"


def _change(op: str, before: Any, after: Any) -> dict[str, Any]:
    return {"before": before, "after": after, "source": {"connector": "postgresql"}, "op": op, "ts_ms": 1}


CHANGES = [
    (1, _change("c", None, {"id": 1, "name": "ann", "state": "on"})),
    (2, _change("c", None, {"id": 2, "name": "bob", "state": "on"})),
    (3, _change("c", None, {"id": 3, "name": "cid", "state": "off"})),
    (1, _change("u", None, {"id": 1, "name": "anna", "state": "on"})),
    (2, _change("u", None, {"id": 2, "name": "bob", "state": "off"})),
]


class Scene:
    """Two topics with records, and a pipeline with tables of them."""

    def __init__(self, broker: EmbeddedBroker, folder: Path) -> None:
        servers = broker.bootstrap_servers
        self.folder = folder
        self.orders, self.people = (Ledger(servers, new_id(), 1).topic for _ in range(2))
        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        for value in ORDERS:
            producer.produce(self.orders, json.dumps(value).encode())
        for key, value in CHANGES:
            producer.produce(self.people, json.dumps(value).encode(), json.dumps({"id": key}).encode())
        assert producer.flush(30) == 0
        self.document: dict[str, Any] = {
            "pipeline": "p",
            "kafka": {"bootstrap.servers": servers},
            "tables": {
                "s.orders": {"topic": self.orders, "select": SELECT.format(amount=STRICT)},
                "s.visits": {
                    "topic": self.orders,
                    "where": "kind = 'visit'",
                    "rename": {"id": "visit"},
                    "keep_fields": ["visit"],
                    "add_fields": {"origin": "web"},
                },
                "s.people": {
                    "topic": self.people,
                    "envelope": "debezium",
                    "mode": "upsert",
                    "select": "select id as person, upper(name) as name from records where state = 'on'",
                    "key_columns": ["person"],
                },
                "s.kept": {
                    "topic": self.people,
                    "envelope": "debezium",
                    "mode": "upsert",
                    "key_columns": ["id"],
                    "filter": "state = 'on'",
                    "deletes": "soft",
                },
            },
        }
        self.pipeline = Pipeline(folder, self.document)
        #: What the run reported, the rows of orders and their dead letters, before a test replayed one.
        self.reported: Mapping[str, Any] = {}
        self.orders_before: list[dict[str, Any]] = []
        self.dead_letters_before: list[dict[str, Any]] = []
        #: How `frazil try` ended and what it printed, before the first run.
        self.tried: tuple[int, Mapping[str, Any]] = (0, {})

    def command(self, *words: str) -> tuple[int, Mapping[str, Any]]:
        """The exit code and the document of a command."""
        done, document = self.pipeline.command(*words)
        return done.returncode, document

    def text(self, *words: str) -> str:
        """What a command prints for people."""
        return ended(self.folder, self.pipeline.file, *words).stdout


@pytest.fixture(scope="module")
def scene(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    made = Scene(broker, tmp_path_factory.mktemp("queries"))
    code, plan = made.command("plan")
    assert code == 4
    columns = {name: [(one["name"], one["type"]) for one in table["columns"]] for name, table in plan["tables"].items()}
    assert columns["s.orders"] == [("id", "long"), ("email", "string"), ("amount", "decimal(12, 2)"), ("at", "long")]
    assert columns["s.visits"] == [("visit", "long"), ("origin", "string")]
    assert [check for check in made.pipeline.checks() if not check["ok"]] == []
    made.tried = made.command("try", "s.orders", "--records", "3")
    made.reported = made.pipeline.run()["tables"]
    code, plan = made.command("plan")
    assert (code, plan["changes"]) == (0, False)
    made.orders_before = rows(made.folder, "orders")
    made.dead_letters_before = rows(made.folder, "orders__dead_letters")
    return made


def test_rows_are_what_the_query_makes_and_the_rest_is_counted(scene: Scene) -> None:
    reported, found = scene.reported, scene.orders_before
    assert sorted((row["id"], row["email"], row["amount"], row["at"]) for row in found) == [
        (1, "ann@example.org", Decimal("12.50"), 0),
        (3, None, Decimal("7.00"), 2),
    ]
    assert reported["s.orders"]["dead_letters"] == 1
    assert reported["s.orders"]["ignored_records"] == {"where": 1}
    assert rows(scene.folder, "visits") == [{"visit": 4, "origin": "web"}]
    assert reported["s.visits"]["ignored_records"] == {"where": 3}


def test_changes_keep_what_the_query_takes_of_the_current_rows(scene: Scene) -> None:
    assert rows(scene.folder, "people") == [{"person": 1, "name": "ANNA"}]


def test_a_row_that_the_condition_no_longer_takes_is_marked_as_deleted_where_deletes_are_soft(scene: Scene) -> None:
    found = {row["id"]: row for row in rows(scene.folder, "kept")}
    assert (found[1]["name"], found[1]["_deleted"], found[1]["_deleted_at"]) == ("anna", False, None)
    assert (found[2]["name"], found[2]["state"], found[2]["_deleted"]) == ("bob", "on", True)
    assert found[2]["_deleted_at"] is not None
    assert scene.reported["s.kept"]["dead_letters"] == 0


def test_try_shows_each_record_with_its_row_its_drop_or_its_error(scene: Scene) -> None:
    code, found = scene.tried
    assert (code, found["written"], found["dropped"], found["failed"]) == (4, 1, 1, 1)
    assert found["columns"][2] == {"name": "amount", "type": "decimal(12, 2)"}
    failed, row, dropped = found["records"]
    assert (failed["offset"], failed["error"]["path"], failed["input"][0]["amount"]) == (1, "amount", "1,5")
    assert row["output"] == [{"change": "append", "row": {"id": 3, "email": None, "amount": "7.00", "at": 2}}]
    assert (dropped["dropped"], dropped["input"][0]["kind"]) == (["where"], "visit")
    text = scene.text("try", "s.people", "--from", "earliest")
    assert text.splitlines()[0] == "s.people: 5 records tried, 5 written, 0 dropped, 0 failed; nothing was changed"
    assert "\n  upsert  {" in text
    assert "\n  delete  {" in text


def test_lineage_names_the_fields_of_each_column(scene: Scene) -> None:
    code, found = scene.command("lineage")
    assert code == 0
    orders = found["tables"]["s.orders"]
    assert {one["name"]: one["fields"] for one in orders["columns"]} == {
        "id": ["id"],
        "email": ["email"],
        "amount": ["amount"],
        "at": ["_offset"],
    }
    assert orders["conditions"] == ["kind"]
    assert found["tables"]["s.visits"]["columns"][1] == {"name": "origin", "fields": []}


def test_a_dead_letter_of_an_expression_becomes_a_row_when_the_query_is_corrected(scene: Scene) -> None:
    [dead_letter] = scene.dead_letters_before
    assert dead_letter["error_class"] == "failed_expression"
    assert "CAST_INVALID_INPUT" in dead_letter["message"]
    assert "1,5" in dead_letter["message"]
    scene.document["tables"]["s.orders"]["select"] = SELECT.format(amount=LENIENT)
    scene.pipeline.file.write_text(yaml.safe_dump(scene.document))
    assert scene.command("dead-letters", "replay", "s.orders")[0] == 0
    found = {row["id"]: row for row in rows(scene.folder, "orders")}
    assert found[2] == {"id": 2, "email": "bob@example.org", "amount": Decimal("1.50"), "at": 1}
