"""Java tables: how they are created, their state as values, and updates of partition spec, sort order and rows.

Iceberg's clients of Hive's metastore and of Glue send a request again whose answer was lost. The second one finds the table
that the first one has made, is refused, and the client then deletes the metadata file that the table in the catalog names:
a creation writes it again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from py4j.java_gateway import is_instance_of
from pyiceberg.schema import Schema

from frazil.catalog.iceberg.data_files import DataFiles
from frazil.catalog.iceberg.java import causes_of, each, head_of, is_named, java_errors, length, summary_of
from frazil.catalog.iceberg.opening import REST
from frazil.catalog.iceberg.store_access import identity_of, refuse_hadoop, vended_for
from frazil.catalog.layout import Layout, order_of, spec_change, spec_of, spelled_term
from frazil.catalog.port import StoredLayout, TableSize, TableState
from frazil.catalog.progress import CREATED_AT, from_summary, key
from frazil.catalog.table_metadata import read_schema
from frazil.clock import new_id
from frazil.errors import UnavailableError
from frazil.failpoints import hit
from frazil.plugins.catalogs import KEEPS_METADATA
from frazil.secrets import VENDED
from frazil.spec.partitioning import PartitionTerm, SortTerm
from frazil.store.file_io import store_of
from frazil.store.properties import check_sent, task_properties
from frazil.types import MAIN, Commit, DataFile, Progress, RowDelta

_STORAGE_CREDENTIALS = "org.apache.iceberg.io.SupportsStorageCredentials"


class Operations:
    """The operations of Java tables, by which they are loaded again. A Java table keeps its own, so that they are asked for
    once: loading an unchanged table is two calls then, and a thousand idle tables are loaded each minute.
    """

    def __init__(self) -> None:
        self._operations: dict[str, tuple[Any, Any]] = {}

    def of(self, table: str, java: Any) -> Any:
        """Returns the operations of the Java table that stands for `table` now."""
        cached = self._operations.get(table)
        if cached is None or cached[0] is not java:
            cached = self._operations[table] = (java, java.operations())
        return cached[1]

    def forget(self, table: str) -> None:
        """Forgets a table that is gone."""
        self._operations.pop(table, None)


class StateReader:
    """Reads Java tables of the catalog with these `properties`, for one pipeline."""

    def __init__(
        self,
        gateway: Any,
        pipeline: str,
        properties: Mapping[str, str],
        vends_credentials: bool,
        branch_of: Callable[[str], str],
    ) -> None:
        self._branch_of = branch_of
        self._gateway = gateway
        self._jvm = gateway.jvm
        self._mapper = gateway.jvm.org.apache.iceberg.util.JsonUtil.mapper()
        self._pipeline = pipeline
        self._properties = properties
        #: Whether the catalog vends store credentials per table, as a REST catalog does.
        self.vends_credentials = vends_credentials or properties.get("type") == "rest"

    def state(self, table: str, java: Any) -> TableState:
        """Returns the state of the Java table as last loaded."""
        iceberg = self._jvm.org.apache.iceberg
        branch = self._branch_of(table)
        snapshot = head_of(java, branch)
        progress, is_cut = self._progress(java, snapshot)
        properties = self.strings_of(java.properties())
        metadata, main = java.operations().current(), snapshot if branch == MAIN else java.currentSnapshot()
        prefix = key(self._pipeline, "")
        return TableState(
            name=table,
            uuid=str(java.uuid()),
            schema=read_schema(str(iceberg.SchemaParser.toJson(java.schema())), table),
            location=java.location(),
            properties=properties,
            format_version=metadata.formatVersion(),
            progress=progress,
            history_lost=is_cut and progress.snapshot_id is None and key(self._pipeline, "created") in properties,
            io_properties=self._io_properties(java, table),
            head_id=snapshot.snapshotId() if snapshot is not None else None,
            main_id=main.snapshotId() if main is not None else None,
            layout=StoredLayout(
                spec_id=java.spec().specId(),
                partition_spec=str(iceberg.PartitionSpecParser.toJson(java.spec())),
                sort_order=str(iceberg.SortOrderParser.toJson(java.sortOrder())),
                older_specs=self._older_specs(java),
            ),
            must_keep_metadata=KEEPS_METADATA.items() <= self._properties.items(),
            marks={name.removeprefix(prefix): text for name, text in properties.items() if name.startswith(prefix)},
        )

    def _older_specs(self, java: Any) -> tuple[str, ...]:
        specs, parser = java.specs(), self._jvm.org.apache.iceberg.PartitionSpecParser
        if specs.size() == 1:
            return ()
        newest = java.spec().specId()
        return tuple(str(parser.toJson(spec)) for number, spec in sorted(specs.items()) if number != newest)

    def progress_of(self, snapshot: Any) -> Progress | None:
        """Returns the progress in a Java snapshot; None without progress."""
        return self._progress_in(snapshot, self.strings_of(snapshot.summary()))

    def landed(self, java: Any, commit: Commit, newest: int) -> Progress | None:
        """Returns the progress of a commit on the table's branch; None where it is not there. All snapshots up to the
        sequence number `newest` existed before the commit.

        Raises: UnavailableError where the snapshots that show it have been expired.
        """
        snapshot = head_of(java, self._branch_of(commit.table))
        while snapshot is not None:
            commit_id = summary_of(snapshot).get(key(self._pipeline, "commit-id"))
            if commit_id == commit.progress.commit_id:
                return self.progress_of(snapshot)
            is_older = 0 < snapshot.sequenceNumber() <= newest  # Tables of format version 1 have no sequence numbers.
            if (
                is_older
                or (commit_id is not None and commit_id == commit.expected.commit_id)
                or snapshot.parentId() is None
            ):
                return None
            snapshot = java.snapshot(snapshot.parentId())
            if snapshot is None:
                raise UnavailableError(
                    "the snapshots that show whether the commit landed were expired", where=commit.table
                )
        return None

    def _progress_in(self, snapshot: Any, summary: Mapping[str, str]) -> Progress | None:
        return from_summary(self._pipeline, summary, snapshot.snapshotId(), snapshot.timestampMillis())

    def _progress(self, java: Any, snapshot: Any) -> tuple[Progress, bool]:
        """Returns the newest progress on the branch that `snapshot` is the newest of, and whether the branch ends in an
        expired snapshot, or in one whose parent the catalog does not show.
        """
        while snapshot is not None:
            summary = self.strings_of(summary_of(snapshot))
            if key(self._pipeline, "offsets") in summary:
                return self._progress_in(snapshot, summary) or Progress(), False
            parent = snapshot.parentId()
            if parent is None:
                return Progress(), self._is_cut(java, int(snapshot.sequenceNumber()))
            snapshot = java.snapshot(parent)
            if snapshot is None:
                return Progress(), True
        return Progress(), False

    def _is_cut(self, java: Any, number: int) -> bool:
        """Returns whether snapshots may be missing before a snapshot without parent, with this sequence number: not where
        the table has all of lower numbers, on other branches or staged, and none has progress. In format version 1 all
        numbers are 0.
        """
        if number <= 1:
            return False
        older = [snapshot for snapshot in each(java.snapshots()) if snapshot.sequenceNumber() < number]
        offsets = key(self._pipeline, "offsets")
        return len(older) < number - 1 or any(summary_of(snapshot).get(offsets) is not None for snapshot in older)

    def _io_properties(self, java: Any, table: str) -> dict[str, str]:
        """Returns what a task needs to reach the table's store: the store properties of the catalog and of the table,
        the credentials that the catalog vends for the longest prefix of the location of data files, and the keys that
        Iceberg's client has found elsewhere.

        Raises: SpecError for properties that tasks cannot obey.
        """
        io, table_properties = java.io(), self.strings_of(java.properties())
        location = table_properties.get("write.data.path") or str(java.location())
        refuse_hadoop(self._gateway, io, location, table)
        properties = {**self._properties, **self.strings_of(io.properties())}
        if self.vends_credentials and is_instance_of(self._gateway, io, _STORAGE_CREDENTIALS):
            vended = [
                (str(credential.prefix()), self.strings_of(credential.config()))
                for credential in each(io.credentials())
            ]
            properties |= vended_for(vended, location)
        check_sent(properties, table_properties, table)
        kept = task_properties(properties)
        kept |= identity_of(self._gateway, io, location, properties)
        store_of(tuple(sorted(kept.items()))).check(location)
        VENDED.note({**properties, **kept})
        return kept

    def configured(self, catalog: Any) -> dict[str, str]:
        """Returns the properties of the Java catalog: of a REST catalog with those that its server overrides."""
        if not is_instance_of(self._gateway, catalog, REST):
            return dict(self._properties)
        properties = {**self._properties, **self.strings_of(catalog.properties())}
        VENDED.note(properties)
        return properties

    def contents_of(self, snapshot: Any) -> dict[str, Any]:
        """Returns a Java snapshot as Iceberg's JSON, which is one call for all of its values; empty without one."""
        if snapshot is None:
            return {}
        contents: dict[str, Any] = json.loads(self._jvm.org.apache.iceberg.SnapshotParser.toJson(snapshot))
        return contents

    def size_of(self, java: Any, newest: Mapping[str, Any]) -> TableSize:
        """Returns the size of the Java table. newest: the newest snapshot of its branch, as `contents_of` returns it."""
        if not newest:
            return TableSize(0, 0, 0, 0)
        summary = newest.get("summary", {})
        totals = ("total-records", "total-data-files", "total-files-size", "total-position-deletes")
        rows, files, size, deleted = (int(summary.get(name) or 0) for name in totals)
        return TableSize(rows, files, size, length(java.snapshots()), deleted)

    def strings_of(self, java_map: Any) -> dict[str, str]:
        """Returns a Java map of strings, read in one call; py4j's own mapping makes two calls per entry. Empty for null, as
        the summary of a snapshot may be.
        """
        strings: dict[str, str] | None = json.loads(self._mapper.writeValueAsString(java_map))
        return strings or {}


