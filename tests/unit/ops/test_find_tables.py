"""Which tables commands look at that take the name of one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from frazil.errors import SpecError
from frazil.ops.pipeline_status import ProcessState, TableStatus
from frazil.ops.status import find_tables
from frazil_testing.memory_kafka import MemorySource
from tests.unit.ops.conftest import Scenario

_TOPICS = "namespace: n\ntopics: [a, /^dev/]\ntables:\n  x.t: {topic: t}\n"


class _Away(MemorySource):
    def __init__(self) -> None:
        super().__init__()
        self.is_down = True


def _names(
    scenario: Scenario, source: MemorySource, reported: Sequence[str] = (), name: str | None = None
) -> list[str]:
    state = ProcessState(tables={table: TableStatus(table) for table in reported})
    return [table.name for table in find_tables(scenario.spec(_TOPICS), source, state, name)]


def test_tables_of_topics_are_found_in_kafka_or_as_the_last_run_has_left_them(scenario: Scenario) -> None:
    for topic in ("a", "dev-1", "other"):
        scenario.source.create(topic)
    assert _names(scenario, scenario.source) == ["n.a", "n.dev-1", "x.t"]
    assert _names(scenario, _Away(), ("n.dev-2", "x.t", "n.other")) == ["n.a", "n.dev-2", "x.t"]


def test_a_table_that_is_named_needs_no_kafka(scenario: Scenario) -> None:
    assert _names(scenario, _Away(), (), "n.dev-7") == ["n.dev-7"]
    assert _names(scenario, _Away(), (), "x.t") == ["x.t"]
    with pytest.raises(SpecError, match=r"no table `n\.other`"):
        _names(scenario, _Away(), (), "n.other")
