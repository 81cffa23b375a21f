"""A running pipeline that compares its newest commits with the topics finds rows that another writer lost or changed, and
`frazil verify` shows them. That one table alone is compared by the command, and that the exit code is 0 where it is equal,
in test_topic_keys.py.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.jvm import Jvm
from tests.fixtures.foreign_spark import ForeignSpark
from tests.fixtures.processes import stat_of, wait_until_ended
from tests.fixtures.waiting import wait_until
from tests.integration.pipelines import Ledger, Pipeline, Running
from tests.integration.servers import free_port

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]
_QUERY, _OTHER = (f"select id, kind from records where kind <> '{kind}'" for kind in ("noise", "visit"))


class Scene:
    """Three tables of one pipeline, and what is sent to their topics."""

    def __init__(self, broker: EmbeddedBroker, jvm: Jvm, folder: Path) -> None:
        self.servers = broker.bootstrap_servers
        self.events, self.people = (Ledger(self.servers, new_id(), 2).topic for _ in range(2))
        self._producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True})
        self._sent = 0
        self.port = free_port()
        tables = {
            "w.events": {
                "topic": self.events,
                "partition_by": ["kind"],
                "columns": {"tags": "map<string, string>"},
                "metadata": ["timestamp", "offset"],
                "on_bad_record": "dead_letter",
                "select": "select id, kind, at, 10 / n as share, labels, tags from records where kind <> 'noise'",
            },
            "w.orders": {"topic": self.events, "metadata": ["partition"], "select": _QUERY},
            "w.people": {"topic": self.people, "key": {"format": "json"}, "mode": "upsert"},
        }
        #: Its commands need no process of their own.
        self.pipeline = Pipeline(
            folder,
            {
                "pipeline": "w",
                "kafka": {"bootstrap.servers": self.servers},
                "http": {"listen": f"127.0.0.1:{self.port}"},
                "verify": {"every": "5s", "sample": "100%"},
                "tables": tables,
            },
            jvm=jvm,
        )

    def send(self, count: int) -> None:
        """Sends as many events, and changes of fifty people."""
        for number in range(self._sent, self._sent + count):
            event: dict[str, Any] = {"id": number, "kind": ("order", "visit", "noise")[number % 3], "n": number % 5}
            event |= {"at": f"2026-01-01T00:00:{number % 60:02}Z", "labels": {"b": [number, None]}}
            event |= {"tags": {"a": "x", "b": str(number)}}
            text = b"{" if number % 97 == 5 else json.dumps(event).encode()
            self._producer.produce(self.events, text, partition=number % 2)
            key = number * 7 % 50
            told = {"id": key, "name": f"n{number}", "inner": {"deep": [number]}}
            person = None if number % 11 == 0 else json.dumps(told).encode()
            self._producer.produce(self.people, person, json.dumps({"id": key}).encode(), partition=key % 2)
        assert self._producer.flush(30) == 0
        self._sent += count

    def forget(self, topic: str) -> None:
        """Has the broker delete every record of a topic, as retention does."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        for done in admin.delete_records([TopicPartition(topic, number, -1) for number in range(2)]).values():
            done.result(30)

    def status(self, table: str) -> dict[str, Any]:
        """What the running process reports of a table."""
        with urlopen(f"http://127.0.0.1:{self.port}/api/v1/tables/{table}", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def verification(self, table: str) -> dict[str, Any]:
        """What it reports of the comparisons of a table; nothing before it has published one."""
        return self.status(table)["verification"] or {}

    def metrics(self) -> list[str]:
        with urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            return [line for line in answer.read().decode().splitlines() if line.startswith("frazil_verify_")]


def _compared(running: Running, table: str) -> int:
    return sum(one["records"] for one in running.events_named("table_verified") if one["table"] == table)


def _committed(running: Running, table: str) -> int:
    return sum(one["records"] for one in running.events_named("batch_committed") if one["table"] == table)


def _comparing(running: Running) -> int | None:
    """The process that compares, stopped in the middle; None between two comparisons."""
    for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        if stat_of(pid)[1:2] == [str(running.pid)] and b"frazil_verify.compare" in _command_of(pid):
            os.kill(pid, signal.SIGSTOP)
            return pid
    return None


def _command_of(pid: int) -> bytes:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return b""
    # Before it is that program, it is the one that ties it to its parent.
    return words[-2] if words[1:2] == [b"-P"] else b""


def _differing(running: Running, table: str) -> tuple[int, int]:
    """How many rows are missing, and how many are there that no record makes; each is found once."""
    found = [one for one in running.events_named("table_differs") if one["table"] == table]
    return sum(one["missing"] for one in found), sum(one["surplus"] for one in found)


def test_lost_doubled_and_changed_rows_are_found_and_deleted_records_are_not_a_fault(
    broker: EmbeddedBroker, jvm: Jvm, spark: ForeignSpark, tmp_path: Path
) -> None:
    scene = Scene(broker, jvm, tmp_path)
    spark.restart()
    spark.add_local_catalog("frazil", tmp_path)
    with scene.pipeline.start() as running:
        scene.send(200)
        wait_until(lambda: _compared(running, "w.events") == _compared(running, "w.people") == 200, "all are compared")
        assert not running.events_named("table_differs")
        # The state is published some seconds after the event.
        wait_until(lambda: scene.verification("w.events").get("is_equal"), "the status shows it")

        spark.sql("update frazil.w.people set name = 'other' where id = 3")
        spark.sql("delete from frazil.w.events where id = 154")
        spark.sql("insert into frazil.w.events select * from frazil.w.events where id = 151")
        wait_until(lambda: _differing(running, "w.events") == (1, 1), "the lost and the doubled row are found")
        wait_until(lambda: _differing(running, "w.people") == (1, 1), "the changed row is found")

        wait_until(lambda: not scene.status("w.people")["ok"], "the status shows it")
        assert scene.verification("w.people").items() >= {"missing": 1, "surplus": 1}.items()
        counts = {line.rsplit(" ", 1)[0]: line.rsplit(" ", 1)[1] for line in scene.metrics()}
        assert counts['frazil_verify_different_rows_total{pipeline="w",table="w.people",kind="surplus"}'] == "1"

        (differs,) = (one for one in running.events_named("table_differs") if one["table"] == "w.people")
        command, table = differs["remedy"].split("`")[1].split()[1:]
        # Of all tables; one has another query by now.
        scene.pipeline.file.write_text(scene.pipeline.file.read_text().replace(_QUERY, _OTHER))
        done, printed = scene.pipeline.command(command)
        shown = printed["tables"]
        assert (done.returncode, {name for name, one in shown.items() if one["equal"]}) == (4, set())
        assert json.loads(shown[table]["surplus_rows"][0])["name"] == "other"
        assert {name: (shown[name]["missing"], shown[name]["surplus"]) for name in ("w.events", "w.people")} == {
            "w.events": (1, 1), "w.people": (1, 1),
        }  # fmt: skip
        assert min(shown["w.orders"]["missing"], shown["w.orders"]["surplus"]) > 50
        assert json.loads(shown["w.orders"]["missing_rows"][0])["kind"] == "noise"
        assert json.loads(shown["w.orders"]["surplus_rows"][0])["kind"] == "visit"

        before = len(running.events_named("table_differs"))
        scene.send(100)
        of_events = ("w.events", "w.orders")
        wait_until(lambda: {_committed(running, name) for name in of_events} == {300}, "the events are committed")
        scene.forget(scene.events)
        wait_until(lambda: _compared(running, "w.people") >= 300, "the later changes are compared")
        assert len(running.events_named("table_differs")) == before
        wait_until(lambda: scene.status("w.people")["ok"], "the status shows it")

        scene.send(100)
        child = wait_until(lambda: _comparing(running), "a comparison is in progress")
        running.kill()
    wait_until_ended(child, 5)


def test_before_the_first_run_nothing_is_compared_and_nothing_is_made(
    broker: EmbeddedBroker, jvm: Jvm, tmp_path: Path
) -> None:
    document = {
        "pipeline": "v",
        "kafka": {"bootstrap.servers": broker.bootstrap_servers},
        "tables": {"v.events": {"topic": new_id()}},
    }
    done, printed = Pipeline(tmp_path, document, jvm=jvm).command("verify")
    found = printed["tables"]["v.events"]
    assert (done.returncode, found["equal"], found["reason"]) == (1, None, "it does not exist yet")
    assert not (tmp_path / "frazil-data").exists()


def test_thousands_of_columns_with_a_value_each_are_proven(broker: EmbeddedBroker, jvm: Jvm, tmp_path: Path) -> None:
    topic, client = new_id(), {"bootstrap.servers": broker.bootstrap_servers}
    admin = AdminClient({**client})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    producer = Producer({**client, "log_level": 0})
    for number in range(2500):
        producer.produce(topic, json.dumps({"id": number, f"user_{number}": number}), partition=0)
    assert producer.flush(30) == 0
    document = {
        "pipeline": "wide",
        "kafka": {"bootstrap.servers": broker.bootstrap_servers},
        "tables": {"v.events": {"topic": topic, "limits": {"columns": 2501}}},
    }
    pipeline = Pipeline(tmp_path, document, jvm=jvm)
    pipeline.run()
    done, printed = pipeline.command("verify")
    found = printed["tables"]["v.events"]
    assert (done.returncode, found["equal"], found["rows"]) == (0, True, 2500), done.stderr
