"""What users see of a run, and of the commands that look, while something it needs is away."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.jvm import Jvm
from tests.fixtures.in_process import ended_on
from tests.fixtures.slices import sliced
from tests.integration.pipelines import Ledger, Pipeline
from tests.integration.servers import free_port

pytestmark = pytest.mark.jvm
NOWHERE = "127.0.0.1"


def document_of(ledger: Ledger, **more: object) -> dict[str, object]:
    tables = {"s.t": {"topic": ledger.topic, "commit": {"interval": "200ms"}}}
    return {"pipeline": "p", "kafka": {"bootstrap.servers": ledger.servers}, "tables": tables, **more}


@pytest.fixture
def ledger(broker: EmbeddedBroker) -> Ledger:
    made = Ledger(broker.bootstrap_servers, f"outage-{new_id()}")
    made.produce(10)
    return made


def test_missing_metadata_of_a_table_is_an_outage_and_never_a_dropped_table(
    ledger: Ledger, jvm: Jvm, tmp_path: Path
) -> None:
    pipeline = Pipeline(tmp_path, document_of(ledger), jvm=jvm)
    pipeline.run()
    warehouse = tmp_path / "frazil-data" / "warehouse"
    newest = max(warehouse.rglob("*.metadata.json"), key=lambda path: path.name)
    warehouse.rename(tmp_path / "away")
    answers = {word: pipeline.command(word) for word in ("status", "plan", "maintain")}
    codes = {word: done.returncode for word, (done, _) in answers.items()}
    assert codes == {"status": 4, "plan": 1, "maintain": 1}
    for text in (json.dumps(document) for _, document in answers.values()):
        assert newest.name in text
        assert "a file of it is not in the store" in text
        assert "no longer exists" not in text
    with pipeline.start() as running:
        assert newest.name in running.wait_for("table_backing_off")[0]["reason"]
        shutil.rmtree(warehouse, ignore_errors=True)
        (tmp_path / "away").rename(warehouse)
        ledger.produce(5)
        running.wait_until_committed(5)
        running.stop()
    read = StaticTable.from_metadata(str(max(warehouse.rglob("*.metadata.json"), key=lambda path: path.name)))
    assert sorted(read.scan().to_arrow()["number"].to_pylist()) == list(range(ledger.count))


@pytest.mark.soak
def test_a_clock_that_was_set_back_is_named_and_the_table_continues_by_itself(ledger: Ledger, tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, document_of(ledger))
    pipeline.run()
    newest = max((tmp_path / "frazil-data").rglob("*.metadata.json"), key=lambda path: path.name)
    document = json.loads(newest.read_text())
    # A minute and a half beyond the minute that Iceberg allows: so the table looks after a step back. Loaded machines need
    # most of it until the first commit.
    later_ms = 60_000 + 90_000
    document["last-updated-ms"] += later_ms
    for part in (document["snapshots"], document["snapshot-log"]):
        part[-1]["timestamp-ms"] += later_ms
    newest.write_text(json.dumps(document))
    ledger.produce(5)
    with pipeline.start() as running:
        backed_off = running.wait_for("table_backing_off")[0]
        assert (
            "clock was set back: it is more than a minute behind the newest change of the table" in backed_off["reason"]
        )
        assert running.wait_for("batch_committed", within_s=240.0)[0]["records"] == 5
        assert not running.events_named("unexpected_error")


@pytest.mark.parametrize("away", sliced(["broker", "catalog", "registry", "topic"], 2))
def test_a_run_that_is_to_catch_up_ends_in_time_and_names_what_it_waited_for(
    ledger: Ledger, jvm: Jvm, tmp_path: Path, away: str
) -> None:
    document = document_of(ledger)
    address = f"{NOWHERE}:{free_port()}"
    expected = {"broker": address, "registry": address, "topic": f"topic {ledger.topic}x", "catalog": address}[away]
    if away == "broker":
        document["kafka"] = {"bootstrap.servers": address}
    elif away == "registry":
        document["registry"] = {"url": f"http://{address}"}
        document["tables"] = {"s.t": {"topic": ledger.topic, "value": {"format": "avro", "schema": "latest"}}}
    elif away == "topic":
        document["tables"] = {"s.t": {"topic": f"{ledger.topic}x"}}
    else:
        document["catalog"] = {"type": "rest", "uri": f"http://{address}"}
    pipeline = Pipeline(tmp_path, document)
    code, answer = ended_on(jvm, pipeline.file, {}, "run", "--until-caught-up", "--timeout", "2s")
    error = answer["error"]
    assert code == 1, answer
    assert error["message"].startswith("not caught up after waiting for 2s: ")
    assert expected in error["message"] + error["where"]
    assert error["remedy"].endswith("then run the command again, or give it longer with --timeout")


def test_a_timeout_of_a_run_without_an_end_and_what_is_no_duration_are_refused(
    ledger: Ledger, jvm: Jvm, tmp_path: Path
) -> None:
    file = Pipeline(tmp_path, document_of(ledger)).file
    for words, message in (
        (("--timeout", "5m"), "`--timeout` is only for a run with `--until-caught-up`"),
        (("--until-caught-up", "--timeout", "soon"), "`soon` is not a duration"),
    ):
        code, answer = ended_on(jvm, file, {}, "run", *words)
        assert code == 2
        assert message in answer["error"]["message"]
