"""The dead-letter tables of a pipeline: created on demand, filled under the commit ids of its tables.

The commit of a batch names the files of its dead letters; a second commit adds these files to the dead-letter table. A
dead letter therefore exists exactly when its batch is committed. Where a process dies between the two commits, the
second is made before the table's next batch; the dead-letter table's own progress shows whether it is still to be made
(docs/decisions/0009).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import structlog
from pyiceberg.schema import Schema

from frazil.catalog.layout import UNARRANGED, Layout
from frazil.catalog.port import Catalog, TableState
from frazil.catalog.progress import DEAD_LETTERS_MARK, SENT_MARK
from frazil.catalog.scans import LiveFile
from frazil.dead_letters.files import pieces, places_of
from frazil.dead_letters.pending import settle_replays
from frazil.dead_letters.record import DEAD_LETTER_TYPES, FAR_TIME, HELD_AT
from frazil.errors import ConflictError, SpecError, UnavailableError
from frazil.failpoints import hit
from frazil.ingest.failures import TableStopped
from frazil.ingest.tables.table import Table
from frazil.kafka.port import Outbox, OutRecord
from frazil.literals import format_moment
from frazil.schema.evolve import extend_schema, new_schema
from frazil.types import Commit, DataFile, PendingDeadLetters, Place, Progress, later
from frazil.write.plain_target import plain_target
from frazil.write.target import METADATA_TYPES, TableTarget
from frazil.write.write import FileWriter

log = structlog.get_logger("frazil")
_PROPERTIES = re.compile(r"\bproperty|properties\b", re.IGNORECASE)

_PLACE = ("topic", "partition", "offset")
_CODEC, _LEVEL = "write.parquet.compression-codec", "write.parquet.compression-level"
DELETES_OLD = "write.metadata.delete-after-commit.enabled"
"""Iceberg's property; nothing removes the old metadata files of a table without it."""
# By default Iceberg keeps every old metadata file: at one commit a second that fills a disk. And every hundredth commit
# reads a hundred manifests, one after the other, to merge them: from an object store that takes seconds.
NEW_TABLE_PROPERTIES = {
    DELETES_OLD: "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest.min-count-to-merge": "20",
    _CODEC: "zstd",
    _LEVEL: "1",
}


