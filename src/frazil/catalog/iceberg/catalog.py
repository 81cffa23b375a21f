"""The catalog port on top of Iceberg's Java API, through py4j.

The table refuses stale writers: `validateWith` runs inside every commit attempt, on the base that the attempt replaces
(Iceberg 1.11 and later). PyIceberg is not used to commit: it rebases after a conflict; a stale writer would win.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from pyiceberg.schema import Schema

from frazil.catalog.iceberg.answers import Answer, Refresh, Sending, lost_answers, set_property
from frazil.catalog.iceberg.data_files import DataFiles, TableScans, planned
from frazil.catalog.iceberg.dropped_columns import forget_dropped_values
from frazil.catalog.iceberg.java import (
    ancestors_of,
    answering,
    cause_of,
    head_of,
    is_another_table,
    is_not_there,
    java_errors,
    make_namespaces,
    remove,
    unavailable,
)
from frazil.catalog.iceberg.loads import Loads
from frazil.catalog.iceberg.opening import (
    ask_catalog,
    commits_together,
    create_twice,
    is_absent,
    is_unmade,
    open_catalog,
    refuse_failed,
    refuse_other_kind,
    refused_creation,
)
from frazil.catalog.iceberg.store_access import properties_of_file
from frazil.catalog.iceberg.tables import Creation, Operations, StateReader, arrange, creation_notes, row_delta
from frazil.catalog.iceberg.validators import HistoryValidator, ProgressValidator, Validator, logged_snapshots
from frazil.catalog.layout import UNARRANGED, Layout, is_arranged, refuse_partition_field_names
from frazil.catalog.port import NamedAppend, NotSent, Replacement, Rewrite, TableMoved, TableSize, TableState
from frazil.catalog.progress import (
    COMMIT_ID,
    REPLAY_ID,
    REWRITE_ID,
    LoggedSnapshot,
    is_recorded,
    is_undisturbed,
    is_unmoved,
    key,
    to_summary,
)
from frazil.catalog.scans import Scan
from frazil.errors import ConflictError, SpecError, UnavailableError
from frazil.failpoints import hit
from frazil.types import MAIN, Commit, Progress

_TRIES = 5
_CANNOT_LOAD = "the table cannot be loaded"
_GONE, _WHO_DROPPED = "the table no longer exists", "find out who dropped the table"


class IcebergCatalog:
    """Implements the port `Catalog` on a catalog in the JVM behind py4j's `gateway`, for one pipeline. `name` and
    `properties` are the catalog's. One Java table object is kept per table and refreshed; the JVM belongs to the caller.
    """

    def __init__(
        self,
        gateway: Any,
        pipeline: str,
        properties: Mapping[str, str],
        hadoop: Mapping[str, str],
        vends_credentials: bool = False,
        name: str = "frazil",
    ) -> None:
        #: py4j's gateway to the JVM of the catalog.
        self.gateway = gateway
        #: The pipeline whose progress is read and written.
        self._jvm, self.pipeline = gateway.jvm, pipeline
        self._properties, self._hadoop = dict(properties), hadoop
        self._tables, self._operations = dict[str, Any](), Operations()
        self._adopted, self._behind = set[str](), set[str]()
        #: By table its creation whose answer was lost, until the table has been seen.
        self._unanswered: dict[str, Creation] = {}
        #: Namespaces that exist, as this process has found or made them.
        self._namespaces: set[str] = set()
        self._files = DataFiles(gateway)
        self._branches: Callable[[str], str] = lambda _: MAIN
        self.reader = StateReader(gateway, pipeline, self._properties, vends_credentials, self.branch_of)
        self._states: dict[str, tuple[str, TableState]] = {}
        #: The sizes of tables that were just committed to, until they are asked for, or a table is loaded.
        self._sizes: dict[str, TableSize] = {}
        #: The live files of tables; a Java table of another caller may be asked for under the table's lock.
        self.scans = TableScans(self._jvm, self.branch_of)
        self._locks: dict[str, AbstractContextManager[object]] = {}
        self._name, self._catalog = name, open_catalog(gateway, name, self._properties, hadoop)
        #: The same catalog with every table at main, once a table with a branch is read there.
        self._main: IcebergCatalog | None = None
        #: Asks for a namespace: takes the catalog's address and the name; see `ask_catalog`.
        self.ask = partial(ask_catalog, gateway, self._catalog)
        self._loads = Loads(gateway, self._catalog)

    def with_branches(self, branches: Callable[[str], str]) -> IcebergCatalog:
        """Returns this catalog. branches: returns the branch that a table is read from and committed to."""
        self._branches = branches
        return self

    def branch_of(self, table: str) -> str:
        """Returns the branch that the table is read from and committed to; its first commit makes it."""
        return self._branches(table)

    def on_main(self, table: str) -> IcebergCatalog:
        if self.branch_of(table) == MAIN:
            return self
        if self._main is None:
            vends = self.reader.vends_credentials
            self._main = IcebergCatalog(
                self.gateway, self.pipeline, self._properties, self._hadoop, vends, name=self._name
            )
        return self._main

    def load(self, table: str) -> TableState | None:
        try:
            state = self._state_of(table, *self._fresh(table))
            self._unanswered.pop(table, None)
            return state
        except java_errors() as error:
            refuse_other_kind(self.gateway, self._catalog, self._identifier(table), error)
            if is_unmade(self._properties, error) or self._is_absent(table, error):
                self._forget(table)
                return None
            if self._restore(table, error):
                return self.load(table)
            raise unavailable(_CANNOT_LOAD, error, table) from None

    def _restore(self, table: str, error: Exception) -> bool:
        """Returns whether a table whose creation was not answered has got back what `error`, of a load, misses."""
        creation = self._unanswered.get(table)
        with suppress(*java_errors()):  # The next load tries again.
            if creation is not None and creation.restore(error):
                del self._unanswered[table]
                return True
        return False

    def _state_of(self, table: str, java: Any, metadata: Any) -> TableState:
        """Returns the state of a Java table with its metadata."""
        # Most loads of an idle table find the metadata of the previous load, which saves thirty calls. Not where
        # its store credentials may have been renewed.
        location = metadata.metadataFileLocation()
        cached = self._states.get(table)
        if (
            cached is None
            or location is None
            or cached[0] != location
            or self.reader.vends_credentials
            or cached[1].credentials_end_ms
        ):
            cached = self._states[table] = (location, self.reader.state(table, java))
        return cached[1]

    def size(self, table: str) -> TableSize:
        size = self._sizes.pop(table, None)  # Other changes of the table may follow.
        if size is not None:
            return size
        with answering(_CANNOT_LOAD, table):
            java = self._loaded(table)
            return self.reader.size_of(java, self.reader.contents_of(head_of(java, self.branch_of(table))))

    def create(
        self,
        table: str,
        schema: Schema,
        properties: Mapping[str, str],
        format_version: int,
        layout: Layout = UNARRANGED,
        location: str | None = None,
    ) -> TableState:
        identifier = self._identifier(table)
        settings = {**properties, "format-version": str(format_version), **creation_notes(self._jvm, self.pipeline)}
        creation = Creation(self._jvm, self._catalog, identifier, schema, settings, layout, location)
        failure: Exception | None = None
        namespace = table.rpartition(".")[0]
        try:
            if namespace not in self._namespaces:
                create_twice(lambda: make_namespaces(self.gateway, self._catalog, identifier.namespace()))
                self._namespaces.add(namespace)
            java = create_twice(creation.create)
            hit("create.landed")
            if not self.reader.vends_credentials:  # Other catalogs return what a load would: it need not be asked for.
                self._tables[table] = java
                return self._state_of(table, java, self._operations.of(table, java).current())
        except lost_answers() as error:
            failure = error  # It may exist: the answer was lost, or another process was faster.
            self._unanswered[table] = creation
            self._namespaces.discard(namespace)  # The next attempt makes sure that it exists.
        state = self.load(table)
        if state is None and failure is not None:
            raise refused_creation(failure, table)
        if state is None:
            raise UnavailableError("the table does not exist after its creation", where=table)
        return state

    def evolve(self, table: str, change: Callable[[Schema], Schema]) -> TableState:
        failure = None
        for _ in range(_TRIES):
            state = self._existing(table)
            wanted = change(state.schema)
            if wanted == state.schema:
                return state
            refuse_failed("the schema cannot be changed", failure, table)
            refuse_partition_field_names(state.schema, wanted, state.specs, table)
            update = self._tables[table].updateSchema()
            update.unionByNameWith(self._jvm.org.apache.iceberg.SchemaParser.fromJson(wanted.model_dump_json()))
            try:
                update.commit()
                hit("evolve.landed")
                return self._existing(table)
            except lost_answers() as error:
                failure = error
        raise ConflictError("other writers change the schema faster than Frazil can", where=table)

    def _existing(self, table: str) -> TableState:
        state = self.load(table)
        if state is None:
            raise UnavailableError(_GONE, remedy=_WHO_DROPPED, where=table)
        return state

    def arrange(self, table: str, layout: Layout) -> TableState:
        failure = None
        for _ in range(_TRIES):
            state = self._existing(table)
            if is_arranged(layout, state.schema, state.partitioning, state.sorting, table):
                return state
            refuse_failed("the partition spec cannot be changed", failure, table)
            hit("layout.before")
            try:
                arrange(self._jvm, self._tables[table], state, layout)
            except lost_answers() as error:
                failure = error
        raise ConflictError("other writers change the partition spec faster than Frazil can", where=table)

    def commit(self, commit: Commit) -> Progress:
        java = self._loaded(commit.table)
        try:
            operations = self._operations.of(commit.table, java)
            validator = ProgressValidator(self.pipeline, commit, operations)
            update = self._update_for(java, commit)
            newest = int(operations.current().lastSequenceNumber())
            self._files.set_entries({**commit.entries, **to_summary(self.pipeline, commit.progress)}, update)
        except java_errors() as error:
            raise NotSent(f"the commit cannot be made: {cause_of(error)}", where=commit.table) from None
        except UnavailableError as error:  # Of the commit that removes values of dropped columns beforehand.
            raise NotSent(error.message, remedy=error.remedy, where=error.where) from None
        sending = self._sending(commit.table, java, validator, (COMMIT_ID, commit.progress.commit_id))
        try:
            hit("commit.before")
            snapshot = sending.send(update)
            hit("commit.landed")
            self._adopt(commit.table, java)
            self.scans.note(commit, java)
            contents = self.reader.contents_of(snapshot)
            self._sizes[commit.table] = self.reader.size_of(java, contents)
            return replace(
                commit.progress, snapshot_id=contents["snapshot-id"], committed_at_ms=contents["timestamp-ms"]
            )
        except lost_answers() as error:
            return self._resolve(commit, error, validator, sending, newest)

    def _adopt(self, table: str, java: Any) -> None:
        """Marks a table that another tool created as one that this pipeline commits to, so that expired progress is not
        taken for absent progress.
        """
        name, cached = key(self.pipeline, "created"), self._states.get(table)
        if cached is None or name in cached[1].properties or table in self._adopted:
            return
        with suppress(*java_errors()):  # The commit is done; the next one tries again.
            java.updateProperties().set(name, "true").commit()
            self._adopted.add(table)

    def mark(self, table: str, name: str, value: str | None) -> None:
        try:
            java = self._loaded(table)
            set_property(java, key(self.pipeline, name), value, self.refresher(table, java))
        except lost_answers() as error:
            raise unavailable("a property of the table cannot be set", error, table) from None

    def history(self, table: str, names: Sequence[str]) -> Iterable[LoggedSnapshot]:
        with answering(_CANNOT_LOAD, table):
            yield from logged_snapshots(self.pipeline, names, ancestors_of(self._loaded(table), self.branch_of(table)))

    def summaries(self, table: str) -> Iterator[Mapping[str, str]]:
        return (json.loads(text).get("summary", {}) for text in self.snapshot_texts(table))

    def snapshot_texts(self, table: str) -> Iterator[str]:
        """Yields the snapshots of the table's branch as loaded, the newest first, as Iceberg's JSON."""
        parser = self._jvm.org.apache.iceberg.SnapshotParser
        with answering(_CANNOT_LOAD, table):
            for snapshot in ancestors_of(self._loaded(table), self.branch_of(table)):
                yield parser.toJson(snapshot)  # One call in place of one for each entry.

    def _loaded(self, table: str) -> Any:
        """Returns the Java table as last loaded.

        Raises: NotSent where a load has found that it no longer exists.
        """
        if table not in self._tables:
            raise NotSent(_GONE, remedy=_WHO_DROPPED, where=table)
        return self._tables[table]

    def rewrite(self, rewrite: Rewrite) -> None:
        java = self._loaded(rewrite.table)
        validator = HistoryValidator(
            self.pipeline, REWRITE_ID, lambda history: is_undisturbed(history, rewrite.read_at)
        )
        sending = self._sending(rewrite.table, java, validator, (REWRITE_ID, rewrite.id))
        try:
            overwrite = java.newOverwrite().validateFromSnapshot(rewrite.read_at).validateNoConflictingDeletes()
            left = set(rewrite.removed)
            for task in planned(java.newScan().useSnapshot(rewrite.read_at)) if left else ():
                if (path := str(task.file().location())) in left:
                    overwrite.deleteFile(task.file())
                    left.remove(path)
            if left:
                raise ConflictError("the files did not exist when they were read", where=rewrite.table)
            self._files.apply((file.content for file in rewrite.added), java, overwrite, "OverwriteFiles.addFile")
            self._set_own({**rewrite.summary, REWRITE_ID: rewrite.id}, overwrite)
            sending.send(overwrite)
            hit("replay.rewrite-landed")
        except lost_answers() as error:
            self._check_landed(rewrite.table, error, sending, (REWRITE_ID, rewrite.id), rewrite.read_at)

    def append_once(self, append: NamedAppend) -> None:
        java, name, value, since = self._loaded(append.table), append.name, append.value, append.since
        validator = HistoryValidator(
            self.pipeline, name, lambda history: is_recorded(history, name, value, since) is False
        )
        sending = self._sending(append.table, java, validator, (name, value))
        try:
            update = java.newAppend()
            self._files.apply((file.content for file in append.files), java, update, "AppendFiles.appendFile")
            self._set_own(append.entries, update)
            sending.send(update)
            hit("replay.append-landed")
        except lost_answers() as error:
            self._check_landed(append.table, error, sending, (name, value), since)

    def replace_once(self, replacement: Replacement) -> None:
        request, java = replacement, self._loaded(replacement.table)
        validator = HistoryValidator(
            self.pipeline,
            REPLAY_ID,
            lambda history: is_unmoved(history, request.since, request.expected.commit_id),
            COMMIT_ID,
        )
        commit = Commit(request.table, request.files, Progress(), request.expected, request.delta)
        sending = self._sending(request.table, java, validator, (REPLAY_ID, request.id))
        try:
            update = self._update_for(java, commit)
            self._set_own({**request.summary, REPLAY_ID: request.id}, update)
            sending.send(update)
            hit("replay.replace-landed")
            self.scans.note(commit, java)
        except lost_answers() as error:
            self._check_landed(request.table, error, sending, (REPLAY_ID, request.id), request.since)

    def _check_landed(
        self, table: str, error: Exception, sending: Sending, entry: tuple[str, str], since: int | None
    ) -> None:
        """Returns after a commit that raised where a snapshot after `since` has its summary's `entry`, a key and a value.

        Raises: ConflictError where it was refused; UnavailableError where the outcome is unknown.
        """
        self._load_after(error, table)
        has_landed = is_recorded(self.history(table, entry[:1]), *entry, since)
        answer = sending.answer_to(error, has_landed, self._tables[table])
        if answer is Answer.REFUSED:
            raise ConflictError(f"the commit was refused: {cause_of(error)}", where=table) from None
        if answer is not Answer.DONE:
            raise unavailable("the commit failed", error, table) from None

    def delete_files(self, table: str, paths: Sequence[str]) -> None:
        if table in self._tables:
            remove(self._tables[table], paths)  # An orphan costs space only; orphan removal finds it.

    def _update_for(self, java: Any, commit: Commit) -> Any:
        cached = self._states.get(commit.table)
        if cached is None or cached[1].layout.older_specs:  # Of other tables Java need not be asked.
            branch, refresh = self.branch_of(commit.table), self.refresher(commit.table, java)
            forget_dropped_values(self.gateway, self.pipeline, java, commit.table, branch, refresh)
        if commit.delta is not None:
            return row_delta(java, commit.files, commit.delta, self._files)
        append = java.newAppend()
        self._files.apply((file.content for file in commit.files), java, append, "AppendFiles.appendFile")
        return append

    def _sending(self, table: str, java: Any, validator: Validator, entry: tuple[str, str]) -> Sending:
        """Returns a commit to the table's branch. entry: as of Sending, under this pipeline's keys."""
        return Sending(java, validator, (key(self.pipeline, entry[0]), entry[1]), self.branch_of(table))

    def _set_own(self, entries: Mapping[str, str], update: Any) -> None:
        """Sets entries of this pipeline in the summary of an update's snapshot."""
        self._files.set_entries({key(self.pipeline, name): text for name, text in entries.items()}, update)

    def scan(self, table: str) -> Scan:
        with answering(_CANNOT_LOAD, table):
            if table in self._behind:
                self._fresh(table)
                self._behind.discard(table)
            return self.scans.scan(table, self._loaded(table))

    def store_properties(self, location: str) -> Mapping[str, str]:
        return properties_of_file(self.gateway, self._hadoop, self.reader.configured(self._catalog), location)

    def lock(self, table: str) -> AbstractContextManager[object]:
        return self._locks.setdefault(table, threading.RLock())

    def note_rewrite(self, commit: Commit, java: Any) -> None:
        """Records that maintenance, which holds the table's lock, has made the newest snapshot of `java`: the files of
        `commit` were added and removed.
        """
        self.scans.note(commit, java)
        self._behind.add(commit.table)

    def _resolve(
        self, commit: Commit, error: Exception, validator: ProgressValidator, sending: Sending, newest: int
    ) -> Progress:
        """Returns the progress of a commit that raised and that the table has.

        Raises: ConflictError or TableMoved where it was refused; UnavailableError where the outcome is unknown; NotSent
        where it was not sent.
        """
        state = self._load_after(error, commit.table)
        java = self._tables[commit.table]
        # A commit whose answer was lost may be refused afterwards by its own progress, or by that of a later run which has
        # continued from it.
        landed = self.reader.landed(java, commit, newest)
        answer = sending.answer_to(error, landed is not None, java)
        if landed is not None:
            return landed
        if answer is Answer.REFUSED and validator.refused:
            raise validator.refusal(commit.table) from None
        if answer is Answer.REFUSED:
            # Iceberg checks files before it calls the validator: a stale writer may be refused for another writer's
            # files first.
            is_ours = state.progress.commit_id == commit.expected.commit_id
            refusal = TableMoved if commit.delta is not None and is_ours else ConflictError
            raise refusal(f"the commit was refused: {cause_of(error)}", where=commit.table) from None
        failure = unavailable("the commit failed", error, commit.table)
        if answer is Answer.NOT_SENT:
            raise NotSent(failure.message, remedy=failure.remedy, where=failure.where) from None
        raise failure from None

    def _load_after(self, error: Exception, table: str) -> TableState:
        """Returns the table, loaded to find out whether the commit that raised `error` succeeded.

        Raises: UnavailableError where it cannot be loaded.
        """
        try:
            state = self.load(table)
        except SpecError:  # A SpecError would mean to callers that nothing was committed.
            state = None
        if state is None:
            raise unavailable("the commit failed", error, table) from None
        return state

    def java_table(self, table: str) -> Any:
        """Returns a Java table, fresh from the catalog, that belongs to the caller."""
        return self._loads.load(table, self._identifier(table))

    def refresher(self, table: str, java: Any) -> Refresh:
        """Returns what refreshes a Java table, of this catalog's or of a caller's; it raises as `Loads`."""
        return lambda: self._loads.refresh(table, java.operations())

    def _is_absent(self, table: str, error: Exception) -> bool:
        """Returns whether a table that could not be loaded, with `error`, does not exist."""
        is_known = table in self._tables  # Then a right was withdrawn.
        return is_not_there(error) or (
            not is_known and is_absent(self.gateway, self._catalog, self._identifier(table), error)
        )

    @cached_property
    def commits_together(self) -> bool:
        """Whether the catalog has commits of several tables."""
        return commits_together(self.gateway, self._catalog)

    def commit_together(self, changes: Sequence[tuple[str, Any, Any, str | None]]) -> None:
        """Commits changes of several tables at once: the name, the Java metadata before and after it of each, and the branch
        that must be where it was before, also where the change does not set it. Raises what the JVM raises.
        """
        iceberg, commits = self._jvm.org.apache.iceberg, self._jvm.java.util.ArrayList()
        for table, base, updated, branch in changes:
            commit = iceberg.catalog.TableCommit.create(self._identifier(table), base, updated)
            if branch is not None:
                ref, requirements = base.ref(branch), self._jvm.java.util.ArrayList(commit.requirements())
                is_there = iceberg.UpdateRequirement.AssertRefSnapshotID
                requirements.add(is_there(branch, None if ref is None else ref.snapshotId()))
                commit = iceberg.catalog.ImmutableTableCommit.copyOf(commit).withRequirements(requirements)
            commits.add(commit)
        self._catalog.commitTransaction(commits)

    def _fresh(self, table: str) -> tuple[Any, Any]:
        """Returns the Java table and its metadata, as the catalog has them now."""
        self._sizes.pop(table, None)
        java = self._tables.get(table)
        # A Java table of a REST catalog keeps its first store credentials: only another load returns new ones.
        if java is not None and not self.reader.vends_credentials:
            try:
                # Java reports a table that is gone once, and answers null from then on.
                if (metadata := self._loads.refresh(table, self._operations.of(table, java))) is not None:
                    return java, metadata
            except java_errors() as error:
                if not is_another_table(error):
                    raise
            self._forget(table)
        java = self._tables[table] = self.java_table(table)
        return java, self._operations.of(table, java).current()

    def _forget(self, table: str) -> None:
        """Forgets a table that is gone; a table that has its name now is another one."""
        self._tables.pop(table, None)
        self._states.pop(table, None)
        self._operations.forget(table)
        self._adopted.discard(table)

    def _identifier(self, table: str) -> Any:
        return self._jvm.org.apache.iceberg.catalog.TableIdentifier.parse(table)
