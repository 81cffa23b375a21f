"""The pages "Coming from …", as their readers follow them: the configuration, the commands, and records for the topics. The
addresses on a page become those of running services, and its topics and tables get names of their own.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyiceberg.catalog import Catalog

from bench.registry import Registry
from docs.scan import ROOT
from frazil.clock import new_id
from frazil.kafka.group import KafkaGroup
from frazil.kafka.port import GroupOffset

COUNT, WRITTEN = 3, 2
"""Records of each topic, and how many of them another tool has written to the table before it is stopped."""
Row = dict[str, Any]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_NAMES = re.compile(r"(?<![a-z])(orders|customers)\b")
_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string"}],
}
_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Services:
    """What runs in place of the addresses on the pages."""

    #: The bootstrap servers.
    kafka: str
    #: A REST catalog.
    catalog: str
    registry: Registry

    def put_in(self, text: str) -> str:
        """The text with the addresses of these services."""
        addresses = {
            "broker:9092": self.kafka,
            "http://catalog:8181": self.catalog,
            "http://registry:8081": self.registry.url,
            "http://localhost:8081": self.registry.url,
        }
        for address, real in addresses.items():
            text = text.replace(address, real)
        return text


@dataclass(frozen=True)
class Page:
    """A page, with names of its own in place of `orders` and `customers`."""

    tool: str
    #: Behind the names.
    tag: str
    configuration: str
    #: The words of the command that imports it, `import` the first.
    command: Sequence[str]
    #: The words of the commands that follow.
    then: Sequence[Sequence[str]]

    def name(self, text: str) -> str:
        """The text with the names of this reading of the page."""
        return _NAMES.sub(rf"\1_{self.tag}", text)

    @property
    def topics(self) -> dict[str, Callable[[int], tuple[bytes | None, bytes]]]:
        """What makes key and value of each record, by topic; nothing is sent to a topic without."""
        return {self.name(topic): make for topic, make in _TOPICS[self.tool].items()}

    @property
    def rows(self) -> dict[str, list[Row]]:
        """The rows by table, without columns that differ from run to run."""
        return {self.name(table): [make(number) for number in range(COUNT)] for table, make in _ROWS[self.tool].items()}


def read_page(tool: str) -> Page:
    """The page of a tool."""
    tag = new_id()[:8]
    text = _NAMES.sub(rf"\1_{tag}", (ROOT / "docs" / "migrate" / f"{tool}.md").read_text())
    (_, configuration), (_, first), *_, (_, last) = _BLOCK.findall(text)
    lines = [line.partition("#")[0].split() for line in last.splitlines()]
    assert {line[0] for line in lines} == {"frazil"}
    return Page(tool, tag, configuration, first.partition(" > ")[0].split()[1:], [line[1:] for line in lines])


def fill(page: Page, services: Services) -> None:
    """Makes the topics of a page with their records, and what its tool needs of other topics."""
    admin = AdminClient({"bootstrap.servers": services.kafka})
    names = [*page.topics, *map(page.name, _OTHER_TOPICS.get(page.tool, ()))]
    for made in admin.create_topics([NewTopic(topic, 1) for topic in names]).values():
        made.result(timeout=20)
    producer = Producer({"bootstrap.servers": services.kafka, "enable.idempotence": True})
    for topic, make in page.topics.items():
        head = b""
        if page.tool in _AVRO:
            number = services.registry.register(f"{topic}-value", "AVRO", json.dumps(_SCHEMA))
            head = b"\0" + number.to_bytes(4, "big")
        for number in range(COUNT):
            key, value = make(number)
            producer.produce(topic, head + value, key)
    assert producer.flush(30) == 0


def _json(value: Row) -> bytes:
    return json.dumps(value).encode()


def _avro(number: int) -> tuple[None, bytes]:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, _SCHEMA, {"id": number, "note": f"n{number}"})
    return None, body.getvalue()


def _connect(number: int) -> tuple[None, bytes]:
    return None, _json({"id": number, "cust": "ann", "internal": 1, "placed_at": int(_NOON.timestamp() * 1000)})


def _flink(number: int) -> tuple[None, bytes]:
    return None, _json({"id": number, "note": f"N{number}", "amount": 5})


def _change(number: int) -> tuple[bytes, bytes]:
    row = {"id": number, "name": f"n{number}"}
    source = {"connector": "mysql", "ts_ms": 5, "db": "d", "table": "t"}
    return _json({"id": number}), _json({"op": "c", "before": None, "after": row, "source": source, "ts_ms": 6})


def _sequenced(number: int) -> tuple[None, bytes]:
    return None, _json({"id": number, "note": f"n{number}", "op": "UPDATE", "changed_at": _NOON.isoformat()})


_AVRO = ("automq", "tableflow")
_TOPICS: Mapping[str, Mapping[str, Callable[[int], tuple[bytes | None, bytes]]]] = {
    "kafka-connect": {"orders": _connect},
    "automq": {"orders": _avro},
    "flink-cdc": {"pg.app_db.orders": _change},
    "flink-sql": {"orders": _flink},
    "debezium-server": {"pg.public.orders": _change, "pg.public.customers": _change},
    "tableflow": {"orders": _avro},
    "auto-cdc": {"orders": _sequenced},
}
_OTHER_TOPICS = {"tableflow": ["bad-orders"], "kafka-connect": ["control.orders"]}
_ROWS: Mapping[str, Mapping[str, Callable[[int], Row]]] = {
    "kafka-connect": {"shop.orders": lambda n: {"id": n, "customer": "ann", "placed_at": _NOON}},
    "automq": {"shop.orders": lambda n: {"id": n, "note": f"n{n}"}},
    "flink-cdc": {"ods.orders": lambda n: {"id": n, "name": f"N{n}"}},
    "flink-sql": {"shop.orders": lambda n: {"id": n, "note": f"n{n}"}},
    "debezium-server": {
        f"shop.pg_public_{name}": lambda n: {"id": n, "name": f"n{n}"} for name in ("orders", "customers")
    },
    "tableflow": {"lkc-1.orders": lambda n: {"id": n, "note": f"n{n}"}},
    "auto-cdc": {
        "shop.orders": lambda n: {"id": n, "note": f"n{n}", "changed_at": _NOON},
        "shop.orders_history": lambda n: {"id": n, "note": f"n{n}", "__START_AT": _NOON, "__END_AT": None},
    },
}


# ---- what the tools leave behind


def leave(page: Page, services: Services, folder: Path, catalog: Catalog) -> None:
    """Makes the table as the tool of a page leaves it when it is stopped, with the rows of the first records."""
    topic = page.name("orders")
    kind, more, summary = _LEFT[page.tool]
    if page.tool == "kafka-connect":
        group = f"connect-{topic}-sink"
        summary = {f"kafka.connect.offsets.{page.name('control.orders')}.{group}": '{"0":0}'}
        KafkaGroup({"bootstrap.servers": services.kafka}, group).commit({(topic, 0): GroupOffset(WRITTEN, "")})
    (folder / "offsets.json").write_text(json.dumps({topic: {"0": WRITTEN}}))
    [(table, rows)] = page.rows.items()
    made = pa.Table.from_pylist([{**row, **more(row["id"])} for row in rows[:WRITTEN]], pa.schema(kind))
    catalog.create_namespace_if_not_exists("shop")
    catalog.create_table(table, made.schema).append(made, summary)


_METADATA = pa.struct([("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", pa.int64())])
_TIME = pa.timestamp("us", tz="UTC")
_LEFT: Mapping[str, tuple[dict[str, pa.DataType], Callable[[int], Row], dict[str, str]]] = {
    "kafka-connect": ({"id": pa.int64(), "customer": pa.string(), "placed_at": _TIME}, lambda _: {}, {}),
    "automq": (
        {"id": pa.int64(), "note": pa.string(), "_kafka_metadata": _METADATA},
        lambda n: {"_kafka_metadata": {"partition": 0, "offset": n, "timestamp": 0}},
        {"automq.commit.id": "1"},
    ),
    "flink-sql": (
        {"id": pa.int64(), "note": pa.string(), "sent_at": _TIME},
        lambda _: {"sent_at": _NOON},
        {"flink.job-id": "1", "flink.max-committed-checkpoint-id": "1"},
    ),
}
ADOPTED = tuple(_LEFT)
"""The tools whose tables can be taken over."""
