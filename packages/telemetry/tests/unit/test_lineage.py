"""Events that an OpenLineage service gets: valid by its own schemas, with topics, tables and columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from docs.scan import ROOT
from frazil.spec import CatalogSpec, PipelineSpec
from frazil.stages.protect_settings import ProtectRule
from frazil_telemetry.lineage import catalog_namespace, split_location
from packages.http.tests.unit.running_scene import wait_for
from packages.telemetry.tests.unit.telemetry_scene import TelemetryScene
from tests.fixtures.receivers import receiver

_SCHEMAS = [
    json.loads(file.read_text()) for file in (ROOT / "packages/telemetry/tests/fixtures/openlineage").glob("*.json")
]
_KNOWN = Registry().with_resources([(one["$id"], Resource.from_contents(one)) for one in _SCHEMAS])


def assert_valid(event: dict[str, Any]) -> None:
    """Checks an event, and each facet by the schema that it names."""
    Draft202012Validator({"$ref": event["schemaURL"]}, registry=_KNOWN).validate(event)
    owners = [event["run"], event["job"], *event["inputs"], *event["outputs"]]
    facets = [facet for owner in owners for facet in owner.get("facets", {}).items()]
    facets += [facet for output in event["outputs"] for facet in output.get("outputFacets", {}).items()]
    for name, facet in facets:
        own = {"$ref": facet["_schemaURL"].partition("#")[0]}
        Draft202012Validator(own, registry=_KNOWN).validate({name: facet})
        Draft202012Validator({"$ref": facet["_schemaURL"]}, registry=_KNOWN).validate(facet)


def test_a_run_of_a_table_starts_shows_its_columns_and_completes(tmp_path: Path) -> None:
    with receiver() as service:
        protect: dict[str, Any] = {
            "protect": (ProtectRule(selector="user.name", action="hash"),),
            "protect_key": "k" * 40,
        }
        scene = TelemetryScene(tmp_path, "a", openlineage=service.url, **protect)
        scene.feed("a", {"id": 1, "user": {"name": "x"}})
        with scene.sending() as loop:
            wait_for(lambda: any(event["outputs"] for event in service.events), 60)
            scene.feed("a", {"id": 2, "more": 3})
            wait_for(lambda: "more" in str(service.events[-1]), 60)
            wait_for(lambda: loop.tables[0].counts.records == 2, 60)
    for event in service.events:
        assert_valid(event)
        assert event["job"]["namespace"] == "frazil"
        assert event["job"]["name"] == "p.n.a"
        assert [(one["namespace"], one["name"]) for one in event["inputs"]] == [("kafka://broker-1:9092", "a")]
    kinds = [event["eventType"] for event in service.events]
    assert kinds[0] == "START"
    assert kinds[-1] == "COMPLETE"
    assert set(kinds[1:-1]) <= {"RUNNING"}
    assert len({event["run"]["runId"] for event in service.events}) == 1
    (output,) = service.events[-1]["outputs"]
    lineage = output["facets"]["columnLineage"]["fields"]
    inputs = {name: column["inputFields"] for name, column in lineage.items()}
    assert {
        name: [(one["field"], one["transformations"][0]["masking"]) for one in fields]
        for name, fields in inputs.items()
    } == {"id": [("id", False)], "user": [("user", True)], "more": [("more", False)]}
    assert [one["name"] for one in output["facets"]["schema"]["fields"]] == ["id", "user", "more"]
    assert output["facets"]["symlinks"]["identifiers"][0]["name"] == "n.a"
    rows = [event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] for event in service.events[1:]]
    assert sum(rows) <= 2


def test_a_stopped_table_fails_its_run_and_an_event_that_was_refused_is_sent_later(tmp_path: Path) -> None:
    with receiver() as service:
        service.status = 500
        scene = TelemetryScene(tmp_path, "a", openlineage=service.url, on_bad_record="stop")
        scene.redaction.hide(("hunter2-of-the-broker",))
        scene.feed("a", b"bad hunter2-of-the-broker")
        with scene.sending() as loop:
            wait_for(lambda: loop.tables[0].status.run_state == "stopped", 60)
            assert service.events == []
            service.status = 200
            wait_for(lambda: [event["eventType"] for event in service.events][-1:] == ["FAIL"], 60)
        for event in service.events:
            assert_valid(event)
        assert [event["eventType"] for event in service.events] == ["START", "FAIL"]
        assert service.events[-1]["run"]["facets"]["errorMessage"]["message"]
        assert "hunter2" not in str(service.requests)


@pytest.mark.parametrize(
    ("catalog", "namespace"),
    [
        ({"type": "rest", "uri": "https://user:secret@catalog:8181/api?token=secret"}, "https://catalog:8181"),
        ({"type": "hive", "uri": "thrift://metastore:9083"}, "hive://metastore:9083"),
        ({"type": "hive", "uri": "thrift://one:9083,thrift://two:9083"}, "hive://one:9083"),
        ({"type": "jdbc", "uri": "jdbc:postgresql://db/x?password=secret", "warehouse": "s3://lake/w/"}, "s3://lake/w"),
        ({"type": "jdbc", "uri": "jdbc:sqlite:x", "warehouse": "/data/warehouse"}, "file:/data/warehouse"),
        ({"type": "glue", "uri": ""}, "glue"),
    ],
)
def test_tables_are_named_by_their_catalog_without_credentials(catalog: dict[str, str], namespace: str) -> None:
    spec = PipelineSpec(
        pipeline="p", kafka={}, catalog=CatalogSpec.model_validate(catalog), path=Path("f"), state_dir=Path("s")
    )
    assert catalog_namespace(spec) == namespace


def test_a_table_is_named_by_its_folder() -> None:
    assert split_location("s3://lake/w/n/a") == ("s3://lake", "w/n/a")
    assert split_location("file:/data/n/a") == ("file", "/data/n/a")
    assert split_location("/data/n/a") == ("file", "/data/n/a")
