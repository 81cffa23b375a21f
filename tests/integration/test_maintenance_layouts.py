"""Table maintenance of tables that are partitioned, sorted and upsert table changes: by Iceberg's own actions on a
local lake, read by DuckDB and PyIceberg. What is in them is what a plain list or dictionary reports; files are one for
each partition.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType

from frazil.catalog.iceberg import compaction
from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.maintenance import IcebergMaintenance
from frazil.catalog.iceberg.rewrite_commit import RewriteCommit
from frazil.catalog.layout import Layout
from frazil.catalog.maintenance_port import Compaction
from frazil.clock import SystemClock, new_id
from frazil.decode.settings import Reading
from frazil.ingest.task_job import Job
from frazil.maintenance.merge_task import merge_of
from frazil.maintenance.plan import ORPHANS_NOTE
from frazil.runtime.jvm import Jvm
from frazil.schema.evolve import new_schema, with_identifiers
from frazil.spec.partitioning import parse_sort, parse_term
from frazil.spec.settings import METADATA_COLUMNS, MaintenanceSpec, MetadataField
from frazil.spec.types import parse_type
from frazil.types import Commit, DataFile, Progress, Resolved
from frazil.upsert.commit import commit_changes
from frazil.write.plain_target import plain_target
from frazil.write.target import ChangeReading, TableTarget, metadata_columns
from frazil.write.write import FileWriter
from tests.fixtures.readers import assert_equal_everywhere, read_with_duckdb
from tests.fixtures.slices import sliced
from tests.integration.lakes import KEEN, PROPERTIES, Lake
from tests.unit.ingest.targets import records_of, run

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]

Row = dict[str, Any]
LAYOUTS = ("region; bucket(id, 2)", "day(_timestamp)", "", "bucket(id, 4)", "day(at)", "truncate(name, 2)", "region")
BY_ID = ChangeReading(Reading("json"), ("id",))
_COLUMNS = {"id": "long", "region": "string", "name": "string", "at": "timestamptz", "v": "long"}
_METADATA: tuple[MetadataField, ...] = ("partition", "offset", "timestamp")
_START = datetime(2026, 3, 1, 12, tzinfo=UTC)
_BUCKET = BucketTransform(4).transform(LongType())


@pytest.fixture(scope="module")
def lake(jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(jvm, tmp_path_factory.mktemp("lake"))


def layout_of(partition_by: str, sort_by: str = "") -> Layout:
    """From terms with semicolons between them."""
    terms, sorts = (tuple(filter(None, map(str.strip, text.split(";")))) for text in (partition_by, sort_by))
    return Layout(tuple(map(parse_term, terms)), tuple(map(parse_sort, sorts)))


class Tended:
    """A table, what was told to it, and what it holds."""

    def __init__(self, lake: Lake, layout: Layout, version: int = 2) -> None:
        self.lake = lake
        self.version = version
        self.name = f"t.tended_{new_id()[:8]}"
        self.told = 0
        self._rng = np.random.default_rng(version)
        fields = {name: parse_type(word) for name, word in _COLUMNS.items()}
        fields |= metadata_columns({field: METADATA_COLUMNS[field] for field in _METADATA})
        schema = with_identifiers(new_schema(fields.items()), ["id"])
        lake.catalog.create(self.name, schema, PROPERTIES, version, layout)
        # Orphans are another test's.
        lake.table_maintenance.note(self.name, ORPHANS_NOTE, str(SystemClock().now_ms()))

    def row(self, number: int) -> Row:
        """Nulls in every column that tables are partitioned by."""
        self.told += 1
        at = _START + timedelta(hours=7 * number) if number % 11 else None
        region = ["north", "south", None][number % 3]
        name = f"é{number % 5}-{number}" if number % 7 else None
        return {"id": number, "region": region, "name": name, "at": at, "v": self.told}

    def target(self, catalog: IcebergCatalog) -> TableTarget:
        """As a task has it."""
        state = catalog.load(self.name)
        assert state is not None
        metadata = tuple((field, METADATA_COLUMNS[field]) for field in _METADATA)
        return replace(plain_target(state), metadata=metadata)

    def append(self, rows: Sequence[Row]) -> None:
        """One batch of rows that only come."""
        target = self.target(self.lake.catalog)
        writer = FileWriter(target)
        places = [
            {**row, "_partition": 1, "_offset": row["v"], "_timestamp": _START + timedelta(hours=row["v"])}
            for row in rows
        ]
        writer.write(pa.Table.from_pylist(places, target.arrow_schema))
        self._commit(self.lake.catalog, writer.finish())

    def _commit(self, catalog: IcebergCatalog, files: Sequence[DataFile]) -> None:
        catalog.commit(self._next(catalog, files))

    def _next(self, catalog: IcebergCatalog, files: Sequence[DataFile]) -> Commit:
        state = catalog.load(self.name)
        assert state is not None
        progress = Progress({"topic": {0: self.told}}, {"topic": "id"}, "c", new_id(), 1, "run")
        return Commit(self.name, tuple(files), progress, state.progress)

    @property
    def metadata(self) -> Path:
        """The newest metadata file."""
        return Path(str(self.lake.java(self.name).operations().current().metadataFileLocation()).removeprefix("file:"))

    def read(self) -> list[Row]:
        """All rows in DuckDB, by id and v; PyIceberg and Polars read the same."""
        metadata = self.lake.metadata(self.name)
        assert metadata.head is not None
        assert_equal_everywhere(self.metadata, [metadata.head])
        found = read_with_duckdb(self.metadata, metadata.head).select(list(_COLUMNS)).to_pylist()
        return in_order([{**row, "at": row["at"] and row["at"].astimezone(UTC)} for row in found])

    def files(self) -> Counter[str]:
        """How many there are in each partition."""
        return Counter(file.partition for file in self.lake.metadata(self.name).files)

    def orders(self) -> list[int]:
        """The sort order that each file reports it is in."""
        tasks = self.lake.java(self.name).newScan().planFiles().iterator()
        return [int(tasks.next().file().sortOrderId()) for _ in self.lake.metadata(self.name).files]

    def totals(self, *names: str) -> list[int]:
        """Of the newest snapshot's summary: what delete files there are even if no reader needs them."""
        summary = self.lake.java(self.name).currentSnapshot().summary()
        return [int(summary.get(name) or 0) for name in names]

    def arrange(self, layout: Layout) -> None:
        """Another layout for what comes."""
        self.lake.catalog.arrange(self.name, layout)

    # ---- an upsert table

    def upsert(
        self,
        upsert_table: dict[int, Row],
        count: int,
        meanwhile: Callable[[], object] = lambda: None,
        deletes: float = 0.15,
    ) -> Resolved:
        """A batch of changes, told to the dictionary too; meanwhile: called when the batch is read and not committed.
        deletes: their share, 0 to 1.
        """
        changes: list[tuple[int, Row | None]] = []
        for number in self._rng.integers(0, 60, count).tolist():
            row: Row | None = self.row(number)
            if self._rng.random() < deletes:
                row = None
                upsert_table.pop(number, None)
            else:
                assert row is not None
                upsert_table[number] = row
            changes.append((number, row))
        return self.change(changes, meanwhile=meanwhile)

    def change(
        self,
        changes: Sequence[tuple[int, Row | None]],
        reading: ChangeReading = BY_ID,
        emptied: str = "",
        meanwhile: Callable[[], object] = lambda: None,
    ) -> Resolved:
        """A batch of these changes: the row of each key, None for a delete. emptied: the place of a truncate among them."""
        catalog = self.lake.catalog
        target = replace(self.target(catalog), changes=reading)
        values = (None if row is None else json.dumps(row, default=datetime.isoformat).encode() for _, row in changes)
        records = [
            {"offset": self.told + n, "key": str(key).encode(), "value": value}
            for n, ((key, _), value) in enumerate(zip(changes, values, strict=True))
        ]
        (report,) = run(Job({"topic": target}), records_of(records)).values()
        state = catalog.load(self.name)
        assert state is not None
        assert not report.bad_records.count
        commit = self._next(catalog, report.written.data)
        meanwhile()
        progress = replace(commit.progress, emptied=emptied)
        report = replace(report, changes=replace(report.changes, emptied=emptied))
        return commit_changes(catalog, target, state, report, replace(commit, progress=progress))[1]


