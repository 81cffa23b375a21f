"""The demo's pure parts: its events, its pipeline file, its folder, and what it draws and prints."""

from __future__ import annotations

import io
import json
import signal
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from frazil.cli.output import Output, OutputFormat
from frazil.clock import SystemClock
from frazil.errors import SpecError, UnavailableError
from frazil.runtime.broker import EmbeddedBroker
from frazil.spec import load_spec
from frazil_demo.command import command
from frazil_demo.lake import VIEWS_PER_MINUTE, Arrival, Lake
from frazil_demo.producers import KINDS, Course, Event, Kind, Producers, Sent, counts
from frazil_demo.session import Session, claim, pipeline_file
from frazil_demo.show import (
    DONE,
    NO_ERROR_REMEDY,
    PATIENCE_S,
    Frame,
    Row,
    Show,
    command_from,
    draw,
    line,
    save_picture,
    summarise,
)
from frazil_testing.twins import FakeClock

ROW = Row("iot.sensor_readings", "running", 1_250_000, 1_249_400, 1200.4, 600, 640, 1321, 14_000_000, 99_000)
FRAME = Frame(
    phase="running",
    elapsed_s=83.4,
    now_ms=100_500,
    servers="127.0.0.1:41234",
    directory="/somewhere/frazil-data/demo",
    command="frazil",
    rows=(ROW, replace(ROW, table="shop.orders", state="starting", freshness_ms=None, last_commit_ms=None)),
    happened=((0.0, "shop.orders: made with order_id, at"), (75.0, "shop.orders: new column coupon")),
    minute=(datetime(2026, 1, 1, 12, 34, tzinfo=UTC), 18_204),
)
ARRIVAL = Arrival(
    "shop.page_views", Sent(10, 55, 4), 10, 0, 0, 55, 4, ("view_id", "page"), "file:/lake/7.metadata.json"
)


def events(kind: Kind, count: int, is_late: bool) -> list[Event]:
    rng = np.random.default_rng(0)
    return [kind.make(rng, number, "2026-01-01T00:00:00Z", is_late) for number in range(count)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.topic)
def test_events_are_numbered_nested_repeatable_and_late_ones_have_one_field_more(kind: Kind) -> None:
    early, late = events(kind, 50, False), events(kind, 50, True)
    assert early == events(kind, 50, False)
    assert [event[kind.id_field] for event in early] == list(range(50))
    assert {tuple(event) for event in late} == {(*early[0], kind.late_field)}
    assert all(isinstance(event[kind.measure], int) and kind.key(event) for event in late)
    assert any(isinstance(value, dict | list) for value in early[0].values())
    json.dumps(late, allow_nan=False)


def test_shares_of_a_total_add_up() -> None:
    for total in (100, 30_000, 99_999):
        assert sum(counts(total).values()) == total
        assert set(counts(total)) == {kind.topic for kind in KINDS}


def test_the_pipeline_file_is_one_that_frazil_reads(tmp_path: Path) -> None:
    file = tmp_path / "frazil.yaml"
    file.write_text(pipeline_file("127.0.0.1:4123"))
    spec = load_spec(file)
    assert (spec.pipeline, spec.kafka["bootstrap.servers"]) == ("demo", "127.0.0.1:4123")
    tables = [(kind.table, kind.topic) for kind in KINDS]
    assert [(t.name, t.source.topics[0].literal) for t in spec.tables] == [*tables, (VIEWS_PER_MINUTE, "page_views")]


def test_a_demo_empties_only_the_folder_of_a_demo(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    claim(folder).close()
    (folder / "frazil-data").mkdir()
    (folder / "frazil.yaml").write_text("old")
    claim(folder).close()
    assert [path.name for path in folder.iterdir()] == [".frazil-demo"]
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(SpecError, match="nothing in it was changed"):
        claim(tmp_path)
    assert (tmp_path / "thesis.txt").exists()


def test_two_demos_do_not_share_a_folder(tmp_path: Path) -> None:
    with claim(tmp_path / "demo"), pytest.raises(SpecError, match="a demo runs in this folder already"):
        claim(tmp_path / "demo")


def test_a_pipeline_that_is_too_new_to_handle_the_signal_is_no_failure_of_the_demo(tmp_path: Path) -> None:
    session = Session(tmp_path / "demo", Course(10, None, {}), FakeClock())
    ends = {"exec sleep 60": 0, "trap 'exit 4' TERM; echo; while :; do sleep 0.01; done": 4}
    for script, exit_code in ends.items():
        session._pipeline = started = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE)
        if exit_code:
            assert started.stdout is not None
            started.stdout.readline()  # By then it handles the signal.
        assert session.stop_pipeline() == exit_code
        started.communicate()


def test_ctrl_c_before_the_pipeline_is_started_ends_the_demo_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "start", lambda _: signal.raise_signal(signal.SIGINT))
    former = signal.signal(signal.SIGINT, signal.default_int_handler)  # As in a new process.
    try:
        with pytest.raises(KeyboardInterrupt):
            command(Output(OutputFormat.json, results=io.StringIO()), directory=tmp_path / "demo")
    finally:
        signal.signal(signal.SIGINT, former)


