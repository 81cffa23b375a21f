"""Data and delete files described as JSON, passed to Iceberg's Java API and read from it: thousands in a few calls.

A py4j call takes a tenth of a millisecond and more on either side, and a batch may have ten thousand files. Java itself
therefore iterates over new files, with a function composed of method handles, and describes many files in one text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import groupby
from typing import Any, Literal

from frazil.catalog.iceberg.java import each, java_errors, unavailable
from frazil.catalog.scans import LiveFile, Scan, after_commit, delete_file_of, is_numbered
from frazil.types import Commit

UpdateMethod = Literal[
    "AppendFiles.appendFile",
    "OverwriteFiles.addFile",
    "RowDelta.addRows",
    "RowDelta.removeRows",
    "RowDelta.addDeletes",
    "RowDelta.removeDeletes",
    "RewriteFiles.addFile",
    "RewriteFiles.deleteFile",
]
"""A method of an update that takes one file."""
_OF_DELETES: tuple[UpdateMethod, ...] = (
    "RowDelta.addDeletes",
    "RowDelta.removeDeletes",
    "RewriteFiles.addFile",
    "RewriteFiles.deleteFile",
)
_SPEC_ID = re.compile(r'"spec-id": ?(\d+)')
_QUOTED = ('"NaN"', 'Infinity"')
_AT_ONCE = 2000
_ICEBERG = "org.apache.iceberg"
_JACKSON = f"{_ICEBERG}.shaded.com.fasterxml.jackson"
_FILES_AT_ONCE, _WITH_STATISTICS = 10_000, 500
"""The number of files described in one JSON text, without and with column metrics, which can take a hundred times as
much as everything else.
"""


class DataFiles:
    """Passes files to the JVM behind py4j's `gateway`."""

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway
        self._jvm = gateway.jvm
        self._handles_by_method: dict[UpdateMethod, tuple[Any, Any]] = {}

    def apply(self, contents: Iterable[str], table: Any, update: Any, method: UpdateMethod) -> None:
        """Calls the update's method for each file. A file has the partition spec that it was written with, which need
        not be the table's current one.
        """
        specs = table.specs()
        for spec_id, alike in groupby(contents, key=_spec_id_of):
            spec = specs.get(spec_id)
            found = [_as_read(content, spec) for content in alike]
            apply_one = self._consumer(spec, update, method)
            for first in range(0, len(found), _AT_ONCE):
                self._reader.readTree(f"[{','.join(found[first : first + _AT_ONCE])}]").forEach(apply_one)

    def read(self, contents: Iterable[str], spec: Any) -> list[Any]:
        """Returns Java data files, all of this partition spec."""
        parser = self._jvm.org.apache.iceberg.ContentFileParser
        return [parser.fromJson(self._reader.readTree(_as_read(content, spec)), spec) for content in contents]

    def texts(self, words: Iterable[str]) -> Any:
        """Returns a Java list of these strings, none of which may contain NUL."""
        separated = self._jvm.java.util.regex.Pattern.compile("\x00").splitAsStream("\0".join(words))
        return separated.toList()

    @cached_property
    def _reader(self) -> Any:
        """Iceberg's JSON mapper, which here also reads NaN and Infinity: a partition value may be one."""
        feature = self._class(f"{_JACKSON}.core.json.JsonReadFeature").getField("ALLOW_NON_NUMERIC_NUMBERS").get(None)
        with_feature = getattr(
            self._jvm.org.apache.iceberg.util.JsonUtil.mapper().reader(), "with"
        )  # `with` is a keyword of Python.
        return with_feature(feature.mappedFeature())

    def _consumer(self, spec: Any, update: Any, method: UpdateMethod) -> Any:
        """Returns a Java Consumer: node -> update.method(ContentFileParser.fromJson(node, spec))."""
        handles = self._handles
        if method not in self._handles_by_method:
            self._handles_by_method[method] = self._method_handles(method)
        parse, add = self._handles_by_method[method]
        arguments = self._gateway.new_array(self._jvm.java.lang.Object, 1)
        arguments[0] = spec
        both = handles.filterReturnValue(handles.insertArguments(parse, 1, arguments), add.bindTo(update))
        return self._jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(self._consumers, both)

    def _method_handles(self, method: UpdateMethod) -> tuple[Any, Any]:
        """Returns two method handles: one that reads a file, (node, spec) -> file, and the update's method, (update,
        file) -> update.
        """
        owner, name = method.split(".")
        interface = self._class(f"{_ICEBERG}.{owner}")
        file = self._class(f"{_ICEBERG}.{'DeleteFile' if method in _OF_DELETES else 'DataFile'}")
        node, spec = self._class(f"{_JACKSON}.databind.JsonNode"), self._class(f"{_ICEBERG}.PartitionSpec")
        parser, parsed = self._class(f"{_ICEBERG}.ContentFileParser"), self._class(f"{_ICEBERG}.ContentFile")
        lookup = self._handles.publicLookup()
        parse = lookup.findStatic(parser, "fromJson", self._kind(parsed, node, spec))
        add = lookup.findVirtual(interface, name, self._kind(interface, file))
        return parse.asType(self._kind(file, node, spec)), add

    @property
    def _handles(self) -> Any:
        return self._jvm.java.lang.invoke.MethodHandles

    @cached_property
    def _consumers(self) -> Any:
        return self._class("java.util.function.Consumer")

    def _kind(self, answer: Any, *parameters: Any) -> Any:
        words = self._jvm.java.util.ArrayList()
        for parameter in parameters:
            words.add(parameter)
        return self._jvm.java.lang.invoke.MethodType.methodType(answer, words)

    def _class(self, name: str) -> Any:
        """Returns the Java class as py4j finds it, also from Spark's class loader."""
        return self._jvm.py4j.reflection.ReflectionUtil.classForName(name)


