"""What `protect` makes of values of every type and shape, and what it shows of its key."""

from __future__ import annotations

import datetime
import hashlib
import hmac
import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from frazil.errors import SpecError
from frazil.queries.evaluate import evaluate
from frazil.queries.program import Call, Field, Program, Project
from frazil.schema.arrow import arrow_type
from frazil.stages.notes import Action
from frazil.stages.record_key import RecordKey, key_id_of
from frazil.write.target import METADATA_TYPES
from frazil_protect.kernels import canonical, protect_headers, protected_values
from frazil_protect.rules import Protection, Rule, load_parts, protected_paths, protecting

SECRET = b"0123456789abcdef0123456789abcdef"
KEY = RecordKey(SECRET)


def _field(number: int, name: str, kind: Any) -> NestedField:
    return NestedField(number, name, kind, required=False)


CONTACT = StructType(_field(11, "email", StringType()), _field(12, "note", StringType()))
RECORDS = Schema(
    _field(1, "id", LongType()),
    _field(2, "ssn", LongType()),
    _field(3, "owner", CONTACT),
    _field(4, "phones", ListType(13, StringType(), element_required=False)),
    _field(5, "friends", ListType(14, CONTACT, element_required=False)),
    _field(6, "by_email", MapType(15, StringType(), 16, CONTACT, value_required=False)),
    _field(7, "home_phone", StringType()),
)
ROWS: dict[str, list[Any]] = {
    "id": [1, None],
    "ssn": [987, None],
    "owner": [{"email": "a@b.c", "note": "n"}, None],
    "phones": [["+49 30-123", None], None],
    "friends": [[{"email": "d@e.f", "note": None}], []],
    "by_email": [[("x@y.z", {"email": "g@h.i", "note": "m"})], None],
    "home_phone": ["0301234567", None],
}


def _hash(label: str, value: str) -> str:
    """As docs/guides/protect.md describes it, with other code."""
    key = HKDF(SHA256(), 32, salt=None, info=b"frazil protect hash").derive(SECRET)
    return hmac.new(key, label.encode() + b"\x00" + value.encode(), hashlib.sha256).hexdigest()


def _protected(*rules: Rule) -> dict[str, list[Any]]:
    stage = protecting(RECORDS, Protection(rules, KEY))
    if stage is None:
        return ROWS
    program = Program((stage,), tuple(Field(name, column.type) for name, column in stage.columns))
    columns = {one.name: pa.array(ROWS[one.name], arrow_type(one.field_type)) for one in RECORDS.fields}
    made = evaluate(program, columns, 2)
    return {field.name: column.to_pylist() for field, column in zip(program.output, made.columns, strict=True)}


def _values(action: Action, *values: Any, **settings: Any) -> list[Any]:
    found: list[Any] = protected_values(pa.array(values), Rule("f", action, "f", **settings), KEY).to_pylist()
    return found


def test_a_record_without_a_rule_for_its_fields_stays() -> None:
    assert protecting(RECORDS, Protection((Rule("other", "hash"), Rule("/^x/", "drop")), KEY)) is None


def test_each_action_makes_text_and_null_stays_null() -> None:
    assert _values("hash", "a@b.c", None) == [_hash("f", "a@b.c"), None]
    assert _values("mask", "4111111111111234", "1234567", None) == ["****1234", "****", None]
    assert _values("mask", "4111111111111234", keep=2) == ["****34"]
    assert _values("truncate", "1971-03-05", None, length=4) == ["1971", None]
    assert _values("constant", "a", None, value="x") == ["x", None]
    assert _values("null", "a", None) == [None, None]


def test_a_token_has_the_shape_of_its_value_and_only_characters_of_ascii() -> None:
    [first, again, other, none, wide] = _values(
        "tokenize", "Ab-12 c@d.e", "Ab-12 c@d.e", "Ab-12 c@d.f", None, "Zoë 日٣"
    )
    assert (first == again, first == other, none) == (True, False, None)
    assert [("A" if c.isupper() else "a" if c.islower() else "0" if c.isdigit() else c) for c in first] == list(
        "Aa-00 a@a.a"
    )
    assert wide.isascii()
    assert [c.isdigit() for c in wide] == [False, False, False, False, False, True]
    [long] = _values("tokenize", "x" * 100)
    assert len(long) == 100
    assert len(set(long)) > 10


def test_equal_values_have_one_form_whatever_their_type() -> None:
    assert canonical(pa.array([5], pa.int32())) == canonical(pa.array([5], pa.int64())) == ["5"]
    assert canonical(pa.array([Decimal("5.00"), Decimal("100.00"), Decimal("1.50")])) == ["5", "100", "1.5"]
    digits = "12345678901234567890123456789012345678"
    assert canonical(pa.array([Decimal(digits)], pa.decimal128(38, 0))) == [digits]
    assert canonical(pa.array([0.1, -0.0])) == ["0.1", "0.0"]
    assert canonical(pa.array([True])) == ["true"]
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.UTC)
    assert canonical(pa.array([moment], pa.timestamp("us", "UTC"))) == ["2026-01-02 03:04:05.000006Z"]
    assert canonical(pa.array([bytes(16)], pa.binary(16))) == ["00000000-0000-0000-0000-000000000000"]


