"""What reading change data costs: CPU seconds of one task per million records, in process, without Kafka and files.

`python -m bench.changes` prints a line for each form; it takes half a minute on one core.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa
from pyiceberg.types import IcebergType, LongType, StringType

from frazil.decode.settings import Envelope, Reading, WriterSchema
from frazil.ingest.tasks.task import read_records
from frazil.schema.evolve import new_schema
from frazil.spec.settings import METADATA_COLUMNS, MetadataField
from frazil.write.target import TableTarget, metadata_columns

COUNT = 20_000
_ROUNDS = 5
_COLUMNS: Mapping[str, IcebergType] = {
    "id": LongType(),
    "customer_id": LongType(),
    "status": StringType(),
    "amount": StringType(),
    "quantity": LongType(),
    "note": StringType(),
    "created": LongType(),
}
_CONNECT = {"long": "int64", "string": "string"}
_SOURCE = {
    "version": "3.6.0.Final", "connector": "postgresql", "name": "shop", "ts_ms": 1795249134853, "snapshot": "false",
    "db": "shop", "sequence": "[\"26719680\",\"26720120\"]", "ts_us": 1795249134853075, "ts_ns": 1795249134853075000,
    "schema": "public", "table": "orders", "txId": 756, "lsn": 26720120, "xmin": None, "origin": None, "origin_lsn": None,
}  # fmt: skip
_JSON = Reading()
_LOG: tuple[MetadataField, ...] = ("op", "image", "source_ts", "connector_ts", "unavailable")
_MIRROR = Envelope("debezium", is_upsert=True, keys=(("id",),))
_CHANGE_LOG = Envelope("debezium", is_log=True)
_OF_CANAL = Envelope("canal", is_upsert=True, keys=(("id",),))
_MYSQL = {"long": "bigint(20)", "string": "varchar(99)"}


@dataclass(frozen=True)
class Form:
    """One way to write changes and one table for them: the value of a number's record, and how it is read."""

    name: str
    value: Callable[[int], bytes]
    envelope: Envelope | None
    reading: Reading = _JSON
    metadata: tuple[MetadataField, ...] = ()


def forms() -> Iterator[Form]:
    """All that are measured."""
    avro = Reading(format="avro", schemas=(("1", WriterSchema("avro", json.dumps(_avro_envelope()))),))
    plain = Reading(format="avro", schemas=(("1", WriterSchema("avro", json.dumps(_avro_row()))),))
    encode, encode_row = _avro_encoder(_avro_envelope()), _avro_encoder(_avro_row())
    yield Form("JSON row without an envelope", lambda n: _dump(_row(n)), None)
    yield Form("Debezium, unwrapped", lambda n: _dump({**_row(n), "__deleted": "false", "__op": "u"}), _MIRROR)
    yield Form("Debezium, current state", lambda n: _dump(_change(n, False)), _MIRROR)
    yield Form("Debezium, changelog", lambda n: _dump(_change(n, False)), _CHANGE_LOG, metadata=_LOG)
    yield Form("Debezium, changelog with rows before", lambda n: _dump(_change(n, True)), _CHANGE_LOG, metadata=_LOG)
    yield Form("Debezium with its schema, current state", lambda n: _dump(_wrapped(n)), _MIRROR)
    yield Form("Canal, current state, a row each", lambda n: _dump(_canal(n, 1)), _OF_CANAL)
    yield Form("Canal, current state, five rows each (per message)", lambda n: _dump(_canal(n, 5)), _OF_CANAL)
    yield Form("Avro row without an envelope", lambda n: encode_row(_row(n)), None, plain)
    yield Form("Debezium in Avro, current state", lambda n: encode(_change(n, False)), _MIRROR, avro)
    yield Form("Debezium in Avro, changelog with rows before", lambda n: encode(_change(n, True)), _CHANGE_LOG, avro)


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "customer_id": number % 97,
        "status": "open" if number % 2 else "closed",
        "amount": f"12.{number % 100:02d}",
        "quantity": number % 7,
        "note": f"some text {number % 1000}",
        "created": 1767323045678901 + number,
    }


