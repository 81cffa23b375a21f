"""Collections of MongoDB: a whole service on the ports in memory, from Debezium's documents to rows by their `_id`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from frazil.cdc.document_ids import read_ids
from frazil.decode.settings import Reading
from frazil.ingest.tables.state import RunState
from frazil.spec.settings import ColumnSpec, DeadLettersSpec, FlattenSpec
from frazil.spec.syntax.types import parse_type
from tests.needs import cases
from tests.unit.cdc.mongodb_source import FORMS, DocumentScenario, change
from tests.unit.upsert.upsert_source import MARKS

_OID = "596e275826f08b2730779e{:02x}"
KINDS = {
    "object id": ('{{"$oid": "596e275826f08b2730779e{:02x}"}}',) * 2,
    "int": ("{}", "{}"),
    "long": ("{}", '{{"$numberLong": "{}"}}'),
    "text": ('"k{}"', '"k{}"'),
    "document": ('{{"a": {}, "b": "x"}}', '{{"a": {{"$numberLong": "{}"}}, "b": "x"}}'),
    "date": ('{{"$date": "2026-11-22T00:00:0{}.250Z"}}', '{{"$date": 179530560{}250}}'),
    "binary in the new form": ('{{"$binary": {{"base64": "a0F{}", "subType": "04"}}}}',) * 2,
    "binary": ('{{"$binary": {{"base64": "a0F{}", "subType": "04"}}}}', '{{"$binary": "a0F{}", "$type": "04"}}'),
}
"""An `_id` as a key writes it, and as the document does."""
HELD: dict[str, Callable[[int], Any]] = {
    "object id": _OID.format,
    "long": lambda n: n,
    "document": lambda n: {"a": n, "b": "x"},
    "date": lambda n: datetime(2026, 11, 22, 0, 0, n, 250_000, tzinfo=UTC),
}
"""And as the table has it, where that is another value."""


def document(kind: str, number: int, v: str) -> str:
    """A document as the connector writes it."""
    return f'{{"_id": {KINDS[kind][1].format(number)},"v": "{v}"}}'


def key(kind: str, number: int) -> str:
    """The `_id` of that document as a key writes it."""
    return KINDS[kind][0].format(number)


@pytest.mark.parametrize(
    ("form", "kind"),
    [(form, kind) for form in FORMS for kind in KINDS if form == "plain" or kind in ("object id", "long")],
)
def test_documents_are_found_by_their_id(tmp_path: Path, form: str, kind: str) -> None:
    scenario = DocumentScenario(tmp_path, form)
    scenario.tell(*((key(kind, n), change("r", document(kind, n, "a"))) for n in range(5)))
    scenario.tell(
        (key(kind, 1), change("u", document(kind, 1, "b"))),
        (key(kind, 2), change("d")),
        (key(kind, 2), None),
        (key(kind, 3), change("d", before=document(kind, 3, "a"))),
        (key(kind, 5), change("c", document(kind, 5, "a"))),
    )
    whole = {n: json.loads(document(kind, n, "b" if n == 1 else "a")) for n in (0, 1, 4, 5)}
    if kind in HELD:
        whole = {n: {**row, "_id": HELD[kind](n)} for n, row in whole.items()}
    assert scenario.dead_letters() == []
    assert sorted(scenario.upsert_table(), key=str) == sorted(whole.values(), key=str)
    scenario.tell((key(kind, 4), None), (key(kind, 0), change("d")), (key(kind, 9), change("d")))
    assert scenario.dead_letters() == []
    assert sorted(scenario.upsert_table(), key=str) == sorted((whole[n] for n in (1, 5)), key=str)


@pytest.mark.parametrize("form", cases(FORMS))
def test_deletes_of_documents_are_marked(tmp_path: Path, form: str) -> None:
    scenario = DocumentScenario(tmp_path, form, **MARKS)
    scenario.tell(*((key("object id", n), change("c", document("object id", n, "a"))) for n in (1, 2)))
    scenario.tell((key("object id", 1), change("d")), (key("object id", 1), None))
    assert sorted((row["_id"], row["v"], row["_deleted"]) for row in scenario.upsert_table()) == [
        (_OID.format(1), "a", True),
        (_OID.format(2), "a", False),
    ]


_CHANGELOG: dict[str, Any] = {
    "mode": "append", "changelog": True, "metadata": {"op": "_op", "image": "_image"},
}  # fmt: skip


@pytest.mark.parametrize("form", cases(FORMS))
def test_a_changelog_of_documents_has_the_id_of_those_that_are_gone(tmp_path: Path, form: str) -> None:
    scenario = DocumentScenario(tmp_path, form, **_CHANGELOG)
    told = [("c", document("object id", 1, "a")), ("u", document("object id", 1, "b")), ("d", None)]
    scenario.tell(*((key("object id", 1), change(op, text)) for op, text in told), (key("object id", 1), None))
    scenario.tell((key("object id", 2), change("d", before=document("object id", 2, "a"))))
    rows = [(row["_op"], row["_image"], row["_id"], row["v"]) for row in scenario.upsert_table()]
    first, second = map(_OID.format, (1, 2))
    assert sorted(rows, key=str) == [
        ("c", "after", first, "a"),
        ("d", "before", second, "a"),
        ("d", "identity", first, None),
        ("u", "after", first, "b"),
    ]


_GONE_SHARE = 0.2


@pytest.mark.parametrize("form", cases(FORMS))
@pytest.mark.parametrize("mode", ["upsert", "changelog", "append"])
def test_an_update_whose_document_is_gone_changes_no_row_and_is_counted(tmp_path: Path, form: str, mode: str) -> None:
    settings = {"upsert": {}, "changelog": _CHANGELOG, "append": {"mode": "append"}}[mode]
    scenario = DocumentScenario(tmp_path, form, dead_letters=DeadLettersSpec(stop_above=_GONE_SHARE), **settings)
    ids = range(100, 350)
    gone = {n for n in ids if n % 2}
    scenario.tell(*((key("int", n), change("c", document("int", n, "a"))) for n in ids))
    table = scenario.tell(
        *((key("int", n), change("u", None if n in gone else document("int", n, "b"))) for n in ids),
        (key("int", 101), change("u", before=document("int", 101, "a"))),
    )
    assert (table.status.run_state, table.status.reason) == (RunState.WAITING, "")
    assert (scenario.dead_letters(), dict(table.progress.totals.ignored_records)) == (
        [],
        {"update_without_document": len(gone) + 1},
    )
    found = {(row["_id"], row["v"]) for row in scenario.upsert_table()}
    before, after = {(n, "a") for n in ids}, {(n, "b") for n in ids if n not in gone}
    assert found == (before | after if mode != "upsert" else {one for one in before if one[0] in gone} | after)
    scenario.tell(*((key("int", n), change("d")) for n in gone), *((key("int", n), None) for n in gone))
    if mode == "upsert":
        assert {(row["_id"], row["v"]) for row in scenario.upsert_table()} == after
    assert scenario.dead_letters() == []


@pytest.mark.parametrize("form", cases(FORMS))
def test_other_changes_without_their_document_stay_bad_records(tmp_path: Path, form: str) -> None:
    scenario = DocumentScenario(tmp_path, form)
    scenario.tell((key("int", 1), change("c", document("int", 1, "a"))))
    other = {**change("u"), "source": {"connector": "postgresql", "ts_ms": 1, "collection": None}}
    records = [change("c"), change("r"), *([other] if form == "plain" else [])]
    scenario.tell(*((key("int", 1), one) for one in records))
    assert [kind for kind, _ in scenario.dead_letters()] == ["missing_image"] * len(records)
    assert scenario.upsert_table() == [{"_id": 1, "v": "a"}]


@pytest.mark.parametrize("form", cases(FORMS))
def test_ids_in_columns_of_their_own(tmp_path: Path, form: str) -> None:
    scenario = DocumentScenario(tmp_path, form, flatten=FlattenSpec(), exclude=(("noise",),))
    text = '{"_id": {"$oid": "596e275826f08b2730779e01"},"inner": {"a": 1},"noise": 2}'
    scenario.tell(
        (key("object id", 1), change("c", text)), (key("object id", 2), change("c", text.replace("01", "02")))
    )
    scenario.tell((key("object id", 1), change("u", text.replace('"a": 1', '"a": 5'))))
    assert [(row["_id"], row["inner_a"]) for row in scenario.upsert_table()] == [
        (_OID.format(1), 5),
        (_OID.format(2), 1),
    ]
    scenario.tell((key("object id", 1), change("d")), (key("object id", 2), None))
    assert (scenario.upsert_table(), scenario.dead_letters()) == ([], [])


@pytest.mark.parametrize("form", cases(FORMS))
def test_documents_that_do_not_hold_together_are_dead_letters_and_change_no_other(tmp_path: Path, form: str) -> None:
    columns = (ColumnSpec(name="v", type=parse_type("string")),)
    scenario = DocumentScenario(tmp_path, form, columns=columns)
    good = (key("int", 1), change("c", document("int", 1, "a")))
    odd = [
        (key("int", 2), change("c", '{"_id": 2,"v": 7}')),
        (key("int", 3), change("c", '{"_id": 3')),
        (key("int", 4), change("c", "[4]")),
        (key("int", 5), change("c")),
        ("no json", change("d")),
    ]
    scenario.tell(good)
    scenario.tell(*odd, (key("int", 6), change("c", document("int", 6, "b"))))
    assert [row["_id"] for row in scenario.upsert_table()] == [1, 6]
    kinds = ["malformed", "malformed", "missing_image", "not_an_object", "type_mismatch"]
    assert [kind for kind, _ in scenario.dead_letters()] == kinds


@pytest.mark.parametrize("form", cases(FORMS))
def test_fields_of_documents_that_a_table_lacks_are_stored_where_it_rescues(tmp_path: Path, form: str) -> None:
    columns = tuple(ColumnSpec(name=name, type=parse_type("long")) for name in ("_id", "v"))
    scenario = DocumentScenario(tmp_path, form, columns=columns, unknown_fields="rescue", rescue=True)
    scenario.tell((key("int", 1), change("c", '{"_id": 1,"v": "text","more": {"a": [1]}}')))
    (row,) = scenario.upsert_table()
    assert (row["_id"], row["v"]) == (1, None)
    rescued = json.loads(row["_rescued"])
    assert {name: one["value"] for name, one in rescued.items()} == {"after.v": "text", "after.more": {"a": [1]}}


@pytest.mark.parametrize("form", cases(FORMS))
def test_a_field_of_a_document_that_no_table_can_have_makes_a_dead_letter(tmp_path: Path, form: str) -> None:
    scenario = DocumentScenario(tmp_path, form, metadata={"offset": "_offset"})
    told = [(key("int", n), change("c", document("int", n, "a"))) for n in (1, 3)]
    table = scenario.tell(told[0], (key("int", 2), change("c", '{"_id": 2,"v": "a","_offset": 9}')), told[1])
    assert (table.status.run_state, table.status.reason) == (RunState.WAITING, "")
    assert [row["_id"] for row in scenario.upsert_table()] == [1, 3]
    assert [kind for kind, _ in scenario.dead_letters()] == ["name_conflict"]


@pytest.mark.parametrize("text", ['{"$date": "2020-01-01"}', '"\\ud800"', '{"$date": {"$numberLong": "x"}}', "{"])
def test_an_id_that_means_nothing_stays_as_it_is(text: str) -> None:
    records = {"key": pa.array([json.dumps({"id": text}).encode()], pa.binary())}
    (documents,) = read_ids(Reading("json"), records, None).columns
    assert documents.to_pylist() == [f'{{"_id":{text}}}'.encode()]


@pytest.mark.parametrize("form", cases(FORMS))
def test_names_of_a_documents_fields_may_have_escapes(tmp_path: Path, form: str) -> None:
    scenario = DocumentScenario(tmp_path, form)
    scenario.tell((key("int", 1), change("c", '{"_id": 1,"a\\"b": 1,"in": {"c\\\\d": "x"}}')))
    scenario.tell((key("int", 1), change("u", '{"_\\u0069d": 1,"a\\u0022b": 2,"in": {"c\\u005cd": "y"}}')))
    assert (scenario.upsert_table(), scenario.dead_letters()) == ([{"_id": 1, 'a"b': 2, "in": {"c\\d": "y"}}], [])


@pytest.mark.parametrize("form", cases(FORMS))
def test_an_upsert_table_whose_first_record_is_a_delete_of_a_document(tmp_path: Path, form: str) -> None:
    scenario = DocumentScenario(tmp_path, form)
    scenario.tell((key("object id", 1), change("d")), (key("object id", 1), None))
    scenario.tell((key("object id", 2), change("c", document("object id", 2, "a"))))
    assert (scenario.upsert_table("v"), scenario.dead_letters()) == ([{"v": "a"}], [])


def test_a_document_without_an_id_names_no_key(tmp_path: Path) -> None:
    scenario = DocumentScenario(tmp_path, "plain")
    scenario.tell((key("int", 1), change("c", '{"v": "a"}')))
    assert scenario.dead_letters() == [("no_key", "the document has no `_id`, which identifies its row")]
    table = scenario.catch_up()
    assert table.status.run_state is RunState.WAITING
    scenario.tell((key("int", 1), change("c", document("int", 1, "a"))))
    assert scenario.upsert_table() == [{"_id": 1, "v": "a"}]


@pytest.mark.parametrize("form", cases(FORMS))
def test_key_columns_may_be_named(tmp_path: Path, form: str) -> None:
    scenario = DocumentScenario(tmp_path, form, key_columns=("_id",))
    scenario.tell(*((key("object id", n), change("c", document("object id", n, "a"))) for n in (1, 2, 3)))
    scenario.tell((key("object id", 1), change("d")), (key("object id", 2), None))
    assert [row["_id"] for row in scenario.upsert_table()] == [_OID.format(3)]


@pytest.mark.parametrize("form", cases(FORMS))
@pytest.mark.parametrize("kind", ["object id", "long", "date"])
def test_a_struct_that_a_table_has_of_an_id_stays_what_it_is(tmp_path: Path, form: str, kind: str) -> None:
    name, of = {"object id": ("$oid", "string"), "long": ("$numberLong", "string"), "date": ("$date", "long")}[kind]
    columns = (ColumnSpec(name="_id", type=parse_type(f"struct<{name}: {of}>")),)
    scenario = DocumentScenario(tmp_path, form, columns=columns, key_columns=(f"_id.{name}",))
    scenario.tell(*((key(kind, n), change("c", document(kind, n, "a"))) for n in (1, 2, 3)))
    scenario.tell((key(kind, 1), change("d")), (key(kind, 2), None))
    assert ([row["_id"] for row in scenario.upsert_table()], scenario.dead_letters()) == (
        [json.loads(document(kind, 3, "a"))["_id"]],
        [],
    )


_LARGE = '{"$numberLong": "5000000000"}'


@pytest.mark.parametrize("form", cases(FORMS))
def test_a_number_that_outgrows_its_size_stays_in_its_column(tmp_path: Path, form: str) -> None:
    scenario = DocumentScenario(tmp_path, form)
    scenario.tell((key("int", 1), change("c", '{"_id": 1,"n": 5,"list": [1],"in": {"n": 5}}')))
    text = '{"_id": 1,"n": %s,"list": [%s, 2],"in": {"n": %s}}'
    scenario.tell((key("int", 1), change("u", text.replace("%s", _LARGE))))
    large = 5_000_000_000
    row = {"_id": 1, "n": large, "list": [large, 2], "in": {"n": large}}
    assert (scenario.upsert_table(), scenario.dead_letters()) == ([row], [])
    scenario.tell((key("int", large), change("c", f'{{"_id": {_LARGE},"n": 1}}')), (key("int", 1), change("d")))
    assert ([(row["_id"], row["n"]) for row in scenario.upsert_table()], scenario.dead_letters()) == ([(large, 1)], [])


def test_times_and_ids_of_documents_are_times_and_texts_wherever_they_are(tmp_path: Path) -> None:
    scenario = DocumentScenario(tmp_path, "plain")
    time, oid = '{"$date": 1795305600250}', f'{{"$oid": "{_OID.format(7)}"}}'
    scenario.tell((key("int", 1), change("c", f'{{"_id": 1,"at": {time},"in": {{"at": [{time}], "of": {oid}}}}}')))
    at = datetime(2026, 11, 22, 0, 0, 0, 250_000, tzinfo=UTC)
    assert scenario.upsert_table() == [{"_id": 1, "at": at, "in": {"at": [at], "of": _OID.format(7)}}]
    scenario.tell((key("int", 2), change("c", '{"_id": 2,"at": {"$date": {"$numberLong": "-1"}}}')))
    scenario.tell((key("int", 3), change("c", '{"_id": 3,"at": "2026-11-22"}')))
    assert [row["at"].year for row in scenario.upsert_table("at")] == [1969, 2026]
    assert [kind for kind, _ in scenario.dead_letters()] == ["type_mismatch"]


def test_changes_of_documents_are_ordered_by_a_time_of_theirs(tmp_path: Path) -> None:
    scenario = DocumentScenario(tmp_path, "plain", order_by="at")
    text = '{{"_id": 1,"at": {{"$date": {}}}}}'
    for millis in (1000, 20_000, 3000):
        scenario.tell((key("int", 1), change("u", text.format(millis))))
    assert scenario.upsert_table() == [{"_id": 1, "at": datetime(1970, 1, 1, 0, 0, 20, tzinfo=UTC)}]


@pytest.mark.parametrize("form", cases(FORMS))
@pytest.mark.parametrize("word", ['{"$numberDouble": "NaN"}', "NaN"])
def test_doubles_that_are_not_finite_are_doubles_in_every_form(tmp_path: Path, form: str, word: str) -> None:
    shape = '{{"_id": {}, "x": {}, "l": [{}, 1.5], "d": {{"e": {}}}}}'
    scenario = DocumentScenario(tmp_path, form)
    scenario.tell(("1", change("r", shape.format(1, *[word] * 3))))
    endless = word.replace("NaN", "-Infinity")
    scenario.tell(
        ("10", change("c", shape.format(10, *["0.5"] * 3))), ("11", change("c", shape.format(11, *[endless] * 3)))
    )
    assert scenario.dead_letters() == []
    numbers = {1: math.nan, 10: 0.5, 11: -math.inf}
    told = [{"_id": n, "x": x, "l": [x, 1.5], "d": {"e": x}} for n, x in numbers.items()]
    assert str(sorted(scenario.upsert_table(), key=lambda row: int(row["_id"]))) == str(told)
