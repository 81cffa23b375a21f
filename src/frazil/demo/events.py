"""The three kinds of events that the demo produces. Event `n` of a kind is the same in every run, except for times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Rng = np.random.Generator
Event = dict[str, Any]

_PAGES = ("/", "/search", "/shoes", "/shoes/42", "/jackets", "/cart", "/checkout", "/help", "/sale", "/account")
_COUNTRIES = ("DE", "FR", "US", "IN", "BR", "JP", "NG")
_DEVICES = ("phone", "laptop", "tablet")
_TAGS = ("new", "sale", "returning", "newsletter", "loyal")
_CAMPAIGNS = (("spring", "mail"), ("spring", "video"), ("outlet", "search"))
_GOODS = (("boot", 8990), ("jacket", 15900), ("scarf", 2450), ("sock", 690), ("hat", 1995))
_ROOMS = ("hall", "roof", "cellar", "dock", "lab")


@dataclass(frozen=True)
class Kind:
    """One kind of event."""

    #: Its topic.
    topic: str
    #: Its table.
    table: str
    #: Its share of all events.
    share: float
    #: The number of partitions of its topic.
    partition_count: int
    #: The field that numbers its events from 0 on without gaps.
    id_field: str
    #: A number field; its sum shows whether values arrived as they were sent.
    measure: str
    #: The field that only later events have.
    late_field: str
    #: Makes an event.
    make: Callable[[Rng, int, str, bool], Event]
    #: Returns the key of an event.
    key: Callable[[Event], str]


def _page_view(rng: Rng, number: int, at: str, is_late: bool) -> Event:
    visitor = int(rng.integers(5000))
    event: Event = {
        "view_id": number,
        "at": at,
        "page": _PAGES[int(len(_PAGES) * rng.random() ** 2)],
        "visitor": {"id": f"v{visitor:04}", "country": _pick(rng, _COUNTRIES), "device": _pick(rng, _DEVICES)},
        "duration_ms": int(rng.integers(200, 60_000)),
        "tags": [tag for tag in _TAGS if rng.random() < 0.3],
    }
    if is_late:
        name, medium = _CAMPAIGNS[int(rng.integers(len(_CAMPAIGNS)))]
        event["campaign"] = {"name": name, "medium": medium}
    return event


def _order(rng: Rng, number: int, at: str, is_late: bool) -> Event:
    items: list[Event] = []
    for _ in range(1 + int(rng.integers(3))):
        product, price = _GOODS[int(rng.integers(len(_GOODS)))]
        items.append({"product": product, "quantity": 1 + int(rng.integers(3)), "price_cents": price})
    event: Event = {
        "order_id": number,
        "at": at,
        "customer": {"id": f"c{int(rng.integers(2000)):04}", "country": _pick(rng, _COUNTRIES)},
        "items": items,
        "total_cents": sum(item["quantity"] * item["price_cents"] for item in items),
        "is_gift": bool(rng.random() < 0.1),
    }
    if is_late:
        event["coupon"] = _pick(rng, ("SPRING10", "HELLO5")) if rng.random() < 0.5 else None
    return event


def _reading(rng: Rng, number: int, at: str, is_late: bool) -> Event:
    sensor = int(rng.integers(200))
    event: Event = {
        "reading_id": number,
        "at": at,
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
