"""Canal's messages, one by one: what each of MySQL's types becomes (docs/reference/canal.md), and messages that lie."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.types import LongType, StringType

from docs.scan import ROOT
from frazil.cdc.changes import read_envelope
from frazil.decode.settings import Envelope, Reading
from frazil.schema.projection import Shaping
from frazil.stages.changes import DELETE, TRUNCATE, UPSERT, Changes
from frazil.write.target import ChangeReading
from frazil_cdc.canal.rows import read_latin1
from tests.unit.cdc.canal_reference import Message, Row
from tests.unit.cdc.envelope_reference import records_of, target_for

PAGE = ROOT / "docs" / "reference" / "canal.md"
LOG = Envelope("canal", is_log=True)
UPSERT_ENVELOPE = Envelope("canal", is_upsert=True, keys=(("id",),))
BY_PRIMARY_KEY = ChangeReading(Reading(), is_key_of_record=True)
_BERLIN = Shaping(zones=(("v", "Europe/Berlin"),))
OF_SOURCE: tuple[Any, ...] = ("op", "image", "source_ts", "connector_ts", "unavailable")

KINDS: tuple[tuple[str, str, str, Any], ...] = (
    ("tinyint(4)", "-128", "int", -128),
    ("tinyint(1)", "1", "int", 1),
    ("tinyint(3) unsigned", "255", "int", 255),
    ("smallint(6)", "-32768", "int", -32768),
    ("mediumint(8) unsigned", "16777215", "int", 16777215),
    ("int(11)", "-2147483648", "int", -(2**31)),
    ("int(10) unsigned zerofill", "4294967295", "long", 4294967295),
    ("bigint(20)", "9223372036854775807", "long", 2**63 - 1),
    ("bigint(20) unsigned", "18446744073709551615", "decimal(20,0)", Decimal(2**64 - 1)),
    ("decimal(10,2)", "-12345678.90", "decimal(10,2)", Decimal("-12345678.90")),
    ("decimal(65,30)", "0.000000000000000000000000000001", "string", "0.000000000000000000000000000001"),
    ("decimal", "1.50", "string", "1.50"),
    ("float", "1.1", "float", 1.100000023841858),
    ("double", "1.0E10", "double", 1e10),
    ("bit(1)", "1", "boolean", True),
    ("bit(8)", "200", "long", 200),
    ("bit(64)", "18446744073709551615", "decimal(20,0)", Decimal(2**64 - 1)),
    ("bit", "200", "decimal(20,0)", Decimal(200)),
    ("year(4)", "2026", "int", 2026),
    ("date", "2026-11-22", "date", date(2026, 11, 22)),
    ("time(6)", "23:59:59.999999", "time", time(23, 59, 59, 999999)),
    ("datetime(6)", "2026-11-22 00:16:29.123456", "timestamp", datetime.fromisoformat("2026-11-22T00:16:29.123456")),
    ("timestamp", "2026-11-22 00:16:29", "timestamp", datetime.fromisoformat("2026-11-22T00:16:29")),
    ("char(3)", "abc", "string", "abc"),
    ("varchar(20)", "Grüße", "string", "Grüße"),
    ("longtext", "a", "string", "a"),
    ("json", '{"a":1}', "string", '{"a":1}'),
    ("enum('a','b')", "2", "string", "2"),
    ("set('a','b')", "3", "string", "3"),
    ("binary(2)", "ÿa", "binary", b"\xffa"),
    ("varbinary(16)", "é", "binary", b"\xe9"),
    ("mediumblob", "", "binary", b""),
    ("point", "ÿ", "binary", b"\xff"),
    ("vector(2)", "[1,2]", "string", "[1,2]"),
)


def _read(envelope: Envelope, *messages: Message, columns: Mapping[str, str] | None = None, **other: Any) -> Changes:
    given = {"id": "int", "name": "string"} if columns is None else columns
    return read_envelope(target_for(envelope, given, **other), records_of([one.value() for one in messages]))


def _insert(*rows: Mapping[str, Any], **more: Any) -> Message:
    return Message("INSERT", list(rows), more=more)


def _of(kind: str, text: str | None) -> Message:
    return _insert({"v": text}, mysqlType={"v": kind})


def _bad(changes: Changes) -> list[tuple[int, str, str]]:
    return [(one.row, one.kind, one.path) for one in changes.decoded.mismatches]


@pytest.mark.parametrize(("kind", "text", "becomes", "value"), KINDS, ids=[one[0] for one in KINDS])
def test_a_type_of_mysql(kind: str, text: str, becomes: str, value: Any) -> None:
    requested_fields = _read(LOG, _of(kind, text), columns={}).decoded.requested_fields[()]
    assert str(requested_fields["v"]).replace(", ", ",") == becomes
    changes = _read(LOG, _of(kind, text), _of(kind, None), columns={"v": becomes})
    assert (changes.columns[0].to_pylist(), _bad(changes)) == ([value, None], [])


def test_the_page_has_every_type() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (?:`([^`]*)`)? ?\| `([^`]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert rows == [one[:3] for one in KINDS]


@pytest.mark.parametrize(
    ("kind", "text", "column"),
    [
        ("int(11)", "x", "int"),
        ("int(11)", "1.5", "int"),
        ("int(11)", "2147483648", "int"),
        ("int(11)", "", "int"),
        ("int(11)", "0x10", "int"),
        ("bigint(20)", "9223372036854775808", "long"),
        ("bigint(20)", "9" * 99, "long"),
        ("bigint(20) unsigned", "18446744073709551616", "long"),
        ("bigint(20) unsigned", "9223372036854775808", "long"),
        ("decimal(4,2)", "100.00", "decimal(4,2)"),
        ("decimal(4,2)", "1.005", "decimal(4,2)"),
        ("double", "1e999", "double"),
        ("double", "nan", "double"),
        ("bit(1)", "2", "boolean"),
        ("date", "0000-00-00", "date"),
        ("date", "2026-02-30", "date"),
        ("time", "-01:00:00", "time"),
        ("time", "838:59:59", "time"),
        ("datetime", "0000-00-00 00:00:00", "timestamp"),
        ("datetime", "2026-11-22 00:16:29", "timestamptz"),
        ("blob", "\u0100", "binary"),
        ("binary(16)", "abc", "uuid"),
        ("varchar(9)", "x", "long"),
        ("json", "[1]", "list<long>"),
    ],
)
def test_a_value_that_its_column_cannot_hold_makes_one_bad_record(kind: str, text: str, column: str) -> None:
    changes = _read(LOG, _of(kind, None), _of(kind, text), _of(kind, None), columns={"v": column})
    is_number = kind.startswith("decimal")
    assert _bad(changes) == [(1, "out_of_range" if is_number else "type_mismatch", "after.v")]
    assert (changes.records.tolist(), changes.columns[0].to_pylist()) == ([0, 2], [None, None])


@pytest.mark.parametrize(
    ("kind", "text", "column", "value"),
    [
        ("tinyint(1)", "0", "boolean", False),
        ("int(11)", "5", "string", "5"),
        ("int(11)", "5", "decimal(5,1)", Decimal("5.0")),
        ("bigint(20) unsigned", "7", "long", 7),
        ("decimal(65,30)", "1.50", "decimal(10,2)", Decimal("1.50")),
        ("decimal", "1.50", "decimal(10,2)", Decimal("1.50")),
        ("decimal unsigned", "7", "decimal(10,0)", Decimal(7)),
        ("bit", "1", "boolean", True),
        ("bit", "200", "long", 200),
        ("date", "2026-11-22", "timestamp", datetime.fromisoformat("2026-11-22")),
        ("datetime", "0000-00-00 00:00:00", "string", "0000-00-00 00:00:00"),
        ("time", "838:59:59", "string", "838:59:59"),
        ("varchar(40)", "2026-11-22T00:00:00Z", "timestamptz", datetime(2026, 11, 22, tzinfo=UTC)),
        ("char(36)", "00000000-0000-0000-0000-000000000001", "uuid", UUID(int=1)),
        ("binary(16)", "\0" * 15 + "\x01", "uuid", UUID(int=1)),
        ("binary(2)", "ab", "fixed(2)", b"ab"),
        ("enum('a','b')", "2", "int", 2),
    ],
)
def test_a_column_may_be_declared_in_another_type(kind: str, text: str, column: str, value: Any) -> None:
    changes = _read(LOG, _of(kind, text), columns={"v": column})
    (found,) = changes.columns[0].to_pylist()
    assert (UUID(bytes=found) if isinstance(value, UUID) and isinstance(found, bytes) else found) == value


def test_a_number_that_counts_time_is_read_in_its_unit() -> None:
    shaping = Shaping(units=(("v", "ms"),))
    message = _of("bigint(20)", "1600000000123")
    changes = _read(LOG, message, columns={"v": "timestamptz"}, shaping=shaping)
    assert changes.columns[0].to_pylist() == [datetime(2020, 9, 13, 12, 26, 40, 123000, UTC)]


@pytest.mark.parametrize("envelope", [LOG, UPSERT_ENVELOPE], ids=["log", "upsert_table"])
@pytest.mark.parametrize("kind", ["datetime(6)", "timestamp", "varchar(40)", None])
def test_a_time_in_a_column_with_a_zone_is_one_of_that_zone(kind: str | None, envelope: Envelope) -> None:
    """Canal's messages never have a zone, so that without this no column with one could be had of them."""
    texts = ["2026-07-01 12:00:00", "2026-03-29 02:30:00", "0000-00-00 00:00:00", None]
    types = {} if kind is None else {"mysqlType": {"id": "int", "v": kind}}
    messages = [_insert({"id": str(n), "v": text}, **types) for n, text in enumerate(texts)]
    changes = _read(envelope, *messages, columns={"id": "int", "v": "timestamptz"}, shaping=_BERLIN)
    assert changes.columns[1].to_pylist() == [datetime(2026, 7, 1, 10, tzinfo=UTC), None]
    assert _bad(changes) == [(1, "out_of_range", "after.v"), (2, "type_mismatch", "after.v")]
    assert "does not exist in Europe/Berlin" in changes.decoded.mismatches[0].reason


