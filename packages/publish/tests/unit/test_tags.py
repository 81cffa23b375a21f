"""Which tags a table gets by calendar, and at which snapshots."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from frazil.spec.models import TableSpec
from frazil.spec.publishing import DailyTime, PublishingSpec, PublishSpec, TagSpec
from frazil.types import MAIN
from frazil_publish.publisher import Published
from frazil_publish.tags import last_time_ms
from packages.publish.tests.unit.test_publisher import Scene
from packages.publish.tests.unit.test_schedule import Running
from tests.contracts.tables import TABLE

DAY_MS = 86_400_000
DAILY = TagSpec(name="daily", at=DailyTime(0, "UTC"), keep_s=30 * 86_400)


def at(text: str) -> int:
    """Milliseconds since 1970 of a time in UTC."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def tagged(scene: Scene) -> dict[str, int]:
    document = scene.catalog.metadata_document(TABLE)
    assert document is not None
    return {name: ref["snapshot-id"] for name, ref in document["refs"].items() if ref["type"] == "tag"}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    made = Scene(tmp_path)
    made.clock.sleep(at("2026-03-31") / 1000 - made.clock.now_ms() / 1000)
    return made


@pytest.mark.parametrize(
    ("zone", "complete", "expected"),
    [
        ("UTC", "2026-03-29T05:00", "2026-03-29T00:00"),
        ("UTC", "2026-03-29T00:00", "2026-03-29T00:00"),
        ("Europe/Berlin", "2026-03-28T22:59", "2026-03-27T23:00"),
        ("Europe/Berlin", "2026-03-28T23:00", "2026-03-28T23:00"),
        ("Europe/Berlin", "2026-03-29T21:59", "2026-03-28T23:00"),
        ("Europe/Berlin", "2026-03-29T22:00", "2026-03-29T22:00"),
        ("Pacific/Kiritimati", "2026-03-28T11:00", "2026-03-28T10:00"),
    ],
)
def test_a_day_begins_when_it_does_in_its_zone(zone: str, complete: str, expected: str) -> None:
    assert last_time_ms(DailyTime(0, zone), at(complete)) == at(expected)


def test_a_tag_is_at_the_first_published_snapshot_that_is_complete_to_its_time(scene: Scene) -> None:
    table = Published(TABLE, tags=(DAILY,))
    scene.ingest(at("2026-03-28T20:00"))
    scene.publisher.publish(table)
    first = scene.seen
    scene.ingest(at("2026-03-28T23:59"))
    scene.publisher.publish(table)
    assert tagged(scene) == {"daily-2026-03-28": first}
    scene.ingest(at("2026-03-29T00:00"))
    scene.ingest(at("2026-03-29T01:00"))
    scene.publisher.publish(table)
    second = scene.seen
    scene.ingest(at("2026-03-29T02:00"))
    scene.publisher.publish(table)
    assert tagged(scene) == {"daily-2026-03-28": first, "daily-2026-03-29": second}


def test_days_that_nothing_was_published_on_are_tagged_at_once(scene: Scene) -> None:
    table = Published(TABLE, tags=(DAILY,))
    scene.ingest(at("2026-03-25T20:00"))
    scene.publisher.publish(table)
    scene.ingest(at("2026-03-28T01:00"))
    scene.publisher.publish(table)
    names = ["daily-2026-03-25", "daily-2026-03-26", "daily-2026-03-27", "daily-2026-03-28"]
    assert sorted(tagged(scene)) == names
    assert {tagged(scene)[name] for name in names[1:]} == {scene.seen}


def test_a_snapshot_that_is_published_by_hand_gets_the_tags_of_its_days(scene: Scene) -> None:
    table = Published(TABLE, tags=(DAILY,))
    scene.ingest(at("2026-03-27T20:00"))
    scene.publisher.publish(table)
    chosen = scene.ingest(at("2026-03-28T20:00"))
    scene.publisher.publish_snapshot(table, chosen)
    assert tagged(scene)["daily-2026-03-28"] == chosen
    scene.publisher.publish_snapshot(table, chosen - 1)
    assert tagged(scene)["daily-2026-03-28"] == chosen


def test_a_time_that_is_yet_to_come_does_not_end_the_tags(scene: Scene) -> None:
    table = Published(TABLE, tags=(DAILY,))
    scene.ingest(at("2026-03-30T20:00") * 1000)  # Microseconds, as if they were milliseconds.
    scene.publisher.publish(table)
    scene.clock.sleep(86_400)
    last = scene.ingest(at("2026-03-30T20:00") * 1000)
    scene.publisher.publish(table)
    assert tagged(scene)["daily-2026-04-01"] == last


