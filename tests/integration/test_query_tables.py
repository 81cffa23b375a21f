"""Tables with queries, conditions and functions, as their user runs them: from a real broker to a reader that knows nothing
of Frazil. One pipeline has them all; some of its expressions Spark itself evaluates.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.jvm import Jvm
from tests.fixtures.in_process import ended_on
from tests.integration.pipelines import Ledger, Pipeline, ended
from tests.integration.queried_tables import (
    LENIENT,
    LENIENT_NUMBER,
    MAIL_SELECT,
    SALES,
    SELECT,
    SIZES,
    SPARK_SELECT,
    TOPICS,
    UNWELL,
    tables,
)
from tests.integration.test_changelog import rows
from tests.integration.test_query_functions import MODULE

pytestmark = pytest.mark.timeout(600)
_NOTED = ("orders", "orders__dead_letters", "calls", "calls__dead_letters", "mails", "visitors__dead_letters")


class Scene:
    """Topics with records, and a pipeline with tables of them."""

    def __init__(self, broker: EmbeddedBroker, folder: Path) -> None:
        servers = broker.bootstrap_servers
        self.folder = folder
        self.topics = {name: Ledger(servers, new_id(), 1).topic for name in TOPICS}
        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        for name, records in TOPICS.items():
            for key, value in records:
                named = None if key is None else json.dumps(key).encode()
                producer.produce(self.topics[name], json.dumps(value).encode(), named)
        assert producer.flush(30) == 0
        (folder / "key").write_text("k" * 40)
        (folder / "shop_functions.py").write_text(MODULE)
        codes = pa.array(range(5), pa.int64())
        pq.write_table(pa.table({"code": codes, "cm": pa.array(range(80, 85))}), folder / SIZES)
        self.document: dict[str, Any] = {
            "pipeline": "p",
            "kafka": {"bootstrap.servers": servers},
            # What a user sets does not change what a query means.
            "spark": {"conf": {"spark.sql.ansi.enabled": "false", "spark.sql.session.timeZone": "Asia/Tokyo"}},
            "tables": tables(self.topics, folder),
        }
        self.pipeline = Pipeline(folder, self.document)
        #: What the run reported, and the rows of some tables before dead letters were replayed.
        self.reported: Mapping[str, Any] = {}
        self.before: dict[str, list[dict[str, Any]]] = {}
        #: How `frazil try` ended and what it printed of a table, and what it printed for people of another, before the run.
        self.tried: tuple[int, Mapping[str, Any]] = (0, {})
        self.shown = ""

    def command(self, *words: str) -> tuple[int, Mapping[str, Any]]:
        """The exit code and the document of a command, which is a process as its user's are."""
        done, document = self.pipeline.command(*words)
        return done.returncode, document

    def looked(self, jvm: Jvm, *words: str) -> tuple[int, dict[str, Any]]:
        """The same of a command that evaluates nothing in Spark, in the process of the tests."""
        return ended_on(jvm, self.pipeline.file, {}, *words)


