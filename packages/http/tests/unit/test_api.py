"""The API, over a service on the ports in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import validate
from openapi_spec_validator import validate as validate_openapi
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from frazil.ingest.loop.requests import Requests
from frazil.ops import running
from frazil.ops.pipeline_status import as_document
from frazil.ops.status import report_pipeline
from frazil_http.api import ENDPOINTS
from frazil_http.operations import Operations
from frazil_http.problems import Refused
from frazil_testing.twins import MemoryCatalog
from packages.http.tests.unit.running_scene import RunningScene, wait_for


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[RunningScene]:
    """Two tables: `n.a` with two rows and a dead letter, `n.b` with a row."""
    scene = RunningScene(tmp_path, "a", "b")
    scene.feed("a", {"id": 1}, b"no JSON", {"id": 2})
    scene.feed("b", {"id": 1})
    with scene.running() as service:
        wait_for(lambda: sorted(table.counts.records for table in service.tables) == [1, 3])
        yield scene


@pytest.fixture
def client(scene: RunningScene) -> TestClient:
    """A client of that pipeline."""
    return scene.client()


def table(client: TestClient, name: str = "n.a") -> dict[str, Any]:
    """One table as the API shows it."""
    answer = client.get(f"/api/v1/tables/{name}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def done(client: TestClient, path: str) -> dict[str, Any]:
    """The end of the work that a POST to `path` begins."""
    begun = client.post(path)
    assert (begun.status_code, begun.json()["state"]) == (202, "running")

    def ended() -> Any:
        found = client.get(begun.headers["Location"]).json()
        return found if found["state"] != "running" else None

    found: dict[str, Any] = wait_for(ended)
    return found


def problem(answer: Any) -> tuple[int, str, str]:
    """Status, code and remedy of a problem, which has every member of RFC 9457."""
    assert answer.headers["Content-Type"] == "application/problem+json"
    found = answer.json()
    assert (found["type"], found["status"], found["detail"]) == ("about:blank", answer.status_code, found["message"])
    return answer.status_code, found["code"], found["remedy"]


def test_a_pipeline_that_starts_answers_soon(tmp_path: Path) -> None:
    scene = RunningScene(tmp_path, "a")
    client = scene.client()
    answer = client.get("/api/v1/tables")
    assert problem(answer) == (503, "UnavailableError", "ask again in a few seconds")
    assert answer.headers["Retry-After"] == "5"
    assert (client.get("/healthz").status_code, client.get("/readyz").status_code) == (200, 503)
    with scene.running():
        wait_for(lambda: client.get("/readyz").status_code == 200)
        assert list(client.get("/api/v1/tables").json()) == ["n.a"]


def test_tables_are_the_objects_that_status_prints(scene: RunningScene, client: TestClient) -> None:
    wait_for(lambda: table(client)["state"] == table(client, "n.b")["state"] == "waiting")
    found = client.get("/api/v1/tables").json()
    assert found["n.a"] == table(client)
    state = scene.pipeline.state_file.read()
    catalog = MemoryCatalog(scene.root, "p")
    catalog.__dict__.update(scene.catalog.__dict__)
    status = as_document(report_pipeline(scene.spec("a", "b"), scene.source, nullcontext(catalog), state, 0))
    for name in ("n.a", "n.b"):
        expected = status["tables"][name]
        assert found[name].keys() == expected.keys()
        assert {key: found[name][key] for key in expected if key != "lag_s"} == {
            key: expected[key] for key in expected if key != "lag_s"
        }
    pipeline = client.get("/api/v1/pipeline").json()
    assert (pipeline["pipeline"], pipeline["ok"], pipeline["process"]["running"]) == ("p", True, True)


def test_a_table_is_paused_and_resumed(scene: RunningScene, client: TestClient) -> None:
    paused = client.post("/api/v1/tables/n.a/pause").json()
    assert (paused["state"], paused["remedy"]) == ("paused", "run `frazil resume n.a`")
    scene.feed("a", {"id": 3})
    wait_for(lambda: table(client)["lag_records"] == 1)
    assert table(client)["state"] == "paused"
    assert client.post("/api/v1/tables/n.a/resume").json()["state"] != "paused"
    wait_for(lambda: len(scene.rows("n.a")) == 3)


def test_a_command_with_a_body_is_refused(scene: RunningScene, client: TestClient) -> None:
    client.post("/api/v1/tables/n.a/pause")
    remedy = "write the parameters behind the path, such as `?dry_run=true`, and send no body"
    for body in ({"json": {"dry_run": True}}, {"data": {"dry_run": "true"}}, {"content": iter([b"{}"])}):
        answer = client.post("/api/v1/tables/n.a/reset", **body)
        assert problem(answer) == (400, "UnexpectedBody", remedy)
    assert scene.pipeline.find("n.a").progress.offsets == {"a": {0: 3}}
    assert client.post("/api/v1/tables/n.a/reset", params={"dry_run": True}, content=b"").json()["read_again"] == 3


def test_a_process_without_an_election_leads_and_does_not_stand_down(client: TestClient) -> None:
    remedy = "set `ha: {elect: kafka}`, and start two processes"
    assert problem(client.post("/api/v1/stand-down")) == (400, "SpecError", remedy)
    shown = client.get("/api/v1/pipeline").json()["leadership"]
    assert shown is None or shown["elect"] == "none"


def test_a_reset_is_shown_before_it_is_done(scene: RunningScene, client: TestClient) -> None:
    path = "/api/v1/tables/n.a/reset"
    assert problem(client.post(path)) == (400, "SpecError", "run `frazil pause n.a` first")
    shown = client.post(f"{path}?dry_run=true").json()
    figures = {"committed": {"a": {"0": 3}}, "start": {"a": {"0": 0}}, "read_again": 3, "left_unread": 0}
    assert shown == {"dry_run": True, "mode": "append", **figures}
    client.post("/api/v1/tables/n.a/pause")
    assert client.post(path).json() == {"dry_run": False, "mode": "append", **figures}
    client.post("/api/v1/tables/n.a/resume")
    wait_for(lambda: len(scene.rows("n.a")) == 4)


def test_dead_letters_are_listed_shown_and_replayed(client: TestClient) -> None:
    path = "/api/v1/tables/n.a/dead-letters"
    listed = client.get(path).json()
    assert (listed["dead_letter_table"], listed["dead_letters"]) == ("n.a__dead_letters", 1)
    assert [one["error_class"] for one in listed["classes"]] == ["not_an_object"]
    (record,) = client.get(f"{path}/records?limit=5&partition=0").json()
    assert (record["offset"], record["value"]) == (1, {"text": "no JSON"})
    assert client.get(f"{path}/records?offset=7").json() == []
    assert client.get("/api/v1/tables/n.b/dead-letters").json()["dead_letter_table"] is None
    assert client.post(f"{path}/replay?dry_run=true&error_class=not_an_object").json() == {"dead_letters": 1}
    assert done(client, f"{path}/replay")["result"] == {"replayed": 0, "remaining": 1}


def test_maintenance_is_shown_and_run(scene: RunningScene, client: TestClient) -> None:
    path = "/api/v1/tables/n.a/maintain"
    shown = client.post(f"{path}?dry_run=true").json()
    assert (shown["dry_run"], list(shown["tables"])) == (True, ["n.a"])
    assert done(client, path)["result"]["dry_run"] is False
    assert "metadata" in scene.maintenance.calls


def test_what_maintenance_and_replays_have_changed_is_measured_again(
    scene: RunningScene, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = scene.pipeline.parts
    assert parts is not None
    planned: dict[str, Any] = {}
    scene.pipeline.parts = replace(parts, note_round=planned.__setitem__)
    reloaded: list[str] = []
    monkeypatch.setattr(parts.service.requests, "reload", reloaded.append)
    client.post("/api/v1/tables/n.a/maintain?dry_run=true")
    assert (reloaded, planned) == ([], {})
    done(client, "/api/v1/tables/n.a/maintain")
    assert (reloaded, planned["n.a"].actions) == (["n.a"], ())
    done(client, "/api/v1/tables/n.a/dead-letters/replay")
    assert reloaded == ["n.a", "n.a"]


def test_too_much_work_is_refused_until_some_is_done() -> None:
    operations, may_end = Operations(), threading.Event()
    begun = [operations.begin(lambda: {"done": may_end.wait(10)}) for _ in range(100)]
    with pytest.raises(Refused) as refused:
        operations.begin(dict)
    assert refused.value.problem.remedy == "ask again later"
    may_end.set()
    wait_for(lambda: operations.get(begun[-1].id).state == "done")
    assert operations.get(operations.begin(dict).id).state in ("running", "done")


def test_a_plan_is_shown(client: TestClient) -> None:
    plan = client.get("/api/v1/plan").json()
    assert (plan["pipeline"], sorted(plan["tables"])) == ("p", ["n.a", "n.b"])


def test_what_does_not_exist_is_named_with_what_to_do(client: TestClient) -> None:
    assert problem(client.get("/api/v1/tables/n.c"))[:2] == (404, "UnknownTable")
    assert problem(client.post("/api/v1/tables/n.aa/pause")) == (404, "UnknownTable", "did you mean `n.a`?")
    assert problem(client.get("/api/v1/operations/x")) == (404, "UnknownOperation", "begin it again")
    assert problem(client.get("/nothing")) == (404, "NotFound", "see /openapi.json")
    assert problem(client.delete("/api/v1/tables")) == (405, "MethodNotAllowed", "see /openapi.json")


def test_a_loop_that_does_not_answer_is_named(scene: RunningScene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "ANSWER_S", 0.01)
    monkeypatch.setattr(Requests, "run", lambda _: False)
    answer = scene.client().post("/api/v1/tables/n.a/pause")
    assert problem(answer) == (503, "UnavailableError", "look at the state of the table, and ask again")


def test_an_unforeseen_failure_is_logged_and_not_shown(
    scene: RunningScene, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("a detail")

    monkeypatch.setattr(scene.pipeline, "plan", fail)
    with capture_logs() as logs:
        answer = client.get("/api/v1/plan")
    remedy = "look at the log of the process for `http_request_failed`"
    assert problem(answer) == (500, "InternalError", remedy)
    assert "a detail" not in answer.text
    assert [(one["path"], str(one["exc_info"])) for one in logs if one["event"] == "http_request_failed"] == [
        ("/api/v1/plan", "a detail")
    ]


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ("limits=3", "UnknownParameter", "unknown parameter `limits`"),
        ("limit=0", "WrongParameter", "`limit` is wrong: Input should be greater than or equal to 1"),
        ("limit=1&limit=2", "WrongParameter", "`limit` occurs twice"),
        ("partition=x", "WrongParameter", "`partition` is wrong"),
        ("offset=99999999999999999999", "WrongParameter", "`offset` is wrong"),
    ],
)
def test_a_wrong_parameter_is_named(client: TestClient, query: str, code: str, message: str) -> None:
    answer = client.get(f"/api/v1/tables/n.a/dead-letters/records?{query}")
    assert problem(answer)[:2] == (400, code)
    assert answer.json()["message"].startswith(message)
    assert problem(client.get("/metrics?x=1")) == (400, "UnknownParameter", "the parameters here: none")


def test_the_openapi_document_is_valid_and_its_schemas_are_those_of_the_answers(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    validate_openapi(document)
    assert document["openapi"].startswith("3.1")
    names = [one["operationId"] for path in document["paths"].values() for one in path.values()]
    assert sorted(names) == sorted(endpoint.name for endpoint in ENDPOINTS)
    for path in ("/api/v1/tables", "/api/v1/tables/{table}", "/api/v1/pipeline"):
        schema = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        validate(client.get(path.replace("{table}", "n.a")).json(), schema)
