"""Producers that change their schema ten times, in every format of the registry, with damaged records among theirs, a
registry that goes away twice, and kill -9 at the steps between: every table of theirs and its dead letters hold every record
once. One of the tables is flattened, another takes no change, rescues, and sends its dead letters to a topic too. In
time: the first two changes, and the registry away; a driver is killed at `evolve.landed` in test_kills.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Message

from frazil.runtime.jvm import Jvm
from tests.acceptance.ledger import Place, read_messages
from tests.acceptance.operator import Operator
from tests.acceptance.pipelines import PLACE, Pipeline
from tests.acceptance.points import Points
from tests.acceptance.running import Run
from tests.acceptance.shapes import FIRST_COLUMNS, RESCUED, flat, stored
from tests.acceptance.verifier import document_of, place_of, read_newest
from tests.acceptance.writers import ADD, LATE, VERSIONS, WRITERS, Row, Writer
from tests.fixtures.processes import frozen
from tests.fixtures.registry import ApicurioRegistry
from tests.integration.servers import Relay

pytestmark = pytest.mark.timeout(900)

PER_VERSION = 80
DAMAGED_EVERY = 50
CUT_AT, FROZEN_AT, STRUCK_WORKER_AT = 3, 9, 6
STRUCK_AT: Mapping[int, Sequence[str]] = {ADD: ["evolve.landed"], 7: ["commit.landed", "commit.before"]}
"""The versions whose batches a driver is killed in, and the steps, each in tables of its own: those that are held hold up no
other on its way to the next, as there are four threads for commits.
"""
NOBODYS = b"\x7f\xff\xff\xfe"
"""A schema id that the registry never has."""
PLACES = ("_topic", "_kafka_partition", "_offset")
HEADER = {"type": "struct<id: long, o: string>", "header": "event"}
OWN = ("_key", "sent")
"""The columns of the key and of the header, which only a stream's first table has."""


@dataclass(frozen=True)
class DeadLetter:
    """What a dead letter reports of a record."""

    value: bytes
    error_class: str
    schema_id: str | None


