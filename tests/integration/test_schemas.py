"""The ways in which records name their schemas, and tables that take changes of them each by its own rules: from a real
registry and a real broker to a reader that knows nothing of Frazil.
"""

from __future__ import annotations

import io
import json
import struct
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import UUID

import fastavro
import pytest

from frazil.clock import new_id
from frazil.errors import UnavailableError
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.jvm import Jvm
from frazil.spec import RegistrySpec
from frazil_registry.confluent import ConfluentRegistry
from packages.registry.tests.unit.server import Desk, FakeRegistry, fake_registry, missing
from tests.acceptance.ledger import Feed, Ledger
from tests.acceptance.topics import Topics
from tests.fixtures.registry import ApicurioRegistry
from tests.fixtures.waiting import wait_until
from tests.integration.pipelines import Pipeline
from tests.integration.test_changelog import rows

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(900)]

CONTEXT = ":.shop:"
GOOD, DAMAGED = 100, 40
BIG = 2**40
NOBODYS_GUID = UUID(int=BIG)
NOBODYS_ID = BIG


def record(name: str, **fields: Any) -> dict[str, Any]:
    """An Avro schema."""
    return {
        "type": "record",
        "name": name,
        "namespace": "shop",
        "fields": [{"name": field, "type": kind} for field, kind in fields.items()],
    }


TEXT_OR_NULL = ["null", "string"]
OLD = record("Order", id="int", place=record("Place", zip="string"))
NEW = record("Order", id="long", place=record("Place", zip="string", city=TEXT_OR_NULL), note="string")
KEY = record("Key", desk="string", number="int")
VISIT = record("Visit", at="long", who="shop.Key")
TABLES: Mapping[str, Mapping[str, Any]] = {
    "long_ids": {"value": {"format": "avro", "framing": "apicurio"}},
    "guids": {
        "value": {"format": "avro", "framing": "header"},
        "key": {"format": "avro", "framing": "header"},
        "metadata": ["offset", "key"],
    },
    "rescued": {"columns": {"id": "int"}, "unknown_fields": "rescue"},
    "added": {"schema_evolution": "add_only"},
    "referred": {
        "key": {"format": "avro"},
        "metadata": ["offset", "key"],
        "columns": {
            "sent": {"type": "struct<desk: string, number: int>", "header": "sender", "value": {"format": "avro"}}
        },
    },
    "newest": {"value": {"format": "protobuf", "schema": "latest", "message": "shop.Reading"}},
    "stopped": {},
}


def proto(more: str = "") -> str:
    """A .proto file. more: further fields."""
    return f'syntax = "proto3"; package shop; message Reading {{ int64 id = 1; double heat = 2; {more}}}'


def body(schema: Mapping[str, Any], value: Mapping[str, Any]) -> bytes:
    """The value in Avro's binary encoding."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(dict(schema)), dict(value))
    return out.getvalue()


def old(number: int) -> bytes:
    return body(OLD, {"id": number, "place": {"zip": f"z{number}"}})


def new(number: int) -> bytes:
    return body(NEW, {"id": number, "place": {"zip": "z", "city": f"c{number}"}, "note": "n"})


def key(number: int) -> bytes:
    return body(KEY, {"desk": "d", "number": number})


def visit(number: int) -> bytes:
    return body(record("Visit", at="long", who=KEY), {"at": number, "who": {"desk": "w", "number": number}})


def reading(number: int, unit: bytes = b"") -> bytes:
    return b"\x08%c\x11%b" % (number, struct.pack("<d", number / 2)) + (
        b"\x1a%c%b" % (len(unit), unit) if unit else b""
    )


def short(schema_id: int) -> bytes:
    """Confluent's frame."""
    return b"\0" + struct.pack(">i", schema_id)


def long(schema_id: int) -> bytes:
    """Apicurio's."""
    return b"\0" + struct.pack(">q", schema_id)


def guid(schema_id: int) -> bytes:
    """What a header holds that names a schema by its GUID."""
    return b"\1" + UUID(int=schema_id).bytes


