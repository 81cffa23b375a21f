"""All that can be done to records before a table, in one pipeline: queries in tasks and in Spark, steps, a route, a look-up,
expectations, protected fields, Python functions, an upsert table. Killed at any moment, now and then beside a second
process, it ends with the tables that one undisturbed run makes of the same records. In time: kills of a look-up and a
route in integration/test_lookups.py, queries in integration/test_query_tables.py.

`make soak-processing` kills 200 times; FRAZIL_KILLS for another number, FRAZIL_FIRST_SEED for other moments.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable

from frazil.runtime.broker import EmbeddedBroker
from tests.acceptance.pipelines import PLACE, Document, Pipeline
from tests.acceptance.scenes import FENCED
from tests.acceptance.soaking import die, live_on, rng
from tests.acceptance.verifier import metadata_locations
from tests.fixtures.background import repeated
from tests.fixtures.foreign_spark import ForeignSpark

pytestmark = pytest.mark.timeout(4 * 3600)
KILLS = int(os.environ.get("FRAZIL_KILLS", "200"))
SEED = int(os.environ.get("FRAZIL_FIRST_SEED", "1"))
LONGEST_LIFE_MS = 6000
PAIRED_EVERY = 4
"""Every so many lives has a second process beside it."""
FUNCTIONS = """
import frazil
import pyarrow.compute as pc


@frazil.udf(returns="string")
def label(amount):
    if "none" in amount.to_pylist():
        raise ValueError("no amount")
    return pc.binary_join_element_wise(amount, "EUR", " ")
