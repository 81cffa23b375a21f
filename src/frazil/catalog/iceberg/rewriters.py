"""Two ways to rewrite data files without Spark's reader: column by column, and record by record.

The first are Python tasks; the second is the driver's JVM, for tables with column types that Spark does not support.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.data_files import DataFiles, Described, specs_to_describe
from frazil.catalog.iceberg.java import array_of, each, make_hidden, remove
from frazil.catalog.maintenance_port import Merge, Merging
from frazil.catalog.port import TableState
from frazil.catalog.scans import LiveFile
from frazil.errors import FrazilError
from frazil.types import as_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NOT_IN_SPARK = frozenset({"TIME", "TIMESTAMP_NANO"})
"""Types that Iceberg's Spark reader refuses, wherever they occur in a table."""
_READER = "org.apache.iceberg.data.GenericReader"
_TASK = "org.apache.iceberg.FileScanTask"
_WRITER = "org.apache.iceberg.io.FileWriter"
_LINEAGE_SINCE = 3


class Merger:
    """Compacts groups of files of `java`, in up to `cores` tasks at a time."""

    def __init__(self, spark: SparkSession, catalog: IcebergCatalog, java: Any, merge: Merge, cores: int) -> None:
        self._spark = spark
        self._sets = catalog.gateway.jvm.org.apache.iceberg.util.DataFileSet
        self._described = Described(catalog.gateway.jvm, java)
        self._files = DataFiles(catalog.gateway)
        self._java = java
        self._spec = java.spec()
        self._merge = merge
        self._cores = cores

    def write(self, groups: Sequence[Any]) -> list[Any]:
        """Returns the uncommitted files of each of Iceberg's groups, as a Java set; None where this writer does not
        support the group.
        """
        parts = [self._parts(group) for group in groups]
        tasks = [part for mine in parts for part in mine]
        if not tasks:
            return [None] * len(parts)
        numbers = self._spark.range(0, len(tasks), 1, min(self._cores, len(tasks)))
        results: Any = numbers.mapInArrow(partial(_merged, self._merge, tasks), "number long, done binary")
        # Through py4j: PySpark's own way leaves a socket open for each result until it is garbage-collected.
        merged = {int(row.getLong(0)): pickle.loads(row.get(1)) for row in each(results._jdf.collectAsList())}
        done = iter(merged[number] for number in range(len(tasks)))
        return [self._as_set([next(done) for _ in mine]) if mine else None for mine in parts]

    def _parts(self, group: Any) -> list[Merging]:
        """Returns the group's files in parts that become one file each; empty where this writer does not support them."""
        spec_id = int(self._spec.specId())
        if int(group.outputSpecId()) != spec_id:
            return []
        files = self._described.live_files_of(group.fileScanTasks())
        if not all(file.description["spec-id"] == spec_id and _is_plain(file) for file in files):
            return []
        tasks = list(group.fileScanTasks())
        numbers = (int(task.file().dataSequenceNumber()) for task in tasks)
        numbered = list(zip(files, numbers, strict=True))
        # In the order of commits: a file that cannot be copied is met first, before anything is written.
        numbered.sort(key=lambda numbered_file: (numbered_file[1], numbered_file[0].first_row_id or 0))
        folder = str(self._spec.partitionToPath(tasks[0].file().partition())) if self._spec.isPartitioned() else ""
        sizes = [int(file.description["file-size-in-bytes"]) for file, _ in numbered]
        largest = int(group.maxOutputFileSize())
        cuts = list(pairwise(_cuts(sizes, int(group.expectedOutputFiles()))))
        if any(sum(sizes[begin:end]) > largest for begin, end in cuts):
            return []
        # A result larger than its parts is one file nevertheless, and not one with a small file next to it.
        slim = [
            (LiveFile(file.path, file.record_count, json.dumps(file.description), file.deletes), number)
            for file, number in numbered
        ]
        return [Merging(tuple(slim[begin:end]), folder, 2 * largest) for begin, end in cuts]

    def _as_set(self, parts: Sequence[Any]) -> Any:
        if any(part is None for part in parts):
            remove(self._java, (file.path for part in parts for file in part or ()))
            return None
        file_set = self._sets.create()
        for file in self._files.read((file.content for part in parts for file in part), self._java):
            file_set.add(file)
        return file_set


def open_merger(
    spark: SparkSession,
    catalog: IcebergCatalog,
    table: str,
    java: Any,
    merge_of: Callable[[TableState], Merge | None],
    cores: int,
) -> Merger | None:
    """Returns the merger for the table; None where Iceberg's own writer must write all of its files."""
    try:
        merge = merge_of(catalog.reader.state(table, java))
    except FrazilError:  # A column has a type that Frazil does not know.
        merge = None
    return Merger(spark, catalog, java, merge, cores) if merge is not None else None


