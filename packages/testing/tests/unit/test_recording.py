"""Records of a topic become a case with masked values, and a file of records is tried without a broker."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import yaml
from fastavro import parse_schema, schemaless_writer

from frazil.errors import SpecError, UnavailableError
from frazil.ingest.tables.schemas import Schemas
from frazil.kafka.port import ReadRecord
from frazil.spec import load_spec
from frazil.spec.syntax.document import LIMIT_BYTES
from frazil_testing.memory_registry import MemoryRegistry
from frazil_testing.play import table_of
from frazil_testing.recording import Mask, record_cases
from frazil_testing.tried_input import try_input
from frazil_testing.tried_record import TriedRecord
from packages.testing.tests.unit.conftest import HEAD, ORDERS, Play, is_well
from packages.testing.tests.unit.test_cases import AVRO, ENVELOPE

ORDER = {"id": 4711, "email": "Ann.Lee@example.org", "amount": "12.50", "at": "2026-01-31T10:05:06Z", "kind": "order",
         "tags": ["a1", "a1"], "ok": True, "nothing": None, "price": 7.25}  # fmt: skip


def record(value: Any, key: bytes | None = None, offset: int = 0, topic: str = "orders") -> ReadRecord:
    raw = value if isinstance(value, bytes | None) else json.dumps(value).encode()
    return ReadRecord(topic, 0, offset, raw, 1_700_000_000_000 + offset, (("source", b"web1"),), key)


def recorded(folder: Path, pipeline: str, *records: ReadRecord, kept: tuple[str, ...] = (), schemas: Any = None) -> str:
    (folder / "frazil.yaml").write_text(pipeline)
    table = table_of(load_spec(folder / "frazil.yaml"), records[0].topic)
    path = folder / "recorded.yaml"
    path.unlink(missing_ok=True)
    record_cases(table, table.name, records, path, Mask(kept, b"k" * 32), schemas)
    return path.read_text()


def test_a_mask_has_the_form_of_its_value_and_is_the_same_for_the_same_value() -> None:
    mask = Mask((), b"k" * 32)
    masked = mask.value(ORDER)
    assert masked.keys() == ORDER.keys()
    assert re.fullmatch(r"[A-Z][a-z]{2}\.[A-Z][a-z]{2}@[a-z]{7}\.[a-z]{3}", masked["email"])
    assert re.fullmatch(r"20[0-2]\d-[01]\d-[0-2]\dT[0-2]\d:[0-5]\d:[0-5]\dZ", masked["at"])
    assert re.fullmatch(r"\d\d\.\d0", masked["amount"])
    assert (type(masked["id"]), len(str(masked["id"])), masked["tags"][0]) == (int, 4, masked["tags"][1])
    assert (masked["ok"], masked["nothing"], type(masked["price"])) == (True, None, float)
    assert not {"Ann.Lee@example.org", "12.50", 4711, 7.25} & {
        str(v) if isinstance(v, list) else v for v in masked.values()
    }
    assert mask.text("4711") == str(mask.value(4711))  # A key of text belongs to a number.
    assert Mask((), b"x" * 32).value(ORDER) != masked
    assert Mask().value(ORDER) != Mask().value(ORDER)


def test_fields_that_are_kept_are_not_masked() -> None:
    masked = Mask(("kind", "/^at$/", "user.city")).value({**ORDER, "user": {"city": "Bern", "name": "Ann"}})
    assert (masked["kind"], masked["at"], masked["user"]["city"]) == ("order", ORDER["at"], "Bern")
    assert masked["user"]["name"] != "Ann"


def test_a_recorded_case_has_masked_records_and_is_played(folder: Path, play: Play) -> None:
    text = recorded(folder, ORDERS, record(ORDER, b'{"id": 4711}'), record(None, b"k1", 1), record(b"{Ann", None, 2))
    for secret in ("4711", "Ann", "Lee", "example", "12.5", "order,", "web1", "7.25", "k1"):
        assert secret not in text, secret
    (verdict,) = play(text, updates=True)
    assert (verdict.is_updated, verdict.error) == (True, "")
    answered = Path("cases.yaml").read_text()
    assert "rows:" in answered
    assert answered.count("error_class: ") == 2
    assert is_well(play(answered))


def test_a_change_keeps_its_envelope(folder: Path, play: Play) -> None:
    pipeline = f"{HEAD}tables:\n  shop.people: {{topic: people, envelope: debezium, mode: upsert, key_columns: [id]}}\n"
    source = {"connector": "postgresql", "table": "people", "lsn": 12345, "ts_ms": 1_700_000_000_000}
    change = {"before": None, "after": {"id": 77, "name": "Ann"}, "source": source, "op": "c", "ts_ms": 5}
    text = recorded(folder, pipeline, record(change, b'{"id": 77}', topic="people"))
    assert "Ann" not in text
    assert "connector: postgresql" in text
    assert "op: c" in text
    assert "lsn: 12345" in text
    assert play(text, pipeline, updates=True)[0].is_updated
    assert is_well(play(Path("cases.yaml").read_text(), pipeline))


def test_avro_is_recorded_with_its_schema(folder: Path, play: Play) -> None:
    pipeline = f"""{HEAD}registry: {{url: "http://localhost:8081"}}
