"""Changes of one row in several topics, partitions or source tables: `check` and `plan` ask for their order, or for a key
that keeps rows apart.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from frazil.ingest.loop.discovery import Discovery
from frazil.ops.check import check_records, check_tables, comparison
from frazil.ops.plan import PlannedTable, plan_tables
from tests.needs import needs
from tests.unit.ops.conftest import Scenario

_UPSERT = "envelope: debezium, mode: upsert, key: {format: json}"
_ORDER = "Write `metadata: [source_order]` and `order_by: _source_order`"
_SEVERAL = "several topics (ev_01, ev_02) feed the table"
_PARTITIONS = "changes of one row may be in several partitions"
_APART = "write `metadata: [source_table]` and `key_columns: [_source_table, id]`"
_ROUTED = "__dbz__physicalTableIdentifier"


def _produce(scenario: Scenario, topic: str, key: dict[str, Any] | None, row: dict[str, Any], **source: Any) -> None:
    if topic not in scenario.source.by_name:
        scenario.source.create(topic, 2)
    change = {"op": "c", "before": None, "after": row, "source": {"connector": "postgresql", "lsn": 7, **source}}
    scenario.source.produce(topic, 0, json.dumps(change).encode(), key=json.dumps(key).encode() if key else None)


def _plan(scenario: Scenario, settings: str) -> PlannedTable:
    (table,) = plan_tables(
        scenario.spec(f"tables: {{s.t: {{{settings}}}}}\n"), scenario.source, scenario.catalog, scenario.read
    )
    return table


def _checked(scenario: Scenario, settings: str) -> str:
    """What `check` says of the table and its records, all of it in order."""
    spec = scenario.spec(f"tables: {{s.t: {{{settings}}}}}\n")
    discovery = Discovery(spec, scenario.source, scenario.catalog)
    discovery.refresh_topics()
    found = [*check_tables(discovery.tables.values(), comparison(spec, scenario.source, scenario.catalog))]
    found += check_records([_plan(scenario, settings)], ())
    assert [one for one in found if not one.is_ok] == []
    return "\n".join(one.found for one in found)


@pytest.mark.parametrize("topics", ["topics: [ev_01, ev_02]", "topics: /^ev_/"])
def test_several_topics_of_one_table_ask_for_an_order(scenario: Scenario, topics: str) -> None:
    for number in (1, 2):
        _produce(scenario, f"ev_0{number}", {"id": number}, {"id": number})
    for settings in ("", ", key_columns: [id]", ", deletes: soft"):
        warnings = _plan(scenario, f"{topics}, {_UPSERT}{settings}").warnings
        assert [_SEVERAL in one and _ORDER in one for one in warnings] == [True]
        assert _SEVERAL in _checked(scenario, f"{topics}, {_UPSERT}{settings}")
    for settings in (
        ", metadata: [source_order], order_by: _source_order",
        ", metadata: [topic], key_columns: [_topic, id]",
        ", metadata: {source_table: origin}, key_columns: [origin, id]",
    ):
        assert _plan(scenario, f"{topics}, {_UPSERT}{settings}").warnings == ()
        assert "warning" not in _checked(scenario, f"{topics}, {_UPSERT}{settings}")
    assert _plan(scenario, "topic: ev_01, envelope: debezium, mode: upsert, key: {format: json}").warnings == ()
    assert _plan(scenario, f"{topics}, envelope: debezium, changelog: true").warnings == ()


@needs("cdc")
def test_envelopes_without_a_position_are_not_asked_for_one(scenario: Scenario) -> None:
    for number in (1, 2):
        scenario.source.create(f"ev_0{number}")
        row = {"type": "insert", "database": "d", "table": "t", "ts": 1, "data": {"id": number}}
        key = {"database": "d", "table": "t", "pk.id": number}
        scenario.source.produce(f"ev_0{number}", 0, json.dumps(row).encode(), key=json.dumps(key).encode())
    assert _plan(scenario, "topics: /^ev_/, envelope: maxwell, mode: upsert, key: {format: json}").warnings == ()


def test_keys_with_more_than_the_key_columns_ask_for_an_order_where_there_are_several_partitions(
    scenario: Scenario,
) -> None:
    """A row that moves between partitions of a PostgreSQL table has the column of the partitions in its key."""
    for day in (1, 2):
        _produce(scenario, "ev", {"id": 7, "day": day}, {"id": 7, "day": day})
    settings = f"topic: ev, {_UPSERT}, key_columns: [id]"
    assert [_PARTITIONS in one and _ORDER in one for one in _plan(scenario, settings).warnings] == [True]
    assert f"the records' keys have day besides `key_columns`: {_PARTITIONS}" in _checked(scenario, settings)
    for others in (
        f"topic: ev, {_UPSERT}",
        f"topic: ev, {_UPSERT}, key_columns: [day, id]",
        f"{settings}, metadata: [source_order], order_by: _source_order",
    ):
        assert _plan(scenario, others).warnings == ()
    scenario.source.create("one")
    _produce(scenario, "one", {"id": 7, "day": 1}, {"id": 7, "day": 1})
    assert _plan(scenario, settings.replace("topic: ev", "topic: one")).warnings == ()


def test_keys_with_a_field_that_rows_lack_are_those_of_several_tables(scenario: Scenario) -> None:
    for table in ("t1", "t2"):
        _produce(scenario, "all", {"id": 7, _ROUTED: f"shop.{table}"}, {"id": 7}, table=table)
    for settings in ("", ", key_columns: [id]"):
        (warning,) = _plan(scenario, f"topic: all, {_UPSERT}{settings}").warnings
        assert (_APART in warning, "every change would be a bad record" in warning) == (True, not settings)
        assert warning in _checked(scenario, f"topic: all, {_UPSERT}{settings}")
    apart = f"topic: all, {_UPSERT}, metadata: [source_table], key_columns: [_source_table, id]"
    assert (_plan(scenario, apart).warnings, _plan(scenario, apart).bad) == ((), 0)


def test_documents_are_asked_for_nothing(scenario: Scenario) -> None:
    scenario.source.create("docs", 2)
    change = {"op": "c", "after": '{"_id": 7}', "before": None, "source": {"connector": "mongodb", "collection": "c"}}
    scenario.source.produce("docs", 0, json.dumps(change).encode(), key=b'{"id": "7"}')
    for settings in ("", ", key_columns: [_id]"):
        assert _plan(scenario, f"topic: docs, {_UPSERT}{settings}").warnings == ()
