"""The services of the Compose file without containers: the programs of its images with its commands and variables, from
the first event to the query.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.scan import ROOT
from frazil.runtime.broker import EmbeddedBroker
from tests.acceptance.verifier import load_iceberg
from tests.fixtures.forks import run_to_end
from tests.fixtures.jvms import QUICK_JVM
from tests.fixtures.processes import plain_environment
from tests.fixtures.stores.go_programs import go_program
from tests.integration.servers import HOST, RestCatalogServer, Server

_FOLDER = ROOT / "deploy" / "compose"
_SERVICES: Mapping[str, Mapping[str, Any]] = yaml.safe_load((_FOLDER / "compose.yaml").read_text())["services"]


class Store(Server):
    """The service `store`."""

    def start(self) -> None:
        """Returns when it answers. Skips the test where the program was not built."""
        program = go_program("versitygw")
        if program is None:
            pytest.skip("versitygw is not built: `make test-setup` does it, where there is Go")
        here = {":7070": f"{HOST}:{self.port}", "/data": str(self.directory / "data")}
        (self.directory / "data").mkdir(parents=True)
        words = [here.get(word, word) for word in _SERVICES["store"]["command"]]
        self.launch([str(program), *words], _SERVICES["store"]["environment"])


def _catalog(folder: Path) -> RestCatalogServer:
    """The service `catalog`, which reads its properties from variables."""
    variables = _SERVICES["catalog"]["environment"]
    named = {name.removeprefix("CATALOG_"): value for name, value in variables.items() if name.startswith("CATALOG_")}
    properties = {name.lower().replace("__", "-").replace("_", "."): value for name, value in named.items()}
    keys = {
        "s3.access-key-id": variables["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": variables["AWS_SECRET_ACCESS_KEY"],
    }
    del properties["uri"]
    return RestCatalogServer(folder, properties.pop("warehouse"), {**properties, **keys, "client.region": "us-east-1"})


@pytest.mark.slow  # Its files are checked in tests/unit/deploy, such a lake is written to in test_lake.py.
def test_events_become_rows_that_the_query_counts(broker: EmbeddedBroker, tmp_path: Path) -> None:
    store = Store(tmp_path / "store", "store")
    store.start()
    catalog = _catalog(tmp_path / "catalog")
    catalog._properties["s3.endpoint"] = store.url
    here = {
        "broker:19092": broker.bootstrap_servers,
        "http://store:7070": store.url,
        "store:7070": f"{HOST}:{store.port}",
        "INSTALL iceberg; LOAD iceberg;": load_iceberg(),
    }
    try:
        subprocess.run(["curl", *_here(_SERVICES["bucket"]["command"], here)], check=True)
        catalog.start()
        here["http://catalog:8181"] = catalog.url
        events = [sys.executable, *_SERVICES["events"]["entrypoint"][1:], *_here(_SERVICES["events"]["command"], here)]
        subprocess.run(events, check=True)
        for name in ("frazil.yaml", "query.py"):
            [text] = _here([(_FOLDER / name).read_text()], here)
            (tmp_path / name).write_text(text)
        variables = {**plain_environment(), **_SERVICES["pipeline"]["environment"], "JDK_JAVA_OPTIONS": QUICK_JVM}
        ended = run_to_end(["run", "--until-caught-up"], tmp_path, {**os.environ, **variables}, 300)
        assert ended.stdout == "web.clicks: 19,995 rows, 0 records behind\n", ended.stderr
        query = [sys.executable, "query.py"]
        answer = subprocess.run(query, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert answer.returncode == 0, answer.stderr
        assert "│ /                   │  5975 │ ███████████████████████▉ │" in answer.stdout
    finally:
        catalog.kill()
        store.kill()


def _here(words: list[str], places: Mapping[str, str]) -> list[str]:
    for there, here in places.items():
        words = [word.replace(there, here) for word in words]
    return words
