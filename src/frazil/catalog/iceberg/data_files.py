"""Data and delete files described as JSON, passed to Iceberg's Java API and read from it: thousands in a few calls.

A py4j call takes a tenth of a millisecond and more on either side, and a batch may have ten thousand files. Java itself
therefore iterates over new files, with a function composed of method handles, and describes many files in one text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from frazil.catalog.iceberg.java import each, head_of, java_errors, unavailable
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
_NO_VALUES = re.compile(r'"partition":(\{\}|\[\])')
_UNKNOWN = "unknown"
Dropped = Mapping[int, tuple[int, ...]]
"""By the id of a partition spec, the places of the partition fields whose column the table has dropped."""
_QUOTED = ('"NaN"', 'Infinity"')
_AT_ONCE = 2000
_ICEBERG = "org.apache.iceberg"
_JACKSON = f"{_ICEBERG}.shaded.com.fasterxml.jackson"
_FILES_AT_ONCE, _WITH_STATISTICS = 10_000, 500
"""The number of files described in one JSON text, without and with column metrics, which can take a hundred times as
much as everything else.
"""


class MethodHandles:
    """Makes Java's method handles in the JVM behind py4j's `gateway`. Classes are Java's own objects of `class_of`."""

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway
        self._jvm = gateway.jvm

    def class_of(self, name: str) -> Any:
        """Returns the Java class as py4j finds it, also from Spark's class loader."""
        return self._jvm.py4j.reflection.ReflectionUtil.classForName(name)

    def static(self, owner: Any, name: str, answer: Any, *parameters: Any) -> Any:
        """Returns the handle of a public static method."""
        return self._lookup.findStatic(owner, name, self.type_of(answer, *parameters))

    def virtual(self, owner: Any, name: str, answer: Any, *parameters: Any) -> Any:
        """Returns the handle of a public method; its first parameter is the object."""
        return self._lookup.findVirtual(owner, name, self.type_of(answer, *parameters))

    def unreflected(self, method: Any) -> Any:
        """Returns the handle of a java.lang.reflect.Method that was made accessible; its first parameter is the object."""
        return self._lookup.unreflect(method)

    def reordered(self, handle: Any, places: Sequence[int], answer: Any, *parameters: Any) -> Any:
        """Returns a handle with these parameters that passes those at `places` to `handle`, in that order."""
        order = self._gateway.new_array(self._jvm.int, len(places))
        for number, place in enumerate(places):
            order[number] = place
        return self._methods.permuteArguments(handle, self.type_of(answer, *parameters), order)

    def nested(self, outer: Any, place: int, inner: Any) -> Any:
        """Returns `outer` with the result of `inner` as its parameter at `place`, and the parameters of `inner` there."""
        return self._methods.collectArguments(outer, place, inner)

    def bound(self, handle: Any, place: int, *values: Any) -> Any:
        """Returns `handle` without its parameters at `place` and behind it, which have these values."""
        given = self._gateway.new_array(self._jvm.java.lang.Object, len(values))
        for number, value in enumerate(values):
            given[number] = value
        return self._methods.insertArguments(handle, place, given)

    def after(self, first: Any, handle: Any) -> Any:
        """Returns a handle that calls `first`, which returns nothing, and then `handle`, with the same arguments."""
        return self._methods.foldArguments(handle, first)

    def type_of(self, answer: Any, *parameters: Any) -> Any:
        """Returns a type of methods; `answer` is the class of what they return."""
        classes = self._jvm.java.util.ArrayList()
        for parameter in parameters:
            classes.add(parameter)
        return self._jvm.java.lang.invoke.MethodType.methodType(answer, classes)

    def instance(self, interface: Any, handle: Any) -> Any:
        """Returns an object of an interface with one method, which calls the handle."""
        return self._proxies.asInterfaceInstance(interface, handle)

    @cached_property
    def consumer(self) -> Any:
        """The interface of functions of one value."""
        return self.class_of("java.util.function.Consumer")

    @cached_property
    def bi_consumer(self) -> Any:
        """The interface of functions of two values, such as a key and a value."""
        return self.class_of("java.util.function.BiConsumer")

    @cached_property
    def _methods(self) -> Any:
        return self._jvm.java.lang.invoke.MethodHandles

    @cached_property
    def _proxies(self) -> Any:
        return self._jvm.java.lang.invoke.MethodHandleProxies

    @cached_property
    def _lookup(self) -> Any:
        return self._methods.publicLookup()


