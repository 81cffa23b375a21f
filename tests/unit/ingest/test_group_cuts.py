"""Tables of a group end a batch at one moment, and read on at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from frazil.catalog.progress import from_summary
from frazil.ingest.tables.cuts import GRACE_S
from frazil.kafka.port import Partition
from tests.unit.ingest.service_scene import Scene, turn_until

NAMES = {"n.a", "n.b"}


@pytest.fixture
def two(tmp_path: Path) -> Scene:
    return Scene(tmp_path, "a", "b")


def commits_of(scene: Scene, table: str) -> list[int]:
    """The offset of the table's topic after each of its commits, the newest first."""
    progress = (from_summary("p", snapshot.summary, snapshot.id) for snapshot in scene.catalog.ancestors(table))
    return [one.offsets[table.removeprefix("n.")][0] for one in progress if one is not None]


def test_both_tables_end_a_batch_at_the_moment_and_read_on(two: Scene) -> None:
    service = two.start()
    two.feed("a", *({"id": n} for n in range(5)))
    two.feed("b", *({"id": n} for n in range(3)))
    assert turn_until(
        service, lambda: all(two.catalog.load(name) is not None and commits_of(two, name) for name in NAMES)
    )
    two.feed("a", {"id": 5})
    two.cuts.request("shop", NAMES)
    service.turn()
    cut = two.cuts.of("shop")
    assert cut is not None
    assert (dict(cut.ends), dict(cut.bounds)) == ({("a", 0): 6, ("b", 0): 3}, {})
    two.source.produce("b", 0, b'{"id": 3}', cut.at_ms - 1)  # It arrives late.
    for topic in "ab":
        two.source.produce(topic, 0, b'{"id": 9}', cut.at_ms + 1)
    begun_s = two.clock.monotonic_s()
    assert turn_until(service, lambda: all(map(two.cuts.of("shop").is_reached, service.tables)))  # type: ignore[union-attr]
    made = two.cuts.of("shop")
    assert made is not None
    assert dict(made.bounds) == {("a", 0): 6, ("b", 0): 4}
    assert two.clock.monotonic_s() - begun_s < 3 * GRACE_S
    assert turn_until(service, lambda: [commits_of(two, f"n.{topic}")[0] for topic in "ab"] == [7, 5])
    assert (commits_of(two, "n.a")[1], commits_of(two, "n.b")[1]) == (6, 4)


def test_a_table_without_new_records_is_at_the_cut(two: Scene) -> None:
    service = two.start()
    two.feed("a", {"id": 1})
    two.feed("b", {"id": 1})
    assert turn_until(
        service, lambda: all(two.catalog.load(name) is not None and commits_of(two, name) for name in NAMES)
    )
    two.feed("a", {"id": 2})
    two.cuts.request("shop", NAMES)
    assert turn_until(service, lambda: all(map(two.cuts.of("shop").is_reached, service.tables)))  # type: ignore[union-attr]
    cut = two.cuts.of("shop")
    assert cut is not None
    assert {table.name: cut.offsets_of(table) for table in service.tables} == {
        "n.a": {"a": {0: 2}},
        "n.b": {"b": {0: 1}},
    }
    assert (commits_of(two, "n.a"), commits_of(two, "n.b")) == ([2, 1], [1])


def test_a_table_that_is_far_behind_reads_up_to_the_cut_in_several_batches(two: Scene) -> None:
    service = two.start()
    two.feed("a", *({"id": n} for n in range(50)))
    two.feed("b", {"id": 1})
    two.cuts.request("shop", NAMES)
    two.cuts.end("shop")
    assert two.cuts.of("shop") is None
    two.cuts.request("shop", NAMES)
    assert turn_until(service, lambda: all(map(two.cuts.of("shop").is_reached, service.tables)))  # type: ignore[union-attr]
    assert commits_of(two, "n.a")[0] == 50


def test_a_record_that_arrives_while_the_moment_is_looked_up_is_behind_it(two: Scene) -> None:
    """Kafka is asked for the first records after the moment, and then for the ends of the partitions without one."""
    service = two.start()
    two.feed("a", {"id": 1})
    two.feed("b", {"id": 1})
    service.turn()
    two.cuts.request("shop", NAMES)
    service.turn()
    ask = two.source.at_time

    def ask_meanwhile(times: Mapping[Partition, int]) -> dict[Partition, int]:
        ends = two.source.ends(times)
        lacking = [place for place, offset in ask(times).items() if offset == ends[place]]
        two.source.produce("b", 0, b'{"id": 2}', two.clock.now_ms() + 1)
        return ask(times) | two.source.ends(lacking)

    setattr(two.source, "at_time", ask_meanwhile)  # noqa: B010
    two.clock.sleep(GRACE_S)
    two.cuts.make({table.name: table for table in service.tables}, {("a", 0): 1, ("b", 0): 1}, two.source)
    cut = two.cuts.of("shop")
    assert cut is not None
    assert dict(cut.bounds) == {("a", 0): 1, ("b", 0): 1}


def test_a_moment_waits_for_a_broker_that_does_not_answer(two: Scene) -> None:
    service = two.start()
    two.feed("a", {"id": 1})
    two.feed("b", {"id": 1})
    service.turn()
    two.cuts.request("shop", NAMES)
    service.turn()
    two.source.produce("b", 0, b'{"id": 2}', two.clock.now_ms() - 1)
    two.clock.sleep(GRACE_S)
    tables, ends = {table.name: table for table in service.tables}, {("a", 0): 1, ("b", 0): 1}
    ask = two.source.at_time

    def ask_one(times: Mapping[Partition, int]) -> dict[Partition, int]:
        return {place: offset for place, offset in ask(times).items() if place[0] == "a"}

    setattr(two.source, "at_time", ask_one)  # noqa: B010
    two.cuts.make(tables, ends, two.source)
    assert not two.cuts.of("shop").bounds  # type: ignore[union-attr]
    setattr(two.source, "at_time", ask)  # noqa: B010
    two.cuts.make(tables, ends, two.source)
    assert dict(two.cuts.of("shop").bounds) == {("a", 0): 1, ("b", 0): 2}  # type: ignore[union-attr]
