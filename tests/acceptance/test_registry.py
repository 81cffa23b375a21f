"""Producers that change their schema ten times, in every format of the registry, with damaged records among theirs, a
registry that goes away, and kill -9 in between: the table and its dead letters hold every record once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.acceptance.pipelines import Pipeline
from tests.acceptance.running import Run
from tests.acceptance.verifier import read_newest
from tests.acceptance.writers import VERSIONS, WRITERS, Row, Writer
from tests.fixtures.processes import frozen
from tests.fixtures.registry import ApicurioRegistry
from tests.integration.servers import Relay

pytestmark = pytest.mark.timeout(900)

PER_VERSION = 80
DAMAGED_EVERY = 50
CUT_AT, FROZEN_AT, KILLED_AT = 3, 7, (5, 9)
Place = tuple[str, int, int]


class Stream:
    """One format's topic, its table, and what of each of its records must become."""

    def __init__(self, pipeline: Pipeline, registry: ApicurioRegistry, writer: Writer) -> None:
        self.pipeline = pipeline
        self.writer = writer
        self.table, self.topic = pipeline.add_fed_table(writer.format, value={"format": writer.format})
        self.ids: dict[int, int] = {}
        self.rows: dict[bytes, Row] = {}
        self.damaged: set[bytes] = set()
        self._registry = registry
        self._number = 0

    def register(self, version: int) -> None:
        """The version is known to the registry from now on."""
        text = self.writer.text(version)
        self.ids[version] = self._registry.register(f"{self.topic}-value", self.writer.kind, text)

    def produce(self, newest: int) -> None:
        """Records of the newest version, of the one before it and of the first, in turn; some of them damaged."""
        values = []
        for _ in range(PER_VERSION):
            self._number += 1
            version = (newest, max(1, newest - 1), newest, 1)[self._number % 4]
            written = self.writer.write(version, self._number)
            value = self.writer.frame(self.ids[version], written.body)
            if self._number % DAMAGED_EVERY == 7:
                value = self._damage(value)
                self.damaged.add(value)
            else:
                self.rows[value] = written.row
            values.append(value)
        self.pipeline.feed.produce(self.topic, values)

    def _damage(self, value: bytes) -> bytes:
        """Cut short, or with another first byte, or with an id that nobody knows; the number keeps it apart."""
        mark = str(self._number).encode()
        kinds = (value[:-1], b"\x07" + value[1:] + mark, value[:1] + b"\x7f\xff\xff\xfe" + value[5:] + mark)
        return kinds[self._number // DAMAGED_EVERY % len(kinds)]

    def check(self) -> None:
        """Every record is a row with its values, or a letter with its bytes; never both, never neither."""
        records = self.pipeline.ledger.of(self.topic)
        expected: dict[Place, bytes] = {place: value for place, value in records.items() if value is not None}
        rows = self._read(self.table)
        letters = self._read(f"{self.table}__dead_letters")
        found = {(row["_topic"], row["_partition"], row["_offset"]): row for row in rows}
        kept = {(row["topic"], row["partition"], row["offset"]): bytes(row["value"]) for row in letters}
        assert (len(found), len(kept)) == (len(rows), len(letters)), "something is there twice"
        assert kept == {place: value for place, value in expected.items() if value in self.damaged}
        assert found.keys() == {place for place, value in expected.items() if value in self.rows}
        for place, row in found.items():
            wanted = self.rows[expected[place]]
            values = {name: _plain(value) for name, value in row.items() if not name.startswith("_")}
            assert values == {**dict.fromkeys(values), **{name: _plain(value) for name, value in wanted.items()}}, place

    def _read(self, table: str) -> list[dict[str, Any]]:
        metadata = self.pipeline.metadata(table)
        assert metadata is not None, f"there is no table {table}"
        return read_newest(metadata)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[ApicurioRegistry]:
    """A registry that takes every change."""
    made = ApicurioRegistry(tmp_path / "registry")
    made.start()
    made.ask("PUT", "/config", {"compatibility": "NONE"})
    yield made
    made.kill()


def test_every_record_of_ten_schemas_is_a_row_or_a_letter_whatever_goes_away(
    pipeline: Pipeline, registry: ApicurioRegistry
) -> None:
    relay = Relay(registry.port)
    relay.join()
    pipeline.document["registry"] = {"url": registry.api.replace(f":{registry.port}/", f":{relay.port}/")}
    streams = [Stream(pipeline, registry, writer) for writer in WRITERS]
    run = _meet(pipeline, None, streams, 1)
    troubles: dict[int, Callable[[], AbstractContextManager[None]]] = {
        CUT_AT: relay.away,
        FROZEN_AT: partial(frozen, registry.pid),
    }
    for version in range(2, VERSIONS + 1):
        trouble = troubles.get(version)
        if trouble is not None:
            _register(streams, version)
            with trouble():
                _produce(streams, version)
                _wait_for_outage(pipeline, run, streams)
        elif version in KILLED_AT:
            _register(streams, version)
            _produce(streams, version)
            run.kill()
            run.close()
            run = pipeline.run()
        run = _meet(pipeline, run, streams, version)
    assert not run.seen("table_stopped")
    assert run.stop() == 0, run.tail()
    for stream in streams:
        stream.check()
    relay.cut()


def _meet(pipeline: Pipeline, run: Run | None, streams: list[Stream], version: int) -> Run:
    """All that was produced by now, and some more of this version, is committed."""
    _register(streams, version)
    _produce(streams, version)
    run = run or pipeline.run()
    for stream in streams:
        pipeline.wait_for_commit_of(stream.table, run)
    return run


def _register(streams: list[Stream], version: int) -> None:
    for stream in streams:
        stream.register(version)


def _produce(streams: list[Stream], version: int) -> None:
    for stream in streams:
        stream.produce(version)


def _wait_for_outage(pipeline: Pipeline, run: Run, streams: list[Stream]) -> None:
    """The registry is away: every table that needs a schema waits, and says for what."""
    for stream in streams:
        said = pipeline.wait_for_state(run, stream.table, "backing off")
        assert "schema registry" in said["reason"], said


def _plain(value: Any) -> Any:
    """A value as both sides can say it: what the reader gives for maps, times, decimals and uuids, and what was written."""
    if isinstance(value, dict):
        return {name: _plain(member) for name, member in value.items()} or []
    if isinstance(value, list):
        if value and isinstance(value[0], tuple):
            return {name: _plain(member) for name, member in value}
        return [_plain(member) for member in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, Decimal):
        return str(value.normalize())
    return str(value) if isinstance(value, (UUID, date)) else value
