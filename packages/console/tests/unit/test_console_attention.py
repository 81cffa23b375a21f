"""What the console shows of tables that need attention, of those that have no commit yet, and of those that are well."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from frazil.errors import SpecError
from frazil.ingest.tables.state import RunState
from frazil.ops.seen_by_readers import PublishReport
from frazil.spec.connections import HttpSpec
from frazil.types import OffsetRange
from frazil_console.figures import with_code
from frazil_http.app import make_app
from packages.console.tests.unit.many_tables import ManyTables
from packages.console.tests.unit.pages import Page, page_of
from packages.http.tests.unit.running_scene import BASE, RunningScene, wait_for

BAD = SpecError(
    "field id: string does not fit long", remedy="fix the producer", where="topic a, partition 3, offset 71"
)


@pytest.fixture
def few(tmp_path: Path) -> ManyTables:
    """Twenty tables, all of them well."""
    found = ManyTables(tmp_path, 20)
    for table in found.tables:
        table.status.set(RunState.WAITING)
        table.catalog.dead_letter_count = 0
        table.offsets.lag_records = 0
    found.publish()
    return found


def shown(many: ManyTables, path: str = "/") -> Page:
    many.publish()
    return page_of(TestClient(make_app(many.pipeline, HttpSpec(), many.open_pages), BASE), path)


def states_of(page: Page) -> list[str]:
    return re.findall(r'<span class="state [\w-]+">([^<]*)</span>', page.text)


def cell(page: Page, table: str, place: int) -> str:
    """A cell of a table's row, 0 for the one behind the name."""
    cells: list[str] = re.findall(r"<td[^>]*>(.*?)</td>", page.rows[table])
    return cells[place]


def test_all_are_well_only_once_all_have_a_commit(few: ManyTables) -> None:
    assert "All is well: 20 tables." in shown(few).text
    for table in few.tables[:3]:
        table.state, table.offsets.lag_records = None, 70
    few.tables[0].status.set(RunState.RUNNING)
    page = shown(few)
    assert "3 of 20 tables need attention." in page.text
    assert re.search(r'<a class="badge without-a-commit" href="[^"]*">3 without a commit</a>', page.text)
    assert states_of(page)[:4] == ["running, no commit yet", *["waiting, no commit yet"] * 2, "waiting"]
    assert list(shown(few, "/?show=without+a+commit").rows) == [table.name for table in few.tables[:3]]
    assert list(shown(few, "/?show=attention").rows) == [table.name for table in few.tables[:3]]


def test_a_table_whose_lag_is_not_measured_yet_has_no_commit_either(few: ManyTables) -> None:
    few.tables[0].state, few.tables[0].offsets.lag_records = None, None
    assert "1 without a commit" in shown(few).text


def test_a_table_whose_topic_has_no_record_is_well(few: ManyTables) -> None:
    few.tables[0].state = None
    assert "All is well: 20 tables." in shown(few).text


@pytest.mark.parametrize("place", ["/", "/tables/{}"])
def test_a_stopped_table_shows_topic_partition_and_offset(few: ManyTables, place: str) -> None:
    table = few.tables[0]
    table.status.set(RunState.STOPPED, BAD)
    reason = cell(shown(few, place.format(table.name)), table.name, 0)
    for kind, text in (("reason", BAD.message), ("where", BAD.where), ("remedy", BAD.remedy)):
        assert f'<span class="{kind}">{text}</span>' in reason


def test_the_first_screen_marks_a_stop_and_shows_its_reason_above_the_numbers(few: ManyTables) -> None:
    few.tables[1].catalog.dead_letter_count = 3
    assert 'class="answer needy"' in shown(few).text
    few.tables[0].status.set(RunState.STOPPED, BAD)
    text = shown(few).text
    assert 'class="answer stopped">2 of 20 tables need attention, 1 stopped.' in text
    assert text.index(f"</a>: {BAD.message}") < text.index("Rate (1 min)")


def test_the_remedy_of_a_paused_table_is_its_button(few: ManyTables) -> None:
    table = few.tables[0]
    table.schedule.is_paused = True
    page = shown(few, f"/tables/{table.name}")
    assert f"/tables/{table.name}/resume" in page.links
    assert "an operator has paused the table" in page.text
    assert "frazil resume" not in page.text + shown(few).text


def test_tables_that_are_well_keep_their_places_whatever_their_lag(few: ManyTables) -> None:
    names = list(shown(few).rows)
    for number, table in enumerate(few.tables):
        table.offsets.lag_records, table.offsets.behind_since_ms = 5, few.clock.now_ms() - 100 * (number * 7 % 20)
    assert list(shown(few).rows) == names == sorted(names)


