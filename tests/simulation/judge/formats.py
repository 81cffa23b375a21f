"""The formats that are judged: what makes a topic's records by chance, and what says what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from frazil_verify.model import avro, connect, debezium, json_records, protobuf
from frazil_verify.model.rows import Outcome
from frazil_verify.model.settings import Settings, Table, table_of
from tests.simulation.judge.avro_chance import AvroChance
from tests.simulation.judge.chance import Chance
from tests.simulation.judge.change_chance import ChangeChance
from tests.simulation.judge.json_chance import JsonChance
from tests.simulation.judge.loop import Loop, Seen, Sent
from tests.simulation.judge.proto_chance import ProtoChance
from tests.simulation.judge.schema_chance import SchemaChance
from tests.simulation.judge.verdict import Fed, Place, Verdict, judge_rows

_FIRST_MS = 1_790_000_000_000
_SIZES = (40, 300, 1200, 2500)
_MOST_NAMES = 100
_AND_MORE = "and more"
"""The status lists so many dropped fields, and then this."""


@dataclass(frozen=True)
class Topic:
    """A topic with the table that it feeds."""

    settings: Settings
    #: Settings of the table besides these.
    more: Mapping[str, object]
    #: Makes a record's key and value.
    record: Callable[[], tuple[bytes | None, bytes | None]]
    #: Says what becomes of one, by the image of it.
    images: Callable[[Table, Fed], Mapping[str, Outcome]]
    #: The places of records whose rows later ones have replaced.
    replaced: Callable[[Sequence[Fed], Mapping[Place, Mapping[str, Outcome]]], frozenset[Place]] = lambda _, __: (
        frozenset()
    )
    #: Makes the schemas known to a registry, by kind and text.
    register: Callable[[Callable[[str, str], int]], None] = lambda _: None
    #: Whether records alone add columns, and no schema does.
    has_only_seen: bool = True


def json_topic(chance: Chance) -> Topic:
    """A topic of JSON without a schema."""
    made = JsonChance(chance)
    return Topic(
        made.settings,
        {},
        lambda: (None, made.record()),
        lambda table, fed: {"": json_records.outcome_of(made.settings, table, fed.value)},
    )


def avro_topic(chance: Chance) -> Topic:
    """A topic of Avro with a registry."""
    made = AvroChance(chance)
    return Topic(
        made.settings,
        {"value": {"format": "avro"}},
        lambda: (None, made.record()),
        lambda table, fed: {"": avro.outcome_of(made.settings, table, fed.value, made.schemas)},
        register=made.register,
        has_only_seen=False,
    )


def connect_topic(chance: Chance) -> Topic:
    """A topic of rows as Kafka Connect's JSON converter writes them, with their schema."""
    made = ChangeChance(chance, "rows", "connect")
    return Topic(
        made.settings,
        made.more(),
        made.record,
        lambda table, fed: {"": connect.outcome_of(made.settings, table, fed.value)},
        has_only_seen=False,
    )


def debezium_topic(chance: Chance) -> Topic:
    """A topic of change events."""
    mode, encoding = chance.one(("append", "changelog", "upsert")), chance.one(("json", "connect", "avro"))
    made = ChangeChance(chance, mode, encoding)
    envelope = debezium.Envelope(mode, encoding == "avro", made.schemas)

    def replaced(records: Sequence[Fed], images: Mapping[Place, Mapping[str, Outcome]]) -> frozenset[Place]:
        if mode != "upsert":
            return frozenset()
        return frozenset(debezium.replaced(records, images, lambda record: made.change_at[record.place[1]]))

    return Topic(
        made.settings,
        made.more(),
        made.record,
        lambda table, fed: envelope.images(made.settings, table, fed.value),
        replaced,
        made.register,
        has_only_seen=encoding == "json",
    )


def protobuf_topic(chance: Chance) -> Topic:
    """A topic of Protobuf with a registry."""
    made = ProtoChance(chance)
    return Topic(
        made.settings,
        {"value": {"format": "protobuf"}},
        lambda: (None, made.record()),
        lambda table, fed: {"": protobuf.outcome_of(made.settings, table, fed.value, made.messages)},
        register=made.register,
        has_only_seen=False,
    )


def json_schema_topic(chance: Chance) -> Topic:
    """A topic of JSON Schema with a registry."""
    made = SchemaChance(chance)
    return Topic(
        made.settings,
        {"value": {"format": "json_schema"}},
        lambda: (None, made.record()),
        lambda table, fed: {"": json_records.framed_outcome_of(made.settings, table, fed.value, made.ids)},
        register=made.register,
        has_only_seen=False,
    )


