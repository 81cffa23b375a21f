"""Rewrites data files record by record in the driver's JVM, for tables with column types that Spark does not support.

Iceberg's generic reader and writer support all types. They are slower than Spark's, use one core, and keep rows in the
order of their files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from frazil.catalog.iceberg.java import each
from frazil.types import as_json

_NOT_IN_SPARK = frozenset({"TIME", "TIMESTAMP_NANO"})
"""Types that Iceberg's Spark reader refuses, wherever they occur in a table."""
_READER = "org.apache.iceberg.data.GenericReader"
_TASK = "org.apache.iceberg.FileScanTask"
_WRITER = "org.apache.iceberg.io.FileWriter"
_LINEAGE_SINCE = 3


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
    for number, tasks in enumerate(_by_partition(iceberg, java, group)):
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
        lots = _by_partition(gateway.jvm.org.apache.iceberg, java, group)
        if any(len(tasks) > 1 or not tasks[0].deletes().isEmpty() for tasks in lots):
            yield group


def _by_partition(iceberg: Any, java: Any, group: Any) -> Iterator[list[Any]]:
    """Yields the files of a group by spec and partition."""
    found: dict[tuple[int, str], list[Any]] = {}
    for task in each(group.fileScanTasks()):
        file = task.file()
        spec = java.specs().get(file.specId())
        described = json.loads(str(iceberg.ContentFileParser.toJson(file, spec)))
        partition = as_json(described.get("partition"))
        found.setdefault((int(file.specId()), partition), []).append(task)
    yield from found.values()


class _Reader:
    """Iceberg's generic reader of `java`, which applies a file's deletes. The class is not public."""

    def __init__(self, gateway: Any, java: Any, schema: Any) -> None:
        self._gateway = gateway
        lang, loader = gateway.jvm.java.lang, java.getClass().getClassLoader()
        kind = lang.Class.forName(_READER, True, loader)
        (constructor,) = kind.getDeclaredConstructors()
        constructor.setAccessible(True)
        self._reader = constructor.newInstance(self._array(lang.Object, java.newScan().project(schema), False))
        task = lang.Class.forName(_TASK, True, loader)
        self._open = kind.getDeclaredMethod("open", self._array(lang.Class, task))
        self._open.setAccessible(True)
        # py4j would choose the other method of this name, which writes one row.
        rows = self._array(lang.Class, lang.Class.forName("java.lang.Iterable"))
        self._write = lang.Class.forName(_WRITER, True, loader).getMethod("write", rows)

    def copy_rows(self, task: Any, writer: Any) -> None:
        """Writes the rows of a file that are not deleted."""
        kind = self._gateway.jvm.java.lang.Object
        rows = self._open.invoke(self._reader, self._array(kind, task))
        try:
            self._write.invoke(writer, self._array(kind, rows))
        finally:
            rows.close()

    def _array(self, kind: Any, *members: Any) -> Any:
        array = self._gateway.new_array(kind, len(members))
        for place, member in enumerate(members):
            array[place] = member
        return array
