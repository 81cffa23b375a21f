"""Tables of Avro and Protobuf on real parts, judged by the formats' own libraries with the schemas of a real registry."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from fastavro import parse_schema, schemaless_writer

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from frazil_verify.model.proto_files import messages_of
from tests.fixtures.registry import ApicurioRegistry
from tests.integration.pipelines import Ledger, Pipeline

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600), pytest.mark.slow]
COUNT = 40
PLACE = {"type": "record", "name": "shop.Place", "fields": [{"name": "zip", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "paid", "type": ["null", "int", "long", "double"]},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "kind", "type": ["string", {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}]},
        {"name": "sent", "type": ["null", "shop.Place"]},
    ],
}
KEY = {"type": "record", "name": "shop.Key", "fields": [{"name": "id", "type": "long"}]}
PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Other { int32 a = 1; }
message Reading {
  int64 id = 1; map<string, double> values = 2; oneof one { string left = 3; int32 right = 4; }
  google.protobuf.Timestamp at = 5; enum Level { LOW = 0; HIGH = 1; } Level level = 6;
}
"""


def _framed(number: int, body: bytes) -> bytes:
    return b"\0" + number.to_bytes(4) + body


def _avro(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    schemaless_writer(out, schema, value)
    return out.getvalue()


class Scene:
    """Three tables: of Avro, of Avro by key, and of Protobuf."""

    def __init__(self, broker: EmbeddedBroker, registry: ApicurioRegistry, folder: Path) -> None:
        servers = broker.bootstrap_servers
        self.orders, self.stock, self.readings = (Ledger(servers, new_id(), 1).topic for _ in range(3))
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
        self._registry = registry
        places = ["partition", "offset"]
        avro = {"value": {"format": "avro"}, "metadata": places}
        tables = {
            "r.orders": {"topic": self.orders, **avro},
            "r.stock": {"topic": self.stock, **avro, "key": {"format": "avro"}, "mode": "upsert"},
            "r.readings": {"topic": self.readings, "value": {"format": "protobuf"}, "metadata": places},
        }
        document = {
            "pipeline": "r",
            "kafka": {"bootstrap.servers": servers},
            "registry": {"url": registry.api},
            "tables": tables,
        }
        self.pipeline = Pipeline(folder, document)
        self._send()
        self.pipeline.run()

    def _send(self) -> None:
        self._registry.register("shop.Place", "AVRO", json.dumps(PLACE))
        references = [("shop.Place", "shop.Place", 1)]
        of_order = self._registry.register(f"{self.orders}-value", "AVRO", json.dumps(ORDER), references)
        of_key = self._registry.register(f"{self.stock}-key", "AVRO", json.dumps(KEY))
        of_reading = self._registry.register(f"{self.readings}-value", "PROTOBUF", PROTO)
        named: dict[str, Any] = {}
        parse_schema(PLACE, named)
        order, key = parse_schema(ORDER, named), parse_schema(KEY)
        message = messages_of(PROTO).at((1,))
        assert message is not None
        for number in range(COUNT):
            paid = (None, ("int", number), ("long", number), ("double", number / 4))[number % 4]
            value = {
                "id": number % 10, "paid": paid, "tags": {"a": number, "b": 1},
                "kind": "NEW" if number % 2 else "text", "sent": {"zip": f"z{number}"} if number % 3 else None,
            }  # fmt: skip
            body = _avro(order, value) if number != 7 else b"\2"
            self._producer.produce(self.orders, _framed(of_order, body), partition=0)
            gone = number % 13 == 12
            of_stock = None if gone else _framed(of_order, _avro(order, value))
            self._producer.produce(self.stock, of_stock, _framed(of_key, _avro(key, {"id": number % 10})), partition=0)
            values = [{"key": "b", "value": 0.5}, {"key": "a", "value": number}]
            reading = message.type(id=number, values=values, level=number % 2)
            reading.at.FromSeconds(1_790_000_000 + number)
            if number % 2:
                reading.left = "l"
            else:
                reading.right = number
            body = reading.SerializeToString() if number != 9 else b"\x0a"
            self._producer.produce(self.readings, _framed(of_reading, b"\x02\x02" + body), partition=0)
        assert self._producer.flush(30) == 0


@pytest.fixture(scope="module")
def scene(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The tables, filled."""
    folder = tmp_path_factory.mktemp("registered")
    registry = ApicurioRegistry(folder / "registry")
    registry.start()
    try:
        registry.ask("PUT", "/config", {"compatibility": "NONE"})
        yield Scene(broker, registry, folder / "pipeline")
    finally:
        registry.kill()


def verified(scene: Scene) -> tuple[int, dict[str, Any]]:
    """The exit code, and what the judge has found of each table."""
    done, printed = scene.pipeline.command("verify", "--independent")
    return done.returncode, printed["tables"]


def test_whole_tables_differ_in_nothing_and_a_changed_value_is_found(scene: Scene) -> None:
    code, tables = verified(scene)
    assert (code, {name: table["counts"] for name, table in tables.items()}) == (0, {name: {} for name in tables}), (
        tables
    )
    assert tables["r.orders"]["seen"] == {"records": COUNT, "rows": COUNT - 1, "dead_letters": 1}
    assert tables["r.stock"]["seen"]["dead_letters"] == 0
    assert tables["r.readings"]["seen"] == {"records": COUNT, "rows": COUNT - 1, "dead_letters": 1}
    for name, column in (("orders", "tags"), ("readings", "left")):
        folder = scene.pipeline.directory / "frazil-data" / "warehouse"
        (path,) = folder.glob(f"**/{name}/data/**/*.parquet")
        rows = pq.ParquetFile(path).read()
        place = rows.schema.get_field_index(column)
        values = rows.column(column).to_pylist()
        values[3] = [("a", -1)] if column == "tags" else "other"
        pq.write_table(
            rows.set_column(place, rows.schema.field(place), pa.array(values, rows.schema.field(place).type)), path
        )
        _, tables = verified(scene)
        (finding,) = tables[f"r.{name}"]["findings"]
        assert (finding["kind"], finding["columns"], finding["offset"]) == (
            "changed",
            [column],
            rows["_offset"][3].as_py(),
        )
