"""check, plan, status and demo as their users call them: processes, exit codes, JSON alone on standard output. A command
that another test here starts is called in this process.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.jvm import Jvm
from tests.acceptance.verifier import open_duckdb
from tests.fixtures.forks import run_to_end
from tests.fixtures.in_process import ended_on
from tests.fixtures.jvms import quick_jvms
from tests.fixtures.processes import is_alive, program_of
from tests.fixtures.slices import sliced
from tests.fixtures.terminal import CTRL_C, Terminal
from tests.fixtures.waiting import wait_until
from tests.integration.pipelines import Ledger
from tests.integration.servers import ObjectStore, free_port

SECRET = "hush/hush+hush"
_TIMEOUT_S = 280.0
_ENDING_S = 100.0
_SHOWN = 10
"""Rows that the demo's query for PyIceberg asks for."""


@dataclass(frozen=True)
class Answer:
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document that standard output holds."""
        [line] = self.out.splitlines()
        document: dict[str, Any] = json.loads(line)
        return document

    def tables(self) -> dict[str, dict[str, Any]]:
        tables: dict[str, dict[str, Any]] = self.document["tables"]
        return tables

    def problems(self) -> dict[str, dict[str, Any]]:
        return {check["name"]: check for check in self.document["checks"] if not check["ok"]}


def frazil(directory: Path, *words: str) -> Answer:
    command = [sys.executable, "-m", "frazil.cli.main", *words, "--output", "json"]
    environment = {**os.environ, "SHOP_SECRET": SECRET}
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    assert SECRET not in done.stdout + done.stderr
    return Answer(done.returncode, done.stdout, done.stderr)


def called(jvm: Jvm, directory: Path, file: str, *words: str) -> Answer:
    """The same in this process, of which only the document is kept."""
    code, document = ended_on(jvm, directory / file, {"SHOP_SECRET": SECRET}, *words)
    written = json.dumps(document)
    assert SECRET not in written
    return Answer(code, written, "")


def forked(directory: Path, *words: str) -> Answer:
    """The same by a process that is forked."""
    done = run_to_end([*words, "--output", "json"], directory, {**os.environ, "SHOP_SECRET": SECRET}, _TIMEOUT_S)
    assert SECRET not in done.stdout + done.stderr
    return Answer(done.returncode, done.stdout, done.stderr)


def write(directory: Path, servers: str, rest: str, name: str = "frazil.yaml") -> str:
    directory.mkdir(parents=True, exist_ok=True)
    kafka = f'kafka: {{bootstrap.servers: "{servers}", sasl.password: "${{env:SHOP_SECRET}}"}}'
    (directory / name).write_text(f"pipeline: shop\n{kafka}\n{rest}\n")
    return name


@dataclass(frozen=True)
class Shop:
    """A pipeline whose run was killed: `good` and `live` are read to their end, of `live` one column; `bad` has stopped at
    the record at partition 1, offset 0; the topic of the others has no record, and the columns of one of them are declared.
    """

    directory: Path
    servers: str
    good: Ledger
    bad: Ledger
    empty: Ledger
    live: Ledger

    def variant(self, name: str, servers: str = "", rest: str = "") -> str:
        """Another file for the same pipeline; its name."""
        return write(self.directory, servers or self.servers, rest or self.tables, name)

    @property
    def tables(self) -> str:
        bad = f"{{topic: {self.bad.topic}, on_bad_record: stop}}"
        return f"tables: {{{self.well}, shop.bad: {bad}}}"

    @property
    def well(self) -> str:
        """The tables but the one that has stopped."""
        good, empty, live = (f"topic: {ledger.topic}" for ledger in (self.good, self.empty, self.live))
        more = f"shop.live: {{{live}, columns: {{number: long}}, unknown_fields: drop}}"
        return (
            f"shop.good: {{{good}}}, shop.empty: {{{empty}}}, shop.declared: {{{empty}, columns: {{id: long}}}}, {more}"
        )


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Neither the demo's pipeline file nor those here say how a JVM is to run."""
    with quick_jvms():
        yield


@dataclass(frozen=True)
class Looks:
    """What was seen while the shop's run ran."""

    shop: Shop
    status: Answer
    #: How a `frazil status --watch` ended that Ctrl-C ends, and the numbers of rows of `live` that it showed: those before
    #: and after another hundred records.
    watched: tuple[int, set[int]]