def test_an_old_value_in_a_column_with_a_zone_is_one_of_that_zone_too() -> None:
    row = {"v": "2026-01-01 12:00:00"}
    message = Message("UPDATE", [row], [{"v": "2025-07-01 12:00:00"}], more={"mysqlType": {"v": "timestamp"}})
    changes = _read(LOG, message, columns={"v": "timestamptz"}, shaping=_BERLIN)
    assert changes.columns[0].to_pylist() == [
        datetime(2025, 7, 1, 10, tzinfo=UTC),
        datetime(2026, 1, 1, 11, tzinfo=UTC),
    ]


def test_an_instant_in_a_column_without_a_zone_is_converted_by_the_declared_one() -> None:
    messages = (_of("varchar(40)", "2026-07-01T12:00:00Z"), _of("datetime", "2026-07-01 12:00:00"))
    changes = _read(LOG, *messages, columns={"v": "timestamp"}, shaping=_BERLIN)
    assert changes.columns[0].to_pylist() == [datetime.fromisoformat(f"2026-07-01 {hour}:00") for hour in (14, 12)]


def test_a_time_without_a_zone_in_a_column_that_has_one_names_the_setting_that_takes_it() -> None:
    (mismatch,) = _read(LOG, _of("timestamp", "2026-07-01 12:00:00"), columns={"v": "timestamptz"}).decoded.mismatches
    assert mismatch.reason == (
        '"2026-07-01 12:00:00" (timestamp) has no zone, and timestamptz has one:'
        " `columns: {v: {type: timestamptz, zone: UTC}}` reads them as of that zone"
    )


