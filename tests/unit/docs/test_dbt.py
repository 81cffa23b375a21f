"""The page on dbt: its script is run on the JSON of `frazil status`, for each engine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
import yaml
from jinja2 import Template

from docs.scan import ROOT
from tests.unit.ops.test_status import Scene

PAGE = (ROOT / "docs/guides/dbt.md").read_text()
WATERMARK_MS = 1_790_000_000_000


@pytest.fixture
def status(tmp_path: Path) -> dict[str, Any]:
    """The document of a pipeline with the tables `s.a` and `s.b`."""
    document: dict[str, Any] = json.loads(json.dumps(Scene(tmp_path).report().document()))
    return {**document, "tables": {"s.a": document["tables"]["s.a"], "s.b": document["tables"]["s.a"]}}


def sources(folder: Path, status: dict[str, Any], engine: str) -> list[dict[str, Any]]:
    """Returns what the script prints for an engine."""
    (script,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (folder / "sources.py").write_text(script)
    (folder / "status.json").write_text(json.dumps(status))
    command = [sys.executable, "sources.py", "status.json", engine]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    written: list[dict[str, Any]] = yaml.safe_load(done.stdout)["sources"]
    return written


def query_of(source: dict[str, Any], **variables: str) -> str:
    """Returns the query of a source as dbt would send it for the table `s.a`."""
    this = SimpleNamespace(schema="s", identifier="a")
    query = Template(source["config"]["loaded_at_query"]).render(this=this, var=variables.__getitem__)
    return str(query)


@pytest.mark.parametrize(
    ("engine", "place"), [("spark", "from s.a.snapshots"), ("trino", 'from s."a$snapshots"'), ("duckdb", "read_json(")]
)
def test_the_script_writes_the_sources_of_every_table(
    tmp_path: Path, status: dict[str, Any], engine: str, place: str
) -> None:
    [source] = sources(tmp_path, status, engine)
    assert (source["name"], [table["name"] for table in source["tables"]]) == ("s", ["a", "b"])
    assert [table["description"] for table in source["tables"]] == ["Kafka topic a, by Frazil."] * 2
    query = query_of(source, lake="/lake")
    assert "'frazil.p.watermark'" in query
    assert place in query
    locations = [table.get("config", {}).get("meta", {}).get("external_location") for table in source["tables"]]
    scans = [f"iceberg_scan('{{{{ var(\"lake\") }}}}/s/{name}')" for name in ("a", "b")]
    assert locations == (scans if engine == "duckdb" else [None, None])


def test_duckdb_finds_the_newest_watermark_by_the_query_of_the_script(tmp_path: Path, status: dict[str, Any]) -> None:
    [source] = sources(tmp_path, status, "duckdb")
    folder = tmp_path / "s/a/metadata"
    folder.mkdir(parents=True)
    for number in range(3):
        key = {"frazil.p.watermark": str(WATERMARK_MS + 1000 * number)} if number else {}
        snapshot = {"snapshot-id": number, "summary": {"operation": "append", **key}}
        metadata = {"format-version": 3, "snapshots": [snapshot], "refs": {}}
        (folder / f"0000{number}.metadata.json").write_text(json.dumps(metadata))
    connection = duckdb.connect(config={"autoinstall_known_extensions": False})
    [(loaded_at,)] = connection.sql(query_of(source, lake=str(tmp_path))).fetchall()
    assert loaded_at == datetime.fromtimestamp((WATERMARK_MS + 2000) / 1000, UTC).replace(tzinfo=None)


@pytest.mark.parametrize("engine", ["spark", "trino", "duckdb"])
def test_the_script_has_the_queries_that_the_page_shows(tmp_path: Path, status: dict[str, Any], engine: str) -> None:
    [source] = sources(tmp_path, {**status, "pipeline": "shop"}, engine)
    shown = " ".join(PAGE.partition("## Write the file")[0].split())
    query = source["config"]["loaded_at_query"].replace("/{{ this.schema }}/", "/shop/")
    assert " ".join(query.split()) in shown
