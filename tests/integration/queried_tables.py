"""The records and the tables of a pipeline whose tables have queries, conditions and functions: test_query_tables.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ORDERS = [
    {"id": 1, "email": "Ann@Example.org", "amount": "12.50", "kind": "order"},
    {"id": 2, "email": "Bob@Example.org", "amount": "1,5", "kind": "order"},
    {"id": 3, "email": None, "amount": "7", "kind": "order"},
    {"id": 4, "email": "c@x", "amount": "1", "kind": "visit"},
]
SELECT = "select id, lower(email) as email, {amount} as amount, _offset as at from records where kind = 'order'"
STRICT, LENIENT = "cast(amount as decimal(12,2))", "cast(replace(amount, ',', '.') as decimal(12,2))"


def _change(op: str, before: Any, after: Any) -> dict[str, Any]:
    return {"before": before, "after": after, "source": {"connector": "postgresql"}, "op": op, "ts_ms": 1}


CHANGES = [
    (1, _change("c", None, {"id": 1, "name": "ann", "state": "on"})),
    (2, _change("c", None, {"id": 2, "name": "bob", "state": "on"})),
    (3, _change("c", None, {"id": 3, "name": "cid", "state": "off"})),
    (1, _change("u", None, {"id": 1, "name": "anna", "state": "on"})),
    (2, _change("u", None, {"id": 2, "name": "bob", "state": "off"})),
]
SALES = [{"id": number, "amount": amount} for number, amount in [(1, 5), (2, -5), (3, None), (1, -1), (4, 4)]]
# What Spark itself evaluates.
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
SPARK_SELECT = """
    select id, regexp_replace(line, '[0-9]+', '#') as line, upper(get_json_object(body, '$.user.name')) as name,
    from_json(body, 'user struct<name: string>, tags array<string>').tags as tags,
    transform(split(line, ' '), word -> lower(word) || id) as words, {number} as number,
    date_format(from_utc_timestamp(cast(at as timestamp_ntz), 'Europe/Berlin'), 'HH:mm') as hour, hash(_offset) as h,
    to_number(split(line, ' ')[2], '999') as code
    from records where not line rlike '5..$' or line is null
"""
STRICT_NUMBER = "cast(regexp_extract(line, '/([^/ ]+) ', 1) as int) + 1"
LENIENT_NUMBER = "try_cast(regexp_extract(line, '/([^/ ]+) ', 1) as int) + 1"
MAILS = [
    (1, _change("c", None, {"id": 1, "mail": "Ann <ann@x.org>", "state": "on"})),
    (2, _change("c", None, {"id": 2, "mail": "bob@y.org", "state": "on"})),
    (2, _change("u", None, {"id": 2, "mail": "bob@z.org", "state": "off"})),
    (3, _change("c", None, {"id": 3, "mail": "cid@y.org", "state": "on"})),
    (3, _change("d", {"id": 3, "mail": None, "state": None}, None)),
    (1, _change("u", None, {"id": 1, "mail": "Ann <ann@z.org>", "state": "on"})),
    (4, _change("c", None, {"id": 4, "mail": "dora at z.org", "state": "on"})),
]
MAIL_SELECT = """
    select id as person, regexp_extract(mail, '([a-z.]+)@', 1) as name, trim('>' from split({mail}, '@')[1]) as host
    from records where state = 'on'
