"""The pages for notebooks and Dagster, with both programs: their code is run as a reader would, on a small pipeline. `make
pages` fetches the programs before.

In time: the Python API that the pages call in integration/test_python_api.py.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer

from docs.scan import ROOT
from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from tests.fixtures import page_programs
from tests.fixtures.jvms import QUICK_JVM
from tests.fixtures.processes import plain_environment
from tests.integration.pipelines import Ledger

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(900)]
_ORDERS = 40
_CELLS_PROGRAM = ROOT / "tests" / "fixtures" / "notebook_program.py"


@pytest.fixture
def bin_folder() -> Path:
    if not page_programs.is_fetched():
        pytest.skip("there is no environment with a notebook's kernel and Dagster: `make pages` fetches it")
    return page_programs.home() / "bin"


@pytest.fixture
def folder(broker: EmbeddedBroker, tmp_path: Path) -> Path:
    """A folder with a pipeline file of the table `shop.orders`, whose topic has 40 records."""
    topic = Ledger(broker.bootstrap_servers, new_id(), 1).topic
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
    for number in range(_ORDERS):
        producer.produce(topic, json.dumps({"id": number, "amount": number / 4}))
    assert producer.flush(60) == 0
    kafka = f"kafka: {{bootstrap.servers: '{broker.bootstrap_servers}'}}"
    (tmp_path / "frazil.yaml").write_text(f"pipeline: shop\n{kafka}\ntables: {{shop.orders: {{topic: {topic}}}}}\n")
    return tmp_path


def code_of(page: str) -> list[str]:
    """Returns the blocks of Python of a page."""
    text = (ROOT / "docs/guides" / page).read_text()
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def run(bin_folder: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    variables = {
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "JDK_JAVA_OPTIONS": QUICK_JVM,
        "DAGSTER_HOME": str(folder),
    }
    environment = {**plain_environment(), **variables}
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False)


def test_the_cells_of_the_page_on_notebooks_run_one_after_the_other(bin_folder: Path, folder: Path) -> None:
    (folder / "cells.json").write_text(json.dumps(code_of("notebook.md")))
    done = run(bin_folder, folder, str(bin_folder / "python"), str(_CELLS_PROGRAM), "cells.json")
    assert done.returncode == 0, done.stderr
    cells = json.loads(done.stdout)
    assert [cell["error"] for cell in cells if cell["error"]] == [], cells
    checked, _, planned, ran, columns, shown = (cell["text"] for cell in cells)
    assert checked == "()"
    assert "shop.orders create" in planned
    assert f"{_ORDERS} rows" in ran
    assert columns == "['id', 'amount']"
    assert re.search(rf"shop\.orders +not running +{_ORDERS} +0 ", shown), shown


def test_the_assets_of_the_page_on_dagster_are_materialized_and_checked(bin_folder: Path, folder: Path) -> None:
    (folder / "definitions.py").write_text(code_of("dagster.md")[0])
    words = ("asset", "materialize", "--select", "*", "--python-file", "definitions.py")
    done = run(bin_folder, folder, str(bin_folder / "dagster"), *words)
    reported = done.stdout + done.stderr
    assert done.returncode == 0, reported
    assert "ASSET_MATERIALIZATION" in reported
    assert re.search(r"ASSET_CHECK_EVALUATION.*equal_to_the_topic.*passed", reported), reported
