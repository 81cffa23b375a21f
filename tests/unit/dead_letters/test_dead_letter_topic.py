"""Dead letters that go to a Kafka topic too: once, also when the broker no longer knows that they are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from frazil.dead_letters import tables
from frazil.ingest.tables.state import RunState
from frazil.spec.settings import DeadLettersSpec
from tests.unit.ingest.service_scene import Scene, only, turn_until


def sent(scene: Scene) -> list[bytes | None]:
    return [record.value for record in scene.outbox.topics.get("bad", [])]


def test_dead_letters_are_not_sent_again_when_the_group_has_expired(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", dead_letters=DeadLettersSpec(topic="bad", stop_above=1.0))
    scene.feed("a", {"x": 1}, b"not json")
    scene.catch_up()
    assert sent(scene) == [b"not json"]
    scene.outbox.forget()
    assert only(scene.catch_up()).status.run_state is RunState.WAITING
    assert sent(scene) == [b"not json"]
    scene.feed("a", b"nor this")
    scene.catch_up()
    assert sent(scene) == [b"not json", b"nor this"]


def test_dead_letters_whose_arrival_was_not_noted_are_asked_for(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", dead_letters=DeadLettersSpec(topic="bad", stop_above=1.0))
    scene.outbox.losses += ["question", "answer"]
    scene.feed("a", {"x": 1}, b"not json")
    scene.catch_up()
    assert sent(scene) == [b"not json"]


def test_a_store_that_does_not_give_them_for_a_while_stops_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, "a", dead_letters=DeadLettersSpec(topic="bad", stop_above=1.0))
    read, refusals = tables.read_dead_letters, ["reset", "timed out", "no route"]

    def refuse(*about: Any) -> Any:
        if refusals:
            raise OSError(refusals.pop())
        return read(*about)

    monkeypatch.setattr(tables, "read_dead_letters", refuse)
    scene.feed("a", {"x": 1}, b"not json")
    service = scene.start()
    assert turn_until(service, lambda: sent(scene), 600), only(service.tables).status.reason
    assert turn_until(service, lambda: only(service.tables).status.run_state is RunState.WAITING)
    assert (refusals, sent(scene), len(scene.rows("n.a"))) == ([], [b"not json"], 1)


def test_dead_letters_of_records_after_the_year_9999_are_sent_with_milliseconds(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", dead_letters=DeadLettersSpec(topic="bad", stop_above=1.0))
    scene.feed("a", {"x": 1})
    scene.source.produce("a", 0, b"not json", 10**15)
    assert only(scene.catch_up()).status.run_state is RunState.WAITING
    (record,) = scene.outbox.topics["bad"]
    assert record.value == b"not json"
    headers = dict(record.headers)
    assert ("frazil.timestamp" in headers, headers["frazil.timestamp_ms"]) == (False, b"1000000000000000")