FORMATS: dict[str, Callable[[Chance], Topic]] = {
    "json": json_topic,
    "avro": avro_topic,
    "connect": connect_topic,
    "debezium": debezium_topic,
    "protobuf": protobuf_topic,
    "json_schema": json_schema_topic,
}


def judge(root: Path, name: str, seed: int, count: int | None = None) -> Verdict:
    """Plays a topic of this seed; returns the verdict on its tables. count: how many records; by default the seed says."""
    chance = Chance(seed)
    topic = FORMATS[name](chance)
    count = count or chance.one(_SIZES)
    chunks = (7, 20, 20_000) if count < 100 else (100, 1000, 20_000) if count < 1000 else (1000, 20_000)
    cuts = Cuts(count // 2, (chance.one(chunks), chance.one(chunks)), chance.one(chunks))
    without_time = (
        frozenset(place for place in range(count) if chance.maybe(0.01)) if chance.maybe(0.1) else frozenset()
    )
    found = judge_topic(root, topic, count, cuts, without_time)
    found.faults = [f"{name}, seed {seed}: {fault}" for fault in found.faults]
    return found


@dataclass(frozen=True)
class Cuts:
    """How a topic is read: in two runs, the first of so many records, and in one; each in chunks of so many."""

    first: int
    of_two: tuple[int, int]
    of_one: int


def judge_topic(
    root: Path, topic: Topic, count: int, cuts: Cuts, without_time: frozenset[int] = frozenset()
) -> Verdict:
    """Returns the verdict on both tables of a topic of so many records. without_time: those that have no timestamp."""
    two, one = Loop(root / "two", _file(topic)), Loop(root / "one", _file(topic))
    topic.register(two.register)
    topic.register(one.register)
    sent = []
    for place in range(count):
        key, value = topic.record()
        sent.append(Sent(0, value, key, timestamp_ms=-1 if place in without_time else _FIRST_MS + place))
    found = Verdict()
    two.produce(sent[: cuts.first])
    two.run(cuts.of_two[0])
    two.produce(sent[cuts.first :])
    found.add(_judge(topic, sent, cuts.first, two.run(cuts.of_two[1])))
    one.produce(sent)
    found.add(_judge(topic, sent, count, one.run(cuts.of_one)))
    return found


def _file(topic: Topic) -> Mapping[str, object]:
    return {**topic.settings.written(), **topic.more}


def _judge(topic: Topic, sent: list[Sent], first: int, seen: Seen) -> Verdict:
    """Returns the verdict on a table. first: how many records its first run has read."""
    settings = topic.settings
    fed = [
        Fed((one.partition, place), one.value, one.key, one.timestamp_ms, is_first=place < first)
        for place, one in enumerate(sent)
        if place < seen.read.get(one.partition, 0)
    ]
    table = replace(table_of(seen.columns, seen.comments, settings), has_only_seen=topic.has_only_seen)
    images = {record.place: topic.images(table, record) for record in fed}
    replaced = topic.replaced(fed, images)
    found = judge_rows(
        settings,
        table,
        fed,
        (seen.rows, seen.dead),
        lambda record: images[record.place],
        lambda record: record.place in replaced,
    )
    if seen.stopped:
        found.note(f"the table stopped: {seen.stopped}")
    _judge_dropped([one for mine in images.values() for one in mine.values()], seen, found, topic.has_only_seen)
    _judge_balance(seen, found, is_upsert="mode" in topic.more)
    return replace(found)


def _judge_dropped(outcomes: list[Outcome], seen: Seen, found: Verdict, has_only_seen: bool) -> None:
    every, of_rows = set[str](), set[str]()
    for outcome in outcomes:
        every |= {path.lower() for path in outcome.dropped | outcome.may_drop}
        if not outcome.kinds:
            of_rows |= {path.lower() for path in outcome.dropped}
    listed = {path.lower() for path in seen.dropped} - {_AND_MORE}
    is_readable = not any("malformed" in outcome.kinds for outcome in outcomes)
    if has_only_seen and is_readable and listed - every:
        found.note(f"the status lists {sorted(listed - every)[:5]} as dropped, which no record has")
    if len(every) < _MOST_NAMES and of_rows - listed:
        found.note(f"the status does not list {sorted(of_rows - listed)[:5]} as dropped", fields=1)


def _judge_balance(seen: Seen, found: Verdict, is_upsert: bool) -> None:
    read, written, bad = (sum(one[name] for one in seen.balance) for name in ("read", "written", "bad"))
    dropped = sum(sum(one["dropped"].values()) for one in seen.balance)
    is_wrong = (read, bad, written + dropped) != (found.records, found.dead, found.records - found.dead)
    if is_wrong or (dropped != found.ignored and not is_upsert):  # A tombstone may be a change of an upsert table.
        found.note(f"the balance is {seen.balance}, of {found.records} records")