def arrange(jvm: Any, java: Any, state: TableState, layout: Layout) -> None:
    """Gives the Java table, which is as in `state`, the layout: at most two commits, each complete in itself.

    Raises: py4j's error, of a conflict too: the table is to be loaded again.
    """
    expressions = jvm.org.apache.iceberg.expressions.Expressions
    if layout.partition_by is not None:
        change = spec_change(layout.partition_by, state.schema, state.partitioning, state.name)
        update = java.updateSpec()
        for name in change.removed:
            update.removeField(name)
        for term, name in change.added:
            update.addField(name, _java_term(jvm, expressions, term))
        if change.removed or change.added:
            update.commit()
            hit("layout.spec-changed")
    if layout.sort_by is not None and order_of(layout.sort_by, state.schema).fields != state.sorting.fields:
        sorts = (replace(sort, term=spelled_term(sort.term, state.schema)) for sort in layout.sort_by)
        _sort(jvm, java, tuple(sorts))


def _sort(jvm: Any, java: Any, sorts: tuple[SortTerm, ...]) -> None:
    iceberg = jvm.org.apache.iceberg
    update = java.replaceSortOrder()
    for sort in sorts:
        nulls = iceberg.NullOrder.NULLS_FIRST if sort.is_nulls_first else iceberg.NullOrder.NULLS_LAST
        term = _java_term(jvm, iceberg.expressions.Expressions, sort.term)
        update = update.desc(term, nulls) if sort.is_descending else update.asc(term, nulls)
    update.commit()


