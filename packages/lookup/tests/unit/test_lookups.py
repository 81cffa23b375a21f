"""Tables with `lookup`: what rows get of a reference table, what a miss becomes, which version a commit names, and what is
refused until it is corrected.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import LongType, StringType, UUIDType

from frazil.dead_letters.files import ReplayResult, Selection
from frazil.errors import UnavailableError
from frazil.ingest.tables.state import RunState
from frazil.ingest.tables.table import Table
from frazil.kafka.port import TopicReaders
from frazil.queries.references import Reference, load_reference
from frazil.schema.evolve import new_schema
from frazil.spec.settings import ColumnSpec, KeySpec, LookupSpec
from frazil.spec.syntax.types import parse_type
from frazil.store.file_io import StoreIO
from frazil.types import MAIN
from frazil.write.plain_target import plain_target
from frazil.write.write import FileWriter
from frazil_deadletters.replay import Replayer
from frazil_lookup import references
from frazil_testing.memory_catalog import MemoryCatalog
from frazil_testing.twins import FakeClock, live_rows
from tests.unit.ingest import service_scene
from tests.unit.ingest.service_scene import Scene, only

COUNTRIES = [("de", "Germany", "EU"), ("fr", "France", "EU"), ("us", "USA", None)]
SCHEMA = new_schema({**dict.fromkeys(("code", "name", "region"), StringType()), "uid": UUIDType()}.items())
COLUMNS = tuple(ColumnSpec(name=name, type=kind) for name, kind in (("id", LongType()), ("country_code", StringType())))
COUNTRY = {"table": "ref.countries", "on": ((("country_code",), "code"),), "take": ("name", "region")}


@pytest.fixture
def scene(scene: Any) -> Any:
    def make(lookup: Any = COUNTRY, **settings: Any) -> Scene:
        made: Scene = scene(lookup=(LookupSpec(**{"name": "country", **lookup}),), **settings)
        made.catalog.create("ref.countries", SCHEMA, {}, 2)
        put(made, COUNTRIES)
        return made

    return make


def put(scene: Scene, rows: Sequence[Sequence[Any]], table: str = "ref.countries") -> int:
    """Replaces the rows of the reference table; returns the snapshot."""
    state = scene.catalog.load(table)
    assert state is not None
    target = plain_target(state)
    writer, schema = FileWriter(target), target.arrow_schema
    if rows:
        named = zip(zip(*rows, strict=True), schema, strict=False)  # The rest is null.
        columns = [pa.array(one, field.type) for one, field in named]
        columns += [pa.nulls(len(rows), field.type) for field in list(schema)[len(columns) :]]
        writer.write(pa.Table.from_arrays(columns, schema=schema))
    gone = frozenset(file.path for file in scene.catalog.data_files(table))
    return scene.catalog.append_foreign(table, tuple(writer.finish()), gone)


def waiting(scene: Scene, turns: int = 12) -> Table:
    service = scene.start()
    for _ in range(turns):
        service.turn(until_caught_up=True)
    return only(service.tables)


def test_a_reference_table_with_a_branch_is_joined_as_its_readers_see_it(scene: Any) -> None:
    made = scene()
    made.catalog.with_branches(lambda name: "ingest" if name == "ref.countries" else MAIN)
    put(made, [("de", "not published", "EU")])
    made.feed("a", {"id": 1, "country_code": "de"})
    made.catch_up()
    assert [row["country"]["name"] for row in made.rows("n.a")] == ["Germany"]


def test_a_table_without_a_query_gets_the_struct_of_the_lookup(scene: Any) -> None:
    made = scene()
    made.feed("a", {"id": 1, "country_code": "de"}, {"id": 2, "country_code": "xx"}, {"id": 3})
    made.catch_up()
    assert made.rows("n.a") == [
        {"id": 1, "country_code": "de", "country": {"name": "Germany", "region": "EU"}},
        {"id": 2, "country_code": "xx", "country": None},
        {"id": 3, "country_code": None, "country": None},
    ]
    assert made.progress().batch.lookups == {"country": {"table": "ref.countries", "snapshot-id": 1}}


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
    assert made.progress().totals.ignored_records == {"where": 1, "filter": 1}


def test_fields_are_found_in_any_case(scene: Any) -> None:
    made = scene({**COUNTRY, "on": ((("Address", "CODE"), "code"),)}, select="select country.name as name from records")
    made.feed("a", {"address": {"code": "de"}})
    table = only(made.catch_up())
    assert made.rows("n.a") == [{"name": "Germany"}]
    assert table.schema.query is not None
    assert ("address", "code") in table.schema.query.columns[0].sources


def test_a_miss_drops_the_record_by_the_name_of_the_lookup(scene: Any) -> None:
    made = scene({**COUNTRY, "on_miss": "drop"}, select="select id from records")
    made.feed("a", {"id": 1, "country_code": "de"}, {"id": 2, "country_code": "xx"}, {"id": 3})
    made.catch_up()
    assert made.rows("n.a") == [{"id": 1}]
    assert made.progress().totals.ignored_records == {"lookup country": 2}


def test_a_miss_makes_a_dead_letter(scene: Any) -> None:
    made = scene({**COUNTRY, "on_miss": "dead_letter"}, on_error="null")
    made.feed("a", {"id": 1, "country_code": "de"}, {"id": 2, "country_code": "xx"}, {"id": 3})
    made.catch_up()
    assert [row["id"] for row in made.rows("n.a")] == [1]
    assert made.dead_letters("n.a") == [("a", 0, 1), ("a", 0, 2)]
    rows = live_rows(made.catalog, "n.a__dead_letters")
    assert {row["error_class"] for row in rows} == {"lookup_miss"}
    assert rows[0]["message"] == 'the reference table has no row for country_code = code of "xx"'


def test_a_miss_stops_a_table_that_stops_at_bad_records_until_there_is_the_row(scene: Any) -> None:
    made = scene({**COUNTRY, "on_miss": "dead_letter"}, on_bad_record="stop", select="select id from records")
    made.feed("a", {"id": 1, "country_code": "xx"})
    status = only(made.catch_up()).status
    remedy = 'add the row to the reference table, or write `on_miss: "null"` or `on_miss: drop` for the lookup'
    assert (status.run_state, status.remedy) == (RunState.STOPPED, remedy)
    put(made, [("xx", "X", "EU")])
    made.catch_up()
    assert made.rows("n.a") == [{"id": 1}]


def test_a_field_that_is_called_as_a_lookup_makes_dead_letters(scene: Any) -> None:
    made = scene()
    made.feed("a", {"id": 1, "country_code": "de"})
    made.catch_up()
    made.feed("a", {"id": 2, "country_code": "de", "Country": "D"}, {"id": 3, "country_code": "fr"})
    assert only(made.catch_up()).status.run_state is RunState.WAITING
    assert ([row["id"] for row in made.rows("n.a")], made.dead_letters("n.a")) == ([1, 3], [("a", 0, 1)])


def test_of_the_first_records_those_with_a_field_that_is_called_as_a_lookup_are_dead_letters(scene: Any) -> None:
    made = scene()
    made.feed("a", {"id": 2, "country_code": "de", "Country": "D"}, {"id": 3, "country_code": "fr"})
    assert only(made.catch_up()).status.run_state is RunState.WAITING
    assert ([row["id"] for row in made.rows("n.a")], made.dead_letters("n.a")) == ([3], [("a", 0, 0)])


def test_each_commit_names_the_version_that_its_rows_show(scene: Any) -> None:
    made = scene(select="select id, country.name as name from records")
    made.feed("a", {"id": 1, "country_code": "de"})
    made.catch_up()
    snapshot = put(made, [("de", "Deutschland", "EU")])
    made.feed("a", {"id": 2, "country_code": "de"}, {"id": 3, "country_code": "fr"})
    made.catch_up()
    assert [row["name"] for row in made.rows("n.a")] == ["Germany", "Deutschland", None]
    assert made.progress().batch.lookups["country"]["snapshot-id"] == snapshot


def test_a_batch_that_is_tried_again_has_one_version_whole(scene: Any) -> None:
    made = scene(select="select id, country.name as name from records")
    made.feed("a", {"id": 1, "country_code": "de"})
    made.catch_up()
    made.catalog.losses = ["question"]
    made.feed("a", {"id": 2, "country_code": "de"}, {"id": 3, "country_code": "fr"})
    waiting(made, turns=3)
    assert [row["id"] for row in made.rows("n.a")] == [1]
    snapshot = put(made, [("de", "Deutschland", "EU"), ("fr", "Frankreich", "EU")])
    made.catch_up()
    assert [row["name"] for row in made.rows("n.a")] == ["Germany", "Deutschland", "Frankreich"]
    assert made.progress().batch.lookups["country"]["snapshot-id"] == snapshot


def test_one_process_takes_a_new_version_and_new_types_of_the_reference_table(scene: Any) -> None:
    made = scene(
        select="select id, country.name as name, country.size as size from records",
        lookup={**COUNTRY, "take": ("name", "size")},
    )
    made.catalog.evolve(
        "ref.countries",
        lambda schema: new_schema([*((f.name, f.field_type) for f in schema.fields), ("size", LongType())]),
    )
    put(made, [("de", "Germany", "EU", None, 80)])
    service = made.start()
    made.feed("a", {"id": 1, "country_code": "de"})
    assert service_scene.turn_until(service, lambda: made.catalog.load("n.a") and made.rows("n.a"))
    put(made, [("de", "Deutschland", "EU", None, 81)])
    made.feed("a", {"id": 2, "country_code": "de"})
    assert service_scene.turn_until(service, lambda: len(made.rows("n.a")) == 2)
    assert [(row["name"], row["size"]) for row in made.rows("n.a")] == [("Germany", 80), ("Deutschland", 81)]


def test_an_empty_reference_table_has_nothing_for_any_record(scene: Any) -> None:
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


@pytest.mark.parametrize(
    "settings",
    [{}, {"mode": "upsert", "key": KeySpec(format="json"), "key_columns": ("id",), "format_version": 2}],
    ids=["append", "upsert"],
)
def test_the_commit_of_replayed_dead_letters_names_the_version_that_their_rows_have(
    scene: Any, queries: Any, settings: dict[str, Any]
) -> None:
    made = scene(
        {**COUNTRY, "on_miss": "dead_letter"}, select="select id, country.name as name from records", **settings
    )
    made.source.produce("a", 0, b'{"id": 1, "country_code": "de"}', 5, key=b'{"id": 1}')
    made.source.produce("a", 0, b'{"id": 2, "country_code": "it"}', 6, key=b'{"id": 2}')
    made.catch_up()
    snapshot = put(made, [("de", "Deutschland"), ("it", "Italia")])
    (spec,) = made.spec("a").tables
    replayer = Replayer(made.catalog, None, TopicReaders(made.source, made.source), queries)
    assert replayer.replay(Table(spec), Selection()) == ReplayResult(1, 0)
    assert {row["id"]: row["name"] for row in made.rows("n.a")} == {1: "Germany", 2: "Italia"}
    history = [one.summary for one in made.catalog.history("n.a", ("lookups", "replay-id"))]
    [named] = [summary for summary in history if "replay-id" in summary]
    assert json.loads(named["lookups"]) == {"country": {"table": "ref.countries", "snapshot-id": snapshot}}
    assert made.progress().batch.lookups["country"]["snapshot-id"] < snapshot


def test_a_lookup_finds_by_several_fields_nested_ones_too(scene: Any, tmp_path: Path) -> None:
    file = tmp_path / "prices.parquet"
    pq.write_table(
        pa.table({"shop": [1, 1, 2], "sku": ["a", "b", "a"], "price": [Decimal("1.50"), Decimal("2.00"), None]}), file
    )
    lookup = {
        "file": str(file),
        "on": ((("shop",), "shop"), (("item", "sku"), "sku")),
        "take": ("price",),
        "name": "price",
    }
    made = scene(lookup, select="select id, price.price as price, price is null as is_miss from records")
    items = ((1, 1, "b"), (2, 2, "a"), (3, 2, "b"), (4, None, "a"))
    made.feed("a", *({"id": n, "shop": shop, "item": {"sku": sku}} for n, shop, sku in items))
    made.catch_up()
    assert [(row["price"], row["is_miss"]) for row in made.rows("n.a")] == [
        (Decimal("2.00"), False),
        (None, False),
        (None, True),
        (None, True),
    ]


def test_a_file_in_another_store_than_the_table_is_reached_by_the_catalogs_properties(
    scene: Any, tmp_path: Path
) -> None:
    """The table's own are those of the identity that the driver has in the table's store alone."""
    file = tmp_path / "countries.csv"
    file.write_text("code,name,region\nde,Germany,EU\n")
    asked: list[str] = []

    def reach(location: str) -> dict[str, str]:
        asked.append(location)
        return {}

    made = scene({**COUNTRY, "table": "", "file": str(file)})
    made.feed("a", {"id": 1, "country_code": "de"})
    made.catch_up()
    table = only(made.start().tables)
    state = made.catalog.load("n.a")
    catalog = MemoryCatalog(tmp_path, "p", reach)
    for location, expected in (("s3://lake/t", [str(file)]), (str(tmp_path), []), (None, [str(file)])):
        asked.clear()
        table.state = replace(state, location=location) if location else None
        [lookup] = table.spec.query.lookup
        assert len(references.References(catalog).find(table, lookup, {}).values) == 1
        assert asked == expected


def test_what_reaches_a_file_in_another_store_is_asked_for_again_before_it_ends_and_after_a_failure(
    scene: Any, tmp_path: Path
) -> None:
    """The driver makes a client of the store to find out: of a role it asks Amazon."""
    file, clock = tmp_path / "countries.csv", FakeClock()
    file.write_text("code,name,region\nde,Germany,EU\n")
    vended: list[dict[str, str]] = []

    def reach(_: str) -> dict[str, str]:
        ends = {"s3.session-token-expires-at-ms": str(clock.now_ms() + 3_600_000)}
        vended.append(ends if len(vended) < 2 else {})
        return vended[-1]

    made = scene({**COUNTRY, "table": "", "file": str(file)})
    made.feed("a", {"id": 1, "country_code": "de"})
    made.catch_up()
    table = only(made.start().tables)
    table.state = None
    [lookup] = table.spec.query.lookup
    found = references.References(MemoryCatalog(tmp_path, "p", reach), clock)

    def asked_after(minutes: int) -> int:
        for _ in range(minutes):
            clock.sleep(60)
        assert len(found.find(table, lookup, {}).values) == 1
        return len(vended)

    assert [asked_after(minutes) for minutes in (0, 1, 53, 1, 0, 56, 600)] == [1, 1, 1, 2, 2, 3, 3]
    file.rename(tmp_path / "gone.csv")
    with pytest.raises(UnavailableError):
        found.find(table, lookup, {})
    (tmp_path / "gone.csv").rename(file)
    assert asked_after(0) == 4, "its keys may have been replaced"


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
    first = made.progress().batch.lookups["country"]
    assert first["file"] == str(file)
    file.write_text("code,name,region\nde,Deutschland,\n")
    made.feed("a", {"id": 3, "country_code": "de"})
    made.catch_up()
    assert made.rows("n.a")[-1]["name"] == "Deutschland"
    assert made.progress().batch.lookups["country"] != first


def _refused(scene: Scene, *records: Any) -> str:
    scene.feed("a", *records)
    table = waiting(scene)
    assert table.status.run_state is not RunState.RUNNING
    return f"{table.status.reason} / {table.status.remedy}"


def test_a_reference_table_that_cannot_be_joined_is_waited_for(scene: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = scene()
    put(made, [*COUNTRIES, ("fr", "France again", None)])
    assert "several rows with the key code 'fr'" in _refused(made, {"id": 1, "country_code": "de"})
    put(made, COUNTRIES)
    monkeypatch.setattr(references, "MOST_ROWS", 2)
    assert "too large: 3 rows" in _refused(made)
    put(made, COUNTRIES[:2])
    made.catch_up()
    monkeypatch.setattr(references, "MOST_BYTES", 1)
    put(made, COUNTRIES[:1])
    assert "too large: 1 row," in _refused(made, {"id": 2, "country_code": "de"})
    monkeypatch.setattr(references, "MOST_ROWS", 9)
    monkeypatch.setattr(references, "MOST_BYTES", 999)
    made.catch_up()
    made.catalog.drop("ref.countries")
    assert "the reference table ref.countries does not exist" in _refused(made, {"id": 3, "country_code": "de"})
    made.catalog.create("ref.countries", SCHEMA, {}, 2)
    put(made, COUNTRIES)
    made.catch_up()
    assert [row["id"] for row in made.rows("n.a")] == [1, 2, 3]


def test_a_file_that_cannot_be_joined_is_waited_for(
    scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "countries.parquet"
    made = scene({**COUNTRY, "table": "", "file": str(file)})
    assert "cannot be read" in _refused(made, {"id": 1, "country_code": "de"})
    file.write_bytes(b"code,name")
    assert "cannot be read" in _refused(made)
    columns = [pa.array([one]) for one in ("de", "Germany", "EU", "D")]
    for twin in ("name", "code"):
        pq.write_table(pa.Table.from_arrays(columns, ["code", "name", "region", twin]), file)
        assert f"has several columns `{twin}` / give each column of the file a name of its own" in _refused(made)
    twins_of_no_use = pa.Table.from_arrays([*columns, columns[3]], ["code", "name", "region", "o", "o"])
    pq.write_table(twins_of_no_use, file)
    with monkeypatch.context() as patched:
        versions = itertools.count()
        patched.setattr(StoreIO, "version_of", lambda *_: str(next(versions)))
        assert "the file was replaced while it was read" in _refused(made)
    made.catch_up()
    assert made.rows("n.a")[0]["country"] == {"name": "Germany", "region": "EU"}


RECORD = {"id": 1, "country_code": "de", "amount": 1.5, "nested": {"code": "de"}}


@pytest.mark.parametrize(
    ("lookup", "settings", "reason", "corrected"),
    [
        (
            {"take": ("name_",)},
            {},
            "no column `name_` that lookups can use / did you mean `name`?",
            {"take": ("name",)},
        ),
        (
            {"on": ((("id",), "code"),)},
            {},
            "compares id, which is long, with code, which is string / compare values of one type",
            {"on": ((("country_code",), "code"),)},
        ),
        (
            {"on": ((("country_kode",), "code"),)},
            {"unknown_fields": "drop", "columns": COLUMNS},
            "names an unknown field country_kode / did you mean `country_code`?",
            {},
        ),
        (
            {"on": ((("country_code", "x"), "code"),)},
            {"unknown_fields": "drop", "columns": COLUMNS},
            "an unknown field country_code.x / name a field inside of a struct",
            {},
        ),
        (
            {"take": ("uid",)},
            {},
            "takes uid, a uuid or fixed column, which Spark has no type for / leave it out of",
            {},
        ),
        ({"take": ("x",)}, {}, "no column `x` that lookups can use / write one of: code, name", {"take": ("name",)}),
        (
            {"name": "Nested"},
            {"columns": (ColumnSpec(name="nested", type=parse_type("struct<code: string>")),)},
            "have a field `Nested`, as a lookup is called / name the lookup otherwise",
            {},
        ),
        (
            {},
            {"where": "country.region = 'EU'"},
            "`where` cannot use a lookup: lookups run after `where` / write the condition as",
            {},
        ),
    ],
)
def test_a_lookup_that_cannot_be_stops_the_table_until_it_is_corrected(
    scene: Any, lookup: Any, settings: Any, reason: str, corrected: Any
) -> None:
    made = scene({**COUNTRY, **lookup}, **settings)
    assert reason in _refused(made, RECORD)
    settings = {"filter": settings["where"]} if "where" in settings else settings
    made.settings = {"lookup": (LookupSpec(**{"name": "country", **COUNTRY, **corrected}),), **settings}
    made.catch_up()
    assert len(made.rows("n.a")) == 1


def test_a_key_that_no_record_has_had_yet_is_waited_for(scene: Any) -> None:
    made = scene()
    assert "unknown field country_code, and no record that can become a row has had it yet" in _refused(made, {"id": 1})
    made.settings["columns"] = (ColumnSpec(name="country_code", type=StringType()),)
    made.catch_up()
    assert [row["country"] for row in made.rows("n.a")] == [None]


def test_a_key_column_of_an_upsert_table_is_not_looked_up(scene: Any) -> None:
    made = scene(mode="upsert", key=KeySpec(format="json"), key_columns=("name",), format_version=2)
    made.settings["select"] = "select country.name as name, id from records"
    made.source.produce("a", 0, b'{"id": 1, "country_code": "de"}', made.clock.now_ms(), key=b'{"id": 1}')
    assert "`key_columns` names `name`, which is looked up" in _refused(made)
    made.settings["key_columns"] = ("NAME",)
    assert "`key_columns` names `NAME`, which is looked up" in _refused(made)
    made.settings["key_columns"] = ("id",)
    made.catch_up()
    assert made.rows("n.a") == [{"name": "Germany", "id": 1}]


def test_rows_come_back_from_the_bytes_that_tasks_get() -> None:
    values = pa.StructArray.from_arrays([pa.array(["x", None])], names=["a"])
    made = Reference("r", {"table": "r", "snapshot-id": 7}, [pa.array(["k", "l"])], values)
    found = load_reference(made.dump())
    assert (found.key, found.types) == (made.key, made.types)
    rows, members = found.find([pa.array(["l", "?", None, "k"])])
    assert rows.tolist() == [1, -1, -1, 0]
    assert members.to_pylist() == [{"a": None}, None, None, {"a": "x"}]