def in_order(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["id"], row["v"]))


@pytest.mark.parametrize("words", sliced(LAYOUTS, 3))
def test_files_of_one_partition_become_one_and_rows_stay(lake: Lake, words: str) -> None:
    table = Tended(lake, layout_of(words))
    rows = [table.row(number % 20) for number in range(60)]
    for start in range(0, 60, 20):
        table.append(rows[start : start + 20])
    progress = lake.told(table.name)
    before = table.files()
    assert "compact" in [outcome.action.kind for outcome in lake.maintenance(table.name) if not outcome.failure]
    assert table.files() == Counter(before.keys())
    assert table.read() == in_order(rows)
    assert lake.told(table.name) == progress
    assert "compact" not in [outcome.action.kind for outcome in lake.maintenance(table.name)]


def test_files_of_an_old_partition_spec_become_files_of_the_new_one(lake: Lake) -> None:
    table = Tended(lake, layout_of("region"))
    rows: list[Row] = []
    for words in ("region", "bucket(id, 3); region", "day(at)", "truncate(name, 2)"):
        table.arrange(layout_of(words))
        for _ in range(2):
            batch = [table.row(number) for number in range(12)]
            table.append(batch)
            rows += batch
    assert lake.maintenance(table.name)[0].failure == ""
    assert lake.maintenance(table.name)[0].failure == ""
    assert table.read() == in_order(rows)
    assert {json.loads(partition)[0] for partition in table.files()} == {3}
    assert max(table.files().values()) == 1


