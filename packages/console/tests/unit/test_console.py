"""The console over a pipeline that runs: what pages show, where links lead, and who may do what."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from frazil.errors import RecordError, SpecError, UnavailableError
from frazil.ingest.tables.state import RunState
from frazil.spec import load_spec
from frazil.spec.connections import HttpSpec, HttpTlsSpec, HttpTokensSpec
from frazil.spec.syntax.forms import Address
from frazil_console.table_page import path_of, settings_of
from frazil_http.security import cookie_of
from packages.console.tests.unit.pages import BROWSER, crawl, page_of
from packages.http.tests.unit.running_scene import RunningScene, wait_for

READ, OPERATE = "r" * 32, "o" * 32
TOKENS = HttpSpec(tokens=HttpTokensSpec(read=(READ,), operate=(OPERATE,)))
HOSTILE = "<script>alert('x')</script>"
FROM_HERE = {**BROWSER, "Origin": "http://localhost:8787", "Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[RunningScene]:
    """Two tables; one has two rows and three dead letters, with hostile contents."""
    scene = RunningScene(tmp_path, "a", "b")
    scene.feed("a", {"id": 1}, {"id": 2}, HOSTILE.encode(), b"\xff\xfe" * 900, b"<img src=x onerror=alert(1)>" * 100)
    with scene.running():
        wait_for(lambda: scene.published("n.a").progress.dead_letters == 3)
        yield scene


def test_every_link_leads_somewhere(scene: RunningScene) -> None:
    found = crawl(scene.client())
    assert {path for path, status in found.items() if status != 200} == set()
    expected = {"/", "/process", "/metrics", "/openapi.json", "/tables/n.a", "/tables/n.b", "/tables/n.a/dead-letters"}
    assert expected <= found.keys()
    acts = {f"/tables/n.a/{act}" for act in ("pause", "maintain", "replay")}
    assert acts <= found.keys()


def test_the_page_of_a_table_shows_its_figures_settings_and_partitions(scene: RunningScene) -> None:
    text = page_of(scene.client(), "/tables/n.a").text
    assert "<dt>Rows</dt><dd>2</dd>" in text
    assert re.search(r"Mean of [\d,]+ batch(?:es)?</dt><dd>[\d.]+ m?s: tasks [\d.]+ m?s, commit [\d.]+ m?s</dd>", text)
    assert [" ".join(re.sub("<.*?>", " ", step).split()) for step in re.findall("<li.*?</li>", text)] == [
        "topic a",
        "table n.a: append",
    ]
    cells = "".join(f'<td class="n">{number}</td>' for number in (0, 5, 5, 0))
    assert f'<th scope="row">a</th>{cells}' in page_of(scene.client(), "/tables/n.a?tab=partitions").text
    settings = page_of(scene.client(), "/tables/n.a?tab=settings").text
    assert '<th scope="row">commit.interval</th><td>1 s</td>' in settings


def test_the_ends_of_topics_are_missing_while_kafka_does_not_answer(scene: RunningScene) -> None:
    scene.source.is_down = True
    text = page_of(scene.client(), "/tables/n.a?tab=partitions").text
    assert "Not available: " in text
    assert '<th scope="row">a</th><td class="n">0</td><td class="n">5</td><td class="n">–</td>' in text


def test_a_stopped_table_shows_the_record_what_to_do_and_what_people_asked_for(scene: RunningScene) -> None:
    error = RecordError("the object ends early", topic="a", partition=0, offset=2, remedy="fix the producer")
    scene.pipeline.find("n.a").status.set(RunState.STOPPED, error)
    wait_for(lambda: scene.published("n.a").condition.state == "stopped")
    page = page_of(scene.client(), "/tables/n.a")
    for shown in ("It has stopped", "fix the producer", "topic a, partition 0, offset 2", "&lt;script&gt;alert"):
        assert shown in page.text
    assert "/tables/n.a/resume" in page.links
    assert "/help/bad-record" in page.links
    scene.client().post("/tables/n.a/resume", headers=FROM_HERE)
    events = page_of(scene.client(), "/tables/n.a?tab=events").text
    assert "<td>resumeTable</td><td>anyone (console)</td>" in events


def test_values_of_a_stopped_table_are_for_those_who_may_operate(scene: RunningScene) -> None:
    error = RecordError("the object ends early", topic="a", partition=0, offset=2)
    scene.pipeline.find("n.a").status.set(RunState.STOPPED, error)
    wait_for(lambda: scene.published("n.a").condition.state == "stopped")
    client = scene.client(TOKENS)
    client.cookies.set(cookie_of(TOKENS), READ)
    text = page_of(client, "/tables/n.a").text
    assert "It has stopped" in text
    assert "alert" not in text


def test_several_tables_are_paused_at_once(scene: RunningScene) -> None:
    client = scene.client()
    asked = page_of(client, "/several?act=pause&table=n.a&table=n.b")
    assert "Pause 2 tables?" in asked.text
    assert client.post("/several?act=pause&table=n.a&table=n.b", headers=FROM_HERE).status_code == 303
    assert [scene.pipeline.find(name).schedule.is_paused for name in ("n.a", "n.b")] == [True, True]
    for wrong in ("act=pause", "act=reset&table=n.a", "table=n.a"):
        page_of(client, f"/several?{wrong}", 400)
    page_of(client, "/several?act=pause&table=n.c", 404)


def test_a_table_that_keeps_history_is_shown_as_the_file_has_it(tmp_path: Path) -> None:
    file = tmp_path / "frazil.yaml"
    table = "  n.a: {topic: a, mode: history, key_columns: [id]}\n"
    file.write_text(f'pipeline: p\nkafka: {{bootstrap.servers: "localhost:9092"}}\ntables:\n{table}')
    spec = load_spec(file, {})
    own = {one.key: one.value for one in settings_of(spec, spec.tables[0]) if one.origin != "default"}
    assert own == {"topics": "a", "mode": "history", "key_columns": '["id"]'}
    assert path_of(spec.tables[0], ["a"])[-1] == ("table", "n.a: history by id")


def test_settings_show_where_each_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "frazil.yaml"
    file.write_text(
        """
