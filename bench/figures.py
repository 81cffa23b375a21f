"""The figures of docs/start/compare.md: Frazil, the Kafka Connect sink, Spark Structured Streaming and Flink SQL at the same
load on the same machine, one after another: CPU, memory, freshness, recovery, and requests to an S3 store.

`make figures` measures all of it in three quarters of an hour, writes docs/figures.json and draws the page. What a run of
this does not measure keeps the entry of an earlier one, with its own date and number of runs.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench import connect, standby, subjects
from bench.feeding import feed_steadily
from bench.freshness import WITHOUT_MAINTENANCE, ages_of, first_records
from bench.loads import json_load
from bench.machine import CLOCK, describe, now_s
from bench.place import PARTITIONS, Place, Run, Surroundings, say
from bench.records import SCHEMA
from bench.running import Command, Running
from bench.start import first_new_commit_s
from bench.throughput import DEBUG_LOG, STOCK_CODECS, one_run, quietly, stock_job
from bench.topics import Feed, Feeder, delete_topics, make_topics
from bench.watch import Watcher
from docs.charts import Measured, entry_of, read_figures, write_figures
from frazil.clock import new_id
from frazil.runtime.jars import jars
from tests.fixtures.streaming import spark_jars
from tests.integration.servers import ObjectStore

_FLINK_KINDS = {"long": "bigint"}
_FLINK_COLUMNS = ", ".join(f"`{name}` {_FLINK_KINDS.get(kind, kind)}" for name, kind in SCHEMA.items())
_INTERVAL, _STOCK_TRIGGER, _FLINK_CHECKPOINT = "1s", "1 second", "1 s"
"""A commit each second, as each subject writes it."""
_FIRST_COMMIT_S = 120.0
_TAIL_S = 60.0
_KILL_RATE = 1_000
_REQUESTS_RATE, _REQUESTS_S = 1_000, 10.0
_LONGEST_S = 300.0
_REQUEST = re.compile(r'"(PUT|POST|GET|HEAD|DELETE) ')
_METADATA = re.compile(r'"PUT \S*metadata\.json')


def measure(place: Place) -> None:
    """Every subject that is chosen; each entry of the page is written as soon as it is measured."""
    for subject, what, runs, label in _every(place):
        place.write_result("figures", subject, what, runs)
        _keep(place, entry_of(subject, what, label, _quiet(runs), _circumstances(place)))


def measure_recovery_of_connect(place: Place) -> None:
    """The same of the sink's recovery, which takes a minute for each run."""
    with place.attempt("recovery of kafka connect"):
        if runs := connect.recovery(place):
            place.write_result("figures", "connect", "kill", runs)
            _keep(place, entry_of("connect", "kill", "", runs, _circumstances(place)))


def _keep(place: Place, measured: Measured) -> None:
    """Adds an entry to docs/figures.json."""
    file = place.settings.docs / "figures.json"
    write_figures(file, [*(read_figures(file) if file.exists() else ()), measured])


def _every(place: Place) -> Iterator[tuple[str, str, list[Run], str]]:
    """Yields subject, what was measured, its runs and the subject's setting."""
    chosen = place.settings.subjects
    for subject, run in {"frazil": _frazil_load, "stock": _stock_load, "flink": _flink_load}.items():
        if subject in chosen:
            with place.attempt(f"load of {subject}"):
                yield subject, "load", quietly(place, subject, "load", partial(run, place)), ""
    for subject, (command, label, recovers) in _STREAMS.items():
        if subject in chosen:
            with place.attempt(f"freshness of {subject}"):
                both = [_stream_run(place, subject, command, recovers) for _ in range(place.settings.runs_of(subject))]
                yield subject, "fresh", [fresh for fresh, _ in both], label
                if recovers:
                    yield subject, "kill", [kill for _, kill in both], ""
    if "frazil" in chosen:
        with place.attempt("recovery with a standby"):
            yield "frazil-with a standby", "kill", standby.recoveries(place, _INTERVAL), ""
    for subject, command in {"frazil": _frazil_on_s3, "stock": _stock_on_s3}.items():
        if subject in chosen:
            with place.attempt(f"requests of {subject}"):
                counted = [_requests_run(place, subject, command) for _ in range(place.settings.runs_of(subject))]
                yield subject, "requests", counted, ""
    if "connect" in chosen:
        for what, runs, label in connect.figures(place):
            yield "connect", what, runs, label


def _quiet(runs: Sequence[Run]) -> Sequence[Run]:
    return [run for run in runs if not run.get("noisy")] or runs


