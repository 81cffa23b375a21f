"""Sources that write names in capitals, as Oracle does, into tables with columns in lower case: the rows are those of a
table with the source's names.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.cdc.changes import read_envelope
from frazil.spec import ColumnSpec
from frazil.spec.settings import EnvelopeSpec
from frazil.spec.syntax.types import parse_type
from tests.needs import OF_FORMATS, cases, needs
from tests.unit.cdc.envelope_messages import UPSERT_ENVELOPE, avro
from tests.unit.cdc.envelope_reference import target_for
from tests.unit.ingest.service_scene import Scene, only

_UNSENT = "__debezium_unavailable_value"
_KINDS = {"ID": "long", "V": "string", "N": "long", "L": "list<string>"}


def _row(number: int, value: Any = "a", **more: Any) -> dict[str, Any]:
    return {"ID": number, "V": value, "N": number * 10, "L": [value], **more}


def _debezium(op: str, before: Any = None, after: Any = None) -> dict[str, Any]:
    source = {"connector": "oracle", "schema": "s", "table": "t", "scn": "1", "ts_ms": 1}
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": 2}


def _maxwell(kind: str, row: Any, old: Any = None) -> dict[str, Any]:
    return {"database": "d", "table": "t", "type": kind, "ts": 1, "data": row, **({"old": old} if old else {})}


def _canal(kind: str, row: Any, old: Any = None) -> dict[str, Any]:
    types = {"ID": "bigint", "V": "varchar(9)", "N": "int(10) unsigned", "L": "longtext"}
    rows = [{name: None if value is None else str(value) for name, value in row.items()}]
    return {"database": "d", "table": "t", "type": kind, "isDdl": False, "es": 1, "ts": 2, "pkNames": ["ID"],
            "mysqlType": types, "data": rows, "old": [old] if old else None}  # fmt: skip


def _dms(operation: str, row: Any, before: Any = None) -> dict[str, Any]:
    about = {"operation": operation, "record-type": "data", "schema-name": "s", "table-name": "t"}
    return {"data": row, "metadata": about, **({"before-image": before} if before else {})}


def _key(number: int) -> dict[str, Any]:
    return {"ID": number}


Sent = list[tuple[Any, Any]]
"""Keys and values of records."""
_FLAT = {name: _row(1, name, __op=op) for name, op in (("a", "c"), ("b", "u"))}
_SCRIPTS: dict[str, tuple[dict[str, Any], list[Sent]]] = {
    "debezium": ({"envelope": EnvelopeSpec(kind="debezium")}, [
        [(_key(1), _debezium("r", None, _row(1))), (_key(2), _debezium("c", None, _row(2)))],
        [(_key(1), _debezium("u", _row(1), _row(1, "b"))), (_key(2), _debezium("u", None, {**_row(2, _UNSENT), "N": 5}))],
        [(_key(2), _debezium("u", {"ID": 2}, _row(3, "k"))), (_key(1), _debezium("d", {"ID": 1, "V": None}))],
        [(_key(1), None), (_key(3), None), (_key(4), _debezium("c", None, _row(4)))],
    ]),
    "debezium, unwrapped": ({"envelope": EnvelopeSpec(kind="debezium")}, [
        [(_key(1), _FLAT["a"]), (_key(2), _row(2, __op="c"))],
        [(_key(1), {**_FLAT["b"], "V": _UNSENT}), (_key(2), {"ID": 2, "__op": "d", "__deleted": "true"})],
    ]),
    "operation": ({"envelope": EnvelopeSpec(kind="operation", operation="how")}, [
        [(_key(1), _row(1, how="c")), (_key(2), _row(2, how="c"))],
        [(_key(1), _row(1, "b", how="u")), (_key(2), {"ID": 2, "how": "d"})],
        [(_key(1), None)],
    ]),
    "maxwell": ({"envelope": EnvelopeSpec(kind="maxwell")}, [
        [(None, _maxwell("insert", _row(1))), (None, _maxwell("insert", _row(2)))],
        [(None, _maxwell("update", _row(1, "b"), {"V": "a"})), (None, _maxwell("update", _row(3), {"ID": 2}))],
        [(None, _maxwell("delete", _row(1, "b")))],
    ]),
    "canal": ({"envelope": EnvelopeSpec(kind="canal")}, [
        [(None, _canal("INSERT", _row(1))), (None, _canal("INSERT", _row(2)))],
        [(None, _canal("UPDATE", _row(1, "b"), {"V": "a"})), (None, _canal("UPDATE", _row(3), {"ID": "2"}))],
        # Without N, which the update does not change.
        [(None, _canal("UPDATE", {"ID": 3, "V": "c", "L": "l"}, {"V": "a"})), (None, _canal("DELETE", _row(1, "b")))],
    ]),
    "dms": ({"envelope": EnvelopeSpec(kind="dms")}, [
        [(None, _dms("load", _row(1))), (None, _dms("insert", _row(2)))],
        [(None, _dms("update", _row(1, "b"), {"ID": 1})), (None, _dms("update", _row(3), {"ID": 2}))],
        [(None, _dms("delete", _key(1)))],
    ]),
    "no envelope": ({}, [[(_key(1), _row(1)), (_key(2), _row(2))], [(_key(1), _row(1, "b")), (_key(2), None)]]),
}  # fmt: skip
_UPSERTS = [
    *((script, {"key_columns": True}) for script in _SCRIPTS),
    *((script, {}) for script in ("debezium", "debezium, unwrapped", "canal")),
    *((script, {"key_columns": True, "deletes": "soft"}) for script in ("debezium", "canal", "maxwell")),
]
"""Sources, and settings of the table: without `key_columns` records name the key."""


def _states(root: Path, script: str, names: Any, **settings: Any) -> list[list[dict[str, Any]]]:
    """The rows after each batch, with names in lower case. names: how the columns of the table are named."""
    given, batches = _SCRIPTS[script]
    kinds = {**_KINDS, "L": "string"} if script == "canal" else _KINDS
    columns = tuple(ColumnSpec(name=names(name), type=parse_type(kind)) for name, kind in kinds.items())
    scene = Scene(root, "a", columns=columns, **{"on_bad_record": "stop", **given, **settings})
    found = []
    for batch in batches:
        for key, value in batch:
            raw = None if value is None else json.dumps(value).encode()
            scene.source.produce("a", 0, raw, key=None if key is None else json.dumps(key).encode())
        assert only(scene.catch_up()).status.reason == ""
        rows = [{name.lower(): held for name, held in row.items()} for row in scene.rows("n.a")]
        # The names of columns are values of `_unavailable`.
        found.append([{**row, "_unavailable": sorted(map(str.lower, row.get("_unavailable") or []))} for row in rows])
    return found


@pytest.mark.parametrize(
    ("script", "settings"),
    [pytest.param(*one, marks=needs(OF_FORMATS[one[0]]) if one[0] in OF_FORMATS else ()) for one in _UPSERTS],
)
def test_an_upsert_table_has_the_same_rows(tmp_path: Path, script: str, settings: dict[str, Any]) -> None:
    def states(names: Any) -> list[list[dict[str, Any]]]:
        given = {**settings, "key_columns": (names("ID"),)} if "key_columns" in settings else settings
        root = tmp_path / names("X")
        root.mkdir()
        return _states(root, script, names, mode="upsert", **given)

    upper, lower = states(str.upper), states(str.lower)
    assert lower == upper
    assert all(upper[:-1])


@pytest.mark.parametrize("script", cases(name for name in _SCRIPTS if name not in ("no envelope", "operation")))
def test_a_changelog_table_has_the_same_rows(tmp_path: Path, script: str) -> None:
    roots = {name: tmp_path / name for name in ("upper", "lower")}
    for root in roots.values():
        root.mkdir()
    upper = _states(roots["upper"], script, str.upper, changelog=True)
    assert _states(roots["lower"], script, str.lower, changelog=True) == upper
    assert len(upper[-1]) >= 4


@pytest.mark.parametrize(("name", "aliases"), [("Big", ()), ("large", ["big"])])
def test_a_value_that_was_not_sent_is_marked_in_the_column_that_its_field_feeds(name: str, aliases: Any) -> None:
    fields = [{"name": "id", "type": "long"}, {"name": name, "type": ["null", "string"], "aliases": list(aliases)}]
    row = {"type": "record", "name": "Row", "fields": fields}
    images = [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Row"]}]
    schema = {"type": "record", "name": "E", "fields": [*images, {"name": "op", "type": "string"}]}
    change = {"before": {"id": 1, name: None}, "after": {"id": 1, name: _UNSENT}, "op": "u"}
    reading, records = avro(change, schema=schema)
    changes = read_envelope(target_for(UPSERT_ENVELOPE, {"id": "long", "big": "string"}, reading=reading), records)
    assert changes.decoded.mismatches == []
    assert {place: flags.tolist() for place, flags in changes.unavailable.items()} == {1: [True]}


@pytest.mark.parametrize(("name", "aliases"), [("ID", ()), ("number", ["id"])])
@pytest.mark.parametrize("op", ["u", "d"])
def test_the_key_before_a_change_is_found_under_each_of_its_names(name: str, aliases: Any, op: str) -> None:
    fields = [{"name": name, "type": "long", "aliases": list(aliases)}, {"name": "v", "type": ["null", "string"]}]
    row = {"type": "record", "name": "Row", "fields": fields}
    images = [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Row"]}]
    schema = {"type": "record", "name": "E", "fields": [*images, {"name": "op", "type": "string"}]}
    after = {name: 2, "v": "b"} if op == "u" else None
    reading, records = avro({"before": {name: 1, "v": None}, "after": after, "op": op}, schema=schema)
    changes = read_envelope(target_for(UPSERT_ENVELOPE, {"id": "long", "v": "string"}, reading=reading), records)
    assert changes.decoded.mismatches == []
    assert changes.columns[0].to_pylist() == ([1, 2] if op == "u" else [1])
