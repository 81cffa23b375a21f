"""The dead-letter tables of a pipeline: made when they are needed, filled under the commit ids of the tables they belong to.

The commit of a batch names the files of its letters; only then are they committed where they belong. So a letter is
there exactly when its batch is: what dies between the two commits is made up for before the table's next batch, and the
dead-letter table's own progress tells whether that is still to do (docs/decisions/0009).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from frazil.catalog.history import DEAD_LETTERS_MARK, SENT_MARK
from frazil.catalog.port import Catalog, TableState
from frazil.dead_letters.files import Place, places_of
from frazil.dead_letters.pending import settle_retries
from frazil.dead_letters.record import DEAD_LETTER_TYPES, FAR_TIME
from frazil.errors import ConflictError, UnavailableError
from frazil.failpoints import hit
from frazil.ingest.discovery import TableStopped
from frazil.ingest.old_metadata import DELETES_OLD
from frazil.ingest.table import Table
from frazil.kafka.port import Outbox, OutRecord
from frazil.literals import spell_moment
from frazil.schema.evolve import new_schema
from frazil.types import Commit, DataFile, PendingDeadLetters, Progress, later
from frazil.write.plain_target import plain_target
from frazil.write.target import TableTarget
from frazil.write.write import FileWriter, file_io

_PLACE = ("topic", "partition", "offset")
_CODEC, _LEVEL = "write.parquet.compression-codec", "write.parquet.compression-level"
# Iceberg keeps every old metadata file unless told otherwise: at one commit a second that fills a disk.
NEW_TABLE_PROPERTIES = {
    DELETES_OLD: "true",
    "write.metadata.previous-versions-max": "20",
    _CODEC: "zstd",
    _LEVEL: "1",
}


def new_table_properties(asked: Mapping[str, str]) -> dict[str, str]:
    """Those of a new table: NEW_TABLE_PROPERTIES and what the pipeline file asks for. A level is one of a codec: beside
    another codec it is left out unless the file has it too.
    """
    own = NEW_TABLE_PROPERTIES
    if asked.get(_CODEC, own[_CODEC]).lower() != own[_CODEC]:
        own = {name: text for name, text in own.items() if name != _LEVEL}
    return {**own, **asked}


class DeadLetterTables:
    """Dead-letter tables in `catalog`; thread-safe for different tables."""

    def __init__(self, catalog: Catalog, outbox: Outbox | None = None, pipeline: str = "") -> None:
        self._catalog = catalog
        self._outbox = outbox
        self._pipeline = pipeline

    def open(self, table: Table) -> TableState:
        """The table's dead-letter table, made if it is not there; the table says from now on which it is.

        Raises TableStopped when a table of that name is for something else.
        """
        name = table.dead_letter_table_name
        found = self._catalog.load(name)
        found = found or self._catalog.create(name, new_schema(DEAD_LETTER_TYPES.items()), NEW_TABLE_PROPERTIES, 2)
        refuse_other_table(found, table.name)
        if table.state is not None and table.state.marks.get(DEAD_LETTERS_MARK) != name:
            self._catalog.mark(table.name, DEAD_LETTERS_MARK, name)
        return found

    def settle(self, table: Table) -> None:
        """Keeps what was promised to the table's dead-letter table, and what retries from there have promised to the table.

        Raises TableStopped where that is not possible, UnavailableError and ConflictError as the catalog does: to be called
        again before anything else is done with the table.
        """
        if table.state is not None:
            table.state = replace(table.state, progress=self.deliver(table.name, table.progress))
        name = table.state.marks.get(DEAD_LETTERS_MARK) if table.state is not None else None
        dead_letters = self._catalog.load(name) if name else None
        if dead_letters is not None:
            with _store_reached(dead_letters.name):
                settle_retries(self._catalog, dead_letters)
            table.dead_letter_count = self._catalog.size(dead_letters.name).row_count

    def deliver(self, table: str, progress: Progress) -> Progress:
        """Commits the letters that the newest progress of `table` promises, unless they have been; the progress without the
        promise once it is kept, as it was when the table has gone on from it.

        UnavailableError when it could not be found out whether they are there: to be called again before anything else is
        done with the table.
        """
        dead_letters = progress.dead_letters
        if dead_letters is None:
            return progress
        box = self._catalog.load(dead_letters.table)
        if box is None or box.history_lost:
            lost = "no longer exists" if box is None else "has lost the snapshot that shows which dead letters it has"
            raise TableStopped(
                f"the dead-letter table {dead_letters.table} {lost}, and the table's newest commit has pending dead"
                " letters for it",
                "restore it: the summary of the table's newest snapshot names the files of the dead letters",
                dead_letters.table,
            )
        # In this order: whoever commits to the table after us has kept our promise before, and if that happens only now,
        # the dead-letter table is no longer as we found it, so that our commit is refused.
        newest = self._catalog.load(table)
        if newest is None or newest.progress.commit_id != progress.commit_id:
            return progress
        files = dead_letters.files
        with _store_reached(box.name):
            if box.progress.commit_id != progress.commit_id:
                files = self._commit(box, dead_letters, progress)
            if dead_letters.topic and self._outbox is not None and box.marks.get(SENT_MARK) != progress.commit_id:
                self._send(self._outbox, table, box, replace(dead_letters, files=files), progress.commit_id)
                # The broker forgets what an idle group has committed, after a week unless it is told otherwise.
                hit("dead_letters.published")
                self._catalog.mark(box.name, SENT_MARK, progress.commit_id)
        return replace(progress, dead_letters=None)

    def _commit(self, box: TableState, dead_letters: PendingDeadLetters, progress: Progress) -> tuple[DataFile, ...]:
        """Adds the letters to their table; the files that were added."""
        hit("dead_letters.before")
        # A table that was rolled back goes through its offsets again; its letters never go back.
        reached = later(box.progress.offsets, progress.offsets)
        kept = replace(progress, offsets=reached, dead_letters=None, snapshot_id=None, committed_at_ms=None)
        files = self._unseen(box, dead_letters.files) if _is_newer(box.progress, dead_letters) else dead_letters.files
        try:
            self._catalog.commit(Commit(dead_letters.table, files, kept, box.progress))
        except ConflictError:
            # Another process of this pipeline has read the same promise and was quicker to keep it.
            again = self._catalog.load(dead_letters.table)
            if again is None or again.progress.commit_id != progress.commit_id:
                raise
        hit("dead_letters.after")
        return files

    def _send(
        self, outbox: Outbox, table: str, box: TableState, dead_letters: PendingDeadLetters, commit_id: str
    ) -> None:
        """Writes the letters to their topic, in one transaction and once."""
        target = plain_target(box)
        records = [
            record for file in dead_letters.files for record in _out_records(read_dead_letters(target, file.path))
        ]
        outbox.write(f"frazil-{self._pipeline}-{table}", dead_letters.topic, commit_id, records)

    def _unseen(self, box: TableState, files: tuple[DataFile, ...]) -> tuple[DataFile, ...]:
        """The letters of these files without those that are there already: the table was rolled back by hand and reads
        records again whose letters have stayed.
        """
        target = plain_target(box)
        new = pa.concat_tables([read_dead_letters(target, file.path, _PLACE) for file in files])
        offsets = pc.unique(new["offset"])
        there: set[Place] = set()
        for known in self._catalog.files(box.name):
            rows = read_dead_letters(target, known.path, _PLACE)
            there.update(places_of(rows.filter(pc.is_in(rows["offset"], value_set=offsets))))
        writer = FileWriter(target)
        for file in files:
            rows = read_dead_letters(target, file.path)
            rows = rows.filter(pa.array([place not in there for place in places_of(rows)], pa.bool_()))
            if rows.num_rows:
                writer.write(rows)
        return tuple(writer.finish())


@contextmanager
def _store_reached(dead_letters: str) -> Iterator[None]:
    """In its block a store that does not answer is an outage. Py4J's broken connections are not the store's."""
    try:
        yield
    except ConnectionError:
        raise
    except OSError as error:
        raise UnavailableError(f"the store does not read or write a file: {error}", where=dead_letters) from None


def read_dead_letters(target: TableTarget, path: str, names: Sequence[str] | None = None) -> pa.Table:
    """The rows of one file of a dead-letter table, in its own columns, or in those of these names."""
    chosen = pa.schema([target.arrow_schema.field(name) for name in names or target.arrow_schema.names])
    with file_io(target).new_input(path).open() as stream:
        return pq.read_table(stream, columns=chosen.names).select(chosen.names).cast(chosen)


def _out_records(rows: pa.Table) -> Iterator[OutRecord]:
    """The records as they were, with where they came from and what is wrong with them in further headers."""
    times = rows["timestamp"].cast(pa.int64()).to_pylist()
    for row, micros in zip(rows.drop_columns(["timestamp"]).to_pylist(), times, strict=True):
        words = {
            name: row[name] for name in ("topic", "partition", "offset", "schema_id", "error_class", "message", "path")
        }
        words[FAR_TIME] = row.get(FAR_TIME)
        words["timestamp"] = None if micros is None else f"{spell_moment(micros)}+00:00"
        own = [(f"frazil.{name}", str(word).encode()) for name, word in words.items() if word is not None]
        headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
        yield OutRecord(row["key"], row["value"], [*headers, *own])


def _is_newer(box: Progress, dead_letters: PendingDeadLetters) -> bool:
    """Whether the dead-letter table knows of offsets that are only now in a batch."""
    return any(
        box.offsets.get(topic, {}).get(partition, 0) > start
        for topic, partitions in dead_letters.since.items()
        for partition, start in partitions.items()
    )


def refuse_other_table(found: TableState, owner: str) -> None:
    """Raises TableStopped when a table, where dead letters of `owner` are to go, is for something else."""
    missing = DEAD_LETTER_TYPES.keys() - {FAR_TIME} - {field.name for field in found.schema.fields}
    if missing:
        raise TableStopped(
            f"the table {found.name} is not a dead-letter table: it has no column {min(missing)}",
            "name another one: `dead_letters: {table: …}`",
            owner,
        )
