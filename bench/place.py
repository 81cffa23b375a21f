"""Where a benchmark happens: one broker for all subjects, a folder for each run, a file for each result."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import KafkaException
from pyarrow import ArrowException

from bench import machine
from bench.arithmetic import summary
from bench.records import Pool, make_pool
from bench.settings import Settings
from bench.topics import fill, make_topics
from bench.tree import Sampler, Tree
from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker

Run = dict[str, object]
JSON_TOPIC = "bench_json"
PARTITIONS = 4


@dataclasses.dataclass
class Place:
    """The broker and the folders of one invocation, and in `ours` the CPU of all that it started, broker included.

    A big topic is filled once, when it is first needed. invocation: tells its results from those of another one.
    """

    settings: Settings
    bootstrap: str
    broker_pid: int
    folder: Path
    ours: Sampler
    pool: Pool = dataclasses.field(default_factory=make_pool)
    failures: list[str] = dataclasses.field(default_factory=list)
    invocation: str = dataclasses.field(default_factory=new_id)
    _filled: set[str] = dataclasses.field(default_factory=set)

    def topic(self, prefix: str, pool: Pool, records: int) -> str:
        """A topic with so many records of a pool, named by both."""
        topic = f"{prefix}_{records}"
        if topic not in self._filled:
            say(f"filling {topic}")
            make_topics(self.bootstrap, [topic], PARTITIONS)
            fill(self.bootstrap, topic, PARTITIONS, pool.value, records)
            self._filled.add(topic)
        return topic

    @contextlib.contextmanager
    def attempt(self, label: str) -> Iterator[None]:
        """A subject that fails has no figure, and does not take the others' figures with it."""
        say(f"{label} begins")
        try:
            yield
        except (RuntimeError, OSError, KeyError, KafkaException, ArrowException) as error:
            say(f"{label} failed: {error}")
            self.failures.append(label)

    def run_folder(self, label: str) -> Path:
        """A fresh folder for one run."""
        path = self.folder / f"{label}-{new_id()[:8]}"
        path.mkdir(parents=True)
        return path

    def today(self) -> str:
        """The date, in UTC."""
        return datetime.datetime.fromtimestamp(machine.now_s(), datetime.UTC).date().isoformat()

    def discard(self, folder: Path) -> None:
        """Frees the disk that a finished run took."""
        if not self.settings.keep:
            shutil.rmtree(folder, ignore_errors=True)

    def write_result(self, benchmark: str, subject: str, variant: str, runs: list[Run], **more: object) -> Path:
        """The runs and their summary as a JSON file; noisy runs are in it but count only where no other is there."""
        quiet = [run for run in runs if not run.get("noisy")]
        result = {
            "benchmark": benchmark,
            "subject": subject,
            "variant": variant,
            "invocation": self.invocation,
            "finished": datetime.datetime.fromtimestamp(machine.now_s(), datetime.UTC).isoformat(timespec="seconds"),
            "command": ["python", "-m", "bench", *_arguments(sys.argv[1:])],
            "machine": machine.describe(),
            "settings": {
                name: list(value) if isinstance(value, tuple) else value
                for name, value in dataclasses.asdict(self.settings).items()
                if not isinstance(value, Path)
            },
            "quiet_runs": len(quiet),
            "summary": summary(quiet or runs),
            "runs": runs,
            **more,
        }
        self.settings.results.mkdir(parents=True, exist_ok=True)
        stamp = datetime.datetime.fromtimestamp(machine.now_s(), datetime.UTC).strftime("%Y%m%dT%H%M%S")
        path = self.settings.results / f"{stamp}-{benchmark}-{subject}-{variant}.json"
        path.write_text(json.dumps(result, indent=1) + "\n")
        return path


def _arguments(words: list[str]) -> list[str]:
    """The arguments without those that name this machine's folders: a result is published."""
    paths = {f"--{field.name}" for field in dataclasses.fields(Settings) if field.type == "Path"}
    pairs = zip(["", *words], words, strict=False)
    return [word for before, word in pairs if word not in paths and before not in paths]


class Surroundings:
    """What else the machine and the broker did during a run: everything that is not this process or its children."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.quiet_before = machine.wait_until_quiet(place.settings.quiet_cores, place.settings.quiet_wait_s)
        self.speed_before = machine.speed_mb_per_s()
        self.start()

    def start(self) -> None:
        """Counts from here."""
        self._began = machine.CLOCK.monotonic_s()
        self._before = self._counters()

    def end(self, records: int = 0) -> Run:
        """What was counted since, for the run's result."""
        wall = machine.CLOCK.monotonic_s() - self._began
        busy, ours, broker = (after - before for after, before in zip(self._counters(), self._before, strict=True))
        others = max(0.0, busy - ours) / wall
        result: Run = {
            "quiet_before_cores": self.quiet_before,
            "speed_before_mb_per_s": self.speed_before,
            "other_cores": round(others, 3),
            "broker_cpu_s": round(broker, 2),
            "noisy": others > self._place.settings.quiet_cores,
        }
        if records:
            result["broker_cpu_s_per_million"] = round(broker / records * 1e6, 3)
        return result

    def _counters(self) -> tuple[float, float, float]:
        ours = self._place.ours.sample()
        broker = Tree(self._place.broker_pid).cpu_s() if self._place.broker_pid else 0.0
        outside = 0.0 if self._place.broker_pid in self._place.ours.tree else broker
        return machine.busy_s(), ours + outside, broker


@contextlib.contextmanager
def open_place(settings: Settings) -> Iterator[Place]:
    """A place with a broker of its own, or at the broker that the settings name."""
    machine.adopt_orphans()
    folder = settings.cache / f"work-{new_id()[:8]}"
    folder.mkdir(parents=True)
    ours = Sampler(Tree(os.getpid()), interval_s=0.5, with_memory=False).start()
    try:
        if settings.bootstrap:
            yield Place(settings, settings.bootstrap, settings.broker_pid, folder, ours)
            return
        with EmbeddedBroker(folder / "broker") as broker:
            yield Place(settings, broker.bootstrap_servers, broker.pid, folder, ours)
    finally:
        ours.stop()
        if not settings.keep:
            shutil.rmtree(folder, ignore_errors=True)


def say(text: str) -> None:
    """One line of progress."""
    clock = datetime.datetime.fromtimestamp(machine.now_s(), datetime.UTC).strftime("%H:%M:%S")
    print(f"{clock} {text}", file=sys.stderr, flush=True)
