"""What is published when, on the twin in memory: audits, expectations, other writers, roll-backs, lost answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from frazil.catalog.port import NamedAppend
from frazil.clock import new_id
from frazil.errors import ConflictError, SpecError, UnavailableError
from frazil.ops.seen_by_readers import FailedAudit, PublishReport
from frazil.types import MAIN, Commit, Progress, Totals, Watermark
from frazil_publish.audits import Audited
from frazil_publish.publisher import Published, Publisher
from frazil_testing.memory_branches import MemoryBranches
from frazil_testing.memory_catalog import MemoryCatalog
from frazil_testing.twins import FakeClock
from tests.contracts.tables import SCHEMA, TABLE, plain

AUDITED = Published(TABLE, (("ids", "select true"),), {"positive": "records did not meet the expectation"})


class Answers:
    """Audits that a test answers."""

    def __init__(self) -> None:
        self.failing: list[FailedAudit] = []
        self.asked: list[tuple[int, int | None]] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def run(self, tables: Sequence[Audited]) -> list[list[FailedAudit]]:
        [audited] = tables
        assert (audited.table, [name for name, _ in audited.audits]) == (TABLE, ["ids"])
        self.asked.append((audited.candidate_id, audited.published_id))
        self.meanwhile()
        return [list(self.failing)]


class Scene:
    """A table with a branch, and what publishes it."""

    def __init__(self, folder: Path) -> None:
        self.main = MemoryCatalog(folder, "p")
        self.catalog = self.main.for_pipeline("p").with_branches(lambda _: "ingest")
        self.main.create(TABLE, SCHEMA, {}, 2)
        self.audits, self.clock = Answers(), FakeClock()
        self.publisher = self.another()
        self._end = 0

    def another(self) -> Publisher:
        """That of a second process."""
        return Publisher(MemoryBranches(self.catalog), self.audits, "p", self.clock)

    def ingest(self, complete_to_ms: int | None = 1000, **changes: object) -> int:
        """Commits ten records to the branch; the snapshot."""
        state = self.catalog.load(TABLE)
        assert state is not None
        self._end += 10
        progress = Progress({"a": {0: self._end}}, commit_id=new_id(), watermark=Watermark({}, complete_to_ms))
        committed = self.catalog.commit(Commit(TABLE, (), replace(progress, **changes), state.progress))  # type: ignore[arg-type]
        assert committed.snapshot_id is not None
        return committed.snapshot_id

    def publish(self, last: PublishReport | None = None) -> PublishReport:
        return self.publisher.publish(AUDITED, last=last)

    @property
    def seen(self) -> int | None:
        """The snapshot that readers see."""
        state = self.main.load(TABLE)
        assert state is not None
        return state.head_id


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_what_passes_is_seen_with_its_time(scene: Scene) -> None:
    first = scene.ingest(500)
    report = scene.publish()
    now_ms = scene.clock.now_ms()
    assert report == PublishReport(
        "ingest", "published", snapshot_id=first, published_ms=now_ms, complete_to_ms=500,
        candidate_id=first, audited_ms=now_ms,
    )  # fmt: skip
    second = scene.ingest(None)
    assert (scene.publish().complete_to_ms, scene.seen, scene.audits.asked) == (
        None,
        second,
        [(first, None), (second, first)],
    )
    state = scene.catalog.load(TABLE)
    assert state is not None
    assert (state.marks["published-snapshot"], "published-complete-to" in state.marks) == (str(second), False)


def test_nothing_new_is_not_audited(scene: Scene) -> None:
    assert scene.publish() == PublishReport("ingest", "waiting")
    scene.ingest()
    scene.publish()
    assert scene.publish().state == "published"
    assert len(scene.audits.asked) == 1


def test_what_does_not_pass_is_not_seen_until_it_passes_or_is_overridden(scene: Scene) -> None:
    first = scene.ingest()
    scene.publish()
    scene.audits.failing = [FailedAudit("ids", "the query returns false", ('{"id":null}',))]
    scene.ingest()
    held = scene.publish()
    assert (held.state, held.reason, held.failed_audits) == ("held", "`ids` does not hold", tuple(scene.audits.failing))
    assert "--override" in held.remedy
    assert (held.snapshot_id, scene.seen) == (first, first)
    second = scene.ingest()
    assert scene.publisher.publish(AUDITED, "override").snapshot_id == second
    scene.ingest()
    assert scene.publish().state == "held"
    scene.audits.failing = []
    assert scene.publish().state == "published"


def test_a_snapshot_that_does_not_pass_is_audited_once(scene: Scene) -> None:
    scene.audits.failing = [FailedAudit("ids", "no")]
    scene.ingest()
    held = scene.publish()
    assert scene.publish(held) == held
    assert len(scene.audits.asked) == 1
    scene.ingest()
    assert scene.publish(held).candidate_id != held.candidate_id
    scene.audits.failing = [FailedAudit("ids", "the query fails: a store", has_failed=True)]
    scene.ingest()
    failed = scene.publish(held)
    scene.audits.failing = []
    assert scene.publish(failed).state == "published"


def test_rows_that_do_not_meet_an_expectation_are_not_published(scene: Scene) -> None:
    scene.ingest(totals=Totals(findings={"positive": 2, "other": 1}))
    report = scene.publish()
    assert [(audit.name, audit.reason) for audit in report.failed_audits] == [
        ("positive", "2 records did not meet the expectation")
    ]
    scene.publisher.publish(AUDITED, "override")
    scene.ingest(totals=Totals(findings={"positive": 2, "other": 4}))
    assert scene.publish().state == "published"


def test_what_was_audited_is_what_is_published(scene: Scene) -> None:
    first = scene.ingest()
    scene.audits.meanwhile = lambda: setattr(scene, "later", scene.ingest())
    assert scene.publish().snapshot_id == scene.seen == first


def test_of_two_processes_one_publishes(scene: Scene) -> None:
    scene.ingest()

    def publish_elsewhere() -> None:
        scene.audits.meanwhile = lambda: None
        scene.another().publish(AUDITED)

    scene.audits.meanwhile = publish_elsewhere
    with pytest.raises(ConflictError, match="was moved in the meantime"):
        scene.publish()
    assert scene.publish().state == "published"


def test_what_is_discarded_while_its_audits_run_is_not_published(scene: Scene) -> None:
    first = scene.ingest()
    scene.publish()
    scene.ingest()

    def discard_meanwhile() -> None:
        scene.another().discard(TABLE)

    scene.audits.meanwhile = discard_meanwhile
    with pytest.raises(ConflictError, match="`ingest` was discarded in the meantime"):
        scene.publish()
    assert scene.seen == first


@pytest.mark.parametrize("loss", ["question", "answer", "outcome"])
def test_a_lost_answer_is_resolved_by_the_table(scene: Scene, loss: str) -> None:
    candidate = scene.ingest()
    scene.main.losses.append(loss)
    if loss == "answer":
        scene.publish()
    else:
        with pytest.raises(UnavailableError):
            scene.publish()
    assert (scene.seen == candidate) == (loss != "question")
    assert scene.publish().snapshot_id == scene.seen == candidate


def test_another_writers_commit_to_main_is_not_undone_until_somebody_decides(scene: Scene) -> None:
    scene.ingest()
    scene.publish()
    foreign = scene.main.append_foreign(TABLE)
    candidate = scene.ingest()
    report = scene.publish()
    assert (report.state, scene.seen, len(scene.audits.asked)) == ("diverged", foreign, 1)
    assert scene.publisher.publish(AUDITED, "override").state == "diverged"
    assert "--to SNAPSHOT" in report.remedy
    scene.publisher.publish_snapshot(AUDITED, candidate)
    assert scene.seen == candidate


def test_main_follows_though_snapshots_between_have_expired(scene: Scene) -> None:
    scene.ingest()
    scene.publish()
    scene.catalog.expire(TABLE, scene.ingest())
    last = scene.ingest()
    assert scene.publish().snapshot_id == scene.seen == last


def test_main_follows_a_branch_that_was_set_back_once_it_has_read_as_far(scene: Scene) -> None:
    first, second = scene.ingest(), scene.ingest()
    scene.publish()
    scene.catalog.roll_back(TABLE, first)
    again = scene.ingest(offsets={"a": {0: 15}})
    report = scene.publish()
    assert (report.state, scene.seen) == ("diverged", second)
    last = scene.ingest(offsets={"a": {0: 20}})
    assert scene.publish().snapshot_id == scene.seen == last
    assert again < last


def test_a_discarded_branch_begins_again_at_main(scene: Scene) -> None:
    first = scene.ingest()
    scene.publish()
    scene.ingest()
    progress = scene.publisher.discard(TABLE)
    state = scene.catalog.load(TABLE)
    assert state is not None
    assert (state.head_id, state.progress) == (first, plain(progress))
    assert progress.offsets == {"a": {0: 10}}
    assert scene.publisher.discard(TABLE) == progress
    assert scene.publish().state == "published"


@pytest.mark.parametrize("name", ["replay-id", "foreign"])
def test_rows_that_no_record_brings_back_are_not_discarded(scene: Scene, name: str) -> None:
    scene.ingest()
    scene.publish()
    if name == "replay-id":
        scene.catalog.append_once(NamedAppend(TABLE, (), name, "r", None))
    else:
        scene.catalog.append_foreign(TABLE)
    last = scene.ingest()
    with pytest.raises(SpecError, match=f"the snapshot {last - 1} of the branch `ingest` has rows") as refused:
        scene.publisher.discard(TABLE)
    assert "--override" in refused.value.remedy
    scene.publisher.publish(AUDITED, "override")
    scene.ingest()
    scene.publisher.discard(TABLE)
    assert scene.seen == last


@pytest.mark.parametrize("has_published", [True, False])
def test_rows_whose_records_kafka_has_lost_are_not_discarded(scene: Scene, has_published: bool) -> None:
    scene.ingest()
    if has_published:
        scene.publish()
    last = scene.ingest()
    with pytest.raises(SpecError, match="partition 0 of the topic a has lost those from offset 10 on"):
        scene.publisher.discard(TABLE, lambda places: dict.fromkeys(places, 11))
    state = scene.catalog.load(TABLE)
    assert state is not None
    assert state.head_id == last
    scene.publisher.discard(TABLE, lambda places: dict.fromkeys(places, 10))
    assert scene.catalog.load(TABLE) != state


def test_a_branch_without_a_published_snapshot_is_discarded_whole(scene: Scene) -> None:
    scene.ingest()
    assert scene.publisher.discard(TABLE) == Progress()
    state = scene.catalog.load(TABLE)
    assert state is not None
    assert (state.head_id, state.progress, state.history_lost) == (None, Progress(), False)
    scene.ingest()
    assert scene.publish().state == "published"


def test_main_that_was_set_back_stays_there_until_somebody_publishes(scene: Scene) -> None:
    first, _ = scene.ingest(), scene.publish()
    second = scene.ingest()
    scene.publish()
    report = scene.publisher.publish_snapshot(AUDITED, first)
    assert (report.snapshot_id, scene.seen) == (first, first)
    scene.ingest()
    held = scene.publish()
    assert (held.state, scene.seen) == ("held", first)
    assert held.remedy == f"run `frazil publish {TABLE}` to continue"
    scene.publisher.publish(AUDITED, "by hand")
    assert scene.seen != second
    scene.ingest()
    assert scene.publish().state == "published"


def test_main_that_another_tool_has_set_back_stays_there_until_somebody_publishes(scene: Scene) -> None:
    first, _ = scene.ingest(500), scene.publish()
    second = scene.ingest()
    scene.publish()
    scene.main.roll_back(TABLE, first)
    scene.ingest()
    for _ in range(2):
        held = scene.publish()
        assert (held.state, scene.seen) == ("held", first)
        assert held.reason == f"main was set back to the snapshot {first}, not by this pipeline"
        scene.main.expire(TABLE, second)  # Nothing shows any more what main had.
        state = scene.main.load(TABLE)
        assert state is not None
        assert state.marks["published-complete-to"] == "500"
    assert scene.publisher.publish(AUDITED, "by hand").state == "published"
    scene.ingest()
    assert scene.publish().state == "published"


def test_a_snapshot_of_another_branch_is_refused_and_one_of_this_branch_taken(scene: Scene) -> None:
    chosen = scene.ingest()
    foreign = scene.main.append_foreign(TABLE)
    with pytest.raises(SpecError, match=f"does not have the snapshot {foreign}") as refused:
        scene.publisher.publish_snapshot(AUDITED, foreign)
    assert "choose one of its snapshots" in refused.value.remedy
    scene.publisher.publish_snapshot(AUDITED, chosen)
    assert scene.seen == chosen


def test_a_snapshot_that_is_audited_is_held(scene: Scene) -> None:
    candidate, held = scene.ingest(), list[dict[str, int]]()
    scene.audits.meanwhile = lambda: held.append(dict(scene.publisher.auditing))
    scene.publish()
    assert (held, scene.publisher.auditing) == ([{TABLE: candidate}], {})


def test_a_table_without_a_branch_has_nothing_to_publish(scene: Scene) -> None:
    plain = Publisher(MemoryBranches(scene.main), scene.audits, "p", scene.clock)
    head = scene.main.append_foreign(TABLE)
    with pytest.raises(SpecError, match="has no branch") as refused:
        plain.discard(TABLE)
    assert refused.value.remedy == "write `branch: ingest` for the table"
    assert plain.report(TABLE) == PublishReport(MAIN, "published", snapshot_id=head)
    scene.ingest()
    scene.publisher.discard(TABLE)


def test_a_table_that_does_not_exist_is_reported_until_the_pipeline_has_made_it(scene: Scene) -> None:
    scene.main.drop(TABLE)
    with pytest.raises(UnavailableError, match="does not exist") as refused:
        scene.publisher.discard(TABLE)
    assert refused.value.remedy == "start `frazil run`, which creates it"
    assert scene.publish() == PublishReport()
    scene.main.create(TABLE, SCHEMA, {}, 2)
    scene.ingest()
    assert scene.publish().state == "published"
