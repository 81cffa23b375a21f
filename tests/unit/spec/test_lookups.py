"""`lookup`, as a pipeline file has it."""

from __future__ import annotations

import pytest

from frazil.spec.settings import LookupSpec
from frazil.spec.steps import describe_waits, without_waits
from tests.unit.spec.pipeline_file import Load, Refuse, with_table


def test_a_lookup_is_read_as_users_write_it(load: Load) -> None:
    text = """lookup: {country: {table: ref.countries, on: "country_code = code", take: [name, region], on_miss: "null"},
      price: {file: s3://b/p.csv, on: shop = shop_id AND item.sku=sku, take: [price], on_miss: drop}}"""
    (spec,) = load(with_table(text)).tables
    assert spec.query.lookup == (
        LookupSpec(name="country", table="ref.countries", on=((("country_code",), "code"),), take=("name", "region")),
        LookupSpec(
            name="price",
            file="s3://b/p.csv",
            on=((("shop",), "shop_id"), (("item", "sku"), "sku")),
            take=("price",),
            on_miss="drop",
        ),
    )
    assert spec.has_query


def test_a_wait_is_a_duration_and_the_plan_shows_what_follows_it(load: Load) -> None:
    text = with_table("lookup: {c: {table: ref.c, on: a = b, take: [d], wait: 10m}}")
    (table,) = load(text).tables
    assert list(describe_waits(table)) == ["records without a row in c wait 10m for it, then have null"]
    assert without_waits(table, ["c"]) == load(text.replace(", wait: 10m", "")).tables[0]


@pytest.mark.parametrize(
    ("name", "take", "message"),
    [
        ("_File", "[c]", "`lookup._File` makes a column with the name of one of Iceberg's metadata columns"),
        ('""', "[c]", "`lookup` makes a column without a name"),
        ("n" * 256, "[c]", "has 256 bytes, and a column's name has 255 at most"),
        ("l", "[name, c, NAME]", "`lookup.l.take` has `name` and `NAME`, which are one column"),
    ],
)
def test_a_lookup_makes_no_column_that_a_table_cannot_have_or_would_lose(
    load: Load, refuse: Refuse, name: str, take: str, message: str
) -> None:
    text = with_table(f"lookup: {{{name}: {{table: r.c, on: a = b, take: {take}}}}}")
    assert message in refuse(text).message
    followed = text.replace(f"{name}:", "other:").replace(", NAME", "")
    assert load(followed).tables[0].query.lookup[0].name == "other"
