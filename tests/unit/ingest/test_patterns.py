"""Regular expressions that match nothing when a run begins: it continues with what there is to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from frazil.errors import SpecError
from frazil.ingest.loop.refresh import TOPICS_EVERY_S
from frazil.ingest.tables.state import RunState
from frazil.spec import PipelineSpec, TopicSelector
from tests.unit.ingest.service_scene import Scene, turn_until


class Selecting(Scene):
    """A table for each topic that one of these selects."""

    selectors: tuple[TopicSelector, ...] = ()

    def spec(self, *topics: str) -> PipelineSpec:
        chosen = {"tables": (), "namespace": "n", "topics": self.selectors}
        return super().spec(*topics).model_copy(update=chosen)


@pytest.mark.parametrize("other", [TopicSelector(literal="sensors"), TopicSelector(pattern="^sens")])
def test_a_run_continues_without_a_pattern_that_matches_nothing_and_reads_what_appears(
    tmp_path: Path, other: TopicSelector
) -> None:
    scene = Selecting(tmp_path, "sensors", "devices")
    del scene.source.by_name["devices"]
    scene.selectors = (other, TopicSelector(pattern="^device-"))
    scene.feed("sensors", {"x": 1})
    with capture_logs() as logged:
        service = scene.start()
    [warning] = [event for event in logged if event["event"] == "pattern_matches_no_topic"]
    assert warning["reason"] == "the regular expression /^device-/ matches no topic"
    assert warning["remedy"] == "correct the expression; topics are sensors"
    scene.source.create("device-1")
    scene.feed("device-1", {"x": 2})
    scene.clock.sleep(TOPICS_EVERY_S)
    assert turn_until(service, lambda: scene.catalog.load("n.device-1") and scene.catalog.load("n.sensors"), 60)
    turn_until(service, lambda: False, 20)
    assert [scene.rows("n.sensors"), scene.rows("n.device-1")] == [[{"x": 1}], [{"x": 2}]]


def test_a_run_of_patterns_alone_that_match_nothing_is_an_error_of_the_file(tmp_path: Path) -> None:
    scene = Selecting(tmp_path, "devices")
    scene.selectors = (TopicSelector(pattern="^device-"), TopicSelector(pattern="^meter-"))
    with pytest.raises(SpecError, match=r"/\^device-/ matches no topic") as refused:
        scene.start()
    assert refused.value.remedy == "correct the expression; the nearest topic is `devices`"


def test_a_named_topic_that_is_not_there_is_waited_for_beside_a_pattern_that_matches_nothing(tmp_path: Path) -> None:
    scene = Selecting(tmp_path)
    scene.selectors = (TopicSelector(literal="sensors"), TopicSelector(pattern="^device-"))
    assert scene.start().tables == []


def test_a_topic_whose_table_would_have_no_name_stops_and_the_others_continue(tmp_path: Path) -> None:
    scene = Selecting(tmp_path, "a.", "a..b", "a.b")
    scene.selectors = (TopicSelector(pattern="^a"),)
    scene.feed("a.b", {"x": 1})
    service = scene.start()
    assert turn_until(service, lambda: scene.catalog.load("n.a.b"), 60)
    stopped = {
        table.name: table.status.reason for table in service.tables if table.status.run_state is RunState.STOPPED
    }
    assert stopped == {name: f"`{name}` is not a table name: one of its parts is empty" for name in ("n.a.", "n.a..b")}
