"""Iceberg's Java API through py4j: the only module that talks to it.

A stale writer is refused by the table: `validateWith` runs inside every commit attempt, on the base that the attempt will
replace (Iceberg 1.11 and later). PyIceberg is not used to commit: it rebases on conflict, so a stale writer would win.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from frazil.catalog.arranging import arrange
from frazil.catalog.data_files import DataFiles
from frazil.catalog.history import REWRITE_ID, Said, is_undisturbed, was_said
from frazil.catalog.java import each
from frazil.catalog.layout import UNARRANGED, Layout, is_arranged, order_of, refuse_taken_names, spec_of
from frazil.catalog.port import Rewrite, StoredFile, TableMoved, TableSize, TableState
from frazil.catalog.progress import from_summary, key, to_summary
from frazil.catalog.scans import LiveFile, Scan, after_commit, delete_file_of
from frazil.catalog.vended import VENDED
from frazil.errors import ConflictError, FrazilError, InvariantError, UnavailableError
from frazil.failpoints import hit
from frazil.types import Commit, DataFile, Progress

_CONFLICTS = ("ValidationException", "CommitFailedException")
_TRIES = 5
_NOT_THERE = ("NoSuchTableException", "NoSuchNamespaceException", "NotFoundException")
# The catalog's own secrets are not among them.
_STORE_PROPERTIES = ("s3.", "client.region", "gcs.", "adls.", "hdfs.", "py-io-impl")


class IcebergCatalog:
    """A catalog in the JVM behind py4j's `gateway`, for one pipeline. `properties` are Iceberg's own catalog properties.

    One Java table object is kept per table and refreshed; the JVM is the caller's.
    """

    def __init__(self, gateway: Any, pipeline: str, properties: Mapping[str, str], hadoop: Mapping[str, str]) -> None:
        self._gateway = gateway
        self._jvm = jvm = gateway.jvm
        self._pipeline = pipeline
        self._properties = dict(properties)
        self._tables: dict[str, Any] = {}
        self._adopted: set[str] = set()
        self._files = DataFiles(gateway)
        self._states: dict[str, tuple[str, TableState]] = {}
        self._scans: dict[str, Scan] = {}
        configuration = jvm.org.apache.hadoop.conf.Configuration()
        for name, value in hadoop.items():
            configuration.set(name, value)
        try:
            self._catalog = jvm.org.apache.iceberg.CatalogUtil.buildIcebergCatalog(
                "frazil", self._properties, configuration
            )
        except Py4JJavaError as error:
            raise unavailable("the catalog", error, self._properties.get("uri", "")) from None

    def load(self, table: str) -> TableState | None:
        """See the port."""
        try:
            java = self._fresh(table)
        except Py4JJavaError as error:
            if _is(error, *_NOT_THERE):
                self._tables.pop(table, None)
                return None
            raise unavailable("the table cannot be loaded", error, table) from None
        # Most loads of an idle table find what the last one found; asking for all of it again costs thirty calls. Not so
        # with REST: its store credentials may have been renewed.
        location = java.operations().current().metadataFileLocation()
        known = self._states.get(table)
        if known is None or known[0] != location or self._is_rest:
            known = self._states[table] = (location, self._state(table, java))
        return known[1]

    def size(self, table: str) -> TableSize:
        """See the port."""
        java = self._tables[table]
        snapshot = java.currentSnapshot()
        if snapshot is None:
            return TableSize(0, 0, 0, 0)
        summary = snapshot.summary()
        totals = ("total-records", "total-data-files", "total-files-size")
        numbers = [int(summary.get(name) or 0) for name in totals]
        rows, files, size = numbers
        return TableSize(rows, files, size, _length(java.snapshots()))

    def create(
        self,
        table: str,
        schema: Schema,
        properties: Mapping[str, str],
        format_version: int,
        layout: Layout = UNARRANGED,
    ) -> TableState:
        """See the port."""
        identifier = self._identifier(table)
        iceberg = self._jvm.org.apache.iceberg
        java_schema = iceberg.SchemaParser.fromJson(schema.model_dump_json())
        settings = {**properties, "format-version": str(format_version)}
        settings[key(self._pipeline, "created")] = "true"
        spec, order = spec_of(layout.partition_by or (), schema, table), order_of(layout.sort_by or (), schema, table)
        try:
            self._make_namespaces(identifier.namespace())
            builder = self._catalog.buildTable(identifier, java_schema).withProperties(settings)
            builder = builder.withPartitionSpec(
                iceberg.PartitionSpecParser.fromJson(java_schema, spec.model_dump_json())
            )
            builder.withSortOrder(iceberg.SortOrderParser.fromJson(java_schema, order.model_dump_json())).create()
        except Py4JJavaError as error:
            if not _is(error, "AlreadyExistsException"):
                raise unavailable("the table cannot be created", error, table) from None
        state = self.load(table)
        if state is None:
            raise UnavailableError("the table is not there after it was created", where=table)
        return state

    def evolve(self, table: str, change: Callable[[Schema], Schema]) -> TableState:
        """See the port."""
        for _ in range(_TRIES):
            state = self.load(table)
            if state is None:
                raise UnavailableError("the table is gone", remedy="see who dropped it", where=table)
            wanted = change(state.schema)
            if wanted == state.schema:
                return state
            refuse_taken_names(state.schema, wanted, self._specs(table), table)
            update = self._tables[table].updateSchema()
            update.unionByNameWith(self._jvm.org.apache.iceberg.SchemaParser.fromJson(wanted.model_dump_json()))
            try:
                update.commit()
            except Py4JJavaError as error:
                if not _is(error, *_CONFLICTS):
                    raise unavailable("the schema cannot be changed", error, table) from None
        raise ConflictError("the schema changes faster than this change can be made", where=table)

    def _specs(self, table: str) -> Iterator[PartitionSpec]:
        """Every partition spec of the table, old ones too."""
        parser = self._jvm.org.apache.iceberg.PartitionSpecParser
        for spec in self._tables[table].specs().values():
            yield PartitionSpec.model_validate_json(str(parser.toJson(spec)))

    def arrange(self, table: str, layout: Layout) -> TableState:
        """See the port."""
        for _ in range(_TRIES):
            state = self.load(table)
            if state is None:
                raise UnavailableError("the table is gone", remedy="see who dropped it", where=table)
            if is_arranged(layout, state.schema, state.partitioning, state.sorting, table):
                return state
            hit("arrange.before")
            try:
                arrange(self._jvm, self._tables[table], state, layout)
            except Py4JJavaError as error:
                if not _is(error, *_CONFLICTS):
                    raise unavailable("the partition spec cannot be changed", error, table) from None
        raise ConflictError("the partition spec changes faster than this change can be made", where=table)

    def commit(self, commit: Commit) -> Progress:
        """See the port."""
        java = self._tables.get(commit.table)
        if java is None:
            raise InvariantError("commit to a table that was not loaded", where=commit.table)
        validator = _ProgressValidator(self._pipeline, commit.expected)
        try:
            update = self._row_delta(java, commit) if commit.delta is not None else self._append(java, commit)
            for name, value in to_summary(self._pipeline, commit.progress).items():
                update.set(name, value)
            update.validateWith(validator)
            hit("commit.before")
            update.commit()
            hit("commit.landed")
        except (Py4JJavaError, ConnectionError) as error:
            return self._resolve(commit, error, validator)
        self._adopt(commit.table, java)
        snapshot = java.currentSnapshot()
        self._note_scan(commit, snapshot)
        return replace(commit.progress, snapshot_id=snapshot.snapshotId(), committed_at_ms=snapshot.timestampMillis())

    def _adopt(self, table: str, java: Any) -> None:
        """Marks a table that someone else made as one that this pipeline commits to, so that lost progress is not taken for
        none.
        """
        name, known = key(self._pipeline, "created"), self._states.get(table)
        if known is None or name in known[1].properties or table in self._adopted:
            return
        with suppress(Py4JJavaError):  # The commit is done; the next one tries again.
            java.updateProperties().set(name, "true").commit()
            self._adopted.add(table)

    def files(self, table: str) -> list[StoredFile]:
        """See the port."""
        found = []
        try:
            for task in _planned(self._tables[table].newScan()):
                file, deleted = task.file(), not task.deletes().isEmpty()
                found.append(StoredFile(str(file.location()), file.recordCount(), file.fileSizeInBytes(), deleted))
        except Py4JJavaError as error:
            raise unavailable("the table's files cannot be listed", error, table) from None
        return found

    def mark(self, table: str, name: str, value: str | None) -> None:
        """See the port."""
        full = key(self._pipeline, name)
        update = self._tables[table].updateProperties()
        try:
            (update.remove(full) if value is None else update.set(full, value)).commit()
        except (Py4JJavaError, ConnectionError) as error:
            raise unavailable("a property of the table cannot be set", error, table) from None

    def history(self, table: str, names: Sequence[str]) -> Iterable[Said]:
        """See the port."""
        ancestors = self._jvm.org.apache.iceberg.util.SnapshotUtil.currentAncestors(self._tables[table])
        return _said(self._pipeline, names, ancestors)

    def rewrite(self, rewrite: Rewrite) -> None:
        """See the port."""
        java = self._tables[rewrite.table]
        validator = _HistoryValidator(
            self._pipeline, REWRITE_ID, lambda history: is_undisturbed(history, REWRITE_ID, rewrite.read_at)
        )
        try:
            overwrite = java.newOverwrite().validateFromSnapshot(rewrite.read_at).validateNoConflictingDeletes()
            left = set(rewrite.removed)
            for task in _planned(java.newScan().useSnapshot(rewrite.read_at)) if left else ():
                if (path := str(task.file().location())) in left:
                    overwrite.deleteFile(task.file())
                    left.remove(path)
            if left:
                raise ConflictError("the files were not there when they were read", where=rewrite.table)
            self._files.add(rewrite.added, java, overwrite, "OverwriteFiles.addFile")
            for name, value in {**rewrite.words, REWRITE_ID: rewrite.id}.items():
                overwrite.set(key(self._pipeline, name), value)
            overwrite.validateWith(validator).commit()
            hit("retry.rewrite-landed")
        except (Py4JJavaError, ConnectionError) as error:
            self._look_up(rewrite.table, error, validator, rewrite.id, rewrite.read_at)

    def append_once(self, table: str, files: Sequence[DataFile], name: str, value: str, since: int | None) -> None:
        """See the port."""
        java = self._tables[table]
        validator = _HistoryValidator(
            self._pipeline, name, lambda history: was_said(history, name, value, since) is False
        )
        try:
            append = java.newAppend()
            self._files.add(files, java, append, "AppendFiles.appendFile")
            append.set(key(self._pipeline, name), value).validateWith(validator).commit()
            hit("retry.append-landed")
        except (Py4JJavaError, ConnectionError) as error:
            self._look_up(table, error, validator, value, since)

    def _look_up(
        self, table: str, error: Exception, validator: _HistoryValidator, value: str, since: int | None
    ) -> None:
        """A commit that raised (law 4): all is well if the table says what it was to say."""
        if self.load(table) is None:
            raise unavailable("the commit did not go through", error, table) from None
        is_said = was_said(self.history(table, (validator.name,)), validator.name, value, since)
        if is_said:
            return
        if is_said is not None and (validator.refused or _is(error, *_CONFLICTS)):
            raise ConflictError(f"the commit was refused: {_cause(error)}", where=table) from None
        raise unavailable("the commit did not go through", error, table) from None

    def delete_files(self, table: str, paths: Sequence[str]) -> None:
        """See the port."""
        if table not in self._tables:
            return
        store = self._tables[table].io()
        for path in paths:
            try:
                store.deleteFile(path)
            except Py4JJavaError:
                continue  # An orphan costs space, not truth; orphan removal finds it.

    def _append(self, java: Any, commit: Commit) -> Any:
        append = java.newAppend()
        self._files.add(commit.files, java, append, "AppendFiles.appendFile")
        return append

    def _row_delta(self, java: Any, commit: Commit) -> Any:
        """Rows that come and go, with all of Iceberg's own checks that nobody has changed what they go from."""
        delta = commit.delta
        assert delta is not None
        update = java.newRowDelta().validateDeletedFiles()
        if delta.read_at is not None:
            update.validateFromSnapshot(delta.read_at)
        update.validateNoConflictingDataFiles().validateNoConflictingDeleteFiles()
        if delta.touched:
            update.validateDataFilesExist(self._list(delta.touched))
        self._files.add(commit.files, java, update, "RowDelta.addRows")
        for file in delta.removed:
            update.removeRows(self._content_file(java, file.content))
        for delete in delta.deletes:
            update.addDeletes(self._content_file(java, delete.content))
        for delete in delta.replaced:
            update.removeDeletes(self._content_file(java, delete.content))
        return update

    def _list(self, words: Sequence[str]) -> Any:
        found = self._jvm.java.util.ArrayList()
        for word in words:
            found.add(word)
        return found

    def _content_file(self, java: Any, content: str) -> Any:
        iceberg = self._jvm.org.apache.iceberg
        return iceberg.ContentFileParser.fromJson(iceberg.util.JsonUtil.mapper().readTree(content), java.specs())

    def scan(self, table: str) -> Scan:
        """See the port. What this process itself has committed it knows; all else is asked for again."""
        java = self._tables[table]
        snapshot = java.currentSnapshot()
        if snapshot is None:
            return Scan()
        known = self._scans.get(table)
        if known is None or known.read_at != snapshot.snapshotId():
            known = self._scans[table] = self._read_scan(table, java, snapshot.snapshotId())
        return known

    def _read_scan(self, table: str, java: Any, snapshot_id: int) -> Scan:
        parser, specs = self._jvm.org.apache.iceberg.ContentFileParser, java.specs()
        files = []
        try:
            for task in _planned(java.newScan().useSnapshot(snapshot_id).includeColumnStats()):
                file, deletes = task.file(), task.deletes()
                content = str(parser.toJson(file, specs.get(file.specId())))
                texts = [str(parser.toJson(delete, specs.get(delete.specId()))) for delete in each(deletes)]
                known = tuple(delete_file_of(text) for text in texts)
                files.append(LiveFile(str(file.location()), file.recordCount(), content, known))
        except Py4JJavaError as error:
            raise unavailable("the table's files cannot be listed", error, table) from None
        return Scan(snapshot_id, tuple(files))

    def _note_scan(self, commit: Commit, snapshot: Any) -> None:
        """Moves the known files on by a commit of our own that came right after them."""
        known = self._scans.get(commit.table)
        if known is not None and snapshot.parentId() == known.read_at:
            self._scans[commit.table] = after_commit(known, commit, snapshot.snapshotId())

    def _resolve(self, commit: Commit, error: Exception, validator: _ProgressValidator) -> Progress:
        """A commit that raised: refused, landed all the same, or not known (law 4). Asks the table for our commit id."""
        # Iceberg tries again by itself after an attempt whose answer was lost, and is then refused by our own progress.
        if validator.refused and validator.found != commit.progress.commit_id:
            raise ConflictError(
                f"the table's progress is not the one this batch started from: found={validator.found}",
                where=commit.table,
            ) from None
        state = self.load(commit.table)
        if state is not None and state.progress.commit_id == commit.progress.commit_id:
            return state.progress
        if _is(error, *_CONFLICTS):
            # Iceberg looks at files before it asks the validator: a stale writer may be told of another's files first.
            is_ours = state is not None and state.progress.commit_id == commit.expected.commit_id
            refusal = TableMoved if commit.delta is not None and is_ours else ConflictError
            raise refusal(f"the commit was refused: {_cause(error)}", where=commit.table) from None
        raise unavailable("the commit did not go through", error, commit.table) from None

    @property
    def gateway(self) -> Any:
        """py4j's way into the JVM that the catalog is in."""
        return self._gateway

    @property
    def pipeline(self) -> str:
        """The pipeline whose progress it reads and writes."""
        return self._pipeline

    def java_table(self, table: str) -> Any:
        """A Java table of the caller's own, fresh from the catalog."""
        return self._catalog.loadTable(self._identifier(table))

    def java_strings(self, words: Sequence[str]) -> Any:
        """A Java array."""
        return self._strings(words)

    def _fresh(self, table: str) -> Any:
        java = self._tables.get(table)
        # A table of a REST catalog keeps the store credentials it was loaded with: only another load has new ones.
        if java is None or self._is_rest:
            java = self._tables[table] = self._catalog.loadTable(self._identifier(table))
        else:
            java.refresh()
        return java

    @property
    def _is_rest(self) -> bool:
        return self._properties.get("type") == "rest"

    def _io_properties(self, java: Any) -> dict[str, str]:
        """What a task needs to reach the table's store: of the catalog's properties and of the table's own those about
        stores, and the credentials that the catalog vends for the longest prefix of the table's location.
        """
        io, location = java.io(), str(java.location())
        properties = {**self._properties, **self._strings_of(io.properties())}
        storage = "org.apache.iceberg.io.SupportsStorageCredentials"
        if self._is_rest and is_instance_of(self._gateway, io, storage):
            vended = [found for found in each(io.credentials()) if location.startswith(str(found.prefix()))]
            for credentials in sorted(vended, key=lambda found: len(str(found.prefix()))):
                properties |= self._strings_of(credentials.config())
        VENDED.note(properties)
        return {name: value for name, value in properties.items() if name.startswith(_STORE_PROPERTIES)}

    def _state(self, table: str, java: Any) -> TableState:
        iceberg = self._jvm.org.apache.iceberg
        progress, is_cut = self._progress(java)
        properties = self._strings_of(java.properties())
        metadata, snapshot = java.operations().current(), java.currentSnapshot()
        prefix = key(self._pipeline, "")
        return TableState(
            name=table,
            uuid=str(java.uuid()),
            schema=Schema.model_validate_json(iceberg.SchemaParser.toJson(java.schema())),
            location=java.location(),
            properties=properties,
            format_version=metadata.formatVersion(),
            spec_id=java.spec().specId(),
            is_partitioned=java.spec().isPartitioned(),
            progress=progress,
            history_lost=is_cut and progress.snapshot_id is None and key(self._pipeline, "created") in properties,
            io_properties=self._io_properties(java),
            head_id=snapshot.snapshotId() if snapshot is not None else None,
            partition_spec=str(iceberg.PartitionSpecParser.toJson(java.spec())),
            sort_order=str(iceberg.SortOrderParser.toJson(java.sortOrder())),
            marks={name.removeprefix(prefix): text for name, text in properties.items() if name.startswith(prefix)},
        )

    def _progress(self, java: Any) -> tuple[Progress, bool]:
        """The newest progress in the main branch's ancestry, and whether the ancestry ends in an expired snapshot."""
        snapshot = java.currentSnapshot()
        while snapshot is not None:
            summary = snapshot.summary()
            if summary.get(key(self._pipeline, "offsets")) is not None:
                found = from_summary(
                    self._pipeline, self._strings_of(summary), snapshot.snapshotId(), snapshot.timestampMillis()
                )
                return found or Progress(), False
            parent = snapshot.parentId()
            if parent is None:
                return Progress(), False
            snapshot = java.snapshot(parent)
            if snapshot is None:
                return Progress(), True
        return Progress(), False

    def _strings_of(self, java_map: Any) -> dict[str, str]:
        """A Java map of strings in one call; py4j's own way makes two for each entry."""
        found: dict[str, str] = json.loads(
            self._jvm.org.apache.iceberg.util.JsonUtil.mapper().writeValueAsString(java_map)
        )
        return found

    def _identifier(self, table: str) -> Any:
        *namespace, name = table.split(".")
        java = self._jvm.org.apache.iceberg.catalog
        levels = self._strings(namespace)
        return java.TableIdentifier.of(java.Namespace.of(levels), name)

    def _strings(self, words: Sequence[str]) -> Any:
        array = self._gateway.new_array(self._jvm.java.lang.String, len(words))
        for number, word in enumerate(words):
            array[number] = word
        return array

    def _make_namespaces(self, namespace: Any) -> None:
        for depth in range(1, namespace.length() + 1):
            levels = [namespace.level(level) for level in range(depth)]
            part = self._jvm.org.apache.iceberg.catalog.Namespace.of(self._strings(levels))
            try:
                if not self._catalog.namespaceExists(part):
                    self._catalog.createNamespace(part)
            except Py4JJavaError:
                # Another thread or process was quicker; a database catalog says so by a constraint of its own.
                if not self._catalog.namespaceExists(part):
                    raise


