"""AUTO CDC flows, imported and run on the ports in memory: the rows are those that the flow would make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from frazil.errors import SpecError
from frazil.ingest.tables.queries import SparkQueries
from frazil_migrate.imports.auto_cdc import import_flows
from packages.state.tests.unit.grouping.grouping import Grouped, at, moment

_FLOW = """
CREATE FLOW f AS AUTO CDC INTO n.t FROM STREAM(a) KEYS (id) APPLY AS DELETE WHEN op = "DELETE" SEQUENCE BY {}
COLUMNS * EXCEPT (op) STORED AS SCD TYPE {}
"""


def _imported(root: Path, queries: SparkQueries, flow: str, **more: Any) -> Grouped:
    """The table of a flow. more: settings besides, as a user adds them."""
    settings = yaml.safe_load(import_flows(flow, None).text)["tables"]["n.t"]
    assert settings.pop("topic") == "a"
    texts = [f"{key}: {json.dumps(value)}" for key, value in {**settings, **more}.items() if key != "select"]
    return Grouped(root, queries, settings["select"], ", ".join(texts))


def test_type_1_keeps_the_row_of_the_greatest_sequence(tmp_path: Path, queries: SparkQueries) -> None:
    imported = _imported(tmp_path, queries, _FLOW.format("seq", 1))
    rows: tuple[dict[str, object], ...] = (
        {"id": 1, "city": "Bonn", "op": "INSERT", "seq": 1},
        {"id": 1, "city": "Ulm", "op": None, "seq": 3},
        {"id": 2, "city": "Kiel", "op": "INSERT", "seq": 5},
        {"id": 3, "city": "Jena", "op": "INSERT", "seq": 1},
    )
    for row in rows:
        imported.put(row)
    imported.catch_up()
    late: tuple[dict[str, object], ...] = (
        {"id": 1, "city": "Mainz", "op": "UPDATE", "seq": 2},
        {"id": 2, "city": None, "op": "DELETE", "seq": 4},
        {"id": 3, "city": None, "op": "DELETE", "seq": 2},
    )
    for row in late:
        imported.put(row)
    imported.catch_up()
    assert imported.table_rows("id", "city", "seq") == [(1, "Ulm", 3), (2, "Kiel", 5)]
    assert list(imported.columns()) == ["id", "city", "seq"]


def test_type_2_keeps_each_version_with_the_names_that_readers_know(tmp_path: Path, queries: SparkQueries) -> None:
    flow = _FLOW.format("changed_at", 2) + " TRACK HISTORY ON city"
    imported = _imported(tmp_path, queries, flow, columns={"changed_at": "timestamptz"})
    for seconds, city, visits, op in [(0, "Bonn", 1, "INSERT"), (20, "Ulm", 2, "UPDATE"), (30, "Ulm", 3, None)]:
        imported.put({"id": 1, "city": city, "visits": visits, "op": op, "changed_at": at(seconds)})
    imported.catch_up()
    imported.put({"id": 1, "city": None, "visits": None, "op": "DELETE", "changed_at": at(40)})
    imported.put({"id": 1, "city": "Mainz", "visits": 9, "op": "UPDATE", "changed_at": at(10)})
    imported.put({"id": 1, "city": "Ulm", "visits": 4, "op": "INSERT", "changed_at": at(50)})
    imported.catch_up()
    rows = imported.table_rows_unsorted("__START_AT", "__END_AT", "city", "visits")
    assert sorted(rows, key=lambda row: row[0]) == [
        (moment(0), moment(10), "Bonn", 1),
        (moment(10), moment(20), "Mainz", 9),
        (moment(20), moment(40), "Ulm", 3),
        (moment(50), None, "Ulm", 4),
    ]


_PARSED = """
CREATE TEMPORARY VIEW v AS SELECT r.* FROM (
  SELECT from_json(value::string, {}) AS r FROM STREAM read_kafka(subscribe => 'a', startingOffsets => 'earliest')
);
CREATE FLOW f AS AUTO CDC INTO n.t FROM STREAM(v) KEYS (id) SEQUENCE BY seq;
"""


def test_records_that_a_view_parses_are_read_as_json_or_as_the_remedy_says(
    tmp_path: Path, queries: SparkQueries
) -> None:
    computed, written = (
        import_flows(_PARSED.format(schema), None) for schema in ("schema_of_json('{}')", "'id BIGINT, seq BIGINT'")
    )
    (loss,) = computed.losses
    assert loss.remedy == (
        "write `value: {format: json}`, and write the records' fields and their types under `columns`, and what is made of"
        " them as `select`"
    )
    draft, settings = (yaml.safe_load(imported.text)["tables"]["n.t"] for imported in (computed, written))
    assert "from_json(" in draft["select"]
    mended = {**draft, "value": {"format": "json"}, "columns": {"id": "long", "seq": "long"}, "unknown_fields": "drop"}
    del mended["select"]
    assert mended == settings
    texts = [f"{key}: {json.dumps(value)}" for key, value in settings.items() if key != "topic"]
    table = Grouped(tmp_path, queries, "select * from records", ", ".join(texts))
    for seq in (2, 1):
        table.put({"id": 7, "seq": seq, "other": True})
    table.catch_up()
    assert table.table_rows("id", "seq") == [(7, 2)]
    assert list(table.columns()) == ["id", "seq"]


def test_a_flow_whose_arguments_are_computed_is_reported_and_others_are_imported() -> None:
    flow = 'dp.create_auto_cdc_flow(target="t", source="a", keys=["id"], sequence_by="seq")'
    imported = import_flows(f"dp.create_auto_cdc_flow(**settings)\ndp.create_streaming_table(**table)\n{flow}\n", None)
    assert list(yaml.safe_load(imported.text)["tables"]) == ["default.t"]
    assert "its argument 'target' is missing, or is computed by Python" in imported.text
    assert "its argument 'name' is missing, or is computed by Python" in imported.text


@pytest.mark.parametrize(
    ("clauses", "reason", "remedy"),
    [
        ("FROM STREAM(a) KEYS (id)", "`SEQUENCE BY` is missing", "write `SEQUENCE BY` and the column that orders"),
        ("FROM STREAM(a) SEQUENCE BY seq", "`KEYS` is missing", "write `KEYS` and the columns that identify a row"),
        ("KEYS (id) SEQUENCE BY seq", "`FROM` is missing", "write `FROM` and the source of the changes"),
        ("FROM STREAM(a) KEYS (id) SEQUENCE BY", "`SEQUENCE BY` is empty", "write `SEQUENCE BY` and the column"),
        (
            "FROM STREAM(a) KEYS (id) SEQUENCE BY seq STORED AS",
            "`STORED AS` is empty",
            "write what is behind the clause, or remove it",
        ),
        ("FROM KEYS (id) SEQUENCE BY seq", "`FROM` is empty", "write `FROM` and the source"),
    ],
)
@pytest.mark.parametrize("begin", ["CREATE FLOW f AS AUTO CDC INTO t", "CREATE STREAMING TABLE t FLOW AUTO CDC"])
def test_a_clause_that_a_flow_lacks_is_named(begin: str, clauses: str, reason: str, remedy: str) -> None:
    with pytest.raises(SpecError) as refused:
        import_flows(f"{begin} {clauses}", None)
    assert refused.value.message == f"the AUTO CDC flow into `t` cannot be read: {reason}"
    assert refused.value.remedy.startswith(remedy)
    whole = "CREATE FLOW g AS AUTO CDC INTO u FROM STREAM(a) KEYS (id) SEQUENCE BY seq;"
    imported = import_flows(f"{whole} {begin} {clauses}", None)
    assert list(yaml.safe_load(imported.text)["tables"]) == ["default.u"]
    assert f"t: {reason} in the flow; {remedy}" in imported.text


def test_a_pipeline_without_a_flow_is_refused() -> None:
    with pytest.raises(SpecError, match="no AUTO CDC flow"):
        import_flows("from pyspark import pipelines as dp\n", None)


@pytest.mark.parametrize(
    "more", ["FROM STREAM() KEYS (id) SEQUENCE BY seq", "FROM STREAM(a) KEYS (id) SEQUENCE BY STRUCT()"]
)
def test_empty_parentheses_make_a_draft_that_is_read_again(more: str) -> None:
    assert list(yaml.safe_load(import_flows(f"CREATE FLOW f AS AUTO CDC INTO t {more}", None).text)["tables"]) == [
        "default.t"
    ]