def drawn(frame: Frame, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    with console.capture() as capture:
        console.print(draw(frame))
    return capture.get()


def test_the_view_fits_eighty_columns_whole() -> None:
    text = drawn(FRAME, 80)
    assert max(map(len, text.splitlines())) <= 80
    for words in ("1:23", "127.0.0.1:41234", "iot.sensor_readings", "1,249,400", "1,200", "0.6 s", "13 MiB", "1 s ago"):
        assert words in text
    assert "1:15  shop.orders: new column coupon" in text
    assert "shop.views_per_minute  12:34 UTC  18,204 page views so far" in text
    assert "Ctrl-C ends it." in text
    assert "Ctrl-C" not in drawn(replace(FRAME, phase=DONE), 80)


def test_the_view_reports_how_a_frazil_that_is_on_no_path_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    folder = tmp_path / "frazil-data" / "demo"
    monkeypatch.setattr("sys.argv", [".venv/bin/frazil", "demo"])
    frame = replace(FRAME, directory=str(folder), command=command_from(folder))
    assert "cd frazil-data/demo && ../../.venv/bin/frazil status" in drawn(frame, 80)
    (tmp_path / "frazil").touch(0o755)
    assert command_from(folder) == "frazil"


def test_without_a_terminal_a_frame_is_a_line() -> None:
    assert line(FRAME) == (
        "1:23  running: iot.sensor_readings 1,249,400 of 1,250,000, shop.orders 1,249,400 of 1,250,000"
    )


def test_a_table_that_makes_no_progress_is_shown_with_its_reason() -> None:
    frame = replace(FRAME, problem="shop.orders is backing off: the catalog does not answer (http://catalog)")
    assert line(frame).endswith(
        "of 1,250,000; shop.orders is backing off: the catalog does not answer (http://catalog)"
    )
    assert "shop.orders is backing off: the catalog does not answer" in drawn(frame, 80)


class RunningBroker(EmbeddedBroker):
    """A broker that seems to run."""

    @property
    def is_running(self) -> bool:
        return True

    @property
    def bootstrap_servers(self) -> str:
        return "127.0.0.1:1"


class SilentProducers(Producers):
    """Producers that send nothing."""

    def start(self) -> None: ...


BACKING_OFF = {
    "pid": 1,
    "tables": {
        "shop.orders": {
            "state": "backing off",
            "reason": "the catalog does not answer",
            "where": "http://catalog",
            "remedy": "start it",
        }
    },
}


@pytest.mark.parametrize(
    ("state", "words", "remedy"),
    [
        ({}, "the pipeline is starting: iot.sensor_readings 0 of 0, ", NO_ERROR_REMEDY),
        ({"pid": 1, "tables": {}}, "the first batch is on its way: iot.sensor_readings 0 of ", NO_ERROR_REMEDY),
        (BACKING_OFF, "; shop.orders is backing off: the catalog does not answer (http://catalog)", "start it"),
    ],
)
def test_a_demo_without_progress_ends_and_reports_what_it_waits_for(
    tmp_path: Path, state: dict[str, object], words: str, remedy: str
) -> None:
    clock = FakeClock()
    session = Session(tmp_path / "demo", Course(10, None, counts(100)), clock)
    session.broker = RunningBroker(tmp_path / "broker")
    session._producers = SilentProducers("127.0.0.1:1", Course(10, counts(100), counts(100)), SystemClock())
    session._state_file.path.parent.mkdir(parents=True)
    session._state_file.path.write_text(json.dumps(state))
    lines: list[str] = []
    with pytest.raises(UnavailableError, match="no row has arrived for 180 s, the ") as raised:
        Show(session, clock, lines.append).run()
    assert words in raised.value.message
    assert (raised.value.remedy, raised.value.where) == (remedy, str(session.log))
    assert PATIENCE_S < clock.monotonic_s() < PATIENCE_S + 2
    assert words.partition(" 0 of")[0] in lines[-1]


def test_the_picture_asks_no_other_machine_for_anything(tmp_path: Path) -> None:
    save_picture(FRAME, tmp_path / "images" / "demo.svg")
    svg = (tmp_path / "images" / "demo.svg").read_text()
    assert "@font-face" not in svg
    assert "url(http" not in svg
    assert "shop.orders" in svg.replace("&#160;", " ")


def test_the_summary_reports_whether_what_was_sent_arrived_and_how_to_ask_for_more() -> None:
    document, text = summarise([ARRIVAL], [("/", 7), ("/cart", 3)], Lake(Path("/lake")))
    assert document["ok"]
    assert document["query"]["rows"] == [{"page": "/", "views": 7}, {"page": "/cart", "views": 3}]
    assert document["tables"]["shop.page_views"]["equal"]
    assert "every record arrived once" in text
    assert "iceberg_scan('/lake/7.metadata.json')" in text
    assert "org.apache.iceberg:iceberg-spark-runtime-" in text


@pytest.mark.parametrize(
    "difference", [{"rows": 11}, {"lost": 1}, {"doubled": 1}, {"total": 54}, {"late": 3}], ids=lambda d: str(*d)
)
def test_any_difference_is_told(difference: dict[str, int]) -> None:
    document, text = summarise([replace(ARRIVAL, **difference)], [], Lake(Path("/lake")))  # type: ignore[arg-type]
    assert not document["ok"]
    assert "the tables do not have the records that were sent" in text