def test_messages_before_and_after_a_change_of_type_are_read_by_their_own() -> None:
    old, new = _of("int(11)", "1"), _of("bigint(20)", "5000000000")
    changes = _read(LOG, old, new, old, columns={"v": "int"})
    assert changes.decoded.requested_fields == {(): {"v": LongType()}}
    changes = _read(LOG, old, new, old, columns={"v": "long"})
    assert changes.columns[0].to_pylist() == [1, 5_000_000_000, 1]


def test_without_types_values_are_texts() -> None:
    changes = _read(LOG, _insert({"v": "1"}, mysqlType=None), columns={})
    assert changes.decoded.requested_fields == {(): {"v": StringType()}}


def test_rows_of_a_message_are_changes_in_their_order() -> None:
    rows = [{"id": "1", "name": "a"}, {"id": "2", "name": "b"}, {"id": "1", "name": "c"}]
    changes = _read(UPSERT_ENVELOPE, _insert(*rows), Message("DELETE", rows[1:]))
    assert changes.records.tolist() == [0, 0, 0, 1, 1]
    assert changes.ops.tolist() == [UPSERT] * 3 + [DELETE] * 2
    assert changes.columns[0].to_pylist() == [1, 2, 1, 2, 1]


def test_a_key_that_changes_is_a_delete_and_an_insert() -> None:
    message = Message("UPDATE", [{"id": "2", "name": "a"}, {"id": "3", "name": "b"}], [{"id": "1"}, {"name": "a"}])
    changes = _read(UPSERT_ENVELOPE, message)
    assert list(zip(changes.ops.tolist(), changes.columns[0].to_pylist(), strict=True)) == [
        (DELETE, 1), (UPSERT, 2), (UPSERT, 3),
    ]  # fmt: skip


