"""A rule of `protect` by another name of a field: it protects the field, or the table has no row until it is written so."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyiceberg.types import StringType

from frazil.ingest.tables.state import RunState
from frazil.spec.settings import ColumnSpec, FlattenSpec, KeySpec, ValueSpec
from frazil.spec.syntax.types import parse_type
from frazil.stages.protect_settings import ProtectRule
from tests.unit.ingest.service_scene import only

_RECORD = {"id": "1", "email": "a@b.c", "userPhone": "030", "user": {"email": "d@e.f", "name": "n"}}
_SECRETS = ("a@b.c", "030", "d@e.f")


def _protecting(*selectors: str) -> dict[str, Any]:
    return {
        "protect": tuple(ProtectRule(selector=one, action="hash") for one in selectors),
        "protect_key": "k" * 40,
    }


@pytest.mark.parametrize(
    ("settings", "selector", "path", "sources"),
    [
        ({"rename": ((("email",), "mail"),)}, "mail", "mail", ("email",)),
        ({"rename": ((("email",), "mail"),)}, "/^MAIL$/", "mail", ("email",)),
        ({"rename": ((("user", "email"), "mail"),)}, "user.mail", "user.mail", ("user.email", "user.name")),
        ({"select": "select id, lower(email) as mail from records"}, "mail", "mail", ("email",)),
        ({"select": "select id, id as email from records"}, "email", "email", ("id",)),
        ({"select": "select named_struct('m', user.email) as c from records"}, "c.m", "c.m", ("user.email",)),
        ({"select": "select id, string(_key) as mail from records"}, "mail", "mail", ("_key",)),
    ],
)
def test_a_rule_for_a_name_that_the_query_makes_stops_the_table_until_it_names_the_field(
    scene: Any, settings: dict[str, Any], selector: str, path: str, sources: tuple[str, ...]
) -> None:
    made = scene(**settings, **_protecting(selector))
    made.feed("a", _RECORD)
    status = only(made.catch_up()).status
    assert status.run_state is RunState.STOPPED
    named = " and ".join(f"`{one}`" for one in sources)
    assert status.reason == f"`protect` has `{selector}` for `{path}`, which the query makes of {named}"
    rules = ", ".join(f"{one}: hash" for one in sources)
    assert (
        status.remedy == f"write the rule for the field, `protect: {{{rules}}}`: fields are protected before the query"
    )
    made.settings = {**settings, **_protecting(*sources)}
    assert only(made.catch_up()).status.run_state is RunState.WAITING
    assert len(made.rows("n.a")) == 1
    assert not any(secret in str(made.rows("n.a")[0][path.split(".")[0]]) for secret in _SECRETS)


@pytest.mark.parametrize(
    ("settings", "selectors"),
    [
        ({"rename": ((("email",), "mail"),)}, ("email", "mail", "user")),
        ({"add_fields": (("mail", "_topic"),)}, ("/e?mail/",)),
        ({"select": "select concat(email, id) as email from records"}, ("email",)),
        ({"select": "select 'x' as mail, id from records"}, ("/mail/",)),
        ({"select": "select user as person from records"}, ("/email/",)),
        ({"columns": (ColumnSpec(name="mail", type=StringType(), field=("email",)),)}, ("mail", "user.email")),
        ({"flatten": FlattenSpec()}, ("user_email", "email")),
        ({"flatten": FlattenSpec()}, ("user.email", "email")),
        # A rule for what a field is in is for the column that is made of the field.
        ({"flatten": FlattenSpec()}, ("user", "email")),
        ({"flatten": FlattenSpec(), "rename": ((("user_email",), "mail"),)}, ("/^user$/", "email")),
        ({"columns": (ColumnSpec(name="mail", type=StringType(), field=("user", "email")),)}, ("user", "email")),
        ({"column_case": "snake"}, ("user_phone", "/email/")),
        ({"column_case": "snake"}, ("userPhone", "/email/")),
    ],
)
def test_other_names_find_the_field_they_are_of(
    scene: Any, settings: dict[str, Any], selectors: tuple[str, ...]
) -> None:
    made = scene(**settings, **_protecting(*selectors))
    made.feed("a", _RECORD)
    table = only(made.catch_up())
    assert (table.status.run_state, table.status.reason) == (RunState.WAITING, "")
    (row,) = made.rows("n.a")
    shown = [secret for secret in _SECRETS if secret in str(row)]
    assert shown == ["030"] * ("userPhone" in row)


@pytest.mark.parametrize("selector", ["_headers", "_headers.trace", "who", "/trace/", "/^who$/"])
def test_a_rule_for_a_header_is_for_the_column_that_is_made_of_it(scene: Any, selector: str) -> None:
    column = ColumnSpec(name="who", type=StringType(), header="trace")
    made = scene(columns=(column,), rescue=True, **_protecting(selector))
    for text in (b"a@b.c", b"a@b.c\xff"):  # The second becomes a rescued value.
        made.source.produce("a", 0, b'{"id": 1}', made.clock.now_ms(), headers=(("trace", text),))
    made.catch_up()
    row, rescued = made.rows("n.a")
    assert len(row["who"]) == 64
    assert len(json.loads(rescued["_rescued"])["_headers.trace"]["value"]) == 64


@pytest.mark.parametrize("selector", ["_headers.context.email", "about.email", "/email/"])
def test_a_rescued_header_shows_nothing_that_a_rule_finds_inside_it(scene: Any, selector: str) -> None:
    kind = parse_type("struct<email: string, n: int>")
    column = ColumnSpec(name="about", type=kind, header="context", value=ValueSpec(format="json"))
    made = scene(columns=(column,), rescue=True, **_protecting(selector))
    for n in ("1", '"one"'):
        text = b'{"email": "a@b.c", "n": %s}' % n.encode()
        made.source.produce("a", 0, b'{"id": 1}', made.clock.now_ms(), headers=(("context", text),))
    made.catch_up()
    row, rescued = made.rows("n.a")
    assert (len(row["about"]["email"]), row["about"]["n"]) == (64, 1)
    assert len(json.loads(rescued["_rescued"])["_headers.context.n"]["value"]) == 64


@pytest.mark.parametrize(
    "selector", ["userData", "user_data", "userData.eMail", "user_data.e_mail", "/eMail/", "/e_mail/"]
)
def test_members_that_column_case_renames_are_found_by_both_names(scene: Any, selector: str) -> None:
    made = scene(column_case="snake", **_protecting(selector))
    made.feed("a", {"userData": {"eMail": "a@b.c"}})
    made.catch_up()
    (row,) = made.rows("n.a")
    assert len(row["user_data"]["e_mail"]) == 64


@pytest.mark.parametrize("settings", [{}, {"where": "id = 1"}, {"select": "select id, _key, _headers from records"}])
@pytest.mark.parametrize("key", ["raw", "text", "json"])
@pytest.mark.parametrize("column", ["_key", "own"])
def test_columns_of_keys_and_headers_are_protected_whatever_the_query_makes(
    scene: Any, settings: dict[str, Any], key: str, column: str
) -> None:
    metadata = {"key": column, "headers": "_headers"}
    made = scene(key=KeySpec(format=key), metadata=metadata, **settings, **_protecting("_key", "_headers"))
    made.source.produce("a", 0, b'{"id": 1}', made.clock.now_ms(), key=b'"a@b.c"', headers=(("of", b"a@b.c"),))
    made.catch_up()
    (row,) = made.rows("n.a")
    assert len(row[column]) == 64
    assert len(row["_headers"][0]["value"]) == 64
