"""What a table's query makes of changes: their order, the rows that are marked as deleted, and values that were not sent."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from frazil.cdc.changes import read_envelope
from frazil.decode.settings import PLACEHOLDER, Envelope, Reading
from frazil.ingest.tasks.task import read_records
from frazil.queries.program import Call, Field, Filter, Literal, Program, Project
from frazil.rows.query import run_query
from frazil.stages.changes import DELETE, UPSERT, ReadRecords
from frazil.write.target import ChangeReading, TableQuery, TableTarget
from tests.unit.cdc.envelope_reference import target_for

_LONG, _TEXT = pa.int64(), pa.string()
_ID, _SEQ, _KIND, _BIG = Field("id", _LONG), Field("seq", _TEXT), Field("kind", _TEXT), Field("big", _TEXT)
_AT = Call("Cast", (_SEQ,), _LONG, (("evalMode", "ANSI"),), "CAST(seq AS BIGINT)")
_ORDERED = Program(
    (
        Filter(Call("EqualTo", (_KIND, Literal("a", _TEXT)), pa.bool_(), (), "(kind = a)"), "where"),
        Project((("id", _ID), ("at", _AT), ("origin", Literal("shop", _TEXT)))),
    ),
    (_ID, Field("at", _LONG), Field("origin", _TEXT)),
)
"""`select id, cast(seq as bigint) as at, 'shop' as origin from records where kind = 'a'`."""


def _records(*values: dict[str, Any]) -> dict[str, pa.Array]:
    count = len(values)
    return {
        "value": pa.array([json.dumps(one).encode() for one in values], pa.binary()),
        "timestamp": pa.array(range(count), pa.timestamp("us", tz="UTC")),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
        "key": pa.nulls(count, pa.binary()),
    }


def _change(op: str, key: int, seq: str, kind: str = "a") -> dict[str, Any]:
    return {"op": op, "id": key, "seq": seq, "kind": kind}


@pytest.mark.parametrize("is_soft", [False, True])
def test_changes_have_the_order_that_the_query_makes_also_where_it_drops_or_deletes_their_rows(is_soft: bool) -> None:
    """As texts, 9 would be newer than 10. A row that is marked keeps what was made of its key or of nothing."""
    words: dict[str, Any] = {"insert": ("c",), "update": ("u",), "delete": ("d",)}
    envelope = Envelope("operation", "op", **words, is_upsert=True, marks_deletes=is_soft, keys=(("id",),))
    marks: Any = ("deleted", "deleted_at") if is_soft else ()

    def target(order: str, columns: dict[str, str], **other: Any) -> TableTarget:
        reading = ChangeReading(Reading(), ("id",), order_by=order, marks_deletes=is_soft)
        return target_for(envelope, columns, marks, changes=reading, **other)

    source = target("seq", {"id": "long", "seq": "string", "kind": "string"})
    table = target("at", {"id": "long", "at": "long", "origin": "string"}, query=TableQuery(source, _ORDERED))
    told = [_change("c", 1, "10"), _change("u", 1, "9"), _change("u", 2, "11", "b"), _change("d", 3, "12")]
    changes = read_records(table, "a", _records(*told))
    assert changes.order is not None
    assert changes.order.to_pylist() == [10, 9, 11, 12]
    assert changes.ops.tolist() == ([UPSERT] * 4 if is_soft else [UPSERT, UPSERT, DELETE, DELETE])
    unavailable = {table.fields[n].name: mask.tolist() for n, mask in changes.unavailable.items() if mask.any()}
    assert unavailable == ({"origin": [False, False, True, True]} if is_soft else {})
    assert changes.columns[1].to_pylist() == [10, 9, 11, 12]


def test_values_that_were_not_sent_are_named_by_the_columns_that_lack_them() -> None:
    program = Program((Project((("id", _ID), ("large", _BIG))),), (_ID, Field("large", _TEXT)))
    envelope = Envelope("debezium", is_log=True)
    source = target_for(envelope, {"id": "long", "big": "string"}, ("unavailable",))
    table = target_for(envelope, {"id": "long", "large": "string"}, ("unavailable",), query=TableQuery(source, program))
    records = _records(*({"op": "c", "after": {"id": 1, "big": big}} for big in ("x", PLACEHOLDER)))
    changes = run_query(table, ReadRecords("a", records, 10), read_envelope(source, records))
    assert changes.own["unavailable"].to_pylist() == [None, ["large"]]