def _change(number: int, has_before: bool) -> dict[str, Any]:
    return {
        "before": _row(number) if has_before else None,
        "after": _row(number),
        "source": _SOURCE,
        "transaction": {"id": f"1:{number}", "total_order": 1, "data_collection_order": 1},
        "op": "u",
        "ts_ms": 1795249134988,
        "ts_us": 1795249134988894,
        "ts_ns": 1795249134988894816,
    }


def _wrapped(number: int) -> dict[str, Any]:
    inner = [{"field": name, "type": _CONNECT[str(kind)], "optional": True} for name, kind in _COLUMNS.items()]
    images = [
        {"type": "struct", "fields": inner, "optional": True, "name": "v", "field": f} for f in ("before", "after")
    ]
    op = {"type": "string", "optional": False, "field": "op"}
    return {"schema": {"type": "struct", "fields": [*images, op], "name": "e"}, "payload": _change(number, False)}


def _canal(number: int, rows: int) -> dict[str, Any]:
    texts = {name: str(value) for name, value in _row(number).items()}
    return {
        "data": [texts] * rows,
        "database": "shop",
        "es": 1795249134853,
        "id": number,
        "isDdl": False,
        "mysqlType": {name: _MYSQL[str(kind)] for name, kind in _COLUMNS.items()},
        "old": [{"quantity": "1"}] * rows,
        "pkNames": ["id"],
        "sql": "",
        "sqlType": dict.fromkeys(_COLUMNS, 12),
        "table": "orders",
        "ts": 1795249134988,
        "type": "UPDATE",
    }


def _avro_row() -> dict[str, Any]:
    fields = [{"name": name, "type": ["null", str(kind)]} for name, kind in _COLUMNS.items()]
    return {"type": "record", "name": "Value", "fields": fields}


def _avro_envelope() -> dict[str, Any]:
    images = [{"name": "before", "type": ["null", _avro_row()]}, {"name": "after", "type": ["null", "Value"]}]
    others = [{"name": "op", "type": "string"}, {"name": "ts_ms", "type": "long"}]
    return {"type": "record", "name": "Envelope", "fields": [*images, *others]}


def _avro_encoder(schema: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], bytes]:
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))

    def encode(value: Mapping[str, Any]) -> bytes:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, parsed, value)
        return b"\0\0\0\0\1" + body.getvalue()

    return encode


def table_of(form: Form) -> TableTarget:
    """The table that a form is read for."""
    columns = {**_COLUMNS, **metadata_columns({name: METADATA_COLUMNS[name] for name in form.metadata})}
    return TableTarget(
        name="bench.t",
        schema_json=new_schema(columns.items()).model_dump_json(),
        metadata=tuple((name, METADATA_COLUMNS[name]) for name in form.metadata),
        reading=form.reading,
        envelope=form.envelope,
    )


def records_of(form: Form, count: int) -> dict[str, pa.Array]:
    """So many of its records."""
    return {"value": pa.array([form.value(number) for number in range(count)], pa.binary())}


def _seconds(form: Form) -> float:
    target, records = table_of(form), records_of(form, COUNT)
    taken = []
    for _ in range(_ROUNDS):
        began = time.process_time()
        read = read_records(target, "t", records)
        taken.append(time.process_time() - began)
        assert not read.decoded.mismatches, read.decoded.mismatches
    return sorted(taken)[_ROUNDS // 2] / COUNT * 1_000_000


def main() -> None:
    """Prints the table."""
    print(f"{'':48} bytes  CPU s per million")
    for form in forms():
        print(f"{form.name:48} {len(form.value(COUNT - 1)):5}  {_seconds(form):8.2f}")


if __name__ == "__main__":
    main()
