"""No answer has a secret of the pipeline file, whatever a secret's value is."""

from __future__ import annotations

from pathlib import Path

from frazil.errors import UnavailableError
from frazil.spec.connections import HttpSpec, HttpTokensSpec
from frazil_http.api import ENDPOINTS
from packages.http.tests.unit.running_scene import RunningScene, wait_for

BROWSER = {"Accept": "text/html"}
PAGES = (
    "/",
    "/tables/n.a",
    "/tables/n.a/dead-letters",
    "/tables/n.a/maintain",
    "/process",
    "/tables/n.a/operations/x",
    "/nothing",
)
SECRETS = ("hunter2-of-the-broker", "s3cr3t-of-the-catalog", "t0ken" * 8)


class LeakyMaintenance:
    """A catalog whose errors quote what it was configured with."""

    def metadata(self, table: str, with_files: bool) -> None:
        raise UnavailableError(f"login failed with {SECRETS[1]} for {table}, {with_files}")


def test_no_answer_has_a_secret(tmp_path: Path) -> None:
    scene = RunningScene(tmp_path, "a")
    scene.redaction.hide(SECRETS)
    scene.maintenance = LeakyMaintenance()  # type: ignore[assignment]
    scene.feed("a", {"id": 1}, f"bad {SECRETS[0]}".encode())
    client = scene.client(HttpSpec(tokens=HttpTokensSpec(operate=(SECRETS[2],))))
    headers = {"Authorization": f"Bearer {SECRETS[2]}"}
    answers = []
    with scene.running() as service:
        wait_for(lambda: service.tables[0].counts.records == 2)
        service.tables[0].status.reason = f"the broker refuses {SECRETS[0]}"
        service.requests.pause("n.a").result(10)
        for path in ("/healthz", "/readyz", "/metrics", "/openapi.json", "/nothing"):
            answers += [client.get(path), client.get(path, headers=headers)]
        for path in PAGES:
            answers.append(client.get(path, headers={**headers, **BROWSER}))
        for endpoint in ENDPOINTS:
            for query in ("", "?dry_run=true", f"?{SECRETS[0]}=1", f"?topic={SECRETS[1]}"):
                path = endpoint.path.replace("{table}", "n.a").replace("{operation}", SECRETS[0])
                answers.append(client.request(endpoint.method, path + query, headers=headers))
        for place in [one.headers["Location"] for one in answers if "Location" in one.headers]:
            wait_for(lambda: client.get(place, headers=headers).json()["state"] != "running")  # noqa: B023
            answers.append(client.get(place, headers=headers))
    assert len([one for one in answers if one.status_code == 200]) > 15
    for answer in answers:
        shown = answer.text + str(answer.headers)
        assert not [secret for secret in SECRETS if secret in shown], (answer.request.url, answer.text)
