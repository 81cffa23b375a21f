"""Data files rewritten by Spark through Iceberg's own reader and writer, group by group, each committed soon.

Iceberg's action for the whole table is not used: it cannot read a table with a column such as `_partition`, keeps the
reason of a failed group to itself, and commits all at the end or in lots of its own choosing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from frazil.catalog.iceberg import is_conflict
from frazil.catalog.java import each
from frazil.catalog.upkeep import Compaction, Rewritten
from frazil.errors import SpecError
from frazil.failpoints import hit

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Names that Iceberg's Spark reader takes for columns of its own.
RESERVED = frozenset(
    {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}
    | {"_change_type", "_change_ordinal", "_commit_snapshot_id"}
)
_MOST_GROUPS_A_COMMIT = 50


def compact_table(spark: SparkSession, jvm: Any, java: Any, compaction: Compaction) -> Rewritten:
    """Rewrites the files that `compaction.options` choose. java: the table, fresh and of the caller's own.

    Groups whose commit was refused are counted as lost. Raises what the JVM raises where a group cannot be rewritten.
    """
    seen_as = readable(jvm, java)
    order = _columns(java, compaction.sort) or _own_order(java)
    head = java.currentSnapshot()
    read_at, number = head.snapshotId(), head.sequenceNumber()
    has_deletes = head.summary().get("total-delete-files") != "0"
    removed = added = size = lost = 0
    for groups in _lots(_planned(jvm, seen_as, compaction.options)):
        for group in groups:
            hit("care.compact.begins")
            group.setOutputFiles(_rewrite(spark, jvm, seen_as, group, order))
        hit("care.compact.written")
        gone = _scoped_deletes(jvm, groups) if has_deletes else ()
        rewrite = java.newRewrite().validateFromSnapshot(read_at).dataSequenceNumber(number)
        try:
            _replace(jvm, rewrite, groups, gone).commit()
            hit("care.compact.landed")
        except Py4JJavaError as error:
            if not is_conflict(error):
                raise  # It may have landed: what it wrote stays.
            if not _has_landed(java, read_at, groups):
                lost += sum(int(group.inputFileNum()) for group in groups)
                continue
        removed += sum(int(group.inputFileNum()) for group in groups)
        added += sum(int(group.addedFiles().size()) for group in groups)
        size += sum(int(group.inputFilesSizeInBytes()) for group in groups)
    return Rewritten(removed, added, size, lost)


def readable(jvm: Any, java: Any) -> Any:
    """The table with its columns renamed that Iceberg's Spark reader would refuse; files go by field ids, not by names."""
    if not _reserved_in(java):
        return java
    iceberg = jvm.org.apache.iceberg
    metadata = java.operations().current()
    document = json.loads(str(iceberg.TableMetadataParser.toJson(metadata)))
    for schema in document["schemas"]:
        for field in schema["fields"]:
            if field["name"] in RESERVED:
                field["name"] = f"{field['name']}__{field['id']}"
    renamed = iceberg.TableMetadataParser.fromJson(metadata.metadataFileLocation(), json.dumps(document))
    operations = iceberg.StaticTableOperations(renamed, java.io(), java.locationProvider())
    return iceberg.BaseTable(operations, java.name())


def _reserved_in(java: Any) -> list[str]:
    return [name for field in each(java.schema().columns()) if (name := str(field.name())) in RESERVED]


def refuse_reserved(java: Any, table: str, setting: str) -> None:
    """Raises SpecError where Spark cannot read the table by its own names."""
    names = _reserved_in(java)
    if names:
        raise SpecError(
            f"`{setting}` cannot be done for a table with the column `{names[0]}`: Spark takes it for one of Iceberg's own",
            remedy=f"remove `{setting}`, or use `maintenance.sort`; or give the column another name under `metadata`",
            where=table,
        )


def _planned(jvm: Any, table: Any, options: Mapping[str, str]) -> Iterator[Any]:
    planner = jvm.org.apache.iceberg.actions.BinPackRewriteFilePlanner(table)
    planner.init(dict(options))
    groups = planner.plan().groups().iterator()
    while groups.hasNext():
        yield groups.next()


def _lots(groups: Iterator[Any]) -> Iterator[list[Any]]:
    """Large groups each for themselves, small ones together."""
    lot: list[Any] = []
    for group in groups:
        lot.append(group)
        is_large = int(group.inputFilesSizeInBytes()) * _MOST_GROUPS_A_COMMIT >= int(group.maxOutputFileSize())
        if is_large or len(lot) >= _MOST_GROUPS_A_COMMIT:
            yield lot
            lot = []
    if lot:
        yield lot