def _circumstances(place: Place) -> Mapping[str, str]:
    machine = describe()
    return {
        "date": place.today(),
        "commit": str(machine["commit"]),
        "machine": f"{machine['cores']} cores ({machine['cpu']}), {machine['memory_gib']} GiB",
    }


# ---- CPU, memory and records per second: a topic read to its end by a process that is warm


def _frazil_load(place: Place) -> Run:
    settings, load, folder = place.settings, json_load(place, "running"), place.run_folder("figures-frazil")
    pipeline = subjects.frazil_pipeline(folder, place.bootstrap, settings.heap, settings.catch_up_interval)
    command = subjects.frazil_table_command(
        settings.frazil, folder, pipeline, load.topic, load.table, "--until-caught-up", *DEBUG_LOG
    )
    return one_run(place, command, load)


def _stock_load(place: Place) -> Run:
    load = json_load(place, "running")
    job = {
        **stock_job(place, load.topic, metadata=False),
        "trigger": "available",
        "properties": STOCK_CODECS["zstd-1"],
        "source": {"maxOffsetsPerTrigger": str(place.settings.records)},
    }
    return one_run(place, subjects.stock_command(place.run_folder("figures-stock"), job), load)


def _flink_load(place: Place) -> Run:
    """The job of a topic with an end leaves what its last checkpoint should commit: this one goes on until it is stopped."""
    load = json_load(place, "running")
    job = {**_flink_job(place, load.topic), "checkpoint": _FLINK_CHECKPOINT, "bounded": False}
    command = subjects.stock_command(place.run_folder("figures-flink"), job, "bench.flink")
    return one_run(place, command, load, ends=False)


def _flink_job(place: Place, topic: str) -> dict[str, object]:
    job = {"bootstrap": place.bootstrap, "topic": topic, "heap": place.settings.heap}
    return {**job, "columns": _FLINK_COLUMNS, "select": "select * from records"}


# ---- freshness, and the time from kill -9 to the next commit


def _frazil_stream(place: Place, folder: Path, topic: str) -> Command:
    pipeline = subjects.frazil_pipeline(folder, place.bootstrap, place.settings.heap, _INTERVAL)
    return subjects.frazil_table_command(place.settings.frazil, folder, pipeline, topic, WITHOUT_MAINTENANCE)


def _stock_stream(place: Place, folder: Path, topic: str) -> Command:
    return subjects.stock_command(folder, {**stock_job(place, topic, metadata=False), "trigger": _STOCK_TRIGGER})


def _flink_stream(place: Place, folder: Path, topic: str) -> Command:
    job = {**_flink_job(place, topic), "checkpoint": _FLINK_CHECKPOINT, "bounded": False}
    return subjects.stock_command(folder, job, "bench.flink")


_STREAMS: Mapping[str, tuple[Any, str, bool]] = {
    "frazil": (_frazil_stream, "commit each second", True),
    "stock": (_stock_stream, "trigger each second", True),
    "flink": (_flink_stream, "checkpoint each second", False),
}
"""Each stream's command, its setting in words, and whether a restart continues it: Flink's recovery is its cluster's."""


def _stream_run(place: Place, subject: str, command: Any, recovers: bool) -> tuple[Run, Run]:
    """Feeds a running subject; then, where `recovers`, kills and restarts it while records arrive. Returns both runs."""
    settings, seconds = place.settings, place.settings.seconds_of(subject)
    folder, topic = place.run_folder(f"figures-{subject}"), f"bench_figures_{new_id()[:8]}"
    make_topics(place.bootstrap, [topic], PARTITIONS)
    around = Surroundings(place)
    feed = Feed(place.bootstrap, [topic], PARTITIONS, settings.rate, settings.warm_seconds, seconds)
    before = first_records(feed)
    running = Running(command(place, folder, topic))
    watcher = Watcher(running.command.table, folder / "seen.log")
    kill: Run = {}
    try:
        running.wait_for_rows(before, _FIRST_COMMIT_S)
        fed, cores = feed_steadily(running, feed, around)
        beside = around.end()
        running.wait_for_rows(before + fed.warm + fed.measured, _TAIL_S)
        seen = watcher.stop()
        fresh: Run = {"rate_per_s": settings.rate, "seconds": seconds, "cores": cores, **beside}
        fresh |= ages_of(running.command.table, seen, fed)
        if recovers:
            kill = {"recovered_s": _recovered_s(place, running, topic), **beside}
        else:
            running.stop_well()
    except BaseException:
        running.kill()
        raise
    fresh.pop("quantiles_ms")
    say(f"{subject}: {json.dumps({**fresh, **kill})}")
    place.discard(folder)
    delete_topics(place.bootstrap, [topic])
    return fresh, kill


