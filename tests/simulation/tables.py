"""A table as other programs see it, and what they do to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from frazil.catalog.progress import COMMIT_ID
from frazil.catalog.progress import key as summary_key
from frazil.catalog.scans import LiveFile, delete_file_of
from frazil.catalog.table_metadata import MetadataSizes, Snapshot, TableMetadata, carried_progress
from frazil.clock import new_id
from frazil.maintenance.retention import Retention, expirable, needs_carrying
from frazil.types import DataFile
from frazil.upsert.lookup.delete_files import read_deletes, write_deletes
from frazil.write.plain_target import plain_target
from frazil.write.target import TableTarget, lineage_schema
from frazil.write.write import FileWriter
from frazil_testing.memory_table import MemorySnapshot
from frazil_testing.twins import MemoryCatalog
from tests.fixtures.lineage import COLUMNS, ids_of_file
from tests.simulation.faults import Fate
from tests.simulation.upsert_model import Row

ROW_ID = "_row_id"
REPORTED = summary_key("sim", COMMIT_ID)
"""What a snapshot with progress reports."""


class Meddling(Fate):
    """Others get their turn when a commit is about to be made. meddle: what they do."""

    meddle: Callable[[], None]

    def step(self, name: str) -> None:
        if name == "catalog.commit" and self.maybe(0.15):
            self.meddle()
        super().step(name)


class SharedTable:
    """A table of the catalog in memory that others write to."""

    def __init__(self, catalog: MemoryCatalog, name: str, fate: Fate) -> None:
        self._catalog = catalog
        self._name = name
        self._fate = fate
        self._rows_of_files: dict[str, list[Row]] = {}
        self._deleted: dict[LiveFile, frozenset[int]] = {}
        self._equal: dict[str, Callable[[Row], bool]] = {}

    @property
    def has_snapshots(self) -> bool:
        """Whether anything was committed to it."""
        return self._catalog.load(self._name) is not None and bool(self._catalog.ancestors(self._name))

    def touch(self) -> int:
        """A commit that changes nothing; the snapshot."""
        return self._catalog.append_foreign(self._name)

    def add(self, row: Row) -> int | None:
        """A row more; the snapshot, or None where the table lacks a column for it."""
        target = self._target()
        names = {field.name for field in target.fields} | {name for _, name in target.metadata}
        if not names.issuperset(row):
            return None
        return self._catalog.append_foreign(self._name, self._written(target, [row]))

    def has_columns(self, names: Iterable[str]) -> bool:
        """Whether it has columns of these names."""
        return {field.name for field in self._target().fields}.issuperset(names)

    def compact(self) -> None:
        """Some files become one, without the rows that are deleted."""
        chosen = [file for file in self._catalog.scan(self._name).files if self._fate.maybe(0.6)]
        target = self._target()
        rows = [row for file in chosen for row in self._rows(target, file)]
        if chosen:
            paths = frozenset(file.path for file in chosen)
            self._catalog.append_foreign(self._name, self._written(target, rows) if rows else (), paths)

    def delete(self, is_gone: Callable[[Row], bool]) -> int:
        """Takes rows away by their places; the snapshot."""
        target, deleted = self._target(), dict[LiveFile, BitMap64]()
        for file in self._catalog.scan(self._name).files:
            places = [place for place, row in self._placed(target, file) if is_gone(row)]
            if places:
                deleted[file] = read_deletes(target, file.path, file.deletes) | BitMap64(places)
        replaced = frozenset(delete for file in deleted for delete in file.deletes if delete.is_of_one_file)
        state = self._catalog.load(self._name)
        assert state is not None
        deletes = tuple(write_deletes(target, deleted, state.format_version))
        return self._catalog.append_foreign(self._name, deletes=deletes, replaced=replaced)

    def delete_equal(self, row: Row, names: Sequence[str], is_gone: Callable[[Row], bool]) -> int:
        """Takes rows away that have the values of `row` in these columns, as writers do that do not look rows up; the
        snapshot.
        """
        target = self._target()
        path = Path(target.files.location) / f"{new_id()}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        schema = pa.schema([target.arrow_schema.field(name) for name in row])
        pq.write_table(pa.Table.from_pylist([dict(row)], schema=schema), path)
        content = {"content": "equality-deletes", "file-path": str(path), "file-format": "PARQUET", "record-count": 1}
        ids = [target.schema.find_field(name).field_id for name in names]
        delete = delete_file_of(json.dumps({**content, "equality-ids": ids}))
        self._equal[str(path)] = is_gone
        files = self._catalog.scan(self._name).files
        deletes = tuple(replace(delete, data_file=file.path) for file in files)
        return self._catalog.append_foreign(self._name, deletes=deletes)

    def upgrade(self) -> None:
        """Its format is the newest; what was written in an older one stays."""
        self._catalog.upgrade(self._name, 3)

    def carry(self) -> Retention:
        """What table maintenance reports again before it expires snapshots, at times where it need not; which of them
        are to stay.
        """
        if self._fate.maybe(0.5):  # As a compaction is, which has no progress.
            self.touch()
        line = self._catalog.ancestors(self._name)
        retention = Retention(age_ms=self._fate.pick(0, 20), count=self._fate.pick(1, 12))
        if needs_carrying(self._look(line), retention) or self._fate.maybe(0.5):
            document = [{"snapshot-id": s.id, "parent-snapshot-id": s.parent, "summary": s.summary} for s in line]
            metadata = {
                "current-snapshot-id": line[0].id,
                "snapshots": [{**one, "timestamp-ms": 0} for one in document],
            }
            if carried := carried_progress(json.dumps(metadata, default=dict)):
                self._catalog.append_foreign(self._name, summary=carried)
        return retention

    def expire(self, retention: Retention) -> set[str]:
        """What table maintenance does; the paths of files that only those name which go. None where the main branch has no
        progress: a table that has lost its beginning would be taken for one whose progress was expired.
        """
        line, named = self._catalog.ancestors(self._name), self._named()
        if any(REPORTED in snapshot.summary for snapshot in line):
            for snapshot in expirable(self._look(line), retention, (), line[0].id):
                self._catalog.expire(self._name, snapshot)
        return named - self._named()

    def _look(self, line: Sequence[MemorySnapshot]) -> TableMetadata:
        """Of which the time is the number of the snapshot."""
        snapshots = {
            one.id: Snapshot(
                one.id,
                one.parent,
                at_ms=one.id,
                progress={"sim": one.summary[REPORTED]} if REPORTED in one.summary else {},
                removes_files=bool(one.removed or one.replaced),
            )
            for one in line
        }
        state = self._catalog.load(self._name)
        assert state is not None
        return TableMetadata(
            self._name, state.uuid, state.location, 3, MetadataSizes(0), {}, snapshots, line[0].id if line else None
        )

    def _named(self) -> set[str]:
        """The paths of all files that its snapshots name."""
        files = [file for one in self._catalog.ancestors(self._name) for file in self._files_at(one.id)]
        return {file.path for file in files} | {delete.path for file in files for delete in file.deletes}

    def rows_at(self, snapshot: int) -> list[Row]:
        """What a reader sees."""
        target = self._target()
        return [row for file in self._files_at(snapshot) for row in self._rows(target, file)]

    def _files_at(self, snapshot: int) -> tuple[LiveFile, ...]:
        head = self._catalog.ancestors(self._name)[0].id
        self._catalog.roll_back(self._name, snapshot)
        files = self._catalog.scan(self._name).files
        self._catalog.roll_back(self._name, head)
        return files

    def _target(self) -> TableTarget:
        state = self._catalog.load(self._name)
        assert state is not None
        return plain_target(state)

    @staticmethod
    def _written(target: TableTarget, rows: list[Row]) -> tuple[DataFile, ...]:
        schema = lineage_schema(target) if any(ROW_ID in row for row in rows) else target.arrow_schema
        writer = FileWriter(target, schema)
        writer.write(pa.Table.from_pylist([dict(row) for row in rows], schema=schema))
        return tuple(writer.finish())

    def _rows(self, target: TableTarget, file: LiveFile) -> list[Row]:
        """What is left of a file's rows."""
        return [row for _, row in self._placed(target, file)]

    def _placed(self, target: TableTarget, file: LiveFile) -> Iterator[tuple[int, Row]]:
        """The same with their places in the file."""
        if file.path not in self._rows_of_files:
            rows, ids = pq.ParquetFile(file.path).read().to_pylist(), ids_of_file(file)
            self._rows_of_files[file.path] = [
                row if number is None else {**row, ROW_ID: number} for row, number in zip(rows, ids, strict=True)
            ]
        if file not in self._deleted:
            self._deleted[file] = frozenset(read_deletes(target, file.path, file.deletes))
        rows, deleted = self._rows_of_files[file.path], self._deleted[file]
        assert len(rows) == file.record_count
        equal = [self._equal[delete.path] for delete in file.deletes if delete.kind == "equality"]
        for place, row in enumerate(rows):
            if place not in deleted and not any(is_gone(row) for is_gone in equal):
                yield place, row