def _scoped_deletes(jvm: Any, groups: Sequence[Any]) -> list[Any]:
    """Delete files that speak of one rewritten file alone. Iceberg itself would leave position deletes of format 2 in the
    table until no older data file is in it, which may be never.
    """
    is_scoped = jvm.org.apache.iceberg.util.ContentFileUtil.isFileScoped
    deletes = (delete for group in groups for task in group.fileScanTasks() for delete in task.deletes())
    return [delete for delete in deletes if is_scoped(delete)]


def _replace(jvm: Any, rewrite: Any, groups: Sequence[Any], deletes: Sequence[Any]) -> Any:
    sets = jvm.org.apache.iceberg.util
    old, new, gone, none = (kind.create() for kind in (sets.DataFileSet,) * 2 + (sets.DeleteFileSet,) * 2)
    for group in groups:
        old.addAll(group.rewrittenFiles())
        new.addAll(group.addedFiles())
    for delete in deletes:
        gone.add(delete)
    return rewrite.rewriteFiles(old, gone, new, none)


def _has_landed(java: Any, read_at: int, groups: Sequence[Any]) -> bool:
    """Whether a commit that was refused has landed before: Iceberg sends one again whose answer was lost, and is then told
    that the files are gone. If it has not, what was written for it is removed; where nobody can tell any more, it stays.
    """
    paths = {str(file.location()) for group in groups for file in group.addedFiles()}
    java.refresh()
    at = java.currentSnapshot()
    while at is not None and at.snapshotId() != read_at:
        if at.operation() == "replace" and any(str(f.location()) in paths for f in at.addedDataFiles(java.io())):
            return True
        parent = at.parentId()
        at = java.snapshot(parent) if parent is not None else None
    for path in paths if at is not None else ():
        with suppress(Py4JJavaError):  # An orphan costs space, not truth.
            java.io().deleteFile(path)
    return False


def _rewrite(spark: SparkSession, jvm: Any, table: Any, group: Any, order: Sequence[tuple[str, bool]]) -> Any:
    """The files that one group becomes, not committed yet."""
    own = jvm.org.apache.iceberg.spark
    name = str(jvm.java.util.UUID.randomUUID())
    cache, tasks, results = own.SparkTableCache.get(), own.ScanTaskSetManager.get(), own.FileRewriteCoordinator.get()
    try:
        cache.add(name, table)
        tasks.stageTasks(table, name, jvm.java.util.ArrayList(group.fileScanTasks()))
        rows = spark.read.format("iceberg").option("scan-task-set-id", name)
        frame = rows.option("split-size", str(group.inputSplitSize())).option("file-open-cost", "0").load(name)
        writer = _ordered(frame, order, int(group.expectedOutputFiles())).write.format("iceberg")
        for option, value in {
            "rewritten-file-scan-task-set-id": name,
            "target-file-size-bytes": str(group.maxOutputFileSize()),
            "distribution-mode": "none",
            "fanout-enabled": "true",
            "output-spec-id": str(group.outputSpecId()),
        }.items():
            writer = writer.option(option, value)
        writer.mode("append").save(name)
        return results.fetchNewFiles(table, name)
    finally:
        cache.remove(name)
        tasks.removeTasks(table, name)
        results.clearRewrite(table, name)


def _ordered(frame: DataFrame, order: Sequence[tuple[str, bool]], files: int) -> DataFrame:
    if not order:
        return frame
    columns: list[Column] = [frame[name].desc() if is_down else frame[name].asc() for name, is_down in order]
    if files > 1:
        frame = frame.repartitionByRange(files, *columns)
    return frame.sortWithinPartitions(*columns)


def _columns(java: Any, wanted: Sequence[str]) -> list[tuple[str, bool]]:
    """Columns to sort by, as Spark names them, and whether downwards."""
    found = []
    for text in wanted:
        name, _, direction = text.partition(" ")
        if java.schema().findField(name) is None:
            raise SpecError(
                f"`maintenance.sort` names a column that the table does not have: `{name}`",
                remedy="correct the name, or wait until records have brought the column",
                where=str(java.name()),
            )
        found.append((_in_spark(java, name), direction.lower() == "desc"))
    return found


def _own_order(java: Any) -> list[tuple[str, bool]]:
    """The table's own sort order, where it is one of columns as they are."""
    fields = list(java.sortOrder().fields())
    if not all(field.transform().isIdentity() for field in fields):
        return []
    names = [str(java.schema().findColumnName(field.sourceId())) for field in fields]
    return [
        (_in_spark(java, name), str(field.direction()).lower() == "desc")
        for name, field in zip(names, fields, strict=True)
    ]


def _in_spark(java: Any, name: str) -> str:
    """A column in backquotes, renamed as `readable` does."""
    field = java.schema().asStruct().field(name)
    if field is None:
        return ".".join(f"`{part}`" for part in name.split("."))
    return f"`{name}__{field.fieldId()}`" if name in RESERVED else f"`{name}`"