def test_a_changelog_has_what_the_message_tells_of_each_row() -> None:
    rows: list[Row] = [{"id": "1", "name": "b"}, {"id": "2", "name": None}]
    changes = _read(LOG, Message("UPDATE", rows, [{"name": None}, {"name": "x"}]), metadata=OF_SOURCE)
    assert changes.columns[1].to_pylist() == [None, "b", "x", None]
    assert changes.own["image"].to_pylist() == ["before", "after"] * 2
    assert changes.own["source_ts"].to_pylist()[0] == datetime(2020, 9, 13, 12, 26, 40, 123000, UTC)
    assert changes.own["connector_ts"].to_pylist()[3] == datetime(2020, 9, 13, 12, 26, 40, 456000, UTC)
    assert changes.own["unavailable"].to_pylist() == [None] * 4


def test_a_column_that_an_update_leaves_out_was_not_sent() -> None:
    update = Message("UPDATE", [{"id": "1"}], [{"id": "1"}])
    changes = _read(UPSERT_ENVELOPE, update, _insert({"id": "2"}))
    assert {n: flags.tolist() for n, flags in changes.unavailable.items()} == {1: [True, False]}
    changes = _read(LOG, update, metadata=("unavailable",))
    assert changes.own["unavailable"].to_pylist() == [None, ["name"]]


def test_what_is_no_change_of_a_row_is_counted_by_message() -> None:
    rows = [{"id": "1"}, {"id": "2"}]
    others = [Message(kind, None, more={"isDdl": True}) for kind in ("ALTER", "ERASE", "QUERY", "DDL")]
    others += [Message(kind, None) for kind in ("QUERY", "MHEARTBEAT", "TIDB_WATERMARK", "XACOMMIT")]
    changes = _read(
        Envelope("canal"), Message("DELETE", rows), Message("TRUNCATE", None, more={"isDdl": True}), *others
    )
    assert changes.ignored_records == {
        "delete": 1, "truncate": 1, "schema_change": 4, "message": 1, "heartbeat": 2, "transaction": 1,
    }  # fmt: skip
    assert (changes.records.size, changes.decoded.mismatches) == (0, [])


def test_a_truncate_takes_all_rows_away() -> None:
    changes = _read(UPSERT_ENVELOPE, _insert({"id": "1"}), Message("TRUNCATE", None, more={"isDdl": True}))
    assert (changes.ops.tolist(), changes.ignored_records) == ([UPSERT, TRUNCATE], {})