class _ProgressValidator:
    """Iceberg's SnapshotAncestryValidator: true only while the newest progress is the expected one.

    Iceberg asks it on every attempt, newest snapshot first. It must never raise: an exception would look like an unknown
    outcome, so trouble is a refusal.
    """

    class Java:
        """What py4j needs to know."""

        implements: tuple[str, ...] = ("org.apache.iceberg.SnapshotAncestryValidator",)

    def __init__(self, pipeline: str, expected: Progress) -> None:
        self._offsets = key(pipeline, "offsets")
        self._commit_id = key(pipeline, "commit-id")
        self._expected = expected.commit_id
        self.found = ""
        self.refused = False

    def validate(self, snapshots: Any) -> bool:
        """Called by the JVM with the snapshots of the branch."""
        hit("commit.validating")
        self.found = ""
        iterator = snapshots.iterator()
        while iterator.hasNext():
            summary = iterator.next().summary()
            if summary.get(self._offsets) is not None:
                self.found = str(summary.get(self._commit_id))
                break
        self.refused = self.found != self._expected
        return not self.refused

    def errorMessage(self) -> str:  # noqa: N802  (the interface's name)
        """Called by the JVM, also when all is well."""
        return f"progress is {self.found or 'none'}, not {self._expected or 'none'}"


