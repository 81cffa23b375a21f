"""Produces the demo's events at a steady rate, in a thread, and keeps a ledger of what the broker acknowledged."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from frazil.clock import Clock
from frazil.errors import UnavailableError

Rng = np.random.Generator
Event = dict[str, Any]

_PAGES = ("/", "/search", "/shoes", "/shoes/42", "/jackets", "/cart", "/checkout", "/help", "/sale", "/account")
_COUNTRIES = ("DE", "FR", "US", "IN", "BR", "JP", "NG")
_DEVICES = ("phone", "laptop", "tablet")
_TAGS = ("new", "sale", "returning", "newsletter", "loyal")
_CAMPAIGNS = (("spring", "mail"), ("spring", "video"), ("outlet", "search"))
_GOODS = (("boot", 8990), ("jacket", 15900), ("scarf", 2450), ("sock", 690), ("hat", 1995))
_ROOMS = ("hall", "roof", "cellar", "dock", "lab")
_TICK_S = 0.05
_FLUSH_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Kind:
    """One kind of event."""

    topic: str
    table: str
    share: float
    partition_count: int
    #: The field that numbers its events from 0 on without gaps.
    id_field: str
    #: A number field; its sum shows whether values arrived as they were sent.
    measure: str
    #: The field that only later events have.
    late_field: str
    make: Callable[[Rng, int, str, bool], Event]
    key: Callable[[Event], str]


def _page_view(rng: Rng, number: int, time: str, is_late: bool) -> Event:
    visitor = int(rng.integers(5000))
    event: Event = {
        "view_id": number,
        "at": time,
        "page": _PAGES[int(len(_PAGES) * rng.random() ** 2)],
        "visitor": {"id": f"v{visitor:04}", "country": _pick(rng, _COUNTRIES), "device": _pick(rng, _DEVICES)},
        "duration_ms": int(rng.integers(200, 60_000)),
        "tags": [tag for tag in _TAGS if rng.random() < 0.3],
    }
    if is_late:
        name, medium = _CAMPAIGNS[int(rng.integers(len(_CAMPAIGNS)))]
        event["campaign"] = {"name": name, "medium": medium}
    return event


def _order(rng: Rng, number: int, time: str, is_late: bool) -> Event:
    items: list[Event] = []
    for _ in range(1 + int(rng.integers(3))):
        product, price = _GOODS[int(rng.integers(len(_GOODS)))]
        items.append({"product": product, "quantity": 1 + int(rng.integers(3)), "price_cents": price})
    event: Event = {
        "order_id": number,
        "at": time,
        "customer": {"id": f"c{int(rng.integers(2000)):04}", "country": _pick(rng, _COUNTRIES)},
        "items": items,
        "total_cents": sum(item["quantity"] * item["price_cents"] for item in items),
        "is_gift": bool(rng.random() < 0.1),
    }
    if is_late:
        event["coupon"] = _pick(rng, ("SPRING10", "HELLO5")) if rng.random() < 0.5 else None
    return event


def _reading(rng: Rng, number: int, time: str, is_late: bool) -> Event:
    sensor = int(rng.integers(200))
    event: Event = {
        "reading_id": number,
        "at": time,
        "sensor": f"s-{sensor:03}",
        "place": {"room": _ROOMS[sensor % len(_ROOMS)], "floor": sensor // 50},
        "temperature": round(15 + 10 * float(rng.random()), 2),
        "humidity": round(float(rng.random()), 3),
        "pulses": int(rng.integers(1_000_000)),
    }
    if is_late:
        event["battery"] = round(1 - float(rng.random()) / 4, 3)
    return event


def _pick(rng: Rng, words: Sequence[str]) -> str:
    return words[int(rng.integers(len(words)))]


KINDS = (
    Kind(
        "page_views", "shop.page_views", 0.3, 3, "view_id", "duration_ms", "campaign", _page_view,
        lambda event: str(event["visitor"]["id"]),
    ),
    Kind(
        "orders", "shop.orders", 0.05, 2, "order_id", "total_cents", "coupon", _order,
        lambda event: str(event["customer"]["id"]),
    ),
    Kind(
        "sensor_readings", "iot.sensor_readings", 0.65, 3, "reading_id", "pulses", "battery", _reading,
        lambda event: str(event["sensor"]),
    ),
)  # fmt: skip


def counts(total: int) -> Mapping[str, int]:
    """Returns the number of events per topic, `total` in all."""
    exact = {kind.topic: int(total * kind.share) for kind in KINDS}
    return {**exact, KINDS[-1].topic: total - sum(exact[kind.topic] for kind in KINDS[:-1])}


@dataclass
class Sent:
    """What was sent of one kind."""

    records: int = 0
    #: The sum of the measure.
    total: int = 0
    #: The number of records with the late field.
    late: int = 0


@dataclass(frozen=True)
class Course:
    """How much is sent, and how fast."""

    #: The rate of all kinds together.
    records_per_s: float
    #: The number of events by topic; None without a limit.
    limits: Mapping[str, int] | None
    #: By topic, the first event with the late field.
    late_from: Mapping[str, int]


class Producers:
    """One thread for all kinds; it pauses before the late events until they are allowed."""

    def __init__(self, servers: str, course: Course, clock: Clock) -> None:
        #: What was sent, by topic.
        self.ledger = {kind.topic: Sent() for kind in KINDS}
        #: Why a record was refused; empty without a refusal.
        self.failure = ""
        self._servers = servers
        self._course = course
        self._clock = clock
        # `linger` gathers a tick's records; `acks` and idempotence make the ledger what the topic holds.
        settings = {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 20, "log_level": 0}
        self._producer = Producer(settings)
        self._rng = {kind.topic: np.random.default_rng(number) for number, kind in enumerate(KINDS)}
        self._stopping = threading.Event()
        self._may_be_late = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producers", daemon=True)

    @property
    def is_done(self) -> bool:
        """Whether everything is sent and acknowledged."""
        return self._thread.ident is not None and not self._thread.is_alive()

    @property
    def is_late(self) -> bool:
        """Whether events have the late fields by now."""
        return all(self.ledger[topic].records > first for topic, first in self._course.late_from.items())

    def let_late_events_go(self) -> None:
        """Allows events with late fields."""
        self._may_be_late.set()

    def make_topics(self) -> None:
        """Creates the topics."""
        admin = AdminClient({"bootstrap.servers": self._servers, "log_level": 0})
        for future in admin.create_topics([NewTopic(kind.topic, kind.partition_count) for kind in KINDS]).values():
            future.result(_FLUSH_TIMEOUT_S)

    def start(self) -> None:
        """Starts to send, if it has not started."""
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """Stops sending, and waits until everything is acknowledged.

        Raises: UnavailableError where a record was not acknowledged.
        """
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(_FLUSH_TIMEOUT_S + 5)
        self.check()

    def check(self) -> None:
        """Checks that no record was refused.

        Raises: UnavailableError where one was.
        """
        if self.failure:
            raise UnavailableError(f"a record could not be produced: {self.failure}", where=self._servers)

    def _run(self) -> None:
        before_s, elapsed_s = self._clock.monotonic_s(), 0.0
        while not (self._stopping.is_set() or self.failure or self._is_complete()):
            now_s = self._clock.monotonic_s()
            elapsed_s += 0 if self._is_held() else now_s - before_s
            before_s = now_s
            for kind in KINDS:
                sent = self.ledger[kind.topic]
                goal = int(elapsed_s * self._course.records_per_s * kind.share)
                if self._course.limits is not None:
                    goal = min(goal, self._course.limits[kind.topic])
                if not self._may_be_late.is_set():
                    goal = min(goal, self._course.late_from[kind.topic])
                for number in range(sent.records, goal):
                    self._send(kind, number, sent)
            self._producer.poll(0)
            self._clock.sleep(_TICK_S)
        if self._producer.flush(_FLUSH_TIMEOUT_S):
            self.failure = self.failure or "the broker did not acknowledge all records in time"

    def _send(self, kind: Kind, number: int, sent: Sent) -> None:
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat(timespec="milliseconds")
        event = kind.make(self._rng[kind.topic], number, now, number >= self._course.late_from[kind.topic])
        text = json.dumps(event, separators=(",", ":"))
        try:
            self._producer.produce(kind.topic, text, kind.key(event), on_delivery=self._on_delivery)
        except BufferError:
            self._producer.poll(1.0)
            self._producer.produce(kind.topic, text, kind.key(event), on_delivery=self._on_delivery)
        sent.records += 1
        sent.total += event[kind.measure]
        sent.late += event.get(kind.late_field) is not None

    def _is_held(self) -> bool:
        late_from = self._course.late_from.items()
        return not self._may_be_late.is_set() and all(self.ledger[topic].records >= first for topic, first in late_from)

    def _is_complete(self) -> bool:
        limits = self._course.limits
        return limits is not None and all(self.ledger[topic].records >= count for topic, count in limits.items())

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.failure = error.str()