def _java_term(jvm: Any, expressions: Any, term: PartitionTerm) -> Any:
    if term.transform == "identity":
        return expressions.ref(term.column)
    return expressions.transform(term.column, jvm.org.apache.iceberg.transforms.Transforms.fromString(term.transform))


def row_delta(java: Any, files: Sequence[DataFile], delta: RowDelta, data_files: DataFiles) -> Any:
    """Returns an uncommitted RowDelta of the Java table that adds `files` and deletes what `delta` names, with
    Iceberg's checks that nobody has changed the files and rows it deletes from.
    """
    update = java.newRowDelta().validateDeletedFiles()
    if delta.read_at is not None:
        update.validateFromSnapshot(delta.read_at)
    update.validateNoConflictingDataFiles().validateNoConflictingDeleteFiles()
    if delta.touched:
        update.validateDataFilesExist(data_files.texts(delta.touched))
    data_files.apply((file.content for file in files), java, update, "RowDelta.addRows")
    data_files.apply((file.content for file in delta.removed), java, update, "RowDelta.removeRows")
    data_files.apply((delete.content for delete in delta.deletes), java, update, "RowDelta.addDeletes")
    data_files.apply((delete.content for delete in delta.replaced), java, update, "RowDelta.removeDeletes")
    return update


# Where it is set, the table is not in the folder above that of its metadata files.
_METADATA_PATH = "write.metadata.path"
# The name of the file that a creation writes, at the end of the message of Iceberg's NotFoundException.
_FIRST_FILE = re.compile(r": (?P<file>\S.*/metadata/00000-[^/]+\.metadata\.json)$")