@pytest.mark.parametrize(
    ("message", "kind", "path"),
    [
        (_insert({"id": "1"}, {"id": "x"}), "type_mismatch", "after.id"),
        (_insert({"id": 1.5}), "type_mismatch", "after.id"),
        (_insert({"id": "1", "name": 7}), "type_mismatch", "after.name"),
        (_insert({"id": None}), "missing_key", "id"),
        (_insert(), "missing_image", ""),
        (Message("UPDATE", None, more={"sql": "update t set a = 1"}), "missing_image", ""),
        (Message("UPDATE", [{"id": "1"}, {"id": "2"}], [{"id": "3"}]), "missing_image", ""),
        (Message("INSERT", [{"id": "1"}, None]), "not_an_envelope", ""),  # type: ignore[list-item]
        (Message("INSERT", {"id": "1"}), "not_an_envelope", ""),  # type: ignore[arg-type]
        (Message("UPDATE", [{"id": "1"}], {"id": "2"}), "not_an_envelope", ""),  # type: ignore[arg-type]
        (Message("UPDATE", [{"id": "1"}], [7]), "not_an_envelope", ""),  # type: ignore[list-item]
        (Message("c", [{"id": "1"}]), "unknown_operation", ""),
        (Message("MERGE", [{"id": "1"}]), "unknown_operation", ""),
        (_insert({"id": "1"}, type=None), "not_an_envelope", ""),
        (_insert({"id": "1"}, type=7), "type_mismatch", "type"),
        (_insert({"id": "1"}, mysqlType={"id": 4}), "unusable_schema", "mysqlType"),
        (_insert({"id": "1"}, mysqlType=[]), "unusable_schema", "mysqlType"),
        (_insert({"id": "1"}, es="soon"), "type_mismatch", "es"),
        (_insert({"id": "1"}, es=10**17), "out_of_range", "es"),
    ],
)
def test_a_message_that_lies_is_one_bad_record_and_changes_no_other(message: Message, kind: str, path: str) -> None:
    good = _insert({"id": "1", "name": "a"}, {"id": "2", "name": "b"})
    changes = _read(UPSERT_ENVELOPE, good, message, good, metadata=("source_ts",))
    assert _bad(changes) == [(1, kind, path)]
    assert changes.decoded.refused.tolist() == [False, True, False]
    assert (changes.records.tolist(), changes.columns[0].to_pylist()) == ([0, 0, 2, 2], [1, 2, 1, 2])


@pytest.mark.parametrize("value", [b"{", b"[1]", b'{"type":"INSERT","type":"INSERT"}', b'{"a":1}', b"\xff"])
def test_what_is_no_message_is_a_bad_record(value: bytes) -> None:
    good = _insert({"id": "1", "name": "a"}).value()
    changes = read_envelope(target_for(UPSERT_ENVELOPE, {"id": "int"}), records_of([good, value, None, good]))
    assert (changes.decoded.refused.tolist(), changes.records.tolist()) == ([False, True, False, False], [0, 3])
    assert changes.ignored_records == {"tombstone": 1}


def test_a_message_that_is_too_large_is_a_bad_record() -> None:
    reading = Reading(max_record_bytes=600, on_bad="dead_letter")
    rows = [_insert({"id": "1", "name": "x" * 999}), _insert({"id": "2"})]
    changes = _read(UPSERT_ENVELOPE, *rows, reading=reading)
    assert (_bad(changes), changes.columns[0].to_pylist()) == ([(0, "too_large", "")], [2])


def test_a_row_that_has_a_name_twice_is_a_bad_record() -> None:
    raw = _insert({"id": "1"}).value().replace(b'{"id":"1"}', b'{"id":"1","id":"2"}')
    changes = read_envelope(target_for(UPSERT_ENVELOPE, {"id": "int"}), records_of([raw]))
    assert _bad(changes) == [(0, "duplicate_key", "data")]


def test_names_with_escapes_are_the_same_names() -> None:
    plain = [_insert({"id": n}, mysqlType={"id": "int(11)"}).value() for n in "12"]
    raw = plain[0].replace(b'{"id":"1"}', b'{"i\\u0064":"1"}').replace(b'"data"', b'"d\\u0061ta"')
    changes = read_envelope(target_for(UPSERT_ENVELOPE, {"id": "int"}), records_of([raw, plain[1]]))
    assert (changes.columns[0].to_pylist(), changes.decoded.requested_fields) == ([1, 2], {})