class DataFiles:
    """Passes files, and entries of snapshot summaries, to the JVM behind py4j's `gateway`."""

    def __init__(self, gateway: Any) -> None:
        self._jvm = gateway.jvm
        self._handles = MethodHandles(gateway)
        self._by_method: dict[UpdateMethod, Any] = {}

    def apply(self, contents: Iterable[str], table: Any, update: Any, method: UpdateMethod) -> None:
        """Calls the update's method for each file. A file has the partition spec that it was written with, which need
        not be the table's current one.
        """
        texts = [*contents]
        if not texts:
            return
        specs = table.specs()
        dropped = {} if all(_NO_VALUES.search(content) for content in texts) else dropped_fields(specs)
        # The handle (update, specs, node) -> update.method(ContentFileParser.fromJson(node, specs)).
        if method not in self._by_method:
            self._by_method[method] = self._handle_of(method)
        add_one = self._handles.instance(self._handles.consumer, self._by_method[method].bindTo(update).bindTo(specs))
        for first in range(0, len(texts), _AT_ONCE):
            read = (_as_read(content, specs, dropped) for content in texts[first : first + _AT_ONCE])
            self._reader.readTree(f"[{','.join(read)}]").forEach(add_one)

    def set_entries(self, entries: Mapping[str, str], update: Any) -> None:
        """Sets entries of the summary of the snapshot that the update makes."""
        named = self._mapper.readValue(json.dumps(dict(entries)), self._maps)
        named.forEach(self._handles.instance(self._handles.bi_consumer, self._setting.bindTo(update)))

    def read(self, contents: Iterable[str], table: Any) -> list[Any]:
        """Returns data files of the Java table."""
        parser, specs = self._jvm.org.apache.iceberg.ContentFileParser, table.specs()
        dropped = dropped_fields(specs)
        read = (self._reader.readTree(_as_read(content, specs, dropped)) for content in contents)
        return [parser.fromJson(node, specs) for node in read]

    def texts(self, words: Iterable[str]) -> Any:
        """Returns a Java list of these strings, none of which may contain NUL."""
        separated = self._jvm.java.util.regex.Pattern.compile("\x00").splitAsStream("\0".join(words))
        return separated.toList()

    @cached_property
    def _mapper(self) -> Any:
        return self._jvm.org.apache.iceberg.util.JsonUtil.mapper()

    @cached_property
    def _reader(self) -> Any:
        """Iceberg's JSON mapper, which here also reads NaN and Infinity: a partition value may be one."""
        feature = self._handles.class_of(f"{_JACKSON}.core.json.JsonReadFeature")
        with_feature = getattr(self._mapper.reader(), "with")  # `with` is a keyword of Python.
        return with_feature(feature.getField("ALLOW_NON_NUMERIC_NUMBERS").get(None).mappedFeature())

    def _handle_of(self, method: UpdateMethod) -> Any:
        owner, name = method.split(".")
        handles, class_of = self._handles, self._handles.class_of
        update = class_of(f"{_ICEBERG}.{owner}")
        file = class_of(f"{_ICEBERG}.{'DeleteFile' if method in _OF_DELETES else 'DataFile'}")
        node, specs = class_of(f"{_JACKSON}.databind.JsonNode"), self._maps
        parser, parsed = class_of(f"{_ICEBERG}.ContentFileParser"), class_of(f"{_ICEBERG}.ContentFile")
        parse = handles.static(parser, "fromJson", parsed, node, specs).asType(handles.type_of(file, node, specs))
        both = handles.nested(handles.virtual(update, name, update, file), 1, parse)
        return handles.reordered(both, (0, 2, 1), update, update, specs, node)

    @cached_property
    def _setting(self) -> Any:
        """The handle (update, name, text) -> update.set(name, text)."""
        text, object_class = self._handles.class_of("java.lang.String"), self._handles.class_of("java.lang.Object")
        update = self._handles.class_of(f"{_ICEBERG}.SnapshotUpdate")
        return self._handles.virtual(update, "set", object_class, text, text)

    @cached_property
    def _maps(self) -> Any:
        return self._handles.class_of("java.util.Map")


def _as_read(content: str, specs: Any, dropped: Dropped) -> str:
    """Returns the JSON of one file as Java's parser accepts it: Iceberg writes NaN and Infinity in quotes, and does not
    read them again, nor values of a type that it has lost.
    """
    number = _spec_id_of(content) if dropped else 0
    if number in dropped:
        spec = specs.get(number)
        places = dropped[number]
        described = json.loads(content)
        values, fields = described["partition"], list(each(spec.fields()))
        for place in places:
            values[place if isinstance(values, list) else str(fields[place].fieldId())] = None
        return _unquoted(json.dumps(described), spec)
    return _unquoted(content, specs.get(_spec_id_of(content))) if any(word in content for word in _QUOTED) else content


