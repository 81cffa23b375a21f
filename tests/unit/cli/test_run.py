"""How `frazil run` ends while it has nothing in hand yet."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from frazil.api.run import NothingInHand, Stopping
from frazil.api.running import result_of, wait_for_catalog
from frazil.cli.output import Output
from frazil.cli.run import command, report
from frazil.clock import SystemClock
from frazil.errors import UnavailableError
from frazil.ingest.tables.state import RunState
from frazil.spec import CatalogSpec, PipelineSpec
from tests.unit.ingest.service_scene import Scene

LONG_S = 60.0
KINDS = (signal.SIGTERM, signal.SIGINT)


class LongPauses(SystemClock):
    """Every pause is long, and a signal comes in it."""

    def __init__(self, kind: signal.Signals) -> None:
        self._kind = kind

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        threading.Timer(0.05, os.kill, (os.getpid(), self._kind)).start()
        super().sleep(LONG_S)


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {kind: signal.getsignal(kind) for kind in KINDS}
    yield
    for kind, handler in before.items():
        signal.signal(kind, handler)


@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_ends_the_pause_before_the_catalog_is_opened_again(tmp_path: Path, kind: signal.Signals) -> None:
    (tmp_path / "file").touch()
    nowhere = CatalogSpec(uri=f"jdbc:sqlite:{tmp_path}/file/catalog.db")
    spec = PipelineSpec(pipeline="p", kafka={}, catalog=nowhere, tables=(), path=tmp_path, state_dir=tmp_path)
    no_jvm: Any = None
    Stopping()
    began_s = time.monotonic()
    with pytest.raises(NothingInHand):
        wait_for_catalog(no_jvm, spec, LongPauses(kind))
    assert time.monotonic() - began_s < LONG_S / 2


def test_what_is_in_hand_is_finished_and_a_second_signal_waits_for_nothing() -> None:
    asked: list[str] = []
    stopping = Stopping()
    stopping.then(lambda: asked.append("stop"))
    signal.raise_signal(signal.SIGTERM)
    assert (asked, stopping.is_set, stopping.is_urgent) == (["stop"], True, False)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    assert (asked, stopping.is_urgent) == (["stop"], True)


def test_a_stop_whose_exception_got_lost_is_made_up_for() -> None:
    asked: list[str] = []
    stopping = Stopping()
    with pytest.raises(NothingInHand):
        signal.raise_signal(signal.SIGINT)
    stopping.then(lambda: asked.append("stop"))
    assert asked == ["stop"]


def test_catching_up_with_all_but_a_table_without_its_topic_is_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = Scene(tmp_path, "a").catch_up("a", "missing")
    assert report(Output(), result_of(tables, until_caught_up=True)) == 4
    assert "n.missing: backing off: topic missing does not exist; " in capsys.readouterr().out
    assert report(Output(), result_of(tables[:1], until_caught_up=True)) == 0


def test_a_run_that_has_ended_does_not_promise_to_retry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = Scene(tmp_path, "a").catch_up("a")
    remedy = "check the credentials under `catalog.properties`; Frazil retries with back-off"
    tables[0].status.set(RunState.BACKING_OFF, UnavailableError("refused", remedy=remedy, where="n.a"))
    capsys.readouterr()
    report(Output(), result_of(tables, until_caught_up=False))
    assert (
        capsys.readouterr().out == "n.a: backing off: refused (n.a); check the credentials under `catalog.properties`\n"
    )


def test_what_a_run_imports_before_its_jvm_starts_is_little() -> None:
    loaded = "import sys, frazil.cli.run; print(*{name.partition('.')[0] for name in sys.modules})"
    names = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pyspark", "numba", "confluent_kafka", "fastavro", "google"}.intersection(names)


def test_a_run_that_ends_before_its_first_batch_names_its_tables(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", "b")
    scene.feed("a", {"x": 1})
    unloaded, printed = scene.unconnected(), io.StringIO()
    output = Output(results=printed)
    assert report(output, result_of(unloaded.tables, until_caught_up=False)) == 0
    loaded = scene.start()
    loaded.turn()
    loaded.stop()
    assert report(output, result_of(loaded.tables, until_caught_up=False)) == 0
    assert report(output, result_of((), until_caught_up=False)) == 0
    assert printed.getvalue().splitlines() == [
        "n.a: not loaded yet",
        "n.b: not loaded yet",
        "n.a: 0 rows, 1 record behind",
        "n.b: 0 rows, 0 records behind",
        "no table is known yet",
    ]


def test_a_run_that_is_stopped_before_it_knows_a_table_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise NothingInHand

    monkeypatch.setattr("frazil.api.run.running_jvm", stopped)
    file, printed = tmp_path / "p.yaml", io.StringIO()
    file.write_text("pipeline: p\nkafka: {bootstrap.servers: b:1}\ntables: {a.b: {topic: c}}\n")
    assert command(Output(results=printed), file) == 0
    assert printed.getvalue() == "stopped before the tables were loaded\n"
