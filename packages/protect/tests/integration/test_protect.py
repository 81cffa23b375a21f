"""Fifty kinds of personal data in every place of a record, through a real broker: afterwards none of it is in any file, in
any topic or in anything that a command prints, and what was protected is still right.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyarrow import parquet

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.jvm import Jvm
from frazil.stages.record_key import RecordKey
from frazil_protect.kernels import protected_values
from frazil_protect.rules import Rule
from tests.acceptance.ledger import read_messages
from tests.integration.pipelines import Pipeline, ended

KEY = "6f1c9d0e4b7a28533f8e1d2c0b9a7f6e"
MARK = "Pq7Zx"
"""What every planted text has in it."""
KINDS = (
    "email", "phone", "mobile", "fax", "ssn", "tax_id", "passport", "licence", "iban", "bic", "card", "cvc", "pin",
    "salary", "name", "first_name", "last_name", "maiden_name", "alias", "birth_date", "birth_place", "age", "gender",
    "street", "city", "zip", "country", "latitude", "longitude", "ip", "mac", "imei", "cookie", "device_id", "user_agent",
    "login", "password", "question", "answer", "employer", "title", "school", "insurance", "diagnosis", "blood_type",
    "religion", "party", "union", "plate", "signature",
)  # fmt: skip
ACTIONS = ("hash", "mask", "tokenize", "drop", "null", "constant", "truncate")
RULES = {
    f"/(^|[.]){kind}$/": {"action": action, "value": "x"} if action == "constant" else action
    for kind, action in zip(KINDS, ACTIONS * 8, strict=False)
}


def planted(kind: str, place: str) -> str:
    """A text of its own for every kind and place, whose ends are no secret: a mask keeps four, a cut the first four."""
    return f"year{MARK}{kind}{place}last"


def person(place: str) -> dict[str, Any]:
    return {kind: planted(kind, place) for kind in KINDS}


def in_every_shape(number: int, place: str) -> dict[str, Any]:
    return {
        "id": number,
        **person(place),
        "owner": person(f"{place}nested"),
        "friends": [person(f"{place}list")],
        "ssn_number": int("98765432100"),
    }


@dataclass
class Planted:
    """A pipeline that has read the planted records, and what its commands printed."""

    pipeline: Pipeline
    folder: Path
    servers: str
    dead: str
    printed: dict[str, str] = field(default_factory=dict)


def _command(folder: Path, *words: str) -> str:
    done = ended(folder, folder / "frazil.yaml", *words)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, broker: EmbeddedBroker) -> Planted:
    folder, tag = tmp_path_factory.mktemp("protect"), new_id()[:8]
    servers = broker.bootstrap_servers
    people, changes, dead = (f"{name}-{tag}" for name in ("people", "changes", "dead"))
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(name, 1) for name in (people, changes, dead)]).values():
        made.result(timeout=20)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})

    def send(topic: str, value: object, place: str) -> None:
        raw = value if isinstance(value, bytes) else json.dumps(value).encode()
        headers: list[tuple[str, str | bytes | None]] = [
            (kind, planted(kind, f"header{place}").encode()) for kind in KINDS
        ]
        producer.produce(topic, raw, planted("email", f"key{place}").encode(), partition=0, headers=headers)

    for number in range(40):
        send(people, in_every_shape(number, f"good{number}"), str(number))
    send(people, {**in_every_shape(40, "mismatch"), "score": "no number"}, "mismatch")
    send(people, {**in_every_shape(41, "strange"), "owner": planted("email", "owner")}, "strange")
    send(people, {**in_every_shape(42, "object"), "email": {"email": planted("email", "object")}}, "object")
    send(people, {**in_every_shape(43, "unknown"), "other": person("unknown"), "more": [person("more")]}, "unknown")
    send(people, json.dumps(in_every_shape(44, "cut")).encode()[:-30], "cut")
    send(people, planted("email", "notjson").encode(), "notjson")
    send(people, planted("email", "utf").encode() + b"\xff", "utf")
    send(people, [planted("email", "array")], "array")
    send(people, {**in_every_shape(45, "large"), "blob": planted("email", "large") * 4000}, "large")
    send(
        people,
        f'{{"id": 46, "email": "{planted("email", "one")}", "email": "{planted("email", "two")}"}}'.encode(),
        "twice",
    )
    for number in range(10):
        row = {**in_every_shape(number, f"after{number}")}
        change = {"before": in_every_shape(number, f"before{number}"), "after": row, "op": "u", "ts_ms": 1}
        send(changes, {**change, "source": {"db": "d", "table": "t"}}, f"change{number}")
    send(changes, {"before": person("lonely"), "after": None, "op": planted("email", "op")}, "op")
    send(changes, {"before": None, "after": planted("email", "image"), "op": "c"}, "image")
    producer.flush(30)
    (folder / "key").write_text(KEY)
    member = ", ".join(f"{kind}: string" for kind in KINDS)
    common = {
        "protect": {**RULES, "ssn_number": "hash", "_key": "hash", "_headers": "mask"},
        "protect_key": f"${{file:{folder / 'key'}}}",
        "metadata": ["key", "headers", "offset"],
        "dead_letters": {"topic": dead, "stop_above": "100%"},
    }
    document = {
        "pipeline": "p",
        "kafka": {"bootstrap.servers": servers},
        "tables": {
            "p.strict": {
                "topic": people,
                "columns": {"id": "long", "score": "int", "owner": f"struct<{member}>"},
                "limits": {"record_size": "64KiB"},
                "schema_evolution": "add_only",
                **common,
            },
            "p.rescued": {
                "topic": people,
                "columns": {"id": "long", "score": "int", "owner": f"struct<{member}>", "email": "string"},
                "unknown_fields": "rescue",
                "rescue": True,
                "limits": {"record_size": "64KiB"},
                **common,
                "dead_letters": {"stop_above": "100%"},
            },
            "p.history": {"topic": changes, "envelope": "debezium", "changelog": True, **common},
        },
    }
    found = Planted(Pipeline(folder, document), folder, servers, dead)
    before = [("plan",), ("check",)]
    after = [("status",), ("dead-letters", "show", "--output", "json")]
    with ThreadPoolExecutor(2) as pool:
        found.printed |= {
            " ".join(words): text
            for words, text in zip(before, pool.map(lambda w: _command(folder, *w), before), strict=True)
        }
        found.pipeline.run("--log-level", "debug")
        found.printed |= {
            " ".join(words): text
            for words, text in zip(after, pool.map(lambda w: _command(folder, *w), after), strict=True)
        }
    return found


def _texts(folder: Path) -> Iterator[tuple[str, str]]:
    """Every file under the folder, as it is and as its readers see it."""
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        if path.name in ("frazil.yaml", "key"):
            continue
        raw = path.read_bytes()
        yield str(path), raw.decode("latin-1")
        if path.suffix == ".parquet":
            file = parquet.ParquetFile(path)
            yield str(path), f"{file.read().to_pylist()} {file.metadata.to_dict()} {file.schema_arrow.metadata}"
        elif path.suffix == ".avro":
            with path.open("rb") as stream:
                yield str(path), str(list(fastavro.reader(stream)))


def test_no_planted_value_is_in_any_file_of_the_pipeline(ran: Planted) -> None:
    found = list(_texts(ran.folder))
    assert len([name for name, _ in found if name.endswith(".parquet")]) > 3
    assert [name for name, text in found if MARK in text or MARK.encode().hex() in text or "98765432100" in text] == []


def test_no_planted_value_is_printed_by_a_command(ran: Planted) -> None:
    assert {words for words, text in ran.printed.items() if MARK in text or "98765432100" in text} == set()
    assert "encrypted" in ran.printed["dead-letters show --output json"]


def test_the_key_is_nowhere(ran: Planted) -> None:
    places = [*_texts(ran.folder), *ran.printed.items()]
    assert [name for name, text in places if KEY in text] == []


def test_the_dead_letter_topic_has_encrypted_records(ran: Planted) -> None:
    messages = read_messages(ran.servers, ran.dead, 0)
    assert len(messages) > 5
    for message in messages:
        whole = (message.key() or b"") + (message.value() or b"") + str(message.headers()).encode()
        assert MARK.encode() not in whole


def test_the_rows_have_what_the_rules_make_of_them(ran: Planted) -> None:
    rows = [row for row in _rows(ran.folder, "strict") if row["id"] < 40]
    assert sorted(row["id"] for row in rows) == list(range(40))
    row = next(row for row in rows if row["id"] == 7)
    assert row["email"] == _hash("email", planted("email", "good7"))
    assert row["owner"]["email"] == _hash("owner.email", planted("email", "good7nested"))
    assert row["phone"] == "****last"
    assert "fax" not in row
    assert row["ssn"] is None
    assert row["_key"].decode() == _hash("_key", planted("email", "key7"))


def test_bad_records_became_dead_letters_of_every_class(ran: Planted) -> None:
    found = json.loads(ran.printed["dead-letters show --output json"].splitlines()[0])["tables"]["p.strict"]
    assert {one["error_class"] for one in found} >= {"type_mismatch", "malformed", "too_large", "duplicate_key"}


@pytest.mark.slow
@pytest.mark.jvm
@pytest.mark.timeout(300)
def test_a_bad_record_with_a_new_field_takes_neither_protection_nor_values_of_spark_from_others(
    tmp_path: Path, broker: EmbeddedBroker, jvm: Jvm
) -> None:
    servers, topic = broker.bootstrap_servers, f"sounds-{new_id()[:8]}"
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(topic, 1)]).values():
        made.result(timeout=20)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})

    def send(*numbers: int, **others: object) -> None:
        for number in numbers:
            row = {"id": number, "email": planted("email", f"sound{number}"), "name": f"Robert{number}", **others}
            producer.produce(topic, json.dumps(row).encode(), partition=0)
        producer.flush(30)

    (tmp_path / "key").write_text(KEY)
    table = {
        "topic": topic,
        "mode": "upsert",
        "key_columns": ["id"],
        "select": "select *, soundex(name) as sound from records",
        "protect": {"email": "hash", "extra": "hash"},
        "protect_key": f"${{file:{tmp_path / 'key'}}}",
        "dead_letters": {"stop_above": "100%"},
    }
    document = {"pipeline": "p", "kafka": {"bootstrap.servers": servers}, "tables": {"p.sounds": table}}
    pipeline = Pipeline(tmp_path, document, jvm=jvm)
    send(1)
    pipeline.run()
    send(2)
    send(3, id=None, extra=planted("email", "extra"))
    send(4)
    pipeline.run()
    rows = sorted(_rows(tmp_path, "sounds"), key=lambda row: row["id"])
    assert [(row["id"], row["email"], row["sound"]) for row in rows] == [
        (number, _hash("email", planted("email", f"sound{number}")), "R163") for number in (1, 2, 4)
    ]
    assert "extra" not in rows[-1]
    assert [name for name, text in _texts(tmp_path) if MARK in text or MARK.encode().hex() in text] == []


def _rows(folder: Path, table: str) -> list[dict[str, Any]]:
    files = (folder / "frazil-data" / "warehouse" / "p" / table).rglob("*.parquet")
    return [row for file in files for row in parquet.ParquetFile(file).read().to_pylist()]


def _hash(label: str, value: str) -> str:
    found: str = protected_values(pa.array([value]), Rule("", "hash", label), RecordKey(KEY.encode()))[0].as_py()
    return found
