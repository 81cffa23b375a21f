"""Tables whose query has expressions that Spark itself evaluates, as their user runs them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from tests.integration.pipelines import Ledger, Pipeline
from tests.integration.test_changelog import rows

pytestmark = pytest.mark.timeout(600)
CALLS: list[Any] = [
    {
        "id": 1,
        "line": "GET /a/7 200",
        "body": '{"user": {"name": "ann"}, "tags": ["x", "y"]}',
        "at": "2026-07-01 10:00:00",
    },
    {"id": 2, "line": "PUT /b/x 201", "body": "no JSON", "at": "2026-01-01 10:00:00"},
    {"id": 3, "line": None, "body": None, "at": None},
    {"id": "four", "line": "GET /c/9 200", "body": "{}", "at": None},
    {"id": 6, "line": "GET /a/8 2xx", "body": "{}", "at": None},
    {"id": 5, "line": "GET /a/8 500", "body": '{"user": {}}', "at": "2026-07-01 10:00:00"},
]
SELECT = """
    select id, regexp_replace(line, '[0-9]+', '#') as line, upper(get_json_object(body, '$.user.name')) as name,
    from_json(body, 'user struct<name: string>, tags array<string>').tags as tags,
    transform(split(line, ' '), word -> lower(word) || id) as words, {number} as number,
    date_format(from_utc_timestamp(cast(at as timestamp_ntz), 'Europe/Berlin'), 'HH:mm') as hour, hash(_offset) as h,
    to_number(split(line, ' ')[2], '999') as code
    from records where not line rlike '5..$' or line is null
"""
STRICT = "cast(regexp_extract(line, '/([^/ ]+) ', 1) as int) + 1"
LENIENT = "try_cast(regexp_extract(line, '/([^/ ]+) ', 1) as int) + 1"
PERSON = """
    select id as person, regexp_extract(mail, '([a-z.]+)@', 1) as name, trim('>' from split({mail}, '@')[1]) as host
    from records where state = 'on'
