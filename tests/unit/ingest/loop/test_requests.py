"""Operators pause a table, resume it, and make it begin again, while the pipeline runs."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from frazil.errors import SpecError
from frazil.ingest.loop.requests import UnknownTable
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.state import RunState
from frazil.spec import Start
from frazil.spec.settings import AtomicSpec
from tests.unit.ingest.service_scene import Scene, turn_until


def done(service: Service, request: Future[Any]) -> Any:
    """The answer to a request, once the loop has turned."""
    assert turn_until(service, request.done)
    return request.result()


def state_of(service: Service, name: str) -> tuple[str, int | None]:
    """What `status` shows of a table: state and lag."""
    table = next(table for table in service.tables if table.name == name)
    return table.shown_status.run_state.value, table.offsets.lag_records


def has_read(service: Service, name: str, records: int) -> bool:
    """Whether the table has committed so many records, and waits for more."""
    table = next(table for table in service.tables if table.name == name)
    return table.counts.records == records and state_of(service, name) == ("waiting", 0)


def test_a_paused_table_gets_no_rows_and_shows_its_lag_until_it_is_resumed(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", "b")
    scene.feed("a", {"id": 1})
    scene.feed("b", {"id": 1})
    service = scene.start()
    assert turn_until(service, lambda: has_read(service, "n.a", 1) and has_read(service, "n.b", 1))
    done(service, service.requests.pause("n.a"))
    done(service, service.requests.pause("n.a"))
    scene.feed("a", {"id": 2}, {"id": 3})
    scene.feed("b", {"id": 2})
    assert turn_until(service, lambda: len(scene.rows("n.b")) == 2)
    assert (state_of(service, "n.a"), len(scene.rows("n.a"))) == (("paused", 2), 1)
    done(service, service.requests.resume("n.a"))
    assert turn_until(service, lambda: has_read(service, "n.a", 3))
    assert [row["id"] for row in scene.rows("n.a")] == [1, 2, 3]


def test_a_batch_that_runs_when_its_table_is_paused_is_committed(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    scene.feed("a", {"id": 1})
    service = scene.start()
    assert turn_until(service, lambda: service.tables[0].schedule.in_flight)
    service.requests.pause("n.a")
    assert turn_until(service, lambda: state_of(service, "n.a")[0] == "paused")
    assert turn_until(service, lambda: not service.tables[0].schedule.in_flight)
    scene.feed("a", {"id": 2})
    for _ in range(50):
        service.turn()
    assert len(scene.rows("n.a")) <= 1


def stopped(folder: Path) -> tuple[Scene, Service]:
    """A table with one row, which a bad record has stopped."""
    scene = Scene(folder, "a", on_bad_record="stop")
    scene.feed("a", {"id": 1})
    service = scene.start()
    assert turn_until(service, lambda: has_read(service, "n.a", 1))
    scene.feed("a", b"no JSON")
    assert turn_until(service, lambda: state_of(service, "n.a")[0] == "stopped")
    return scene, service


def test_a_stopped_table_continues_from_its_progress_once_the_cause_is_gone(tmp_path: Path) -> None:
    scene, service = stopped(tmp_path)
    done(service, service.requests.resume("n.a"))
    assert turn_until(service, lambda: state_of(service, "n.a")[0] == "stopped"), "the record is still bad"
    scene.source.by_name["a"].partitions[0].clear()
    scene.feed("a", {"id": 2}, gap=2)
    done(service, service.requests.resume("n.a"))
    assert turn_until(service, lambda: len(scene.rows("n.a")) == 2)
    assert service.tables[0].counts.stops == {"RecordError": 2}


def test_a_stopped_table_that_was_reset_waits_for_resume_and_no_longer_shows_why_it_had_stopped(tmp_path: Path) -> None:
    scene, service = stopped(tmp_path)
    done(service, service.requests.restart("n.a", is_dry=True))
    assert state_of(service, "n.a")[0] == "stopped"
    done(service, service.requests.restart("n.a", is_dry=False))
    shown = service.tables[0].shown_status
    assert (shown.run_state, shown.remedy) == (RunState.PAUSED, "run `frazil resume n.a`")
    assert turn_until(service, lambda: state_of(service, "n.a") == ("paused", 2)), "the lag is that of the new progress"
    done(service, service.requests.resume("n.a"))
    assert turn_until(service, lambda: state_of(service, "n.a")[0] == "stopped"), "the record is still bad"
    assert [row["id"] for row in scene.rows("n.a")] == [1]


def test_a_table_begins_again_and_the_dry_run_reports_what_is_read_twice(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    scene.feed("a", {"id": 1}, b"bad", *({"id": number} for number in range(2, 9)))
    service = scene.start()
    with pytest.raises(SpecError, match="no progress yet"):
        done(service, service.requests.restart("n.a", is_dry=True))
    assert turn_until(service, lambda: has_read(service, "n.a", 9))
    planned = done(service, service.requests.restart("n.a", is_dry=True))
    assert (planned.committed, planned.start) == ({"a": {0: 9}}, {"a": {0: 0}})
    assert (planned.read_again, planned.left_unread, planned.mode) == (9, 0, "append")
    assert len(scene.rows("n.a")) == 8
    with pytest.raises(SpecError, match="is running") as refused:
        done(service, service.requests.restart("n.a", is_dry=False))
    assert refused.value.remedy == "run `frazil pause n.a` first"
    done(service, service.requests.pause("n.a"))
    assert done(service, service.requests.restart("n.a", is_dry=False)) == planned
    assert state_of(service, "n.a") == ("paused", 0) or turn_until(service, lambda: state_of(service, "n.a")[1] == 9)
    done(service, service.requests.resume("n.a"))
    assert turn_until(service, lambda: has_read(service, "n.a", 18))
    assert sorted(row["id"] for row in scene.rows("n.a")) == sorted([*range(1, 9)] * 2)
    assert scene.dead_letters("n.a") == [("a", 0, 1)], "dead letters of records that are read again are replaced"


def test_an_upsert_table_that_begins_again_has_the_same_rows(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", mode="upsert", key_columns=("id",), format_version=3)
    scene.feed("a", {"id": 1, "n": 1}, {"id": 2, "n": 1}, {"id": 1, "n": 2})
    service = scene.start()
    assert turn_until(service, lambda: has_read(service, "n.a", 3))
    before = sorted(scene.rows("n.a"), key=lambda row: row["id"])
    done(service, service.requests.pause("n.a"))
    assert done(service, service.requests.restart("n.a", is_dry=False)).read_again == 3
    done(service, service.requests.resume("n.a"))
    assert turn_until(service, lambda: service.tables[0].counts.records == 6)
    assert sorted(scene.rows("n.a"), key=lambda row: row["id"]) == before


def test_a_table_that_starts_at_the_end_skips_what_it_has_not_read(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", start=Start(kind="latest"))
    service = scene.start()
    service.turn()
    scene.feed("a", {"id": 1})
    assert turn_until(service, lambda: has_read(service, "n.a", 1))
    done(service, service.requests.pause("n.a"))
    scene.feed("a", {"id": 2}, {"id": 3})
    found = done(service, service.requests.restart("n.a", is_dry=True))
    assert (found.read_again, found.left_unread) == (0, 2)


def test_a_table_whose_progress_is_more_than_offsets_is_refused(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    scene.feed("a", {"id": 1})
    service = scene.start()
    assert turn_until(service, lambda: has_read(service, "n.a", 1))
    table = service.tables[0]
    table.spec = table.spec.model_copy(update={"atomic": AtomicSpec()})
    with pytest.raises(SpecError, match="with `atomic`") as refused:
        done(service, service.requests.restart("n.a", is_dry=True))
    assert refused.value.remedy == "stop the pipeline, drop the table, and start the pipeline again"


def test_a_table_in_which_records_would_count_twice_is_refused(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a")
    scene.feed("a", {"id": 1})
    service = scene.start()
    assert turn_until(service, lambda: has_read(service, "n.a", 1))
    table = service.tables[0]
    table.spec = table.spec.model_copy(update={"merge": (("n", "sum"),)})
    with pytest.raises(SpecError, match="a table with `sum` cannot begin again: its records would count") as refused:
        done(service, service.requests.restart("n.a", is_dry=True))
    assert refused.value.remedy == "stop the pipeline, drop the table, and start the pipeline again"


def test_an_unknown_table_is_named_with_the_nearest_one(tmp_path: Path) -> None:
    service = Scene(tmp_path, "orders").start()
    with pytest.raises(UnknownTable, match=r"no table `n\.orderz`") as refused:
        done(service, service.requests.pause("n.orderz"))
    assert refused.value.remedy == "did you mean `n.orders`?"
    assert RunState.PAUSED not in {table.shown_status.run_state for table in service.tables}
