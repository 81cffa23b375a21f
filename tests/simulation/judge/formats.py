"""The formats that are judged: what makes a topic's records by chance, and what says what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tests.simulation.judge.avro_chance import AvroChance
from tests.simulation.judge.chance import Chance
from tests.simulation.judge.json_chance import JsonChance
from tests.simulation.judge.loop import Loop, Seen, Sent
from tests.simulation.judge.model import avro, json_records
from tests.simulation.judge.model.rows import Outcome
from tests.simulation.judge.model.settings import Settings, Table, table_of
from tests.simulation.judge.model.verdict import Fed, Verdict, judge_rows

_FIRST_MS = 1_790_000_000_000
_SIZES = (40, 300, 1200, 2500)
_MOST_NAMES = 100
"""The status lists so many dropped fields."""


@dataclass(frozen=True)
class Topic:
    """A topic with the table that it feeds."""

    settings: Settings
    #: Settings of the table besides these.
    more: Mapping[str, object]
    #: Makes a record's value.
    record: Callable[[], bytes | None]
    #: Says what becomes of one.
    outcome: Callable[[Table, Fed], Outcome]
    #: Makes the schemas known to a registry, by kind and text.
    register: Callable[[Callable[[str, str], int]], None] = lambda _: None


def json_topic(chance: Chance) -> Topic:
    """A topic of JSON without a schema."""
    made = JsonChance(chance)
    return Topic(
        made.settings, {}, made.record, lambda table, fed: json_records.outcome_of(made.settings, table, fed.value)
    )


def avro_topic(chance: Chance) -> Topic:
    """A topic of Avro with a registry."""
    made = AvroChance(chance)
    return Topic(
        made.settings,
        {"value": {"format": "avro"}},
        made.record,
        lambda table, fed: avro.outcome_of(made.settings, table, fed.value, made.schemas),
        made.register,
    )


FORMATS: dict[str, Callable[[Chance], Topic]] = {"json": json_topic, "avro": avro_topic}


def judge(root: Path, name: str, seed: int, count: int | None = None) -> Verdict:
    """Plays a topic of this seed, read in two runs and, cut otherwise, in one; returns the verdict on both tables."""
    chance = Chance(seed)
    topic = FORMATS[name](chance)
    count = count or chance.one(_SIZES)
    first = Loop(root / "two", _file(topic))
    topic.register(first.register)
    sent = [
        Sent(0, topic.record(), timestamp_ms=-1 if chance.maybe(0.02) else _FIRST_MS + place) for place in range(count)
    ]
    half, found = count // 2, Verdict()
    chunks = (7, 20, 20_000) if count < 100 else (100, 1000, 20_000)
    first.produce(sent[:half])
    first.run(chance.one(chunks))
    first.produce(sent[half:])
    found.add(_judge(topic, sent, half, first.run(chance.one(chunks))))
    second = Loop(root / "one", _file(topic))
    topic.register(second.register)
    second.produce(sent)
    found.add(_judge(topic, sent, count, second.run(chance.one(chunks))))
    found.faults = [f"{name}, seed {seed}: {fault}" for fault in found.faults]
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
    table = table_of(seen.columns, seen.comments, settings)
    outcomes: dict[tuple[int, int], Outcome] = {}

    def outcome_of(record: Fed) -> Outcome:
        return outcomes.setdefault(record.place, topic.outcome(table, record))

    found = judge_rows(settings, table, fed, (seen.rows, seen.dead), outcome_of)
    if seen.stopped:
        found.note(f"the table stopped: {seen.stopped}")
    _judge_dropped(outcomes.values(), seen, found)
    _judge_balance(seen, found)
    return replace(found)


def _judge_dropped(outcomes: object, seen: Seen, found: Verdict) -> None:
    every, of_rows = set[str](), set[str]()
    for outcome in outcomes:  # type: ignore[attr-defined]
        every |= outcome.dropped
        if not outcome.kinds:
            of_rows |= outcome.dropped
    if seen.dropped - every:
        found.note(f"the status lists {sorted(seen.dropped - every)[:5]} as dropped, which no record has")
    if len(every) < _MOST_NAMES and of_rows - seen.dropped:
        found.note(f"the status does not list {sorted(of_rows - seen.dropped)[:5]} as dropped", fields=1)


def _judge_balance(seen: Seen, found: Verdict) -> None:
    read, written, bad = (sum(one[name] for one in seen.balance) for name in ("read", "written", "bad"))
    dropped = sum(sum(one["dropped"].values()) for one in seen.balance)
    if (read, written, bad, dropped) != (found.records, found.rows, found.dead, 0):
        found.note(f"the balance is {seen.balance}, of {found.records} records")
