"""Objects in packs: written, read at random and searched by their vectors, each beside the same without Frazil.

`python -m bench.objects [write] [read] [embeddings] [search]` prints a line for each subject, and the ratio of its
median to the other's. `--objects`, `--vectors` and `--dimension` are the sizes. The store is versitygw on this machine,
as in the tests.

- `write`: raw values of 200 kB become rows and packs in a task, against the client of the store that writes the same
  bytes in objects of the size of a pack.
- `read`: all objects of a table in a random order, all of them as training reads them, and a tenth of them at random,
  against one file each, by the same client with as many requests at a time; each request waits for 20 ms first. The
  processor time, of this process and of the store, says what is left where other work disturbs.
- `embeddings`: rows with vectors become Parquet in a task's writer, against Arrow's writer alone.
- `search`: the ten nearest vectors by an index; how long reading the vectors takes, and building the index.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import update_table_metadata

from bench.place import say
from frazil.ingest.tasks.task import run_task
from frazil.ingest.tasks.task_job import Job
from frazil.queries.program import Field, Program, Project
from frazil.report import load_report
from frazil.schema.arrow import arrow_type, iceberg_type
from frazil.schema.evolve import new_schema
from frazil.spec.syntax.types import parse_type
from frazil.store.file_io import StoreIO
from frazil.types import FIRST_PLACEHOLDER_ID
from frazil.write.target import TableFiles, TableQuery, TableTarget
from frazil.write.write import FileWriter
from frazil_blobs import BlobDataset
from frazil_blobs.nearest import VectorIndex, build
from frazil_blobs.reading import PARALLEL, read_with
from frazil_blobs.settings import BlobSettings, MiB
from frazil_blobs.stage import BlobStage, reshape
from tests.fixtures.certificates import Authority
from tests.fixtures.stores.servers import S3Gateway

OBJECT_BYTES = 200_000
AWAY_S = 0.02
_AT_ONCE = 100
_TURNS = 3
_NOISE = np.random.default_rng(1).bytes(OBJECT_BYTES + _AT_ONCE)
_OBJECTS = [_NOISE[n : n + OBJECT_BYTES] for n in range(_AT_ONCE)]
_VALUES = pa.array(_OBJECTS, pa.binary())
_SEARCHED = 100
_VECTORS_AT_ONCE = 16_384


class Store:
    """A store on this machine, and a folder of it."""

    def __init__(self, folder: Path, authority: Authority | None = None) -> None:
        self.server = S3Gateway(folder / ("s3" if authority is None else "s3-tls"), authority)
        self.server.start()
        access = self.server.access()
        self.root, self.properties = access.warehouse, access.all_properties()
        self.io = StoreIO(self.properties)


class Away(StoreIO):
    """A store that is 20 ms away."""

    def read_range(self, location: str, start: int, end: int) -> pa.Buffer:
        time.sleep(AWAY_S)
        return super().read_range(location, start, end)


def contents(count: int) -> Iterator[list[bytes]]:
    """Yields objects by chance, some at a time, the same again and again: making them must cost nobody anything."""
    for begin in range(0, count, _AT_ONCE):
        yield _OBJECTS[: min(count - begin, _AT_ONCE)]


def target(store: Store, folder: Path, name: str) -> TableTarget:
    """A table with the record's value as an object, as a task receives it."""
    settings = BlobSettings(columns=("value",), store=f"{store.root}/{name}")
    types = {"value": arrow_type(parse_type("binary"))}
    columns = {**{column: Field(column, kind) for column, kind in types.items()}, **reshape(settings, types)}
    output = tuple(Field(column, expression.type) for column, expression in columns.items())
    ids = iter(range(FIRST_PLACEHOLDER_ID, FIRST_PLACEHOLDER_ID + 100))
    schemas = [new_schema([("value", parse_type("binary"))])]
    schemas.append(new_schema((field.name, iceberg_type(field.type, ids)) for field in output))
    files = TableFiles(
        (folder / name).as_uri(), (), tuple(sorted(store.properties.items())), target_file_size_bytes=128 * MiB
    )
    plain = TableTarget(f"bench.{name}", files=files)
    source, whole = (plain.with_schema(schema) for schema in schemas)
    raw = type(source.reading)(format="raw")
    query = TableQuery(_with(source, reading=raw), Program((Project(tuple(columns.items())),), output))
    stages = (BlobStage.make("blobs", settings),)
    return _with(whole, reading=raw, query=query, stages=stages)