def _spec_id_of(content: str) -> int:
    match = _SPEC_ID.search(content)
    return int(match[1]) if match else 0


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

    def __init__(self, jvm: Any, branch_of: Callable[[str], str]) -> None:
        self._jvm = jvm
        self._branch_of = branch_of
        self._scans: dict[str, Scan] = {}

    def scan(self, table: str, java: Any) -> Scan:
        """Returns the files of the Java table's branch as last loaded.

        Raises: UnavailableError where its metadata cannot be read.
        """
        snapshot = head_of(java, self._branch_of(table))
        if snapshot is None:
            return Scan()
        scan = self._scans.get(table)
        if scan is None or scan.read_at != snapshot.snapshotId():
            scan = self._scans[table] = self._read(table, java, snapshot.snapshotId())
        return scan

    def note(self, commit: Commit, java: Any) -> None:
        """Applies our own commit to the known files, where it came directly after them and made the newest snapshot."""
        scan = self._scans.get(commit.table)
        if scan is None:
            return
        snapshot = head_of(java, self._branch_of(commit.table))
        if snapshot is None or snapshot.parentId() != scan.read_at:  # None: somebody has removed the main branch since.
            return
        first_row_ids = {}
        if snapshot.firstRowId() is not None:  # Format version 3.
            if not all(is_numbered(file.content) for file in scan.files):
                # Upgraded from format version 2: this commit has assigned row ids to the existing files.
                del self._scans[commit.table]
                return
            try:
                added = each(snapshot.addedDataFiles(java.io())) if commit.files else ()
                first_row_ids = {str(file.location()): file.firstRowId() for file in added}
            except java_errors():  # The commit is done; the next scan reads all files.
                del self._scans[commit.table]
                return
        self._scans[commit.table] = after_commit(scan, commit, snapshot.snapshotId(), first_row_ids)

    def _read(self, table: str, java: Any, snapshot_id: int) -> Scan:
        described = Described(self._jvm, java)
        try:
            files = described.live_files(java.newScan().useSnapshot(snapshot_id).includeColumnStats())
        except java_errors() as error:
            raise unavailable("the table's files cannot be listed", error, table) from None
        return Scan(snapshot_id, tuple(files))


def dropped_fields(specs: Any) -> Dropped:
    """Returns the partition fields of a Java table's specs whose type is lost: Iceberg finds no column for them."""
    if specs.size() == 1:
        return {}
    types = {number: spec.partitionType() for number, spec in specs.items()}
    lost = {number: kind for number, kind in types.items() if _UNKNOWN in str(kind.toString())}
    return {number: places for number, kind in lost.items() if (places := _places_of_unknown(kind))}


def _places_of_unknown(struct: Any) -> tuple[int, ...]:
    kinds = (str(field.type().toString()) for field in each(struct.fields()))
    return tuple(place for place, kind in enumerate(kinds) if kind == _UNKNOWN)


def specs_to_describe(jvm: Any, java: Any) -> Any:
    """Returns the partition specs of the Java table, by id, as `ContentFileParser` needs them: with the types that dropped
    columns had, and with any fields in place of void fields alone, as a table of format version 1 has once its last
    partition field is removed.
    """
    specs, iceberg = java.specs(), jvm.org.apache.iceberg
    dropped = dropped_fields(specs)
    if not dropped and "void(" not in str(specs.toString()):  # One call for all.
        return specs
    described_specs = jvm.java.util.HashMap(specs)
    for number, spec in specs.items():
        fields = list(each(spec.fields()))
        if not fields or (number not in dropped and spec.isPartitioned()):
            continue
        transforms = [str(field.transform().toString()) if spec.isPartitioned() else "identity" for field in fields]
        kinds = [_type_of(java, field.sourceId()) if spec.isPartitioned() else "int" for field in fields]
        columns = [
            {"id": place, "name": f"c{place}", "type": kind, "required": False} for place, kind in enumerate(kinds, 1)
        ]
        terms = [
            {"source-id": place, "field-id": fields[place - 1].fieldId(), "name": f"p{place}", "transform": transform}
            for place, transform in enumerate(transforms, 1)
        ]
        schema = iceberg.SchemaParser.fromJson(json.dumps({"type": "struct", "fields": columns}))
        text = json.dumps({"spec-id": number, "fields": terms})
        described_specs.put(number, iceberg.PartitionSpecParser.fromJson(schema, text))
    return described_specs


def _type_of(java: Any, field_id: int) -> str:
    """Returns the type of a column in the newest schema of the Java table that has it."""
    schemas = sorted(java.schemas().items(), reverse=True)
    kinds = (schema.findType(field_id) for _, schema in [(0, java.schema()), *schemas])
    return next((str(kind.toString()) for kind in kinds if kind is not None), "string")


class Described:
    """Files of one Java table as Iceberg's JSON, many files in one text: a py4j call per file would take far longer. A
    table of any size is described in several texts.
    """

    def __init__(self, jvm: Any, java: Any) -> None:
        self._iceberg = jvm.org.apache.iceberg
        self._specs = specs_to_describe(jvm, java)

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
        responses = self._iceberg.rest.responses
        while batches.hasNext():
            response = responses.FetchScanTasksResponse.builder().withFileScanTasks(batches.next())
            yield str(responses.FetchScanTasksResponseParser.toJson(response.withSpecsById(self._specs).build()))


def _live_files(text: str) -> Iterator[LiveFile]:
    tasks = json.loads(text)
    deletes = [delete_file_of(json.dumps(file)) for file in tasks.get("delete-files", ())]
    for task in tasks.get("file-scan-tasks", ()):
        file, file_deletes = (
            task["data-file"],
            tuple(deletes[number] for number in task.get("delete-file-references", ())),
        )
        yield LiveFile(file["file-path"], file["record-count"], json.dumps(file), file_deletes)


def planned(scan: Any) -> Iterator[Any]:
    """Yields the tasks of a Java table scan."""
    tasks = scan.planFiles()
    yield from each(tasks)
    tasks.close()
