"""Rows of several source tables in one topic: Debezium's ByLogicalTableRouter names the table in the records' keys alone."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import fastavro
import pytest

from frazil.dead_letters.files import Selection
from frazil.ingest.tables.table import Table
from frazil.kafka.port import TopicReaders
from frazil.spec.settings import ValueSpec
from tests.needs import has_package, needs
from tests.unit.cdc.mongodb_source import connect_fields, wrapped
from tests.unit.upsert.upsert_source import Row, UpsertSource

if has_package("deadletters"):
    from frazil_deadletters.replay import Replayer

_FORMS = ("plain", "schema", "avro")
_ROUTED = "__dbz__physicalTableIdentifier"
_BY_TABLE: dict[str, Any] = {"key_columns": ("_source_table", "id"), "metadata": {"source_table": "_source_table"}}
_SOURCE = {"connector": "string", "db": "string", "schema": "string", "table": "string", "lsn": "int64"}
_ROW = {"id": "int64", "v": "string"}


def _avro(name: str, kinds: dict[str, Any]) -> dict[str, Any]:
    fields = [{"name": one, "type": ["null", "long" if kind == "int64" else kind]} for one, kind in kinds.items()]
    return {"type": "record", "name": name, "fields": fields}


class Shards(UpsertSource):
    """A table of a topic to which the router sends tables `t1`, `t2` …. form: how records are written; field: what the
    router calls the table in their keys.
    """

    def __init__(self, root: Path, form: str = "plain", field: str = _ROUTED, **settings: Any) -> None:
        self.form, self.field = form, field
        kind = ValueSpec(format="avro" if form == "avro" else "json")
        super().__init__(root, value=kind, **{"key": kind, **settings})
        if form == "avro":
            row = _avro("Value", _ROW)
            value = _avro("Envelope", {"before": row, "after": "Value", "source": _avro("S", _SOURCE), "op": "string"})
            self.schemas_of = {"value": value, "key": _avro("Key", {"id": "int64", field: "string"})}
            self.ids = {part: self.registry.register("avro", json.dumps(one)) for part, one in self.schemas_of.items()}

    def change(self, *changes: tuple[str, str, int, str]) -> Table:
        """Operation, table, id and value; the operation `-` is a tombstone."""
        for op, table, number, v in changes:
            row = {"id": number, "v": v}
            images: Row = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
            source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": table, "lsn": 7}
            key = self._written("key", {"id": number, self.field: f"shop.public.{table}"})
            value = None if op == "-" else self._written("value", {**images, "source": source, "op": op})
            self.source.produce("a", 0, value, key=key)
        return self.catch_up()

    def _written(self, part: str, record: Row) -> bytes:
        if self.form == "plain":
            return json.dumps(record).encode()
        if self.form == "schema":
            if part == "key":
                return wrapped(record, connect_fields({"id": "int64", self.field: "string"}))
            members = {"before": _ROW, "after": _ROW, "source": _SOURCE}
            structs: list[Row] = [
                {"type": "struct", "fields": connect_fields(kinds), "optional": True, "field": name}
                for name, kinds in members.items()
            ]
            return wrapped(record, [*structs, *connect_fields({"op": "string"})])
        body = io.BytesIO()
        schema = fastavro.parse_schema(json.loads(json.dumps(self.schemas_of[part])))
        fastavro.schemaless_writer(body, schema, record)
        return struct.pack(">xi", self.ids[part]) + body.getvalue()

    def rows_by_table(self) -> list[tuple[str, int, str]]:
        return sorted((row["_source_table"], row["id"], row["v"]) for row in self.upsert_table())


@pytest.mark.parametrize("form", _FORMS)
@pytest.mark.parametrize("at_once", [1, 100])
def test_rows_of_several_tables_stay_apart_by_their_source_table(tmp_path: Path, form: str, at_once: int) -> None:
    shards = Shards(tmp_path, form, **_BY_TABLE)
    changes = [
        ("c", "t1", 1, "a"), ("c", "t2", 1, "b"), ("c", "t2", 2, "b"), ("u", "t1", 1, "c"), ("d", "t2", 1, "b"),
        ("-", "t2", 1, ""), ("r", "t3", 2, "d"),
    ]  # fmt: skip
    for start in range(0, len(changes), at_once):
        shards.change(*changes[start : start + at_once])
    assert (shards.rows_by_table(), shards.dead_letters()) == ([("t1", 1, "c"), ("t2", 2, "b"), ("t3", 2, "d")], [])


@pytest.mark.parametrize("form", _FORMS)
@pytest.mark.parametrize("field", [_ROUTED, "shard"])
@needs("deadletters")
def test_keys_with_a_field_that_rows_lack_name_the_key_columns_that_keep_them_apart(
    tmp_path: Path, form: str, field: str
) -> None:
    shards = Shards(tmp_path, form, field)
    shards.change(("c", "t1", 1, "a"), ("c", "t2", 1, "b"))
    reason = (
        f"the record's key has the field {field}, and its row does not: where it names the row's table, as"
        " ByLogicalTableRouter lets it, write `metadata: [source_table]` and `key_columns: [_source_table, id]`, which"
        " keeps rows of several tables apart"
    )
    assert shards.dead_letters() == [("no_key", reason)] * 2
    (spec,) = shards.spec.tables
    shards.spec = shards.spec.model_copy(update={"tables": (spec.model_copy(update=_BY_TABLE),)})
    table = shards.change(("c", "t3", 1, "c"))
    Replayer(shards.catalog, shards.schemas, TopicReaders(shards.source, shards.source)).replay(table, Selection())
    assert shards.rows_by_table() == [("t1", 1, "a"), ("t2", 1, "b"), ("t3", 1, "c")]