def words(row: Row) -> str:
    """A row as text; an absent field and a null are the same, and so is a struct of nulls. Its id is no part of it."""
    told = {name: value for name, value in row.items() if name not in COLUMNS.values()}
    return json.dumps(_present(told), sort_keys=True, default=str)


class Lineage:
    """The ids of keys' rows over snapshots, oldest first."""

    def __init__(self) -> None:
        self._now: dict[str, set[int]] = {}
        self._seen: set[int] = set()

    def recreate(self) -> None:
        """All rows are gone: those that come have other ids."""
        self._now = {}

    def resume(self, rows: list[tuple[str, int]], snapshot: int) -> None:
        """rows: key and id of those in the next snapshot."""
        now: dict[str, set[int]] = {}
        for key, number in rows:
            now.setdefault(key, set()).add(number)
        assert sum(map(len, now.values())) == len(rows), f"snapshot {snapshot}: two rows have one id"
        for key, ids in now.items():
            before = self._now.get(key, set())
            # Of a key's rows one stays, or all of them; another writer may add one.
            assert not before or ids & before, f"snapshot {snapshot}: {key} had {before} and has {ids}"
            assert not (ids - before) & self._seen, f"snapshot {snapshot}: {key} has an id of another row, {ids}"
        self._now = now
        self._seen |= {number for ids in now.values() for number in ids}


def _present(value: Any) -> Any:
    if isinstance(value, dict):
        plain = {name: _present(member) for name, member in value.items()}
        return {name: member for name, member in plain.items() if member is not None and member != {}}
    return [_present(member) for member in value] if isinstance(value, list) else value
