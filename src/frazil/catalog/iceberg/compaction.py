"""Compacts data files group by group, each committed soon.

Frazil's own reader and writer do it where they support the files, else Iceberg's through Spark.

Iceberg's action for a whole table is not used: it cannot read a table with a column such as `_partition`, does not
report why a group failed, and commits everything at the end or in batches of its own choice.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence, Set
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.data_files import specs_to_describe
from frazil.catalog.iceberg.java import array_of, each, make_hidden, newest_snapshot
from frazil.catalog.iceberg.rewrite_commit import RewriteCommit
from frazil.catalog.iceberg.rewriters import is_readable_by_spark, open_merger, rewrite_records, worth_rewriting
from frazil.catalog.maintenance_port import Compaction, MergeOf, Rewritten, Transfer
from frazil.catalog.table_metadata import partition_text
from frazil.clock import new_id
from frazil.errors import SpecError
from frazil.failpoints import hit
from frazil.types import MAIN

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Names that Iceberg's Spark reader takes for columns of its own.
RESERVED = frozenset(
    {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}
    | {"_change_type", "_change_ordinal", "_commit_snapshot_id"}
)
_MOST_GROUPS_A_COMMIT = 50
_MOST_FILES = "max-files-to-rewrite"
_Z_RUNNER = "org.apache.iceberg.spark.actions.SparkZOrderFileRewriteRunner"
_Z_TYPES = frozenset(
    {"BOOLEAN", "INTEGER", "LONG", "FLOAT", "DOUBLE", "DATE", "TIMESTAMP", "STRING", "UUID", "FIXED", "BINARY"}
)
"""Types whose values Iceberg places on a Z-curve."""
_NO_SNAPSHOT = -1
_NO_ORDER = 0
"""Iceberg's id of the empty sort order."""


def compact_table(
    spark: SparkSession,
    catalog: IcebergCatalog,
    table: str,
    compaction: Compaction,
    transfer: Transfer | None = None,
    merge_of: MergeOf | None = None,
) -> Rewritten:
    """Rewrites the files that `compaction.options` choose. merge_of: writes files where it supports them; all others,
    and files to be sorted, are written by Iceberg. Groups whose commit was refused are counted as lost.

    Raises: what the JVM raises where a group cannot be rewritten.
    """
    java, branch = catalog.java_table(table), catalog.branch_of(table)
    head_id = None if branch == MAIN else int(newest_snapshot(java, table, branch).snapshotId())
    swap = RewriteCommit(catalog, table, java, transfer)
    removed = added = size = lost = 0
    for groups in written_groups(spark, catalog, java, table, compaction, merge_of, head_id):
        if not swap.commit(groups):
            lost += sum(int(group.inputFileNum()) for group in groups)
            continue
        removed += sum(int(group.inputFileNum()) for group in groups)
        added += sum(int(group.addedFiles().size()) for group in groups)
        size += sum(int(group.inputFilesSizeInBytes()) for group in groups)
    return Rewritten(removed, added, size, lost)


def written_groups(
    spark: SparkSession,
    catalog: IcebergCatalog,
    java: Any,
    table: str,
    compaction: Compaction,
    merge_of: MergeOf | None,
    head_id: int | None,
) -> Iterator[list[Any]]:
    """Yields groups of files whose new files are written, in lists that are to be committed together. head_id: the snapshot
    that has the files; None: the newest one of main.

    Raises: as `compact_table`.
    """
    gateway, jvm = catalog.gateway, catalog.gateway.jvm
    seen = seen_as(jvm, java, with_no_order=bool(compaction.zorder), head_id=head_id)
    options, is_readable = dict(compaction.options), is_readable_by_spark(jvm, java)
    is_chosen_here = compaction.partitions is not None or not is_readable
    most = int(options.pop(_MOST_FILES, sys.maxsize)) if is_chosen_here else sys.maxsize
    planner = jvm.org.apache.iceberg.actions.BinPackRewriteFilePlanner(seen)
    planner.init(dict(options))
    planned = each(planner.plan().groups())
    if compaction.partitions is not None:
        planned = _of_partitions(jvm, java, planned, compaction.partitions)
    if is_readable:
        rewrite_group = _group_rewriter(spark, gateway, java, seen, compaction)
    else:
        rewrite_group = partial(rewrite_records, gateway, java)
        planned = worth_rewriting(gateway, java, planned)
    if compaction.files is not None:
        planned = (
            group
            for group in planned
            if any(str(task.file().location()) in compaction.files for task in each(group.fileScanTasks()))
        )
    planned = _up_to(planned, most)
    merger = None
    if merge_of is not None and not (compaction.sort or compaction.zorder):
        merger = open_merger(
            spark, catalog, table, java, lambda state: merge_of(state, compaction.stages), _cores(spark)
        )
    for groups in _lots(planned):
        hit("maintenance.compact.begins")
        merged = merger.write(groups) if merger else []
        for group, files in zip_longest(groups, merged):
            group.setOutputFiles(rewrite_group(group) if files is None else files)
        hit("maintenance.compact.written")
        yield groups


