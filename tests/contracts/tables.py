"""One table of a lake, for the suites of the Catalog port: its columns, files and commits."""

from __future__ import annotations

from dataclasses import replace

from pyiceberg.types import LongType, NestedField, StructType

from frazil.catalog.port import Catalog, TableState
from frazil.clock import new_id
from frazil.ingest.tables.table import Table
from frazil.ingest.tables.target import target_of
from frazil.rows.project import shape_rows
from frazil.schema.evolve import new_schema
from frazil.spec.models import TableSpec, TopicSelector
from frazil.stages.changes import appended
from frazil.types import Commit, CommittedBatch, DataFile, Progress, Watermark, Writer
from frazil.write.write import FileWriter
from tests.unit.decode.columns import decode

TABLE = "lake.sub.t"
SCHEMA = new_schema([("id", LongType()), ("s", StructType(NestedField(0, "a", LongType(), required=False)))])


def create(catalog: Catalog, format_version: int = 2) -> TableState:
    return catalog.create(TABLE, SCHEMA, {"owner": "me"}, format_version)


def files_of(state: TableState, *ids: int) -> tuple[DataFile, ...]:
    table = Table(TableSpec(name=TABLE, topics=(TopicSelector(literal="a"),)), state)
    kinds = {field.name: field.field_type for field in state.schema.fields}
    writer = FileWriter(target_of(table))
    decoded = decode([f'{{"id": {n}}}' for n in ids], "add", **kinds)
    writer.write(shape_rows(target_of(table), appended(decoded), {}))
    return tuple(writer.finish())


def commit_of(state: TableState, end: int, *, epoch: int = 1, ids: tuple[int, ...] = (1, 2)) -> Commit:
    progress = Progress(
        offsets={"a": {0: end, 10: 3}},
        topic_ids={"a": "id-a"},
        cluster_id="cluster",
        commit_id=new_id(),
        writer=Writer(epoch, "run"),
        watermark=Watermark({"a": {0: 99}}, 98),
        batch=CommittedBatch(skipped={"a": {0: (1, 2)}}),
    )
    return Commit(TABLE, files_of(state, *ids) if ids else (), progress, state.progress)


def load(catalog: Catalog) -> TableState:
    state = catalog.load(TABLE)
    assert state is not None
    return state


def plain(progress: Progress) -> Progress:
    """Without the time of the commit, which only a real table knows."""
    return replace(progress, committed_at_ms=None)


def head_of(catalog: Catalog) -> int:
    head = load(catalog).head_id
    assert head is not None
    return head


def paths(catalog: Catalog) -> list[str]:
    load(catalog)
    return sorted(file.path for file in catalog.scan(TABLE).files)


def begin(catalog: Catalog) -> tuple[str, str]:
    """Two files in two snapshots; their paths."""
    first, second = (commit_of(create(catalog), 5), commit_of(load(catalog), 5, ids=(3,)))
    second = replace(second, expected=catalog.commit(first))
    catalog.commit(second)
    return first.files[0].path, second.files[0].path
