"""Table maintenance of tables that are partitioned, sorted and upsert table changes: by Iceberg's own actions on a
local lake, read by DuckDB and PyIceberg. What is in them is what a plain list or dictionary reports; files are one for
each partition.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType

from frazil.catalog.iceberg import compaction
from frazil.catalog.iceberg.commits import Sending
from frazil.catalog.iceberg.maintenance import IcebergMaintenance
from frazil.catalog.iceberg.rewrite_commit import RewriteCommit
from frazil.catalog.maintenance_port import Compaction
from frazil.maintenance.merge_task import merge_of
from frazil.runtime.jvm import Jvm
from frazil.spec.settings import MaintenanceSpec, SnapshotsSpec
from tests.fixtures.slices import sliced
from tests.integration.lakes import KEEN, Lake
from tests.integration.tended import START, Row, Tended, in_order, layout_of

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]

LAYOUTS = ("region; bucket(id, 2)", "day(_timestamp)", "", "bucket(id, 4)", "day(at)", "truncate(name, 2)", "region")
_BUCKET = BucketTransform(4).transform(LongType())


@pytest.fixture(scope="module")
def lake(jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(jvm, tmp_path_factory.mktemp("lake"))


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
    rows = [table.row(number) for number in range(600)]
    for start in range(0, 600, 200):
        table.append(rows[start : start + 200])
    table.arrange(layout_of("bucket(id, 200)"))
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
    assert (len(files) > 160, max(files.values())) == (True, 1)
    assert table.read() == in_order(rows)


@pytest.mark.parametrize(
    ("partition_by", "sort_by", "key"),
    sliced(
        [
            ("region", "bucket(id, 4); v desc", lambda row: (_BUCKET(row["id"]), -row["v"])),
            ("", "at nulls last; v", lambda row: (row["at"] is None, row["at"] or START, row["v"])),
            ("bucket(id, 2)", "v desc", lambda row: -row["v"]),
            ("region", "name; id desc", lambda row: (row["name"] is not None, row["name"] or "", -row["id"])),
            (
                "",
                "day(at) desc nulls last; id",
                lambda row: (row["at"] is None, -(row["at"] or START).toordinal(), row["id"]),
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
    lake.maintenance(table.name, KEEN.model_copy(update={"snapshots": SnapshotsSpec(kept=100)}))
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
    outcomes = lake.maintenance(
        table.name, KEEN.model_copy(update={"snapshots": SnapshotsSpec(kept=100), "sort": sort})
    )
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
            ("", "name", ("_kafka_partition", "_offset", "id"), ("_kafka_partition", "_offset", "id")),
        ],
        2,
    ),
)
def test_files_follow_a_z_curve_on_request_whatever_the_tables_own_order(
    lake: Lake, partition_by: str, sort_by: str, columns: tuple[str, ...], ordering: tuple[str, ...]
) -> None:
    table = Tended(lake, layout_of(partition_by, sort_by))
    rows = [table.row(number * 37 % 120) for number in range(120)]
    for start in range(0, 120, 30):
        table.append(rows[start : start + 30])
    before = set(Path(lake.java(table.name).location()).rglob("*.parquet"))
    settings = KEEN.model_copy(update={"snapshots": SnapshotsSpec(kept=100), "zorder": columns})
    outcomes = lake.maintenance(table.name, settings)
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
    replace, send = RewriteCommit._replace, Sending.send
    made: list[tuple[Any, ...]] = []

    def replace_noted(commit: RewriteCommit, update: Any, *files: Any) -> Any:
        made.append((commit, files))
        return replace(commit, update, *files)

    def send_twice(sending: Sending, update: Any) -> Any:
        send(sending, update)
        commit, files = made[-1]
        replace(commit, lake.java(table.name).newRewrite(), *files).commit()

    monkeypatch.setattr(RewriteCommit, "_replace", replace_noted)
    monkeypatch.setattr(Sending, "send", send_twice)
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
