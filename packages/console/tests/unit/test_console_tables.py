"""The list of a thousand tables: what comes first, what it weighs, and what a page that stays open gets."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup
from starlette.testclient import TestClient

from frazil.ingest.tables.state import RunState
from frazil.spec.connections import HttpSpec
from frazil_console import live
from frazil_console.charts import sparkline
from frazil_console.figures import last_hour_of
from frazil_console.history import Samples
from frazil_console.live import LiveTables, Streams
from frazil_console.render import breakable
from frazil_http.app import make_app
from packages.console.tests.unit.many_tables import ManyTables
from packages.console.tests.unit.pages import BROWSER, page_of
from packages.http.tests.unit.running_scene import BASE

KIB = 1024


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> ManyTables:
    """A thousand tables with an hour of history."""
    found = ManyTables(tmp_path_factory.mktemp("many"), 1_000)
    found.remember_an_hour()
    return found


@pytest.fixture
def few(tmp_path: Path) -> ManyTables:
    """Forty tables, of which a test changes some."""
    found = ManyTables(tmp_path, 40)
    found.remember_an_hour()
    return found


def client_of(pipeline: ManyTables) -> TestClient:
    return TestClient(make_app(pipeline.pipeline, HttpSpec(), pipeline.open_pages), BASE)


def test_a_thousand_tables_are_one_light_page(many: ManyTables) -> None:
    client = client_of(many)
    paths = ("/", "/static/console.css", "/static/console.js", "/static/icon.svg")
    answers = [client.get(path, headers=BROWSER | {"Accept-Encoding": "identity"}) for path in paths]
    compressed = len(gzip.compress(answers[0].content, 5))
    assert compressed + sum(len(one.content) for one in answers[1:]) < 60 * KIB
    with client.stream("GET", "/", headers=BROWSER | {"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert len(b"".join(answer.iter_raw())) < 60 * KIB
    assert len(page_of(client, "/").rows) == 1_000


def test_tables_that_need_attention_come_first(many: ManyTables) -> None:
    rows = list(page_of(client_of(many), "/").rows.values())
    kinds = [re.findall(r'class="state ([\w-]+)"', row)[0] for row in rows]
    assert kinds[:8] == ["stopped"] * 2 + ["backing-off"] * 2 + ["late"] * 4
    assert all("/dead-letters" in row for row in rows[8:20])
    assert not any("/dead-letters" in row for row in rows[20:])
    assert "declare the column as string, or correct the producer and resume the table" in rows[0]


@pytest.mark.parametrize(
    ("query", "first", "number"),
    [
        ("q=shop+orders", "shop.orders_000", 100),
        ("q=ORDERS_01", "shop.orders_010", 10),
        ("show=stopped", "erp.stock_050", 2),
        ("show=attention&sort=name", "erp.stock_000", 20),
        ("sort=name&desc", "web.sessions_099", 1_000),
        ("sort=dead_letters", "web.clicks_099", 1_000),
        ("q=%3Cscript%3E", None, 0),
        ("show=nonsense&sort=nonsense", "erp.stock_050", 1_000),
    ],
)
def test_search_filter_and_order_are_in_the_address(
    many: ManyTables, query: str, first: str | None, number: int
) -> None:
    page = page_of(client_of(many), f"/?{query}")
    assert (next(iter(page.rows), None), len(page.rows)) == (first, number)
    assert "<script>" not in page.text


def test_the_name_of_a_table_breaks_only_between_its_words(few: ManyTables) -> None:
    client = client_of(few)
    [row] = page_of(client, "/?q=orders_003").rows.values()
    assert '<a href="/tables/shop.orders_003">shop.<wbr>orders_<wbr>003</a>' in row
    pages = ("", "/dead-letters", "/pause")
    titles = [re.findall("<h1>.*</h1>", page_of(client, f"/tables/shop.orders_003{path}").text) for path in pages]
    assert ["shop.<wbr>orders_<wbr>003<" in title for [title] in titles] == [True] * len(pages)
    assert breakable("a__b.-c_<d>_") == "a__<wbr>b.-<wbr>c_<wbr>&lt;d&gt;_"


def test_the_sorted_column_is_named_for_screen_readers(many: ManyTables) -> None:
    client = client_of(many)
    for query, sorted_ in (("", "ascending"), ("?sort=lag&desc", "descending")):
        assert re.findall(r'aria-sort="(\w+)"', page_of(client, f"/{query}").text) == [sorted_]


def test_commits_files_schemas_and_their_causes_are_shown(many: ManyTables) -> None:
    tabs = ("commits", "files", "schema")
    pages = [page_of(client_of(many), f"/tables/shop.orders_000?tab={tab}").text for tab in tabs]
    text = " ".join(" ".join(pages).split())
    added = '<li class="added"><span class="visually-hidden">added </span>'
    assert f"{added}customer: struct</li>{added}customer.name: string</li>" in text
    assert "orders_000-2: 302 to 402 registry schema 9" in text.replace("202 to 402", "302 to 402")
    assert re.search(r"<td>maintenance</td><td>replace</td>", text)
    assert '<th scope="row">128 MiB to 512 MiB</th><td class="n">3</td>' in text
    assert "with &lt;taxes&gt;" in text
    for span in ("hour", "day", "month"):
        assert f"<b>last {span}</b>" in page_of(client_of(many), f"/tables/shop.orders_000?span={span}").text


def test_hostile_texts_of_the_pipeline_are_escaped(few: ManyTables) -> None:
    few.tables[0].status.run_state = RunState.STOPPED
    few.tables[0].status.reason = few.tables[0].status.remedy = '"><script>alert(1)</script>'
    few.publish()
    page = page_of(client_of(few), "/")
    tables = LiveTables(few.state_file, few.history, few.clock)
    tables.refresh()
    for text in (page.text, page_of(client_of(few), f"/tables/{few.tables[0].name}").text, str(tables.changes(0))):
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert(1)" in text


# ---- changes


def test_only_changed_cells_of_changed_tables_are_sent(few: ManyTables) -> None:
    tables = LiveTables(few.state_file, few.history, few.clock)
    shown = tables.refresh()
    idle = few.tables[-1]  # Its last commit is minutes ago.
    assert few.tables[0].name in tables.changes(0)
    assert len(tables.changes(0)) == 40
    few.commit([idle], 7)
    few.publish()
    tables.refresh()
    changed = tables.changes(shown)
    lagging = {table.name for table in few.tables if table.offsets.lag_records}
    assert changed.keys() - lagging == {idle.name}
    complete, commit = 1, 5
    assert {complete, commit} <= changed[idle.name].keys() <= {complete, 3, commit}
    assert tables.changes(tables.version) == {}


def test_charts_are_drawn_once_a_minute_each_time_those_of_some_tables(
    few: ManyTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []

    def drawn_counted(values: Samples, lowest_top: float) -> Markup:
        drawn.append(len(values))
        return sparkline(values, lowest_top)

    tables = LiveTables(few.state_file, few.history, few.clock)
    tables.refresh()
    monkeypatch.setattr("frazil_console.figures.sparkline", drawn_counted)
    numbers = []
    for _ in range(live.DRAWN_EVERY):
        few.history.sample()
        before = len(drawn)
        for _ in range(10):
            tables.refresh()
        numbers.append(len(drawn) - before)
    assert sum(numbers) == len(few.tables)
    assert max(numbers) <= -(-len(few.tables) // live.DRAWN_EVERY)


def test_the_rate_of_a_table_that_commits_is_current(few: ManyTables) -> None:
    tables, table = LiveTables(few.state_file, few.history, few.clock), few.tables[-1]
    tables.refresh()
    for _ in range(2):
        few.commit([table], 1_000)
        few.publish()
        few.history.sample()
        tables.refresh()
        expected = last_hour_of(few.history.last_hour(table.name))
        shown = tables.rows[table.name].figures.hour
        assert (shown.rate, shown.worst_freshness_s) == (expected.rate, expected.worst_freshness_s)


def test_a_page_of_an_earlier_process_gets_everything(few: ManyTables) -> None:
    earlier = LiveTables(few.state_file, few.history, few.clock)
    shown = earlier.refresh()
    later = LiveTables(few.state_file, few.history, few.clock)
    later.version += 1_000  # A second later.
    later.refresh()
    assert len(later.changes(shown)) == 40


def in_a_loop(act: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(act(), 20))


async def next_rows(stream: AsyncIterator[str]) -> tuple[int, dict[str, Any]]:
    """The version and the changes of the next event."""
    async for text in stream:
        if "event: rows" in text:
            found = re.fullmatch(r"id: (\d+)\nevent: rows\ndata: (.*)\n\n", text)
            assert found is not None
            if rows := json.loads(found[2]):
                return int(found[1]), rows
    raise AssertionError


def test_a_stream_sends_what_a_page_lacks_and_then_each_change(
    few: ManyTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "EVERY_S", 0.01)
    tables = LiveTables(few.state_file, few.history, few.clock)
    for table in few.tables:
        table.offsets.lag_records = 0
    few.publish()

    async def follow() -> None:
        streams = Streams(tables)
        stream, other = streams.follow(0), streams.follow(0)
        version, rows = await next_rows(stream)
        assert len(rows) == 40
        few.commit(few.tables[-1:], 3)
        few.publish()
        later, rows = await next_rows(stream)
        assert (later > version, list(rows)) == (True, [few.tables[-1].name])
        # A reader that was slow gets all of it at once.
        assert len((await next_rows(other))[1]) == 40
        await stream.aclose()  # type: ignore[attr-defined]
        await other.aclose()  # type: ignore[attr-defined]
        assert not streams.is_full
        assert streams._ticking is None

    in_a_loop(follow)


def test_a_page_of_an_earlier_process_gets_all_cells_even_with_the_clock_set_back(few: ManyTables) -> None:
    tables = LiveTables(few.state_file, few.history, few.clock)
    tables.refresh()
    hour_ms = 3_600_000

    async def follow() -> None:
        stream = Streams(tables).follow(tables.version + hour_ms)
        version, rows = await next_rows(stream)
        assert (version, len(rows)) == (tables.version, 40)
        await stream.aclose()  # type: ignore[attr-defined]

    in_a_loop(follow)


def test_an_idle_stream_sends_a_comment_and_fifty_are_enough(few: ManyTables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PING_EVERY_S", 0.01)
    tables = LiveTables(few.state_file, few.history, few.clock)
    for table in few.tables:
        table.offsets.lag_records = 0
    few.publish()
    tables.refresh()

    async def follow() -> None:
        streams = Streams(tables)
        opened = [streams.follow(tables.version) for _ in range(live.MOST_STREAMS)]
        assert {await anext(one) for one in opened} == {"retry: 2000\n\n"}
        assert await anext(opened[0]) == ": ping\n\n"
        assert streams.is_full
        streams.end()
        for one in opened:
            assert [text async for text in one if text != ": ping\n\n"] == []
        assert not streams.is_full

    in_a_loop(follow)
