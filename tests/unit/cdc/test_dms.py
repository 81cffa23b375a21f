"""What AWS DMS writes to Kafka (AWS DMS User Guide, Using Apache Kafka as a target) becomes the changes of a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from frazil.cdc.changes import read_envelope
from frazil.decode.settings import Envelope
from frazil.stages.changes import DELETE, UPSERT, Changes
from tests.unit.cdc.envelope_reference import records_of, target_for

UPSERTS = Envelope("dms", keys=(("id",),), is_upsert=True)
LOG = Envelope("dms", is_log=True)
TOLD = ("op", "image", "source_ts", "connector_ts", "transaction_id", "total_order", "source_schema", "source_table")


def message(operation: str, data: Any = None, members: Mapping[str, Any] | None = None, *, kind: str = "data") -> bytes:
    """A message with transaction details (`IncludeTransactionDetails`)."""
    metadata = {
        "timestamp": "2024-07-29T00:58:17.983670Z",
        "record-type": kind,
        "operation": operation,
        "partition-key-type": "schema-table",
        "schema-name": "public",
        "table-name": "foo",
        "transaction-id": 1139,
        "transaction-record-id": 2,
        "commit-timestamp": "2024-07-29T00:58:17.974340Z",
        "stream-position": "00000002/7C007178.3.00000002/7C007178",
    }
    own = {"data": data} if kind == "data" else {"control": {"table-def": {}}}
    return json.dumps({**own, "metadata": metadata, **(members or {})}, indent="\t").encode()


def read(envelope: Envelope, *messages: bytes, told: Any = ()) -> Changes:
    return read_envelope(target_for(envelope, {"id": "long", "name": "string"}, told), records_of(list(messages)))


def changed(changes: Changes) -> list[tuple[int, Any, Any]]:
    ids, names = (column.to_pylist() for column in changes.columns[:2])
    return list(zip(changes.ops.tolist(), ids, names, strict=True))


def test_the_last_state_of_each_row() -> None:
    found = read(
        UPSERTS,
        message("load", {"id": 1, "name": "a"}),
        message("insert", {"id": 2, "name": "b"}),
        message("update", {"id": 2, "name": "c"}),
        message("update", {"id": 2}),  # Unless `IncludeNullAndEmpty` is set, a null is left out.
        message("delete", {"id": 1, "name": None}),
    )
    assert found.decoded.mismatches == []
    assert changed(found) == [
        (UPSERT, 1, "a"),
        (UPSERT, 2, "b"),
        (UPSERT, 2, "c"),
        (UPSERT, 2, None),
        (DELETE, 1, None),
    ]


@pytest.mark.parametrize("before", [{"id": 46}, {"id": 46, "name": "a"}])
def test_a_row_with_a_new_key_replaces_the_old_one_where_its_key_is_there(before: dict[str, Any]) -> None:
    update = message("update", {"id": 45, "name": "a"}, {"before-image": before})
    assert changed(read(UPSERTS, update)) == [(DELETE, 46, None), (UPSERT, 45, "a")]


@pytest.mark.parametrize("members", [{}, {"before-image": None}, {"before-image": {}}, {"before-image": {"name": "z"}}])
def test_an_update_that_has_no_old_key_has_the_same_key(members: dict[str, Any]) -> None:
    found = read(UPSERTS, message("update", {"id": 1, "name": "a"}, members))
    assert (changed(found), found.decoded.mismatches) == ([(UPSERT, 1, "a")], [])


def test_every_change_with_what_the_message_has_of_it() -> None:
    found = read(
        LOG,
        message("load", {"id": 1, "name": "a"}),
        message("update", {"id": 1, "name": "b"}, {"before-image": {"id": 1, "name": "a"}}),
        message("update", {"id": 1, "name": "c"}, {"before-image": {"id": 1}}),
        message("update", {"id": 1, "name": "d"}),
        message("delete", {"id": 1, "name": None}),
        told=TOLD,
    )
    assert [row[1:] for row in changed(found)] == [
        (1, "a"), (1, "a"), (1, "b"), (1, None), (1, "c"), (1, "d"), (1, None),
    ]  # fmt: skip
    assert found.own["op"].to_pylist() == ["r", "u", "u", "u", "u", "u", "d"]
    assert found.own["image"].to_pylist() == ["after", "before", "after", "identity", "after", "after", "identity"]
    values = {name: array[0].as_py() for name, array in found.own.items() if name not in ("op", "image")}
    assert values == {
        "source_ts": datetime(2024, 7, 29, 0, 58, 17, 974340, UTC),
        "connector_ts": datetime(2024, 7, 29, 0, 58, 17, 983670, UTC),
        "transaction_id": "1139",
        "total_order": 2,
        "source_schema": "public",
        "source_table": "foo",
    }


def test_control_records_are_counted() -> None:
    controls = [message(name, kind="control") for name in ("create-table", "drop-table", "add-column")]
    bare = json.dumps({"metadata": {"record-type": "control", "operation": "rename-table"}}).encode()
    found = read(UPSERTS, *controls, bare)
    assert (changed(found), found.ignored_records) == ([], {"schema_change": 4})


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (message("truncate-table", kind="control"), "unknown_operation"),
        (message("upsert", {"id": 1}), "unknown_operation"),
        (message("u", {"id": 1}), "unknown_operation"),
        (message("insert"), "missing_image"),
        (message("insert", [1]), "not_an_envelope"),
        (message("delete"), "missing_image"),
        (message("delete", {"name": "a"}), "missing_key"),
        (message("update", {"id": 1}, {"before-image": "x"}), "not_an_object"),
        (message("insert", {"id": "x"}), "type_mismatch"),
        (b'{"metadata":{"operation":"insert"}}', "not_an_envelope"),
        (b'{"data":{"id":1}}', "not_an_envelope"),
        (b'{"data":{"id":1},"metadata":null}', "not_an_envelope"),
        (b'{"data":{"id":1},"metadata":"insert"}', "not_an_envelope"),
        (b'{"data":{"id":1},"metadata":{"operation":{}}}', "type_mismatch"),
        (b'{"data":{"id":1},"metadata":{"operation":"insert","operation":"delete"}}', "duplicate_key"),
        (b'{"id":1,"name":"a"}', "not_an_envelope"),
        (b"[]", "not_an_object"),
        (b"{", "malformed"),
    ],
)
def test_what_is_no_message_is_one_bad_record(value: bytes, kind: str) -> None:
    found = read(UPSERTS, message("load", {"id": 1, "name": "a"}), value)
    assert {(one.row, one.kind) for one in found.decoded.mismatches} == {(1, kind)}
    assert changed(found) == [(UPSERT, 1, "a")]


def test_a_time_that_is_none_is_a_bad_record() -> None:
    value = message("load", {"id": 1}).replace(b"2024-07-29T00:58:17.983670Z", b"yesterday")
    [mismatch] = read(LOG, value, told=TOLD).decoded.mismatches
    assert (mismatch.path, mismatch.kind) == ("metadata.timestamp", "type_mismatch")


def test_escaped_names_are_the_same_names() -> None:
    value = message("load", {"id": 1, "name": "a"}).replace(b'"operation"', b'"op\\u0065ration"')
    assert changed(read(UPSERTS, value)) == [(UPSERT, 1, "a")]