def seen_as(jvm: Any, java: Any, *, with_no_order: bool = False, head_id: int | None = None) -> Any:
    """Returns the table with columns renamed that Iceberg's Spark reader would refuse; files are read by field id, not
    by name. with_no_order: adds the empty sort order, to which a writer assigns its files, where the table was created
    with an order of its own and lacks it. head_id: the newest snapshot of the table that is returned, -1 for none; None:
    the table's.
    """
    lacks_none = with_no_order and _NO_ORDER not in java.sortOrders()
    has_reserved = any(str(field.name()) in RESERVED for field in each(java.schema().columns()))
    if not has_reserved and not lacks_none and head_id is None:
        return java
    iceberg = jvm.org.apache.iceberg
    metadata = java.operations().current()
    if not has_reserved and not lacks_none:
        # The metadata of a table with many snapshots takes a while as text.
        builder = iceberg.TableMetadata.buildFrom(metadata).withMetadataLocation(metadata.metadataFileLocation())
        moved = builder.removeRef(MAIN) if head_id == _NO_SNAPSHOT else builder.setBranchSnapshot(head_id, MAIN)
        return _with_metadata(iceberg, java, moved.discardChanges().build())
    document = json.loads(str(iceberg.TableMetadataParser.toJson(metadata)))
    for schema in document["schemas"]:
        for field in schema["fields"]:
            if field["name"] in RESERVED:
                field["name"] = f"{field['name']}__{field['id']}"
    if head_id is not None:
        refs = {MAIN: {"snapshot-id": head_id, "type": "branch"}} if head_id != _NO_SNAPSHOT else {}
        document |= {"current-snapshot-id": head_id, "refs": refs}
        document["snapshot-log"] = []
    if lacks_none:
        document["sort-orders"].append({"order-id": _NO_ORDER, "fields": []})
    renamed = iceberg.TableMetadataParser.fromJson(metadata.metadataFileLocation(), json.dumps(document))
    return _with_metadata(iceberg, java, renamed)


def _with_metadata(iceberg: Any, java: Any, metadata: Any) -> Any:
    """Returns the Java table with other metadata, which nothing commits to. iceberg: Java's package."""
    operations = iceberg.StaticTableOperations(metadata, java.io(), java.locationProvider())
    return iceberg.BaseTable(operations, java.name())


def _of_partitions(jvm: Any, java: Any, groups: Iterator[Any], partitions: Set[str]) -> Iterator[Any]:
    """Yields the groups of these partitions, and groups of an older spec, which Iceberg plans as one group; where the
    current spec has no partitions, together with the files of that.
    """
    if not java.spec().isPartitioned():
        yield from groups
        return
    parser, specs = jvm.org.apache.iceberg.ContentFileParser, specs_to_describe(jvm, java)
    for group in groups:
        file = group.fileScanTasks().get(0).file()
        described = json.loads(str(parser.toJson(file, specs.get(file.specId()))))
        if int(file.specId()) != int(group.outputSpecId()) or partition_text(described) in partitions:
            yield group


def _up_to(groups: Iterator[Any], most: int) -> Iterator[Any]:
    """Yields groups until they have `most` files."""
    for group in groups:
        if most <= 0:
            return
        most -= int(group.inputFileNum())
        yield group


def _lots(groups: Iterator[Any]) -> Iterator[list[Any]]:
    """Yields lists of groups to be committed together: large groups one by one, small ones together."""
    lot: list[Any] = []
    for group in groups:
        lot.append(group)
        is_large = int(group.inputFilesSizeInBytes()) * _MOST_GROUPS_A_COMMIT >= int(group.maxOutputFileSize())
        if is_large or len(lot) >= _MOST_GROUPS_A_COMMIT:
            yield lot
            lot = []
    if lot:
        yield lot


def _group_rewriter(
    spark: SparkSession, gateway: Any, java: Any, seen: Any, compaction: Compaction
) -> Callable[[Any], Any]:
    """Returns the function that writes the files of a group and returns them."""
    zorder = _z_columns(java, compaction.zorder)
    if zorder:
        return _z_rewriter(spark, gateway, seen, zorder)
    asked = _columns(java, compaction.sort)
    return partial(_rewrite, spark, gateway, seen, asked or _own_order(java), bool(asked))


