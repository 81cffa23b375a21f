"""A pipeline with a format, an envelope, a stage, a catalog, a maintenance action and a command of packages: the complete
examples of docs/contributing, installed and used as their users do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyiceberg.table import StaticTable

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from tests.fixtures.jvms import quick_jvms
from tests.fixtures.plugins import install_example
from tests.integration.pipelines import Ledger
from tests.integration.servers import ObjectStore

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]
_TIMEOUT_S = 280.0
_FILE = """
pipeline: plugged
kafka: {{bootstrap.servers: "{servers}"}}
catalog: {{type: dynamodb, warehouse: "s3://lake/plugged", properties: {store}}}
maintenance: {{actions: [largest_file]}}
tables:
  shop.logs: {{topic: {logs}, value: {{format: logfmt}}, forbidden_words: {{column: user, words: ["7"]}}}}
  shop.items: {{topic: {items}, envelope: goldengate, mode: upsert, key_columns: [id], metadata: [position]}}
"""


def change(operation: str, position: int, **images: dict[str, Any]) -> bytes:
    return json.dumps({"table": "ITEMS", "op_type": operation, "pos": f"{position:08}", **images}).encode()


LOGS = [b"level=info user=7", b'level=warn msg="all well"', b"no pairs"]
ITEMS = [
    change("I", 1, after={"id": 1, "name": "bolt"}),
    change("I", 2, after={"id": 2, "name": "nut"}),
    change("U", 3, before={"id": 1, "name": "bolt"}, after={"id": 1, "name": "screw"}),
    change("D", 4, before={"id": 2, "name": "nut"}),
]


def frazil(folder: Path, store: ObjectStore, *words: str) -> Any:
    """The document that a command writes, which must end well; the packages are found as installed ones are."""
    amazon = {"AWS_ACCESS_KEY_ID": store.key, "AWS_SECRET_ACCESS_KEY": store.secret}
    environment = {**os.environ, **store.environment(), **amazon, "PYTHONPATH": str(folder / "site")}
    command = [sys.executable, "-m", "frazil.cli.main", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout) if "json" in words else done.stdout.decode()


def table_of(store: ObjectStore, name: str) -> StaticTable:
    """The table in the newest of its metadata files, whose names begin with a number."""
    found = store.client().list_objects_v2(Bucket="lake", Prefix="plugged/")["Contents"]
    keys = [one["Key"] for one in found if f"/{name}/metadata/" in one["Key"] and one["Key"].endswith(".metadata.json")]
    return StaticTable.from_metadata(f"s3://lake/{max(keys)}", store.properties())


def test_a_pipeline_runs_with_everything_that_a_package_can_add(
    broker: EmbeddedBroker, store: ObjectStore, tmp_path: Path
) -> None:
    (tmp_path / "site").mkdir()
    for page in ("format.md", "envelope.md", "stage.md", "catalog.md", "maintenance-action.md", "command.md"):
        install_example(tmp_path / "site", page)
    topics = {name: f"{name}-{new_id()}" for name in ("logs", "items")}
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
    for name, values in (("logs", LOGS), ("items", ITEMS)):
        Ledger(broker.bootstrap_servers, topics[name])
        for value in values:
            producer.produce(topics[name], value, partition=0)
    assert producer.flush(30) == 0
    lake = json.dumps({**store.references(), "dynamodb.endpoint": store.url})
    (tmp_path / "frazil.yaml").write_text(_FILE.format(servers=broker.bootstrap_servers, store=lake, **topics))
    assert frazil(tmp_path, store, "tables", "--output", "json") == {"tables": ["shop.logs", "shop.items"]}
    with quick_jvms():
        ran = frazil(tmp_path, store, "run", "--until-caught-up", "--output", "json")
        frazil(tmp_path, store, "maintain", "--table", "shop.logs")
        checks = {one["name"]: one["found"] for one in frazil(tmp_path, store, "check", "--output", "json")["checks"]}
    logs, items = (table_of(store, name) for name in ("logs", "items"))
    assert sorted(logs.scan().to_arrow().to_pylist(), key=lambda row: row["level"]) == [
        {"level": "info", "user": "***", "msg": None},
        {"level": "warn", "user": None, "msg": "all well"},
    ]
    assert items.scan().to_arrow().to_pylist() == [{"_position": "00000003", "id": 1, "name": "screw"}]
    [bad] = table_of(store, "logs__dead_letters").scan().to_arrow().to_pylist()
    assert (bad["value"], bad["error_class"]) == (b"no pairs", "malformed")
    largest = max(task.file.file_size_in_bytes for task in logs.scan().plan_files())
    assert logs.properties["frazil.plugged.largest-file-bytes"] == str(largest)
    assert checks["catalog"] == "s3://lake/plugged"
    assert {name: (one["size"]["row_count"], one["lag_records"]) for name, one in ran["tables"].items()} == {
        "shop.logs": (2, 0),
        "shop.items": (1, 0),
    }
