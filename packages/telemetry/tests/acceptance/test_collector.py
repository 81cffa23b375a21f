"""OpenTelemetry's own collector takes the metrics and traces of a real run, over TCP and by its own decoder.

In time: unit/telemetry has what is sent, acceptance/test_http_service.py what a real run sends.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from packages.telemetry.tests.fixtures.collectors import collector
from tests.acceptance.ledger import events
from tests.acceptance.pipelines import Pipeline
from tests.fixtures.waiting import wait_until
from tests.integration.servers import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@contextmanager
def running_collector(folder: Path, port: int) -> Iterator[Path]:
    """A collector that prints all that it takes; the file that it prints to."""
    program = collector()
    if program is None:
        pytest.skip("there is no collector: `make collector` builds it where there is Go")
    pipeline = {"receivers": ["otlp"], "exporters": ["debug"]}
    document = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
        "exporters": {"debug": {"verbosity": "detailed"}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {"traces": pipeline, "metrics": pipeline},
        },
    }
    file, printed = folder / "collector.yaml", folder / "collector.log"
    file.write_text(yaml.safe_dump(document))
    with printed.open("wb") as log:
        process = subprocess.Popen([program, f"--config=file:{file}"], stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: "Everything is ready" in printed.read_text(), "the collector", 60.0)
        yield printed
    finally:
        process.terminate()
        process.wait(30)


def test_a_collector_takes_the_metrics_and_traces_of_a_run(pipeline: Pipeline) -> None:
    table, topic = pipeline.add_fed_table("watched")
    port = free_port()
    pipeline.document["telemetry"] = {"otlp": f"http://127.0.0.1:{port}"}
    pipeline.feed.produce(topic, events(10))
    with running_collector(pipeline.folder, port) as printed:
        run = pipeline.run()
        run.wait_for("batch_committed", table=table)
        assert run.stop() == 0, run.tail()
        text = printed.read_text()
    assert run.seen("telemetry_failed") == []
    names = {re.sub(r"^.*: ", "", line).strip() for line in text.splitlines() if re.match(r"\s*(-> )?Name\s*:", line)}
    assert {"read", "task", "commit", f"process {topic}"} <= names
    assert {
        "frazil.table.rows",
        "frazil.commit",
        "messaging.client.consumed.messages",
        "jvm.memory.used",
    } <= names
    assert f"frazil.table: Str({table})" in text
    assert "service.name: Str(frazil)" in text