class Shop:
    """A real registry with the schemas of one context, topics for the tables, and a producer.

    The registry does not look GUIDs up, as Confluent's does: `front` does it for the registry, by ids, and passes on
    everything else.
    """

    def __init__(self, registry: ApicurioRegistry, front: FakeRegistry, servers: str) -> None:
        self.front = front
        self.servers = servers
        self.topics = {name: f"{name}-{new_id()[:8]}" for name in TABLES}
        self.registry = registry
        self._feed = Feed(servers, Ledger())
        topics = Topics(servers)
        for topic in self.topics.values():
            topics.create(topic, 1)
        front.answers["*"] = self._answer
        registry.ask("PUT", "/config", {"compatibility": "NONE"})
        self.old, self.new, self.key = (
            self.register(f"shop.{schema['name']}", json.dumps(schema)) for schema in (OLD, NEW, KEY)
        )
        of_key = [("shop.Key", f"{CONTEXT}shop.Key", 1)]
        self.named_key = self.register("named-key", '"shop.Key"', of_key)
        self.visit = self.register("shop.Visit", json.dumps(VISIT), of_key)
        self.register("shop.Reading", proto(), kind="PROTOBUF")

    def register(
        self, subject: str, text: str, references: list[tuple[str, str, int]] | None = None, kind: str = "AVRO"
    ) -> int:
        """The id of a new version of a subject of the context."""
        return self.registry.register(f"{CONTEXT}{subject}", kind, text, references)

    def delete(self, subject: str) -> None:
        """Deletes a subject of the context for good."""
        self.registry.delete(f"{CONTEXT}{subject}", for_good=True)

    def send(
        self,
        table: str,
        values: Sequence[bytes],
        key: bytes | None = None,
        headers: Mapping[str, bytes | None] | None = None,
    ) -> int:
        """Produces records for a table; how many."""
        self._feed.send(self.topics[table], values, 0, key, headers)
        self._feed.flush()
        return len(values)

    def document(self, naming: str, stop_above: str) -> dict[str, Any]:
        """The pipeline file."""
        tables: dict[str, Any] = {
            f"s.{name}": {"topic": topic, "value": {"format": "avro"}, "metadata": ["offset"], **TABLES[name]}
            for name, topic in self.topics.items()
        }
        tables["s.stopped"]["dead_letters"] = {"stop_above": stop_above}
        return {
            "pipeline": "shop",
            "kafka": {"bootstrap.servers": self.servers},
            "registry": {"url": self.front.url, "context": "shop", "naming": naming},
            "commit": {"interval": "200ms"},
            "tables": tables,
        }

    def _answer(self, desk: Desk) -> None:
        path = desk.path
        before, is_guid, named = path.partition("/schemas/guids/")
        if is_guid:
            schema_id = UUID(named).int
            if schema_id >= BIG:
                missing(40403)(desk)
                return
            path = f"{before}/schemas/ids/{schema_id}"
        try:
            with urllib.request.urlopen(self.registry.api + path, timeout=10) as answer:
                desk.send(answer.status, answer.read())
        except urllib.error.HTTPError as error:
            desk.send(error.code, error.read())


@dataclass(frozen=True)
class Ran:
    """What a pipeline has left that was killed beside a stopped table. events: its own. checks: what `check` found with
    another file.
    """

    folder: Path
    shop: Shop
    events: Sequence[Mapping[str, Any]]
    checks: Mapping[str, Mapping[str, Any]]

    def rows(self, table: str) -> list[dict[str, Any]]:
        """In the order of their records."""
        return sorted(rows(self.folder, table), key=lambda row: int(row["_offset"]))

    def dead_letters(self, table: str) -> list[tuple[int, str, str, str | None]]:
        """Offset, class, path and schema id of each dead letter."""
        found = rows(self.folder, f"{table}__dead_letters")
        return sorted((row["offset"], row["error_class"], row["path"] or "", row["schema_id"]) for row in found)


