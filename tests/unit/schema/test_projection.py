"""Names of columns from paths of fields, and back."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, NestedField, StructType

from frazil.column_names import change_case
from frazil.schema.evolve import NameConflict, RequestedFields, new_schema
from frazil.schema.projection import Shaping, doc_of, extend_shaped, format_path, make_projection, path_in_doc
from frazil.schema.selection import Level, Path, Selection
from frazil.spec.syntax.types import parse_type

FLAT = Shaping(depth=100)


@pytest.mark.parametrize(
    ("name", "lower", "snake", "camel"),
    [
        ("userId", "userid", "user_id", "userId"),
        ("UserID", "userid", "user_id", "userId"),
        ("HTTPServer", "httpserver", "http_server", "httpServer"),
        ("user_id", "user_id", "user_id", "userId"),
        ("user-name", "user-name", "user_name", "userName"),
        ("User Name", "user name", "user_name", "userName"),
        ("_id", "_id", "_id", "_id"),
        ("__typeName", "__typename", "__type_name", "__typeName"),
        ("line2Text", "line2text", "line2_text", "line2Text"),
        ("md5", "md5", "md5", "md5"),
        ("ÄrgerÖl", "ärgeröl", "ärger_öl", "ärgerÖl"),
        ("日本", "日本", "日本", "日本"),
        ("a.b", "a.b", "a_b", "aB"),
        ("_", "_", "_", "_"),
        ("", "", "", ""),
    ],
)
def test_names_change_their_case(name: str, lower: str, snake: str, camel: str) -> None:
    cases = ("keep", "lower", "snake", "camel")
    assert [change_case(name, case) for case in cases] == [name, lower, snake, camel]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("a",), "a"),
        (("a", "b c", "d"), '["a", "b c", "d"]'),
        (("user", "id"), "user.id"),
        (("a.b", "c"), '["a.b", "c"]'),
        (("[", "ü"), '["[", "ü"]'),
        (("line\nfield: x",), '["line\\nfield: x"]'),
        (("",), '[""]'),
    ],
)
def test_a_doc_reports_which_field_feeds_a_column_and_keeps_what_else_it_reported(path: Path, text: str) -> None:
    assert format_path(path) == text
    for old in (None, "", "the user's number", "two\nlines"):
        doc = doc_of(path, old)
        assert (path_in_doc(doc), doc.startswith(old or "field: ")) == (path, True)
        assert doc_of(("other",), doc) == doc_of(("other",), old)


def test_a_doc_of_somebody_else_names_no_field() -> None:
    docs = (None, "", "field of honour", "the field: x is", 'field: ["a"', "field: [1]", "field: []")
    assert [path_in_doc(doc) for doc in docs] == [None] * 7


def test_a_selection_tells_what_is_taken_in_part() -> None:
    selection = Selection((("a",), ("b", "c")), (("a", "x"), ("b", "c", "y")))
    words = {
        ("a",): "all", ("a", "z"): "all", ("a", "x"): "none", ("a", "x", "q"): "none", ("b",): "part",
        ("b", "c"): "all", ("b", "d"): "none", ("b", "c", "y"): "none", ("c",): "none",
    }  # fmt: skip
    assert {path: selection.takes(path) for path in words} == words
    assert selection.level(()) == Level(frozenset("ab"), frozenset())
    assert selection.level(("a",)) == Level(None, frozenset("x"))
    assert selection.level(("b",)) == Level(frozenset("c"), frozenset())


def test_types_lose_what_is_left_out_also_in_lists_and_maps() -> None:
    kind = parse_type("struct<a: long, l: list<struct<x: long, y: long>>, m: map<string, struct<x: long, y: long>>>")
    selection = Selection((), (("s", "a"), ("s", "l", "element", "x"), ("s", "m", "value", "y")))
    assert _words(selection.prune(kind, ("s",))) == "struct<l: list<struct<y: long>>, m: map<string,struct<x: long>>>"
    only = Selection((("s", "l", "element", "x"), ("s", "a", "b")))
    assert _words(only.prune(kind, ("s",))) == "struct<l: list<struct<x: long>>>"
    assert only.prune(kind, ("t",)) is None


def _words(kind: IcebergType | None) -> str:
    if isinstance(kind, StructType):
        return f"struct<{', '.join(f'{f.name}: {_words(f.field_type)}' for f in kind.fields)}>"
    inner = [getattr(kind, name) for name in ("element_type", "value_type") if hasattr(kind, name)]
    if inner:
        return f"list<{_words(inner[0])}>" if hasattr(kind, "element_type") else f"map<string,{_words(inner[0])}>"
    return str(kind)


def columns_of(schema: Schema) -> dict[str, tuple[str, str | None]]:
    return {field.name: (_words(field.field_type), field.doc) for field in schema.fields}


def extend(shaping: Shaping, schema: Schema | None = None, **found: str) -> Schema:
    requested_fields: RequestedFields = {(): {name: parse_type(word) for name, word in found.items()}}
    return extend_shaped(schema or Schema(), shaping, ("_key",), requested_fields)


def test_nested_records_become_columns_down_to_a_depth() -> None:
    user = "struct<name: string, at: struct<zip: int, geo: struct<x: double>>>"
    assert columns_of(extend(FLAT, id="long", u=user, l="list<long>")) == {
        "id": ("long", "field: id"),
        "u_name": ("string", "field: u.name"),
        "u_at_zip": ("int", "field: u.at.zip"),
        "u_at_geo_x": ("double", "field: u.at.geo.x"),
        "l": ("list<long>", "field: l"),
    }
    one = extend(Shaping(depth=1, separator="__"), id="long", u=user, l="list<long>")
    assert [(f.name, _words(f.field_type)) for f in one.fields] == [
        ("id", "long"), ("u__name", "string"), ("u__at", "struct<zip: int, geo: struct<x: double>>"), ("l", "list<long>"),
    ]  # fmt: skip


def test_a_new_nested_field_and_a_wider_type_find_their_columns() -> None:
    schema = extend(Shaping(depth=1, case="snake"), u="struct<userId: int, at: struct<zip: int>>")
    requested_fields: RequestedFields = {
        ("u",): {"userId": parse_type("long"), "isNew": parse_type("boolean")},
        ("u", "at"): {"x": parse_type("long")},
    }
    again = extend_shaped(schema, Shaping(depth=1, case="snake"), (), requested_fields)
    assert columns_of(again) == {
        "u_user_id": ("long", "field: u.userId"),
        "u_at": ("struct<zip: int, x: long>", "field: u.at"),
        "u_is_new": ("boolean", "field: u.isNew"),
    }
    assert extend_shaped(again, Shaping(depth=1, case="snake"), (), requested_fields) == again


@pytest.mark.parametrize(
    ("shaping", "found", "words"),
    [
        (FLAT, {"a_b": "long", "a": "struct<b: long>"}, "the fields a_b and a.b would share the column a_b"),
        (FLAT, {"a": "struct<b_c: int, b: struct<c: int>>"}, "the fields a.b_c and a.b.c would share the column a_b_c"),
        (Shaping(case="snake"), {"userId": "long", "user_id": "long"}, "the fields userId and user_id would share"),
        (FLAT, {"_key": "long"}, "field _key: the table has a column _key that is not for fields of records"),
        (Shaping(case="lower"), {"_POS": "long"}, "field _POS: _pos is the name of one of Iceberg's"),
        (
            Shaping(fields=(("t", ("o", "t")),)),
            {"t": "long", "o": "struct<t: long>"},
            "the fields o.t and t would share",
        ),
    ],
)
def test_two_fields_never_share_a_column(shaping: Shaping, found: dict[str, str], words: str) -> None:
    schema = new_schema([("t", parse_type("long"))] if shaping.fields else [])
    with pytest.raises(NameConflict) as raised:
        extend_shaped(schema, shaping, ("_key",), {(): {name: parse_type(word) for name, word in found.items()}})
    assert str(raised.value).startswith(words)


def test_the_other_field_is_known_after_a_restart_by_the_docs_alone() -> None:
    schema = extend(FLAT, a="struct<b: long>")
    with pytest.raises(NameConflict, match=r"the fields a\.b and a_b would share the column a_b"):
        extend(FLAT, schema, a_b="long")


def test_a_declared_column_is_bound_to_the_first_field_of_its_name() -> None:
    declared = new_schema([("user_id", parse_type("string")), ("x", parse_type("int"))])
    layout = make_projection(declared.fields, FLAT)
    assert (layout.fields, set(layout.unbound)) == ((), {"user_id", "x"})
    bound = extend(FLAT, declared, user="struct<id: long>")
    assert columns_of(bound) == {"user_id": ("string", "field: user.id"), "x": ("int", None)}
    assert [(f.name, _words(f.field_type)) for f in make_projection(bound.fields, FLAT).fields] == [
        ("user", "struct<id: string>")
    ]


def test_a_column_with_a_comment_of_the_users_is_bound_beside_it() -> None:
    field = NestedField(1, "user_id", parse_type("long"), required=False, doc="who")
    bound = extend(FLAT, Schema(field), user="struct<id: long>")
    assert columns_of(bound)["user_id"] == ("long", "who\nfield: user.id")


def test_a_field_with_a_column_of_its_own_leaves_its_struct() -> None:
    shaping = Shaping(fields=(("total", ("order", "total")),))
    schema = extend(
        shaping, new_schema([("total", parse_type("decimal(12,2)"))]), order="struct<id: long, total: double>"
    )
    assert columns_of(schema) == {"total": ("decimal(12, 2)", None), "order": ("struct<id: long>", None)}
    layout = make_projection(schema.fields, shaping)
    assert [_words(f.field_type) for f in layout.fields] == ["struct<id: long, total: decimal(12, 2)>"]
    assert layout.column_path(("order", "total")) == ("total",)
    assert layout.column_path(("order", "id")) == ("order", "id")


def test_what_is_left_out_is_not_decoded_though_its_column_is_there() -> None:
    shaping = Shaping(exclude=(("b",), ("s", "x")))
    columns: dict[str, Any] = {"a": "long", "b": "long", "s": "struct<x: long, y: long>"}
    layout = make_projection(new_schema([(n, parse_type(w)) for n, w in columns.items()]).fields, shaping)
    assert [(f.name, _words(f.field_type)) for f in layout.fields] == [("a", "long"), ("s", "struct<y: long>")]


@pytest.mark.parametrize("case", ["lower", "snake", "camel", "keep"])
@pytest.mark.parametrize(
    ("table", "requested"),
    [
        ({"VBELN": "string"}, {(): {"VBELN": "string", "vbeln": "string"}}),
        ({"VBELN": "string"}, {(): {"vbeln": "long", "VBELN": "string", "Vbeln": "double"}}),
        ({"VBELN": "string", "vbeln": "string"}, {(): {"VBELN": "string", "vbeln": "string"}}),
        ({"O": "struct<VBELN: string>"}, {(): {"O": "struct<VBELN: string>", "o": "struct<vbeln: string, n: int>"}}),
        ({}, {(): {"VBELN": "string", "vbeln": "string", "o": "struct<A: int, a: int>"}}),
    ],
)
def test_fields_that_differ_in_case_are_added_once_however_often_they_are_requested(
    table: dict[str, str], requested: dict[Path, dict[str, str]], case: str
) -> None:
    fields = (NestedField(n, name, parse_type(kind), required=False) for n, (name, kind) in enumerate(table.items(), 1))
    before, shaping = Schema(*fields), Shaping(depth=1, case=case)
    wanted = {path: {name: parse_type(kind) for name, kind in members.items()} for path, members in requested.items()}
    # The first change of a table of another writer only notes which fields feed its columns.
    twice = extend_shaped(extend_shaped(before, shaping, (), wanted), shaping, (), wanted)
    assert extend_shaped(twice, shaping, (), wanted) == twice
    assert [field.name for field in twice.fields][: len(table)] == list(table)