def test_lag_is_records_and_freshness_is_time(few: ManyTables) -> None:
    table = few.tables[1]  # Its watermark is a minute ago.
    table.offsets.lag_records, table.offsets.behind_since_ms = 1_234, few.clock.now_ms() - 30_000
    page = shown(few)
    assert cell(page, table.name, 2) == "1,234"
    assert " <span>30 s</span> <small>" in cell(page, table.name, 3)


def test_a_freshness_that_is_not_known_is_one_dash(few: ManyTables) -> None:
    table = few.tables[0]
    table.state, table.offsets.lag_records = None, 70
    assert re.sub("<[^>]*>", "", cell(shown(few), table.name, 3)).split() == ["–"]


def test_refused_schema_changes_are_named_on_the_page_of_their_table(few: ManyTables) -> None:
    table = few.tables[0]
    table.schema.refusals = frozenset({"schema 9: column y: int is not widened to long", "column x: no"})
    text = shown(few, f"/tables/{table.name}?tab=schema").text
    assert "Refused changes: column x: no; column y: int is not widened to long" in text


def test_records_behind_an_open_transaction_are_named(few: ManyTables) -> None:
    table = few.tables[0]
    table.offsets.lag_records, table.offsets.behind_since_ms = 1_110, few.clock.now_ms() - 5_000
    table.offsets.open_transactions = (OffsetRange("orders", 2, 50, 1_060),)
    page = shown(few)
    assert cell(page, table.name, 2) == '1,110 <span class="reason">1,010 behind an open transaction</span>'
    assert "offset 50" not in cell(page, table.name, 0), "transactions come and go"
    one = shown(few, f"/tables/{table.name}").text
    assert "1,010 records wait behind an open transaction since offset 50 (topic orders, partition 2). To do:" in one
    table.offsets.behind_since_ms = few.clock.now_ms() - 90_000
    table.state = None
    page = shown(few, f"/tables/{table.name}")
    assert (page.text.count("since offset 50"), "To do:" in page.text) == (1, False), "it is beside the state now"
    late = cell(shown(few), table.name, 0)
    assert "waiting, late, no commit yet" in late
    assert "since offset 50" in late
    table.status.set(RunState.STOPPED, BAD)
    one = shown(few, f"/tables/{table.name}").text
    assert BAD.message in one
    assert "since offset 50 (topic orders, partition 2). To do:" in one


def test_the_api_has_them_too(tmp_path: Path) -> None:
    scene = RunningScene(tmp_path, "a")
    scene.feed("a", {"id": 1})
    scene.source.begin_transaction("a", 0)
    scene.feed("a", {"id": 2}, {"id": 3})
    client = scene.client()
    with scene.running():
        wait_for(lambda: scene.published("n.a").progress.committed)
        found = wait_for(lambda: client.get("/api/v1/tables/n.a").json())
        assert (found["lag_records"], found["committed"], found["ok"]) == (2, True, True)
        assert found["open_transactions"] == [{"topic": "a", "partition": 0, "start": 1, "end": 3}]
        metrics = client.get("/metrics").text
    assert 'frazil_table_lag_records{pipeline="p",table="n.a"} 2\n' in metrics
    assert 'frazil_table_open_transaction_records{pipeline="p",table="n.a"} 2\n' in metrics


def test_a_table_whose_publish_is_held_needs_attention(few: ManyTables) -> None:
    name = few.tables[7].name
    few.publishing = {
        name: PublishReport("ingest", "held", "`no_nulls` does not hold", "correct the data or the audit")
    }
    page = shown(few)
    assert "1 of 20 tables needs attention." in page.text
    assert next(iter(page.rows)) == name
    assert states_of(page)[:2] == ["waiting, not published", "waiting"]
    assert "not published: `no_nulls` does not hold" in cell(page, name, 0)
    assert list(shown(few, "/?show=not+published").rows) == [name]


def test_the_list_shows_settings_of_a_remedy_as_code(few: ManyTables) -> None:
    table = few.tables[0]
    table.status.set(RunState.STOPPED, SpecError("no `start`", remedy="write `start: latest`", where="orders-0"))
    problem = (
        '<span class="reason">no `start`</span> <span class="where">orders-0</span> <span class="remedy">write <code>'
    )
    assert f"{problem}start: latest</code></span>" in cell(shown(few), table.name, 0)


def test_settings_of_a_remedy_are_code_and_everything_else_is_escaped() -> None:
    markup = with_code("write `start: <latest>`, or <b>")
    assert str(markup) == "write <code>start: &lt;latest&gt;</code>, or &lt;b&gt;"