def _with(table: TableTarget, **fields: object) -> TableTarget:
    return TableTarget(**{**{name: getattr(table, name) for name in table.__dataclass_fields__}, **fields})


def rows_in_packs(store: Store, folder: Path, name: str, count: int) -> pa.Table:
    """Writes objects as a task does; returns the rows of the table."""

    def batches() -> Iterator[pa.RecordBatch]:
        first = 0
        for some in contents(count):
            offsets = pa.array(range(first, first + len(some)), pa.int64())
            columns = {
                "partition": pa.nulls(len(some), pa.int32()).fill_null(0),
                "offset": offsets,
                "timestamp": pa.nulls(len(some), pa.timestamp("us", "UTC")).fill_null(0),
                "value": _VALUES.slice(0, len(some)),
            }
            yield pa.RecordBatch.from_pydict(columns)
            first += len(some)

    (answer,) = run_task(Job({"t": target(store, folder, name)}), batches())
    [report] = map(load_report, answer.column("report").to_pylist())
    assert (report.counts.row_count, report.bad_records.count) == (count, 0), report
    return pa.concat_tables(pq.read_table(file.path.removeprefix("file://")) for file in report.written.data)


def alone(store: Store, name: str, count: int) -> None:
    """Writes the same bytes with the store's client."""
    stream, size, number = None, 0, 0
    for content in (content for some in contents(count) for content in some):
        if stream is None or size + len(content) > 128 * MiB:
            if stream is not None:
                stream.close()
            stream, size, number = store.io.new_output(f"{store.root}/{name}/{number}").create(), 0, number + 1
        stream.write(content)
        size += len(content)
    if stream is not None:
        stream.close()


def compare(
    what: str,
    unit: str,
    amount: float,
    *subjects: tuple[str, Callable[[], object]],
    store: Store | None = None,
    touched_bytes: int = 0,
) -> None:
    """Prints how much of something each subject does in a second, in turn, and the ratio of the first to the second.
    touched_bytes: memory that is written and freed before each turn: a virtual machine may get memory from its host only
    then, which took longer than reading objects into it.
    """
    times: dict[str, list[float]] = {name: [] for name, _ in subjects}
    used: dict[str, list[float]] = {name: [] for name, _ in subjects}
    for _ in range(_TURNS):
        for name, act in subjects:
            if touched_bytes:
                np.empty(touched_bytes, np.uint8).fill(1)
            begin, used_s = time.perf_counter(), cpu_s(store)
            act()
            times[name].append(time.perf_counter() - begin)
            used[name].append(cpu_s(store) - used_s)
    rates = {name: amount / statistics.median(some) for name, some in times.items()}
    for name, rate in rates.items():
        cost_ms = statistics.median(used[name]) * 1000 / amount
        say(f"{what}: {name}: {rate:,.1f} {unit}/s, {cost_ms:.3f} ms of a processor for each")
    first, second = rates.values()
    say(f"{what}: {first / second:.2f} x")


def cpu_s(store: Store | None) -> float:
    """Returns the processor time of this process, and of a store's."""
    used_s = time.process_time()
    if store is not None:
        fields = Path(f"/proc/{store.server.pid}/stat").read_text().rpartition(")")[2].split()
        used_s += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return used_s


