"""A table whose branch is audited before readers see it: by schedule, at the end of a run, by hand, through kills.

`make soak-publish` kills 200 times; FRAZIL_KILLS for another number, FRAZIL_FIRST_SEED for other moments.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyiceberg.catalog import load_catalog
from pyiceberg.table import StaticTable, Table

from docs.scan import ROOT
from frazil.clock import new_id
from frazil.failpoints import VARIABLE
from frazil.runtime.broker import EmbeddedBroker
from tests.fixtures.waiting import wait_until
from tests.integration.pipelines import Pipeline, Running
from tests.integration.servers import RestCatalogServer, catalog_section, free_port

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]
TABLE = "shop.orders"
AUDITS = {
    "no_null_ids": "select count(*) = 0 from candidate where id is null",
    "no_less": "select (select count(*) from candidate) >= (select count(*) from published)",
    "no_negative": "select id, amount from candidate where amount < 0",
}


class Shop:
    """A topic of orders, and a pipeline that publishes them."""

    def __init__(self, broker: EmbeddedBroker, folder: Path, **settings: Any) -> None:
        self.folder, self.topic, self.port = folder, new_id(), free_port()
        self._servers = broker.bootstrap_servers
        self.topic_of(self.topic)
        self._producer = Producer({"bootstrap.servers": self._servers, "enable.idempotence": True})
        columns = {"id": "long", "amount": "double"}
        self.table = {"topic": self.topic, "columns": columns, "branch": "ingest", **settings}

    def topic_of(self, name: str) -> str:
        """Makes a topic; its name."""
        admin = AdminClient({"bootstrap.servers": self._servers})
        for created in admin.create_topics([NewTopic(name, 2)]).values():
            created.result(20)
        return name

    def pipeline(self, **environment: str) -> Pipeline:
        document = {
            "pipeline": "shop",
            "kafka": {"bootstrap.servers": self._servers},
            "http": {"listen": f"127.0.0.1:{self.port}"},
            "tables": {TABLE: self.table},
        }
        return Pipeline(self.folder, document, environment)

    def send(self, *orders: tuple[int | None, float]) -> None:
        for number, (order, amount) in enumerate(orders):
            record = {"id": order, "amount": amount}
            self._producer.produce(self.topic, json.dumps(record).encode(), partition=number % 2)
        assert self._producer.flush(30) == 0

    def metadata(self) -> StaticTable:
        with closing(sqlite3.connect(self.folder / "frazil-data" / "catalog.db")) as catalog:
            query = "select metadata_location from iceberg_tables where table_name = 'orders'"
            ((location,),) = catalog.execute(query)
        return StaticTable.from_metadata(location)

    def seen(self) -> list[int | None]:
        """The ids that readers see, who know nothing of branches."""
        table = self.metadata()
        return [] if table.current_snapshot() is None else _ids(table.scan())

    def ingested(self) -> list[int | None]:
        """The ids of the branch."""
        table = self.metadata()
        snapshot = table.snapshot_by_name("ingest")
        assert snapshot is not None
        return _ids(table.scan(snapshot_id=snapshot.snapshot_id))

    def publishing(self) -> dict[str, Any]:
        """What the running process reports."""
        with urlopen(f"http://127.0.0.1:{self.port}/api/v1/tables/{TABLE}", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)["publishing"]
        return found

    def metrics(self) -> list[str]:
        with urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
        return text.splitlines()


def _ids(scan: Any) -> list[int | None]:
    ids: Sequence[int | None] = scan.to_arrow()["id"].to_pylist()
    return sorted(ids, key=lambda value: (value is None, value))


def _logged(running: Running, event: str) -> list[dict[str, Any]]:
    return [line for line in running.events_named(event) if line["table"] == TABLE]


def test_what_does_not_pass_is_ingested_and_not_seen(broker: EmbeddedBroker, tmp_path: Path) -> None:
    shop = Shop(broker, tmp_path, publish={"every": "1s", "audits": AUDITS})
    pipeline = shop.pipeline()
    shop.send((1, 1.0), (2, 2.0))
    assert pipeline.command("watermark", TABLE)[0].returncode == 4
    assert pipeline.command("publish", TABLE)[0].returncode == 1
    pipeline.run()
    assert shop.seen() == [1, 2]
    done, document = pipeline.command("watermark", TABLE)
    assert (done.returncode, document["complete_to"] is None) == (0, False)
    with pipeline.start() as running:
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
        assert shop.seen() == [1, 2]
        running.stop()
    done, document = pipeline.command("replay", TABLE, "--to", shop.topic_of(new_id()))
    assert (done.returncode, document["records"]) == (0, 2)
    done, document = pipeline.command("status")
    assert (done.returncode, document["tables"][TABLE]["publishing"]["state"]) == (4, "held")
    done, document = pipeline.command("publish", TABLE)
    assert (done.returncode, document["state"], shop.seen()) == (4, "held", [1, 2])
    done, document = pipeline.command("publish", TABLE, "--override")
    assert (done.returncode, document["state"]) == (0, "published")
    assert shop.seen() == [1, 2, 4, 5, None]
    assert pipeline.status()[TABLE]["publishing"]["state"] == "published"


def test_a_discarded_branch_is_read_again_and_main_can_be_set_back(broker: EmbeddedBroker, tmp_path: Path) -> None:
    shop = Shop(broker, tmp_path, publish={"every": "1s", "audits": AUDITS})
    pipeline = shop.pipeline()
    shop.send((1, 1.0), (2, 2.0))
    pipeline.run()
    first = pipeline.status()[TABLE]["publishing"]["snapshot_id"]
    shop.send((None, 3.0), (4, 4.0))
    pipeline.run()
    assert (shop.seen(), shop.ingested()) == ([1, 2], [1, 2, 4, None])
    assert pipeline.command("publish", TABLE, "--discard")[0].returncode == 0
    assert shop.ingested() == [1, 2]
    shop.table |= {"where": "id is not null"}
    mended = shop.pipeline()
    mended.run()
    assert (shop.seen(), shop.ingested()) == ([1, 2, 4], [1, 2, 4])
    assert mended.command("verify", TABLE)[0].returncode == 0
    done, _ = mended.command("publish", TABLE, "--to", str(first))
    assert (done.returncode, shop.seen()) == (0, [1, 2])
    report = mended.status()[TABLE]["publishing"]
    assert (report["state"], report["snapshot_id"]) == ("held", first)
    with mended.start() as running:
        shop.send((5, 5.0))
        running.wait_for("publish_held")
        wait_until(lambda: shop.ingested() == [1, 2, 4, 5], "ingestion continues")
        assert shop.seen() == [1, 2]
        assert mended.command("publish", TABLE)[0].returncode == 0
        assert shop.seen() == [1, 2, 4, 5]
        shop.send((6, 6.0))
        wait_until(lambda: shop.seen() == [1, 2, 4, 5, 6], "the schedule continues")
        running.stop()
    written = map(json.loads, (shop.folder / "frazil-data" / "state" / "shop.audit.jsonl").read_text().splitlines())
    assert [(line["operation"], line["arguments"]) for line in written] == [
        ("publish", {"table": TABLE, "discard": True}),
        ("publish", {"table": TABLE, "to": first}),
        ("publish", {"table": TABLE}),
    ]


@pytest.mark.parametrize("point", ["publish.audited", "branch.before", "branch.landed"])
def test_a_process_that_dies_while_it_publishes(broker: EmbeddedBroker, tmp_path: Path, point: str) -> None:
    shop = Shop(broker, tmp_path, publish={"every": "1s", "audits": AUDITS})
    shop.send((1, 1.0), (2, 2.0))
    with shop.pipeline(**{VARIABLE: f"{point}=kill"}).start() as running:
        running.wait_for_death()
    assert shop.seen() == ([1, 2] if point == "branch.landed" else [])
    shop.pipeline().run()
    assert shop.seen() == [1, 2]


def test_the_example_of_the_page_works_with_a_rest_catalog(
    broker: EmbeddedBroker, server: RestCatalogServer, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "guides" / "publish.md").read_text()
    first, second = map(yaml.safe_load, re.findall(r"^```yaml\n(pipeline.*?)^```", page, re.DOTALL | re.MULTILINE))
    shop = Shop(broker, tmp_path)
    document: dict[str, Any] = first
    document["tables"][TABLE] |= second["tables"][TABLE]
    document |= {"kafka": {"bootstrap.servers": broker.bootstrap_servers}, "catalog": catalog_section(server, {})}
    document["http"] = False
    document["tables"][TABLE]["topic"] = shop.topic
    pipeline = Pipeline(tmp_path, document)
    shop.send((1, 1.0), (2, 2.0))
    pipeline.run()
    lake = load_catalog("lake", type="rest", uri=server.url)
    published: Table = lake.load_table(TABLE)
    assert _ids(published.scan()) == [1, 2]
    (tag,) = set(published.refs()) - {"main", "ingest"}
    assert re.fullmatch(r"daily-\d{4}-\d\d-\d\d", tag)
    shop.send((3, -3.0))
    pipeline.run()
    held: Table = lake.load_table(TABLE)
    assert _ids(held.scan()) == [1, 2]
    assert [_ids(held.scan().use_ref(ref)) for ref in ("ingest", tag)] == [[1, 2, 3], [1, 2]]
    done, document = pipeline.command("publish", TABLE)
    assert (done.returncode, [audit["name"] for audit in document["failed_audits"]]) == (4, ["no_negative_amounts"])
    assert pipeline.command("publish", TABLE, "--override")[0].returncode == 0
    assert _ids(lake.load_table(TABLE).scan()) == [1, 2, 3]


POINTS = ("commit.before", "commit.landed", "commit.after", "publish.audited", "branch.before", "branch.landed")
KILLS = int(os.environ.get("FRAZIL_KILLS", "200"))
SEED = int(os.environ.get("FRAZIL_FIRST_SEED", "1"))


class Killed:
    """An upsert table whose topic has wrong amounts that later records correct, and readers that must never see one."""

    def __init__(self, broker: EmbeddedBroker, folder: Path, seed: int) -> None:
        audits = {"no_negative": AUDITS["no_negative"]}
        upsert = {"mode": "upsert", "key_columns": ["id"]}
        self.shop = Shop(broker, folder, publish={"every": "1s", "audits": audits}, **upsert)
        self._rng = np.random.default_rng(seed)
        self._amounts: dict[int, float] = {}
        self._looked_at: set[int] = set()

    def change(self) -> bool:
        """False. Corrects what is wrong, or sends some changes, now and then a wrong one."""
        wrong = [order for order, amount in self._amounts.items() if amount < 0]
        for order in wrong or self._rng.integers(0, 30, 5).tolist():
            is_wrong = not wrong and self._rng.random() < 0.1
            self._amounts[order] = -1.0 if is_wrong else float(self._rng.integers(1, 99))
            self.shop.send((order, self._amounts[order]))
        return False

    def live(self) -> None:
        """One process, which dies at a step of a commit or of a publish."""
        point, nth = POINTS[self._rng.integers(0, len(POINTS))], self._rng.integers(1, 4)
        with self.shop.pipeline(**{VARIABLE: f"{point}=kill@{nth}"}).start() as running:
            wait_until(lambda: running.has_ended or self.change(), f"it dies at {point}", 120)
        self.look()

    def look(self) -> None:
        """Whatever was published ever, as far as its snapshot is kept, has passed."""
        table = self.shop.metadata()
        published = {entry.snapshot_id for entry in table.metadata.snapshot_log}
        for snapshot_id in published - self._looked_at:
            if table.metadata.snapshot_by_id(snapshot_id) is not None:
                rows = table.scan(snapshot_id=snapshot_id).to_arrow()
                assert all(amount >= 0 for amount in rows["amount"].to_pylist()), snapshot_id
                self._looked_at.add(snapshot_id)

    def settle(self) -> None:
        """Corrects what is wrong; in the end readers see every order as it was last sent, each once."""
        for order, amount in self._amounts.items():
            if amount < 0:
                self._amounts[order] = 1.0
                self.shop.send((order, 1.0))
        self.shop.pipeline().run()
        self.look()
        rows = self.shop.metadata().scan().to_arrow()
        assert len(rows) == len(self._amounts)
        assert dict(zip(rows["id"].to_pylist(), rows["amount"].to_pylist(), strict=True)) == self._amounts


@pytest.mark.parametrize("kills", [pytest.param(KILLS, marks=[pytest.mark.soak, pytest.mark.timeout(4 * 3600)]), 4])
def test_no_kill_publishes_what_has_not_passed(broker: EmbeddedBroker, tmp_path: Path, kills: int) -> None:
    killed = Killed(broker, tmp_path, SEED)
    for _ in range(kills):
        killed.live()
    killed.settle()