def test_rows_of_an_old_spec_go_to_very_many_partitions_one_file_at_a_time(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Tended(lake, layout_of("region"))
    rows = [table.row(number) for number in range(1500)]
    for start in range(0, 1500, 500):
        table.append(rows[start : start + 500])
    table.arrange(layout_of("bucket(id, 500)"))
    asked: list[dict[str, str]] = []
    writing = compaction._writing

    def noted(*known: Any) -> dict[str, str]:
        asked.append(writing(*known))
        return asked[-1]

    monkeypatch.setattr(compaction, "_writing", noted)
    assert lake.maintenance(table.name)[0].failure == ""
    assert {(words["distribution-mode"], words["fanout-enabled"]) for words in asked} == {("range", "false")}
    files = table.files()
    assert {json.loads(partition)[0] for partition in files} == {1}
    assert (len(files) > 400, max(files.values())) == (True, 1)
    assert table.read() == in_order(rows)


@pytest.mark.parametrize(
    ("partition_by", "sort_by", "key"),
    sliced(
        [
            ("region", "bucket(id, 4); v desc", lambda row: (_BUCKET(row["id"]), -row["v"])),
            ("", "at nulls last; v", lambda row: (row["at"] is None, row["at"] or _START, row["v"])),
            ("bucket(id, 2)", "v desc", lambda row: -row["v"]),
            ("region", "name; id desc", lambda row: (row["name"] is not None, row["name"] or "", -row["id"])),
            (
                "",
                "day(at) desc nulls last; id",
                lambda row: (row["at"] is None, -(row["at"] or _START).toordinal(), row["id"]),
            ),
        ],
        2,
    ),
)
def test_sorted_tables_stay_sorted(lake: Lake, partition_by: str, sort_by: str, key: Callable[[Row], Any]) -> None:
    table = Tended(lake, layout_of(partition_by, sort_by))
    rows = [table.row(number) for number in range(60)]
    for start in range(0, 60, 20):
        table.append(rows[start : start + 20])
    before = set(Path(lake.java(table.name).location()).rglob("*.parquet"))
    lake.maintenance(table.name, KEEN.model_copy(update={"snapshot_count": 100}))
    assert table.read() == in_order(rows)
    made = set(Path(lake.java(table.name).location()).rglob("*.parquet")) - before
    assert len(made) == len(table.files())
    for path in made:
        found = pq.ParquetFile(path).read().to_pylist()
        assert [row["v"] for row in found] == [row["v"] for row in sorted(found, key=key)]


@pytest.mark.parametrize(
    ("partition_by", "sort_by", "sort", "key"),
    [
        ("bucket(id, 2)", "id", ("v desc",), lambda row: -row["v"]),
        (
            "",
            "bucket(id, 4) desc; at",
            ("name", "id desc"),
            lambda row: (row["name"] is not None, row["name"], -row["id"]),
        ),
    ],
)
def test_a_compaction_sorts_as_the_file_asks_whatever_the_table_s_own_order_is(
    lake: Lake, partition_by: str, sort_by: str, sort: tuple[str, ...], key: Callable[[Row], Any]
) -> None:
    table = Tended(lake, layout_of(partition_by, sort_by))
    rows = [table.row(number) for number in range(60)]
    for start in range(0, 60, 20):
        table.append(rows[start : start + 20])
    before = set(Path(lake.java(table.name).location()).rglob("*.parquet"))
    outcomes = lake.maintenance(table.name, KEEN.model_copy(update={"snapshot_count": 100, "sort": sort}))
    assert [(one.action.kind, one.failure) for one in outcomes][:1] == [("compact", "")]
    assert table.read() == in_order(rows)
    made = set(Path(lake.java(table.name).location()).rglob("*.parquet")) - before
    assert len(made) == len(table.files())
    for path in made:
        found = read_file(path)
        assert [row["v"] for row in found] == [row["v"] for row in sorted(found, key=key)]
    assert set(table.orders()) == {0}, "nobody may take them for sorted in the table's own order"


def read_file(path: Path) -> list[Row]:
    """The rows of a data file, as they lie there."""
    rows: list[Row] = pq.ParquetFile(path).read().to_pylist()
    return rows


def place_on_curve(values: Iterable[Any]) -> str:
    """Where a row lies on Iceberg's Z-curve: the bits of eight ordered bytes of each value, first all the highest ones."""
    return "".join(map("".join, zip(*(f"{_ordered(value):064b}" for value in values), strict=True)))


def _ordered(value: int | str | datetime | None) -> int:
    """Eight bytes that are in the order of the values, as a number; nulls come first."""
    if value is None:
        return 0
    if isinstance(value, str):
        return int.from_bytes(value.encode()[:8].ljust(8, b"\0"))
    return 2**63 + (value if isinstance(value, int) else int(value.timestamp()))


@pytest.mark.parametrize(
    ("partition_by", "sort_by", "columns", "ordering"),
    sliced(
        [
            ("bucket(id, 2)", "v desc", ("v", "name"), ("v", "name")),
            ("region", "", ("region", "at", "id"), ("at", "id")),
            ("", "", ("id", "v"), ("id", "v")),
            ("", "name", ("_partition", "_offset", "id"), ("_partition", "_offset", "id")),
        ],
        2,
    ),
)
def test_files_follow_a_z_curve_where_the_file_asks_whatever_the_table_s_own_order_is(
    lake: Lake, partition_by: str, sort_by: str, columns: tuple[str, ...], ordering: tuple[str, ...]
) -> None:
    table = Tended(lake, layout_of(partition_by, sort_by))
    rows = [table.row(number * 37 % 120) for number in range(120)]
    for start in range(0, 120, 30):
        table.append(rows[start : start + 30])
    before = set(Path(lake.java(table.name).location()).rglob("*.parquet"))
    outcomes = lake.maintenance(table.name, KEEN.model_copy(update={"snapshot_count": 100, "zorder": columns}))
    assert [(one.action.kind, one.failure) for one in outcomes][:1] == [("compact", "")]
    assert table.read() == in_order(rows)
    made = set(Path(lake.java(table.name).location()).rglob("*.parquet")) - before
    assert len(made) == len(table.files())
    for path in made:
        # Spark has written a column of a name that it keeps for itself under another one.
        found = [{name.partition("__")[0]: value for name, value in row.items()} for row in read_file(path)]
        places = [place_on_curve(row[name] for name in ordering) for row in found]
        assert places == sorted(places)
        for name in ordering if ordering == ("id", "v") else ():
            values = [row[name] for row in found]
            assert values != sorted(values), "no column alone is in order"
    assert set(table.orders()) == {0}, "nobody may take them for sorted in the table's own order"


def test_files_of_one_group_are_pieces_of_the_curve(lake: Lake) -> None:
    table = Tended(lake, layout_of(""))
    rows = [table.row(number * 37 % 240) for number in range(240)]
    for start in range(0, 240, 60):
        table.append(rows[start : start + 60])
    target = sum(file.size_bytes for file in lake.metadata(table.name).files) // 3
    options = {"rewrite-all": "true", "target-file-size-bytes": str(target), "min-file-size-bytes": "1"}
    options["max-file-size-bytes"] = str(10 * target)
    before = set(Path(lake.java(table.name).location()).rglob("*.parquet"))
    table_maintenance = IcebergMaintenance(lake.catalog, lake.jvm.session, 3, merge_of)
    assert table_maintenance.compact(table.name, Compaction(options, zorder=("id", "v"))).added > 1
    assert table.read() == in_order(rows)
    made = set(Path(lake.java(table.name).location()).rglob("*.parquet")) - before
    pieces = [[place_on_curve((row["id"], row["v"])) for row in read_file(path)] for path in made]
    pieces.sort(key=lambda places: places[0])
    assert [place for places in pieces for place in places] == sorted(place for places in pieces for place in places)


@pytest.mark.parametrize("version", sliced([3, 2], 1))
def test_an_upsert_table_is_put_on_a_z_curve_without_its_deleted_rows(lake: Lake, version: int) -> None:
    table = Tended(lake, layout_of(""), version)
    upsert_table: dict[int, Row] = {}
    for _ in range(4):
        table.upsert(upsert_table, 40)
    progress = lake.told(table.name)
    assert lake.maintenance(table.name, KEEN.model_copy(update={"zorder": ("id", "v")}))[0].failure == ""
    assert table.read() == in_order(list(upsert_table.values()))
    assert lake.told(table.name) == progress
    assert table.totals("total-delete-files", "total-data-files") == [0, 1]


@pytest.mark.parametrize(
    ("version", "words"),
    sliced([(2, ""), (3, "bucket(id, 3)"), (3, ""), (2, "bucket(id, 3)"), (2, "day(at)"), (3, "day(at)")], 2),
)
def test_an_upsert_table_is_compacted_with_its_deletes(lake: Lake, version: int, words: str) -> None:
    table = Tended(lake, layout_of(words), version)
    upsert_table: dict[int, Row] = {}
    for _ in range(5):
        table.upsert(upsert_table, 40)
    assert lake.metadata(table.name).deletes
    assert table.read() == in_order(list(upsert_table.values()))
    progress = lake.told(table.name)
    assert lake.maintenance(table.name)[0].failure == ""
    assert table.read() == in_order(list(upsert_table.values()))
    assert lake.told(table.name) == progress
    metadata = lake.metadata(table.name)
    assert [file.deleted for file in metadata.files if file.deleted] == []
    assert (metadata.deletes, table.totals("total-delete-files", "total-position-deletes")) == ((), [0, 0])
    assert set(table.files().values()) == {1}
    for _ in range(2):
        table.upsert(upsert_table, 20)
    assert table.read() == in_order(list(upsert_table.values()))


@pytest.mark.parametrize("version", sliced([3, 2], 1))
def test_files_without_a_row_left_go_with_their_deletes(lake: Lake, version: int) -> None:
    table = Tended(lake, layout_of(""), version)
    upsert_table: dict[int, Row] = {}
    for deletes in (0.0, 0.0, 1.0):
        table.upsert(upsert_table, 900, deletes=deletes)
    assert upsert_table == {}
    assert lake.maintenance(table.name)[0].failure == ""
    assert (table.read(), table.files()) == ([], Counter())
    assert table.totals("total-data-files", "total-delete-files") == [0, 0]


@pytest.mark.parametrize("version", sliced([2, 3], 1))
def test_a_compaction_by_another_process_makes_rows_be_looked_up_again(lake: Lake, version: int) -> None:
    table = Tended(lake, layout_of("bucket(id, 3)"), version)
    upsert_table: dict[int, Row] = {}
    for _ in range(4):
        assert table.upsert(upsert_table, 40).tries == 1
    other = Lake(lake.jvm, lake.root)
    resolved = table.upsert(upsert_table, 40, lambda: other.maintenance(table.name, KEEN))
    assert resolved.tries == 2
    assert table.read() == in_order(list(upsert_table.values()))
    other.maintenance(table.name, KEEN)
    for _ in range(2):
        assert table.upsert(upsert_table, 40).tries == 1
        assert table.read() == in_order(list(upsert_table.values()))


@pytest.mark.parametrize("spec", sliced([KEEN, KEEN.model_copy(update={"zorder": ("id", "v")})], 1))
def test_a_compaction_that_is_sent_twice_keeps_what_it_wrote(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, spec: MaintenanceSpec
) -> None:
    table = Tended(lake, layout_of(""), 2)
    rows = [table.row(number) for number in range(20)]
    for start in (0, 10):
        table.append(rows[start : start + 10])
    send = RewriteCommit._replace

    def send_twice(commit: RewriteCommit, rewrite: Any, *files: Any) -> Any:
        send(commit, rewrite, *files).commit()
        return send(commit, lake.java(table.name).newRewrite(), *files)

    monkeypatch.setattr(RewriteCommit, "_replace", send_twice)
    done = lake.maintenance(table.name, spec)[0].rewritten
    assert (done.removed, done.added, done.lost) == (2, 1, 0)
    assert table.read() == in_order(rows)


@pytest.mark.parametrize("spec", sliced([KEEN.model_copy(update={"zorder": ("id", "v")}), KEEN], 1))
def test_a_compaction_that_is_lost_leaves_no_file_behind(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, spec: MaintenanceSpec
) -> None:
    table = Tended(lake, layout_of("bucket(id, 2)"), 3)
    upsert_table: dict[int, Row] = {}
    for _ in range(3):
        table.upsert(upsert_table, 40)
    send = RewriteCommit._replace

    def send_late(commit: RewriteCommit, rewrite: Any, *files: Any) -> Any:
        table.upsert(upsert_table, 40)
        return send(commit, rewrite, *files)

    monkeypatch.setattr(RewriteCommit, "_replace", send_late)
    done = lake.maintenance(table.name, spec)[0].rewritten
    assert (done.removed, done.added) == (0, 0)
    assert done.lost > 0
    assert table.read() == in_order(list(upsert_table.values()))
    written = Path(lake.java(table.name).location()).rglob("*-00001.parquet")
    assert list(written) == [], "as Spark names its files"