tables:
  shop.orders: {{topic: orders, value: {{format: avro}}}}
"""
    registry = MemoryRegistry()
    number = registry.register("avro", AVRO)
    body = io.BytesIO()
    value = {
        "id": 4711,
        "amount": Decimal("12.50"),
        "tags": ["Ann"],
        "kind": "A",
        "inner": {"k": "B"},
    }
    schemaless_writer(body, parse_schema(json.loads(AVRO)), value)
    raw = b"\0" + number.to_bytes(4, "big") + body.getvalue()
    text = recorded(folder, pipeline, record(raw), kept=("kind", "inner"), schemas=Schemas(registry))
    assert (folder / "recorded-1.avsc").read_text() == AVRO
    assert "Ann" not in text
    assert "kind: A" in text
    assert play(text, pipeline, updates=True)[0].is_updated
    assert is_well(play(Path("cases.yaml").read_text(), pipeline))
    described = pipeline.replace("format: avro", "format: protobuf")
    with pytest.raises(SpecError) as caught:
        recorded(folder, described, record(raw), schemas=Schemas(registry))
    assert caught.value.message == "records in protobuf cannot be masked"
    assert caught.value.remedy == "write the case by hand, with the schema in a file next to it"


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        ("2026-01-31 Ann Lee, 555-1234", " , -"),
        ("2026-01-31-4711", "-"),
        ("2026-01-31T10:05:06.5+01:00", ".5+01:00"),
        ("2026-01-31 10:05Z", "Z"),
    ],
)
def test_text_behind_a_date_is_masked_and_a_zone_stays(text: str, stays: str) -> None:
    masked = Mask((), b"k" * 32).text(text)
    assert re.match(r"20[0-2]\d-[01]\d-[0-2]\d", masked)
    for word in ("Ann", "Lee", "555", "1234", "4711"):
        assert word not in masked
    assert all(sign in masked for sign in stays)
    if stays.endswith(("0", "Z")):
        assert masked.endswith(stays)


def test_the_mask_of_a_uuid_is_one() -> None:
    masked = Mask((), b"k" * 32).text("123E4567-e89b-12d3-a456-426614174000")
    assert str(UUID(masked)) == masked != "123e4567-e89b-12d3-a456-426614174000"


_PEOPLE = {"id": 77, "name": "Ann"}


@pytest.mark.parametrize(
    ("envelope", "change", "stays"),
    [
        ("debezium", {"op": "u", "before": _PEOPLE, "after": _PEOPLE, "updateDescription": {"updatedFields": '{"a": "Ann"}'},
                      "patch": "Ann", "source": {"table": "people", "query": "insert 'Ann', 77"}}, ("people", "u")),
        ("dms", {"data": _PEOPLE, "before-image": _PEOPLE, "metadata": {"operation": "update", "table-name": "people"}},
         ("update", "people")),
        ("maxwell", {"type": "update", "table": "people", "data": _PEOPLE, "old": {"name": "Ann"}, "primary_key": [77],
                     "query": "update 'Ann'"}, ("update", "people")),
        ("canal", {"type": "INSERT", "table": "people", "data": [_PEOPLE], "old": None, "sql": "insert 'Ann'",
                   "pkNames": ["id"]}, ("INSERT", "people")),
        ("cloudevents", {"specversion": "1.0", "id": "77", "type": "people", "source": "/shop", "subject": "Ann",
                         "data": _PEOPLE}, ("people", "/shop", "1.0")),
    ],
)  # fmt: skip
def test_all_parts_of_a_change_with_values_are_masked(
    folder: Path, envelope: str, change: dict[str, Any], stays: tuple[str, ...]
) -> None:
    pipeline = f"{HEAD}tables:\n  shop.people: {{topic: people, envelope: {envelope}}}\n"
    whole = recorded(folder, pipeline, record(change, topic="people"))
    text = next(line for line in whole.splitlines() if "value:" in line)
    assert "Ann" not in text
    assert "77" not in text
    assert all(word in text for word in stays)


def test_keys_in_headers_are_masked_as_keys_are_and_errors_too(folder: Path) -> None:
    headers = (
        ("__debezium.newkey", b'{"id": 4711}'),
        ("__connect.errors.exception.message", b"bad Ann"),
        ("__op", b"u"),
    )
    changed = replace(record(ORDER, b'{"id": 4711}'), headers=headers)
    text = recorded(folder, ORDERS, changed)
    assert "4711" not in text
    assert "Ann" not in text
    entry = yaml.safe_load(text)["cases"]["recorded from shop.orders"]["records"][0]
    assert json.loads(entry["headers"]["__debezium.newkey"]) == entry["key"]
    assert entry["headers"]["__op"] == "u"


def test_the_schema_of_connects_json_is_not_masked(folder: Path, play: Play) -> None:
    schema = {"type": "struct", "fields": [{"field": "id", "type": "int64"}]}
    text = recorded(
        folder,
        ORDERS,
        record(
            {"schema": schema, "payload": {"id": 4711}},
            json.dumps({"schema": schema, "payload": {"id": 4711}}).encode(),
        ),
    )
    assert "4711" not in text
    entry = yaml.safe_load(text)["cases"]["recorded from shop.orders"]["records"][0]
    assert entry["value"]["schema"] == entry["key"]["schema"] == schema
    (verdict,) = play(text, updates=True)
    assert (verdict.is_updated, verdict.error) == (True, "")
    assert "dead_letters" not in Path("cases.yaml").read_text()


def test_records_with_signs_that_yaml_does_not_allow_are_played_again(folder: Path, play: Play) -> None:
    names = ["a]b", "c}d", "e?f", "=", "g\x85h", "i\u2028j", "k\x80l", "m\ufeffn", "\ud800", "\U0001f600", "<<"]
    kept = tuple(f"f{n}" for n in range(len(names)))
    good = [record({"id": n + 1, f"f{n}": name}, None, n) for n, name in enumerate(names)]
    text = recorded(folder, ORDERS, *good, record("a\x80\x85?".encode(), None, 99), kept=kept)
    (verdict,) = play(text, updates=True)
    assert (verdict.is_updated, verdict.error) == (True, "")
    assert is_well(play(Path("cases.yaml").read_text()))
    records = yaml.safe_load(text)["cases"]["recorded from shop.orders"]["records"]
    values = [entry["value"][f"f{n}"] for n, entry in enumerate(records[:-1]) if "value" in entry]
    assert values == [name for name in names if name != "\ud800"]


def test_avro_that_cannot_be_decoded_is_refused_and_enums_stay(folder: Path, play: Play) -> None:
    pipeline = f"""{HEAD}registry: {{url: "http://localhost:8081"}}
