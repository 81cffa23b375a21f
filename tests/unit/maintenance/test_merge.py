"""Files combined by table maintenance: every row as it was, with its id; and what is left to Iceberg's own writer."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import LongType, NestedField, StringType
from pyroaring import BitMap64

from frazil import failpoints
from frazil.catalog.maintenance_port import Merging
from frazil.catalog.port import StoredLayout, TableState
from frazil.catalog.scans import LiveFile, numbered
from frazil.maintenance import merge_task
from frazil.maintenance.merge_task import merge_files, merge_of
from frazil.schema.evolve import new_schema
from frazil.spec.syntax.types import parse_type
from frazil.types import DataFile, DeleteFile, Progress
from frazil.upsert.lookup.delete_files import write_deletes
from frazil.write.target import TableTarget
from frazil.write.write import FileWriter
from tests.unit.ingest.targets import EVERY_KIND, changed, target_of

Row = dict[str, Any]
LARGE = 1 << 30
FULL: Row = {
    "id": 7, "n": 1, "f": 0.5, "x": -0.0, "b": True, "s": "é" * 20, "d": Decimal("1.50"), "day": date(2026, 1, 31),
    "at": datetime(2026, 1, 31, 12, tzinfo=UTC), "local": datetime.fromisoformat("2026-01-31T12:00"), "t": time(12),
    "u": bytes(16), "raw": b"\x00\xff", "two": b"ab", "l": [{"k": "a"}, None, {"k": None}], "m": [("k", [1, 2]), ("e", [])],
    "deep": {"a": {"z": 5}},
}  # fmt: skip
EMPTY: Row = dict.fromkeys(FULL)


def written(target: TableTarget, rows: Sequence[Row], first_row_id: int | None = None) -> LiveFile:
    writer = FileWriter(target)
    writer.write(pa.Table.from_pylist(list(rows), target.arrow_schema))
    (file,) = writer.finish()
    return live(file, first_row_id)


def live(file: DataFile, first_row_id: int | None = None) -> LiveFile:
    return LiveFile(file.path, file.record_count, numbered(file.content, first_row_id))


def merged(target: TableTarget, *files: LiveFile, keeps_ids: bool = False) -> list[DataFile] | None:
    return merge_files(target, keeps_ids, Merging(tuple((file, 10 + n) for n, file in enumerate(files)), "", LARGE))


def rows_of(path: str) -> list[Row]:
    rows: list[Row] = pq.read_table(path).to_pylist()
    return rows


def files_in(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*.*") if path.is_file()}


def test_rows_of_every_type_go_over_as_they_are_in_the_order_of_their_files(tmp_path: Path) -> None:
    target = target_of(tmp_path, EVERY_KIND)
    first, second = written(target, [FULL, EMPTY]), written(target, [EMPTY, {**FULL, "id": -1}])
    (file,) = merged(target, first, second) or []
    assert rows_of(file.path) == rows_of(first.path) + rows_of(second.path) == [FULL, EMPTY, EMPTY, {**FULL, "id": -1}]
    assert pq.read_schema(file.path).equals(pq.read_schema(first.path), check_metadata=True)
    status = json.loads(file.content)
    assert status["record-count"] == file.record_count == 4
    assert bytes.fromhex(dict(zip(*status["lower-bounds"].values(), strict=True))[1]) == struct.pack("<q", -1)


@pytest.mark.parametrize("version", [2, 3])
def test_deleted_rows_do_not_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    monkeypatch.setattr(merge_task, "_ROWS", 7)
    target = target_of(tmp_path, {"id": "long", "s": "string"})
    files = [written(target, [{"id": start + n, "s": str(n)} for n in range(20)]) for start in (0, 100, 200)]
    gone = {files[0]: BitMap64([0, 6, 7, 13, 19]), files[1]: BitMap64(range(20))}
    deletes = write_deletes(target, gone, version)
    files = [replace(one, deletes=tuple(d for d in deletes if d.data_file == one.path)) for one in files]
    (file,) = merged(target, *files) or []
    left = [n for n in range(20) if n not in (0, 6, 7, 13, 19)] + [200 + n for n in range(20)]
    assert [row["id"] for row in rows_of(file.path)] == left


def test_deletes_that_speak_of_many_files_take_from_each_its_own(tmp_path: Path) -> None:
    target = target_of(tmp_path, {"id": "long"})
    files = [written(target, [{"id": start + n} for n in range(5)]) for start in (0, 10)]
    told = [(files[0].path, 1), (files[0].path, 4), (files[1].path, 0), (f"{files[1].path}x", 2)]
    path = f"{tmp_path}/deletes.parquet"
    pq.write_table(pa.table({"file_path": [of for of, _ in told], "pos": [at for _, at in told]}), path)
    delete = DeleteFile(path, "positions", "", 4, '{"file-format": "parquet"}')
    (file,) = merged(target, *(replace(one, deletes=(delete,)) for one in files)) or []
    assert [row["id"] for row in rows_of(file.path)] == [0, 2, 3, 11, 12, 13, 14]


def test_files_of_which_every_row_is_deleted_become_none(tmp_path: Path) -> None:
    target = target_of(tmp_path, {"id": "long"})
    file = written(target, [{"id": 1}, {"id": 2}])
    (delete,) = write_deletes(target, {file: BitMap64([0, 1])}, 3)
    assert merged(target, replace(file, deletes=(delete,)), keeps_ids=True) == []


def test_rows_keep_their_ids_and_last_change_however_often_files_are_merged(tmp_path: Path) -> None:
    target = target_of(tmp_path, {"id": "long"})
    files = [written(target, [{"id": n}] * 3, first) for n, first in ((0, 40), (1, 900), (2, None))]
    (delete,) = write_deletes(target, {files[1]: BitMap64([0])}, 3)
    files[1] = replace(files[1], deletes=(delete,))
    (once,) = merged(target, *files, keeps_ids=True) or []
    ids = [(0, 40, 10), (0, 41, 10), (0, 42, 10), (1, 901, 11), (1, 902, 11), *[(2, None, None)] * 3]
    assert lineage_of(once.path) == ids
    (twice,) = merged(target, live(once, 5000), written(target, [{"id": 3}], 6000), keeps_ids=True) or []
    # The commit numbers what had no number, by its place in the file that it was committed in.
    new = [(2, 5005, 10), (2, 5006, 10), (2, 5007, 10), (3, 6000, 11)]
    assert lineage_of(twice.path) == [*ids[:5], *new]


def lineage_of(path: str) -> list[tuple[int, int | None, int | None]]:
    return [(row["id"], row["_row_id"], row["_last_updated_sequence_number"]) for row in rows_of(path)]


def test_columns_added_or_dropped_since_a_file_are_known_by_their_ids(tmp_path: Path) -> None:
    old = target_of(tmp_path, {"id": "long", "gone": "string", "name": "string"})
    fields = {field.name: field for field in old.schema.fields}
    now = old.schema.model_copy(update={"fields": (
        fields["name"].model_copy(update={"name": "title"}), fields["id"],
        NestedField(9, "added", LongType(), required=False), NestedField(10, "gone", StringType(), required=False),
    )})  # fmt: skip
    target = replace(old, schema_json=now.model_dump_json())
    (file,) = merged(target, written(old, [{"id": 1, "gone": "x", "name": "a"}])) or []
    assert rows_of(file.path) == [{"title": "a", "id": 1, "added": None, "gone": None}]


def test_a_filter_is_for_all_rows_of_the_new_file(tmp_path: Path) -> None:
    target = target_of(tmp_path, {"k": "long"}, properties={"write.parquet.bloom-filter-enabled.column.k": "true"})
    files = [written(target, [{"k": 100 * start + n} for n in range(100)]) for start in range(50)]
    (file,) = merged(target, *files) or []
    sizes = [pq.read_metadata(path).row_group(0).column(0).bloom_filter_length for path in (files[0].path, file.path)]
    assert sizes[1] > 20 * sizes[0], "one for so few values would say yes to all"


def test_files_of_a_partition_stay_in_its_folder_with_its_values(tmp_path: Path) -> None:
    spec = {"spec-id": 0, "fields": [{"name": "s", "transform": "identity", "source-id": 2, "field-id": 1000}]}
    target = target_of(tmp_path, {"id": "long", "s": "string"}, partition_spec=json.dumps(spec))
    long = "ü" * 300
    files = [written(target, [{"id": n, "s": long}]) for n in range(2)]
    folder = f"s={'%C3%BC' * 300}"
    (done,) = merge_files(target, False, Merging(tuple((one, 1) for one in files), folder, LARGE)) or []
    assert Path(done.path).parent == Path(files[0].path).parent
    assert json.loads(done.content)["partition"] == json.loads(files[0].content)["partition"]
    by_id = [
        replace(one, content=json.dumps({**json.loads(one.content), "partition": {"1000": long}})) for one in files
    ]
    (done,) = merge_files(target, False, Merging(tuple((one, 1) for one in by_id), folder, LARGE)) or []
    assert json.loads(done.content)["partition"] == [long]


def test_a_file_ends_at_the_size_that_is_asked_for(tmp_path: Path) -> None:
    target = target_of(tmp_path, {"s": "string"})
    rng = np.random.default_rng(1)
    files = [written(target, [{"s": rng.bytes(500).hex()} for _ in range(100)]) for _ in range(20)]
    sizes = [json.loads(file.content)["file-size-in-bytes"] for file in files]
    done = merge_files(target, False, Merging(tuple((one, 1) for one in files), "", sum(sizes) // 4)) or []
    assert len(done) in (4, 5)
    assert [row for file in done for row in rows_of(file.path)] == [row for file in files for row in rows_of(file.path)]


def _other_type(target: TableTarget) -> TableTarget:
    return target_of(
        Path(target.files.location).parent.parent, {"id": "double", "s": "string", "in": "struct<a: long>"}
    )


def _inside(target: TableTarget) -> TableTarget:
    return target_of(
        Path(target.files.location).parent.parent, {"id": "long", "s": "string", "in": "struct<a: long, b: long>"}
    )


def _with(target: TableTarget, *more: NestedField) -> TableTarget:
    fields = (*target.schema.fields, *more)
    return replace(target, schema_json=target.schema.model_copy(update={"fields": fields}).model_dump_json())


def _defaulted(target: TableTarget) -> TableTarget:
    return _with(target, NestedField(30, "new", LongType(), required=False, initial_default=5))


def _required(target: TableTarget) -> TableTarget:
    return _with(target, NestedField(30, "new", LongType(), required=True, initial_default=5))


def _required_now(target: TableTarget) -> TableTarget:
    first, *others = target.schema.fields
    fields = (first.model_copy(update={"required": True}), *others)
    return replace(target, schema_json=target.schema.model_copy(update={"fields": fields}).model_dump_json())


def _of_a_partition(target: TableTarget) -> TableTarget:
    spec = {"spec-id": 0, "fields": [{"name": "p", "transform": "identity", "source-id": 30, "field-id": 1000}]}
    return changed(_with(target, NestedField(30, "p", LongType(), required=False)), partition_spec=json.dumps(spec))


@pytest.mark.parametrize(
    "change",
    [_other_type, _inside, _defaulted, _required, _required_now, _of_a_partition],
    ids=lambda one: one.__name__,
)
def test_files_with_other_columns_than_the_table_are_left_to_iceberg(
    tmp_path: Path, change: Callable[[TableTarget], TableTarget]
) -> None:
    target = target_of(tmp_path, {"id": "long", "s": "string", "in": "struct<a: long>"})
    files = [written(target, [{"id": 1, "s": "a", "in": {"a": 1}}]) for _ in range(2)]
    there = files_in(tmp_path)
    assert merged(change(target), *files) is None
    assert files_in(tmp_path) == there


def test_files_without_ids_damaged_or_unexpected_are_left_to_iceberg(tmp_path: Path) -> None:
    target = target_of(tmp_path, {"id": "long"})
    good, other = written(target, [{"id": 1}]), written(target, [{"id": 1}])
    there = files_in(tmp_path)
    assert merged(target, good, replace(other, record_count=2)) is None
    pq.write_table(pa.table({"id": pa.array([1])}), other.path)
    assert merged(target, good, other) is None
    Path(other.path).write_bytes(Path(other.path).read_bytes()[:-9])
    assert merged(target, good, other) is None
    Path(other.path).unlink()
    assert merged(target, good, other) is None
    assert files_in(tmp_path) == there - {other.path}


def test_text_that_is_no_utf8_is_left_to_iceberg(tmp_path: Path) -> None:
    target = target_of(tmp_path, {"s": "string"})
    file = written(target, [{"s": "a"}])
    ends = pa.py_buffer(np.array([0, 1], np.int32).tobytes())
    text = pa.Array.from_buffers(pa.string(), 1, [None, ends, pa.py_buffer(b"\xff")])
    pq.write_table(pa.Table.from_arrays([text], schema=target.arrow_schema), file.path, store_schema=False)
    assert merged(target, file) is None
    assert files_in(tmp_path) == {file.path}


def test_a_file_is_read_in_few_requests_however_many_columns_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[int] = []

    class Asked(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            requests.append(size or 0)
            return super().read(size)

    def opened(path: str) -> SimpleNamespace:
        return SimpleNamespace(open=lambda: pa.PythonFile(Asked(Path(path).read_bytes()), "r"))

    target = target_of(tmp_path, {f"c{n}": "long" for n in range(50)})
    file = written(target, [{f"c{n}": row for n in range(50)} for row in range(100)])
    monkeypatch.setattr(merge_task, "file_io", lambda _: SimpleNamespace(new_input=opened))
    (done,) = merged(target, file) or []
    assert rows_of(done.path) == rows_of(file.path)
    assert 1 <= len(requests) <= 4


@pytest.mark.parametrize("row_group_rows", [10_000, 50])
def test_few_rows_are_in_memory_at_a_time_where_they_are_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row_group_rows: int
) -> None:
    sizes: list[int] = []

    class Watched(FileWriter):
        def write(self, rows: pa.Table) -> None:
            sizes.append(rows.nbytes)
            super().write(rows)

    target = target_of(tmp_path, {"id": "long", "s": "string"})
    file = written(target, [{"id": 1, "s": "a"}])
    # One text in all rows is a few bytes in the file; then row groups alone tell how many rows are not too many.
    texts = [f"{n if row_group_rows > 1000 else 0:1000}" for n in range(1000)]
    rows = pa.Table.from_arrays([pa.array(range(1000), pa.int64()), pa.array(texts)], schema=target.arrow_schema)
    pq.write_table(rows, file.path, row_group_size=row_group_rows, store_schema=False)
    monkeypatch.setattr(merge_task, "FileWriter", Watched)
    monkeypatch.setattr(merge_task, "_BYTES", 100_000)
    (done,) = merged(target, replace(file, record_count=1000)) or []
    assert rows_of(done.path) == rows.to_pylist()
    assert max(sizes) < 120_000


@pytest.mark.parametrize("action", ["enospc", "error"])
def test_nothing_is_left_of_what_could_not_be_written(tmp_path: Path, action: str) -> None:
    target = target_of(tmp_path, {"id": "long"})
    files = [written(target, [{"id": n}]) for n in range(2)]
    there = files_in(tmp_path)
    try:
        failpoints.arm({failpoints.VARIABLE: f"task.close={action}"})
        with pytest.raises(RuntimeError) if action == "error" else nullcontext():
            assert merged(target, *files) is None
    finally:
        failpoints.arm({})
    assert files_in(tmp_path) == there


def state_of(columns: dict[str, str], version: int, **other: Any) -> TableState:
    fields = {name: parse_type(word) for name, word in columns.items()}
    return TableState("n.t", "u", new_schema(fields.items()), "file:/x", {}, version, Progress(), **other)


def test_tables_that_only_icebergs_own_writer_can_write_are_left_to_it() -> None:
    by_id = {"transform": "identity", "source-id": 1, "direction": "asc", "null-order": "nulls-first"}
    order = {"order-id": 1, "fields": [by_id]}
    assert merge_of(state_of({"id": "long"}, 2)) is not None
    assert merge_of(state_of({"_row_id": "long"}, 2)) is not None
    assert merge_of(state_of({"_row_id": "long"}, 3)) is None
    assert merge_of(state_of({}, 3)) is None
    assert merge_of(state_of({"id": "long"}, 3, layout=StoredLayout(sort_order=json.dumps(order)))) is None