@pytest.fixture(scope="module")
def looks(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Looks:
    servers, directory = broker.bootstrap_servers, tmp_path_factory.mktemp("shop")
    words = ("good", "bad", "empty", "live")
    shop = Shop(directory, servers, *(Ledger(servers, f"{word}-{new_id()}") for word in words))
    shop.good.produce(1000)
    shop.live.produce(500)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    producer.produce(shop.bad.topic, b'{"number": 1}', partition=0)
    producer.produce(shop.bad.topic, b"not json", partition=1)
    assert producer.flush(30) == 0
    write(directory, servers, shop.tables)
    state, written = directory / "frazil-data/state/shop.json", directory / "written"
    command = [sys.executable, "-m", "frazil.cli.main", "run", "--output", "json"]
    environment = {**os.environ, "SHOP_SECRET": SECRET}
    with (
        written.open("wb") as out,
        subprocess.Popen(command, cwd=directory, env=environment, stdout=out, stderr=subprocess.STDOUT) as running,
    ):
        try:
            wait_until(lambda: running.poll() is not None or _has_read_all(state), written.read_text)
            assert running.poll() is None, written.read_text()
            seen = Looks(shop, forked(directory, "status"), _watched_rows(shop))
        finally:
            running.kill()
    assert SECRET not in written.read_text()
    return seen


def _has_read_all(state: Path) -> bool:
    """Whether this file of a run's state has all rows of the two tables, and that the third has stopped."""
    try:
        tables = json.loads(state.read_text())["tables"]
    except FileNotFoundError:
        return False
    rows = {name: (table["size"] or {}).get("row_count") for name, table in tables.items()}
    is_read = (rows.get("shop.good"), rows.get("shop.live")) == (1000, 500)
    return is_read and tables["shop.bad"]["state"] == "stopped"


def _watched_rows(shop: Shop) -> tuple[int, set[int]]:
    command = [sys.executable, "-m", "frazil.cli.main", "status", "--watch", "--output", "json"]
    environment = {**os.environ, "SHOP_SECRET": SECRET}
    with subprocess.Popen(command, cwd=shop.directory, env=environment, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        seen = {json.loads(watching.stdout.readline())["tables"]["shop.live"]["rows"]}
        shop.live.produce(100)
        for line in watching.stdout:
            seen.add(json.loads(line)["tables"]["shop.live"]["rows"])
            if shop.live.count in seen:
                break
        watching.send_signal(signal.SIGINT)
        return watching.wait(_TIMEOUT_S), seen


@pytest.fixture(scope="module")
def shop(looks: Looks) -> Shop:
    return looks.shop


def test_status_tells_of_a_stopped_table_topic_partition_offset_and_remedy(shop: Shop) -> None:
    """As text for people: unit/ops/test_status.py."""
    answer = frazil(shop.directory, "status")
    good, bad = answer.tables()["shop.good"], answer.tables()["shop.bad"]
    assert (answer.code, answer.document["ok"], answer.document["process"]["running"]) == (4, False, False)
    assert (good["state"], good["rows"], good["lag_records"], good["ok"]) == ("not running", 1000, 0, True)
    assert (good["files"] > 0, good["size_bytes"] > 0, good["last_commit_ms"] > 0) == (True, True, True)
    assert (bad["state"], bad["where"]) == ("stopped", f"topic {shop.bad.topic}, partition 1, offset 0")
    assert bad["reason"]
    assert bad["remedy"]
    live = answer.tables()["shop.live"]
    assert (live["ok"], live["state"], live["rows"]) == (True, "not running", 600)


def test_plan_finds_nothing_to_do_and_the_record_that_stops_a_table(shop: Shop) -> None:
    """Where all tables are read, it ends with 0: test_query_tables."""
    answer = frazil(shop.directory, "plan")
    assert answer.code == 4
    assert {name: table["action"] for name, table in answer.tables().items()} == {
        "shop.good": "none", "shop.empty": "wait", "shop.declared": "none", "shop.live": "none", "shop.bad": "stop",
    }  # fmt: skip
    assert {first["source"] for first in answer.tables()["shop.good"]["first_offsets"]} == {"progress"}
    assert answer.tables()["shop.bad"]["where"] == f"topic {shop.bad.topic}, partition 1, offset 0"


def test_check_is_well_and_reports_what_it_tried(shop: Shop) -> None:
    elects = shop.variant("elects.yaml", rest=f"ha: {{}}\n{shop.tables}")
    answer = frazil(shop.directory, "check", "-f", elects)
    assert (answer.code, answer.problems()) == (0, {})
    [election] = [check for check in answer.document["checks"] if check["name"] == "election"]
    assert election["found"] == "topic frazil-shop-ha does not exist; this client may create it"
    names = [check["name"] for check in answer.document["checks"]]
    assert names[:5] == ["file", "java", "jars for spark", "transport of kafka", "kafka"]
    assert {"catalog", "store", "table shop.good", f"topic {shop.good.topic}"} <= set(names)
    assert all(check["tried"] and check["found"] for check in answer.document["checks"])


def test_without_kafka_check_names_it_and_status_still_shows_the_tables(shop: Shop, jvm: Jvm) -> None:
    away = shop.variant("away.yaml", servers=f"127.0.0.1:{free_port()}")
    checked = called(jvm, shop.directory, away, "check")
    assert (checked.code, set(checked.problems())) == (1, {"kafka"})
    status = called(jvm, shop.directory, away, "status")
    assert (status.code, status.tables()["shop.good"]["rows"]) == (4, 1000)
    assert "Kafka is not reachable" in status.document["problems"][0]["message"]


def test_without_the_catalog_check_names_it_and_status_shows_the_last_report(shop: Shop, jvm: Jvm) -> None:
    catalog = (
        f'catalog: {{type: rest, uri: "http://127.0.0.1:{free_port()}", properties: {{token: "${{env:SHOP_SECRET}}"}}}}'
    )
    away = shop.variant("no-catalog.yaml", rest=f"{shop.tables}\n{catalog}")
    checked = called(jvm, shop.directory, away, "check", "--debug")
    assert (checked.code, set(checked.problems())) == (1, {"catalog"})
    status = called(jvm, shop.directory, away, "status")
    assert (status.code, status.tables()["shop.good"]["rows"], status.tables()["shop.bad"]["state"]) == (
        4,
        1000,
        "stopped",
    )


def test_before_the_first_run_nothing_is_made_and_all_is_reported(
    broker: EmbeddedBroker, jvm: Jvm, tmp_path: Path
) -> None:
    ledger = Ledger(broker.bootstrap_servers, f"new-{new_id()}")
    ledger.produce(100)
    file = write(tmp_path, ledger.servers, f"namespace: n\ntopics: [/^{ledger.topic}$/]")
    status, planned = (called(jvm, tmp_path, file, command) for command in ("status", "plan"))
    table = f"n.{ledger.topic}"
    assert (status.code, status.tables()[table]["lag_records"], status.tables()[table]["rows"]) == (4, 100, None)
    assert status.tables()[table]["reason"] == "no run has committed to the table yet"
    assert (planned.code, planned.tables()[table]["action"], planned.tables()[table]["sampled"]) == (4, "create", 100)
    assert [(c["name"], c["type"], c["source"]) for c in planned.tables()[table]["columns"]] == [
        ("number", "long", "inferred"),
        ("word", "string", "inferred"),
        ("half", "double", "inferred"),
    ]
    assert [path.name for path in tmp_path.iterdir()] == [file]


@pytest.mark.parametrize("command", sliced(["run", "check", "plan"], 1))
def test_a_pattern_that_matches_nothing_is_exit_two_and_starts_no_session(
    command: str, shop: Shop, tmp_path: Path
) -> None:
    """A topic that is missing: test_query_tables.py."""
    empty = write(tmp_path, shop.servers, "tables:\n  s.a: {topics: /^nothing-here/}", "empty.yaml")
    answer = forked(tmp_path, command, "-f", empty)
    assert (answer.code, answer.document["error"]["where"]) == (2, "empty.yaml:4")
    assert "spark_session_started" not in answer.err


@pytest.mark.parametrize("command", sliced(["check", "plan", "status"], 1))
def test_a_bad_file_is_exit_two(command: str, tmp_path: Path) -> None:
    (tmp_path / "frazil.yaml").write_text("pipeline: shop\nkafak: {}\n")
    answer = frazil(tmp_path, command)
    assert (answer.code, answer.document["error"]["type"], answer.err) == (2, "SpecError", "")


def test_check_names_a_store_that_is_not_there(
    shop: Shop, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is well: test_plugins.py."""
    for name, value in store.environment().items():
        monkeypatch.setenv(name, value)
    catalog = json.dumps({"warehouse": "s3://no-such-bucket/shop", "properties": store.references()})
    broken = forked(tmp_path, "check", "-f", write(tmp_path, shop.servers, f"{shop.tables}\ncatalog: {catalog}"))
    assert (broken.code, set(broken.problems())) == (1, {"store"})
    assert broken.problems()["store"]["tried"] == "listed s3://no-such-bucket/shop, and tried to write there"
    assert store.secret not in broken.out + broken.err


def test_status_of_a_running_pipeline(looks: Looks) -> None:
    status, table = looks.status, looks.status.tables()["shop.live"]
    assert (status.code, status.document["process"]["running"]) == (4, True)
    assert (table["rows"], table["lag_records"], table["state"] in ("waiting", "running")) == (500, 0, True)
    assert (table["ok"], table["dropped_fields"]) == (True, ["half", "word"])
    assert looks.watched == (4, {500, 600}), "as status ends for the table that has stopped"


@pytest.mark.slow  # In time: the demo that Ctrl-C ends, below; its summary and its picture in `packages/demo`.
def test_demo_once_compares_sent_with_arrived_records_and_leaves_nothing_running(
    tmp_path: Path,
) -> None:
    answer = frazil(tmp_path, "demo", "--once", "--records", "4000", "--picture", "demo.svg")
    assert answer.code == 0, answer.err
    tables = answer.tables()
    assert sum(table["rows"] for table in tables.values()) == 4000
    assert all(table["equal"] for table in tables.values())
    assert "campaign.medium" in tables["shop.page_views"]["columns"]
    assert sum(row["views"] for row in answer.document["query"]["rows"]) > 0
    assert (tmp_path / "demo.svg").read_text().startswith("<svg")
    state = json.loads((tmp_path / "frazil-data/demo/frazil-data/state/demo.json").read_text())
    assert (state["ended"], is_alive(state["pid"])) == (True, False)


@pytest.mark.slow
def test_ctrl_c_while_the_demo_comes_up_ends_it_too(tmp_path: Path) -> None:
    """Once it is up, it is ended so in the next test."""
    command = [sys.executable, "-m", "frazil.cli.main", "demo", "--rate", "300", "--dir", "d", "--output", "json"]
    state_file = tmp_path / "d/frazil-data/state/demo.json"
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        wait_until(lambda: state_file.exists() or demo.poll() is not None, "the demo runs")
        assert demo.poll() is None
        demo.send_signal(signal.SIGINT)
        out, err = demo.communicate(timeout=_TIMEOUT_S)
    assert demo.returncode == 0, err
    assert all(table["equal"] for table in Answer(0, out, err).tables().values())
    assert not is_alive(json.loads(state_file.read_text())["pid"])


def fewest_rows(folder: Path) -> int:
    """Of the demo in this folder: what the table with the fewest rows has."""
    try:
        reported = json.loads((folder / "frazil-data/state/demo.json").read_text())["tables"]
    except FileNotFoundError:
        return 0
    return min(((table["size"] or {}).get("row_count", 0) for table in reported.values()), default=0)


def test_ctrl_c_ends_all_of_the_demo_and_its_printed_queries_find_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    folder = tmp_path / "jürgen"
    command = [sys.executable, "-m", "frazil.cli.main", "demo", "--rate", "300", "--dir", str(folder)]
    with Terminal(command, tmp_path) as demo:
        wait_until(lambda: demo.has_ended or fewest_rows(folder) >= _SHOWN, lambda: f"rows:\n{demo.text}")
        assert not demo.has_ended, demo.text
        assert [program_of(pid) for pid in demo.pids()].count("java") == len(("the broker's", "the pipeline's"))
        host, port = yaml.safe_load((folder / "frazil.yaml").read_text())["kafka"]["bootstrap.servers"].split(":")
        socket.create_connection((host, int(port)), timeout=5).close()
        demo.press(CTRL_C)
        assert demo.wait(_ENDING_S) == 0, demo.text
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), timeout=5)
    view, printed = demo.text.rsplit("how to query the tables\n\n", 1)
    assert "Ctrl-C ends it." in view
    duckdb, pyiceberg, _, verdict, _, _, pages = printed.strip().split("\n\n")
    assert verdict == "what arrived: every record arrived once, with its values"
    views = [int(line.split()[-1].replace(",", "")) for line in pages.splitlines()[1:]]
    with open_duckdb() as reader:
        assert [row[1] for row in reader.sql(duckdb.partition("LOAD iceberg;\n")[2]).fetchall()] == views
    names: dict[str, Any] = {}
    _, first, last = map(str.strip, pyiceberg.splitlines())
    exec(first, names)
    assert len(eval(last, names)) == _SHOWN
