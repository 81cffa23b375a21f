"""What the console of a thousand tables costs: bytes and time of the list, and the CPU of live updates for one page, of
the server and, where Chromium is installed, of a browser.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from bench.place import Place, Run, say
from bench.tree import Tree
from frazil.ingest.tables.table import Table
from frazil.spec.syntax.forms import Address
from packages.console.tests.unit.many_tables import ManyTables, served
from tests.fixtures.browser import browser

TABLES = 1000
_PAGES = 20
_LIVE_S = 30
_SETTLE_S = 60  # a browser with a new profile is busy for 45 s, with an empty page too
_BROWSER = (
    "chromium",
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--remote-debugging-port=0",
    "--window-size=1400,900",
)
_SERVING = ("http", "AnyIO worker thread", "history")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def measure(place: Place) -> None:
    """The list of tables, and live updates with ten active tables and with all."""
    if "frazil" not in place.settings.subjects:
        return
    with place.attempt("what the console costs"), tempfile.TemporaryDirectory() as folder:
        runs = [run_of(Path(folder))]
        say(json.dumps(runs[0]))
        place.write_result("console", "frazil", f"{TABLES}-tables", runs)


def run_of(folder: Path, tables: int = TABLES, live_s: float = _LIVE_S) -> Run:
    """The milliseconds and the size of the page, and the share of a core that live updates take."""
    many = ManyTables(folder, tables)
    with served(many) as address:
        pages = sorted(_ask(address, "/") for _ in range(_PAGES))
        few, few_bytes = _live(many, address, many.tables[:: max(1, tables // 10)], live_s)
        every, every_bytes = _live(many, address, many.tables, live_s)
        idle, _ = _live(many, address, [], live_s, is_watched=False)
        shown = _in_browser(many, address, live_s) if shutil.which(_BROWSER[0]) and shutil.which("chromedriver") else {}
    return {
        "tables": tables,
        "page_ms": pages[len(pages) // 2][0],
        "page_bytes": pages[0][1],
        "live_ten_active_percent": few,
        "live_ten_active_bytes_per_s": few_bytes,
        "live_all_active_percent": every,
        "live_all_active_bytes_per_s": every_bytes,
        "history_alone_percent": idle,
        **shown,
    }


def _in_browser(many: ManyTables, address: Address, live_s: float) -> Run:
    """The milliseconds until a browser that runs shows the list, and what it takes to keep it current."""
    with browser(f"http://{address}") as page:
        paints = []
        for _ in range(_PAGES):
            page.open("/")
            paints.append(page.run("return performance.getEntriesByName('first-contentful-paint')[0].startTime"))
    paint = {"first_paint_ms": round(sorted(paints)[len(paints) // 2], 1), "slowest_paint_ms": round(max(paints), 1)}
    return {**paint, **_browser_percent(many, address, live_s)}


def _browser_percent(many: ManyTables, address: Address, live_s: float) -> Run:
    """The percentage of a core that all processes of a browser take which shows the list: with no active table, with ten,
    with all.
    """
    found: Run = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [*_BROWSER, f"--user-data-dir={profile}", f"http://{address}/"]
        browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(_SETTLE_S)
        tree = Tree(browser.pid)
        for name, active in (
            ("idle", []),
            ("ten_active", many.tables[:: len(many.tables) // 10]),
            ("all_active", many.tables),
        ):
            began_s, cpu = time.perf_counter(), _of(tree)
            _commit_each_second(many, active, live_s)
            found[f"browser_{name}_percent"] = round(100 * (_of(tree) - cpu) / (time.perf_counter() - began_s), 2)
        tree.kill()
        browser.wait()
    return found


def _of(tree: Tree) -> float:
    tree.find_members()
    tree.update()
    return tree.cpu_s()


def _commit_each_second(many: ManyTables, active: list[Table], seconds: float) -> None:
    until_s = time.perf_counter() + seconds
    while time.perf_counter() < until_s:
        many.commit(active, 20)
        many.publish()
        time.sleep(1)


def _ask(address: Address, path: str) -> tuple[float, int]:
    began_s = time.perf_counter()
    request = urllib.request.Request(f"http://{address}{path}", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        size = len(answer.read())
    return round((time.perf_counter() - began_s) * 1000, 1), size


def _live(
    many: ManyTables, address: Address, active: list[Table], live_s: float, is_watched: bool = True
) -> tuple[float, int]:
    """Lets the active tables commit each second; the percentage of a core that serving takes, and the bytes per second of
    one stream.
    """
    read = [0]
    is_over = threading.Event()
    after = urllib.request.urlopen(f"http://{address}/").read().partition(b'data-live="')[2].partition(b'"')[0]
    watching = threading.Thread(target=_watch, args=(address, after.decode(), read, is_over), daemon=True)
    if is_watched:
        watching.start()
        time.sleep(2)
    cpu, began_s, first = _cpu_s(), time.perf_counter(), read[0]
    _commit_each_second(many, active, live_s)
    wall_s = time.perf_counter() - began_s
    is_over.set()
    return round(100 * (_cpu_s() - cpu) / wall_s, 2), round((read[0] - first) / wall_s)


def _watch(address: Address, after: str, read: list[int], is_over: threading.Event) -> None:
    with urllib.request.urlopen(f"http://{address}/events?after={after}") as stream:
        while not is_over.is_set():
            read[0] += len(stream.readline())


def _cpu_s() -> float:
    """The CPU time of the threads that serve: what the loop itself does is not the console's."""
    found = 0
    for thread in threading.enumerate():
        if thread.name.startswith(_SERVING):
            fields = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(")")[2].split()
            found += int(fields[11]) + int(fields[12])
    return found / _TICKS_PER_S