@pytest.fixture(scope="module")
def shop(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    registry = ApicurioRegistry(tmp_path_factory.mktemp("registry"))
    registry.start()
    with fake_registry() as front:
        yield Shop(registry, front, broker.bootstrap_servers)
    registry.kill()


def send_old(shop: Shop) -> int:
    """Records of the first schemas."""
    numbers = range(3)
    named = {"__value_schema_id": guid(shop.old), "__key_schema_id": guid(shop.key)}
    return sum(
        (
            shop.send("long_ids", [long(shop.old) + old(n) for n in numbers]),
            shop.send("guids", [old(n) for n in numbers], key(1), named),
            shop.send("rescued", [short(shop.old) + old(n) for n in numbers]),
            shop.send("added", [short(shop.old) + old(n) for n in numbers]),
            shop.send("newest", [reading(n) for n in numbers]),
            shop.send("stopped", [short(shop.old) + old(n) for n in range(GOOD)]),
            shop.send(
                "referred",
                [short(shop.visit) + visit(n) for n in numbers],
                short(shop.named_key) + key(2),
                {"sender": short(shop.named_key) + key(3)},
            ),
        )
    )


def send_new(shop: Shop) -> int:
    """Records of the second ones, and some that nothing can be read with."""
    key_named = {"__key_schema_id": guid(shop.key)}
    by_guid, by_id, by_none = guid(shop.new), short(shop.new), b"\1" + NOBODYS_GUID.bytes
    return sum(
        (
            shop.send("long_ids", [long(shop.new) + new(BIG), long(NOBODYS_ID) + new(1)]),
            shop.send("guids", [new(BIG)], None, {"__value_schema_id": by_guid}),
            shop.send("guids", [new(5)], key(5), {**key_named, "__value_schema_id": by_id}),
            shop.send("guids", [new(6)], key(6), {**key_named, "__value_schema_id": by_none}),
            shop.send("guids", [new(7)], key(7), key_named),
            shop.send("rescued", [short(shop.new) + new(BIG)]),
            shop.send("added", [short(shop.new) + new(n) for n in (5, BIG, 7)]),
            shop.send("referred", [short(shop.visit) + visit(9)]),
        )
    )


@pytest.fixture(scope="module")
def ran(shop: Shop, jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("schemas")
    sent = send_old(shop)
    with Pipeline(folder, shop.document("record", "20%")).start() as running:
        running.wait_until_committed(sent)
        running.wait_until_committed(sent + send_new(shop))
        shop.send("stopped", [b"{}"] * DAMAGED)
        wait_until(lambda: running.events_named("table_stopped"), "a table has stopped")
        events = list(running.events())
    topic = shop.topics["newest"]
    shop.delete("shop.Reading")
    shop.register(f"{topic}-shop.Reading", proto("string unit = 3; "), kind="PROTOBUF")
    shop.register(f"{shop.topics['added']}-shop.Refund", json.dumps(record("Refund", id="string")))
    shop.send("newest", [reading(9, b"K")])
    pipeline = Pipeline(folder, shop.document("topic_record", "100%"), jvm=jvm)
    checks = {check["name"]: check for check in pipeline.checks()}
    return Ran(folder, shop, events, checks)


@pytest.fixture(scope="module")
def ran_again(ran: Ran, jvm: Jvm) -> Ran:
    """It has caught up with the other file."""
    Pipeline(ran.folder, ran.shop.document("topic_record", "100%"), jvm=jvm).run()
    return ran


def orders(numbers: Sequence[int], offset: int = 0) -> list[dict[str, Any]]:
    """Rows of records of the first schema, in a table that has the columns of the second too."""
    return [
        {"id": n, "place": {"zip": f"z{n}", "city": None}, "note": None, "_offset": at}
        for at, n in enumerate(numbers, offset)
    ]


def newer(number: int, offset: int) -> dict[str, Any]:
    return {"id": number, "place": {"zip": "z", "city": f"c{number}"}, "note": "n", "_offset": offset}


def test_ids_of_eight_bytes_lead_to_the_schemas(ran: Ran) -> None:
    assert ran.rows("long_ids") == [*orders(range(3)), newer(BIG, 3)]
    assert ran.dead_letters("long_ids") == [(4, "unknown_schema_id", "", str(NOBODYS_ID))]


def test_schemas_of_values_and_keys_are_looked_up_by_the_guid_or_the_id_in_a_header(ran: Ran) -> None:
    first = [{**row, "_key": {"desk": "d", "number": 1}} for row in orders(range(3))]
    fifth = {**newer(5, 4), "_key": {"desk": "d", "number": 5}}
    assert ran.rows("guids") == [*first, {**newer(BIG, 3), "_key": None}, fifth]
    assert ran.dead_letters("guids") == [(5, "unknown_schema_id", "", str(NOBODYS_GUID)), (6, "no_schema_id", "", None)]


def test_unknown_fields_are_stored_and_declared_columns_widened(ran: Ran) -> None:
    def aside(**values: Any) -> dict[str, Any]:
        return {name: {"value": value, "reason": "unknown_field"} for name, value in values.items()}

    found = [(row["id"], json.loads(row["_rescued"]), row["_offset"]) for row in ran.rows("rescued")]
    assert found == [
        *((n, aside(place={"zip": f"z{n}"}), n) for n in range(3)),
        (BIG, aside(place={"zip": "z", "city": f"c{BIG}"}, note="n"), 3),
    ]
    assert ran.rows("rescued")[0].keys() == {"id", "_rescued", "_offset"}


def test_a_table_with_add_only_keeps_its_types_and_reports_each_refusal_once(ran: Ran) -> None:
    assert ran.rows("added") == [*orders(range(3)), newer(5, 3), newer(7, 5)]
    assert ran.dead_letters("added") == [(4, "out_of_range", "id", str(ran.shop.new))]
    reported = [event for event in ran.events if event.get("event") == "schema_change_refused"]
    assert [(one["table"], one["change"], one["schemas"], one["schema_evolution"]) for one in reported] == [
        ("s.added", "column id: int is not widened to long", [str(ran.shop.new)], "add_only")
    ]
    assert "schema_evolution: evolve" in reported[0]["remedy"]


def test_keys_and_headers_are_records_though_their_schema_is_the_name_of_another(ran: Ran) -> None:
    def row(number: int, key: int | None, sent: int | None) -> dict[str, Any]:
        keys = [number and {"desk": "d", "number": number} for number in (key, sent)]
        return {"at": number, "who": {"desk": "w", "number": number}, "_key": keys[0], "sent": keys[1]}

    found = [{name: value for name, value in one.items() if name != "_offset"} for one in ran.rows("referred")]
    assert found == [*(row(n, 2, 3) for n in range(3)), row(9, None, None)]


def test_the_newest_schema_is_of_the_subject_named_after_the_record(ran: Ran) -> None:
    found = [{"id": row["id"], "heat": row["heat"], "_offset": row["_offset"]} for row in ran.rows("newest")]
    assert found[:3] == [{"id": n, "heat": n / 2, "_offset": n} for n in range(3)]


# In time: what `check` says of it, below, and unit/registry/test_port.py.
@pytest.mark.slow
def test_the_newest_schema_is_of_the_subject_named_after_topic_and_record(ran_again: Ran) -> None:
    assert ran_again.rows("newest") == [
        *({"id": n, "heat": n / 2, "unit": None, "_offset": n} for n in range(3)),
        {"id": 9, "heat": 4.5, "unit": "K", "_offset": 3},
    ]


def test_a_table_stops_at_too_many_bad_records(ran: Ran) -> None:
    (stopped,) = (event for event in ran.events if event.get("event") == "table_stopped")
    assert (stopped["table"], "records are bad, more than 20% of recent records" in stopped["reason"]) == (
        "s.stopped",
        True,
    )
    found = [{"id": row["id"], "place": row["place"], "_offset": row["_offset"]} for row in ran.rows("stopped")]
    assert found == [{"id": n, "place": {"zip": f"z{n}"}, "_offset": n} for n in range(GOOD)]


@pytest.mark.slow  # In time: unit/remedies/test_tables.py.
def test_a_table_stopped_by_bad_records_continues_when_the_file_allows_them(ran_again: Ran) -> None:
    assert len(ran_again.rows("stopped")) == GOOD
    assert ran_again.dead_letters("stopped") == [(GOOD + n, "no_wire_format", "", None) for n in range(DAMAGED)]


def test_what_the_registry_is_asked_is_asked_of_the_context(ran: Ran) -> None:
    asked = [urlsplit(path) for path in ran.shop.front.paths]
    of_ids = [parse_qs(one.query).get("subject") for one in asked if one.path.startswith("/schemas/ids/")]
    assert of_ids
    assert of_ids == [[CONTEXT]] * len(of_ids)
    subjects = {unquote(one.path) for one in asked if one.path.endswith("/versions/latest")}
    after_record, after_both = "shop.Reading", f"{ran.shop.topics['newest']}-shop.Reading"
    assert {f"/subjects/{CONTEXT}{name}/versions/latest" for name in (after_record, after_both)} <= subjects


def test_the_gate_finds_the_subjects_of_a_topic_by_its_name(ran: Ran) -> None:
    told = ran.checks[f"schema {ran.shop.topics['added']}-shop.Refund"]
    assert (told["ok"], "column id: string does not fit int" in told["found"]) == (False, True)
    told = ran.checks[f"schema {ran.shop.topics['newest']}-shop.Reading"]
    assert (told["ok"], told["found"]) == (True, "a run adds unit: string")


def test_a_registry_without_guids_is_an_outage_and_makes_no_bad_records(shop: Shop) -> None:
    real = ConfluentRegistry(RegistrySpec(urls=(shop.registry.api,)))
    with pytest.raises(UnavailableError, match=r"does not return the schema of GUID .*: 404"):
        real.by_guid(str(UUID(int=shop.old)))
    real.close()