def test_bytes_are_hashed_as_they_are() -> None:
    assert _values("hash", b"a@b.c") == [_hash("f", "a@b.c")]


def test_paths_lead_into_structs_lists_and_maps() -> None:
    found = _protected(Rule("owner.email", "hash"), Rule("phones", "mask"), Rule("friends.email", "null"))
    assert found["owner"] == [{"email": _hash("owner.email", "a@b.c"), "note": "n"}, None]
    assert found["phones"] == [["****-123", None], None]
    assert found["friends"] == [[{"email": None, "note": None}], []]
    assert {name: found[name] for name in ("id", "ssn", "by_email")} == {
        name: ROWS[name] for name in ("id", "ssn", "by_email")
    }


@pytest.mark.parametrize("action", ["drop", "null", "mask"])
def test_a_value_that_is_no_struct_is_hashed_where_a_rule_is_for_a_field_in_it(action: Action) -> None:
    """Nothing shows where in a text or a map the field is: it may be JSON."""
    selectors = ("Home_Phone.number", "phones.number", "owner.note.text", "friends.element.note.text", "ssn.digits")
    found = _protected(*(Rule(one, action) for one in selectors))
    assert found["home_phone"] == [_hash("home_phone", "0301234567"), None]
    assert found["phones"] == [[_hash("phones", "+49 30-123"), None], None]
    assert found["owner"] == [{"email": "a@b.c", "note": _hash("owner.note", "n")}, None]
    assert found["friends"] == [[{"email": "d@e.f", "note": None}], []]
    assert found["ssn"] == [_hash("ssn", "987"), None]
    assert (found["id"], found["by_email"]) == (ROWS["id"], ROWS["by_email"])


def test_a_field_with_a_dot_in_its_name_is_in_no_field_before_the_dot() -> None:
    """`'["home_phone.old"]': hash` leaves the field `home_phone` alone, and a header `home` is in no `home.phone`."""
    rules = (
        Rule("home_phone.old", "hash", names=("home_phone.old",)),
        Rule("phones.x.y", "hash", names=("phones.x", "y")),
    )
    assert _protected(*rules) == ROWS
    assert [rules[1].is_inside(one) for one in ("Phones.X", "phones", "phones.x.y")] == [True, False, False]
    stage = protecting(Schema(_field(1, "Home_Phone.old", StringType())), Protection(rules, KEY))
    assert stage is not None
    assert load_parts(str(dict(_call_of(stage).options)["actions"]))[0][1].names == ("home_phone.old",)
    headers = [[{"key": "user", "value": b"a"}, {"key": "user.name", "value": b"b"}]]
    rule = Rule("_headers.user.name", "constant", value="x", names=("_headers", "user.name"))
    found = protect_headers(pa.array(headers, arrow_type(METADATA_TYPES["headers"])), Protection((rule,), KEY))
    assert [one["value"] for one in found.to_pylist()[0]] == [b"a", b"x"]


@pytest.mark.parametrize("rule", [Rule("a.b", "hash"), Rule("a.b", "hash", names=("a.b",))])
def test_a_rule_finds_a_name_with_a_dot_and_a_member_however_it_is_written(rule: Rule) -> None:
    """No table has both; the other way to write it must not leave a value as it is."""
    inner = StructType(_field(2, "b", StringType()))
    for field, values, found in (
        (_field(1, "a.b", StringType()), ["x"], [_hash("a.b", "x")]),
        (_field(1, "a", inner), [{"b": "x"}], [{"b": _hash("a.b", "x")}]),
    ):
        stage = protecting(Schema(field), Protection((rule,), KEY))
        assert stage is not None
        program = Program((stage,), tuple(Field(name, column.type) for name, column in stage.columns))
        made = evaluate(program, {field.name: pa.array(values, arrow_type(field.field_type))}, 1)
        assert made.columns[0].to_pylist() == found


def _call_of(stage: Project) -> Call:
    (_, column), *_ = stage.columns
    assert isinstance(column, Call)
    return column


def test_a_rule_for_a_nested_field_is_for_all_inside_and_hashes_keys_of_maps() -> None:
    found = _protected(Rule("by_email", "constant", value="x"))
    assert found["by_email"] == [[(_hash("by_email.key", "x@y.z"), {"email": "x", "note": "x"})], None]


