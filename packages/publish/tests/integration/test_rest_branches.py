"""A change of properties alone, at a REST catalog: it is refused as any other where main was moved meanwhile."""

from __future__ import annotations

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
from tests.integration.servers import RestCatalogServer

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]


class Interleaved(IcebergBranches):
    """Another writer commits to main of the first table between the look and the first commit."""

    def __init__(self, catalog: IcebergCatalog, table: str) -> None:
        super().__init__(catalog)
        self._table: str | None = table

    def _commit(self, *change: Any) -> None:
        table, self._table = self._table, None
        if table is not None:
            self._catalog.java_table(table).newAppend().commit()
        super()._commit(*change)


def state_of(catalog: IcebergCatalog, table: str) -> TableState:
    state = catalog.load(table)
    assert state is not None
    return state


@pytest.mark.parametrize("count", [1, 2])
def test_properties_are_not_set_where_main_was_moved_meanwhile(server: RestCatalogServer, jvm: Jvm, count: int) -> None:
    catalog = IcebergCatalog(jvm.gateway, "p", {"type": "rest", "uri": server.url}, {})
    tables = [f"r{new_id()[:8]}.t" for _ in range(count)]
    for name in tables:
        catalog.create(name, new_schema([]), {}, 2)
        catalog.java_table(name).newAppend().commit()

    def moves() -> list[BranchMove]:
        heads = {name: state_of(catalog, name).main_id for name in tables}
        move_id = new_id()
        return [BranchMove(name, MAIN, head, head, move_id, {"generation": "7"}) for name, head in heads.items()]

    branches = Interleaved(catalog, tables[0])
    with pytest.raises(ConflictError, match="was moved in the meantime"):
        branches.move_together(moves())
    assert [state_of(catalog, name).marks.get("generation") for name in tables] == [None] * count
    branches.move_together(moves())
    assert [state_of(catalog, name).marks.get("generation") for name in tables] == ["7"] * count