def _merged(merge: Merge, tasks: Sequence[Merging], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs, in a Spark task, the merges whose numbers the task receives."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            done = pickle.dumps(merge(tasks[number]))
            yield pa.RecordBatch.from_pydict({"number": [number], "done": pa.array([done], pa.binary())})


def _is_plain(file: LiveFile) -> bool:
    """Returns whether the file is Parquet, and its deletes are by position."""
    return file.file_format == "parquet" and all(
        delete_file.kind == "vector" or (delete_file.kind == "positions" and delete_file.file_format == "parquet")
        for delete_file in file.deletes
    )


def _cuts(sizes: Sequence[int], parts: int) -> list[int]:
    """Returns the begin of each of `parts` parts of about equal size, and the end; fewer parts of few files."""
    total, done, cuts = sum(sizes), 0, [0]
    for place, size in enumerate(sizes):
        if place > cuts[-1] and done * parts >= len(cuts) * total:
            cuts.append(place)
        done += size
    return [*cuts, len(sizes)]


def is_readable_by_spark(jvm: Any, java: Any) -> bool:
    """Returns whether Spark has a type for every field."""
    fields = jvm.org.apache.iceberg.types.TypeUtil.indexById(java.schema().asStruct())
    return not any(str(field.type().typeId()) in _NOT_IN_SPARK for field in fields.values())


def rewrite_records(gateway: Any, java: Any, group: Any) -> Any:
    """Returns the files that one group becomes, uncommitted. Files of an older partition spec become files of that
    spec; rows of format version 3 keep their ids.
    """
    iceberg = gateway.jvm.org.apache.iceberg
    schema = java.schema()
    if int(iceberg.TableUtil.formatVersion(java)) >= _LINEAGE_SINCE:
        schema = iceberg.MetadataColumns.schemaWithRowLineage(schema)
    reader = _Reader(gateway, java, schema)
    factory = getattr(iceberg.data, "GenericFileWriterFactory$Builder")(java).dataSchema(schema).build()
    written = iceberg.util.DataFileSet.create()
    for number, tasks in enumerate(_by_partition(gateway.jvm, java, group)):
        first = tasks[0].file()
        spec = java.specs().get(first.specId())
        names = iceberg.io.OutputFileFactory.builderFor(java, number, 0).defaultSpec(spec).build()
        most = int(group.maxOutputFileSize())
        writer = iceberg.io.RollingDataWriter(factory, names, java.io(), most, spec, first.partition())
        try:
            for task in tasks:
                reader.copy_rows(task, writer)
        finally:
            writer.close()
        written.addAll(writer.result().dataFiles())
    return written


def worth_rewriting(gateway: Any, java: Any, groups: Iterator[Any]) -> Iterator[Any]:
    """Yields the groups that become fewer files, or lose deleted rows. Iceberg plans all files of older specs as one
    group, because they would become files of the current spec.
    """
    for group in groups:
        lots = _by_partition(gateway.jvm, java, group)
        if any(len(tasks) > 1 or not tasks[0].deletes().isEmpty() for tasks in lots):
            yield group


def _by_partition(jvm: Any, java: Any, group: Any) -> Iterator[list[Any]]:
    """Yields the files of a group by spec and partition."""
    tasks: dict[tuple[int, str], list[Any]] = {}
    parser, specs = jvm.org.apache.iceberg.ContentFileParser, specs_to_describe(jvm, java)
    for task in each(group.fileScanTasks()):
        file = task.file()
        described = json.loads(str(parser.toJson(file, specs.get(file.specId()))))
        partition = as_json(described.get("partition"))
        tasks.setdefault((int(file.specId()), partition), []).append(task)
    yield from tasks.values()


class _Reader:
    """Iceberg's generic reader of `java`, which applies a file's deletes. The class is not public."""

    def __init__(self, gateway: Any, java: Any, schema: Any) -> None:
        self._gateway = gateway
        lang, loader = gateway.jvm.java.lang, java.getClass().getClassLoader()
        self._reader = make_hidden(gateway, java, _READER, java.newScan().project(schema), False)
        task = array_of(gateway, lang.Class, lang.Class.forName(_TASK, True, loader))
        self._open = self._reader.getClass().getDeclaredMethod("open", task)
        self._open.setAccessible(True)
        # py4j would choose the other method of this name, which writes one row.
        rows = array_of(gateway, lang.Class, lang.Class.forName("java.lang.Iterable"))
        self._write = lang.Class.forName(_WRITER, True, loader).getMethod("write", rows)

    def copy_rows(self, task: Any, writer: Any) -> None:
        """Writes the rows of a file that are not deleted."""
        kind = self._gateway.jvm.java.lang.Object
        rows = self._open.invoke(self._reader, array_of(self._gateway, kind, task))
        try:
            self._write.invoke(writer, array_of(self._gateway, kind, rows))
        finally:
            rows.close()
