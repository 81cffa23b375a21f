"""Data for the tutorials, made by a seeded generator: `python -m frazil_demo.samples clicks`."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import fastavro
import numpy as np
import typer
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

Rng = np.random.Generator
Event = dict[str, Any]

_BEGIN = datetime(2026, 3, 2, 8, tzinfo=UTC)
_FLUSH_TIMEOUT_S = 60.0
_CONNECT_TIMEOUT_S = 15
_PAGES = (
    "/",
    "/shoes",
    "/shoes/trail-runner",
    "/jackets",
    "/jackets/rain-shell",
    "/sale",
    "/cart",
    "/checkout",
    "/help",
)
_PAGE_WEIGHTS = np.array([30, 18, 12, 11, 8, 9, 6, 3, 3]) / 100
_REFERRERS = (None, "https://www.google.com/", "https://newsletter.example/", "https://www.instagram.com/")
_COUNTRIES = ("DE", "FR", "US", "IN", "BR", "JP", "NG")
_DEVICES = (
    {"category": "mobile", "os": "iOS"},
    {"category": "mobile", "os": "Android"},
    {"category": "desktop", "os": "Windows"},
)
_CAMPAIGNS = ("spring-mail", "outlet-search", "retargeting")
_PRODUCTS = (("trail-runner", 129.9), ("rain-shell", 159.0), ("wool-sock", 12.5), ("cap", 24.9))
_BROKEN_EVERY = 4_000
_STATES = ("new", "paid", "packed", "sent", "returned")
_SENSORS = ("temperature", "pressure", "vibration", "power")

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
Servers = Annotated[str, typer.Option("--bootstrap-servers", help="The Kafka cluster.")]
Records = Annotated[int, typer.Option(min=1, help="The number of records.")]
LOCAL = "localhost:9092"


def clicks(count: int, has_campaign: bool) -> Iterator[Event]:
    """Yields events of a shop's website, in the order of their times.

    Every 4,000th event is from an old app, which writes `value` as a text with a currency. has_campaign: events have a field
    that earlier ones lack.
    """
    rng = np.random.default_rng(2 if has_campaign else 1)
    time = _BEGIN + timedelta(days=has_campaign)
    for number in range(count):
        time += timedelta(milliseconds=int(rng.exponential(4_000)))
        visitor = int(rng.zipf(1.4)) % 3_000
        page = _PAGES[int(rng.choice(len(_PAGES), p=_PAGE_WEIGHTS))]
        product, price = _PRODUCTS[int(rng.integers(len(_PRODUCTS)))]
        event: Event = {
            "event_id": f"{'b' if has_campaign else 'a'}{number:07}",
            "event": "purchase" if page == "/checkout" else "page_view",
            "event_time": time.isoformat(timespec="milliseconds"),
            "page": {"path": page, "referrer": _REFERRERS[int(rng.integers(len(_REFERRERS)))]},
            "visitor": {"id": f"v{visitor:04}", "country": _COUNTRIES[visitor % len(_COUNTRIES)]},
            "device": _DEVICES[int(rng.integers(len(_DEVICES)))],
            "items": [{"sku": product, "price": price}] if page == "/checkout" else [],
            "value": price if page == "/checkout" else None,
        }
        if has_campaign:
            event["campaign"] = _CAMPAIGNS[int(rng.integers(len(_CAMPAIGNS)))]
        elif number % _BROKEN_EVERY == _BROKEN_EVERY - 1:
            event["value"] = f"{price} EUR"
        yield event


def orders(count: int, first: int) -> Iterator[Event]:
    """Yields orders from this number on, as a Kafka Connect source writes them: JSON without a schema, times in ms."""
    rng, time = np.random.default_rng([3, first]), _BEGIN
    for number in range(first, first + count):
        time += timedelta(seconds=int(rng.exponential(20)))
        yield {
            "order_id": number,
            "cust": f"c{int(rng.integers(800)):04}",
            "placed_at": int(time.timestamp() * 1000),
            "country": _COUNTRIES[int(rng.integers(len(_COUNTRIES)))],
            "total": round(float(rng.gamma(2.0, 40.0)), 2),
            "internal_note": "x" * int(rng.integers(4)),
        }


def shop_statements(is_later: bool) -> Iterator[str]:
    """Yields SQL for PostgreSQL: a shop's tables with rows, or what happens to them later. Ends each statement with `;`."""
    rng = np.random.default_rng(4)
    if is_later:
        # First, as it fails the second time: a file that is loaded twice changes nothing more.
        yield "alter table customers add column tier text;"
        yield "update orders set state = 'paid' where id % 3 = 0;"
        yield "update orders set state = 'sent', total = total + 4.90 where id % 10 = 0;"
        yield "delete from orders where id % 50 = 7;"
        yield "update customers set tier = 'gold' where id <= 20;"
        return
    yield "create table customers (id bigint primary key, name text not null, email text, since date not null);"
    yield (
        "create table orders (id bigint primary key, customer_id bigint not null references customers, state text not null,"
        " total numeric(10,2) not null, placed_at timestamptz not null);"
    )
    for number in range(1, 201):
        since = (_BEGIN - timedelta(days=int(rng.integers(2_000)))).date()
        yield f"insert into customers values ({number}, 'Customer {number}', 'c{number}@shop.example', '{since}');"
    for number in range(1, 1_001):
        placed = _BEGIN + timedelta(seconds=60 * number)
        state, total = _STATES[int(rng.integers(2))], round(float(rng.gamma(2.0, 40.0)), 2)
        customer = int(rng.integers(1, 201))
        yield f"insert into orders values ({number}, {customer}, '{state}', {total}, '{placed.isoformat()}');"


