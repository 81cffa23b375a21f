"""Commits to a REST catalog whose answers are lost, or that something on the way sends twice: whatever made them, every
snapshot can still be read, and nothing is done twice or given up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlparse

import pytest
from pyiceberg.types import StringType
from pyspark.sql import SparkSession

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.java import each
from frazil.catalog.layout import Layout
from frazil.catalog.maintenance_port import Compaction
from frazil.catalog.port import NamedAppend, Replacement, Rewrite
from frazil.clock import new_id
from frazil.errors import ConflictError, UnavailableError
from frazil.maintenance.run import DELETES_OPTIONS
from frazil.runtime.jvm import Jvm
from frazil.schema.evolve import extend_schema
from frazil.spec.partitioning import parse_sort, parse_term
from tests.acceptance.proxy import Fault, Proxy
from tests.contracts.test_row_deltas import Hand
from tests.fixtures.slices import sliced
from tests.integration.lakes import COLUMNS, PROPERTIES, Lake, Rows
from tests.integration.servers import RestCatalogServer

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]

FAULTS: tuple[Fault, ...] = ("cut after", "twice")
WRONG: tuple[Fault, ...] = (
    "400 after",
    "401 after",
    "403 after",
    "409 after",
    "502 after",
    "503 after",
    "garbage after",
)
"""Answers to what was carried out. When there is little time, changes of a table meet one of them each, the second to the
fifth, and batches all but two of these: 403, which is taken as 401 is, and 502, which is taken as 503 is.
"""
SLOW_FOR_BATCHES = ("403 after", "502 after")
STRUCK_WITHIN_S = 60.0
FAR_AHEAD_MS = 4_102_444_800_000
"""Every file is older."""


class ProxiedLake(Lake):
    """A lake whose catalog is behind a proxy; other writers reach it directly."""

    def __init__(self, jvm: Jvm, root: Path, server: RestCatalogServer) -> None:
        self.proxy = Proxy(server.port)
        self._server = server
        super().__init__(jvm, root)

    def connect(self, pipeline: str = "p") -> IcebergCatalog:
        """Another connection."""
        properties = {"type": "rest", "uri": self.proxy.url}
        return IcebergCatalog(self.jvm.gateway, pipeline, properties, self.jvm.hadoop)

    def spark(self) -> SparkSession:
        """A session of somebody else's, with the catalog `frazil`."""
        spark = self.jvm.session().newSession()
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        prefix = "spark.sql.catalog.frazil"
        spark.conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")
        for name, value in {"type": "rest", "uri": self._server.url, "cache-enabled": "false"}.items():
            spark.conf.set(f"{prefix}.{name}", value)
        return spark

    def history(self, table: str) -> dict[int, Rows]:
        """The rows of every snapshot."""
        return {snapshot: self.rows(table, snapshot) for snapshot in self.metadata(table).snapshots}

    def strike(self, fault: Fault, act: Callable[[], object], between: Callable[[], object] = lambda: None) -> None:
        """Does it while a commit meets the fault. between: what others do before it is sent the second time."""
        with self.proxy.faulty(fault, between=between):
            act()
        self.proxy.wait_until_struck(STRUCK_WITHIN_S)


@pytest.fixture(scope="module")
def lake(jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedLake]:
    root = tmp_path_factory.mktemp("rest")
    server = RestCatalogServer(root / "catalog", str(root / "warehouse"))
    server.start()
    lake = ProxiedLake(jvm, root, server)
    yield lake
    lake.proxy.close()
    server.kill()


def oldest(lake: Lake, table: str) -> list[int]:
    """All snapshots but the two newest."""
    return [one.id for one in sorted(lake.metadata(table).snapshots.values(), key=lambda one: one.at_ms)][:-2]


ACTIONS: Mapping[str, Callable[[Lake, str], object]] = {
    "compact": lambda lake, table: lake.table_maintenance.compact(table, Compaction({"rewrite-all": "true"})),
    "deletes": lambda lake, table: lake.table_maintenance.rewrite_deletes(table, DELETES_OPTIONS),
    "manifests": lambda lake, table: lake.table_maintenance.rewrite_manifests(table),
    "manifests of format 1": lambda lake, table: lake.table_maintenance.rewrite_manifests(table),
    "carry": lambda lake, table: lake.table_maintenance.carry(table),
    "expire": lambda lake, table: lake.table_maintenance.expire(table, oldest(lake, table)),
    "statistics": lambda lake, table: lake.table_maintenance.compute_statistics(table),
}