@pytest.fixture(scope="module")
def scene(broker: EmbeddedBroker, jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    made = Scene(broker, tmp_path_factory.mktemp("queries"))
    code, plan = made.looked(jvm, "plan")
    assert code == 4
    columns = {name: [(one["name"], one["type"]) for one in table["columns"]] for name, table in plan["tables"].items()}
    assert columns["s.orders"] == [("id", "long"), ("email", "string"), ("amount", "decimal(12, 2)"), ("at", "long")]
    assert columns["s.visits"] == [("visit", "long"), ("origin", "string")]
    [unwell] = [check for check in made.looked(jvm, "check")[1]["checks"] if not check["ok"]]
    assert unwell["name"] == f"topic {made.topics['orders']}x"
    assert f"did you mean `{made.topics['orders']}`?" in unwell["remedy"]
    made.tried = made.command("try", "s.orders", "--records", "3")
    made.shown = ended(made.folder, made.pipeline.file, "try", "s.visitors").stdout
    code, document = made.command("run", "--until-caught-up")
    assert code == 4, document
    made.reported = document["tables"]
    well = {name: table for name, table in made.document["tables"].items() if name not in UNWELL}
    made.pipeline = Pipeline(made.folder, {**made.document, "tables": well})
    code, plan = made.looked(jvm, "plan")
    assert (code, plan["changes"]) == (0, False)
    made.before = {name: rows(made.folder, name) for name in _NOTED}
    made.document["tables"]["s.orders"]["select"] = SELECT.format(amount=LENIENT)
    made.document["tables"]["s.calls"]["select"] = SPARK_SELECT.format(number=LENIENT_NUMBER)
    made.document["tables"]["s.mails"]["select"] = MAIL_SELECT.format(mail="replace(mail, ' at ', '@')")
    made.pipeline = Pipeline(made.folder, made.document)
    assert made.command("dead-letters", "replay")[0] == 0
    return made


def test_rows_are_what_the_query_makes_and_the_rest_is_counted(scene: Scene) -> None:
    reported, found = scene.reported, scene.before["orders"]
    assert sorted((row["id"], row["email"], row["amount"], row["at"]) for row in found) == [
        (1, "ann@example.org", Decimal("12.50"), 0),
        (3, None, Decimal("7.00"), 2),
    ]
    assert reported["s.orders"]["dead_letters"] == 1
    assert reported["s.orders"]["ignored_records"] == {"where": 1}
    assert rows(scene.folder, "visits") == [{"visit": 4, "origin": "web"}]
    assert reported["s.visits"]["ignored_records"] == {"where": 3}


def test_catching_up_tells_of_a_topic_that_is_not_there(scene: Scene) -> None:
    """That this is no success: unit/cli/test_run.py."""
    table = scene.reported["s.absent"]
    assert (table["state"], table["reason"]) == ("backing off", f"topic {scene.topics['orders']}x does not exist")


def test_changes_keep_what_the_query_takes_of_the_current_rows(scene: Scene) -> None:
    assert rows(scene.folder, "people") == [{"person": 1, "name": "ANNA"}]


def test_a_row_that_the_condition_no_longer_takes_is_marked_with_soft_deletes(scene: Scene) -> None:
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


def test_lineage_names_the_fields_and_keys_of_each_column(scene: Scene, jvm: Jvm) -> None:
    code, found = scene.looked(jvm, "lineage")
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
    sized = found["tables"]["s.sized"]
    assert {one["name"]: one["fields"] for one in sized["columns"]} == {"id": ["id"], "cm": ["id", "size.cm"]}
    assert sized["conditions"] == ["id"]
    assert sorted((row["id"], row["cm"]) for row in rows(scene.folder, "sized"))[-1] == (4, 84)


def test_a_dead_letter_of_an_expression_becomes_a_row_when_the_query_is_corrected(scene: Scene) -> None:
    [dead_letter] = scene.before["orders__dead_letters"]
    assert dead_letter["error_class"] == "failed_expression"
    assert "CAST_INVALID_INPUT" in dead_letter["message"]
    assert "1,5" in dead_letter["message"]
    found = {row["id"]: row for row in rows(scene.folder, "orders")}
    assert found[2] == {"id": 2, "email": "bob@example.org", "amount": Decimal("1.50"), "at": 1}


def test_rows_that_do_not_meet_a_condition_are_set_aside_dropped_or_counted(scene: Scene) -> None:
    stopped, topic = scene.reported["s.strict"], scene.topics["sales"]
    assert (stopped["state"], stopped["where"]) == ("stopped", f"topic {topic}, partition 0, offset 1")
    assert (
        stopped["reason"] == "the record does not meet positive (amount >= 0): amount = -5 (and 2 more in this batch)"
    )
    reported = {name: scene.reported[f"s.{name}"] for name in ("sales", "latest", "warned")}
    assert {name: table["expectations"] for name, table in reported.items()} == {
        "sales": {"positive": 3, "small": 2},
        "latest": {"positive": 3},
        "warned": {"positive": 3},
    }
    assert (reported["sales"]["dead_letters"], reported["latest"]["ignored_records"]) == (3, {"positive": 3})
    assert sorted((row["id"], row["amount"]) for row in rows(scene.folder, "sales")) == [(1, 5), (4, 4)]
    assert sorted((row["id"], row["twice"]) for row in rows(scene.folder, "latest")) == [(1, 10), (4, 8)]
    assert len(rows(scene.folder, "warned")) == len(SALES)


def test_rows_have_what_spark_makes_of_their_records(scene: Scene) -> None:
    found = {row["id"]: row for row in scene.before["calls"]}
    assert found[1] | {"h": None} == {
        "id": 1,
        "line": "GET /a/# #",
        "name": "ANN",
        "tags": ["x", "y"],
        "words": ["get1", "/a/71", "2001"],
        "number": 8,
        "hour": "12:00",
        "h": None,
        "code": Decimal(200),
    }
    assert {name for name, value in found[3].items() if value is not None} == {"id", "h"}
    assert found.keys() == {1, 3}
    assert scene.reported["s.calls"]["ignored_records"] == {"where": 1}


def test_an_expression_of_sparks_that_fails_is_a_dead_letter_of_its_record_alone(scene: Scene) -> None:
    assert scene.reported["s.calls"]["dead_letters"] == 3
    found = {
        one["offset"]: (one["error_class"], one["path"], one["message"]) for one in scene.before["calls__dead_letters"]
    }
    assert found[1] == (
        "failed_expression",
        "number",
        "CAST_INVALID_INPUT: CAST(regexp_extract(records.line, '/([^/ ]+) ', 1) AS INT) of \"x\"",
    )
    assert found[3][0] == "type_mismatch"
    assert found[4] == (
        "failed_expression",
        "code",
        """EXPRESSION_FAILED: to_number(split(records.line, ' ', -1)[2], '999') of "GET /a/8 2xx\"""",
    )
    assert scene.reported["s.nulls"]["dead_letters"] == 1
    assert {row["id"]: row["number"] for row in rows(scene.folder, "nulls")} == {1: 8, 2: None, 3: None, 6: 9}


def test_spark_sees_protected_values_only(scene: Scene) -> None:
    assert [row["line"] for row in rows(scene.folder, "hidden")] == ["hashed", "hashed", None, "hashed", "hashed"]


def test_changes_have_what_spark_makes_of_their_rows(scene: Scene) -> None:
    assert scene.before["mails"] == [{"person": 1, "name": "ann", "host": "z.org"}]


def test_dead_letters_of_what_spark_evaluates_are_replayed_without_a_job(scene: Scene) -> None:
    found = {row["id"]: row for row in rows(scene.folder, "calls")}
    assert found[2] | {"h": None} == {
        "id": 2,
        "line": "PUT /b/x #",
        "name": None,
        "tags": None,
        "words": ["put2", "/b/x2", "2012"],
        "number": None,
        "hour": "11:00",
        "h": None,
        "code": Decimal(201),
    }
    assert found[1] == next(row for row in scene.before["calls"] if row["id"] == 1)
    assert sorted(rows(scene.folder, "mails"), key=lambda row: int(row["person"])) == [
        {"person": 1, "name": "ann", "host": "z.org"},
        {"person": 4, "name": "", "host": "z.org"},
    ]


def test_functions_are_called_and_a_broken_one_stops_its_table_alone(scene: Scene) -> None:
    head, *lines = scene.shown.splitlines()
    assert head == "s.visitors: 4 records tried, 3 written, 0 dropped, 1 failed; nothing was changed"
    assert '  append  {"id": 3, "email": "bob@example.org", "price": "15.00"}' in lines
    [error] = [line for line in lines if line.startswith("  error   failed_expression: field email: ")]
    assert "ValueError: no @ in it: clean(email)" in error
    assert sorted((row["id"], row["email"], row["price"]) for row in rows(scene.folder, "visitors")) == [
        (0, "ann@example.org", Decimal("0.00")),
        (2, None, Decimal("10.00")),
        (3, "bob@example.org", Decimal("15.00")),
    ]
    assert scene.reported["s.visitors"]["dead_letters"] == 1
    (dead,) = scene.before["visitors__dead_letters"]
    assert 'ValueError: no @ in it: clean(email) of "nobody"' in dead["message"]
    newest = {row["shop"]: row for row in rows(scene.folder, "newest")}
    assert {shop: (row["price"], row["sound"]) for shop, row in newest.items()} == {
        "a@x": (Decimal("10.00"), "A200"),
        "b@x": (Decimal("15.00"), "B200"),
    }
    assert (newest["a@x"]["email"], len(newest["b@x"]["email"])) == (None, 64)
    assert scene.reported["s.short"]["state"] == "stopped"
    assert "`short(cents)` returns 3 values for 4 rows" in json.dumps(scene.reported["s.short"])
