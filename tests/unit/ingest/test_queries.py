"""Tables with a query: what they hold, what is dropped and counted, what becomes a dead letter, and what changes with the
fields of their records.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import JavaGateway

from frazil.ingest.queries import SparkQueries
from frazil.ingest.services import Services
from frazil.ingest.state import RunState
from frazil.ingest.table import Table
from frazil.runtime.light_jvm import LightJvm
from tests.unit.ingest import service_scene
from tests.unit.ingest.service_scene import Scene, only


@pytest.fixture(scope="module")
def queries() -> Iterator[SparkQueries]:
    jvm = LightJvm({}, needs_spark_jars=True)
    gateway: JavaGateway = jvm.gateway
    yield SparkQueries(lambda: gateway.jvm)
    jvm.close()


@pytest.fixture
def scene(tmp_path: Path, queries: SparkQueries, monkeypatch: pytest.MonkeyPatch) -> Any:
    def services(**parts: Any) -> Services:
        return Services(queries=queries, **parts)

    monkeypatch.setattr(service_scene, "Services", services)
    return lambda **settings: Scene(tmp_path, "a", **settings)


def _progress(scene: Scene) -> Any:
    state = scene.catalog.load("n.a")
    assert state is not None
    return state.progress


def test_a_query_makes_the_rows_and_drops_are_counted_in_the_commit(scene: Any) -> None:
    made = scene(select="select id, lower(email) as email from records where kind = 'order'")
    made.feed("a", {"id": 1, "email": "A@X", "kind": "order"}, {"id": 2, "email": "B@X", "kind": "visit"})
    made.catch_up()
    made.feed("a", {"id": 3, "email": None, "kind": "order"}, {"id": 4})
    made.catch_up()
    assert made.rows("n.a") == [{"id": 1, "email": "a@x"}, {"id": 3, "email": None}]
    assert _progress(made).ignored_records == {"where": 2}
    assert _progress(made).offsets == {"a": {0: 4}}


def test_a_failing_expression_makes_a_dead_letter_of_its_record_only(scene: Any) -> None:
    made = scene(select="select id, cast(amount as decimal(12, 2)) as amount from records")
    made.feed("a", {"id": 1, "amount": "1.5"}, {"id": 2, "amount": "one"}, {"id": 3, "amount": "2"})
    made.catch_up()
    assert [row["id"] for row in made.rows("n.a")] == [1, 3]
    assert made.dead_letters("n.a") == [("a", 0, 1)]


def test_with_null_for_errors_the_record_stays(scene: Any) -> None:
    made = scene(select="select id, cast(amount as int) as amount from records", on_error="null")
    made.feed("a", {"id": 1, "amount": "15"}, {"id": 2, "amount": "one"})
    made.catch_up()
    assert made.rows("n.a") == [{"id": 1, "amount": 15}, {"id": 2, "amount": None}]


def test_the_columns_follow_the_fields_of_the_records(scene: Any) -> None:
    made = scene(select="select *, _offset as at from records where id > 0")
    made.feed("a", {"id": 1})
    made.catch_up()
    made.feed("a", {"id": 2, "new": "x"})
    tables = made.catch_up()
    assert made.rows("n.a") == [{"id": 1, "at": 0, "new": None}, {"id": 2, "at": 1, "new": "x"}]
    assert only(tables).schema.query is not None


def test_where_alone_takes_a_part_of_the_topic(scene: Any) -> None:
    made = scene(where="kind = 'order'")
    made.feed("a", {"id": 1, "kind": "order"}, {"id": 2, "kind": "visit"}, {"id": 3})
    made.catch_up()
    assert made.rows("n.a") == [{"id": 1, "kind": "order"}]
    assert _progress(made).ignored_records == {"where": 2}


def test_a_row_that_the_query_no_longer_takes_is_deleted(scene: Any) -> None:
    made = scene(
        select="select id as order_id, upper(state) as state from records where state <> 'gone'",
        mode="upsert",
        key_columns=("order_id",),
        format_version=3,
    )
    made.feed("a", {"id": 1, "state": "new"}, {"id": 2, "state": "new"}, {"id": 3, "state": "gone"})
    made.catch_up()
    made.feed("a", {"id": 1, "state": "gone"}, {"id": 2, "state": "paid"})
    made.catch_up()
    assert made.rows("n.a") == [{"order_id": 2, "state": "PAID"}]


def test_a_field_that_no_record_has_had_yet_is_waited_for(scene: Any) -> None:
    made = scene(select="select id, email from records")
    made.feed("a", {"id": 1})
    service = made.start()
    service_scene.turn_until(service, lambda: only(service.tables).status.run_state is RunState.BACKING_OFF, 20)
    table: Table = only(service.tables)
    assert "unknown column" in table.status.reason, table.status.reason
    made.feed("a", {"id": 2, "email": "e"})
    made.catch_up()
    assert made.rows("n.a") == [{"id": 1, "email": None}, {"id": 2, "email": "e"}]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("select id from other", "other"),
        ("select count(*) from records", "`count`"),
        ("select id, rand() as x from records", "rand"),
        ("drop table x", "DropTable"),
    ],
)
def test_what_is_no_query_of_records_stops_the_table_with_a_remedy(scene: Any, query: str, words: str) -> None:
    made = scene(select=query)
    made.feed("a", {"id": 1})
    table = only(made.catch_up())
    assert table.status.run_state is RunState.STOPPED
    assert words in table.status.reason, table.status
    assert table.status.remedy