WORDS = ("cut after", "twice", "twice, with a commit between")
"""What becomes of an answer. When there is little time, each action meets one of them."""


def backlog(lake: Lake, action: str) -> str:
    """A new table for which there is something to do."""
    table = f"t.lost_{new_id()[:8]}"
    lake.create(table, format_version=1 if action.endswith("format 1") else 2)
    java = lake.java(table)
    for name, value in {"write.delete.mode": "merge-on-read", "commit.manifest-merge.enabled": "false"}.items():
        java.updateProperties().set(name, value).commit()
    lake.fill(table, 3)
    if action == "deletes":
        java.updateSchema().renameColumn("_partition", "word").commit()  # Spark's reader refuses the name.
        spark = lake.spark()
        spark.sql(f"DELETE FROM frazil.{table} WHERE id IN (1, 11)")
    if action == "carry":
        lake.java(table).newFastAppend().commit()
    return table


def missing(lake: Lake, table: str) -> set[str]:
    """Files that the table's metadata names for itself and that are not there."""
    metadata = lake.java(table).operations().current()
    named = {str(file.path()) for file in metadata.statisticsFiles()}
    named |= {str(snapshot.manifestListLocation()) for snapshot in metadata.snapshots()}
    return {path for path in named if not Path(urlparse(path).path).exists()}


def _marks(action: str, is_first: bool) -> list[pytest.MarkDecorator]:
    if not is_first:
        return [pytest.mark.soak]
    return [pytest.mark.slow] if action.endswith("format 1") else []


@pytest.mark.parametrize(
    ("action", "word"),
    [
        pytest.param(action, word, marks=_marks(action, is_first=word == WORDS[n % len(WORDS)]))
        for n, action in enumerate(ACTIONS)
        for word in WORDS
    ],
)
def test_maintenance_whose_answer_is_lost_leaves_every_snapshot_whole(
    lake: ProxiedLake, action: str, word: str
) -> None:
    table = backlog(lake, action)
    rows, told, before = lake.rows(table), lake.told(table), lake.history(table)
    more = [(77, "between")] if "between" in word else []

    def act() -> None:
        with suppress(ConflictError, UnavailableError):
            ACTIONS[action](lake, table)

    lake.strike("twice" if more else word, act, lambda: more and lake.commit(table, more, pipeline="q"))
    rows_now = sorted([*rows, *more])

    def is_whole(snapshot: int, found: Rows) -> bool:
        return found == before[snapshot] if snapshot in before else found in (rows, rows_now)

    assert (lake.rows(table), lake.told(table), missing(lake, table)) == (rows_now, told, set())
    assert all(is_whole(snapshot, found) for snapshot, found in lake.history(table).items())
    ACTIONS[action](lake, table)
    assert (lake.rows(table), lake.told(table)) == (rows_now, told)
    lake.table_maintenance.remove(table, lake.table_maintenance.orphans(table, FAR_AHEAD_MS))
    assert (lake.table_maintenance.orphans(table, FAR_AHEAD_MS), missing(lake, table)) == ([], set())
    assert all(is_whole(snapshot, found) for snapshot, found in lake.history(table).items())
    lake.commit(table, [(99, "later")])
    assert lake.rows(table) == sorted([*rows_now, (99, "later")])


def ids(lake: Lake, table: str) -> list[list[int]]:
    """The ids of the rows at every snapshot, oldest first, as Iceberg's own reader has them."""
    java, found = lake.java(table), []
    for snapshot in sorted(java.snapshots(), key=lambda one: int(one.sequenceNumber())):
        reader = lake.jvm.gateway.jvm.org.apache.iceberg.data.IcebergGenerics.read(java)
        rows = reader.useSnapshot(snapshot.snapshotId()).build()
        found.append(sorted(int(row.getField("id")) for row in each(rows)))
        rows.close()
    return found


