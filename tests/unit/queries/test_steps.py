"""Single steps become a query, whatever the names and the nesting of the fields."""

from __future__ import annotations

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimeType,
    UUIDType,
)

from frazil.errors import SpecError
from frazil.queries.steps import Compiled, Missing, Steps, compile_steps

_GEO = StructType(NestedField(5, "lat", StringType()), NestedField(6, "lon", StringType()))
_FIELDS = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "e-mail", StringType()),
    NestedField(3, "addr", StructType(NestedField(4, "city", StringType()), NestedField(7, "geo", _GEO))),
    NestedField(8, "tags", ListType(9, StringType(), element_required=False)),
)
_LINE = StructType(NestedField(11, "sku", StringType()), NestedField(12, "cost", LongType()))
_WITH_LINES = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "lines", ListType(3, _LINE, element_required=False)),
    NestedField(4, "user", StructType(NestedField(5, "by_day", MapType(6, StringType(), 7, _LINE, False)))),
)


def _sql(steps: Steps) -> str:
    return compile_steps(steps, _FIELDS).sql


def test_no_step_selects_every_field_under_its_own_name() -> None:
    assert _sql(Steps()) == "select `id` as `id`, `e-mail` as `e-mail`, `addr` as `addr`, `tags` as `tags` from records"


def test_steps_are_applied_in_their_order_and_later_ones_use_the_new_names() -> None:
    steps = Steps(
        rename={("e-mail",): "email"},
        drop_fields=[("addr",)],
        keep_fields=[("id",), ("email",)],
        cast={("id",): IntegerType()},
        add_fields={"topic": "_topic", "origin": "it's \\ here", "level": 3, "share": 0.5, "is_new": True},
    )
    assert _sql(steps) == (
        "select cast(`id` as int) as `id`, `e-mail` as `email`, _topic as `topic`, 'it\\'s \\\\ here' as `origin`, "
        "3L as `level`, 0.5D as `share`, true as `is_new` from records"
    )


def test_nested_fields_are_renamed_cast_and_dropped_and_null_structs_stay_null() -> None:
    steps = Steps(
        rename={("addr", "city"): "town"}, drop_fields=[("addr", "geo", "lon")], cast={("addr", "town"): StringType()}
    )
    geo = "if(`addr`.`geo` is null, null, named_struct('lat', `addr`.`geo`.`lat`))"
    assert (
        f"if(`addr` is null, null, named_struct('town', cast(`addr`.`city` as string), 'geo', {geo})) as `addr`"
        in _sql(steps)
    )


def test_a_struct_whose_fields_are_all_dropped_goes_too() -> None:
    assert "geo" not in _sql(Steps(drop_fields=[("addr", "geo", "lat"), ("addr", "geo", "lon")]))


def test_a_kept_nested_field_keeps_the_structs_around_it_and_nothing_else_of_them() -> None:
    steps = Steps(keep_fields=[("addr", "geo", "lat")])
    geo = "if(`addr`.`geo` is null, null, named_struct('lat', `addr`.`geo`.`lat`))"
    assert _sql(steps) == f"select if(`addr` is null, null, named_struct('geo', {geo})) as `addr` from records"


def test_a_filter_names_the_fields_that_the_other_steps_leave_and_the_metadata() -> None:
    found = _sql(Steps(keep_fields=[("id",)], add_fields={"topic": "_topic"}, filter="id > 1 -- and so on"))
    assert found == (
        "select * from (select `id` as `id`, _topic as `topic`, _key, _headers, _topic, _kafka_partition, _offset, "
        "_timestamp from records) as records\nwhere (\nid > 1 -- and so on\n)"
    )


def test_paths_find_names_in_any_case_as_spark_does() -> None:
    steps = Steps(drop_fields=[("ID",)], cast={("Addr", "CITY"): StringType()}, rename={("E-Mail",): "email"})
    assert _sql(steps) == _sql(
        Steps(drop_fields=[("id",)], cast={("addr", "city"): StringType()}, rename={("e-mail",): "email"})
    )
    assert "`e-mail` as `email`" in _sql(steps)
    kept = Steps(keep_fields=[("ADDR", "Geo", "LAT"), ("ID",)])
    assert _sql(kept) == _sql(Steps(keep_fields=[("addr", "geo", "lat"), ("id",)]))


def test_quotes_in_names_stay_in_the_name() -> None:
    fields = Schema(NestedField(1, "a`b", StringType()))
    assert compile_steps(Steps(), fields).sql == "select `a``b` as `a``b` from records"