def _as_read(content: str, spec: Any) -> str:
    """Returns the JSON of one file as Java's parser accepts it: Iceberg writes NaN and Infinity in quotes, and does not
    read them again.
    """
    return _unquoted(content, spec) if any(word in content for word in _QUOTED) else content


def _spec_id_of(content: str) -> int:
    found = _SPEC_ID.search(content)
    return int(found[1]) if found else 0


def _unquoted(content: str, spec: Any) -> str:
    """Returns the JSON with numbers in place of texts as values of floating-point partition fields."""
    described = json.loads(content)
    values = described["partition"]
    for place, field in enumerate(each(spec.partitionType().fields())):
        name = place if isinstance(values, list) else str(field.fieldId())
        value = values[place] if isinstance(values, list) else values.get(name)
        if isinstance(value, str) and str(field.type().typeId()) in ("FLOAT", "DOUBLE"):
            values[name] = float(value)
    return json.dumps(described)


class TableScans:
    """The live files of tables that this process commits to: own commits are applied in memory, everything else is
    read.
    """

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        self._known: dict[str, Scan] = {}

    def scan(self, table: str, java: Any) -> Scan:
        """Returns the files of the Java table as last loaded.

        Raises: UnavailableError where its metadata cannot be read.
        """
        snapshot = java.currentSnapshot()
        if snapshot is None:
            return Scan()
        known = self._known.get(table)
        if known is None or known.read_at != snapshot.snapshotId():
            known = self._known[table] = self._read(table, java, snapshot.snapshotId())
        return known

    def note(self, commit: Commit, java: Any) -> None:
        """Applies our own commit to the known files, where it came directly after them and made the newest snapshot."""
        known, snapshot = self._known.get(commit.table), java.currentSnapshot()
        if known is None or snapshot.parentId() != known.read_at:
            return
        first_row_ids = {}
        if snapshot.firstRowId() is not None:  # Format version 3.
            if not all(is_numbered(file.content) for file in known.files):
                # Upgraded from format version 2: this commit has assigned row ids to the existing files.
                del self._known[commit.table]
                return
            try:
                added = each(snapshot.addedDataFiles(java.io())) if commit.files else ()
                first_row_ids = {str(file.location()): file.firstRowId() for file in added}
            except java_errors():  # The commit is done; the next scan reads all files.
                del self._known[commit.table]
                return
        self._known[commit.table] = after_commit(known, commit, snapshot.snapshotId(), first_row_ids)

    def _read(self, table: str, java: Any, snapshot_id: int) -> Scan:
        described = Described(self._jvm, java)
        try:
            files = described.live_files(java.newScan().useSnapshot(snapshot_id).includeColumnStats())
        except java_errors() as error:
            raise unavailable("the table's files cannot be listed", error, table) from None
        return Scan(snapshot_id, tuple(files))


class Described:
    """Files of one Java table as Iceberg's JSON, many files in one text: a py4j call per file would take far longer. A
    table of any size is described in several texts.
    """

    def __init__(self, jvm: Any, java: Any) -> None:
        self._iceberg = jvm.org.apache.iceberg
        self._specs = java.specs()

    def batches(self, scan: Any) -> Iterator[str]:
        """Yields the tasks of a Java table scan as JSON of the REST protocol, many tasks at a time."""
        return self._batches(scan, _FILES_AT_ONCE)

    def live_files(self, scan: Any) -> list[LiveFile]:
        """Returns the files, with their delete files, of a Java table scan that includes column metrics."""
        return [file for batch in self._batches(scan, _WITH_STATISTICS) for file in _live_files(batch)]

    def live_files_of(self, tasks: Any) -> list[LiveFile]:
        """Returns the files of a Java list of scan tasks, in order, with their delete files."""
        return [file for batch in self._parted(tasks, _WITH_STATISTICS) for file in _live_files(batch)]

    def bare_file(self, file: Any) -> LiveFile:
        """Returns a Java data file, without delete files."""
        content = str(self._iceberg.ContentFileParser.toJson(file, self._specs.get(file.specId())))
        return LiveFile(str(file.location()), file.recordCount(), content)

    def _batches(self, scan: Any, at_once: int) -> Iterator[str]:
        tasks = scan.planFiles()
        try:
            yield from self._parted(tasks, at_once)
        finally:
            tasks.close()

    def _parted(self, tasks: Any, at_once: int) -> Iterator[str]:
        batches = self._iceberg.relocated.com.google.common.collect.Iterators.partition(tasks.iterator(), at_once)
        while batches.hasNext():
            yield self._json(batches.next())

    def _json(self, tasks: Any) -> str:
        responses = self._iceberg.rest.responses
        response = responses.FetchScanTasksResponse.builder().withFileScanTasks(tasks).withSpecsById(self._specs)
        return str(responses.FetchScanTasksResponseParser.toJson(response.build()))


def _live_files(text: str) -> Iterator[LiveFile]:
    found = json.loads(text)
    deletes = [delete_file_of(json.dumps(file)) for file in found.get("delete-files", ())]
    for task in found.get("file-scan-tasks", ()):
        file, own = task["data-file"], tuple(deletes[number] for number in task.get("delete-file-references", ()))
        yield LiveFile(file["file-path"], file["record-count"], json.dumps(file), own)


def planned(scan: Any) -> Iterator[Any]:
    """Yields the tasks of a Java table scan."""
    tasks = scan.planFiles()
    yield from each(tasks)
    tasks.close()