def _recovered_s(place: Place, running: Running, topic: str) -> float:
    """Returns the seconds from kill -9, after which the process is started again at once, to its next commit."""
    feeder = Feeder(Feed(place.bootstrap, [topic], PARTITIONS, _KILL_RATE, _LONGEST_S, 0.0))
    again: Running | None = None
    try:
        running.wait_for_rows(running.command.table.committed() + 1, _TAIL_S)
        running.kill_driver()
        killed_s = now_s()
        again = Running(running.command)
        recovered_s = first_new_commit_s(again) - killed_s
        feeder.stop()
        again.stop_well()
    except BaseException:
        feeder.kill()
        raise
    finally:
        running.kill()
        if again is not None:
            again.kill()
    return round(recovered_s, 2)


# ---- requests to an S3 store


def _frazil_on_s3(place: Place, folder: Path, topic: str, store: ObjectStore) -> Command:
    pipeline: dict[str, Any] = subjects.frazil_pipeline(folder, place.bootstrap, place.settings.heap, _INTERVAL)
    pipeline["catalog"] |= {"warehouse": "s3://lake/bench", "properties": store.references()}
    command = subjects.frazil_table_command(place.settings.frazil, folder, pipeline, topic, WITHOUT_MAINTENANCE)
    return dataclasses.replace(command, environment=store.environment())


def _stock_on_s3(place: Place, folder: Path, topic: str, store: ObjectStore) -> Command:
    """Its checkpoint is in a local folder: in the store, each of its files would be a request more."""
    catalog = {
        "warehouse": "s3://lake/bench",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        **store.properties(),
    }
    conf = {f"spark.sql.catalog.lake.{name}": value for name, value in catalog.items()}
    conf["spark.jars"] = ",".join(str(path) for path in [*spark_jars(), *jars("s3")])
    job = {**stock_job(place, topic, metadata=False), "trigger": _STOCK_TRIGGER, "conf": conf}
    return subjects.stock_command(folder, job)


def _requests_run(place: Place, subject: str, command: Any) -> Run:
    """Counts the requests of some commits in the store's log, after the first commits; nobody else reads the store."""
    folder, topic = place.run_folder(f"figures-s3-{subject}"), f"bench_requests_{new_id()[:8]}"
    make_topics(place.bootstrap, [topic], PARTITIONS)
    store = ObjectStore(folder / "store", "AKFRAZILBENCHKEY", "not-a-secret")
    store.start()
    store.make_bucket("lake")
    feeder = Feeder(Feed(place.bootstrap, [topic], PARTITIONS, _REQUESTS_RATE, 0.0, _LONGEST_S))
    running = Running(command(place, folder, topic, store))
    try:
        _wait_for_commits(running, store, 5)
        before = store.log.read_text()
        CLOCK.sleep(_REQUESTS_S)
        text = store.log.read_text()[len(before) :]
        feeder.stop()
        running.stop_well()
    except BaseException:
        feeder.kill()
        raise
    finally:
        running.kill()
        store.kill()
    run = requests_of(text)
    say(f"{subject}: {json.dumps(run)}")
    place.discard(folder)
    delete_topics(place.bootstrap, [topic])
    return run


def _wait_for_commits(running: Running, store: ObjectStore, commits: int) -> None:
    deadline = CLOCK.monotonic_s() + _FIRST_COMMIT_S
    while len(_METADATA.findall(store.log.read_text())) < commits:
        running.check()
        if CLOCK.monotonic_s() > deadline:
            raise RuntimeError(f"no commit of {running.command.subject} in {_FIRST_COMMIT_S} s: {running.tail()}")
        CLOCK.sleep(0.2)


def requests_of(log: str) -> Run:
    """Returns the requests by kind and commit in the log of an S3 store, where each commit writes one metadata file."""
    commits = len(_METADATA.findall(log))
    if not commits:
        raise RuntimeError("the store's log has no commit")
    methods = _REQUEST.findall(log)
    writes, reads = (sum(method in kinds for method in methods) for kinds in (("PUT", "POST"), ("GET", "HEAD")))
    return {
        "commits": commits,
        "writes_per_commit": round(writes / commits, 2),
        "reads_per_commit": round(reads / commits, 2),
    }
