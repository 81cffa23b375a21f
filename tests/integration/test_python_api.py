"""A pipeline from Python, on a real broker: checked, planned, run twice in one process, stopped from another
thread. That it is compared: `frazil verify` calls the same method.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from docs.scan import ROOT
from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from tests.fixtures.jvms import with_quick_jvms
from tests.integration.pipelines import Ledger

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]


def test_a_pipeline_is_checked_planned_and_run_from_python(broker: EmbeddedBroker, tmp_path: Path) -> None:
    orders = Ledger(broker.bootstrap_servers, f"orders-{new_id()}")
    orders.produce(3)
    document = {
        "pipeline": "shop",
        "kafka": {"bootstrap.servers": broker.bootstrap_servers},
        "http": False,
        "tables": {"shop.orders": {"topic": orders.topic}},
    }
    (tmp_path / "shop.yaml").write_text(yaml.safe_dump(with_quick_jvms(document)))
    program = [sys.executable, "-m", "tests.fixtures.python_api_program", orders.topic, broker.bootstrap_servers]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        program, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    assert facts.pop("refusal").startswith("this process already has another run or comparison of a pipeline")
    assert facts == {
        "checked": [True, [], "checking, 1 done, last java"],
        "planned": [True, [["shop.orders", "create"]]],
        "ended": [True, {"shop.orders": "3 rows, 0 records behind"}, ["shop.orders"]],
        "report": [True, 3, 0],
        "again": [False, "none"],
        "endless": [{"shop.orders": "5 rows, 0 records behind"}],
        "left": [],
    }
