"""A real Prometheus scrapes a real run, and the shipped rules fire on a stopped table, on lag and on dead letters.

In time: unit/deploy/test_prometheus.py has the rules, test_http_service.py the scrape of a real run.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest
import yaml

from docs.scan import ROOT
from tests.acceptance.ledger import events
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.test_http_service import Service
from tests.fixtures.waiting import wait_until
from tests.integration.servers import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
RULES = ROOT / "deploy" / "prometheus" / "frazil.rules.yaml"
PATIENCE_S = 300.0
KNOWN_BEFORE = "increase(sum by (pipeline, table) (frazil_dead_letters_total)[15m:15s])"


def copied_rules(folder: Path) -> Path:
    """The shipped rules, in which a table is late after 5 s instead of 15 minutes; the others are as they are."""
    document = yaml.safe_load(RULES.read_text())
    for rule in document["groups"][0]["rules"]:
        if rule["alert"] == "FrazilTableLate":
            rule["expr"], changes = re.subn(r"> 300$", "> 5", rule["expr"])
            assert changes == 1
            rule["for"] = "1s"
    path = folder / "frazil.rules.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@contextmanager
def prometheus(folder: Path, target: int) -> Iterator[Service]:
    """Prometheus, which scrapes a port each second; Debian's package is called `prometheus`."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("there is no prometheus on this machine")
    port = free_port()
    file = folder / "prometheus.yaml"
    document = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "scrape_configs": [{"job_name": "frazil", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}],
        "rule_files": [str(copied_rules(folder))],
    }
    file.write_text(yaml.safe_dump(document))
    words = [
        f"--config.file={file}",
        f"--web.listen-address=127.0.0.1:{port}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([program, *words], stdout=log, stderr=subprocess.STDOUT)
    try:
        service = Service(port)
        wait_until(lambda: service.get("/-/ready")[0] == 200, "Prometheus", PATIENCE_S)
        yield service
    finally:
        process.terminate()
        process.wait(30)


def results(service: Service, query: str) -> int:
    """The number of series that a query returns."""
    found = service.json(f"/api/v1/query?{urlencode({'query': query})}")
    return len(found["data"]["result"])


def firing(service: Service) -> set[tuple[str, str]]:
    """The alerts that fire, each with its table."""
    alerts = service.json("/api/v1/alerts")["data"]["alerts"]
    return {(one["labels"]["alertname"], one["labels"].get("table", "")) for one in alerts if one["state"] == "firing"}


def test_the_shipped_rules_fire_on_planted_faults_and_on_nothing_else(pipeline: Pipeline) -> None:
    good, good_topic = pipeline.add_fed_table("good")
    late, late_topic = pipeline.add_fed_table("late")
    bad, bad_topic = pipeline.add_fed_table("bad", dead_letters={"stop_above": "100%"})
    stopped, stopped_topic = pipeline.add_fed_table("stopped", on_bad_record="stop")
    topics = (good_topic, late_topic, bad_topic, stopped_topic)
    port = free_port()
    pipeline.document["http"] = {"listen": f"127.0.0.1:{port}"}
    for topic in topics:
        pipeline.feed.produce(topic, events(10))
    run = pipeline.run()
    for table in (good, late, bad, stopped):
        run.wait_for("batch_committed", within_s=PATIENCE_S, table=table)
    with prometheus(pipeline.folder, port) as service:
        # Two evaluations of the subquery of dead letters, which are 15 s apart, precede the faults.
        wait_until(lambda: results(service, KNOWN_BEFORE) == 4, "all tables to be scraped twice", PATIENCE_S)
        assert firing(service) == set()
        pipeline.feed.produce(bad_topic, [b"no JSON"])
        pipeline.feed.produce(stopped_topic, [b"no JSON"])
        pipeline.command("pause", late)
        pipeline.feed.produce(late_topic, events(10))
        pipeline.feed.produce(good_topic, events(10))
        expected = {("FrazilDeadLetters", bad), ("FrazilTableStopped", stopped), ("FrazilTableLate", late)}
        wait_until(lambda: expected <= firing(service), f"{expected} to fire", PATIENCE_S)
        # A stopped table with records to read is late as well.
        assert firing(service) - {("FrazilTableLate", stopped)} == expected
        pipeline.command("resume", late)
        wait_until(lambda: ("FrazilTableLate", late) not in firing(service), "the alert to end", PATIENCE_S)
    run.stop()