class _HistoryValidator:
    """Iceberg's SnapshotAncestryValidator: true while `is_right` of what the branch says under `name`. It must never raise,
    as above.
    """

    class Java:
        """What py4j needs to know."""

        implements: tuple[str, ...] = ("org.apache.iceberg.SnapshotAncestryValidator",)

    def __init__(self, pipeline: str, name: str, is_right: Callable[[Iterable[Said]], bool]) -> None:
        self.name = name
        self.refused = False
        self._pipeline = pipeline
        self._is_right = is_right

    def validate(self, snapshots: Any) -> bool:
        """Called by the JVM with the snapshots of the branch."""
        self.refused = not self._is_right(_said(self._pipeline, (self.name,), snapshots))
        return not self.refused

    def errorMessage(self) -> str:  # noqa: N802  (the interface's name)
        """Called by the JVM, also when all is well."""
        return f"the table says another {self.name}, or its history is gone"


def _said(pipeline: str, names: Sequence[str], snapshots: Any) -> Iterator[Said]:
    """What Java snapshots of one branch say, newest first."""
    iterator = snapshots.iterator()
    has_next = iterator.hasNext()
    while has_next:
        snapshot = iterator.next()
        summary = snapshot.summary()
        found = {name: summary.get(key(pipeline, name)) for name in names}
        has_next = iterator.hasNext()
        words = {name: str(text) for name, text in found.items() if text is not None}
        yield Said(snapshot.snapshotId(), words, is_cut=not has_next and snapshot.parentId() is not None)