def sensor_schema(has_unit: bool) -> dict[str, Any]:
    """Returns the Avro schema of a sensor's readings. has_unit: the later version, with one field more."""
    fields: list[dict[str, Any]] = [
        {"name": "sensor", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "value", "type": "double"},
        {"name": "ok", "type": "boolean"},
    ]
    unit = {"name": "unit", "type": ["null", "string"], "default": None}
    return {
        "type": "record",
        "name": "Reading",
        "namespace": "plant",
        "fields": [*fields, *([unit] if has_unit else [])],
    }


def readings(topic_number: int, count: int, has_unit: bool) -> Iterator[Event]:
    """Yields readings of the sensors of one machine."""
    rng = np.random.default_rng([5 + has_unit, topic_number])
    for number in range(count):
        kind = _SENSORS[number % len(_SENSORS)]
        reading: Event = {
            "sensor": f"m{topic_number:03}-{kind}",
            "at": _BEGIN + timedelta(days=has_unit, seconds=number),
            "value": round(float(rng.normal(20 + topic_number % 7, 2)), 3),
            "ok": bool(rng.random() > 0.02),
        }
        yield {**reading, "unit": "°C" if kind == "temperature" else None} if has_unit else reading


# ---- the commands


@app.command("clicks")
def send_clicks(
    servers: Servers = LOCAL,
    records: Records = 20_000,
    campaign: Annotated[bool, typer.Option("--campaign", help="Events with the new field `campaign`.")] = False,
) -> None:
    """Send events of a shop's website to the topic `clicks`."""
    _send(servers, "clicks", 4, ((event["visitor"]["id"], _json(event)) for event in clicks(records, campaign)))


@app.command("orders")
def send_orders(
    servers: Servers = LOCAL,
    records: Records = 5_000,
    first: Annotated[int, typer.Option(min=1, help="The number of the first order.")] = 1,
) -> None:
    """Send orders to the topic `orders`."""
    _send(servers, "orders", 2, ((str(order["order_id"]), _json(order)) for order in orders(records, first)))


@app.command("shop")
def print_shop(later: Annotated[bool, typer.Option("--later", help="What happens to the rows later.")] = False) -> None:
    """Print SQL that fills a PostgreSQL with customers and orders, or changes them."""
    for statement in shop_statements(later):
        typer.echo(statement)


@app.command("machines")
def send_machines(
    servers: Servers = LOCAL,
    registry: Annotated[str, typer.Option("--registry", help="The schema registry.")] = "http://localhost:8081",
    topics: Annotated[int, typer.Option(min=1, max=999, help="The number of topics.")] = 100,
    records: Records = 200,
    unit: Annotated[bool, typer.Option("--unit", help="Readings of the later schema, with the field `unit`.")] = False,
) -> None:
    """Send readings in Avro to the topics `machine-001`, `machine-002` and so on. records: of each topic."""
    schema, producer = (
        sensor_schema(unit),
        Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0}),
    )
    parsed, names = fastavro.parse_schema(schema), [f"machine-{number:03}" for number in range(1, topics + 1)]
    _make_topics(servers, names, 1)
    for number, topic in enumerate(names, 1):
        head = b"\0" + _register(registry, f"{topic}-value", schema).to_bytes(4, "big")
        for reading in readings(number, records, unit):
            body = io.BytesIO()
            fastavro.schemaless_writer(body, parsed, reading)
            _produce(producer, topic, head + body.getvalue(), reading["sensor"])
    _flush(producer)
    typer.echo(f"{topics} topics: {topics * records:,} records")


def _register(registry: str, subject: str, schema: dict[str, Any]) -> int:
    """Returns the id of the schema, which is registered if the registry does not have it. Raises: typer.Exit, with the
    remedy printed, if no registry answers there.
    """
    body = json.dumps({"schema": json.dumps(schema)}).encode()
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    try:
        with urlopen(Request(f"{registry}/subjects/{subject}/versions", body, headers), timeout=30) as answer:
            return int(json.load(answer)["id"])
    except (OSError, ValueError, KeyError) as error:
        if isinstance(error, HTTPError):
            error.close()
        typer.echo(
            f"error: no schema registry with Confluent's API answers at {registry} ({error}); start it, or give its "
            "address with --registry, such as http://localhost:8081/apis/ccompat/v7 for Apicurio",
            err=True,
        )
        raise typer.Exit(1) from None


def _json(event: Event) -> bytes:
    return json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode()


def _send(servers: str, topic: str, partitions: int, records: Iterator[tuple[str, bytes]]) -> None:
    _make_topics(servers, [topic], partitions)
    producer, count = (
        Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 20, "log_level": 0}),
        0,
    )
    for key, value in records:
        _produce(producer, topic, value, key)
        count += 1
    _flush(producer)
    typer.echo(f"{topic}: {count:,} records")


def _make_topics(servers: str, names: list[str], partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    try:
        known = admin.list_topics(timeout=_CONNECT_TIMEOUT_S).topics
    except KafkaException:
        typer.echo(f"error: Kafka is not reachable at {servers}; start it, such as with `frazil dev broker`", err=True)
        raise typer.Exit(1) from None
    missing = [NewTopic(name, partitions) for name in names if name not in known]
    for future in admin.create_topics(missing).values() if missing else ():
        future.result(_FLUSH_TIMEOUT_S)


def _produce(producer: Producer, topic: str, value: bytes, key: str) -> None:
    while True:
        try:
            producer.produce(topic, value, key)
        except BufferError:
            producer.poll(1.0)
        else:
            return


def _flush(producer: Producer) -> None:
    if unsent := producer.flush(_FLUSH_TIMEOUT_S):
        typer.echo(f"error: Kafka did not confirm {unsent:,} records within {_FLUSH_TIMEOUT_S:.0f} seconds", err=True)
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