# In time: each fault, and each format.
@pytest.mark.parametrize(
    ("fault", "version"), sliced([*zip(FAULTS, (2, 3), strict=True), *zip(FAULTS, (3, 2), strict=True)], len(FAULTS))
)
def test_a_batch_whose_answer_is_lost_leaves_every_snapshot_whole(
    lake: ProxiedLake, fault: Fault, version: int
) -> None:
    table = f"t.batch_{new_id()[:8]}"
    hand = Hand(lake.connect(), version, table)
    lake.strike(fault, lambda: hand.send(hand.commit(1, 2)))
    lake.strike(fault, lambda: hand.send(hand.commit(2, delta=hand.delete(hand.scan(), f0=[1]))))
    hand.send(hand.commit(3))
    assert ids(lake, table) == [[1, 2], [1, 2], [1, 2, 3]]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_retry_of_dead_letters_whose_answer_is_lost_leaves_every_snapshot_whole(
    lake: ProxiedLake, fault: Fault
) -> None:
    table = f"t.retry_{new_id()[:8]}"
    hand = Hand(lake.connect(), 3, table)
    progress = hand.send(hand.commit(1, 2))
    first = hand.scan().files[0].path
    since = hand.fresh().head_id
    assert since is not None
    lake.strike(fault, lambda: hand.catalog.append_once(NamedAppend(table, hand.write(3), "replay-id", "a", since)))
    lake.strike(fault, lambda: hand.catalog.rewrite(Rewrite(table, since, "b", (first,), hand.write(4))))
    at = hand.fresh().head_id
    made = Replacement(table, hand.write(5), hand.delete(hand.scan(), f0=[0]), progress, at, "c")
    lake.strike(fault, lambda: hand.catalog.replace_once(made))
    hand.fresh()
    hand.send(hand.commit(6))
    assert [len(rows) for rows in ids(lake, table)] == [2, 3, 2, 2, 3]


@pytest.mark.parametrize(
    "fault", sliced(sorted(WRONG, key=SLOW_FOR_BATCHES.__contains__), len(WRONG) - len(SLOW_FOR_BATCHES))
)
def test_a_batch_whose_answer_is_wrong_is_found_in_the_table(lake: ProxiedLake, fault: Fault) -> None:
    table = f"t.wrong_{new_id()[:8]}"
    hand = Hand(lake.connect(), 3, table)
    lake.strike(fault, lambda: hand.send(hand.commit(1, 2)))
    lake.strike(fault, lambda: hand.send(hand.commit(2, delta=hand.delete(hand.scan(), f0=[1]))))
    hand.send(hand.commit(3))
    assert ids(lake, table) == [[1, 2], [1, 2], [1, 2, 3]]


def test_a_conflict_without_another_commit_is_no_refusal(lake: ProxiedLake) -> None:
    """Where the table is as it was, one of the attempts may still arrive."""
    table = f"t.alone_{new_id()[:8]}"
    hand = Hand(lake.connect(), 3, table)
    with lake.proxy.faulty("409 before", times=5), pytest.raises(UnavailableError, match="the commit failed"):
        hand.send(hand.commit(1))
    hand.fresh()
    hand.send(hand.commit(2))
    assert ids(lake, table) == [[2]]


CHANGES: Mapping[str, Callable[[IcebergCatalog, str], object]] = {
    "create": lambda catalog, table: catalog.create(table, COLUMNS, PROPERTIES, 2),
    "evolve": lambda catalog, table: catalog.evolve(
        table, lambda schema: extend_schema(schema, {(): {"b": StringType()}})
    ),
    "arrange": lambda catalog, table: catalog.arrange(
        table, Layout((parse_term("bucket(id, 2)"),), (parse_sort("id"),))
    ),
    "mark": lambda catalog, table: catalog.mark(table, "word", "yes"),
}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        pytest.param(change, fault, marks=[] if fault == WRONG[n % len(WRONG)] else [pytest.mark.soak])
        for n, change in enumerate(CHANGES, 1)
        for fault in WRONG
    ],
)
def test_a_change_of_a_table_whose_answer_is_wrong_is_found(lake: ProxiedLake, change: str, fault: Fault) -> None:
    table = f"t.change_{new_id()[:8]}"
    catalog = lake.connect()
    if change != "create":
        CHANGES["create"](catalog, table)
    lake.strike(fault, lambda: CHANGES[change](catalog, table))
    CHANGES[change](catalog, table)
    state = lake.connect().load(table)
    assert state is not None
    found = {
        "create": state.head_id is None,
        "evolve": [field.name for field in state.schema.fields] == ["id", "_partition", "b"],
        "arrange": (len(state.partitioning.fields), len(state.sorting.fields)) == (1, 1),
        "mark": state.marks.get("word") == "yes",
    }
    assert found[change]