def _z_rewriter(spark: SparkSession, gateway: Any, table: Any, columns: Sequence[str]) -> Callable[[Any], Any]:
    """Returns a function that runs Iceberg's Z-order writer alone: Iceberg's action for the whole table deletes the
    files of a commit whose response was lost, though they may be in the table. The class is not public.
    """
    session: Any = spark
    names = gateway.jvm.java.util.ArrayList()
    for name in columns:
        names.append(name)
    runner = make_hidden(gateway, table, _Z_RUNNER, session._jsparkSession, table, names)
    runner.init(gateway.jvm.java.util.HashMap())
    return lambda group: runner.rewrite(_within(gateway.jvm, group, _cores(spark)))


def _within(jvm: Any, group: Any, cores: int) -> Any:
    """Returns the group for a writer that runs a task per expected file."""
    files, largest = min(cores, int(group.expectedOutputFiles())), _largest_file(group, cores)
    new_group, split = jvm.org.apache.iceberg.actions.RewriteFileGroup, int(group.inputSplitSize())
    return new_group(group.info(), group.fileScanTasks(), int(group.outputSpecId()), largest, split, files)


def _z_columns(java: Any, wanted: Sequence[str]) -> list[str]:
    """Returns the columns of the Z-order as Spark names them, without columns that are constant in a partition."""
    constant = set(java.spec().identitySourceIds())
    columns = []
    for name in wanted:
        field = java.schema().asStruct().field(name)
        if field is None or str(field.type().typeId()) not in _Z_TYPES:
            raise SpecError(
                f"`maintenance.zorder` names a column that has no place on a Z-curve: `{name}`",
                remedy="name columns of numbers, text, bytes or times; or wait until records have brought the column",
                where=str(java.name()),
            )
        if field.fieldId() not in constant:
            columns.append(f"{name}__{field.fieldId()}" if name in RESERVED else name)
    return columns


def _table_cache(gateway: Any) -> Any:
    """Returns Iceberg's cache of tables for Spark. Its class has a static `get()` and an instance's `get(String)`; py4j
    takes the one that the JVM lists first, which depends on the class archive.
    """
    lang = gateway.jvm.java.lang
    of_class = lang.Class.forName("org.apache.iceberg.spark.SparkTableCache")
    return of_class.getMethod("get", array_of(gateway, lang.Class)).invoke(None, array_of(gateway, lang.Object))


def _rewrite(
    spark: SparkSession, gateway: Any, table: Any, order: Sequence[tuple[str, bool]], is_other_order: bool, group: Any
) -> Any:
    """Returns the files that one group becomes, uncommitted. order: the columns as Spark names them, and whether
    descending. is_other_order: whether it is not the table's own.
    """
    jvm, iceberg, name = gateway.jvm, gateway.jvm.org.apache.iceberg.spark, new_id()
    cache, tasks, results = (
        _table_cache(gateway),
        iceberg.ScanTaskSetManager.get(),
        iceberg.FileRewriteCoordinator.get(),
    )
    try:
        cache.add(name, table)
        tasks.stageTasks(table, name, jvm.java.util.ArrayList(group.fileScanTasks()))
        rows, cores = spark.read.format("iceberg").option("scan-task-set-id", name), _cores(spark)
        scan = rows.option("split-size", str(group.inputSplitSize())).option("file-open-cost", "0").load(name)
        scan, spec_id = scan.coalesce(cores), group.outputSpecId()
        # Rows of one file may belong to any number of partitions where its spec differs from the output spec.
        is_mixed = bool(table.specs().get(spec_id).isPartitioned())
        is_mixed = is_mixed and group.fileScanTasks().get(0).file().specId() != spec_id
        if not is_mixed:
            scan = _ordered(scan, order, min(cores, int(group.expectedOutputFiles())))
        options = _writing(group, is_mixed, is_other_order, _largest_file(group, cores))
        writer = scan.write.format("iceberg")
        for option, value in {"rewritten-file-scan-task-set-id": name, **options}.items():
            writer = writer.option(option, value)
        writer.mode("append").save(name)
        return results.fetchNewFiles(table, name)
    finally:
        cache.remove(name)
        tasks.removeTasks(table, name)
        results.clearRewrite(table, name)


def _cores(spark: SparkSession) -> int:
    """Returns the number of tasks that a stage of this session may have: the number of its shuffle partitions."""
    return int(str(spark.conf.get("spark.sql.shuffle.partitions")))


def _largest_file(group: Any, cores: int) -> int:
    """Returns the size at which the writer begins the next file, in bytes. A task that writes one file may exceed the
    estimate, so that no small file follows; several files of one task are to be of about equal size.
    """
    files = int(group.expectedOutputFiles())
    if files <= cores:
        return int(group.maxOutputFileSize())
    return int(group.inputFilesSizeInBytes()) * 21 // (20 * files)