@pytest.mark.parametrize(("column", "name"), [("api", "key"), ("api", "value"), ("api", "element"), ("apis", "key")])
@pytest.mark.parametrize("action", ["drop", "null", "mask", "hash"])
def test_a_member_with_the_name_of_a_part_of_a_list_or_map_is_a_member(column: str, name: str, action: Action) -> None:
    member = StructType(_field(2, name, StringType()), _field(3, "other", StringType()))
    kind = member if column == "api" else ListType(4, member, element_required=False)
    records, protection = Schema(_field(1, column, kind)), Protection((Rule(f"{column}.{name}", action),), KEY)
    stage = protecting(records, protection)
    assert stage is not None
    program = Program((stage,), tuple(Field(made, expression.type) for made, expression in stage.columns))
    given = {name: "secret-1234", "other": "o"}
    array = pa.array([given if column == "api" else [given]], arrow_type(kind))
    (value,) = evaluate(program, {column: array}, 1).columns[0].to_pylist()
    made: dict[str, dict[str, Any]] = {"drop": {}, "null": {name: None}, "mask": {name: "****1234"}}
    expected = made.get(action, {name: _hash(f"{column}.{name}", "secret-1234")}) | {"other": "o"}
    assert value == (expected if column == "api" else [expected])
    assert column not in protected_paths(records, protection)


def test_a_pattern_finds_fields_at_any_depth_and_the_first_rule_decides() -> None:
    found = _protected(Rule("owner.email", "constant", value="x"), Rule("/email$/", "drop"), Rule("/_phone$/", "hash"))
    assert set(found) == {"id", "ssn", "owner", "phones", "friends", "home_phone"}
    assert found["owner"][0] == {"email": "x", "note": "n"}
    assert found["friends"] == [[{"note": None}], []]
    assert found["home_phone"] == [_hash("home_phone", "0301234567"), None]


def test_rules_find_fields_in_any_case() -> None:
    found = _protected(Rule("SSN", "hash"), Rule("Owner.EMAIL", "hash"), Rule("/_PHONE$/", "null"))
    assert found["ssn"] == [_hash("ssn", "987"), None]
    assert found["owner"] == [{"email": _hash("owner.email", "a@b.c"), "note": "n"}, None]
    assert found["home_phone"] == [None, None]


def test_a_long_becomes_text_and_a_dropped_struct_leaves_no_column() -> None:
    found = _protected(Rule("ssn", "hash"), Rule("owner", "drop"))
    assert found["ssn"] == [_hash("ssn", "987"), None]
    assert "owner" not in found


def test_fields_with_one_label_have_equal_hashes_and_others_have_not() -> None:
    apart = _protected(Rule("ssn", "hash"), Rule("id", "hash"))
    assert apart["ssn"] != apart["id"]
    found = _protected(Rule("ssn", "hash", "person"), Rule("id", "hash", "person"))
    assert found["ssn"][0] == _hash("person", "987")
    assert found["id"][0] == _hash("person", "1")


def test_headers_are_protected_by_their_names() -> None:
    records = Schema(_field(1, "_headers", METADATA_TYPES["headers"]), _field(2, "_key", BinaryType()))
    rules = (
        Rule("_headers.email", "hash"),
        Rule("_headers.trace", "drop"),
        Rule("_headers.user.email", "null"),
        Rule("_key", "mask"),
    )
    stage = protecting(records, Protection(rules, KEY), {"_headers": ("_headers",), "_key": ("_key",)})
    assert stage is not None
    program = Program((stage,), tuple(Field(name, column.type) for name, column in stage.columns))
    headers = [
        [{"key": "email", "value": b"a@b.c"}, {"key": "trace", "value": b"t"}, {"key": "kept", "value": b"k"}],
        None,
        [{"key": "trace", "value": None}, {"key": "user", "value": b'{"email": "a@b.c"}'}],
    ]
    columns = {
        "_headers": pa.array(headers, arrow_type(METADATA_TYPES["headers"])),
        "_key": pa.array([b"12345678", None, b""]),
    }
    made = evaluate(program, columns, 3).columns
    assert made[0].to_pylist() == [
        [{"key": "email", "value": _hash("_headers.email", "a@b.c").encode()}, {"key": "kept", "value": b"k"}],
        None,
        [{"key": "user", "value": _hash("_headers.user", '{"email": "a@b.c"}').encode()}],
    ]
    assert made[1].to_pylist() == ["****3738", None, "****"]


def test_a_sealed_value_opens_in_its_place_with_its_key_alone() -> None:
    sealed = KEY.seal(b"a@b.c", "offset 1")
    assert b"a@b.c" not in sealed
    assert KEY.unseal(sealed, "offset 1") == b"a@b.c"
    assert (key_id_of(sealed), key_id_of(b"plain")) == (KEY.id, None)
    with pytest.raises(SpecError, match="were changed"):
        KEY.unseal(sealed, "offset 2")
    other = RecordKey(SECRET[::-1])
    with pytest.raises(SpecError, match=f"encrypted with the key {KEY.id}, and `protect_key` is the key {other.id}"):
        other.unseal(sealed, "offset 1")


def test_the_key_is_in_no_text_of_what_is_sent_to_tasks() -> None:
    protection = Protection((Rule("ssn", "hash"),), KEY)
    stage = protecting(RECORDS, protection)
    for text in (repr(stage), repr(protection), str(KEY), f"{KEY}", repr(pickle.loads(pickle.dumps(KEY)))):
        assert "0123456789" not in text
        assert "***" in text
