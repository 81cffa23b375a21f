"""The Catalog port: tables, their columns and marks, on memory and on Iceberg's own JDBC catalog."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestamptzNanoType,
    UnknownType,
)

from frazil.catalog.layout import METRICS_OF
from frazil.catalog.port import Catalog
from frazil.errors import ConflictError, SpecError, UnavailableError
from frazil.runtime.jvm import Jvm
from frazil.schema.evolve import extend_schema, new_schema
from frazil.spec.syntax.types import parse_type
from frazil.types import Progress
from tests.contracts.catalogs import IcebergLake, Lake
from tests.contracts.tables import SCHEMA, TABLE, commit_of, create, load


def test_a_table_that_is_not_there_is_none(catalog: Catalog) -> None:
    assert catalog.load("nowhere.t") is None
    assert catalog.load(TABLE) is None


def test_a_table_called_like_metadata_of_another_one_is_a_table_of_its_own(catalog: Catalog) -> None:
    first = create(catalog)
    name = f"{TABLE}.history"
    assert catalog.load(name) is None
    made = catalog.create(name, SCHEMA, {}, 2)
    loaded = catalog.load(name)
    assert loaded is not None
    assert loaded.uuid == made.uuid != first.uuid
    assert load(catalog).uuid == first.uuid


def test_a_created_table_has_its_columns_with_ids_and_no_progress(catalog: Catalog) -> None:
    made = create(catalog)
    assert made.schema.as_struct() == load(catalog).schema.as_struct()
    assert [(field.name, str(field.field_type)[:6]) for field in made.schema.fields] == [
        ("id", "long"),
        ("s", "struct"),
    ]
    assert len(made.schema.field_ids) == len(set(made.schema.field_ids)) == 3
    assert (made.progress, made.history_lost, made.partitioning.fields, made.format_version) == (
        Progress(),
        False,
        (),
        2,
    )
    assert made.properties["owner"] == "me"


def test_a_table_whose_properties_name_a_column_that_it_lacks_cannot_be_made(catalog: Catalog) -> None:
    with pytest.raises(UnavailableError, match="the table cannot be created"):
        catalog.create(TABLE, new_schema([("other", StringType())]), {METRICS_OF + "id": "full"}, 2)
    assert catalog.load(TABLE) is None


def test_creating_a_table_that_is_there_answers_the_one_that_is_there(lake: Lake) -> None:
    first = create(lake.catalog())
    second = lake.catalog().create(TABLE, new_schema([("other", StringType())]), {}, 2)
    assert (second.uuid, second.schema.as_struct()) == (first.uuid, first.schema.as_struct())


@pytest.mark.parametrize("kind", [TimestampNanoType(), TimestamptzNanoType(), UnknownType()], ids=str)
def test_a_table_with_an_unsupported_column_is_refused_with_its_name_and_type(lake: Lake, kind: IcebergType) -> None:
    inside = StructType(NestedField(0, "at", kind, required=False))
    reported = f"the column s.at has the type {kind}, which this version cannot write"
    with pytest.raises(SpecError, match=reported):
        lake.catalog().create(TABLE, new_schema([("s", inside)]), {}, 3)
    with pytest.raises(SpecError, match=reported):
        lake.catalog().load(TABLE)


@pytest.mark.jvm
def test_a_column_of_a_type_unknown_to_python_is_refused_and_loses_no_commit(jvm: Jvm, folder: Path) -> None:
    lake = IcebergLake(jvm, folder)
    catalog = lake.catalog()
    state = catalog.create(TABLE, SCHEMA, {}, 3)
    commit = commit_of(state, 5)
    lake.add_column(TABLE, "v", "variant")
    # The commit lands, and what it came to cannot be looked up: it may not be taken for one that was not made.
    with lake.lose_next_response(), pytest.raises(UnavailableError, match="the commit failed"):
        catalog.commit(commit)
    with pytest.raises(SpecError, match="the column v has the type variant, which this version cannot write"):
        catalog.load(TABLE)
    assert lake.column(TABLE, "id") == [1, 2]


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_table_that_was_dropped_and_made_again_is_another_table(lake: Lake, is_seen: bool) -> None:
    mine = lake.catalog()
    create(lake.catalog("someone-else"))
    mine.commit(commit_of(load(mine), 5))
    before = load(mine)
    stale = commit_of(before, 7)
    lake.drop(TABLE)
    if is_seen:
        assert mine.load(TABLE) is None
    made = create(lake.catalog("someone-else"))
    if not is_seen:
        with pytest.raises((ConflictError, UnavailableError)):
            mine.commit(stale)
    after = load(mine)
    assert (after.uuid, after.progress, after.history_lost) == (made.uuid, Progress(), False)
    assert after.uuid != before.uuid
    assert mine.commit(commit_of(after, 5, ids=(3,))).offsets["a"][0] == 5
    assert lake.column(TABLE, "id") == [3]
    lake.append_foreign(TABLE)
    lake.expire_all_but_newest(TABLE)
    assert load(lake.catalog()).history_lost, "the second table is marked as one of ours too"


def test_a_schema_grows_at_every_depth_and_keeps_its_ids(catalog: Catalog, lake: Lake) -> None:
    before = create(catalog).schema
    requested_fields: dict[tuple[str, ...], dict[str, IcebergType]] = {
        (): {"x": DoubleType(), "l": ListType(0, LongType(), False)},
        ("s",): {"b": StringType()},
    }
    after = catalog.evolve(TABLE, lambda schema: extend_schema(schema, requested_fields)).schema
    names = {after.find_column_name(field_id): field_id for field_id in after.field_ids}
    assert set(names) == {"id", "s", "s.a", "s.b", "x", "l", "l.element"}
    assert {before.find_column_name(i): i for i in before.field_ids}.items() <= names.items()
    assert load(lake.catalog()).schema.as_struct() == after.as_struct()


@pytest.mark.jvm
def test_a_dropped_column_that_returns_with_another_type_is_another_column(jvm: Jvm, folder: Path) -> None:
    lake = IcebergLake(jvm, folder)
    catalog = lake.catalog()
    state = create(catalog)
    catalog.commit(commit_of(state, 5, ids=(1, 2)))
    lake.drop_column(TABLE, "id")
    after = catalog.evolve(TABLE, lambda schema: extend_schema(schema, {(): {"id": StringType()}})).schema
    assert after.find_field("id").field_type == StringType()
    assert after.find_field("id").field_id not in state.schema.field_ids
    assert {value for value, _ in lake._read(TABLE, "id", "s")} == {None}, "nothing of the old column is in it"


def test_a_schema_change_of_two_processes_is_made_once(lake: Lake) -> None:
    create(lake.catalog())
    first, second = lake.catalog(), lake.catalog()
    assert load(second).schema.find_type("id") == LongType()

    def change(schema: Schema) -> Schema:
        return extend_schema(schema, {(): {"x": DoubleType()}})

    one, other = first.evolve(TABLE, change), second.evolve(TABLE, change)
    assert one.schema.as_struct() == other.schema.as_struct()


@pytest.mark.jvm
def test_a_change_that_iceberg_makes_nothing_of_leaves_the_table_as_it_is(jvm: Jvm, folder: Path) -> None:
    catalog = IcebergLake(jvm, folder).catalog()
    before = create(catalog)

    def narrower(schema: Schema) -> Schema:
        first, *others = schema.fields
        return Schema(first.model_copy(update={"field_type": IntegerType()}), *others, schema_id=schema.schema_id)

    after = catalog.evolve(TABLE, narrower)
    assert (after.shape, after.schema.find_type("id")) == (before.shape, LongType())


_WIDER: dict[str, IcebergType] = {"n": LongType()}


@pytest.mark.jvm
@pytest.mark.parametrize(
    ("mine", "others", "after"),
    [
        ({"x": LongType()}, {"y": DoubleType()}, {"x": LongType(), "y": DoubleType()}),
        ({"x": LongType()}, {"x": StringType()}, {"x": StringType()}),
        (_WIDER, {"y": DoubleType()}, {"n": LongType(), "y": DoubleType()}),
    ],
    ids=["two columns", "one column of two types", "a wider column and another one"],
)
def test_a_change_beside_another_process_is_made_of_what_is_there_by_then(
    jvm: Jvm, folder: Path, mine: dict[str, IcebergType], others: dict[str, IcebergType], after: dict[str, IcebergType]
) -> None:
    lake = IcebergLake(jvm, folder)
    slow, quick = lake.catalog(), lake.catalog()
    slow.create(TABLE, new_schema([("n", IntegerType())]), {}, 2)
    seen = []

    def change(schema: Schema) -> Schema:
        seen.append(schema.column_names)
        if len(seen) == 1:
            quick.evolve(TABLE, lambda other: extend_schema(other, {(): others}))
        return extend_schema(schema, {(): mine})

    found = slow.evolve(TABLE, change).schema
    assert seen[:2] == [["n"], ["n", *others]], "the first try was refused, the second saw the other change"
    assert {field.name: field.field_type for field in found.fields} == {"n": IntegerType(), **after}
    assert load(lake.catalog()).schema.as_struct() == found.as_struct()


def test_decimals_lists_and_maps_change_inside(lake: Lake) -> None:
    """Digits more, members more and values optional, wherever they are."""
    catalog = lake.catalog()
    before = new_schema(
        [
            ("d", DecimalType(9, 2)),
            ("l", ListType(0, parse_type("struct<a: long, d: decimal(5,1)>"), True)),
            ("m", MapType(0, StringType(), 0, parse_type("struct<a: int>"), True)),
        ]
    )
    before = catalog.create(TABLE, before, {}, 2).schema
    requested_fields: dict[tuple[str, ...], dict[str, IcebergType]] = {
        (): {"d": DecimalType(12, 2)},
        ("l", "element"): {"b": StringType(), "d": DecimalType(7, 1)},
        ("m", "value"): {"a": LongType(), "c": parse_type("list<double>")},
    }
    made_optional = [("l", "element"), ("m", "value")]
    after = catalog.evolve(TABLE, lambda schema: extend_schema(schema, requested_fields, made_optional)).schema
    found = {str(after.find_column_name(n)): after.find_type(n) for n in after.field_ids}
    assert {name: str(kind) for name, kind in found.items() if kind.is_primitive} == {
        "d": "decimal(12, 2)",
        "l.element.a": "long",
        "l.element.d": "decimal(7, 1)",
        "l.element.b": "string",
        "m.key": "string",
        "m.value.a": "long",
        "m.value.c.element": "double",
    }
    lists, maps = found["l"], found["m"]
    assert isinstance(lists, ListType)
    assert isinstance(maps, MapType)
    assert not lists.element_required
    assert not maps.value_required
    assert {before.find_column_name(n): n for n in before.field_ids}.items() <= {
        after.find_column_name(n): n for n in after.field_ids
    }.items()
    assert load(lake.catalog()).schema.as_struct() == after.as_struct()


def test_a_table_that_is_gone_cannot_evolve(catalog: Catalog) -> None:
    with pytest.raises(UnavailableError):
        catalog.evolve(TABLE, lambda schema: schema)


def test_marks_are_a_pipeline_s_own_and_come_and_go(lake: Lake) -> None:
    catalog, other = lake.catalog(), lake.catalog("q")
    create(catalog)
    assert "begun" not in load(catalog).marks
    catalog.mark(TABLE, "begun", "1")
    assert load(catalog).marks["begun"] == load(lake.catalog()).marks["begun"] == "1"
    assert "begun" not in load(other).marks
    catalog.mark(TABLE, "begun", None)
    catalog.mark(TABLE, "begun", None)
    assert "begun" not in load(lake.catalog()).marks


def test_what_reaches_the_store_has_nothing_of_the_catalog_itself(catalog: Catalog) -> None:
    assert {"uri", "warehouse", "type"}.isdisjoint(catalog.store_properties("/srv/lookups/countries.csv"))


def test_a_schema_that_was_changed_is_not_changed_again(catalog: Catalog) -> None:
    """A change may be one that the changed schema does not allow."""
    create(catalog)

    def add(schema: Schema) -> Schema:
        assert "x" not in schema.column_names
        return extend_schema(schema, {(): {"x": StringType()}})

    assert "x" in catalog.evolve(TABLE, add).schema.column_names
