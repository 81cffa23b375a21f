"""Topics of the corpus besides orders and changes: events, text, odd values, many columns, and the judge's by chance."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.corpus.topics import FIRST_MS, STEP_MS, Record, Schemas, Stream, dumped, key_text
from tests.fixtures.odd_values import SIXTEEN_MIB, VALUES
from tests.simulation.judge.chance import Chance
from tests.simulation.judge.formats import FORMATS

_COUNT = 240
_JUDGED = 600


def events(form: str) -> Stream:
    """Returns events: cloudevents, or outbox."""
    chance = Chance(4000)
    make = _cloud_event if form == "cloudevents" else _outbox_event
    records = [make(chance, place) for place in range(_COUNT)]
    return Stream(tuple(records), {"envelope": form}, (), 2)


def _cloud_event(chance: Chance, place: int) -> Record:
    number = chance.upto(60)
    data: Any = {"id": number, "kind": chance.one(("order", "visit")), "amount": chance.upto(999) / 4}
    attributes = {"specversion": "1.0", "id": f"e-{number}", "source": "/orders", "type": "order.placed"}
    if chance.maybe(0.6):
        attributes |= {"time": "2026-11-22T01:02:03.5+01:00", "subject": "o/1", "traceparent": "00-ab"}
    if chance.maybe(0.05):
        attributes = {
            name: one for name, one in attributes.items() if name != chance.one(("id", "specversion", "type"))
        }
    if chance.maybe(0.05):
        data = chance.one(([1], "text", '{"id": 5}', None))
    if chance.maybe(0.5):
        headers = [(f"ce_{name}", one.encode()) for name, one in attributes.items()]
        headers.append(("content-type", chance.one((b"application/json", b"application/json", b"text/plain"))))
        value = None if data is None else dumped(data)
    else:
        headers = [("content-type", b"application/cloudevents+json")] if chance.maybe(0.8) else []
        value = dumped({**attributes, "data": data})
    at_ms = FIRST_MS + place * STEP_MS
    return Record(value, key_text(id=number), place % 2, at_ms, tuple(headers))


def _outbox_event(chance: Chance, place: int) -> Record:
    number, at_ms = chance.upto(60), FIRST_MS + place * STEP_MS
    payload = {"id": number, "kind": chance.one(("order", "visit")), "amount": chance.upto(999) / 4}
    if chance.maybe(0.5):
        headers = (("id", f"e-{number}".encode()), ("type", b"placed"), ("aggregateType", b"order"))
        value = chance.one((dumped(payload), dumped(json.dumps(payload)), dumped(payload), None, b"[1]"))
        return Record(value, f"a-{number}".encode(), place % 2, at_ms, headers if chance.maybe(0.95) else headers[1:])
    row = {"id": f"e-{number}", "type": "placed", "aggregatetype": "order", "aggregateid": f"a-{number}"}
    row["payload"] = json.dumps(payload) if chance.maybe(0.95) else "{"
    op = chance.one("cccrdu")
    images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    told = {**images, "op": op, "ts_ms": at_ms, "source": {"connector": "postgresql", "ts_ms": at_ms}}
    return Record(dumped(told), key_text(id=f"e-{number}"), place % 2, at_ms)


def plain(form: str) -> Stream:
    """Returns values that are text or bytes alone."""
    chance = Chance(5000)
    values = (b"", b"text", "é 😀".encode(), b"\xff\xfe", b"\0", b"two\nlines", b'{"id": 1}', b"x" * 3000, None)
    records = [
        Record(chance.one(values), chance.one((None, b"k", b"\xff")), n % 2, FIRST_MS + n * STEP_MS, (("h", b"1"),))
        for n in range(_COUNT)
    ]
    return Stream(tuple(records), {"value": {"format": form}}, (), 2)


def odd_values() -> Stream:
    """Returns the values that nobody should have produced, among others."""
    records = []
    for place, (name, value) in enumerate(VALUES.items()):
        good = {"id": place, "text": name, "amount": place / 4, "where": {"city": "Rome", "zip": place}, "tags": ["a"]}
        records.append(Record(dumped(good), key_text(id=place), 0, FIRST_MS + place))
        if value is None or len(value) < SIXTEEN_MIB // 2:
            records.append(Record(value, key_text(id=place), 0, FIRST_MS + place))
    return Stream(tuple(records), {}, ())


def many_columns() -> Stream:
    """Returns records with few of very many fields each."""
    chance = Chance(6000)
    records = []
    for place in range(_COUNT):
        names = {f"field_{chance.upto(400)}": chance.upto(99) for _ in range(20)}
        nested = {f"part_{chance.upto(60)}": chance.one(("a", 1.5, True)) for _ in range(4)}
        value = {"id": place, **names, "nested": {name: str(one) for name, one in nested.items()}}
        records.append(Record(dumped(value), key_text(id=place), 0, FIRST_MS + place))
    return Stream(tuple(records), {}, ())


def judged(form: str, seed: int) -> Stream:
    """Returns a topic by chance, with settings of its table by chance, as `tests/simulation/judge` makes them."""
    topic, schemas = FORMATS[form](Chance(seed)), Schemas()
    topic.register(schemas.register)
    records = []
    for place in range(_JUDGED):
        key, value = topic.record()
        records.append(Record(value, key, 0, FIRST_MS + place))
    settings: Mapping[str, Any] = {**topic.settings.written(), **topic.more}
    return Stream(tuple(records), settings, tuple(schemas.texts))


JUDGED_FORMS = tuple(FORMATS)
