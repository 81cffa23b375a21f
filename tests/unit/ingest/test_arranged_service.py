"""A whole service on the ports in memory: tables whose partitions and order the file gives, over restarts and changes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from frazil.catalog.layout import METRICS_OF, Layout, partition_terms
from frazil.catalog.port import StoredLayout
from frazil.ingest.tables.state import RunState
from frazil.schema.evolve import new_schema
from frazil.spec import ColumnSpec
from frazil.spec.partitioning import PartitionTerm, parse_sort, parse_term
from frazil.spec.settings import LimitsSpec
from frazil.spec.syntax.types import parse_type
from frazil_testing.memory_catalog import MemoryCatalog
from frazil_testing.twins import MemoryJobs
from tests.unit.rows.test_shaped_service import Scenario

_MAP = parse_type("map<string,int>")
_ID = ColumnSpec(name="id", type=parse_type("long"))


def _terms(*texts: str) -> tuple[Any, ...]:
    return tuple(map(parse_term, texts))


def _words(scenario: Scenario) -> list[str]:
    state = scenario.catalog.load("n.t")
    assert state is not None
    return list(partition_terms(state.partitioning, state.schema))


def _partitions(scenario: Scenario) -> list[list[Any]]:
    files = [file for snapshot in reversed(scenario.catalog.ancestors("n.t")) for file in snapshot.files]
    return sorted((list(json.loads(file.content)["partition"]) for file in files), key=str)


def _again(scenario: Scenario, **settings: Any) -> None:
    """The file is written again; the next run reads it."""
    table = scenario.spec.tables[0].model_copy(update=settings)
    scenario.spec = scenario.spec.model_copy(update={"tables": (table,)})


def test_inferred_columns_may_be_partitioned_by_and_the_file_may_change(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, partition_by=_terms("truncate(id, 10)", "r.z"), sort_by=(parse_sort("id desc"),))
    scenario.run(*({"id": n, "r": {"z": f"z{n % 2}"}} for n in range(20)))
    assert _partitions(scenario) == [[0, "z0"], [0, "z1"], [10, "z0"], [10, "z1"]]
    _again(scenario, partition_by=_terms("r.z"))
    scenario.run({"id": 50, "r": None})
    assert (_words(scenario), _partitions(scenario)[-1]) == (["r.z"], [None])
    _again(scenario, partition_by=None)
    scenario.run({"id": 60, "r": {"z": "z9"}})
    assert _words(scenario) == ["r.z"]
    assert ["z9"] in _partitions(scenario)
    assert sorted(row["id"] for row in scenario.rows()) == [*range(20), 50, 60]


def test_a_table_waits_for_the_columns_that_it_is_partitioned_by(tmp_path: Path) -> None:
    """The declared ones alone would do to make it."""
    scenario = Scenario(tmp_path, columns=(_ID,), partition_by=_terms("region"))
    assert scenario.catch_up().state is None
    scenario.run({"id": 1, "region": "eu"}, {"id": 2})
    assert (_words(scenario), _partitions(scenario)) == (["region"], [["eu"], [None]])


def test_a_table_waits_for_the_columns_that_its_properties_name(tmp_path: Path) -> None:
    """The declared ones alone would do to make it, but for Iceberg."""
    properties = {METRICS_OF + "region": "none", METRICS_OF + "id": "full"}
    scenario = Scenario(tmp_path, columns=(_ID,), properties=properties)
    assert scenario.catch_up().state is None
    table = scenario.run({"id": 1, "region": "eu"})
    assert table.state is not None
    assert (table.state.properties.items() >= properties.items(), scenario.rows()) == (
        True,
        [{"id": 1, "region": "eu"}],
    )


def test_a_property_of_a_column_that_is_not_there_stops_the_table(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, columns=(_ID,), properties={METRICS_OF + "regions": "none"})
    table = scenario.run({"id": 1, "region": "eu"})
    assert (table.status.run_state, scenario.catalog.load("n.t")) == (RunState.STOPPED, None)
    assert table.status.reason == f"`{METRICS_OF}regions`: the table has no column `regions`"
    assert table.status.remedy == "declare it under `columns`, or correct the name: did you mean `region`?"


@pytest.mark.parametrize("term", ["l.element", "bucket(l.element.a, 4)", "m.value"])
def test_a_value_of_which_a_row_has_several_is_named_as_that(tmp_path: Path, term: str) -> None:
    scenario = Scenario(tmp_path, partition_by=_terms(term), columns=(ColumnSpec(name="m", type=_MAP),))
    record = {"l": [{"a": 1}] if ".a" in term else [1], "m": {"k": 1}}
    table = scenario.run(record)
    named = term.partition("(")[2].partition(",")[0] or term
    assert (
        table.status.reason == f"`{term}`: a row may have several values of `{named}`, which is inside a list or a map"
    )
    assert table.status.remedy == "name a column that is not a list, map or struct, or one inside it, such as `a.b`"


@pytest.mark.parametrize(
    ("terms", "message"),
    [(("zone",), "the table has no column `zone`"), (("day(region)",), "the column `region` has the type string")],
)
def test_a_first_batch_that_does_not_allow_the_partitions_stops_the_table(
    tmp_path: Path, terms: tuple[str, ...], message: str
) -> None:
    table = (scenario := Scenario(tmp_path, partition_by=_terms(*terms))).run({"region": "eu"})
    assert (table.status.run_state, scenario.catalog.load("n.t")) == (RunState.STOPPED, None)
    assert message in table.status.reason


def test_a_table_that_is_there_and_lacks_the_column_stops_with_the_line_of_the_file(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path)
    scenario.run({"id": 1})
    _again(scenario, partition_by=(PartitionTerm("region", line=12),))
    table = scenario.run({"id": 2, "region": "eu"})
    assert (table.status.run_state, table.status.where) == (RunState.STOPPED, f"{tmp_path / 'f'}:12")
    assert "no column `region`" in table.status.reason


def test_more_partitions_than_a_batch_may_write_stop_the_table_and_leave_nothing(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, columns=(_ID,), partition_by=_terms("id"), limits=LimitsSpec(partitions=5))
    scenario.run(*({"id": n} for n in range(5)))
    table = scenario.run(*({"id": n} for n in range(6)))
    assert table.status.run_state is RunState.STOPPED
    assert "more than 5 partitions, id=0 and id=5 among them" in table.status.reason
    assert len(scenario.rows()) == 5 == len(list(tmp_path.rglob("*.parquet")))
    _again(scenario, limits=LimitsSpec(partitions=6))
    scenario.catch_up()
    assert len(scenario.rows()) == 11


def test_tasks_that_exceed_the_limit_only_together_stop_the_table_and_leave_nothing(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, columns=(_ID,), partition_by=_terms("id"), limits=LimitsSpec(partitions=5))
    scenario.jobs = MemoryJobs(scenario.source, batch_size=1, tasks=2)
    scenario.run(*({"id": n % 5} for n in range(10)))
    assert len(scenario.rows()) == 10 == len(list(tmp_path.rglob("*.parquet"))), (
        "a file of each partition by either task"
    )
    table = scenario.run(*({"id": n} for n in range(6)))
    assert (table.status.run_state, table.status.reason) == (
        RunState.STOPPED,
        "a batch has rows of more than 5 partitions",
    )
    assert len(scenario.rows()) == 10 == len(list(tmp_path.rglob("*.parquet")))
    _again(scenario, limits=LimitsSpec(partitions=6))
    scenario.catch_up()
    assert len(scenario.rows()) == 16


def test_a_field_with_the_name_of_a_partition_field_stops_the_table(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, columns=(_ID,), partition_by=_terms("bucket(id, 4)"))
    table = scenario.run({"id": 1, "id_bucket_4": 2})
    assert table.status.run_state is RunState.STOPPED
    assert "a field `id_bucket_4`, and the table has a partition field of this name" in table.status.reason
    _again(scenario, exclude=(("id_bucket_4",),))
    scenario.catch_up()
    assert [row["id"] for row in scenario.rows()] == [1]


def test_a_table_that_others_partitioned_is_kept_to(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path)
    layout = Layout(_terms("bucket(id, 2)"), (parse_sort("id"),))
    scenario.catalog.create("n.t", new_schema([("id", parse_type("long"))]), {}, 2, layout)
    scenario.run(*({"id": n} for n in (5, 3, 8, 1)))
    assert len(_partitions(scenario)) == 2
    files = [file for snapshot in scenario.catalog.ancestors("n.t") for file in snapshot.files]
    assert {json.loads(file.content)["sort-order-id"] for file in files} == {1}


def test_a_transform_of_a_later_iceberg_stops_the_table_until_the_file_reports_another(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, columns=(_ID,))
    scenario.catch_up()
    _give_spec(scenario.catalog, "zigzag[2]")
    table = scenario.run({"id": 1})
    assert table.status.run_state is RunState.STOPPED
    assert "partitioned or sorted by zigzag[2], which is not a known transform" in table.status.reason
    _again(scenario, partition_by=_terms("id"))
    scenario.catch_up()
    assert (_words(scenario), _partitions(scenario)) == (["id"], [[1]])


def _give_spec(catalog: MemoryCatalog, transform: str) -> None:
    """What another program may do."""
    table = catalog._tables["n.t"]
    field = {"source-id": 1, "field-id": 1000, "transform": transform, "name": "z"}
    spec = json.dumps({"spec-id": 1, "fields": [field]})
    table.state = replace(table.state, layout=StoredLayout(1, spec))
