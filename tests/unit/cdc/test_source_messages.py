"""Whole messages of Debezium for MySQL, MariaDB, SQL Server and Oracle, with their schemas and without, and snapshots that
are taken beside the stream: from the record to the rows of an upsert table.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from frazil.decode.settings import PLACEHOLDER
from frazil.ingest.tables.state import RunState
from tests.unit.upsert.upsert_source import Row, SourceRecord, UpsertSource

_TIME, _CONNECT, _DATA = "io.debezium.time.", "org.apache.kafka.connect.data.", "io.debezium.data."
_AT_MS = 1_767_323_045_678
_MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678000)  # noqa: DTZ001  (a timestamp without a zone)
_NUMBERS = {
    "int64": ("ts_ms", "ts_us", "ts_ns", "server_id", "pos", "thread", "event_serial_no", "total_order",
              "data_collection_order"),
    "int32": ("row", "redo_thread", "ssn"),
}  # fmt: skip
_KINDS = {name: kind for kind, names in _NUMBERS.items() for name in names}
_ZERO = f"{0:020}"
_EXACTLY = _MOMENT.replace(microsecond=678901)


@dataclass(frozen=True)
class Column:
    """A column: its type of Kafka Connect, a value as it is written, and as the table has it: where messages have their
    schemas, and where not (None: as it is written).
    """

    kind: str
    written: Any
    typed: Any
    name: str = ""
    plain: Any = None
    parameters: tuple[tuple[str, str], ...] = ()
    members: tuple[tuple[str, str], ...] = ()

    def schema(self, field: str) -> Row:
        """The field in the schema of a message."""
        found: Row = {"type": self.kind, "optional": True, "field": field}
        if self.name:
            found |= {"name": self.name, "version": 1, "parameters": dict(self.parameters)}
        if self.members:
            found["fields"] = [{"type": kind, "optional": False, "field": name} for name, kind in self.members]
        return found

    def shown(self, has_schema: bool) -> Any:
        """The value in the table."""
        return self.typed if has_schema else self.written if self.plain is None else self.plain


def _decimal(number: int, scale: int, precision: int) -> Column:
    text = base64.b64encode(number.to_bytes(4, "big", signed=True)).decode()
    told = (("scale", str(scale)), ("connect.decimal.precision", str(precision)))
    return Column("bytes", text, Decimal(number).scaleb(-scale), f"{_CONNECT}Decimal", parameters=told)


def _same(kind: str, value: Any, name: str = "", **parameters: str) -> Column:
    return Column(kind, value, value, name, parameters=tuple(parameters.items()))


@dataclass(frozen=True)
class Source:
    """A connector. columns: of a table beside its key, which is `key`. blocks: of a row of a snapshot, an insert, an update
    and a delete what the source block has beside what all have. order: of the update among all changes. unsent: a column
    that the update does not tell.
    """

    connector: str
    key: str
    columns: Mapping[str, Column]
    blocks: tuple[Row, ...]
    order: str
    unsent: str = ""

    def messages(self) -> list[SourceRecord]:
        """Each as key and value: a row of a snapshot, another row that comes, the first one changed, the other one gone."""
        first, other = self._row(1), self._row(2)
        changed = {**first, **({self.unsent: self._placeholder} if self.unsent else {})}
        reported = [("r", None, first), ("c", None, other), ("u", first, changed), ("d", other, None)]
        return [
            ({self.key: (before or after or {})[self.key]}, self._value(step, op, before, after))
            for step, (op, before, after) in enumerate(reported)
        ]

    def with_schema(self, told: SourceRecord) -> SourceRecord:
        """The same with the schemas of key and value."""
        key, value = told
        own: Row = {"type": "int32", "optional": False, "field": self.key}
        columns = [own, *(column.schema(name) for name, column in self.columns.items())]
        wrapped = {"schema": _struct([own], name="shop.orders.Key"), "payload": key}
        if value is None:
            return wrapped, None
        fields = [
            _struct(columns, field="before", name="shop.orders.Value"),
            _struct(columns, field="after", name="shop.orders.Value"),
            _struct(_typed(value["source"]), field="source", name=f"io.debezium.connector.{self.connector}.Source"),
            _struct(_typed(value["transaction"] or {}), field="transaction", name="event.block"),
            {"type": "string", "optional": False, "field": "op"},
            *({"type": "int64", "optional": True, "field": name} for name in ("ts_ms", "ts_us", "ts_ns")),
        ]
        return wrapped, {"schema": _struct(fields, name="shop.orders.Envelope"), "payload": value}

    @property
    def _placeholder(self) -> str:
        is_bytes = self.columns[self.unsent].kind == "bytes"
        return base64.b64encode(PLACEHOLDER.encode()).decode() if is_bytes else PLACEHOLDER

    def _row(self, key: int) -> Row:
        return {self.key: key, **{name: column.written for name, column in self.columns.items()}}

    def _value(self, step: int, op: str, before: Row | None, after: Row | None) -> Row:
        at_ms = _AT_MS + step
        times = {"ts_ms": at_ms, "ts_us": at_ms * 1000, "ts_ns": at_ms * 1_000_000}
        block = {"version": "3.2.0.Final", "connector": self.connector, "name": "shop", **times, "sequence": None,
                 "snapshot": "false" if step else "last", "db": "shop", "table": "orders", **self.blocks[step]}  # fmt: skip
        transaction = {"id": f"transaction {step}", "total_order": step, "data_collection_order": 1} if step else None
        return {"before": before, "after": after, "source": block, "transaction": transaction, "op": op, **times}


def _struct(fields: list[Row], **more: str) -> Row:
    return {"type": "struct", "fields": fields, "optional": True, **more}


def _typed(values: Row) -> list[Row]:
    return [{"type": _KINDS.get(name, "string"), "optional": True, "field": name} for name in values]


def _of_mysql(step: int, gtid: str | None) -> Row:
    who = {"server_id": 223344 if step else 0, "gtid": gtid, "thread": 7 if step else None, "query": None}
    return {**who, "file": "binlog.000002", "pos": 157 + 100 * step, "row": 0}


def _of_sql_server(step: int) -> Row:
    change = {"change_lsn": f"0000002b:00000d28:000{step}", "event_serial_no": 1}
    nothing = {"change_lsn": None, "event_serial_no": None}
    return {"schema": "dbo", "commit_lsn": f"0000002b:00000d28:001{step}", **(change if step else nothing)}


def _of_oracle(step: int) -> Row:
    change = {"txId": "0600170012000000", "commit_scn": f"{2122190 + step}", "rs_id": "001234.00012345.0124", "ssn": step,
              "redo_thread": 1, "user_name": "SHOP", "row_id": "AAASgjAAMAAAACnAAA"}  # fmt: skip
    nothing = dict.fromkeys(change)
    return {"schema": "SHOP", "scn": f"{2122185 + step}", "lcr_position": None, **(change if step else nothing)}


_OF_MYSQL = {
    "price": _decimal(12345, 2, 10),
    "placed": Column("int64", _AT_MS, _MOMENT, f"{_TIME}Timestamp"),
    "placed_exactly": Column("int64", _AT_MS * 1000 + 901, _EXACTLY, f"{_TIME}MicroTimestamp"),
    "seen": Column(
        "string", "2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), f"{_TIME}ZonedTimestamp"
    ),
    "day": Column("int32", 20455, date(2026, 1, 2), f"{_TIME}Date"),
    "hour": Column("int64", 11_045_500_001, time(3, 4, 5, 500001), f"{_TIME}MicroTime"),
    "year": _same("int32", 2026, f"{_TIME}Year"),
    "state": _same("string", "open", f"{_DATA}Enum", allowed="open,paid"),
    "tags": _same("string", "a,b", f"{_DATA}EnumSet", allowed="a,b,c"),
    "doc": _same("string", '{"k": [1, 2]}', f"{_DATA}Json"),
    "is_paid": _same("boolean", True),
    "small": _same("int16", 1),
    "amount": _same("int64", 2**53),
    "photo": Column("bytes", "AQI=", b"\1\2"),
}
SOURCES = [
    Source(
        "mysql",
        "id",
        _OF_MYSQL,
        (_of_mysql(0, None), *(_of_mysql(n, f"3e11fa47-71ca-11e1-9e33-c80aa9429562:{n}") for n in (1, 2, 3))),
        f"binlog.{2:020}/{357:020}/{2:020}/{_ZERO}",
    ),
    Source(
        "mariadb",
        "id",
        {**_OF_MYSQL, "ip": _same("string", "2001:db8::1")},
        (_of_mysql(0, None), *(_of_mysql(n, f"0-223344-{n}") for n in (1, 2, 3))),
        f"binlog.{2:020}/{357:020}/{2:020}/{_ZERO}",
    ),
    Source(
        "sqlserver",
        "Id",
        {
            "Price": _decimal(1234567, 4, 19),
            "Placed": Column("int64", _AT_MS * 1_000_000 + 901_200, _EXACTLY, f"{_TIME}NanoTimestamp"),
            "Changed": Column("int64", _AT_MS, _MOMENT, f"{_TIME}Timestamp"),
            "TableActivity": Column(
                "string",
                "2026-01-02T03:04:05.6789012+02:00",
                _EXACTLY.replace(tzinfo=timezone(timedelta(hours=2))),
                f"{_TIME}ZonedTimestamp",
            ),
            "Day": Column("int32", 20455, date(2026, 1, 2), f"{_TIME}Date"),
            "Hour": Column("int64", 11_045_500_001_900, time(3, 4, 5, 500001), f"{_TIME}NanoTime"),
            "Guid": _same("string", "6B1F2D3C-0000-4000-8000-000000000001"),
            "IsPaid": _same("boolean", True),
            "Version": Column("bytes", "AAAAAAAAB9E=", bytes.fromhex("00000000000007d1")),
        },
        tuple(_of_sql_server(step) for step in range(4)),
        f"0000002b:00000d28:0012/0000002b:00000d28:0002/{1:020}/{2:020}/{_ZERO}",
    ),
    Source(
        "oracle",
        "ID",
        {
            "PRICE": _decimal(12345, 2, 10),
            "AMOUNT": Column(
                "struct",
                {"scale": 2, "value": "JxE="},
                "100.01",
                f"{_DATA}VariableScaleDecimal",
                members=(("scale", "int32"), ("value", "bytes")),
            ),
            "HIRED": Column("int64", 1_767_312_000_000, datetime(2026, 1, 2), f"{_TIME}Timestamp"),  # noqa: DTZ001
            "PLACED": Column(
                "int64", _AT_MS * 1000 + 901, _EXACTLY, f"{_TIME}MicroTimestamp"
            ),
            "SEEN": Column(
                "string",
                "2026-01-02T03:04:05.678901Z",
                datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
                f"{_TIME}ZonedTimestamp",
            ),
            "SPAN": _same("int64", 93_600_000_000, f"{_TIME}MicroDuration"),
            "RATE": _same("float64", 1.5),
            "NOTES": _same("string", "a long text"),
        },
        tuple(_of_oracle(step) for step in range(4)),
        f"{2122187:020}/{2:020}/{_ZERO}",
        unsent="NOTES",
    ),
]  # fmt: skip
_ASKED = {name: f"_{name}" for name in ("source_order", "source_ts", "transaction_id", "total_order")}


@pytest.mark.parametrize("has_schema", [True, False], ids=["with schemas", "without"])
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.connector)
def test_whole_messages_of_a_source_become_its_rows(tmp_path: Path, source: Source, has_schema: bool) -> None:
    scenario = UpsertSource(tmp_path, metadata=_ASKED, order_by="_source_order")
    told = source.messages()
    reported = [*told, (told[-1][0], None)]
    scenario.say(*(map(source.with_schema, reported) if has_schema else reported))
    shown = {name: column.shown(has_schema) for name, column in source.columns.items()}
    facts = {
        "_source_order": source.order,
        "_source_ts": datetime.fromtimestamp((_AT_MS + 2) / 1000, UTC),
        "_transaction_id": "transaction 2",
        "_total_order": 2,
    }
    assert (scenario.upsert_table(), scenario.dead_letters()) == ([{source.key: 1, **shown, **facts}], [])


def test_a_schema_change_of_mysql_is_no_row(tmp_path: Path) -> None:
    scenario = UpsertSource(tmp_path)
    column = {"name": "id", "jdbcType": 4, "typeName": "INT", "length": None, "scale": None, "position": 1,
              "optional": False, "autoIncremented": True, "generated": True}  # fmt: skip
    table = {"defaultCharsetName": "utf8mb4", "primaryKeyColumnNames": ["id"], "columns": [column], "comment": None}
    change = {"type": "ALTER", "id": '"shop"."orders"', "table": table}
    block = {"version": "3.2.0.Final", "connector": "mysql", "name": "shop", "ts_ms": _AT_MS, "snapshot": "false",
             "db": "shop", "table": "orders", **_of_mysql(1, None)}  # fmt: skip
    event = {"source": block, "ts_ms": _AT_MS, "databaseName": "shop", "schemaName": None,
             "ddl": "ALTER TABLE orders ADD COLUMN note TEXT", "tableChanges": [change]}  # fmt: skip
    source = SOURCES[0]
    told = scenario.say(*source.messages()[:2], ({"databaseName": "shop"}, event))
    assert (told.status.run_state, told.bad_records.ignored_records, scenario.dead_letters()) == (
        RunState.WAITING,
        {"schema_change": 1},
        [],
    )
    assert [row["id"] for row in scenario.by_id()] == [1, 2]


def _streamed(op: str, key: int, v: str, lsn: int) -> SourceRecord:
    row = {"id": key, "v": v}
    images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    source = {"connector": "postgresql", "snapshot": "incremental" if op == "r" else "false", "lsn": lsn, "ts_ms": lsn}
    return {"id": key}, {"op": op, **images, "source": source, "transaction": None}


@pytest.mark.parametrize("settings", [{}, {"order_by": "_source_order"}], ids=["by arrival", "by order"])
@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_a_snapshot_that_a_signal_has_asked_for_is_read_beside_the_stream(
    tmp_path: Path, settings: dict[str, Any], at_once: int
) -> None:
    """A chunk is read between two watermarks: of the keys that change between them the stream alone tells. A connector that
    was stopped reads the chunk again. What is read has the place of the change before it in the log.
    """
    reported = [
        _streamed("c", 1, "a", 1),
        _streamed("c", 2, "a", 2),
        _streamed("u", 1, "b", 3),  # The first chunk: rows 1, 2 and 3, of which 1 changes meanwhile.
        _streamed("r", 2, "a", 3),
        _streamed("r", 3, "there before", 3),
        _streamed("u", 3, "b", 4),
        _streamed("d", 2, "a", 5),
        ({"id": 2}, None),
        _streamed("c", 5, "a", 6),  # The second one: rows 4 and 5. The connector is stopped after it was told.
        _streamed("r", 4, "there before", 6),
        _streamed("r", 4, "there before", 6),
        _streamed("r", 5, "a", 6),
        _streamed("u", 4, "b", 7),
        _streamed("d", 5, "a", 8),
        ({"id": 5}, None),
        _streamed("c", 5, "again", 9),
    ]
    scenario = UpsertSource(tmp_path, metadata={"source_order": "_source_order"}, **settings)
    for start in range(0, len(reported), at_once):
        scenario.say(*reported[start : start + at_once])
    rows = [(row["id"], row["v"]) for row in scenario.by_id()]
    assert (rows, scenario.dead_letters()) == ([(1, "b"), (3, "b"), (4, "b"), (5, "again")], [])
