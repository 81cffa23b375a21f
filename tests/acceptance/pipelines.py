"""A pipeline under test: its folder, its file, the processes that run it, and what can be seen of it from outside."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from frazil.clock import new_id
from frazil.runtime.jvm import Jvm
from frazil.runtime.light_jvm import LightJvm
from tests.acceptance.lakes import Lake
from tests.acceptance.ledger import Feed, Ledger, TransactionalFeed
from tests.acceptance.running import Run
from tests.acceptance.topics import Topics
from tests.acceptance.verifier import (
    Metadata,
    Verdict,
    canonical,
    document_of,
    metadata_at,
    metadata_location,
    metadata_locations,
    newest_commit,
    newest_snapshot,
    progress_at,
    values_of,
    verify,
)
from tests.fixtures.foreign_spark import ForeignSpark
from tests.fixtures.forks import run_to_end, start
from tests.fixtures.in_process import ended_on
from tests.fixtures.jvms import QUICK_JVM
from tests.fixtures.readers import Read, assert_equal_everywhere
from tests.fixtures.waiting import PATIENCE_S, wait_until

PLACE = ["topic", "partition", "offset"]
Document = dict[str, Any]
READS_OLDER = bool(os.environ.get("FRAZIL_READ_OLDER"))
"""Whether every reader reads older snapshots of each table in the end too, as in `make test-all`."""


class Pipeline:
    """One pipeline file in a folder of its own, with a producer and the ledger of all it was told."""

    def __init__(self, folder: Path, servers: str, spark: ForeignSpark, lake: Lake | None = None) -> None:
        """spark: reads what is checked, beside the readers of this process. lake: has the tables, in place of `folder`."""
        self.folder = folder
        self.servers = servers
        self._spark = spark
        self._lake = lake
        self.name = f"p{new_id()[:8]}"
        self._namespace = self.name if lake else "t"
        self.catalog_file = folder / "frazil-data" / "catalog.db"
        """Of a local lake."""
        self.ledger = Ledger()
        self.feed = Feed(servers, self.ledger)
        self.topics = Topics(servers)
        self.readers: dict[str, Mapping[str, Read]] = {}
        """Who is asked for tables that are too large for all readers."""
        self._compared: set[str] = set()
        self._runs: list[Run] = []
        self._sources: dict[str, list[str]] = {}
        (folder / "tmp").mkdir(parents=True)
        self.document: Document = {
            "pipeline": self.name,
            "kafka": {"bootstrap.servers": servers},
            "spark": {"conf": {"spark.driver.extraJavaOptions": QUICK_JVM}},
            "commit": {"interval": "200ms"},
            **({"catalog": lake.section()} if lake else {}),
            "tables": {},
        }

    def new_topic(self, word: str = "topic", partitions: int = 2, properties: Mapping[str, str] | None = None) -> str:
        """Makes a topic with a name of its own."""
        return self.topics.create(f"{word}-{new_id()[:8]}", partitions, properties)

    def transactional_feed(self) -> TransactionalFeed:
        """Another producer into the same ledger."""
        return TransactionalFeed(self.servers, self.ledger)

    def expect_in(self, table: str, topic: str) -> None:
        """From now on the table must have the topic's records too."""
        self._sources[table].append(topic)

    def add_table(self, name: str, *topics: str, **settings: Any) -> str:
        """Declares `t.<name>`, fed by topics, with the columns that tell where a record came from.

        In a lake that others use too the namespace is not `t`.
        """
        table = f"{self._namespace}.{name}"
        source = {"topic": topics[0]} if len(topics) == 1 and topics[0][0] != "/" else {"topics": list(topics)}
        self.document["tables"][table] = {**source, "metadata": PLACE, **settings}
        self._sources[table] = [topic for topic in topics if topic[0] != "/"]
        return table

    def add_fed_table(self, name: str, partitions: int = 2, **settings: Any) -> tuple[str, str]:
        """A table and the new topic that feeds it."""
        topic = self.new_topic(name, partitions)
        return self.add_table(name, topic, **settings), topic

    def run(
        self,
        *words: str,
        failpoints: str = "",
        environment: Mapping[str, str] | None = None,
        program: tuple[str, ...] = (),
    ) -> Run:
        """Starts `frazil run` with the file as it is now. program: what Python runs in place of Frazil's own."""
        file, own = self._write_file(), self._environment(failpoints)
        run = Run(self.folder, ("-f", str(file), *words), {**own, **(environment or {})}, program)
        self._runs.append(run)
        return run

    def command(self, *words: str, failpoints: str = "", expected: int = 0, within_s: float = PATIENCE_S) -> Document:
        """Runs another command with the file as it is now, to its end; what it printed, nothing if it was killed."""
        asked = [*words, "-f", str(self._write_file()), "--output", "json"]
        done = run_to_end(asked, self.folder, {**os.environ, **self._environment(failpoints)}, within_s)
        assert done.returncode == expected, done.stdout + done.stderr
        document: Document = json.loads(done.stdout or "{}")
        return document

    def command_on(self, jvm: Jvm | LightJvm, *words: str, expected: int = 0) -> Document:
        """Runs another command in the process of the tests, with the file as it is now; what it printed."""
        code, document = ended_on(jvm, self._write_file(), self._environment(""), *words)
        assert code == expected, document
        return document

    def attempt(self, *words: str, failpoints: str = "", within_s: float = PATIENCE_S) -> int:
        """Runs another command; its exit code. SIGKILL after so long."""
        asked, environment = [*words, "-f", str(self._write_file())], {**os.environ, **self._environment(failpoints)}
        with (self.folder / "attempts.log").open("ab") as log:
            process = start(asked, self.folder, environment, log, log)
        try:
            return process.wait(within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def _write_file(self) -> Path:
        file, text = self.folder / "frazil.yaml", yaml.safe_dump(self.document, sort_keys=False)
        if not file.exists() or file.read_text() != text:  # Commands that run at a time may read it.
            file.write_text(text)
        return file

    def _environment(self, failpoints: str) -> dict[str, str]:
        return {
            **(self._lake.environment() if self._lake else {}),
            "FRAZIL_FAILPOINTS": failpoints,
            "FRAZIL_MIN_ORPHAN_AGE": "1ms",
            "TMPDIR": str(self.folder / "tmp"),
        }

    @contextmanager
    def running(self, *words: str, failpoints: str = "", environment: Mapping[str, str] | None = None) -> Iterator[Run]:
        """A run that is ended, with all it started, when the block is left."""
        run = self.run(*words, failpoints=failpoints, environment=environment)
        try:
            yield run
        finally:
            run.close()

    def catch_up(self, expected: int = 0) -> Document:
        """Runs until caught up; what the command printed."""
        with self.running("--until-caught-up") as run:
            assert run.wait() == expected, run.tail()
            return run.result()

    def current(self, table: str) -> Metadata | None:
        """The table's current metadata file, wherever the table is."""
        lake = self._lake
        location = lake.locations(self.name).get(table) if lake else metadata_location(self.catalog_file, table)
        return self._metadata_at(location) if location else None

    def _metadata_at(self, location: str) -> Metadata:
        return metadata_at(location, self._lake.properties() if self._lake else {})

    def metadata(self, table: str) -> Path | None:
        """The current metadata file of a local table."""
        found = self.current(table)
        assert found is None or isinstance(found, Path)
        return found

    def progress(self, table: str) -> dict[str, dict[int, int]]:
        """The next offsets that the newest snapshot names."""
        return self._progress_at(self.current(table))

    def _progress_at(self, metadata: Metadata | None) -> dict[str, dict[int, int]]:
        document = document_of(metadata) if metadata else {}
        newest = newest_snapshot(document)
        return progress_at(document, newest, self.name) if newest else {}

    def state_file(self) -> Document:
        """What the newest run reports of itself; empty when it reports nothing."""
        try:
            document: Document = json.loads((self.folder / "frazil-data" / "state" / f"{self.name}.json").read_text())
        except (OSError, ValueError):
            return {}
        return document

    def state(self, table: str) -> Document:
        """What the state file reports of the table; empty when it reports nothing."""
        found: Document = self.state_file().get("tables", {}).get(table, {})
        return found

    def wait_for_state(
        self, run: Run, table: str, state: str, reason: str = "", within_s: float = PATIENCE_S
    ) -> Document:
        """Waits until the running pipeline reports it of the table, for a reason with these words; all that it reports
        then.
        """
        reported: Document = {}

        def is_reported() -> bool:
            reported.update(self.state(table))
            return reported.get("state") == state and reason in reported["reason"]

        run.wait_while_running(is_reported, f"{table} is {state} {reason}", within_s)
        return reported

    def wait_for_commit_of(self, table: str, run: Run | None = None, within_s: float = PATIENCE_S) -> None:
        """Waits until everything in the ledger for the table's topics is committed."""
        self.wait_for_offsets(table, self.ledger.ends(self._sources[table]), run, within_s)

    def wait_for_offsets(
        self, table: str, goal: Mapping[str, Mapping[int, int]], run: Run | None, within_s: float = PATIENCE_S
    ) -> None:
        """Waits until the table's progress is at `goal` or beyond."""
        looked_at: Metadata | None = None

        def is_reached() -> bool:
            nonlocal looked_at
            metadata = self.current(table)
            if metadata is not None and metadata == looked_at:
                return False  # Nobody writes over a metadata file, and one of many snapshots takes long to read.
            looked_at, now = metadata, self._progress_at(metadata)
            return all(now.get(t, {}).get(p, 0) >= end for t, ends in goal.items() for p, end in ends.items())

        if run is not None:
            run.wait_while_running(is_reached, f"{table} has {goal}", within_s)
        else:
            wait_until(is_reached, lambda: f"{table} has {goal}: {self.progress(table)}", within_s)

    def wait_until_settled(self, table: str, run: Run) -> None:
        """Waits until everything in the ledger is committed and the run knows: it is past every step of those batches."""
        self.wait_for_commit_of(table, run)
        metadata = self.current(table)
        assert metadata is not None
        document = document_of(metadata)
        head = newest_snapshot(document)
        newest = head and newest_commit(document, head, self.name)
        reported_again_ms = newest and newest["summary"].get(f"frazil.{self.name}.committed-at")
        committed_ms = int(reported_again_ms) if reported_again_ms else newest and newest["timestamp-ms"]

        def is_settled() -> bool:
            reported = self.state(table)
            return self.state_file().get("pid") == run.pid and reported.get("last_commit_ms") == committed_ms

        run.wait_while_running(is_settled, f"the run knows of the commit of {table} at {committed_ms}")

    def verify(self, table: str) -> Verdict:
        """The table against the ledger, whatever its progress is."""
        metadata = self.current(table)
        assert metadata is not None, f"there is no table {table}"
        topics = set(self._sources[table])
        records = {place: value for place, value in self.ledger.records.items() if place[0] in topics}
        return verify(metadata, self.name, records)

    def check(self, table: str, is_complete: bool = True) -> Verdict:
        """Lost 0, doubled 0, invented 0, mismatched 0 at every snapshot, the same for every reader; complete: and all of the
        ledger is there.
        """
        verdict = self.verify(table)
        assert verdict.problems == []
        self.check_readers(table)
        assert verdict.snapshot_count > 0
        if is_complete:
            records = [place for place in self.ledger.records if place[0] in self._sources[table]]
            assert verdict.row_count == len(records)
        return verdict

    def check_by_verify(self, jvm: Jvm) -> None:
        """`frazil verify` agrees with the ledger of these tests: no table that it judges differs, and it judges some."""
        for level in ("--independent", "--ledger"):
            _, document = ended_on(jvm, self._write_file(), self._environment(""), "verify", level)
            tables = document["tables"]
            assert [name for name, of in tables.items() if of["equal"] is False] == [], document
            assert any(of["equal"] for of in tables.values()), document

    def check_readers(self, table: str) -> None:
        """Spark, PyIceberg, DuckDB and Polars answer the same rows, of the newest snapshots and the oldest."""
        metadata = self.current(table)
        assert metadata is not None, f"there is no table {table}"
        self._compare(table, metadata)

    def _compare(self, table: str, metadata: Metadata, snapshots: Sequence[int] | None = None) -> None:
        readers = self.readers.get(table)
        assert_equal_everywhere(metadata, snapshots, None if readers else self._spark, readers)
        self._compared.add(str(metadata))

    def check_all_readers(self) -> None:
        """The same of every table that there is, dead letters and changelogs among them, as they are now: of the newest
        snapshots, with READS_OLDER of the oldest too.
        """
        found = self._lake.locations(self.name) if self._lake else metadata_locations(self.catalog_file)
        for table, location in found.items():
            metadata = self._metadata_at(location)
            newest = newest_snapshot(document_of(metadata))
            if str(metadata) not in self._compared and newest is not None:
                self._compare(table, metadata, None if READS_OLDER else [newest["snapshot-id"]])

    def summary(self, table: str, part: str) -> Any:
        """One part of the newest progress, as it stands in the snapshot's summary; None when it is not there."""
        metadata = self.current(table)
        assert metadata is not None
        snapshots = document_of(metadata)["snapshots"]
        texts = [one["summary"].get(f"frazil.{self.name}.{part}") for one in snapshots]
        return next((json.loads(text) for text in reversed(texts) if text is not None), None)

    def holds_values_of(self, table: str, topic: str) -> bool:
        """Whether a table without places has exactly the values of a topic."""
        metadata = self.metadata(table)
        assert metadata is not None
        values = [value for value in self.ledger.of(topic).values() if value is not None]
        return values_of(metadata) == Counter(canonical(json.loads(value)) for value in values)

    def feed_elsewhere(self, topic: str, values: Iterable[Any]) -> None:
        """Produces records that no table may ever show."""
        Feed(self.servers, Ledger()).produce(topic, values)

    def close(self) -> None:
        """Ends every process that was started for it."""
        for run in self._runs:
            run.close()


@contextmanager
def opened(folder: Path, servers: str, spark: ForeignSpark, lake: Lake | None = None) -> Iterator[Pipeline]:
    """A pipeline that is ended when the block is left. No table of it goes without having been read by all readers."""
    made = Pipeline(folder, servers, spark, lake)
    try:
        yield made
    finally:
        made.close()
    made.check_all_readers()
