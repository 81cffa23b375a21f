"""Tables with `lookup`: what rows get of a reference table, what a miss becomes, which version a commit names, and what is
refused until it is corrected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.java_gateway import JavaGateway
from pyiceberg.types import LongType, StringType

from frazil.ingest.queries import SparkQueries
from frazil.ingest.services import Services
from frazil.ingest.state import RunState
from frazil.ingest.table import Table
from frazil.runtime.light_jvm import LightJvm
from frazil.schema.evolve import new_schema
from frazil.spec.models import KeySpec, LookupSpec
from frazil.write.plain_target import plain_target
from frazil.write.write import FileWriter
from tests.unit.ingest import service_scene
from tests.unit.ingest.service_scene import Scene, only

COUNTRIES = [("de", "Germany", "EU"), ("fr", "France", "EU"), ("us", "USA", None)]
COUNTRY = {"table": "ref.countries", "on": ((("country_code",), "code"),), "take": ("name", "region")}


@pytest.fixture(scope="module")
def queries() -> Iterator[SparkQueries]:
    jvm = LightJvm({}, needs_spark_jars=True)
    gateway: JavaGateway = jvm.gateway
    yield SparkQueries(lambda: gateway.jvm)
    jvm.close()


@pytest.fixture
def scene(tmp_path: Path, queries: SparkQueries, monkeypatch: pytest.MonkeyPatch) -> Any:
    def services(**parts: Any) -> Services:
        return Services(queries=queries, **parts)

    def make(lookup: Any = COUNTRY, name: str = "country", **settings: Any) -> Scene:
        made = Scene(tmp_path, "a", lookup=(LookupSpec(name=name, **lookup),), **settings)
        made.catalog.create(
            "ref.countries",
            new_schema({"code": StringType(), "name": StringType(), "region": StringType()}.items()),
            {},
            2,
        )
        put(made, COUNTRIES)
        return made

    monkeypatch.setattr(service_scene, "Services", services)
    return make


def put(scene: Scene, rows: Sequence[Sequence[Any]], table: str = "ref.countries") -> int:
    """Replaces the rows of the reference table; returns the snapshot."""
    state = scene.catalog.load(table)
    assert state is not None
    target = plain_target(state)
    writer = FileWriter(target)
    columns = list(zip(*rows, strict=True)) or [[] for _ in target.arrow_schema]
    writer.write(
        pa.Table.from_arrays(
            [pa.array(one, f.type) for one, f in zip(columns, target.arrow_schema, strict=True)],
            schema=target.arrow_schema,
        )
    )
    gone = frozenset(file.path for file in scene.catalog.data_files(table))
    return scene.catalog.append_foreign(table, tuple(writer.finish()), gone)


def progress(scene: Scene) -> Any:
    state = scene.catalog.load("n.a")
    assert state is not None
    return state.progress


def waiting(scene: Scene, turns: int = 12) -> Table:
    service = scene.start()
    for _ in range(turns):
        service.turn(until_caught_up=True)
    return only(service.tables)


def test_a_table_without_a_query_gets_the_struct_of_the_lookup(scene: Any) -> None:
    made = scene()
    made.feed("a", {"id": 1, "country_code": "de"}, {"id": 2, "country_code": "xx"}, {"id": 3})
    made.catch_up()
    assert made.rows("n.a") == [
        {"id": 1, "country_code": "de", "country": {"name": "Germany", "region": "EU"}},
        {"id": 2, "country_code": "xx", "country": None},
        {"id": 3, "country_code": None, "country": None},
    ]
    assert progress(made).lookups == {"country": {"table": "ref.countries", "snapshot-id": 1}}


def test_a_query_and_steps_use_what_was_looked_up(scene: Any) -> None:
    made = scene(
        where="id > 0",
        filter="country.region = 'EU'",
        select="select id, upper(country.name) as name, country is null as unknown from records",
    )
    made.feed("a", *({"id": n, "country_code": code} for n, code in ((0, "de"), (1, "de"), (2, "us"), (3, "fr"))))
    made.catch_up()
    assert made.rows("n.a") == [
        {"id": 1, "name": "GERMANY", "unknown": False},
        {"id": 3, "name": "FRANCE", "unknown": False},
    ]
    assert progress(made).ignored_records == {"where": 1, "filter": 1}


def test_a_miss_drops_the_record_by_the_name_of_the_lookup(scene: Any) -> None:
    made = scene({**COUNTRY, "on_miss": "drop"}, select="select id from records")
    made.feed("a", {"id": 1, "country_code": "de"}, {"id": 2, "country_code": "xx"}, {"id": 3})
    made.catch_up()
    assert made.rows("n.a") == [{"id": 1}]
    assert progress(made).ignored_records == {"lookup country": 2}


def test_a_miss_makes_a_dead_letter(scene: Any) -> None:
    made = scene({**COUNTRY, "on_miss": "dead_letter"}, on_error="null")
    made.feed("a", {"id": 1, "country_code": "de"}, {"id": 2, "country_code": "xx"}, {"id": 3})
    made.catch_up()
    assert [row["id"] for row in made.rows("n.a")] == [1]
    assert made.dead_letters("n.a") == [("a", 0, 1), ("a", 0, 2)]
    [file] = made.catalog.data_files("n.a__dead_letters")
    rows = pq.read_table(file.path).to_pylist()
    assert {row["error_class"] for row in rows} == {"lookup_miss"}
    assert rows[0]["message"] == 'LOOKUP_MISS: country_code = code of "xx"'


def test_each_commit_names_the_version_that_its_rows_show(scene: Any) -> None:
    made = scene(select="select id, country.name as name from records")
    made.feed("a", {"id": 1, "country_code": "de"})
    made.catch_up()
    snapshot = put(made, [("de", "Deutschland", "EU")])
    made.feed("a", {"id": 2, "country_code": "de"}, {"id": 3, "country_code": "fr"})
    made.catch_up()
    assert [row["name"] for row in made.rows("n.a")] == ["Germany", "Deutschland", None]
    assert progress(made).lookups["country"]["snapshot-id"] == snapshot


def test_one_process_takes_a_new_version_and_new_types_of_the_reference_table(scene: Any) -> None:
    made = scene(
        select="select id, country.name as name, country.size as size from records",
        lookup={**COUNTRY, "take": ("name", "size")},
    )
    made.catalog.evolve(
        "ref.countries",
        lambda schema: new_schema([*((f.name, f.field_type) for f in schema.fields), ("size", LongType())]),
    )
    put(made, [("de", "Germany", "EU", 80)])
    service = made.start()
    made.feed("a", {"id": 1, "country_code": "de"})
    assert service_scene.turn_until(service, lambda: made.catalog.load("n.a") and made.rows("n.a"))
    put(made, [("de", "Deutschland", "EU", 81)])
    made.feed("a", {"id": 2, "country_code": "de"})
    assert service_scene.turn_until(service, lambda: len(made.rows("n.a")) == 2)
    assert [(row["name"], row["size"]) for row in made.rows("n.a")] == [("Germany", 80), ("Deutschland", 81)]


def test_deleted_rows_of_the_reference_table_are_not_found(scene: Any) -> None:
    made = scene(select="select id, country.name as name from records")
    put(made, [])
    made.feed("a", {"id": 1, "country_code": "de"})
    made.catch_up()
    assert made.rows("n.a") == [{"id": 1, "name": None}]


def test_an_upsert_table_keeps_the_rows_that_are_found(scene: Any) -> None:
    made = scene(
        {**COUNTRY, "on_miss": "drop"},
        select="select country.name as name, id from records",
        mode="upsert",
        key=KeySpec(format="json"),
        key_columns=("id",),
        format_version=2,
    )
    made.source.produce("a", 0, b'{"id": 1, "country_code": "de"}', made.clock.now_ms(), key=b'{"id": 1}')
    made.source.produce("a", 0, b'{"id": 2, "country_code": "fr"}', made.clock.now_ms(), key=b'{"id": 2}')
    made.catch_up()
    made.source.produce("a", 0, b'{"id": 2, "country_code": "xx"}', made.clock.now_ms(), key=b'{"id": 2}')
    made.source.produce("a", 0, None, made.clock.now_ms(), key=b'{"id": 7}')
    made.catch_up()
    assert made.rows("n.a") == [{"name": "Germany", "id": 1}]


def test_a_lookup_finds_by_several_fields_nested_ones_too(scene: Any, tmp_path: Path) -> None:
    file = tmp_path / "prices.parquet"
    pq.write_table(
        pa.table({"shop": [1, 1, 2], "sku": ["a", "b", "a"], "price": [Decimal("1.50"), Decimal("2.00"), None]}), file
    )
    lookup = {"file": str(file), "on": ((("shop",), "shop"), (("item", "sku"), "sku")), "take": ("price",)}
    made = scene(lookup, name="price", select="select id, price.price as price, price is null as is_miss from records")
    items = ((1, 1, "b"), (2, 2, "a"), (3, 2, "b"), (4, None, "a"))
    made.feed("a", *({"id": n, "shop": shop, "item": {"sku": sku}} for n, shop, sku in items))
    made.catch_up()
    assert [(row["price"], row["is_miss"]) for row in made.rows("n.a")] == [
        (Decimal("2.00"), False),
        (None, False),
        (None, True),
        (None, True),
    ]


def test_a_csv_file_has_text_and_its_commit_names_what_the_store_says_of_it(scene: Any, tmp_path: Path) -> None:
    file = tmp_path / "countries.csv"
    file.write_text('code,name,region\nde,Germany,\n"01","","x"\n')
    made = scene({**COUNTRY, "table": "", "file": str(file)}, select="select id, country.* from records")
    made.feed("a", {"id": 1, "country_code": "de"}, {"id": 2, "country_code": "01"})
    made.catch_up()
    assert made.rows("n.a") == [
        {"id": 1, "name": "Germany", "region": None},
        {"id": 2, "name": "", "region": "x"},
    ]
    first = progress(made).lookups["country"]
    assert first["file"] == str(file)
    file.write_text("code,name,region\nde,Deutschland,\n")
    made.feed("a", {"id": 3, "country_code": "de"})
    made.catch_up()
    assert made.rows("n.a")[-1]["name"] == "Deutschland"
    assert progress(made).lookups["country"] != first


def test_a_reference_table_that_is_gone_is_waited_for(scene: Any) -> None:
    made = scene()
    made.feed("a", {"id": 1, "country_code": "de"})
    made.catch_up()
    made.catalog.drop("ref.countries")
    made.feed("a", {"id": 2, "country_code": "de"})
    table = waiting(made)
    assert table.status.run_state is RunState.BACKING_OFF
    assert "the reference table ref.countries does not exist" in table.status.reason
    assert "lookup country" in table.status.where
    made.catalog.create(
        "ref.countries", new_schema({"code": StringType(), "name": StringType(), "region": StringType()}.items()), {}, 2
    )
    put(made, COUNTRIES)
    made.catch_up()
    assert [row["id"] for row in made.rows("n.a")] == [1, 2]


def test_several_rows_for_one_key_are_refused_until_one_is_left(scene: Any) -> None:
    made = scene()
    put(made, [*COUNTRIES, ("fr", "France again", None)])
    made.feed("a", {"id": 1, "country_code": "de"})
    table = waiting(made)
    assert table.status.run_state is RunState.BACKING_OFF
    assert "several rows with the key code 'fr'" in table.status.reason
    put(made, COUNTRIES)
    made.catch_up()
    assert len(made.rows("n.a")) == 1
