"""The Catalog port on JDBC, Hadoop and REST catalogs: tables that another client drops, renames or replaces between any
two calls. Java answers null then at places where it usually has an answer. In time: every change, and every catalog; every
change at each step of a commit, in one catalog; and every action of maintenance on a table without a snapshot, where Java
answers null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from frazil.catalog.iceberg import catalog as catalog_module
from frazil.catalog.iceberg import validators
from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.maintenance import IcebergMaintenance
from frazil.catalog.layout import Layout
from frazil.catalog.maintenance_port import Compaction
from frazil.catalog.port import NamedAppend, Replacement, Rewrite, TableState
from frazil.clock import new_id
from frazil.errors import ConflictError, SpecError, UnavailableError
from frazil.runtime.jvm import Jvm
from frazil.schema.evolve import extend_schema
from frazil.spec.partitioning import parse_term
from frazil.spec.syntax.types import parse_type
from frazil.types import RowDelta
from tests.contracts.tables import SCHEMA, TABLE, commit_of, create, files_of, load
from tests.fixtures.slices import sliced
from tests.integration.servers import RestCatalogServer

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]
_OTHER = "lake.sub.other"
Change = Callable[[IcebergCatalog], object]
Step = Callable[[IcebergCatalog, TableState], object]


@pytest.fixture(scope="module")
def rest_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogServer]:
    folder = tmp_path_factory.mktemp("rest")
    server = RestCatalogServer(folder, str(folder / "warehouse"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def connect(request: pytest.FixtureRequest, jvm: Jvm, folder: Path) -> Callable[[], IcebergCatalog]:
    """Opens another connection to one catalog."""
    folder.mkdir(parents=True, exist_ok=True)
    local = {"warehouse": str(folder)}
    properties = {
        "jdbc": {"type": "jdbc", "uri": f"jdbc:sqlite:{folder / 'catalog.db'}", "jdbc.schema-version": "V1", **local},
        "hadoop": {"type": "hadoop", **local},
        "rest": {"type": "rest"},
    }[request.param]
    if request.param == "rest":
        server: RestCatalogServer = request.getfixturevalue("rest_server")
        properties["uri"] = f"http://127.0.0.1:{server.port}"

    def opened() -> IcebergCatalog:
        return IcebergCatalog(jvm.gateway, "p", properties, jvm.hadoop)

    _clear(opened())
    return opened


def _clear(catalog: IcebergCatalog) -> None:
    for table in (TABLE, _OTHER):
        if catalog.load(table) is not None:
            _drop(catalog, table)


def _drop(catalog: IcebergCatalog, table: str = TABLE) -> None:
    # Of a Hadoop table whose folder was renamed, the metadata names files that are not there.
    has_files = catalog._properties["type"] != "hadoop"
    assert catalog._catalog.dropTable(catalog._identifier(table), has_files)


def _rename(catalog: IcebergCatalog) -> None:
    if catalog._properties["type"] == "hadoop":  # It has no other names than folders.
        folder = Path(catalog._properties["warehouse"], *TABLE.split("."))
        folder.rename(folder.with_name("other"))
    else:
        catalog._catalog.renameTable(catalog._identifier(TABLE), catalog._identifier(_OTHER))


def _replace(catalog: IcebergCatalog) -> None:
    _drop(catalog)
    create(catalog)


def _roll_back(catalog: IcebergCatalog) -> None:
    """As far as it goes: the main branch is removed, which leaves the table without a snapshot."""
    java = catalog.java_table(TABLE)
    operations = java.operations()
    metadata = catalog.gateway.jvm.org.apache.iceberg.TableMetadata
    base = operations.current()
    operations.commit(base, metadata.buildFrom(base).removeRef("main").build())


_CHANGES: Mapping[str, Change] = {"dropped": _drop, "emptied": _roll_back, "renamed": _rename, "replaced": _replace}
_FIRST = [
    ("jdbc", "dropped"),
    ("jdbc", "emptied"),
    ("rest", "renamed"),
    ("hadoop", "replaced"),
]
_ALL = [(kind, change) for kind in ("jdbc", "hadoop", "rest") for change in _CHANGES]
_OTHERS = [case for case in _ALL if case not in _FIRST]
_POINTS = ("commit.before", "commit.validating", "commit.landed")
#: The catalogs of each change, by point.
_WITHIN = {
    "dropped": ("jdbc", "rest", "jdbc"),
    "emptied": ("jdbc", "jdbc", "jdbc"),
    "renamed": ("rest", "rest", "rest"),
    "replaced": ("hadoop", "jdbc", "hadoop"),
}
_WITHIN_FIRST = [
    (point, kind, change) for change, kinds in _WITHIN.items() for point, kind in zip(_POINTS, kinds, strict=True)
]
_WITHIN_OTHERS = [
    (point, kind, change) for point in _POINTS for kind, change in _ALL if (point, kind, change) not in _WITHIN_FIRST
]


def _delta(catalog: IcebergCatalog, state: TableState) -> RowDelta:
    scan = catalog.scan(TABLE)
    return RowDelta(scan.read_at, removed=tuple(files_of(state, 77)[:0]))


_STEPS: Mapping[str, Step] = {
    "load": lambda catalog, _: catalog.load(TABLE),
    "size": lambda catalog, _: catalog.size(TABLE),
    "scan": lambda catalog, _: catalog.scan(TABLE),
    "history": lambda catalog, _: [*catalog.history(TABLE, ["commit-id"]), *catalog.summaries(TABLE)],
    "mark": lambda catalog, _: catalog.mark(TABLE, "a", "b"),
    "evolve": lambda catalog, _: catalog.evolve(
        TABLE, lambda schema: extend_schema(schema, {(): {"x": parse_type("long")}})
    ),
    "arrange": lambda catalog, _: catalog.arrange(TABLE, Layout((parse_term("id"),), None)),
    "append": lambda catalog, state: catalog.commit(commit_of(state, 9, ids=(7,))),
    "commit nothing": lambda catalog, state: catalog.commit(commit_of(state, 9, ids=())),
    "change": lambda catalog, state: catalog.commit(replace(commit_of(state, 9), delta=_delta(catalog, state))),
    "append once": lambda catalog, state: catalog.append_once(
        NamedAppend(TABLE, files_of(state, 7), "a", new_id(), None)
    ),
    "rewrite": lambda catalog, state: catalog.rewrite(
        Rewrite(TABLE, state.head_id or 0, new_id(), (), files_of(state, 7))
    ),
    "replace once": lambda catalog, state: catalog.replace_once(
        Replacement(TABLE, files_of(state, 7), _delta(catalog, state), state.progress, None, new_id())
    ),
}


def _try(step: Step, catalog: IcebergCatalog, state: TableState) -> None:
    try:
        step(catalog, state)
    except (UnavailableError, ConflictError):
        return


def _filled(connect: Callable[[], IcebergCatalog]) -> tuple[IcebergCatalog, TableState]:
    catalog = connect()
    catalog.commit(commit_of(create(catalog), 5))
    return catalog, load(catalog)


def _go_on(catalog: IcebergCatalog, is_gone: bool) -> None:
    """The table is seen as it is, and is made and filled again where it is gone."""
    state = catalog.load(TABLE)
    assert (state is None) == is_gone
    state = state or catalog.create(TABLE, SCHEMA, {}, 2)
    done = catalog.commit(commit_of(state, 11))
    assert load(catalog).progress.commit_id == done.commit_id


@pytest.mark.parametrize(("connect", "change"), sliced([*_FIRST, *_OTHERS], len(_FIRST)), indirect=["connect"])
def test_a_table_that_goes_between_two_calls_is_an_outage_and_then_made_again(
    connect: Callable[[], IcebergCatalog], change: str
) -> None:
    for step in _STEPS.values():
        catalog, state = _filled(connect)
        _CHANGES[change](connect())
        for _ in range(2):
            _try(step, catalog, state)
        _go_on(catalog, change in ("dropped", "renamed"))
        _clear(connect())


@pytest.mark.parametrize(
    ("point", "connect", "change"),
    sliced([*_WITHIN_FIRST, *_WITHIN_OTHERS], len(_WITHIN_FIRST)),
    indirect=["connect"],
)
def test_a_table_that_goes_within_a_commit_is_an_outage_and_then_made_again(
    connect: Callable[[], IcebergCatalog], monkeypatch: pytest.MonkeyPatch, point: str, change: str
) -> None:
    catalog, state = _filled(connect)
    is_gone = change in ("dropped", "renamed")
    if is_gone and point == "commit.validating" and catalog._properties["type"] == "hadoop":
        return  # The commit makes the folder, and so the table, again.
    left = [_CHANGES[change]]

    def hit(name: str) -> None:
        if name == point and left:
            left.pop()(connect())

    for module in (catalog_module, validators):
        monkeypatch.setattr(module, "hit", hit)
    for end in (9, 10):
        _try(lambda one, known, end=end: one.commit(commit_of(known, end, ids=(7,))), catalog, state)  # type: ignore[misc]
    _go_on(catalog, is_gone)
    assert not left


def _orphans(maintenance: IcebergMaintenance) -> None:
    with suppress(SpecError):  # The metadata of a table that was dropped is still there.
        maintenance.orphans(TABLE, 0)


_ACTIONS: Mapping[str, Callable[[IcebergMaintenance], object]] = {
    "metadata": lambda maintenance: maintenance.metadata(TABLE, with_files=True),
    "compact": lambda maintenance: maintenance.compact(
        TABLE, Compaction({"rewrite-all": "true"}, removes_dangling=True)
    ),
    "deletes": lambda maintenance: maintenance.rewrite_deletes(TABLE, {"rewrite-all": "true"}),
    "manifests": lambda maintenance: maintenance.rewrite_manifests(TABLE),
    "expire": lambda maintenance: maintenance.expire(TABLE, [1, 2]),
    "carry": lambda maintenance: maintenance.carry(TABLE),
    "orphans": _orphans,
    "statistics": lambda maintenance: maintenance.compute_statistics(TABLE),
    "note": lambda maintenance: maintenance.note(TABLE, "a", "b"),
}


_GONE_FIRST = [("metadata", "dropped"), *((action, "emptied") for action in _ACTIONS)]
_GONE_OTHERS = [(action, change) for action in _ACTIONS for change in _CHANGES if (action, change) not in _GONE_FIRST]


@pytest.mark.parametrize(("action", "change"), sliced([*_GONE_FIRST, *_GONE_OTHERS], len(_GONE_FIRST)))
def test_maintenance_of_a_table_that_has_gone_is_an_outage_or_a_conflict(
    jvm: Jvm, folder: Path, action: str, change: str
) -> None:
    folder.mkdir(parents=True)
    properties = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder / 'catalog.db'}", "warehouse": str(folder)}

    def connect() -> IcebergCatalog:
        return IcebergCatalog(jvm.gateway, "p", {**properties, "jdbc.schema-version": "V1"}, jvm.hadoop)

    catalog, state = _filled(connect)
    _CHANGES[change](connect())
    maintenance = IcebergMaintenance(catalog, jvm.session)
    for _ in range(2):
        _try(lambda *_: _ACTIONS[action](maintenance), catalog, state)
    _go_on(catalog, change in ("dropped", "renamed"))