def _writing(group: Any, is_mixed: bool, is_other_order: bool, largest_bytes: int) -> dict[str, str]:
    """Returns the writer's options. Rows of one partition are written in the order given, which the writer must not
    change to the table's own. Rows of several partitions are sorted by partition, so that one file is open at a time,
    and within a partition by the table's own order.
    """
    return {
        "use-table-distribution-and-ordering": "false" if is_other_order and not is_mixed else "true",
        "target-file-size-bytes": str(largest_bytes),
        "distribution-mode": "range" if is_mixed else "none",
        "fanout-enabled": "false" if is_mixed else "true",
        "output-spec-id": str(group.outputSpecId()),
    }


def _ordered(scan: DataFrame, order: Sequence[tuple[str, bool]], files: int) -> DataFrame:
    if not order:
        return scan
    columns: list[Column] = [scan[name].desc() if is_down else scan[name].asc() for name, is_down in order]
    if files > 1:
        scan = scan.repartitionByRange(files, *columns)
    return scan.sortWithinPartitions(*columns)


def _columns(java: Any, wanted: Sequence[str]) -> list[tuple[str, bool]]:
    """Returns the columns to sort by, as Spark names them, and whether descending."""
    sort_columns = []
    for text in wanted:
        name, _, direction = text.partition(" ")
        field = java.schema().findField(name)
        if field is None:
            raise SpecError(
                f"`maintenance.sort` names a column that the table does not have: `{name}`",
                remedy="correct the name, or wait until records have brought the column",
                where=str(java.name()),
            )
        if not field.type().isPrimitiveType():
            raise SpecError(
                f"`maintenance.sort` names a column that is not a single value: `{name}`",
                remedy="name a column that is not a list, map or struct, or one inside it, such as `a.b`",
                where=str(java.name()),
            )
        sort_columns.append((_in_spark(java, name), direction.lower() == "desc"))
    return sort_columns


def _own_order(java: Any) -> list[tuple[str, bool]]:
    """Returns the table's own sort order where it has identity transforms only."""
    fields = list(java.sortOrder().fields())
    if not all(field.transform().isIdentity() for field in fields):
        return []
    names = [str(java.schema().findColumnName(field.sourceId())) for field in fields]
    return [
        (_in_spark(java, name), str(field.direction()).lower() == "desc")
        for name, field in zip(names, fields, strict=True)
    ]


def _in_spark(java: Any, name: str) -> str:
    """Returns the column's name in backquotes, renamed as in `seen_as`."""
    field = java.schema().asStruct().field(name)
    if field is None:
        return ".".join(f"`{part}`" for part in name.split("."))
    return f"`{name}__{field.fieldId()}`" if name in RESERVED else f"`{name}`"


class NotReadable(Exception):
    """Why Spark cannot read a table."""

    def __init__(self) -> None:
        super().__init__("Spark cannot read a type of its columns")


def rows_of(spark: SparkSession, catalog: IcebergCatalog, table: str, snapshot_id: int) -> DataFrame:
    """Returns the rows of a snapshot.

    Raises: NotReadable for types that Spark does not have.
    """
    travel = catalog.gateway.jvm.org.apache.iceberg.spark.TimeTravel.version(str(snapshot_id))
    return _rows(spark, catalog, table, None, travel)


def rows_at(spark: SparkSession, catalog: IcebergCatalog, table: str, snapshot_id: int | None) -> DataFrame:
    """Returns the rows of a snapshot in the present columns of the table; none for None.

    Raises: NotReadable for types that Spark does not have.
    """
    return _rows(spark, catalog, table, _NO_SNAPSHOT if snapshot_id is None else snapshot_id, None)


def _rows(spark: SparkSession, catalog: IcebergCatalog, table: str, head_id: int | None, travel: Any) -> DataFrame:
    """head_id: as of `seen_as`. travel: Iceberg's choice of a snapshot; None: the newest one."""
    from pyspark.sql import DataFrame  # noqa: PLC0415  (a third of a second that other commands need not pay)

    jvm: Any = spark.sparkContext._jvm
    java = catalog.java_table(table)
    if not is_readable_by_spark(jvm, java):
        raise NotReadable
    source = jvm.org.apache.iceberg.spark.source.SparkTable.create(seen_as(jvm, java, head_id=head_id), travel)
    none = jvm.scala.Option.empty()
    relation = jvm.org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation.create(source, none, none)
    rows = DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, relation), spark)
    return rows.toDF(*(str(field.name()) for field in each(java.schema().columns())))
