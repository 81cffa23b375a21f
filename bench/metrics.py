"""What a scrape of a thousand tables costs: the HTTP service of a process on the ports in memory, asked over loopback."""

from __future__ import annotations

import json
import socket
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.place import Place, Run, say
from frazil.api.redaction import Redaction
from frazil.clock import SystemClock
from frazil.ingest.batches.services import Services
from frazil.ingest.loop.service import Service
from frazil.ops.running import OwnServices, Parts, RunningPipeline
from frazil.ops.state_file import StateFile
from frazil.spec import CatalogSpec, PipelineSpec, TableSpec, TopicSelector
from frazil.spec.connections import HttpSpec
from frazil.spec.settings import CommitSpec
from frazil.spec.syntax.forms import Address
from frazil_http.server import open_server
from frazil_testing.twins import FakeClock, MemoryCatalog, MemoryJobs, MemorySource, StepWorkers

TABLES = 1000
_SCRAPES = 20


def measure(place: Place) -> None:
    """Scrapes, and lists of all tables."""
    if "frazil" not in place.settings.subjects:
        return
    with place.attempt("what a scrape costs"), tempfile.TemporaryDirectory() as folder:
        runs = [run_of(Path(folder))]
        say(json.dumps(runs[0]))
        place.write_result("metrics", "frazil", f"{TABLES}-tables", runs)


def run_of(folder: Path, tables: int = TABLES) -> Run:
    """The milliseconds and the size of a scrape, and of the list of tables, of a process with so many tables."""
    with _served(folder, tables) as address:
        scrapes = [_ask(address, "/metrics") for _ in range(_SCRAPES)]
        lists = [_ask(address, "/api/v1/tables") for _ in range(_SCRAPES)]
    return {
        "tables": tables,
        "scrape_ms": _median(scrapes),
        "scrape_max_ms": max(took_ms for took_ms, _ in scrapes),
        "scrape_bytes": scrapes[-1][1],
        "list_ms": _median(lists),
        "list_bytes": lists[-1][1],
    }


def _median(found: list[tuple[float, int]]) -> float:
    return sorted(took_ms for took_ms, _ in found)[len(found) // 2]


def _ask(address: Address, path: str) -> tuple[float, int]:
    began_s = time.perf_counter()
    with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as answer:
        size = len(answer.read())
    return round((time.perf_counter() - began_s) * 1000, 1), size


@contextmanager
def _served(folder: Path, tables: int) -> Iterator[Address]:
    """A process whose tables have a row each, and the address of its service."""
    clock, source, catalog = FakeClock(), MemorySource(), MemoryCatalog(folder, "p")
    topics = [f"topic_{number:04}" for number in range(tables)]
    for topic in topics:
        source.create(topic)
        source.produce(topic, 0, b'{"id": 1, "name": "x"}', clock.now_ms())
    spec = PipelineSpec(
        pipeline="p",
        kafka={},
        catalog=CatalogSpec(uri=""),
        tables=tuple(
            TableSpec(name=f"n.{topic}", topics=(TopicSelector(literal=topic),), commit=CommitSpec())
            for topic in topics
        ),
        path=folder / "p.yaml",
        state_dir=folder,
    )
    state_file = StateFile(folder, "p", SystemClock(), str)
    services = Services(source, catalog, MemoryJobs(source), clock, workers=StepWorkers(clock))
    service = Service(spec, services, "run-1", state_file.write)
    service.run(until_caught_up=True)
    running = RunningPipeline(spec, state_file, SystemClock(), Redaction().document, Parts(service, _no_services))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = Address("127.0.0.1", free.getsockname()[1])
    server = open_server(HttpSpec(listen=address), "frazil_http.app:make_app", running)
    assert server is not None
    server.start()
    server.begin()
    try:
        yield address
    finally:
        server.stop()


def _no_services() -> OwnServices:
    raise AssertionError("a scrape asks neither Kafka nor the catalog")
