"""`frazil verify`, as its user runs it: tables that are their topics, and one that is not. That one alone is compared, and
that the exit code is 0 where it is equal, in test_topic_keys.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from tests.integration.pipelines import Ledger, Pipeline

pytestmark = pytest.mark.timeout(600)
_QUERY, _OTHER = (f"select id, kind from records where kind <> '{kind}'" for kind in ("noise", "visit"))


class Scene:
    """A pipeline that has read its topics."""

    def __init__(self, broker: EmbeddedBroker, folder: Path) -> None:
        servers = broker.bootstrap_servers
        self.events, self.people = (Ledger(servers, new_id(), 2).topic for _ in range(2))
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        tables = {
            "v.events": {
                "topic": self.events,
                "partition_by": ["kind"],
                "columns": {"labels": "map<string, string>"},
                "metadata": ["partition", "offset"],
                "select": "select id, kind, 10 / n as share, labels from records where kind <> 'noise'",
            },
            "v.orders": {"topic": self.events, "select": _QUERY},
            "v.people": {
                "topic": self.people,
                "key": {"format": "json"},
                "mode": "upsert",
            },
        }
        document = {"pipeline": "v", "kafka": {"bootstrap.servers": servers}, "tables": tables}
        self.pipeline = Pipeline(folder, document)
        self._produce()
        self.pipeline.run()

    def _produce(self) -> None:
        for number in range(400):
            event = {"id": number, "kind": ("order", "visit", "noise")[number % 3], "n": number % 5}
            self._send(self.events, number, None, {**event, "labels": {"a": "x", "b": str(number)}})
            key = number * 7 % 50
            person = None if number % 11 == 0 else {"id": key, "name": f"n{number}", "inner": {"deep": [number]}}
            self._send(self.people, key, {"id": key}, person)
        assert self._producer.flush(30) == 0

    def _send(self, topic: str, place: int, key: Any, value: Any) -> None:
        raw = None if value is None else json.dumps(value)
        self._producer.produce(topic, raw, None if key is None else json.dumps(key), partition=place % 2)


def verify(pipeline: Pipeline, *words: str) -> tuple[int, Mapping[str, Any]]:
    """The exit code and what was found of each table."""
    done, document = pipeline.command("verify", *words)
    assert "tables" in document, done.stdout + done.stderr
    return done.returncode, document["tables"]


@pytest.fixture(scope="module")
def scene(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(broker, tmp_path_factory.mktemp("verify"))


def test_before_the_first_run_nothing_is_compared_and_nothing_is_made(broker: EmbeddedBroker, tmp_path: Path) -> None:
    document = {
        "pipeline": "v",
        "kafka": {"bootstrap.servers": broker.bootstrap_servers},
        "tables": {"v.events": {"topic": new_id()}},
    }
    code, found = verify(Pipeline(tmp_path, document))
    assert (code, found["v.events"]["equal"], found["v.events"]["reason"]) == (1, None, "it does not exist yet")
    assert not (tmp_path / "frazil-data").exists()


def test_tables_that_are_their_topics_are_equal_and_one_of_another_query_differs_and_shows_the_rows(
    scene: Scene,
) -> None:
    scene.pipeline.file.write_text(scene.pipeline.file.read_text().replace(_QUERY, _OTHER))
    code, found = verify(scene.pipeline)
    assert code == 4
    assert {name: one["equal"] for name, one in found.items()} == {
        "v.events": True, "v.orders": False, "v.people": True,
    }  # fmt: skip
    assert found["v.events"]["rows"] > 200
    assert found["v.people"]["rows"] > 20
    differs = found["v.orders"]
    assert differs["missing"] > 50
    assert differs["surplus"] > 50
    assert json.loads(differs["missing_rows"][0])["kind"] == "noise"
    assert json.loads(differs["surplus_rows"][0])["kind"] == "visit"
