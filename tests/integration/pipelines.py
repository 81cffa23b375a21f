"""A pipeline run in a process of its own, forked where its user starts one, and the ledger of what was produced for it."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from frazil.runtime.jvm import Jvm
from tests.acceptance.ledger import Feed, Place
from tests.acceptance.ledger import Ledger as Acknowledged
from tests.fixtures.forks import run_to_end, start
from tests.fixtures.in_process import ended_on
from tests.fixtures.jvms import with_quick_jvms
from tests.fixtures.processes import plain_environment
from tests.fixtures.waiting import wait_until

_RUN_TIMEOUT_S = 280.0


class Ledger:
    """Produces numbered records to a new topic and remembers them, and where each lies."""

    def __init__(self, servers: str, topic: str, partitions: int = 2) -> None:
        self.servers, self.topic = servers, topic
        self.count = 0
        self._partitions = partitions
        admin = AdminClient({"bootstrap.servers": servers})
        for created in admin.create_topics([NewTopic(topic, partitions)]).values():
            created.result(timeout=20)

    def produce(self, count: int) -> None:
        for number in range(self.count, self.count + count):
            value = {"number": number, "word": f"w{number % 97}", "half": number / 2}
            self._feed.send(self.topic, [value], number % self._partitions)
        self._feed.flush()
        self.count += count

    @cached_property
    def _feed(self) -> Feed:
        return Feed(self.servers, Acknowledged(), {"queue.buffering.max.messages": 2_000_000})

    @property
    def records(self) -> Mapping[Place, bytes | None]:
        """What the broker acknowledged."""
        return self._feed.ledger.records


def ended(
    directory: Path, file: Path, *words: str, environment: Mapping[str, str] = MappingProxyType({})
) -> subprocess.CompletedProcess[str]:
    """A command with a pipeline file, run in a directory to its end."""
    return run_to_end([*words, "--file", str(file)], directory, {**plain_environment(), **environment}, _RUN_TIMEOUT_S)


class Pipeline:
    """A pipeline file in `directory`, and the runs of it; every word they write is kept in `reported`."""

    def __init__(
        self,
        directory: Path,
        document: Mapping[str, Any],
        environment: Mapping[str, str] | None = None,
        jvm: Jvm | None = None,
    ) -> None:
        """jvm: what commands and runs to their end use, in this process and not in `reported`; without an HTTP service then,
        unless the document has one. None: each is a process.
        """
        self.directory = directory
        self.file = directory / "frazil.yaml"
        self._environment = dict(environment or {})
        self._jvm = jvm
        directory.mkdir(parents=True, exist_ok=True)
        whole = document if jvm is None else {"http": False, **document}
        self.file.write_text(yaml.safe_dump(with_quick_jvms(whole)))

    @property
    def reported(self) -> str:
        """Everything that all runs have written so far, to either stream."""
        return "".join(path.read_text() for path in sorted(self.directory.glob("run-*.*")))

    @property
    def state_text(self) -> str:
        return "".join(path.read_text() for path in (self.directory / "frazil-data" / "state").glob("*.json"))

    def run(self, *words: str) -> dict[str, Any]:
        """`run --until-caught-up` to its end, which must be well; the document it prints."""
        if self._jvm is not None:
            code, document = ended_on(self._jvm, self.file, self._environment, "run", "--until-caught-up", *words)
            assert code == 0, document
            return document
        with self.start("--until-caught-up", *words) as running:
            return running.result()

    def checks(self) -> list[dict[str, Any]]:
        """What `check` finds."""
        done, document = self.command("check")
        found: list[dict[str, Any]] = document["checks"]
        assert done.returncode == (0 if all(check["ok"] for check in found) else 1), done.stderr
        return found

    def status(self) -> dict[str, Any]:
        """What `status` reports of each table."""
        tables: dict[str, Any] = self.command("status")[1]["tables"]
        return tables

    def command(self, *words: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
        """A command as it ended, and the document that it printed."""
        if self._jvm is not None:
            code, document = ended_on(self._jvm, self.file, self._environment, *words)
            return subprocess.CompletedProcess(words, code, "", str(document)), document
        done = ended(self.directory, self.file, *words, "--output", "json", environment=self._environment)
        return done, json.loads(done.stdout)

    def start(self, *words: str) -> Running:
        return Running(self.directory, [*words, "--file", str(self.file)], self._environment)


class Running:
    """One `frazil run`; killed where its block ends, if it is still there."""

    def __init__(self, directory: Path, words: list[str], environment: Mapping[str, str]) -> None:
        number = len(list(directory.glob("run-*.out")))
        self._out, self._err = (directory / f"run-{number}.{stream}" for stream in ("out", "err"))
        command = ["run", *words, "--output", "json", "--log-format", "json"]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = start(command, directory, {**plain_environment(), **environment}, out, err)
        self.pid = self._process.pid
        self._events: list[dict[str, Any]] = []
        self._read_to = 0

    def events(self) -> list[dict[str, Any]]:
        """The log so far."""
        with self._err.open("rb") as log:
            log.seek(self._read_to)
            whole, end, _ = log.read().rpartition(b"\n")
        self._read_to += len(whole + end)
        self._events += _documents(whole.decode())
        return self._events

    def wait_for(self, event: str, times: int = 1, within_s: float = _RUN_TIMEOUT_S) -> list[dict[str, Any]]:
        """The events of that name, when there are as many."""

        def question() -> list[dict[str, Any]] | None:
            found = self.events_named(event)
            if len(found) >= times:
                return found
            assert self._process.poll() is None, self._err.read_text()[-3000:]
            assert event == "table_stopped" or not self.events_named("table_stopped"), self._err.read_text()[-3000:]
            return None

        return wait_until(question, lambda: f"{event}: {self._err.read_text()[-3000:]}", within_s)

    def events_named(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.events() if line.get("event") == event]

    def wait_until_committed(self, count: int) -> None:
        """Until this run has committed as many records."""
        committed = 0
        while committed < count:
            done = self.events_named("batch_committed")
            committed = sum(line["records"] for line in done)
            if committed < count:
                self.wait_for("batch_committed", len(done) + 1)

    def stop(self) -> dict[str, Any]:
        """SIGTERM: the batch in hand is committed."""
        self._process.send_signal(signal.SIGTERM)
        return self.result()

    def result(self, within_s: float = _RUN_TIMEOUT_S) -> dict[str, Any]:
        try:
            code = self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"not done within {within_s} s: {self._err.read_text()[-3000:]}") from None
        assert code == 0, self._out.read_text() + self._err.read_text()[-3000:]
        document: dict[str, Any] = json.loads(self._out.read_text().splitlines()[-1])
        return document

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for a signal."""
        return self._process.poll()

    @property
    def has_ended(self) -> bool:
        """Whether the process is not there any more."""
        return self.exit_code is not None

    def wait_for_death(self, within_s: float = _RUN_TIMEOUT_S) -> None:
        """Until a failpoint has killed it."""
        assert self._process.wait(within_s) == -signal.SIGKILL, self._err.read_text()[-3000:]

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """SIGKILL."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(20)


def _documents(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found
