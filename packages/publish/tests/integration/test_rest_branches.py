"""A change at a REST catalog that sets no branch, but properties alone, or that removes a branch: it is refused as any other
where the branch was moved meanwhile. With and without the endpoint for commits of several tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.maintenance_port import BranchMove
from frazil.catalog.port import TableState
from frazil.clock import new_id
from frazil.errors import ConflictError
from frazil.runtime.jvm import Jvm
from frazil.schema.evolve import new_schema
from frazil.types import MAIN
from frazil_publish.iceberg_branches import IcebergBranches
from tests.fixtures.services import COMMITS_ONE_TABLE, Service
from tests.integration.servers import RestCatalogServer

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]
BRANCH = "ingest"


@pytest.fixture(params=["several tables", "one table"])
def catalog(request: pytest.FixtureRequest, server: RestCatalogServer, jvm: Jvm) -> Iterator[IcebergCatalog]:
    """A catalog whose server lists the endpoint for commits of several tables, or does not."""
    habits = () if request.param == "several tables" else (COMMITS_ONE_TABLE,)
    service = Service(server.port, *habits)
    opened = IcebergCatalog(jvm.gateway, "p", {"type": "rest", "uri": service.url}, {})
    assert opened.commits_together == (not habits)
    yield opened
    service.close()


class Interleaved(IcebergBranches):
    """Another writer commits between the look and the first commit."""

    def __init__(self, catalog: IcebergCatalog, write: Callable[[], None]) -> None:
        super().__init__(catalog)
        self._write: Callable[[], None] | None = write

    def _commit(self, *change: Any) -> None:
        write, self._write = self._write, None
        if write is not None:
            write()
        super()._commit(*change)


def state_of(catalog: IcebergCatalog, table: str) -> TableState:
    state = catalog.load(table)
    assert state is not None
    return state


def create(catalog: IcebergCatalog, count: int) -> list[str]:
    """Makes tables with a snapshot; their names."""
    tables = [f"r{new_id()[:8]}.t" for _ in range(count)]
    for name in tables:
        catalog.create(name, new_schema([]), {}, 2)
        catalog.java_table(name).newAppend().commit()
    return tables


@pytest.mark.parametrize("count", [1, 2])
def test_properties_are_not_set_where_main_was_moved_meanwhile(catalog: IcebergCatalog, count: int) -> None:
    tables = create(catalog, count)

    def moves() -> list[BranchMove]:
        heads = {name: state_of(catalog, name).main_id for name in tables}
        move_id = new_id()
        return [BranchMove(name, MAIN, head, head, move_id, {"generation": "7"}) for name, head in heads.items()]

    branches = Interleaved(catalog, lambda: catalog.java_table(tables[0]).newAppend().commit())
    with pytest.raises(ConflictError, match="was moved in the meantime"):
        branches.move_together(moves())
    assert [state_of(catalog, name).marks.get("generation") for name in tables] == [None] * count
    branches.move_together(moves())
    assert [state_of(catalog, name).marks.get("generation") for name in tables] == ["7"] * count


def test_properties_of_a_table_without_main_are_set_where_it_has_none_yet(catalog: IcebergCatalog) -> None:
    table = f"r{new_id()[:8]}.t"
    catalog.create(table, new_schema([]), {}, 2)
    move = BranchMove(table, MAIN, None, None, new_id(), {"generation": "7"})
    branches = Interleaved(catalog, lambda: catalog.java_table(table).newAppend().commit())
    with pytest.raises(ConflictError, match="was moved in the meantime"):
        branches.move(move)
    assert state_of(catalog, table).marks.get("generation") is None


def test_a_branch_is_not_removed_where_it_was_moved_meanwhile(catalog: IcebergCatalog) -> None:
    [table] = create(catalog, 1)
    catalog.with_branches(lambda _: BRANCH)

    def write() -> None:
        catalog.java_table(table).newAppend().toBranch(BRANCH).commit()

    def removal() -> BranchMove:
        return BranchMove(table, BRANCH, state_of(catalog, table).head_id, None, new_id())

    write()
    branches = Interleaved(catalog, write)
    with pytest.raises(ConflictError, match="was moved in the meantime"):
        branches.move(removal())
    assert state_of(catalog, table).head_id != state_of(catalog, table).main_id
    assert branches.move(removal()) is None
    assert state_of(catalog, table).head_id == state_of(catalog, table).main_id