def _planned(scan: Any) -> Iterator[Any]:
    """The tasks of a table scan."""
    tasks = scan.planFiles()
    yield from each(tasks)
    tasks.close()


def unavailable(what: str, error: Exception, where: str) -> FrazilError:
    """An outage, with the innermost cause in words."""
    return UnavailableError(f"{what}: {_cause(error)}", where=where)


def is_conflict(error: Exception, *names: str) -> bool:
    """Whether a commit was refused because another one was in the way; names: further exceptions that say so."""
    causes = [error.java_exception] if isinstance(error, Py4JJavaError) else []
    while causes and (inner := causes[-1].getCause()) is not None and len(causes) < 10:
        causes.append(inner)
    found = [cause.getClass().getName() for cause in causes]
    if any("CommitStateUnknown" in name for name in found):
        return False
    return any(wanted in name for name in found for wanted in (*_CONFLICTS, *names))


def is_not_there(error: Exception) -> bool:
    """Whether the catalog says that there is no such table."""
    return _is(error, *_NOT_THERE)


def _is(error: Exception, *names: str) -> bool:
    return isinstance(error, Py4JJavaError) and any(name in error.java_exception.getClass().getName() for name in names)


def _cause(error: Exception) -> str:
    if not isinstance(error, Py4JJavaError):
        return str(error)
    cause = error.java_exception
    for _ in range(10):
        inner = cause.getCause()
        if inner is None:
            break
        cause = inner
    text = " ".join(str(cause.getMessage() or "").split())
    return f"{cause.getClass().getSimpleName()}: {text}".rstrip(": ")[:400]


def _length(iterable: Any) -> int:
    size = getattr(iterable, "size", None)
    return int(size()) if size is not None else sum(1 for _ in iterable)