def measure_write(store: Store, folder: Path, objects: int) -> None:
    """See the module."""
    authority = Authority(folder)
    os.environ["SSL_CERT_FILE"] = str(authority.file)
    secure = Store(folder, authority)
    try:
        for way, of in (("HTTP", store), ("HTTPS", secure)):
            rows_in_packs(of, folder, "first", objects // 10)
            gc.freeze()  # As in a worker: what was imported is not looked through again.
            begin = time.process_time()
            rows_in_packs(of, folder, "alone", objects)
            rate = objects * OBJECT_BYTES / 1e6 / (time.process_time() - begin)
            peak = getrusage(RUSAGE_SELF).ru_maxrss / 1024
            say(f"write: {way}: {rate:,.0f} MB for each second of a processor in a task, {peak:,.0f} MiB at most")
    finally:
        secure.server.kill()
    numbers = iter(range(1000))
    compare(
        "write",
        "MB",
        objects * OBJECT_BYTES / 1e6,
        ("packs of a table", lambda: rows_in_packs(store, folder, f"t{next(numbers)}", objects)),
        ("the client alone", lambda: alone(store, f"a{next(numbers)}", objects)),
    )


def measure_read(store: Store, folder: Path, objects: int) -> None:
    """See the module."""
    rows = rows_in_packs(store, folder, "read", objects)
    names = [f"{store.root}/files/{n}" for n in range(objects)]
    for place, content in enumerate(content for some in contents(objects) for content in some):
        with store.io.new_output(names[place]).create() as stream:
            stream.write(content)
    away = Away(store.properties)
    order = np.random.default_rng(2).permutation(objects)
    tenth = order[: max(1, objects // 10)]
    table = new_table(folder / "table", rows)

    def of_dataset() -> None:
        dataset = BlobDataset(table, ["value"], seed=1)
        dataset._io = away
        assert sum(len(sample["value"]) == OBJECT_BYTES for sample in dataset) == objects

    def of_rows(chosen: np.ndarray[Any, Any]) -> None:
        assert read_with(away, rows.column("value").take(pa.array(chosen))).null_count == 0

    def of_files(chosen: np.ndarray[Any, Any]) -> None:
        with ThreadPoolExecutor(PARALLEL) as pool:
            kept = list(pool.map(lambda n: away.read_range(names[n], 0, OBJECT_BYTES), chosen.tolist()))
        assert sum(content.size for content in kept) == chosen.size * OBJECT_BYTES  # All of them, as of the table.

    files, sampled_files = ("separate files", lambda: of_files(order)), ("separate files", lambda: of_files(tenth))
    in_order = ("packs of a table", lambda: of_rows(order))
    whole = objects * OBJECT_BYTES
    compare("read in a random order", "objects", objects, in_order, files, store=store, touched_bytes=whole)
    shuffled = ("a table, shuffled by BlobDataset", of_dataset)
    compare("read for training", "objects", objects, shuffled, files, store=store)
    sampled = ("packs of a table", lambda: of_rows(tenth))
    compare("read a tenth", "objects", tenth.size, sampled, sampled_files, store=store)


class _OneTable(NoopCatalog):
    """A catalog that keeps nothing: the table in hand is the only one."""

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:  # noqa: ARG002
        return CommitTableResponse(metadata=update_table_metadata(table.metadata, updates), metadata_location="")


def new_table(folder: Path, rows: pa.Table) -> Table:
    """Returns a table with these rows."""
    schema = _pyarrow_to_schema_without_ids(rows.schema)
    metadata = new_table_metadata(schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, folder.as_uri())
    table = Table(("bench", "read"), metadata, "", load_file_io({}, folder.as_uri()), _OneTable("one"))
    table.append(rows)
    return table


def measure_embeddings(folder: Path, vectors: int, dimension: int) -> None:
    """See the module."""
    values = np.random.default_rng(3).standard_normal((vectors, dimension), np.float32)
    schema = new_schema([("id", parse_type("long")), ("embedding", parse_type("list<float>"))])
    files = TableFiles((folder / "embeddings").as_uri(), (), (), target_file_size_bytes=512 * MiB)
    table = TableTarget("bench.embeddings", files=files).with_schema(schema)
    lists = pa.ListArray.from_arrays(pa.array(range(0, values.size + 1, dimension), pa.int32()), values.ravel())
    embeddings = lists.cast(table.arrow_schema.field("embedding").type)
    rows = pa.Table.from_arrays([pa.array(range(vectors), pa.int64()), embeddings], schema=table.arrow_schema)

    def by_task() -> None:
        writer = FileWriter(table)
        for begin in range(0, vectors, 16_384):
            writer.write(rows.slice(begin, 16_384))
        writer.finish()

    def by_arrow() -> None:
        pq.write_table(rows, folder / "arrow.parquet", compression="zstd", compression_level=1, use_dictionary=False)

    compare("embeddings", "vectors", vectors, ("a task's writer", by_task), ("Arrow's writer", by_arrow))


def measure_search(folder: Path, vectors: int, dimension: int) -> None:
    """See the module."""
    chance = np.random.default_rng(4)
    centres = chance.normal(size=(max(1, vectors // 1000), dimension)).astype(np.float32)
    with pq.ParquetWriter(
        folder / "vectors.parquet", pa.schema([("v", pa.list_(pa.float32()))]), compression="zstd"
    ) as file:
        for begin in range(0, vectors, _VECTORS_AT_ONCE):
            count = min(_VECTORS_AT_ONCE, vectors - begin)
            drawn = centres[chance.integers(0, len(centres), count)] + chance.normal(size=(count, dimension))
            ends = pa.array(np.arange(0, drawn.size + 1, dimension, dtype=np.int32))
            lists = pa.ListArray.from_arrays(ends, drawn.astype(np.float32).ravel())
            file.write_table(pa.table({"v": lists}))

    def blocks() -> Iterator[np.ndarray[Any, np.dtype[np.float32]]]:
        for batch in pq.ParquetFile(folder / "vectors.parquet").iter_batches(_VECTORS_AT_ONCE):
            yield np.asarray(batch.column(0).flatten(), np.float32).reshape(-1, dimension)

    began = time.perf_counter()
    assert sum(map(len, blocks())) == vectors
    read_s = time.perf_counter() - began
    (folder / "index").mkdir()
    began = time.perf_counter()
    tuning = build(folder / "index", blocks(), "cosine")
    built_s = time.perf_counter() - began
    say(f"search: built in {built_s:.1f} s, {built_s / read_s:.1f} x the {read_s:.1f} s of reading the vectors")
    index, values = VectorIndex(folder / "index"), np.asarray(np.concatenate(list(blocks())), np.float32)
    places = chance.integers(0, vectors, _SEARCHED)
    queries = np.asarray(values[places] + 0.3 * chance.normal(size=(_SEARCHED, dimension)), np.float32)
    times, found = [], []
    for query in queries:
        asked = time.perf_counter()
        found.append(index.nearest(query, 10)[0])
        times.append(time.perf_counter() - asked)
    # Behind the searches: looking through gigabytes between them would take the index out of memory.
    scores = values @ queries.T / np.linalg.norm(values, axis=1)[:, np.newaxis]
    exact = np.argpartition(scores, -10, axis=0)[-10:].T
    hits = sum(np.intersect1d(some, wanted).size for some, wanted in zip(found, exact, strict=True))
    say(f"search: {statistics.median(times) * 1000:.2f} ms, recall {hits / (10 * _SEARCHED):.3f}, {tuning}")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["write", "read", "embeddings", "search"])
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--dimension", type=int, default=768)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="frazil-bench-") as name:
        folder = Path(name)
        store = Store(folder) if {"write", "read"} & {*words.parts} else None
        try:
            if store is not None and "write" in words.parts:
                measure_write(store, folder, words.objects)
            if store is not None and "read" in words.parts:
                measure_read(store, folder, words.objects)
            if "embeddings" in words.parts:
                measure_embeddings(folder, words.vectors, words.dimension)
            if "search" in words.parts:
                measure_search(folder, words.vectors, words.dimension)
        finally:
            if store is not None:
                store.server.kill()


if __name__ == "__main__":
    main()
