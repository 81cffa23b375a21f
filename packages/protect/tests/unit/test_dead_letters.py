"""Dead letters of a protected table: what anybody sees of them, and that who has the key replays them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.dead_letters.files import ReplayResult, Selection
from frazil.errors import SpecError
from frazil.spec.settings import LimitsSpec, ValueSpec
from frazil.stages.protect_settings import ProtectRule
from frazil.stages.record_key import RecordKey
from frazil_protect.metadata import HIDDEN
from packages.deadletters.tests.unit.scene import TABLE, Scene

KEY = "0123456789abcdef0123456789abcdef"
EMAIL = "alice@example.com"
RULES = (ProtectRule(selector="email", action="hash"), ProtectRule(selector="/_phone$/", action="mask"))
PROTECT: dict[str, Any] = {"protect": RULES, "protect_key": KEY}


def _bad(scene: Scene) -> Scene:
    return scene.feed(
        {"id": 0, "email": EMAIL, "home_phone": "0301234567"},
        {"id": "1", "email": EMAIL},
        b'{"id": 2, "email": "alice@example.com"',
        {"id": 3, "email": [EMAIL]},
    )


def _shown(scene: Scene) -> str:
    return str(scene.rows()) + str(scene.dead_letters())


def test_records_and_reasons_show_no_value(tmp_path: Path) -> None:
    scene = _bad(Scene(tmp_path, {"id": "int", "email": "string"}, **PROTECT))
    assert EMAIL not in _shown(scene)
    assert "0301234567" not in _shown(scene)
    assert [row["home_phone"] for row in scene.rows()] == ["****4567"]
    assert [(one["error_class"], one["path"], one["message"]) for one in scene.dead_letters()] == [
        ("type_mismatch", "id", HIDDEN),
        ("malformed", None, HIDDEN),
        ("type_mismatch", "email", HIDDEN),
    ]


def test_a_replay_with_the_key_makes_the_rows_that_a_run_would_have_made(tmp_path: Path) -> None:
    scene = _bad(Scene(tmp_path, {"id": "int", "email": "string"}, limits=LimitsSpec(record_bytes=200), **PROTECT))
    scene.feed({"id": 4, "email": EMAIL, "note": "n" * 300})
    assert {one["offset"]: one["error_class"] for one in scene.dead_letters()}[4] == "too_large"
    scene.declare({"id": "int", "email": "string"}, limits=LimitsSpec())
    assert scene.replayer.replay(scene.table, Selection()) == ReplayResult(1, 3)
    emails: dict[int, Any] = {row["id"]: row["email"] for row in scene.rows()}
    assert emails[4] == emails[0]
    assert EMAIL not in _shown(scene)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"protect_key": KEY[::-1]}, "and `protect_key` is the key"),
        ({"protect": (), "protect_key": None}, "and the table has no `protect_key`"),
    ],
)
def test_a_replay_without_the_key_is_refused_and_changes_nothing(
    tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    scene = _bad(Scene(tmp_path, {"id": "int", "email": "string"}, **PROTECT))
    before = scene.dead_letters()
    scene.declare({"id": "int", "email": "string"}, **settings)
    with pytest.raises(SpecError, match=words):
        scene.replayer.replay(scene.table, Selection())
    assert scene.dead_letters() == before


def test_dead_letters_from_before_the_table_was_protected_are_replayed_too(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"id": "int", "email": "string"}, limits=LimitsSpec(record_bytes=60))
    scene.feed({"id": 0, "email": EMAIL}, {"id": 1, "email": EMAIL, "note": "n" * 60})
    scene.declare({"id": "int", "email": "string"}, limits=LimitsSpec(), **PROTECT)
    scene.catch_up()
    assert scene.replayer.replay(scene.table, Selection()) == ReplayResult(1, 0)


def test_rescued_values_are_protected_by_the_names_of_their_fields(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"id": "int", "owner": "struct<email: string>"}, rescue=True, unknown_fields="rescue", **{
        **PROTECT,
        "protect": (ProtectRule(selector="/email$/", action="constant", value="x"), RULES[1]),
    })  # fmt: skip
    scene.feed(
        {"id": 0, "owner": EMAIL, "work_phone": "0301234567", "more": [{"email": EMAIL, "n": 1}], "plain": 1.10},
        {"id": 1, "owner": {"email": {"email": EMAIL}}},
    )
    assert EMAIL not in str(scene.rows())
    rescued = [json.loads(row["_rescued"]) for row in sorted(scene.rows(), key=lambda row: row["id"])]
    assert {name: one["value"] for name, one in rescued[0].items() if name != "owner"} == {
        "work_phone": "****4567",
        "more": [{"email": "x", "n": 1}],
        "plain": 1.1,
    }
    assert len(rescued[0]["owner"]["value"]) == 64
    assert rescued[1] == {"owner.email": {"value": {"email": "x"}, "reason": HIDDEN}}


@pytest.mark.parametrize("settings", [{"rescue": True}, {"unknown_fields": "rescue"}, {}])
@pytest.mark.parametrize("selector", ["email", "Email", "/^e-?mail$/"])
def test_a_rule_finds_its_field_in_any_case_wherever_the_value_ends(
    tmp_path: Path, selector: str, settings: dict[str, Any]
) -> None:
    rule = ProtectRule(selector=selector, action="hash")
    columns = {"id": "int"} if settings.get("unknown_fields") else {}
    scene = Scene(tmp_path, columns, protect=(rule,), protect_key=KEY, **settings)
    scene.feed({"id": 0, "EMAIL": EMAIL}, {"id": 1, "email": EMAIL}, {"id": 2, "email": EMAIL, "EMAIL": EMAIL})
    scene.feed({"id": 3, "eMail": {"at": [EMAIL]}}, {"id": "x", "Email": EMAIL}, b'{"email": "' + EMAIL.encode())
    assert len(scene.rows()) + len(scene.dead_letters()) == 6
    assert EMAIL not in _shown(scene)


def test_keys_and_headers_of_records_are_protected_in_their_columns(tmp_path: Path) -> None:
    rules = (ProtectRule(selector="_key", action="mask"), ProtectRule(selector="_headers", action="hash"))
    scene = Scene(
        tmp_path, {"id": "int"}, protect=rules, protect_key=KEY, metadata={"key": "_key", "headers": "_headers"}
    )
    scene.source.produce("a", 0, b'{"id": 1}', 1000, key=EMAIL.encode(), headers=[("who", EMAIL.encode())])
    scene.catch_up()
    [row] = scene.rows()
    assert row["_key"].startswith(b"****")
    assert EMAIL not in str(row)


@pytest.mark.parametrize("kind", ["raw", "text", "json"])
def test_a_key_a_header_or_a_text_is_hashed_where_a_rule_is_for_a_field_in_it(tmp_path: Path, kind: str) -> None:
    rules = tuple(ProtectRule(selector=f"{one}.email", action="mask") for one in ("_key", "_headers.user", "owner"))
    metadata = {"key": "_key", "headers": "_headers"}
    scene = Scene(tmp_path, {}, protect=rules, protect_key=KEY, metadata=metadata, key=ValueSpec(format=kind))
    text = json.dumps(EMAIL).encode()
    scene.source.produce("a", 0, b'{"owner": %b}' % text, 1000, key=text, headers=[("user", text), ("n", b"1")])
    scene.catch_up()
    scene.feed({"owner": json.dumps({"email": EMAIL})}, {"owner": [EMAIL]}, {"owner": {"email": EMAIL}})
    assert (len(scene.rows()), len(scene.dead_letters())) == (2, 2)
    assert EMAIL not in _shown(scene)


def test_a_protected_table_has_its_keys_id_and_with_hashed_keys_takes_no_other(tmp_path: Path) -> None:
    columns = {"id": "int", "email": "string"}
    scene = Scene(tmp_path, columns, mode="upsert", key_columns=("email",), format_version=3, partitions=1, **PROTECT)
    scene.feed({"id": 1, "email": EMAIL}, {"id": 2, "email": EMAIL})
    assert [row["id"] for row in scene.rows()][-1] == 2
    state = scene.catalog.load(TABLE)
    assert state is not None
    assert state.marks["protect-key-id"] == RecordKey(KEY.encode()).id
    assert KEY not in str(state.properties)
    scene.declare(columns, protect_key=KEY[::-1])
    with pytest.raises(AssertionError, match="the table's keys are hashed with the key"):
        scene.catch_up()


def test_rescued_values_are_protected_by_the_rule_of_what_they_are_in(tmp_path: Path) -> None:
    rules = (ProtectRule(selector="owner", action="hash"), ProtectRule(selector="card", action="drop"))
    kinds = {"id": "int", "owner": "struct<age: int>", "card": "map<string, struct<year: int>>"}
    scene = Scene(tmp_path, kinds, rescue=True, unknown_fields="rescue", **{**PROTECT, "protect": rules})
    scene.feed({"id": 0, "owner": {"age": EMAIL, "mail": EMAIL}, "card": {"a": {"year": EMAIL, "holder": [EMAIL]}}})
    (row,) = scene.rows()
    assert EMAIL not in str(row)
    assert set(json.loads(row["_rescued"])) == {"owner.age", "owner.mail"}
