"""Tables that topics ask for by keys of their own: they come, change and end as the keys do, while the service runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from frazil.errors import SpecError
from frazil.ingest.failures import TableStopped
from frazil.ingest.loop.discovery import Discovery
from frazil.ingest.loop.refresh import TOPICS_EVERY_S
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.state import RunState
from frazil.kafka.port import ReadRecord
from frazil.ops.check import comparison
from frazil.ops.plan import plan_tables
from frazil.spec import PipelineSpec, load_spec
from frazil.spec.topic_keys import ENABLE, PREFIX, read_topic_table
from frazil.types import OffsetRange
from tests.unit.ingest.service_scene import Scene, turn_until

ON = {ENABLE: "true", f"{PREFIX}namespace": "shop", f"{PREFIX}commit.interval.ms": "100"}
TEXT = {f"{PREFIX}convert.value.type": "string"}
FILE = """
pipeline: p
kafka: {bootstrap.servers: "localhost:9092", topics_from: topic_configuration}
"""


def read(folder: Path, more: str = "") -> PipelineSpec:
    """The pipeline file without a table, with these lines."""
    path = folder / "frazil.yaml"
    path.write_text(FILE + more)
    return load_spec(path)


class Keyed(Scene):
    """Topics of a pipeline file without a table."""

    more = ""

    def spec(self, *topics: str) -> PipelineSpec:  # noqa: ARG002
        return read(self.root, self.more).model_copy(update={"state_dir": self.root})

    def settle(self, service: Service) -> dict[str, tuple[RunState, str]]:
        """All that is there is read; the state of each table, and why."""
        self.clock.sleep(TOPICS_EVERY_S)
        turn_until(service, lambda: False, 60)
        return {table.name: (table.status.run_state, table.status.reason) for table in service.tables}


def test_a_topic_gets_its_table_when_its_keys_say_so_and_keeps_it_when_they_no_longer_do(tmp_path: Path) -> None:
    scene = Keyed(tmp_path, "orders", "others")
    scene.feed("orders", b"a")
    scene.feed("others", b"x")
    service = scene.start()
    assert scene.settle(service) == {}
    scene.source.keys["orders"] = ON | TEXT
    assert scene.settle(service)["shop.orders"][0] is not RunState.STOPPED
    assert [row["value"] for row in scene.rows("shop.orders")] == ["a"]
    scene.source.keys["orders"] = ON | TEXT | {ENABLE: "false"}
    state, reason = scene.settle(service)["shop.orders"]
    assert state is RunState.STOPPED
    assert "orders no longer requests this table" in reason
    scene.feed("orders", b"b")
    scene.settle(service)
    assert len(scene.rows("shop.orders")) == 1
    scene.source.keys["orders"] = ON | TEXT
    scene.settle(service)
    assert [row["value"] for row in scene.rows("shop.orders")] == ["a", "b"]
    assert list(scene.settle(service)) == ["shop.orders"]


def test_changed_keys_are_the_tables_settings_from_then_on_and_nothing_is_read_twice(tmp_path: Path) -> None:
    scene = Keyed(tmp_path, "orders")
    scene.source.keys["orders"] = ON | TEXT
    scene.feed("orders", b"a")
    service = scene.start()
    scene.settle(service)
    scene.source.keys["orders"] = (
        ON | TEXT | {f"{PREFIX}commit.interval.ms": "60000", f"{PREFIX}errors.tolerance": "none"}
    )
    scene.settle(service)
    (table,) = service.tables
    assert (table.spec.commit.interval_s, table.spec.bad_records.on_bad_record) == (60, "stop")
    scene.feed("orders", b"b")
    scene.clock.sleep(120)
    scene.settle(service)
    assert [row["value"] for row in scene.rows("shop.orders")] == ["a", "b"]


def test_wrong_keys_stop_their_table_alone_until_they_are_corrected(tmp_path: Path) -> None:
    scene = Keyed(tmp_path, "orders", "lines")
    scene.source.keys = {"orders": ON | TEXT | {f"{PREFIX}partition.by": "[bucket(value)]"}, "lines": ON | TEXT}
    scene.feed("orders", b"a")
    scene.feed("lines", b"l")
    service = scene.start()
    states = scene.settle(service)
    assert states["shop.orders"][0] is RunState.STOPPED
    assert states["shop.orders"][1].startswith("the configuration of topic orders is wrong: ")
    assert [row["value"] for row in scene.rows("shop.lines")] == ["l"]
    scene.source.keys["orders"] = ON | TEXT | {f"{PREFIX}upsert.enable": "yes"}
    assert "`yes` is neither true nor false" in scene.settle(service)["shop.orders"][1]
    scene.source.keys["orders"] = ON | TEXT | {f"{PREFIX}partition.by": "[bucket(value, 4)]"}
    scene.settle(service)
    assert [row["value"] for row in scene.rows("shop.orders")] == ["a"]


def test_check_names_the_topic_whose_keys_are_wrong(tmp_path: Path) -> None:
    scene = Keyed(tmp_path, "orders")
    scene.source.keys["orders"] = ON | {f"{PREFIX}errors.tolerance": "some"}
    discovery = Discovery(scene.spec(), scene.source, scene.catalog)
    discovery.refresh_topics()
    compare = comparison(scene.spec(), scene.source, scene.catalog)
    with pytest.raises(TableStopped, match="configuration of topic orders is wrong") as stopped:
        compare(discovery.tables["shop.orders"])
    assert stopped.value.remedy == "write none, invalid_data or all"


def test_plan_shows_what_the_keys_would_make(tmp_path: Path) -> None:
    scene = Keyed(tmp_path, "orders", "lines")
    scene.source.keys = {"orders": ON | TEXT, "lines": ON | {f"{PREFIX}convert.value.type": "json"}}
    scene.feed("orders", b"a")

    def read_sample(ranges: Iterable[OffsetRange]) -> list[ReadRecord]:
        return scene.source.read(ranges, 1000)[0]

    lines, orders = plan_tables(scene.spec(), scene.source, scene.catalog, read_sample)
    assert lines.problem is not None
    assert lines.problem.where == "topic lines"
    assert (orders.name, orders.problem, orders.is_idle) == ("shop.orders", None, False)


def test_a_table_of_the_file_is_not_the_topics_to_change(tmp_path: Path) -> None:
    scene = Keyed(tmp_path, "orders")
    scene.more = "tables: {shop.orders: {topic: orders, value: {format: text}}}"
    scene.source.keys["orders"] = ON
    with capture_logs() as logged:
        service = scene.start()
        scene.settle(service)
    assert [table.spec.source.value.format for table in service.tables] == ["text"]
    (ignored,) = [event for event in logged if event["event"] == "topic_key_ignored"]
    assert (ignored["topic"], ignored["key"]) == ("orders", ENABLE)


def test_the_dots_of_a_topic_make_no_namespaces_and_two_topics_share_no_table(tmp_path: Path) -> None:
    scene = Keyed(tmp_path, "eu.orders", "eu_orders")
    scene.feed("eu.orders", b"dots")
    scene.feed("eu_orders", b"none")
    scene.source.keys["eu.orders"] = ON | TEXT
    service = scene.start()
    assert scene.settle(service) == {"shop.eu_orders": (RunState.WAITING, "")}
    scene.source.keys["eu_orders"] = ON | TEXT
    with capture_logs() as logged:
        scene.settle(service)
    (ignored,) = [event for event in logged if event["event"] == "topic_key_ignored"]
    assert ignored["topic"] == "eu_orders"
    assert ignored["reason"] == "the table shop.eu_orders is that of the topic eu.orders"
    scene.source.keys["eu_orders"] |= {f"{PREFIX}namespace": "others"}
    scene.settle(service)
    assert [row["value"] for row in scene.rows("shop.eu_orders")] == ["dots"]
    assert [row["value"] for row in scene.rows("others.eu_orders")] == ["none"]


def test_a_key_without_an_effect_is_logged(tmp_path: Path) -> None:
    scene = Keyed(tmp_path, "orders")
    scene.source.keys["orders"] = ON | TEXT | {f"{PREFIX}expire.snapshot.retain.last": "9"}
    with capture_logs() as logged:
        scene.start()
    (ignored,) = [event for event in logged if event["event"] == "topic_key_ignored"]
    assert ignored["key"] == f"{PREFIX}expire.snapshot.retain.last"


def test_what_the_keys_leave_out_is_taken_from_the_file(tmp_path: Path) -> None:
    spec = read(tmp_path, "namespace: lake\ndefaults: {format_version: 3}\ncommit: {interval: 7s}")
    table, _ = read_topic_table(spec, "a.b", {ENABLE: "true"})
    assert (table.name, table.layout.format_version, table.commit.interval_s) == ("lake.a_b", 3, 7)


@pytest.mark.parametrize(
    ("wrong", "remedied"),
    [
        ({"errors.tolerance": "some"}, {"errors.tolerance": "all"}),
        ({"transform.value.type": "unwrap"}, {"transform.value.type": "none"}),
        ({"schema.type": "avro"}, {"schema.type": "none"}),
        ({"convert.value.type": "json"}, {"convert.value.type": "string"}),
        ({"convert.key.type": "json"}, {"convert.key.type": "string"}),
        ({"commit.interval.ms": "1s"}, {"commit.interval.ms": "60000"}),
        ({"upsert.enable": "yes"}, {"upsert.enable": "false"}),
        ({"namespace": "${env:HOME}"}, {"namespace": "home"}),
        ({"convert.value.type": "by_schema_id"}, {}),
    ],
)
def test_a_wrong_key_is_refused_with_its_topic_until_its_remedy_is_done(
    tmp_path: Path, wrong: dict[str, str], remedied: dict[str, str]
) -> None:
    spec = read(tmp_path)

    def table(keys: dict[str, str]) -> Any:
        return read_topic_table(spec, "orders", {ENABLE: "true", **{PREFIX + key: one for key, one in keys.items()}})

    with pytest.raises(SpecError) as refused:
        table(wrong)
    assert refused.value.where == "topic orders"
    assert refused.value.remedy
    table(remedied)


def test_a_topic_of_dead_letters_gets_no_table(tmp_path: Path) -> None:
    spec = read(tmp_path, "defaults: {dead_letters: {topic: bad}}")
    with pytest.raises(SpecError, match="dead letters go to it"):
        read_topic_table(spec, "bad", {ENABLE: "true"})