def new_table_properties(asked: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties of a new table: NEW_TABLE_PROPERTIES and those of the pipeline file. The compression level
    belongs to one codec: with another codec it is left out unless the file sets it.
    """
    defaults = NEW_TABLE_PROPERTIES
    if asked.get(_CODEC, defaults[_CODEC]).lower() != defaults[_CODEC]:
        defaults = {name: text for name, text in defaults.items() if name != _LEVEL}
    return {**defaults, **asked}


def create_table(
    catalog: Catalog,
    name: str,
    schema: Schema,
    asked: Mapping[str, str],
    format_version: int,
    layout: Layout = UNARRANGED,
    location: str | None = None,
) -> TableState:
    """Creates a table, as `Catalog.create`, with `new_table_properties`, but without those that the pipeline file does
    not ask for and the catalog refuses.
    """
    properties = new_table_properties(asked)
    create = partial(catalog.create, name, schema, format_version=format_version, layout=layout, location=location)
    try:
        return create(properties=properties)
    except SpecError as error:
        defaults = properties.keys() - asked.keys()
        refused = {name_of_default for name_of_default in defaults if name_of_default in error.message} or defaults
        if not refused or not _PROPERTIES.search(error.message):
            raise
        log.warning("properties_refused", table=name, properties=sorted(refused), reason=error.message)
        return create(
            properties={
                property_name: text for property_name, text in properties.items() if property_name not in refused
            }
        )


class DeadLetterTables:
    """Dead-letter tables in `catalog`; thread-safe for different tables."""

    def __init__(self, catalog: Catalog, outbox: Outbox | None = None, pipeline: str = "") -> None:
        self._catalog = catalog
        self._outbox = outbox
        self._pipeline = pipeline

    def open(self, table: Table) -> TableState:
        """Returns the table's dead-letter table, created if it does not exist; a property of the table names it from
        then on.

        Raises: TableStopped where a table of that name has another purpose.
        """
        name = table.dead_letter_table_name
        more = {HELD_AT: METADATA_TYPES["timestamp"]} if table.spec.query.waits else {}
        dead_letter_table = self._catalog.load(name)
        if dead_letter_table is None:
            location = f"{table.spec.layout.location.rstrip('/')}__dead_letters" if table.spec.layout.location else None
            schema = new_schema({**DEAD_LETTER_TYPES, **more}.items())
            dead_letter_table = create_table(self._catalog, name, schema, {}, 2, location=location)
        refuse_other_table(dead_letter_table, table.name)
        if more.keys() - {field.name for field in dead_letter_table.schema.fields}:
            dead_letter_table = self._catalog.evolve(name, lambda schema: extend_schema(schema, {(): more}))
        if table.state is not None and table.state.marks.get(DEAD_LETTERS_MARK) != name:
            self._catalog.mark(table.name, DEAD_LETTERS_MARK, name)
        return dead_letter_table

    def settle(self, table: Table) -> None:
        """Finishes pending commits to the table's dead-letter table, and pending replays from there. To be called
        again, after an exception, before anything else is done with the table.

        Raises: TableStopped where that is impossible; UnavailableError and ConflictError as the catalog.
        """
        if table.state is not None and table.progress.dead_letters is not None:
            table.state = replace(table.state, progress=self.deliver(table.name, table.progress))
        name = table.state.marks.get(DEAD_LETTERS_MARK) if table.state is not None else None
        dead_letters = self._catalog.load(name) if name else None
        if dead_letters is not None:
            with _store_reached(dead_letters.name):
                settle_replays(self._catalog, dead_letters)
            table.catalog.dead_letter_count = self._catalog.size(dead_letters.name).row_count

    def deliver(self, table: str, progress: Progress) -> Progress:
        """Commits the dead letters that the newest progress of `table` names as pending, unless they are committed;
        returns the progress without them, or unchanged where the table has a newer commit.

        Raises: UnavailableError where it cannot be found out whether they are committed; to be called again before
        anything else is done with the table.
        """
        dead_letters = progress.dead_letters
        if dead_letters is None:
            return progress
        dead_letter_table = self._catalog.load(dead_letters.table)
        if dead_letter_table is None or dead_letter_table.history_lost:
            lost = "no longer exists"
            if dead_letter_table is not None:
                lost = "has lost the snapshot that shows which dead letters it has"
            raise TableStopped(
                f"the dead-letter table {dead_letters.table} {lost}, and the table's newest commit has pending"
                " dead letters for it",
                "restore it: the summary of the table's newest snapshot names the files of the dead letters",
                dead_letters.table,
            )
        # In this order: another process that commits to the table after us has delivered these dead letters before; if
        # that happens only now, the dead-letter table has changed since it was loaded, so that our commit is refused.
        newest = self._catalog.load(table)
        if newest is None or newest.progress.commit_id != progress.commit_id:
            return progress
        files = dead_letters.files
        with _store_reached(dead_letter_table.name):
            if dead_letter_table.progress.commit_id != progress.commit_id:
                files = self._commit(dead_letter_table, dead_letters, progress)
            is_sent = dead_letter_table.marks.get(SENT_MARK) == progress.commit_id
            if dead_letters.topic and self._outbox is not None and not is_sent:
                sent = replace(dead_letters, files=files)
                self._send(self._outbox, table, dead_letter_table, sent, progress.commit_id)
                # By default a broker forgets the committed offsets of an idle group after a week.
                hit("dead_letters.published")
                self._catalog.mark(dead_letter_table.name, SENT_MARK, progress.commit_id)
        return replace(progress, dead_letters=None)

    def _commit(
        self, dead_letter_table: TableState, dead_letters: PendingDeadLetters, progress: Progress
    ) -> tuple[DataFile, ...]:
        """Adds the dead letters to their table; returns the files that were added."""
        hit("dead_letters.before")
        # A table that was rolled back reads its offsets again; its dead letters are never rolled back.
        reached = later(dead_letter_table.progress.offsets, progress.offsets)
        kept = replace(progress, offsets=reached, dead_letters=None, snapshot_id=None, committed_at_ms=None)
        files = dead_letters.files
        if _is_newer(dead_letter_table.progress, dead_letters):
            files = self._unseen(dead_letter_table, files)
        try:
            self._catalog.commit(Commit(dead_letters.table, files, kept, dead_letter_table.progress))
        except ConflictError:
            # Another process of this pipeline has delivered the same dead letters first.
            again = self._catalog.load(dead_letters.table)
            if again is None or again.progress.commit_id != progress.commit_id:
                raise
        hit("dead_letters.after")
        return files

    def _send(
        self,
        outbox: Outbox,
        table: str,
        dead_letter_table: TableState,
        dead_letters: PendingDeadLetters,
        commit_id: str,
    ) -> None:
        """Writes the dead letters to their Kafka topic, exactly once, in one transaction."""
        target = plain_target(dead_letter_table)
        records = [
            record for file in dead_letters.files for record in _out_records(read_dead_letters(target, file.path))
        ]
        outbox.write(f"frazil-{self._pipeline}-{table}", dead_letters.topic, commit_id, records)

    def _unseen(self, dead_letter_table: TableState, files: tuple[DataFile, ...]) -> tuple[DataFile, ...]:
        """Returns files with the dead letters that are not in the table yet: a table that was rolled back reads records
        again whose dead letters remain.
        """
        target = plain_target(dead_letter_table)
        new = pa.concat_tables([read_dead_letters(target, file.path, _PLACE) for file in files])
        offsets = pc.unique(new["offset"])
        existing: set[Place] = set()
        for existing_file in self._catalog.scan(dead_letter_table.name).files:
            rows = read_dead_letters(target, existing_file.path, _PLACE)
            existing.update(places_of(rows.filter(pc.is_in(rows["offset"], value_set=offsets))))
        writer = FileWriter(target)
        for file in files:
            rows = read_dead_letters(target, file.path)
            rows = rows.filter(pa.array([place not in existing for place in places_of(rows)], pa.bool_()))
            if rows.num_rows:
                writer.write(rows)
        return tuple(writer.finish())


@contextmanager
def _store_reached(dead_letters: str) -> Iterator[None]:
    """Turns an OSError in its block into UnavailableError. Py4J's broken connections pass unchanged."""
    try:
        yield
    except ConnectionError:
        raise
    except OSError as error:
        raise UnavailableError(f"the store does not read or write a file: {error}", where=dead_letters) from None


def read_dead_letters(target: TableTarget, path: str, names: Sequence[str] | None = None) -> pa.Table:
    """Returns the rows of one file of a dead-letter table, with all its columns or those of these names."""
    return pa.concat_tables(pieces(target, LiveFile(path, 0, ""), names))


def _out_records(rows: pa.Table) -> Iterator[OutRecord]:
    """Yields the records as they were, with their origin and their mismatch in additional headers."""
    times = rows["timestamp"].cast(pa.int64()).to_pylist()
    for row, micros in zip(rows.drop_columns(["timestamp"]).to_pylist(), times, strict=True):
        words = {
            name: row[name] for name in ("topic", "partition", "offset", "schema_id", "error_class", "message", "path")
        }
        words[FAR_TIME] = row.get(FAR_TIME)
        words["timestamp"] = None if micros is None else f"{format_moment(micros)}+00:00"
        origin = [(f"frazil.{name}", str(word).encode()) for name, word in words.items() if word is not None]
        headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
        yield OutRecord(row["key"], row["value"], [*headers, *origin])


def _is_newer(dead_letter_table: Progress, dead_letters: PendingDeadLetters) -> bool:
    """Returns whether the dead-letter table has progress beyond the first offsets of these dead letters."""
    return any(
        dead_letter_table.offsets.get(topic, {}).get(partition, 0) > start
        for topic, partitions in dead_letters.since.items()
        for partition, start in partitions.items()
    )


def refuse_other_table(dead_letter_table: TableState, owner: str) -> None:
    """Checks that a table for dead letters of `owner` has their columns.

    Raises: TableStopped where it has not.
    """
    missing = DEAD_LETTER_TYPES.keys() - {FAR_TIME} - {field.name for field in dead_letter_table.schema.fields}
    if missing:
        raise TableStopped(
            f"the table {dead_letter_table.name} is not a dead-letter table: it has no column {min(missing)}",
            "name another one: `dead_letters: {table: …}`",
            owner,
        )