def test_values_that_do_not_fit_are_stored_row_by_row() -> None:
    reading = Reading(is_rescuing=True, on_bad="dead_letter")
    changes = _read(LOG, _insert({"id": "x", "name": "a"}, {"id": "2", "name": 7}, {"id": "3"}), reading=reading)
    assert changes.columns[0].to_pylist() == [None, 2, 3]
    assert changes.rescued is not None
    rescued = [one and json.loads(one) for one in changes.rescued.to_pylist()]
    assert [one and {name: reported["value"] for name, reported in one.items()} for one in rescued] == [
        {"after.id": "x"}, {"after.name": 7}, None,
    ]  # fmt: skip


def test_what_the_table_takes_and_how_it_names_it_counts_for_the_rows() -> None:
    shaping = Shaping(include=(("id",), ("name",)), fields=(("key", ("id",)),))
    target = target_for(
        Envelope("canal", is_upsert=True, keys=(("key",),)), {"key": "int", "name": "string"}, shaping=shaping
    )
    message = Message("UPDATE", [{"id": "2", "name": "a", "noise": "z"}], [{"id": "1"}])
    changes = read_envelope(target, records_of([message.value()]))
    assert (changes.ops.tolist(), changes.columns[0].to_pylist()) == ([DELETE, UPSERT], [1, 2])
    assert changes.decoded.requested_fields == {}


@pytest.mark.parametrize(("unknown_fields", "kind"), [("refuse", "unknown_field"), ("drop", None)])
def test_a_column_that_the_table_may_not_get(unknown_fields: str, kind: str | None) -> None:
    reading = Reading(unknown_fields=unknown_fields, on_bad="dead_letter")
    changes = _read(LOG, _insert({"id": "1", "price": "1"}, mysqlType=None), reading=reading)
    assert _bad(changes) == ([(0, kind, "after.price")] if kind else [])
    assert changes.decoded.dropped == (set() if kind else {"price"})


def test_the_key_is_the_primary_key_that_messages_name() -> None:
    unknown = Envelope("canal", is_upsert=True)
    rows = (_insert({"id": "1", "name": "a"}, pkNames=["id", "name"]), _insert({"id": "2", "name": "b"}))
    changes = _read(unknown, *rows, changes=BY_PRIMARY_KEY)
    assert changes.key_columns == ("id", "name")
    assert _bad(changes) == [(1, "key_mismatch", "")]
    (reason,) = [one.reason for one in changes.decoded.mismatches]
    assert reason == (
        "the message's primary key is id, and the table's rows are identified by id, name: name the table's"
        " `key_columns`"
    )


@pytest.mark.parametrize("names", [None, [], [1]])
def test_a_message_without_a_primary_key_has_no_row_to_find(names: Any) -> None:
    known = ChangeReading(Reading(), ("id",), is_key_of_record=True)
    changes = _read(UPSERT_ENVELOPE, _insert({"id": "1"}, pkNames=names), _insert({"id": "2"}), changes=known)
    assert (_bad(changes), changes.key_columns, changes.records.tolist()) == ([(0, "no_key", "")], (), [1])
    named = ChangeReading(Reading(), ("id",))
    assert _bad(_read(UPSERT_ENVELOPE, _insert({"id": "1"}, pkNames=names), changes=named)) == []


def test_bytes_are_found_in_texts_of_any_length() -> None:
    raw = [bytes(range(256)), b"", None, b"a", b"\xff" * 3]
    texts = pa.array([None if one is None else one.decode("latin-1") for one in raw])
    found, bad = read_latin1(texts)
    assert (found.to_pylist(), bad.tolist()) == (raw, [False] * 5)
    found, bad = read_latin1(pa.array(["skipped", "a\u0100", None, "é", "\U0001f600"])[1:])
    assert (found.to_pylist(), bad.tolist()) == ([None, None, b"\xe9", None], [True, False, False, True])
