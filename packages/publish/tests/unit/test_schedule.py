"""When a running pipeline publishes its tables, and what it reports of them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import structlog.testing

from frazil.errors import UnavailableError
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.ops.pipeline_status import with_unobserved
from frazil.ops.seen_by_readers import FailedAudit, PublishReport, is_seen_whole
from frazil.spec.models import TableSpec
from frazil.spec.publishing import PublishingSpec, PublishSpec
from frazil.stages.expect_settings import ExpectationSpec
from frazil_publish.publisher import Published, Publisher
from frazil_publish.schedule import PublishSchedule, published_table
from packages.publish.tests.unit.test_publisher import Scene
from tests.contracts.tables import TABLE

AUDITS = (("ids", "select true"),)


class Running:
    """A schedule whose turns a test takes."""

    def __init__(self, folder: Path, publish: PublishSpec | None = None) -> None:
        self.scene = Scene(folder)
        publish = publish or PublishSpec(every_s=60, audits=AUDITS)
        self.spec = TableSpec(name=TABLE, topics=(), branch="ingest", publish=publish)
        self.table = Table(self.spec)
        self.published: list[str] = []
        self.schedule = PublishSchedule(self.open, self.scene.clock, self.published.append, has_thread=False)
        self.schedule.take_tables([self.table])
        self.failing = False

    def status(self) -> dict[str, PublishReport]:
        """What is reported of the tables that have a branch."""
        return dict(with_unobserved([self.table], self.schedule.reports())["publishing"])

    def open(self) -> Publisher:
        if self.failing:
            raise UnavailableError("the catalog does not answer")
        return self.scene.publisher

    def pass_time(self, seconds: float) -> PublishReport:
        """What is reported after as many seconds."""
        self.scene.clock.sleep(seconds)
        self.schedule.run_due()
        return self.status()[TABLE]


@pytest.fixture
def running(tmp_path: Path) -> Running:
    return Running(tmp_path)


def test_a_table_is_published_every_so_often(running: Running) -> None:
    running.scene.ingest()
    assert running.pass_time(0).state == "waiting"
    assert (running.pass_time(11).state, running.published) == ("published", [TABLE])
    running.scene.ingest()
    running.pass_time(30)
    assert len(running.scene.audits.asked) == 1
    running.pass_time(31)
    assert (len(running.scene.audits.asked), running.published) == (2, [TABLE, TABLE])


def test_what_is_held_is_logged_once_for_each_reason(running: Running) -> None:
    running.pass_time(0)
    with structlog.testing.capture_logs() as logs:
        running.scene.audits.failing = [FailedAudit("ids", "no")]
        running.scene.ingest()
        assert running.pass_time(11).state == "held"
        running.scene.ingest()
        running.pass_time(61)
        running.scene.audits.failing = []
        running.scene.ingest()
        running.pass_time(61)
    assert [(line["event"], line.get("audits")) for line in logs] == [
        ("publish_held", ["ids"]),
        ("table_published", None),
    ]


def test_a_service_that_is_unavailable_is_tried_again_soon(running: Running) -> None:
    running.pass_time(0)
    running.failing = True
    running.scene.ingest()
    with structlog.testing.capture_logs() as logs:
        report = running.pass_time(11)
        running.pass_time(11)
    assert (report.state, report.reason) == ("failed", "the catalog does not answer")
    assert [line["event"] for line in logs] == ["publish_failed"]
    running.failing = False
    assert running.pass_time(11).state == "published"


def test_a_run_that_only_catches_up_publishes_at_its_end(running: Running) -> None:
    running.scene.ingest()
    running.schedule.finish(lambda: False, 0)
    assert running.status()[TABLE].state == "published"


def test_a_run_that_catches_up_tries_again_until_it_is_published(running: Running) -> None:
    running.scene.ingest()
    another = running.scene.another()

    def publish_elsewhere() -> None:
        running.scene.audits.meanwhile = lambda: None
        another.publish(published_table(running.spec))
        running.scene.ingest()

    running.scene.audits.meanwhile = publish_elsewhere
    running.schedule.finish(lambda: False, 60)
    state = running.scene.catalog.load(TABLE)
    assert state is not None
    assert (is_seen_whole(state), len(running.scene.audits.asked)) == (True, 3)


def test_a_run_that_catches_up_fails_where_its_tables_cannot_be_published(running: Running) -> None:
    running.scene.ingest()
    running.failing = True
    with pytest.raises(UnavailableError, match="not published: the catalog does not answer") as failed:
        running.schedule.finish(lambda: False, 60)
    assert (failed.value.where, running.scene.clock.monotonic_s()) == (TABLE, 60)


def test_tables_of_other_processes_are_not_published(running: Running) -> None:
    running.table.schedule.is_owned = False
    running.scene.ingest()
    running.schedule.finish(lambda: False, 0)
    assert (running.status(), running.scene.audits.asked) == ({}, [])


def test_a_snapshot_is_kept_while_it_is_audited(running: Running) -> None:
    candidate, held = running.scene.ingest(), list[Any]()
    running.scene.audits.meanwhile = lambda: held.append(running.schedule.kept_snapshots(TABLE))
    assert running.schedule.kept_snapshots(TABLE) == ()
    running.schedule.finish(lambda: False, 0)
    assert (held, running.schedule.kept_snapshots(TABLE)) == ([(candidate,)], ())


def test_a_table_that_somebody_else_publishes_is_shown(tmp_path: Path) -> None:
    running = Running(tmp_path)
    running.table = Table(running.spec.model_copy(update={"publishing": PublishingSpec(branch="ingest")}))
    running.schedule.take_tables([running.table])
    running.scene.ingest()
    running.scene.publisher.publish(published_table(running.spec), "override")
    running.table.state = running.scene.catalog.load(TABLE)
    report = running.pass_time(60)
    assert (report.state, report.snapshot_id, report.complete_to_ms) == ("unpublished", running.scene.seen, 1000)


def test_only_expectations_of_rows_that_warn_keep_rows_from_readers() -> None:
    expect = (
        ExpectationSpec(name="warns", that="id > 0"),
        ExpectationSpec(name="drops", that="id > 0", action="drop"),
        ExpectationSpec(name="share", that="id > 0", at_most=0.1),
        ExpectationSpec(name="enough", min_rows=5),
    )
    spec = TableSpec(name=TABLE, topics=(), expect=expect, publish=PublishSpec(audits=AUDITS))
    assert [*published_table(spec).withheld] == ["warns"]
    assert published_table(spec).audits == AUDITS


def test_an_unexpected_error_of_one_table_leaves_the_others_published(running: Running) -> None:
    other = Table(running.spec.model_copy(update={"name": "shop.other"}))
    running.schedule.take_tables([other, running.table])
    running.scene.ingest()
    running.pass_time(0)
    publish = running.scene.publisher.publish

    def fail_for_one(table: Published, *places: Any, **words: Any) -> PublishReport:
        if table.name == "shop.other":
            raise ValueError("year 58000 is out of range")
        return publish(table, *places, **words)

    running.scene.publisher.publish = fail_for_one  # type: ignore[method-assign]
    with structlog.testing.capture_logs() as logs:
        assert running.pass_time(11).state == "published"
        running.pass_time(1)
    assert running.schedule.reports()["publishing"]["shop.other"].state == "failed"
    assert [line["event"] for line in logs if line.get("table") == "shop.other"] == [
        "unexpected_error",
        "publish_failed",
    ]


def test_a_run_that_is_stopped_while_it_catches_up_audits_nothing_more(running: Running) -> None:
    running.scene.ingest()
    running.schedule.finish(lambda: True, 0)
    assert (running.scene.seen, running.scene.audits.asked) == (None, [])
    running.schedule.finish(lambda: False, 0)
    assert running.scene.seen is not None


def test_a_run_that_catches_up_publishes_no_group_of_which_a_table_has_stopped(tmp_path: Path) -> None:
    running = Running(tmp_path, PublishSpec(every_s=60, audits=AUDITS, group="shop"))
    running.scene.audits.failing = [FailedAudit("ids", "no")]
    running.scene.ingest()
    running.schedule.finish(lambda: False, 0)
    assert running.status()[TABLE].state == "held"
    running.scene.audits.failing = []
    running.scene.ingest()
    running.table.status.set(RunState.STOPPED)
    running.schedule.finish(lambda: False, 0)
    report = running.status()[TABLE]
    assert (report.state, report.snapshot_id, report.remedy) == ("waiting", None, "")
    assert report.reason.endswith(f"not read yet: {TABLE}")
    running.table.status.set(RunState.WAITING)
    running.schedule.finish(lambda: False, 0)
    assert running.status()[TABLE].state == "published"


def test_a_run_that_is_stopped_while_its_last_audit_runs_does_not_wait_for_it(running: Running) -> None:
    candidate = running.scene.ingest()
    begun, stopped = threading.Event(), threading.Event()

    def audit_for_long() -> None:
        begun.set()
        assert stopped.wait(60)

    running.scene.audits.meanwhile = audit_for_long
    running.schedule.finish(begun.is_set, 60)
    assert (running.scene.seen, running.status()[TABLE].state) == (None, "waiting")
    assert running.schedule.kept_snapshots(TABLE) == (candidate,)
    stopped.set()
    running.schedule.stop()
