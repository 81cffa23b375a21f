"""The HTTP service of a real run: scraped, asked, and used to pause, resume and reset a table, also by the commands."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from frazil.runtime.jvm import Jvm
from tests.acceptance.ledger import events
from tests.acceptance.pipelines import Pipeline
from tests.fixtures.receivers import Receiver, receiver
from tests.fixtures.waiting import wait_until
from tests.integration.servers import free_port

pytestmark = pytest.mark.timeout(600)


class Service:
    """The service at a port."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of an answer; 0 while nothing listens."""
        try:
            with urllib.request.urlopen(self.address + path, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def json(self, path: str) -> Any:
        """The JSON of a good answer."""
        status, text = self.get(path)
        assert status == 200, text
        return json.loads(text)

    def begin(self, path: str) -> str:
        """The place of the work that a POST begins."""
        with urllib.request.urlopen(urllib.request.Request(self.address + path, method="POST"), timeout=20) as answer:
            place: str = answer.headers["Location"]
        return place

    def sample(self, name: str, table: str | None = None) -> float | None:
        """The value of a metric of a table, or of the process."""
        for family in text_string_to_metric_families(self.get("/metrics")[1]):
            for one in family.samples:
                if one.name == name and one.labels.get("table") == table:
                    return one.value
        return None


def check_plan_and_pages(service: Service, table: str) -> None:
    """The plan, and pages of a real table: its metadata is from Iceberg, its memory from the system, its heap from Java."""
    assert service.json("/api/v1/plan")["changes"] is False
    pages = {path: service.get(path) for path in ("/", f"/tables/{table}", f"/tables/{table}/dead-letters", "/process")}
    assert {path: text for path, (status, text) in pages.items() if status != 200} == {}
    assert f'href="/tables/{table}"' in pages["/"][1]
    tabs = "".join(service.get(f"/tables/{table}?tab={tab}")[1] for tab in ("commits", "files", "schema"))
    created = '<li class="created">created</li>'
    for shown in ("<td>ingestion</td><td>append</td>", created, "data files</caption>", '<th scope="row">'):
        assert shown in tabs
    assert ">java<" in pages["/process"][1]
    used, most = service.sample("frazil_jvm_heap_used_bytes"), service.sample("frazil_jvm_heap_max_bytes")
    assert used is not None
    assert most is not None
    assert 0 < used <= most


def check_telemetry(sent: Receiver, table: str) -> None:
    """What real tasks and a real JVM have, and the end of the run."""
    spans = {span["spanId"]: span for span in sent.spans}
    tasks = [span for span in spans.values() if span["name"] == "task"]
    above = [spans[task["parentSpanId"]] for task in tasks]
    assert {span["name"] for span in above} == {"read"}
    roots = {spans[span["parentSpanId"]]["attributes"]["frazil.table"] for span in above}
    assert roots == {table}
    # The clock of the tasks is that of the driver here.
    for task, read in zip(tasks, above, strict=True):
        assert int(read["startTimeUnixNano"]) <= int(task["startTimeUnixNano"]) + 10**9
        assert int(task["endTimeUnixNano"]) <= int(read["endTimeUnixNano"]) + 10**9
    assert sent.values("jvm.memory.used")["heap",] > 0
    assert [event["eventType"] for event in sent.events][:: len(sent.events) - 1] == ["START", "COMPLETE"]
    assert "text" in sent.events[-1]["outputs"][0]["facets"]["columnLineage"]["fields"]


@pytest.fixture
def sent(pipeline: Pipeline) -> Iterator[Receiver]:
    """A service that takes what the pipeline sends."""
    with receiver() as found:
        pipeline.document["telemetry"] = {"otlp": found.url, "openlineage": found.url}
        yield found


def test_a_table_is_paused_resumed_and_reset_while_it_is_watched(pipeline: Pipeline, sent: Receiver, jvm: Jvm) -> None:
    table, topic = pipeline.add_fed_table("watched")
    port = free_port()
    pipeline.document["http"] = {"listen": f"127.0.0.1:{port}"}
    service = Service(port)
    pipeline.feed.produce(topic, events(100))
    run = pipeline.run()
    run.wait_for("batch_committed", table=table)
    wait_until(lambda: service.get("/readyz")[0] == 200, "a service that is ready")
    assert service.get("/healthz") == (200, '{"ok":true}')
    wait_until(lambda: service.sample("frazil_records_read_total", table) == 100, "a scrape with all records")
    wait_until(lambda: service.json(f"/api/v1/tables/{table}")["state"] == "waiting", "a table without lag")
    pipeline.wait_for_state(run, table, "waiting")
    shown, printed = service.json(f"/api/v1/tables/{table}"), pipeline.command_on(jvm, "status")["tables"][table]
    assert shown.keys() == printed.keys()
    same = ("state", "rows", "files", "lag_records", "topics", "last_commit_ms", "watermark_ms", "partition_spec")
    assert {key: shown[key] for key in same} == {key: printed[key] for key in same}
    check_plan_and_pages(service, table)
    pipeline.check(table)

    refused = pipeline.command_on(jvm, "reset", table, "--yes", expected=1)["error"]
    assert refused["remedy"] == f"run `frazil pause {table}` first"
    assert pipeline.command("pause", table)["state"] == "paused"
    pipeline.feed.produce(topic, events(50, 100))
    wait_until(lambda: service.json(f"/api/v1/tables/{table}")["lag_records"] == 50, "the lag of a paused table")
    planned = pipeline.command_on(jvm, "reset", table, expected=1)
    assert (planned["dry_run"], planned["read_again"]) == (True, 100)
    assert pipeline.command_on(jvm, "reset", table, "--yes")["read_again"] == 100
    assert pipeline.command("resume", table)["state"] != "paused"
    wait_until(
        lambda: service.json(f"/api/v1/tables/{table}")["rows"] == 250, "the first records twice, the others once"
    )

    place = service.begin(f"/api/v1/tables/{table}/maintain")
    wait_until(lambda: service.json(place)["state"] != "running", "the end of a round of maintenance")
    assert service.json(place)["state"] == "done"
    assert run.stop() == 0, run.tail()
    assert run.seen("unexpected_error") + run.seen("http_request_failed") + run.seen("telemetry_failed") == []
    check_telemetry(sent, table)