"""
PARTITIONS = 3
KINDS = ("order", "visit", "return", None)


def records(first: int, count: int) -> Iterator[Mapping[str, Any]]:
    """Records of which a query drops some, refuses some, and finds no country for some."""
    for n in range(first, first + count):
        amount = {3: "none", 7: "x"}.get(n % 53, f"{n % 100}.5")
        yield {"n": n, "kind": KINDS[n % 4], "mail": f"U{n % 9}@X.org", "country": f"c{n % 5}", "amount": amount}


def tables(folder: Path) -> Document:
    """What the tables of the topic do."""
    protect = {"protect": {"mail": "hash"}, "protect_key": f"${{file:{folder / 'key'}}}"}
    country = {"file": str(folder / "countries.csv"), "on": "country = code", "take": ["name"]}
    return {
        "p.in_tasks": {
            **protect,
            "where": "kind is null or kind <> 'visit'",
            "lookup": {"land": {**country, "on_miss": "drop"}},
            "udf": "soak_functions.label",
            "select": "select n, mail, land.name as land, label(amount) as l, cast(amount as double) as amount from records",
            "expect": {"few": {"that": "n % 10 < 9", "else": "drop"}, "small": "amount < 90"},
        },
        "p.in_spark": {
            **protect,
            "select": "select n, mail, cast(regexp_replace(amount, '[.]5$', '') as int) as whole from records",
            "expect": {"kept": {"that": "n % 17 <> 5", "else": "dead_letter"}},
        },
        "p.newest": {
            "mode": "upsert",
            "rename": {"country": "code"},
            "drop_fields": ["kind"],
            "cast": {"n": "string"},
            "add_fields": {"origin": "shop"},
            "filter": "amount <> 'x'",
            "key_columns": ["code"],
        },
    }


def document(pipeline: Pipeline, topic: str, folder: Path) -> None:
    """Declares what is done to the records of a topic."""
    for name, settings in tables(folder).items():
        pipeline.document["tables"][name] = {"topic": topic, "metadata": PLACE, **settings}
    pipeline.document["http"] = False
    pipeline.document["routes"] = [
        {"topic": topic, "by": "kind", "to": "routed.${kind}", "rest": "routed.rest", "metadata": PLACE}
    ]


def found(folder: Path) -> dict[str, Counter[str]]:
    """The rows of every table, dead letters by place and class: their values are sealed, each time otherwise."""
    made: dict[str, Counter[str]] = {}
    for table, location in metadata_locations(folder / "frazil-data" / "catalog.db").items():
        rows = StaticTable.from_metadata(location).scan().to_arrow().to_pylist()
        if table.endswith("__dead_letters"):
            rows = [{name: row[name] for name in (*PLACE, "error_class", "path")} for row in rows]
        made[table] = Counter(json.dumps(row, default=str, sort_keys=True) for row in rows)
    return made


class Soak:
    """The pipeline whose runs are killed, and what feeds it."""

    def __init__(self, pipeline: Pipeline, spark: ForeignSpark, seed: int) -> None:
        self.pipeline, self._spark, self._seed, self._fed = pipeline, spark, seed, 0
        self.folder, self.topic = pipeline.folder, pipeline.new_topic("processed", PARTITIONS)
        (self.folder / "soak_functions.py").write_text(FUNCTIONS)
        (self.folder / "key").write_text("k" * 40)
        (self.folder / "countries.csv").write_text("code,name\nc0,Chile\nc1,Peru\nc2,Mali\nc3,Oman\n")
        document(pipeline, self.topic, self.folder)

    def produce(self, count: int = 40) -> None:
        for partition in range(PARTITIONS):  # The changes of a country are in order.
            mine = [one for one in records(self._fed, count) if one["n"] % 5 % PARTITIONS == partition]
            self.pipeline.feed.produce(self.topic, mine, partition)
        self._fed += count

    def live_and_die(self, number: int) -> None:
        """A life that ends at no moment in particular, with a second process beside it now and then."""
        first = self.pipeline.run()
        first.wait_for("batch_committed")
        others = [self.pipeline.run()] if number % PAIRED_EVERY == PAIRED_EVERY - 1 else []
        for run in others:  # From now on it is the later one.
            run.wait_for("connected")
        live_on(first, rng(self._seed, number, LONGEST_LIFE_MS) / 1000)
        for run in (first, *others):
            die(run, self._seed + number, FENCED)

    def check(self, folder: Path) -> None:
        """Compares the tables with those of one run over the same records that nobody disturbs."""
        self.pipeline.catch_up()
        whole = Pipeline(folder, self.pipeline.servers, self._spark)
        document(whole, self.topic, self.folder)
        (folder / "soak_functions.py").write_text(FUNCTIONS)
        try:
            whole.catch_up()
        finally:
            whole.close()
        expected, tables = found(folder), found(self.folder)
        assert expected.keys() == tables.keys()
        for table, rows in expected.items():
            assert tables[table] == rows, table
        refused = {name for name in expected if name.endswith("__dead_letters") and expected[name]}
        assert refused == {"p.in_tasks__dead_letters", "p.in_spark__dead_letters"}
        assert {"routed.order", "routed.visit", "routed.rest"} <= {name for name in expected if expected[name]}


@pytest.fixture
def processed(broker: EmbeddedBroker, spark: ForeignSpark, tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline whose tables are compared with others of the same records, and not by every reader."""
    made = Pipeline(tmp_path, broker.bootstrap_servers, spark)
    yield made
    made.close()


def soak(pipeline: Pipeline, spark: ForeignSpark, seed: int, kills: int) -> None:
    made = Soak(pipeline, spark, seed)
    made.produce()
    with repeated(lambda _: made.produce(), 0.2):
        for number in range(kills):
            made.live_and_die(number)
    made.check(pipeline.folder / "undisturbed")


@pytest.mark.slow
def test_tables_are_those_of_one_run_after_a_kill(processed: Pipeline, spark: ForeignSpark) -> None:
    soak(processed, spark, 0, 1)


@pytest.mark.soak
def test_tables_are_those_of_one_run_after_many_kills(processed: Pipeline, spark: ForeignSpark) -> None:
    soak(processed, spark, SEED, KILLS)
