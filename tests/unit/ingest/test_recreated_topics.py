"""Topics that are deleted and created again before anything of them was committed: nothing of the new one is skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.ingest.loop.refresh import TOPICS_EVERY_S
from frazil.ingest.loop.service import Service
from frazil.spec.models import Start
from tests.unit.ingest.service_scene import Scene, turn_until


def recreate(scene: Scene, service: Service, is_seen_away: bool) -> None:
    """The topic `a`, of which the service may get to know that it was away."""
    del scene.source.by_name["a"]
    if is_seen_away:
        scene.clock.sleep(TOPICS_EVERY_S)
        service.turn()
    scene.source.create("a")


@pytest.mark.parametrize("is_seen_away", [False, True])
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_topic_that_is_made_again_is_read_from_its_beginning(tmp_path: Path, start: str, is_seen_away: bool) -> None:
    scene = Scene(tmp_path, "a", start=Start.model_validate({"kind": start}))
    scene.feed("a", *({"x": -number} for number in range(50)))
    if start == "earliest":
        scene.source.trim("a", 0, 50)  # By retention: there is nothing to commit.
    service = scene.start()
    turn_until(service, lambda: False, 10)
    assert service.tables[0].offsets.first == {"a": {0: 50}}
    recreate(scene, service, is_seen_away)
    scene.feed("a", *({"x": number} for number in range(60)))
    scene.clock.sleep(TOPICS_EVERY_S)
    assert turn_until(service, lambda: scene.catalog.load("n.a") is not None and len(scene.rows("n.a")) >= 60)
    assert [row["x"] for row in scene.rows("n.a")] == list(range(60))


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_topic_that_is_made_again_with_fewer_records_is_read_from_its_beginning(tmp_path: Path, start: str) -> None:
    scene = Scene(tmp_path, "a", start=Start.model_validate({"kind": start}))
    scene.feed("a", *({"x": -number} for number in range(50)))
    if start == "earliest":
        scene.source.trim("a", 0, 50)
    service = scene.start()
    turn_until(service, lambda: False, 10)
    recreate(scene, service, is_seen_away=False)
    scene.feed("a", *({"x": number} for number in range(5)))
    service.turn()  # Before the topics are looked at again.
    scene.clock.sleep(TOPICS_EVERY_S)
    assert turn_until(service, lambda: scene.catalog.load("n.a") is not None and len(scene.rows("n.a")) >= 5)
    assert [row["x"] for row in scene.rows("n.a")] == list(range(5))


def test_what_was_skipped_of_the_old_topic_is_forgotten(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", on_data_loss="skip", start=Start.model_validate({"kind": "earliest"}))
    service = scene.start()
    turn_until(service, lambda: False, 10)
    scene.feed("a", *({"x": -number} for number in range(50)))
    scene.source.trim("a", 0, 50)
    assert turn_until(service, lambda: service.tables[0].schedule.failures)
    scene.clock.sleep(TOPICS_EVERY_S)
    assert turn_until(service, lambda: service.tables[0].offsets.skipped)
    recreate(scene, service, is_seen_away=False)
    scene.feed("a", *({"x": number} for number in range(60)))
    scene.clock.sleep(TOPICS_EVERY_S)
    assert turn_until(service, lambda: scene.catalog.load("n.a") is not None and len(scene.rows("n.a")) >= 60)
    assert [row["x"] for row in scene.rows("n.a")] == list(range(60))
