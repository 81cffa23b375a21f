"""The console in a real browser: what is read, checked, pressed and replayed in it. A picture of every page is left in the
test's folder, to be looked at.

In time: unit/test_console.py has the pages and the actions, unit/test_console_tables.py the list and its streams.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from packages.console.tests.unit.many_tables import ManyTables, served
from tests.acceptance.ledger import events
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.test_http_service import Service
from tests.fixtures.browser import ENTER, TAB, Browser, browser
from tests.fixtures.waiting import wait_until
from tests.integration.servers import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
WIDE, PHONE = 1400, 360
WIDTHS = (390, 800, 1000, 1200, 1600)
TABLES = 1000
MOST_BYTES = 300 * 1024
FOCUSED = "return document.activeElement.innerText || document.activeElement.name || document.activeElement.tagName"
CELL = "return document.querySelector(`tr[data-table='${arguments[0]}']`).cells[arguments[1]].innerText"


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> ManyTables:
    """A thousand tables."""
    return ManyTables(tmp_path_factory.mktemp("many"), TABLES)


@pytest.fixture(scope="module")
def page(many: ManyTables) -> Iterator[Browser]:
    """A browser for their console."""
    with served(many) as address, browser(f"http://{address}") as found:
        found.show_at(WIDE)
        yield found


@pytest.fixture
def listed(page: Browser) -> Browser:
    """The browser, with the list of all tables, live."""
    page.open("/")
    wait_until(lambda: page.run("return document.querySelector('[data-live-state]').textContent") == "live", "live")
    return page


def check_page(page: Browser, picture: Path) -> None:
    """Light and dark, on a desk and on a phone: nothing that stands in anybody's way, nothing beside the page, nothing from
    elsewhere.
    """
    for width, is_dark in ((WIDE, False), (PHONE, True)):
        page.show_at(width, is_dark=is_dark)
        page.screenshot(picture.with_suffix(f".{width}.png"))
        assert page.violations() == []
        assert page.run("return document.scrollingElement.scrollWidth") <= width
        lines = "[...document.querySelectorAll('.tables small')].map((one) => one.getClientRects().length)"
        assert page.run(f"return Math.max(1, ...{lines})") == 1
    page.show_at(WIDE)
    origins = "return [...new Set(performance.getEntriesByType('resource').map((one) => new URL(one.name).origin))]"
    assert set(page.run(origins)) <= {page.run("return location.origin")}
    assert page.complaints() == []


def test_a_thousand_tables_are_light_and_in_nobodys_way(listed: Browser, tmp_path: Path) -> None:
    assert listed.run("return document.querySelectorAll('tr[data-table]').length") == TABLES
    sizes = "return performance.getEntries().reduce((sum, one) => sum + (one.transferSize || 0), 0)"
    assert 0 < listed.run(sizes) <= MOST_BYTES
    check_page(listed, tmp_path / "tables")


def test_every_width_shows_all_columns_and_breaks_names_between_words(listed: Browser, tmp_path: Path) -> None:
    # Characters of a link with the place of each, to see where its lines end.
    ends = """return [...document.querySelectorAll('tbody th a')].slice(0, 100).flatMap((link) => {
      const places = [];
      for (let node, walker = document.createTreeWalker(link, NodeFilter.SHOW_TEXT); (node = walker.nextNode());)
        for (let at = 0; at < node.length; at++) {
          const range = document.createRange();
          range.setStart(node, at); range.setEnd(node, at + 1);
          places.push([node.data[at], range.getBoundingClientRect().top]);
        }
      return places.filter(([, top], at) => at + 1 < places.length && places[at + 1][1] > top + 3).map(([text]) => text);
    })"""
    beside = (
        "return Math.max(...[...document.querySelectorAll('.scroll')].map((one) => one.scrollWidth - one.clientWidth))"
    )
    for width in WIDTHS:
        for is_dark in (False, True):
            listed.show_at(width, is_dark=is_dark)
            listed.screenshot(tmp_path / f"{width}{'-dark' * is_dark}.png")
        assert (width, listed.run(beside), set(listed.run(ends)) <= set("._-")) == (width, 0, True)
    for path in ("/help/README", "/tables/shop.orders_000"):
        listed.open(path)
        for width in WIDTHS:
            listed.show_at(width)
            assert (path, listed.run("return document.scrollingElement.scrollWidth") <= width) == (path, True)
    listed.open("/?q=orders_00")  # Ten of them: a check of all takes seconds at each width.
    for width in WIDTHS:
        listed.show_at(width)
        assert (width, listed.violations()) == (width, [])
    listed.show_at(WIDE)


def test_a_commit_is_seen_without_a_reload_and_a_pause_keeps_the_page_as_it_is(
    listed: Browser, many: ManyTables
) -> None:
    first = listed.run("return document.querySelector('tr[data-table]').dataset.table")
    [table] = [one for one in many.tables if one.name == first]

    def commit() -> None:
        many.commit([table], 20)
        many.publish()

    before = listed.run(CELL, first, 2)
    commit()
    wait_until(lambda: listed.run(CELL, first, 2) != before, "the commit in the page")
    listed.click("Pause")
    paused = listed.run(CELL, first, 2)
    commit()
    listed.run("return new Promise((done) => setTimeout(done, 3000))")
    assert listed.run(CELL, first, 2) == paused
    listed.click("Pause")
    wait_until(lambda: listed.run(CELL, first, 2) != paused, "the commits of the pause")


def test_the_keyboard_reaches_everything(listed: Browser) -> None:
    listed.press(TAB)
    assert listed.run(FOCUSED) == "Skip to the content"
    listed.press(ENTER, TAB)
    assert listed.run("return document.querySelector('main').contains(document.activeElement)")
    listed.run("document.querySelector('input[name=q]').focus()")
    listed.press(*"orders_00", ENTER)
    names = "return [...document.querySelectorAll('tr[data-table]')].map((one) => one.dataset.table)"
    wait_until(lambda: listed.run("return location.search").startswith("?q=orders_00"), "the filtered list")
    assert sorted(listed.run(names)) == [f"shop.orders_{number:03}" for number in range(10)]
    listed.run("document.querySelector('tbody th a').focus()")
    outline = listed.run("return getComputedStyle(document.activeElement).outlineStyle")
    listed.press(ENTER)
    wait_until(lambda: listed.run("return location.pathname").startswith("/tables/shop.orders_00"), "the table's page")
    assert outline == "solid"


def test_a_stopped_table_emphasizes_the_button_that_ends_the_stop(listed: Browser) -> None:
    listed.click("erp.stock_000")
    weights = (
        "return [...document.querySelectorAll('.panel .actions a')].map((one) => getComputedStyle(one).fontWeight)"
    )
    assert listed.run(weights) == ["600", "400", "400"]


def test_freshness_and_its_highest_value_are_in_one_line(listed: Browser) -> None:
    below = """return Math.max(...[...document.querySelectorAll('tbody td:nth-child(5)')].slice(-100).map((cell) =>
      cell.querySelector('small').offsetTop - cell.querySelector('span').offsetTop))"""
    for width in (1280, WIDE):
        listed.show_at(width)
        assert (width, listed.run(below) < 8) == (width, True)
    listed.show_at(WIDE)


def test_a_dead_letter_is_found_and_replayed(pipeline: Pipeline, tmp_path: Path) -> None:
    table, topic = pipeline.add_fed_table("narrow", columns={"n": "int"}, dead_letters={"stop_above": "100%"})
    port = free_port()
    pipeline.document["http"] = {"listen": f"127.0.0.1:{port}"}
    service = Service(port)
    pipeline.feed.produce(topic, [*events(10), {"n": 3_000_000_000, "text": "<b>large</b>"}])
    assert pipeline.catch_up()["tables"][table]["dead_letters"] == 1
    pipeline.document["tables"][table]["columns"] = {"n": "long"}
    run = pipeline.run()
    wait_until(lambda: service.get("/readyz")[0] == 200, "a service that is ready")
    with browser(service.address) as page:
        page.open("/")
        for text in (table, "Dead letters", "Replay this one", "Replay"):
            check_page(page, tmp_path / f"before {text}")
            page.click(text)
        wait_until(lambda: "It is done" in page.run("return document.body.innerText"), "the end of the replay")
        check_page(page, tmp_path / "done")
        page.open("/process")
        check_page(page, tmp_path / "process")
    assert service.json(f"/api/v1/tables/{table}/dead-letters")["dead_letters"] == 0
    wait_until(lambda: service.json(f"/api/v1/tables/{table}")["rows"] == 11, "the row")
    assert run.stop() == 0, run.tail()
