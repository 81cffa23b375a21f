"""A table whose branch is audited before readers see it: by schedule, at the end of a run, and by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from docs.scan import ROOT
from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.jvm import Jvm
from packages.publish.tests.integration.shops import AUDITS, TABLE, Shop, ids_of
from tests.fixtures.waiting import wait_until
from tests.integration.pipelines import Pipeline
from tests.integration.servers import RestCatalogServer, catalog_section

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]


def test_what_does_not_pass_is_not_seen_until_somebody_decides(
    broker: EmbeddedBroker, jvm: Jvm, tmp_path: Path
) -> None:
    """One story, as each run of it starts a JVM."""
    shop = Shop(broker, tmp_path, jvm, publish={"every": "1s", "audits": AUDITS})
    pipeline = shop.pipeline()
    shop.send((1, 1.0), (2, 2.0))
    assert pipeline.command("watermark", TABLE)[0].returncode == 4
    assert pipeline.command("publish", TABLE)[0].returncode == 1
    with pipeline.start() as running:
        running.wait_for("table_published")
        wait_until(lambda: shop.seen() == [1, 2], "what passes is seen")
        first = shop.metadata().current_snapshot()
        assert first is not None
        shop.send((None, 3.0), (4, -1.0))
        (held,) = running.wait_for("publish_held")
        assert sorted(held["audits"]) == ["no_negative", "no_null_ids"]
        assert "do not hold" in held["reason"]
        shop.send((5, 5.0))
        wait_until(lambda: shop.ingested() == [1, 2, 4, 5, None], "ingestion does not wait for audits")
        wait_until(lambda: shop.publishing()["state"] == "held", "the API shows it")
        report = shop.publishing()
        rows = {audit["name"]: [json.loads(row) for row in audit["rows"]] for audit in report["failed_audits"]}
        assert rows == {"no_null_ids": [{"id": None, "amount": 3.0}], "no_negative": [{"id": 4, "amount": -1.0}]}
        with urlopen(f"http://127.0.0.1:{shop.port}/tables/{TABLE}", timeout=10) as answer:
            page: str = answer.read().decode()
        assert [words in page for words in ("Not published: ", "no_null_ids", "&#34;amount&#34;:-1.0")] == [True] * 3
        assert any(line.startswith("frazil_publish_held{") and line.endswith(" 1") for line in shop.metrics())
        done, document = pipeline.command("publish", TABLE)
        assert (done.returncode, document["state"], shop.seen()) == (4, "held", [1, 2])
        running.stop()
    done, document = pipeline.command("replay", TABLE, "--to", shop.topic_of(new_id()))
    assert (done.returncode, document["records"]) == (0, 2)
    done, document = pipeline.command("status")
    assert (done.returncode, document["tables"][TABLE]["publishing"]["state"]) == (4, "held")
    assert pipeline.command("publish", TABLE, "--discard")[0].returncode == 0
    assert shop.ingested() == [1, 2]
    shop.table |= {"where": "id is not null and id <> 4"}
    mended = shop.pipeline()
    with mended.start() as running:
        wait_until(lambda: shop.seen() == [1, 2, 5], "what was discarded is read again")
        assert mended.command("watermark", TABLE)[1]["complete_to"] is not None
        assert mended.command("publish", TABLE, "--to", str(first.snapshot_id))[0].returncode == 0
        running.wait_for("publish_held")
        wait_until(lambda: shop.publishing()["snapshot_id"] == first.snapshot_id, "the API shows what main was set to")
        shop.send((6, 6.0))
        wait_until(lambda: shop.ingested() == [1, 2, 5, 6], "ingestion continues")
        assert shop.seen() == [1, 2]
        assert mended.command("publish", TABLE)[0].returncode == 0
        assert shop.seen() == [1, 2, 5, 6]
        shop.send((7, 7.0))
        wait_until(lambda: shop.seen() == [1, 2, 5, 6, 7], "the schedule continues")
        running.stop()
    written = map(json.loads, (shop.folder / "frazil-data" / "state" / "shop.audit.jsonl").read_text().splitlines())
    arguments = [line["arguments"] for line in written if line["operation"] == "publish"]
    assert arguments == [
        {"table": TABLE},
        {"table": TABLE, "discard": True},
        {"table": TABLE, "to": first.snapshot_id},
        {"table": TABLE},
    ]


def test_the_example_of_the_page_works_with_a_rest_catalog(
    broker: EmbeddedBroker, jvm: Jvm, server: RestCatalogServer, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "guides" / "publish.md").read_text()
    first, second = map(yaml.safe_load, re.findall(r"^```yaml\n(pipeline.*?)^```", page, re.DOTALL | re.MULTILINE))
    shop = Shop(broker, tmp_path)
    document: dict[str, Any] = first
    document["tables"][TABLE] |= second["tables"][TABLE]
    document |= {"kafka": {"bootstrap.servers": broker.bootstrap_servers}, "catalog": catalog_section(server, {})}
    document["http"] = False
    document["tables"][TABLE]["topic"] = shop.topic
    pipeline = Pipeline(tmp_path, document, jvm=jvm)
    shop.send((1, 1.0), (2, 2.0))
    pipeline.run()
    lake = load_catalog("lake", type="rest", uri=server.url)
    published: Table = lake.load_table(TABLE)
    assert ids_of(published.scan()) == [1, 2]
    (tag,) = set(published.refs()) - {"main", "ingest"}
    assert re.fullmatch(r"daily-\d{4}-\d\d-\d\d", tag)
    shop.send((3, -3.0))
    pipeline.run()
    held: Table = lake.load_table(TABLE)
    assert ids_of(held.scan()) == [1, 2]
    assert [ids_of(held.scan().use_ref(ref)) for ref in ("ingest", tag)] == [[1, 2, 3], [1, 2]]
    assert pipeline.command("publish", TABLE, "--override")[0].returncode == 0
    assert ids_of(lake.load_table(TABLE).scan()) == [1, 2, 3]