tables:
  shop.orders: {{topic: orders, value: {{format: avro}}}}
"""
    registry = MemoryRegistry()
    schema: dict[str, Any] = {"type": "record", "name": "R", "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "d", "type": "double"}]}  # fmt: skip
    head = b"\0" + registry.register("avro", json.dumps(schema)).to_bytes(4, "big")

    def body(at: int) -> bytes:
        out = io.BytesIO()
        plain = {**schema, "fields": [{"name": "at", "type": "long"}, *schema["fields"][1:]]}
        schemaless_writer(out, parse_schema(plain), {"at": at, "kind": "OLD", "d": 1.5})
        return out.getvalue()

    text = recorded(folder, pipeline, record(head + body(0)), schemas=Schemas(registry))
    assert "kind: OLD" in text
    assert play(text, pipeline, updates=True)[0].is_updated
    for damaged in (body(2**62), body(0)[:-3], b"", b"\0\7"):
        with pytest.raises(SpecError, match="the record cannot be decoded") as caught:
            recorded(folder, pipeline, record(head + damaged), schemas=Schemas(registry))
        assert caught.value.remedy == "write the case by hand, with the schema in a file next to it"


def test_a_recording_replaces_no_file(folder: Path) -> None:
    recorded(folder, ORDERS, record(ORDER))
    table = load_spec(folder / "frazil.yaml").tables[0]
    with pytest.raises(SpecError, match="the file of cases exists") as caught:
        record_cases(table, table.name, [record(ORDER)], folder / "recorded.yaml", Mask(), None)
    assert caught.value.remedy == "name another file"
    record_cases(table, table.name, [record(ORDER)], folder / "another.yaml", Mask(), None)
    with pytest.raises(UnavailableError, match="the cases cannot be written: No such file") as lost:
        record_cases(table, table.name, [record(ORDER)], folder / "none" / "a.yaml", Mask(), None)
    assert lost.value.remedy == "name a file in a folder that exists and can be written"


def tried(folder: Path, name: str, text: str, pipeline: str = ORDERS, table: str = "shop.orders") -> list[TriedRecord]:
    (folder / "frazil.yaml").write_text(pipeline)
    (folder / name).write_text(text)
    return list(try_input(load_spec(folder / "frazil.yaml", {}), table, folder / name, lambda _: None).records)


def test_a_file_of_records_is_tried_without_a_broker(folder: Path) -> None:
    first, broken = tried(folder, "in.jsonl", '{"id": 1, "amount": "1.5"}\n\n{"id": \n')
    assert (first.outcome, first.output[0].row["amount"], broken.outcome) == ("written", "1.50", "failed")
    assert broken.error is not None
    assert broken.error.error_class == "malformed"
    text = "records:\n  - {value: {id: 1}, key: a, partition: 1}\n  - {value: {id: x}}\n"
    assert [(one.outcome, one.record.partition) for one in tried(folder, "in.yaml", text)] == [
        ("written", 1),
        ("failed", 0),
    ]


def test_a_file_of_records_has_schemas_and_given_tables(folder: Path) -> None:
    (folder / "envelope.avsc").write_text(ENVELOPE)
    pipeline = f"""{HEAD}registry: {{url: "http://localhost:8081"}}