"""
# What functions of the pipeline's folder make.
VISITORS = [
    {"id": n, "email": email, "cents": 250 * n, "shop": f"{'ABab'[n]}@x"}
    for n, email in enumerate(["Ann@Example.org", "nobody", None, "Bob@Example.org"])
]
TOPICS: dict[str, list[tuple[Any, Any]]] = {
    "orders": [(None, value) for value in ORDERS],
    "people": [({"id": key}, value) for key, value in CHANGES],
    "sales": [({"id": value["id"]}, value) for value in SALES],
    "calls": [(None, value) for value in CALLS],
    "mails": [({"id": key}, value) for key, value in MAILS],
    "visitors": [(None, value) for value in VISITORS],
}
"""The keys and values of each topic."""
SIZES = "sizes.parquet"
"""The file of a lookup."""
UNWELL = ("s.short", "s.strict", "s.absent")
"""Tables that stop, and one whose topic is missing."""


def tables(topics: dict[str, str], folder: Path) -> dict[str, dict[str, Any]]:
    """The tables of the pipeline. topics: the name of each topic on the broker."""
    secret = f"${{file:{folder}/key}}"
    return (
        _queried(topics, folder / SIZES)
        | _expecting(topics["sales"])
        | _by_spark(topics, secret)
        | _calling(topics, secret)
    )


def _queried(topics: dict[str, str], sizes: Path) -> dict[str, dict[str, Any]]:
    changes = {"topic": topics["people"], "envelope": "debezium", "mode": "upsert"}
    return {
        "s.orders": {"topic": topics["orders"], "select": SELECT.format(amount=STRICT)},
        "s.visits": {
            "topic": topics["orders"],
            "where": "kind = 'visit'",
            "rename": {"id": "visit"},
            "keep_fields": ["visit"],
            "add_fields": {"origin": "web"},
        },
        "s.people": {
            **changes,
            "select": "select id as person, upper(name) as name from records where state = 'on'",
            "key_columns": ["person"],
        },
        "s.kept": {**changes, "key_columns": ["id"], "filter": "state = 'on'", "deletes": "soft"},
        "s.absent": {"topic": f"{topics['orders']}x"},
        "s.sized": {
            "topic": topics["sales"],
            "lookup": {"size": {"file": str(sizes), "on": "id = code", "take": ["cm"], "on_miss": "dead_letter"}},
            "select": "select id, size.cm as cm from records",
        },
    }


def _expecting(topic: str) -> dict[str, dict[str, Any]]:
    return {
        "s.sales": {
            "topic": topic,
            "expect": {"positive": {"that": "amount >= 0", "else": "dead_letter"}, "small": "amount < 5"},
            "dead_letters": {"stop_above": "100%"},
        },
        "s.latest": {
            "topic": topic,
            "mode": "upsert",
            "key_columns": ["id"],
            "select": "select id, amount * 2 as twice from records",
            "expect": {"positive": {"that": "twice >= 0", "else": "drop"}},
        },
        "s.warned": {"topic": topic, "expect": {"positive": {"that": "amount >= 0", "else": "warn"}}},
        "s.strict": {"topic": topic, "expect": {"positive": {"that": "amount >= 0", "else": "stop"}}},
    }


def _by_spark(topics: dict[str, str], secret: str) -> dict[str, dict[str, Any]]:
    calls = {"topic": topics["calls"], "columns": {"id": "long"}}
    strict = {**calls, "select": SPARK_SELECT.format(number=STRICT_NUMBER)}
    return {
        "s.calls": strict,
        "s.nulls": {**strict, "on_error": "null"},
        "s.hidden": {
            **calls,
            "protect": {"line": "hash"},
            "protect_key": secret,
            "select": "select id, regexp_replace(line, '^[0-9a-f]+$', 'hashed') as line from records",
        },
        "s.mails": {
            "topic": topics["mails"],
            "envelope": "debezium",
            "mode": "upsert",
            "select": MAIL_SELECT.format(mail="mail"),
            "key_columns": ["person"],
        },
    }


def _calling(topics: dict[str, str], secret: str) -> dict[str, dict[str, Any]]:
    both = {"topic": topics["visitors"], "udf": ["shop_functions.clean", "shop_functions.price"]}
    return {
        "s.visitors": {
            **both,
            "select": "select id, clean(email) as email, price(cents, 2) as price from records",
            "expect": {"known": "clean(email) is not null"},
        },
        "s.short": {**both, "udf": "shop_functions.short", "select": "select short(cents) as c from records"},
        # A function makes the key, beside a protected field and a value that Spark computes.
        "s.newest": {
            **both,
            "mode": "upsert",
            "key_columns": ["shop"],
            "protect": {"email": "hash"},
            "protect_key": secret,
            "select": "select clean(shop) as shop, email, price(cents, 2) as price, soundex(shop) as sound from records",
        },
    }