def creation_notes(jvm: Any, pipeline: str) -> dict[str, str]:
    """Returns the table properties that say that this pipeline creates a table, and when: maintenance need not note the
    time later, in one more commit to each new table.
    """
    notes = {"created": "true", CREATED_AT: str(jvm.System.currentTimeMillis())}
    return {key(pipeline, name): text for name, text in notes.items()}


class Creation:
    """A table that is to be created: `properties` are its properties, with `format-version` among them."""

    def __init__(
        self,
        jvm: Any,
        catalog: Any,
        identifier: Any,
        schema: Schema,
        properties: Mapping[str, str],
        layout: Layout,
        location: str | None,
    ) -> None:
        self._jvm = jvm
        self._catalog = catalog
        self._identifier = identifier
        self._properties = properties
        self._location = location
        name = str(identifier)
        iceberg = jvm.org.apache.iceberg
        self._schema = iceberg.SchemaParser.fromJson(schema.model_dump_json())
        spec, order = spec_of(layout.partition_by or (), schema, name), order_of(layout.sort_by or (), schema, name)
        self._spec = iceberg.PartitionSpecParser.fromJson(self._schema, spec.model_dump_json())
        self._order = iceberg.SortOrderParser.fromJson(self._schema, order.model_dump_json())

    def create(self) -> Any:
        """Creates the table and returns it, a Java table."""
        # Not in a transaction: several catalogs refuse to stage a table, as others refuse a location.
        return self._builder(self._identifier, self._location).create()

    def restore(self, error: Exception) -> bool:
        """Writes the first metadata file of this table again, if it is the file that `error`, of a load, misses; returns
        whether it was.

        Nothing can have been committed to such a table: it cannot be loaded.
        """
        lost = lost_file(error)
        if lost is None or _METADATA_PATH in self._properties:
            return False
        # Staged under a name that no table has, and never created: it has the catalog's own defaults, and the store.
        name = self._jvm.org.apache.iceberg.catalog.TableIdentifier.of(self._identifier.namespace(), f"t{new_id()}")
        staged = self._builder(name, lost.rpartition("/metadata/")[0]).createTransaction().table().operations()
        try:
            parser = self._jvm.org.apache.iceberg.TableMetadataParser
            parser.write(staged.current(), staged.io().newOutputFile(lost))
        except java_errors() as failure:
            if not is_named(failure, "AlreadyExistsException"):  # Else another process was faster.
                raise
        return True

    def _builder(self, identifier: Any, location: str | None) -> Any:
        builder = self._catalog.buildTable(identifier, self._schema).withProperties(self._properties)
        builder = builder.withPartitionSpec(self._spec).withSortOrder(self._order)
        return builder.withLocation(location) if location else builder


def lost_file(error: Exception) -> str | None:
    """Returns the metadata file that a creation wrote and that `error`, of a load, misses; None for another error."""
    if not is_named(error, "NotFoundException"):
        return None
    match = _FIRST_FILE.search(str(causes_of(error)[0].getMessage()))
    return match["file"] if match else None