def test_days_that_are_older_than_tags_are_kept_get_none(scene: Scene) -> None:
    table = Published(TABLE, tags=(DAILY,))
    scene.ingest(at("2020-01-01T20:00"))
    scene.publisher.publish(table)
    assert tagged(scene) == {}


def test_a_table_without_a_branch_is_tagged_at_the_first_commit_of_each_day(scene: Scene) -> None:
    scene.catalog.with_branches(lambda _: MAIN)
    commits = [
        scene.ingest(at(f"2026-03-{time}")) for time in ("27T23:00", "28T00:10", "28T09:00", "29T01:00", "29T02:00")
    ]
    assert sorted(scene.publisher.tag(Published(TABLE, tags=(DAILY,)))) == [
        "daily-2026-03-27",
        "daily-2026-03-28",
        "daily-2026-03-29",
    ]
    assert tagged(scene) == {
        "daily-2026-03-27": commits[0],
        "daily-2026-03-28": commits[1],
        "daily-2026-03-29": commits[3],
    }
    assert scene.publisher.tag(Published(TABLE, tags=(DAILY,))) == ()


def test_a_day_whose_first_commit_has_expired_gets_no_tag(scene: Scene) -> None:
    scene.catalog.with_branches(lambda _: MAIN)
    commits = [scene.ingest(at(f"2026-03-{time}")) for time in ("27T23:00", "28T00:10", "28T09:00", "29T01:00")]
    for commit in commits[:2]:
        scene.catalog.expire(TABLE, commit)
    assert scene.publisher.tag(Published(TABLE, tags=(DAILY,))) == ("daily-2026-03-29",)


def test_the_catalog_is_asked_for_tags_once_a_day(tmp_path: Path) -> None:
    running = Running(tmp_path)
    scene = running.scene
    scene.catalog.with_branches(lambda _: MAIN)
    scene.clock.sleep(at("2026-03-31") / 1000 - scene.clock.now_ms() / 1000)
    running.table.spec = running.spec.model_copy(update={"publishing": PublishingSpec(tags=(DAILY,))})
    running.schedule.take_tables([running.table])
    opened: list[str] = []
    running.schedule._open = lambda: opened.append("") or running.scene.publisher  # type: ignore[func-returns-value]
    for time in ("28T23:00", "28T23:30", "29T00:10", "29T00:20"):
        scene.ingest(at(f"2026-03-{time}"))
        running.table.state = scene.catalog.load(TABLE)
        scene.clock.sleep(61)
        running.schedule.run_due()
    assert sorted(tagged(scene)) == ["daily-2026-03-28", "daily-2026-03-29"]
    assert running.status() == {}


def test_tags_are_read_from_the_file() -> None:
    spec = TableSpec(name=TABLE, topics=(), branch="b", publish=PublishSpec(), tags=(DAILY,))
    assert spec.publishing.tags == (DAILY,)


def test_a_time_that_is_yet_to_come_and_one_before_all_days_make_no_tags(scene: Scene) -> None:
    scene.catalog.with_branches(lambda _: MAIN)
    table = Published(TABLE, tags=(DAILY,))
    scene.ingest(at("2026-03-30T20:00"))
    scene.ingest(at("2026-03-30T20:00") * 1000)  # Microseconds, as if they were milliseconds.
    assert scene.publisher.tag(table) == ("daily-2026-03-31", "daily-2026-03-30")
    assert last_time_ms(DailyTime(12 * 60, "UTC"), 1) == 0
    scene.catalog.with_branches(lambda _: "ingest")
    scene.ingest(at("2026-03-30T20:00") * 1000)
    scene.publisher.publish(table)
    assert sorted(tagged(scene)) == ["daily-2026-03-30", "daily-2026-03-31"]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo"])
@pytest.mark.parametrize("complete_ms", [-62_135_596_800_000, -62_135_596_800_001, -(2**63)])
def test_timestamps_before_every_date_make_no_tags(scene: Scene, zone: str, complete_ms: int) -> None:
    tag = TagSpec(name="daily", at=DailyTime(0, zone), keep_s=30 * 86_400)
    scene.catalog.with_branches(lambda _: MAIN)
    table = Published(TABLE, tags=(tag,))
    scene.ingest(complete_ms)
    assert scene.publisher.tag(table) == ()
    assert last_time_ms(tag.at, complete_ms) == 0
    scene.ingest(at("2026-03-30T20:00"))
    assert [name for name in scene.publisher.tag(table) if name.startswith("daily-2026-03")]