class Stream:
    """One format's topic, its tables, and what of each of its records must become.

    Every record's key and its header `event` are those that the first version would be written as. tables: what each makes
    of the row of a record.
    """

    def __init__(self, pipeline: Pipeline, registry: ApicurioRegistry, writer: Writer) -> None:
        self.pipeline = pipeline
        self.writer = writer
        form = {"format": writer.format}
        self.table, self.topic = pipeline.add_fed_table(
            writer.format,
            value=form,
            key=form,
            metadata=[*PLACE, "key"],
            columns={"sent": {**HEADER, "value": form}},
        )
        self.tables: dict[str, Callable[[Row], Row]] = {self.table: lambda row: row}
        self.ids: dict[int, int] = {}
        self.rows: dict[bytes, Row] = {}
        self.dead_letters: dict[bytes, DeadLetter] = {}
        self.late: dict[bytes, Row] = {}
        self.sent: dict[bytes, DeadLetter] = {}
        self._registry = registry
        self._number = 0

    def add(self, name: str, row_of: Callable[[Row], Row], **settings: Any) -> None:
        """Another table of the topic, without columns for key and header. row_of: its row, of the row with all fields."""

        def without_own(row: Row) -> Row:
            return row_of({column: value for column, value in row.items() if column not in OWN})

        table = self.pipeline.add_table(name, self.topic, value={"format": self.writer.format}, **settings)
        self.tables[table] = without_own

    def register(self, version: int) -> None:
        """The version is known to the registry from now on."""
        text = self.writer.text(version)
        self.ids[version] = self._registry.register(f"{self.topic}-value", self.writer.kind, text)

    def announce_late(self) -> None:
        """Which id the last version will have: it is registered, and gone again before anybody asks."""
        subject = f"{self.topic}-late"
        self.ids[LATE] = self._registry.register(subject, self.writer.kind, self.writer.text(LATE))
        self._registry.delete(subject, for_good=True)

    def produce(self, newest: int) -> None:
        """Records of the newest version, of the one before it and of the first, in turn; some of them damaged."""
        for _ in range(PER_VERSION):
            self._number += 1
            version = (newest, max(1, newest - 1), newest, 1)[self._number % 4]
            written = self.writer.write(version, self._number)
            value = self.writer.frame(self.ids[version], written.body)
            if self._number % DAMAGED_EVERY == 7:
                dead_letter = self._damaged(value, self.ids[version])
                value = dead_letter.value
                self.dead_letters[value] = dead_letter
            else:
                self.rows[value] = self._whole(written.row)
            self._send(value)
        self.pipeline.feed.flush()

    def produce_late(self, count: int) -> None:
        """Records of a version that the registry does not know yet."""
        for _ in range(count):
            self._number += 1
            written = self.writer.write(LATE, self._number)
            value = self.writer.frame(self.ids[LATE], written.body)
            self.late[value] = self._whole(written.row)
            self.dead_letters[value] = DeadLetter(value, "unknown_schema_id", str(self.ids[LATE]))
            self._send(value)
        self.pipeline.feed.flush()

    def mend(self) -> None:
        """The last version is registered: dead letters of it are to be rows."""
        announced = self.ids[LATE]
        self.register(LATE)
        assert self.ids[LATE] == announced
        self.rows |= self.late
        self.sent = self.dead_letters
        self.dead_letters = {
            value: dead_letter for value, dead_letter in self.dead_letters.items() if value not in self.late
        }

    def check(self) -> None:
        """In each table every record is a row with its values, or a dead letter with its bytes and reason; never both, never
        neither.
        """
        for table, row_of in self.tables.items():
            self._check(table, row_of)

    def check_sent(self, dead_letters_topic: str) -> None:
        """Whoever reads the topic of a table's dead letters has seen each of them once, as its record was, those too
        that a retry has made rows of.
        """
        messages = read_messages(self.pipeline.servers, dead_letters_topic, 0)
        found = dict(map(_sent, messages))
        assert len(found) == len(messages), "a dead letter was sent twice"
        assert found == {place: self.sent[value] for place, value in self._records().items() if value in self.sent}

    def _records(self) -> dict[Place, bytes]:
        records = self.pipeline.ledger.of(self.topic)
        return {place: value for place, value in records.items() if value is not None}

    def _check(self, table: str, row_of: Callable[[Row], Row]) -> None:
        expected = self._records()
        rows = self._read(table)
        dead_letters = self._read(f"{table}__dead_letters")
        found = {place_of(row): row for row in rows}
        kept = {
            (row["topic"], row["partition"], row["offset"]): DeadLetter(
                bytes(row["value"]), row["error_class"], row["schema_id"]
            )
            for row in dead_letters
        }
        assert (len(found), len(kept)) == (len(rows), len(dead_letters)), f"something is twice in {table}"
        assert kept == {
            place: self.dead_letters[value] for place, value in expected.items() if value in self.dead_letters
        }, table
        assert found.keys() == {place for place, value in expected.items() if value in self.rows}, table
        for place, row in found.items():
            wanted = row_of(self.rows[expected[place]])
            values = {name: _plain(_opened(name, value)) for name, value in row.items() if name not in PLACES}
            told = {name: _plain(value) for name, value in wanted.items()}
            assert values == {**dict.fromkeys(values), **told}, (table, place)

    def _send(self, value: bytes) -> None:
        sent = self.writer.frame(self.ids[1], self.writer.write(1, self._number).body)
        self.pipeline.feed.send(self.topic, [value], key=sent, headers={"event": sent})

    def _whole(self, row: Row) -> Row:
        """With the columns of the key and of the header."""
        sent = self.writer.write(1, self._number).row
        return {**row, "_key": sent, "sent": {"id": sent["id"], "o": sent["o"]}}

    def _damaged(self, value: bytes, schema_id: int) -> DeadLetter:
        """Cut short, with another first byte, with an id that nobody has, or with text that is none; the number keeps it
        apart.
        """
        mark, text = str(self._number).encode(), b"o%d" % self._number
        kinds = (
            DeadLetter(value[:-1], "malformed", str(schema_id)),
            DeadLetter(b"\x07" + value[1:] + mark, "no_wire_format", None),
            DeadLetter(
                value[:1] + NOBODYS + value[5:] + mark, "unknown_schema_id", str(int.from_bytes(NOBODYS, "big"))
            ),
            DeadLetter(value.replace(text, b"\xff" + text[1:]), "invalid_text", str(schema_id)),
        )
        return kinds[self._number // DAMAGED_EVERY % len(kinds)]

    def _read(self, table: str) -> list[dict[str, Any]]:
        metadata = self.pipeline.metadata(table)
        assert metadata is not None, f"there is no table {table}"
        return read_newest(metadata)


class History:
    """The streams of all formats under one pipeline, which is struck, loses its registry, and is started again.

    struck_at: as STRUCK_AT.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        registry: ApicurioRegistry,
        relay: Relay,
        struck_at: Mapping[int, Sequence[str]],
    ) -> None:
        self.pipeline = pipeline
        self.struck_at = struck_at
        self.streams = [Stream(pipeline, registry, writer) for writer in WRITERS]
        self.frozen, protobuf, _ = self.streams
        protobuf.add("flat", flat, flatten=True)
        self.dead_letters_topic = pipeline.new_topic("refused", 1)
        no_changes = {"columns": FIRST_COLUMNS, "schema_evolution": "freeze", "rescue": True}
        self.frozen.add("frozen", stored, **no_changes, dead_letters={"topic": self.dead_letters_topic})
        self.tables = [table for stream in self.streams for table in stream.tables]
        steps = [step for steps in struck_at.values() for step in steps]
        self.points = Points(pipeline.folder / "points", *((step, "hold") for step in (*steps, "task.write")))
        self.troubles: Mapping[int, Callable[[], AbstractContextManager[None]]] = {
            CUT_AT: relay.away,
            FROZEN_AT: partial(frozen, registry.pid),
        }
        for stream in self.streams:
            stream.announce_late()
        self._change(1)
        self.run = self._start()
        self._wait()

    def resume(self, version: int) -> None:
        """All producers have a new version."""
        if version in self.troubles:
            self._lose_registry(version)
        elif version in self.struck_at:
            self._kill_driver(self.struck_at[version], version)
        elif version == STRUCK_WORKER_AT:
            self._kill_worker(version)
        else:
            self._change(version)
            self._wait()

    def replay(self, jvm: Jvm) -> None:
        """Dead letters that were bad for want of a schema, once it is there, beside the running pipeline."""
        for stream in self.streams:
            for table in stream.tables:
                self.pipeline.wait_until_settled(table, self.run)
            stream.check()
            stream.mend()
        done = self.pipeline.command_on(jvm, "dead-letters", "replay")["tables"]
        for stream in self.streams:
            for table in stream.tables:
                counts = done[table]
                assert (counts["replayed"], counts["remaining"]) == (len(stream.late), len(stream.dead_letters)), table

    def end(self) -> None:
        """Every record is there once, whichever reader is asked, at the newest snapshots and the oldest."""
        assert not self.run.seen("table_stopped")
        assert self.run.stop() == 0, self.run.tail()
        for stream in self.streams:
            stream.check()
            self.pipeline.check_readers(stream.table)
        self.frozen.check_sent(self.dead_letters_topic)

    def _lose_registry(self, version: int) -> None:
        """The registry is away while records name schemas that the process has not met, and one that nobody has: every
        table waits, and reports for what.
        """
        for stream in self.streams:
            stream.register(version)
        with self.troubles[version]():
            for stream in self.streams:
                stream.produce_late(5)
                stream.produce(version)
            for table in self.tables:
                reported = self.pipeline.wait_for_state(self.run, table, "backing off")
                assert "schema registry" in reported["reason"], reported

    def _kill_driver(self, steps: Sequence[str], version: int) -> None:
        for table in self.tables:
            self.pipeline.wait_until_settled(table, self.run)
        for stream in self.streams:
            stream.register(version)
        with ExitStack() as armed:
            for number, step in enumerate(steps):
                armed.enter_context(self.points[step, "hold"].armed())
                for stream in self.streams[number :: len(steps)]:
                    stream.produce(version)
                self.points[step, "hold"].wait(self.run)
            self.run.kill()
            self.run.close()
        self.run = self._start()

    def _kill_worker(self, version: int) -> None:
        with self.points["task.write", "hold"].armed():
            self._change(version)
            self.run.kill(self.points["task.write", "hold"].wait(self.run))

    def _change(self, version: int) -> None:
        for stream in self.streams:
            stream.register(version)
        for stream in self.streams:
            stream.produce(version)

    def _start(self) -> Run:
        return self.pipeline.run(failpoints=self.points.declaration)

    def _wait(self) -> None:
        for table in self.tables:
            self.pipeline.wait_for_commit_of(table, self.run)


@pytest.mark.parametrize(
    ("versions", "struck_at"), [(CUT_AT, {}), pytest.param(VERSIONS, STRUCK_AT, marks=pytest.mark.slow)]
)
def test_every_record_of_changed_schemas_is_a_row_or_a_dead_letter_through_outages(
    pipeline: Pipeline,
    registry: ApicurioRegistry,
    operator: Operator,
    jvm: Jvm,
    versions: int,
    struck_at: Mapping[int, Sequence[str]],
) -> None:
    relay = Relay(registry.port)
    relay.join()
    pipeline.document["registry"] = {"url": registry.api.replace(f":{registry.port}/", f":{relay.port}/")}
    for writer in WRITERS:
        if writer.is_loosening:
            operator.create(pipeline.folder, f"t.{writer.format}", {"o": "string"}, required=("o",))
    history = History(pipeline, registry, relay, struck_at)
    for version in range(2, versions + 1):
        history.resume(version)
    history.replay(jvm)
    history.end()
    for stream in history.streams:
        _check_columns(stream)
    relay.cut()


def _check_columns(stream: Stream) -> None:
    """Each is of the widest type that was asked for, and none is required."""
    metadata = stream.pipeline.metadata(stream.table)
    assert metadata is not None
    document = document_of(metadata)
    (schema,) = (one for one in document["schemas"] if one["schema-id"] == document["current-schema-id"])
    kinds = {field["name"]: field["type"] for field in schema["fields"]}
    assert (kinds["a"], kinds["b"], kinds["tags"]["element"]) == ("long", "double", "long")
    assert {member["name"]: member["type"] for member in kinds["loc"]["fields"]} == {"x": "long", "y": "string"}
    assert ("note" in kinds) == (stream.writer.format != "avro")
    assert kinds.get("d", "decimal(12, 2)") == "decimal(12, 2)"
    assert not any(field["required"] for field in schema["fields"])


def _opened(column: str, value: Any) -> Any:
    """What a column holds; of the values that were stored their JSON."""
    return json.loads(value) if column == RESCUED and value is not None else value


def _sent(message: Message) -> tuple[Place, DeadLetter]:
    """Which record a message of a topic of dead letters was, and what is wrong with it: its key and headers are as they
    were, and others follow.
    """
    headers = dict(message.headers() or ())
    assert message.key() == headers["event"]
    own = {name.removeprefix("frazil."): text for name, text in headers.items() if name.startswith("frazil.")}
    words = {name: text.decode() for name, text in own.items() if isinstance(text, bytes)}
    value = message.value()
    assert value is not None
    dead_letter = DeadLetter(value, words["error_class"], words.get("schema_id"))
    return (words["topic"], int(words["partition"]), int(words["offset"])), dead_letter


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
