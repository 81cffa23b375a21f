"""Machines without a time-zone database, as slim containers are: what needs one is refused with how to get it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from frazil import zones
from frazil.errors import SpecError, UnavailableError
from frazil.ingest.batches.job import _failure_of
from frazil.ingest.tasks.task import task_of
from frazil.ingest.tasks.task_job import Job
from frazil.runtime.gateway import start_jvm
from frazil.runtime.machine import Check, check_zones
from frazil.spec import load_spec
from frazil.zones import ZONES_REMEDY, regions
from tests.unit.spec.pipeline_file import with_table

_ZONED = with_table("columns: {at: {type: timestamp, zone: Europe/Berlin}}")


@pytest.fixture(params=["python", "arrow"])
def without_zones(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine on which one of the two finds no database; Arrow's place cannot be changed."""
    regions.cache_clear()
    if request.param == "python":
        monkeypatch.setattr("zoneinfo.TZPATH", ())
        monkeypatch.setattr("zoneinfo._tzpath.TZPATH", ())
        monkeypatch.setitem(sys.modules, "tzdata", None)
    else:
        monkeypatch.setattr(zones, "_has_arrow_zones", lambda: False)
    yield
    regions.cache_clear()


@pytest.mark.usefixtures("without_zones")
def test_everything_that_reads_times_is_refused_with_the_package_to_install(tmp_path: Path) -> None:
    assert check_zones() == Check("time zones", False, "this machine has no time-zone database", ZONES_REMEDY)
    with pytest.raises(UnavailableError, match="no time-zone database"):
        start_jvm({"spark.master": "local"}, [], [], tmp_path)
    with pytest.raises(UnavailableError) as in_task:
        list(task_of(Job({}))([]))
    failure = _failure_of(in_task.value)
    assert (type(failure), failure.remedy) == (UnavailableError, ZONES_REMEDY)
    (tmp_path / "p.yaml").write_text(_ZONED)
    with pytest.raises(SpecError) as refused:
        load_spec(tmp_path / "p.yaml", {})
    assert (refused.value.remedy, "no time-zone database" in refused.value.message) == (ZONES_REMEDY, True)


def test_with_the_package_all_of_it_works(tmp_path: Path) -> None:
    assert {"UTC", "Europe/Berlin"} <= regions()
    assert check_zones().is_ok
    (tmp_path / "p.yaml").write_text(_ZONED)
    assert load_spec(tmp_path / "p.yaml", {}).tables
