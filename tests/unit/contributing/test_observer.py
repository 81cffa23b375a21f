"""docs/contributing/observer.md: an observer of a package receives the batches of a run, and harms none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Never

import pytest
from structlog.testing import capture_logs

from frazil.errors import SpecError, UnavailableError
from frazil.ingest.batches.ended_batch import EndedBatch, Interval
from frazil.ingest.tables.cuts import Cuts
from frazil.ingest.tables.table import Table
from frazil.ops.observers import Observed, Observer, Observers, check_observers, open_observers
from packages.http.tests.unit.running_scene import RunningScene
from tests.unit.contributing.conftest import Install

CODE = """
from frazil.errors import SpecError
from frazil.ops.check import Finding
from frazil.plugins.driver import ObserverKind

def refuse(observed):
    raise SpecError("no", remedy="yes")

def break_down(observed):
    raise RuntimeError("no licence")

OBSERVER = ObserverKind(lambda spec, environment: spec.pipeline == "p", {open}, lambda *_: [Finding("odd", True, "a", "b")])
"""


def observed(folder: Path) -> Observed:
    scene = RunningScene(folder, "a")
    spec = scene.pipeline.spec
    scene.pipeline.spec = spec.model_copy(update={"process": spec.process.model_copy(update={"http": None})})

    def refuse() -> Never:
        raise UnavailableError("no catalog")

    opening = lambda: scene.source, refuse, refuse, refuse
    return Observed(scene.pipeline, "run-0001", False, *opening, Cuts(scene.clock))


def batch(of: Observed, error: BaseException | None = None) -> EndedBatch:
    [table] = of.pipeline.spec.tables
    return EndedBatch(Table(table), ("a",), "Retry", Interval(0, 1), None, None, (), None, "", error)


def test_an_observer_of_a_package_receives_each_batch_of_a_run(
    example: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example("observer.md")
    run = observed(tmp_path)
    open_observers(run).take_batch(batch(run, UnavailableError("unnoticed")))
    monkeypatch.setenv("FAILURES_FILE", str(tmp_path / "failures"))
    observers = open_observers(run)
    observers.take_batch(batch(run))
    observers.take_batch(batch(run, UnavailableError("the store does not answer")))
    assert (tmp_path / "failures").read_text() == "p: n.a: the store does not answer\n"


def test_an_observer_that_raises_is_logged_once_and_the_others_are_called(tmp_path: Path) -> None:
    class Broken(Observer):
        def take_batch(self, batch: EndedBatch) -> None:
            raise RuntimeError(batch.outcome)

    class Counting(Observer):
        count = 0

        def take_batch(self, batch: EndedBatch) -> None:
            del batch
            self.count += 1

    run, counting = observed(tmp_path), Counting()
    observers = Observers({"broken": Broken(), "counting": counting})
    with capture_logs() as logs:
        for _ in range(3):
            observers.take_batch(batch(run))
    assert [(entry["event"], entry["observer"], entry["error"]) for entry in logs] == [
        ("observer_failed", "broken", "RuntimeError: Retry")
    ]
    assert (counting.count, observers.verification(), observers.counts()) == (3, None, {})


def test_a_package_that_breaks_down_ends_no_run_and_one_that_refuses_the_file_does(
    package: Install, tmp_path: Path
) -> None:
    run = observed(tmp_path)
    package("odd", CODE.replace("{open}", "break_down"), "frazil.observers", "odd = odd:OBSERVER")
    package("gone", "raise ImportError('gone')", "frazil.observers", "gone = gone:OBSERVER")
    with capture_logs() as logs:
        open_observers(run)
    assert [(entry["event"], entry["observer"]) for entry in logs] == [
        ("observer_unavailable", "gone"),
        ("observer_failed", "odd"),
    ]
    assert [finding.name for finding in check_observers(run.pipeline.spec)] == ["odd"]
    other = run.pipeline.spec.model_copy(update={"pipeline": "q"})
    assert [finding.name for finding in check_observers(other)] == []
    package("strict", CODE.replace("{open}", "refuse"), "frazil.observers", "strict = strict:OBSERVER")
    with pytest.raises(SpecError, match="no"):
        open_observers(replace(run))