def test_fields_that_records_lack_are_listed_with_the_nearest_name() -> None:
    steps = Steps(
        rename={("emial",): "x", ("zzz",): "y"},
        drop_fields=[("addr", "citi")],
        keep_fields=[("id",), ("addr", "geo", "alt")],
        cast={("idd",): IntegerType()},
    )
    missing = (
        Missing("rename", ("emial",), ("e-mail",)),
        Missing("rename", ("zzz",), None),
        Missing("drop_fields", ("addr", "citi"), ("addr", "city")),
        Missing("keep_fields", ("addr", "geo", "alt"), ("addr", "geo", "lat")),
        Missing("cast", ("idd",), ("id",)),
    )
    assert compile_steps(steps, _FIELDS) == Compiled("select `id` as `id` from records", missing)


def test_types_are_those_of_sparks_sql() -> None:
    kind = StructType(NestedField(1, "a", ListType(2, DecimalType(9, 2), element_required=False)))
    assert "cast(`addr` as struct<`a`: array<decimal(9,2)>>)" in _sql(Steps(cast={("addr",): kind}))


_ALL = (("id",), ("e-mail",), ("addr",), ("tags",))


@pytest.mark.parametrize(
    ("steps", "says", "mended"),
    [
        (Steps(rename={("e-mail",): "id"}), "`rename` makes two fields `id`", Steps(rename={("e-mail",): "email"})),
        (
            Steps(rename={("addr", "city"): "geo"}),
            "`rename` makes two fields `geo`",
            Steps(rename={("addr", "city"): "town"}),
        ),
        (
            Steps(add_fields={"id": "x"}),
            "`add_fields` makes two fields `id`",
            Steps(drop_fields=[("id",)], add_fields={"id": "x"}),
        ),
        (Steps(add_fields={"ID": "x"}), "`add_fields` makes two fields `id`", Steps(add_fields={"x": "x"})),
        (Steps(rename={("addr",): "Tags"}), "`rename` makes two fields `Tags`", Steps(rename={("addr",): "place"})),
        (Steps(drop_fields=_ALL), "the steps leave no field", Steps(drop_fields=_ALL[1:])),
        (Steps(cast={("id",): UUIDType()}), "a field cannot be cast to uuid", Steps()),
        (Steps(cast={("id",): TimeType()}), "a field cannot be cast to time", Steps()),
        (Steps(cast={("later",): UUIDType()}), "a field cannot be cast to uuid", Steps()),
    ],
)
def test_steps_that_contradict_each_other_are_refused_until_the_remedy_is_done(
    steps: Steps, says: str, mended: Steps
) -> None:
    with pytest.raises(SpecError, match=says):
        compile_steps(steps, _FIELDS)
    assert compile_steps(mended, _FIELDS).missing == ()


@pytest.mark.parametrize(
    ("path", "around"),
    [
        ("lines.element.cost", "the list `lines`"),
        ("Lines.cost", "the list `Lines`"),
        ("user.by_day.value.cost", "the map `user.by_day`"),
    ],
)
@pytest.mark.parametrize("step", ["rename", "drop_fields", "keep_fields", "cast"])
def test_a_step_into_a_list_or_a_map_is_refused_as_it_would_never_have_an_effect(
    step: str, path: str, around: str
) -> None:
    """Without a word a field stays that was to be dropped, and everything is lost that was to be kept in part."""
    parts = tuple(path.split("."))
    given = {
        "rename": Steps(rename={parts: "x"}),
        "drop_fields": Steps(drop_fields=[parts]),
        "keep_fields": Steps(keep_fields=[("id",), parts]),
        "cast": Steps(cast={parts: StringType()}),
    }
    with pytest.raises(SpecError, match=f"`{step}` has `{path}`, and no step leads into {around}") as refused:
        compile_steps(given[step], _WITH_LINES)
    wanted = {"drop_fields": "`exclude`", "keep_fields": "keep all of"}.get(step, "`transform`")
    assert wanted in refused.value.remedy
    kept = Steps(keep_fields=[("id",), ("lines",), ("user", "by_day")])
    assert "`lines` as `lines`" in compile_steps(kept, _WITH_LINES).sql


def test_a_step_into_a_field_that_no_record_has_had_is_no_error_whatever_it_will_be() -> None:
    steps = Steps(drop_fields=[("later", "element", "cost")])
    assert compile_steps(steps, _WITH_LINES).missing == (Missing("drop_fields", ("later", "element", "cost"), None),)


def test_names_may_be_exchanged() -> None:
    found = _sql(Steps(rename={("id",): "e-mail", ("e-mail",): "id"}))
    assert found.startswith("select `id` as `e-mail`, `e-mail` as `id`")