tables:
  shop.people:
    {{topic: people, envelope: debezium, mode: upsert, key_columns: [id], value: {{format: avro}},
     lookup: {{label: {{table: ref.labels, on: "name = code", take: [text]}}}}}}
"""
    text = """schemas: {value: envelope.avsc}
given: {ref.labels: [{code: a, text: Anna}]}
records: [{change: {after: {id: 1, name: a}}}, {change: {before: {id: 1}}}]
"""
    one, two = tried(folder, "in.yaml", text, pipeline, "shop.people")
    assert [(change.change, change.row) for change in (*one.output, *two.output)] == [
        ("upsert", {"id": 1, "name": "a", "label": {"text": "Anna"}}), ("delete", {"id": 1}),
    ]  # fmt: skip


def test_a_file_of_records_that_cannot_be_read(folder: Path) -> None:
    with pytest.raises(SpecError, match="the file of records cannot be read") as caught:
        try_input(load_spec(Path(_file(folder)), {}), "shop.orders", folder / "none.jsonl", lambda _: None)
    assert caught.value.remedy == "name a file of values, one in each line, or YAML with `records`"
    with pytest.raises(SpecError) as empty:
        tried(folder, "in.jsonl", "\n")
    assert (empty.value.message, empty.value.remedy) == ("the file has no records", "write a value into each line")
    with pytest.raises(SpecError, match="the pipeline file has no table"):
        tried(folder, "in.jsonl", '{"id": 1}', table="shop.orderz")
    assert tried(folder, "in.jsonl", '{"id": 1}')


def _file(folder: Path) -> str:
    (folder / "frazil.yaml").write_text(ORDERS)
    return str(folder / "frazil.yaml")


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ("", "the file of records is empty (in.yaml:1); write `records: [{value: {…}}]`"),
        (
            "- {id: 1}\n",
            "the file of records is not a mapping (in.yaml:1); begin with a line `records:`, and write the records "
            "below it, or let the file's name end in .jsonl",
        ),
        (
            '{"id": 1}\n\n{"id": 2}\n',
            "the file of records has a JSON object in each line (in.yaml:1); let the file's name end in .jsonl",
        ),
        (
            '{"id": 1}',
            "the file of records has a JSON object in each line (in.yaml:1); let the file's name end in .jsonl",
        ),
        (
            "[" * 60 + "]" * 60,
            "the file of records is nested too deeply (in.yaml:1); write the value of the record as `json`, which is text",
        ),
        (
            " " * (LIMIT_BYTES + 1),
            f"the file of records is larger than {LIMIT_BYTES} bytes (in.yaml); name a file with fewer records",
        ),
    ],
)
def test_yaml_that_is_not_a_file_of_records(folder: Path, wrong: str, error: str) -> None:
    with pytest.raises(SpecError) as caught:
        tried(folder, "in.yaml", wrong)
    assert str(caught.value).replace(f"{folder}/", "") == error
    assert tried(folder, "in.yaml", "records:\n  - {json: '{\"id\": 1}'}\n")
    assert tried(folder, "in.yaml", '{"records": [{"value": {"id": 1}}]}\n')
    assert tried(folder, "in.jsonl", '{"id": 1}\n\n{"id": 2}\n')


def test_a_file_of_records_in_yaml_that_does_not_exist(folder: Path) -> None:
    with pytest.raises(SpecError, match="the file of records does not exist") as caught:
        try_input(load_spec(Path(_file(folder)), {}), "shop.orders", folder / "none.yaml", lambda _: None)
    assert caught.value.remedy == "name a file of values, one in each line, or YAML with `records`"