pipeline: p
kafka: {bootstrap.servers: "localhost:9092"}
commit: {interval: 200ms}
defaults: {on_bad_record: skip}
tables:
  n.a: {topic: a, mode: upsert, protect: {email: hash}, protect_key: "${env:KEY}", commit: {target_file_size: 1000000B}}
"""
    )
    spec = load_spec(file, {"KEY": "k" * 40})
    found = {one.key: (one.value, one.origin) for one in settings_of(spec, spec.tables[0]) if one.origin != "default"}
    own = "the table, line 7"
    assert found == {
        "topics": ("a", own),
        "mode": ("upsert", own),
        "protect": ('[{"selector": "email", "action": "hash", "keep": 4, "length": 4}]', own),
        "protect_key": ("***", own),
        "commit.target_file_size": ("977 KiB", own),
        "commit.interval": ("0.2 s", "`commit` of the pipeline"),
        "on_bad_record": ("skip", "`defaults`"),
    }


def test_a_table_is_shown_while_the_catalog_does_not_answer(scene: RunningScene) -> None:
    class Away:
        def metadata(self, table: str, **_: bool) -> None:
            raise UnavailableError(f"the catalog <does> not answer for {table}", where="http://catalog")

    scene.maintenance = Away()  # type: ignore[assignment]
    text = page_of(scene.client(), "/tables/n.a?tab=files").text
    assert "Not available: the catalog &lt;does&gt; not answer for n.a (http://catalog)." in text
    assert "<dt>Rows</dt><dd>2</dd>" in page_of(scene.client(), "/tables/n.a").text


def test_dead_letters_are_shown_escaped_and_cut(scene: RunningScene) -> None:
    page = page_of(scene.client(), "/tables/n.a/dead-letters")
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;" in page.text
    assert HOSTILE not in page.text
    assert "<img" not in page.text
    assert "<i>base64</i>" in page.text
    assert len(page.text) < 9_000
    assert page_of(scene.client(), "/tables/n.a/dead-letters?offset=2").text.count("<article") == 1


def test_characters_that_nobody_would_see_are_shown(scene: RunningScene) -> None:
    scene.feed("a", '\ufeff{"id": 3} \u202egpj'.encode(), b"\x00\x1b[2J", "\u05e9\u05dc\u05d5\u05dd".encode())
    wait_for(lambda: scene.published("n.a").progress.dead_letters == 6)
    page = page_of(scene.client(), "/tables/n.a/dead-letters")
    for shown in (r"\ufeff{&#34;id&#34;: 3} \u202egpj", r"\x00\x1b[2J", "\u05e9\u05dc\u05d5\u05dd"):
        assert f"<pre>{shown}</pre>" in page.text
    scene.pipeline.find("n.a").status.set(RunState.STOPPED, SpecError("a value \u202e is wrong", remedy="see \u202e"))
    assert "\u202e" not in page_of(scene.client(), "/tables/n.a").text


def test_an_action_shows_what_it_does_and_then_does_it(scene: RunningScene) -> None:
    client = scene.client()
    assert "No further batch begins" in page_of(client, "/tables/n.a/pause").text
    assert not scene.pipeline.find("n.a").schedule.is_paused
    done = client.post("/tables/n.a/pause", headers=FROM_HERE)
    assert (done.status_code, done.headers["Location"]) == (303, "/tables/n.a")
    assert scene.pipeline.find("n.a").schedule.is_paused
    assert "/tables/n.a/resume" in page_of(client, "/tables/n.a").links
    reset = page_of(client, "/tables/n.a/reset").text
    assert "at its setting <code>start</code>" in reset
    assert "offsets that are read again: 5; they become rows a second time" in reset
    assert client.post("/tables/n.a/resume", headers=FROM_HERE).status_code == 303
    assert not scene.pipeline.find("n.a").schedule.is_paused
    refused = client.post("/tables/n.a/reset", headers=FROM_HERE)
    assert (refused.status_code, "frazil pause n.a" in refused.text) == (400, True)


def test_dead_letters_are_replayed(scene: RunningScene) -> None:
    client = scene.client()
    assert "dead letters that are decoded again: 3;" in page_of(client, "/tables/n.a/replay").text
    assert (
        "dead letters that are decoded again: 1;"
        in page_of(client, "/tables/n.a/replay?topic=a&partition=0&offset=2").text
    )
    begun = client.post("/tables/n.a/replay?topic=a&partition=0&offset=2", headers=FROM_HERE)
    assert begun.status_code == 303
    place = begun.headers["Location"]
    wait_for(lambda: "It is done." in page_of(client, place).text)
    assert '"remaining": 1' in page_of(client, place).text


def test_pages_of_other_sites_do_not_act(scene: RunningScene) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        assert scene.client().post("/tables/n.a/pause", headers=headers).status_code == 403
    assert not scene.pipeline.find("n.a").schedule.is_paused


def test_a_browser_logs_in_with_a_token(scene: RunningScene) -> None:
    client = scene.client(TOKENS)
    asked = page_of(client, "/tables/n.a", 401)
    assert '<input type="hidden" name="next" value="/tables/n.a">' in asked.text
    kept = page_of(client, "/?show=stopped&q=100%25", 401)
    assert '<input type="hidden" name="next" value="/?show=stopped&amp;q=100%25">' in kept.text
    wrong = client.post("/login", data={"token": "w" * 32, "next": "/"}, headers=FROM_HERE)
    assert (wrong.status_code, "This token is unknown." in wrong.text) == (401, True)
    done = client.post("/login", data={"token": READ, "next": "/tables/n.a"}, headers=FROM_HERE)
    assert (done.status_code, done.headers["Location"]) == (303, "/tables/n.a")
    assert done.headers["Set-Cookie"] == f"frazil_token_8787={READ}; HttpOnly; Path=/; SameSite=strict"
    assert page_of(client, "/tables/n.a").text.count("/pause") == 0
    # A browser sends it to every port of the host: another pipeline's login is its own.
    assert cookie_of(HttpSpec(listen=Address("localhost", 8788))) not in client.cookies
    assert client.get("/static/console.css").status_code == 200
    for place in ("//evil.example/", "https://evil.example/", "/\\evil.example"):
        away = client.post("/login", data={"token": READ, "next": place}, headers=FROM_HERE)
        assert away.headers["Location"] == "/"
    tls = HttpSpec(listen=Address("0.0.0.0", 1), tokens=TOKENS.tokens, tls=HttpTlsSpec(certificate="c", key="k"))
    secure = scene.client(tls, "https://frazil.example").post("/login", data={"token": READ})
    assert secure.headers["Set-Cookie"].endswith("; Secure")
    too_large = client.post("/login", content=b"x" * 5_000)
    assert (too_large.status_code, too_large.json()["remedy"]) == (413, "send a token")


def test_records_and_actions_need_the_right_to_operate(scene: RunningScene) -> None:
    client = scene.client(TOKENS)
    client.cookies.set(cookie_of(TOKENS), READ)
    page = page_of(client, "/tables/n.a/dead-letters")
    assert "The records themselves are shown to those who may operate." in page.text
    assert "script&gt;" not in page.text.partition("<caption>")[0]
    assert "<article" not in page.text
    for act in ("pause", "resume", "reset", "maintain", "replay"):
        path = f"/tables/n.a/{act}"
        assert client.get(path, headers=BROWSER).status_code == client.post(path, headers=FROM_HERE).status_code == 403
    client.cookies.set(cookie_of(TOKENS), OPERATE)
    assert page_of(client, "/tables/n.a/dead-letters").text.count("<article") == 3


def test_encrypted_records_stay_encrypted(scene: RunningScene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "frazil_deadletters.documents.key_id_of", lambda raw: "k-2026" if raw == HOSTILE.encode() else None
    )
    text = page_of(scene.client(), "/tables/n.a/dead-letters?offset=2").text
    assert "<i>encrypted with the key k-2026</i>" in text
    assert "&lt;script" not in text.partition("<article")[2]


def test_problems_are_pages_for_people_and_json_for_programs(scene: RunningScene) -> None:
    client = scene.client()
    assert "the pipeline has no table <code>n.c</code>" in page_of(client, "/tables/n.c", 404).text
    for path in ("/nothing", "/tables/n.c", "/tables/n.a/operations/x", "/static/nothing"):
        page_of(client, path, 404)
        assert json.loads(client.get(path).text)["status"] == 404
    page_of(client, "/tables/n.a/dead-letters?limit=x", 400)
    refused = client.get("/events?after=x")
    assert (refused.status_code, refused.json()["remedy"]) == (400, "leave it out")
    assert client.get("/static/nothing").json()["remedy"] == "see the list of tables"


def test_a_process_that_starts_shows_no_tables_yet(tmp_path: Path) -> None:
    client = RunningScene(tmp_path, "a").client()
    assert "The pipeline is starting." in page_of(client, "/").text
    page_of(client, "/tables/n.a", 503)
    page_of(client, "/process", 503)


def test_the_process_page_shows_memory_threads_versions_and_leadership(scene: RunningScene) -> None:
    text = page_of(scene.client(), "/process").text
    for shown in ("<dt>Process id</dt>", "<dt>Spark</dt>", "epoch 1, run run-0001", "<li>MainThread</li>"):
        assert shown in text
    assert re.search(r"<td[^>]*>[0-9.]+ [MG]iB</td>", text)