"""


def _change(op: str, after: Any) -> dict[str, Any]:
    return {"before": None, "after": after, "source": {"connector": "postgresql"}, "op": op, "ts_ms": 1}


PEOPLE = [
    (1, _change("c", {"id": 1, "mail": "Ann <ann@x.org>", "state": "on"})),
    (2, _change("c", {"id": 2, "mail": "bob@y.org", "state": "on"})),
    (2, _change("u", {"id": 2, "mail": "bob@z.org", "state": "off"})),
    (3, _change("c", {"id": 3, "mail": "cid@y.org", "state": "on"})),
    (3, {**_change("d", None), "before": {"id": 3, "mail": None, "state": None}}),
    (1, _change("u", {"id": 1, "mail": "Ann <ann@z.org>", "state": "on"})),
    (4, _change("c", {"id": 4, "mail": "dora at z.org", "state": "on"})),
]


class Scene:
    """Two topics with records, and a pipeline with tables of them."""

    def __init__(self, broker: EmbeddedBroker, folder: Path) -> None:
        servers = broker.bootstrap_servers
        self.folder = folder
        self.calls, self.people = (Ledger(servers, new_id(), 1).topic for _ in range(2))
        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        for value in CALLS:
            producer.produce(self.calls, json.dumps(value).encode())
        for key, value in PEOPLE:
            producer.produce(self.people, json.dumps(value).encode(), json.dumps({"id": key}).encode())
        assert producer.flush(30) == 0
        (folder / "key").write_text("k" * 40)
        strict = {"topic": self.calls, "columns": {"id": "long"}, "select": SELECT.format(number=STRICT)}
        self.document: dict[str, Any] = {
            "pipeline": "p",
            "kafka": {"bootstrap.servers": servers},
            # What a user sets does not change what a query means.
            "spark": {"conf": {"spark.sql.ansi.enabled": "false", "spark.sql.session.timeZone": "Asia/Tokyo"}},
            "tables": {
                "s.calls": strict,
                "s.nulls": {**strict, "on_error": "null"},
                "s.hidden": {
                    "topic": self.calls,
                    "columns": {"id": "long"},
                    "protect": {"line": "hash"},
                    "protect_key": f"${{file:{folder}/key}}",
                    "select": "select id, regexp_replace(line, '^[0-9a-f]+$', 'hashed') as line from records",
                },
                "s.people": {
                    "topic": self.people,
                    "envelope": "debezium",
                    "mode": "upsert",
                    "select": PERSON.format(mail="mail"),
                    "key_columns": ["person"],
                },
            },
        }
        self.pipeline = Pipeline(folder, self.document)
        #: What was there before a test replayed dead letters.
        self.reported: Mapping[str, Any] = {}
        self.calls_before: list[dict[str, Any]] = []
        self.people_before: list[dict[str, Any]] = []
        self.dead_letters_before: list[dict[str, Any]] = []

    def command(self, *words: str) -> tuple[int, Mapping[str, Any]]:
        """The exit code and the document of a command."""
        done, document = self.pipeline.command(*words)
        return done.returncode, document


@pytest.fixture(scope="module")
def scene(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    made = Scene(broker, tmp_path_factory.mktemp("queries"))
    made.reported = made.pipeline.run()["tables"]
    made.calls_before = rows(made.folder, "calls")
    made.people_before = rows(made.folder, "people")
    made.dead_letters_before = rows(made.folder, "calls__dead_letters")
    return made


def test_rows_have_what_spark_makes_of_their_records(scene: Scene) -> None:
    found = {row["id"]: row for row in scene.calls_before}
    assert found[1] | {"h": None} == {
        "id": 1,
        "line": "GET /a/# #",
        "name": "ANN",
        "tags": ["x", "y"],
        "words": ["get1", "/a/71", "2001"],
        "number": 8,
        "hour": "12:00",
        "h": None,
        "code": Decimal(200),
    }
    assert {name for name, value in found[3].items() if value is not None} == {"id", "h"}
    assert found.keys() == {1, 3}
    assert scene.reported["s.calls"]["ignored_records"] == {"where": 1}


def test_an_expression_that_fails_is_a_dead_letter_of_its_record_alone(scene: Scene) -> None:
    assert scene.reported["s.calls"]["dead_letters"] == 3
    found = {one["offset"]: (one["error_class"], one["path"], one["message"]) for one in scene.dead_letters_before}
    assert found[1] == (
        "failed_expression",
        "number",
        "CAST_INVALID_INPUT: CAST(regexp_extract(records.line, '/([^/ ]+) ', 1) AS INT) of \"x\"",
    )
    assert found[3][0] == "type_mismatch"
    assert found[4] == (
        "failed_expression",
        "code",
        """EXPRESSION_FAILED: to_number(split(records.line, ' ', -1)[2], '999') of "GET /a/8 2xx\"""",
    )
    assert scene.reported["s.nulls"]["dead_letters"] == 1
    assert {row["id"]: row["number"] for row in rows(scene.folder, "nulls")} == {1: 8, 2: None, 3: None, 6: 9}


def test_spark_sees_protected_values_only(scene: Scene) -> None:
    assert [row["line"] for row in rows(scene.folder, "hidden")] == ["hashed", "hashed", None, "hashed", "hashed"]


def test_changes_have_what_spark_makes_of_their_rows(scene: Scene) -> None:
    assert scene.people_before == [{"person": 1, "name": "ann", "host": "z.org"}]


def test_dead_letters_are_replayed_without_a_job(scene: Scene) -> None:
    scene.document["tables"]["s.calls"]["select"] = SELECT.format(number=LENIENT)
    scene.document["tables"]["s.people"]["select"] = PERSON.format(mail="replace(mail, ' at ', '@')")
    scene.pipeline.file.write_text(yaml.safe_dump(scene.document))
    assert scene.command("dead-letters", "replay")[0] == 0
    found = {row["id"]: row for row in rows(scene.folder, "calls")}
    assert found[2] | {"h": None} == {
        "id": 2,
        "line": "PUT /b/x #",
        "name": None,
        "tags": None,
        "words": ["put2", "/b/x2", "2012"],
        "number": None,
        "hour": "11:00",
        "h": None,
        "code": Decimal(201),
    }
    assert found[1] == next(row for row in scene.calls_before if row["id"] == 1)
    assert sorted(rows(scene.folder, "people"), key=lambda row: int(row["person"])) == [
        {"person": 1, "name": "ann", "host": "z.org"},
        {"person": 4, "name": "", "host": "z.org"},
    ]
