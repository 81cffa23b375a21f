"""Retries and drops dead letters: one commit takes them out of their table and promises their rows to the other one.

Letters go through the very steps that records go through in a task, with today's schemas, columns and code. Nothing here
touches the progress of either table, so ingestion goes on beside it (docs/decisions/0010).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil import __version__
from frazil.catalog.history import RETRY
from frazil.catalog.port import Catalog, Rewrite, StoredFile, TableState
from frazil.clock import new_id
from frazil.errors import ConflictError, FrazilError, SpecError, UnavailableError
from frazil.failpoints import hit
from frazil.ingest.decode.columns import Decoded, Misfit
from frazil.ingest.evolve import NamesClash, TypesDiffer, Wanted, first_wanted, merge_wanted
from frazil.ingest.files.write import FileWriter
from frazil.ingest.letters.dead_letter import SOURCE_COLUMNS, UNEXPLAINED, first_misfits
from frazil.ingest.letters.letter_box import LetterBox
from frazil.ingest.letters.letters import Selection, pieces
from frazil.ingest.letters.promise import Promise, announce, has_open_retries, keep, settle_retries, withdraw
from frazil.ingest.pipeline import adder, declared_adder
from frazil.ingest.reading import read_records
from frazil.ingest.schemas import Schemas
from frazil.ingest.shape import as_written
from frazil.ingest.table import Table, letters_target
from frazil.ingest.target import TableTarget
from frazil.types import DataFile

_TRIES = 10
_ROUNDS = 20
_ALL = 2**31
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass(frozen=True)
class Retried:
    """What became of the selected letters: how many are rows now, and how many have stayed."""

    fitted: int = 0
    stayed: int = 0


@dataclass
class _Needs:
    """What must be there before the letters can be written: schemas of the registry, changes of the table."""

    missing: set[str] = field(default_factory=set)
    wanted: list[Wanted] = field(default_factory=list)
    loosened: set[tuple[str, ...]] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)

    def note(self, decoded: Decoded, topics: Iterable[str]) -> None:
        self.missing |= decoded.missing
        self.loosened |= decoded.loosened
        self.topics |= set(topics)
        if decoded.wanted:
            self.wanted.append(decoded.wanted)

    @property
    def is_met(self) -> bool:
        return not (self.missing or self.wanted or self.loosened)


@dataclass(frozen=True)
class _Written:
    """Files that no snapshot names yet. removed: paths of the dead-letter table's files in whose place they come."""

    rows: tuple[DataFile, ...]
    letters: tuple[DataFile, ...]
    removed: tuple[str, ...]
    fitted: int
    selected: int


class Retrier:
    """Works on the dead letters of one table at a time. schemas: None where no registry is named."""

    def __init__(self, catalog: Catalog, schemas: Schemas | None) -> None:
        self._catalog = catalog
        self._schemas = schemas
        self._box = LetterBox(catalog)

    def settled(self, table: Table) -> TableState | None:
        """The dead-letter table, with all in it that was promised to it and nothing left to do of earlier retries; None
        where there is none.

        Raises TableStopped where that cannot be had, UnavailableError and ConflictError as the catalog does.
        """
        table.state = self._catalog.load(table.name)
        self._box.deliver(table.name, table.progress)
        for _ in range(_TRIES):
            letters = self._catalog.load(table.letters_name)
            if letters is None or not has_open_retries(letters):
                return letters
            settle_retries(self._catalog, letters)
        raise _in_the_way(table)

    def retry(self, table: Table, selection: Selection) -> Retried:
        """Puts the selected letters that fit by now into the table; the others stay, with the reason of today.

        Raises SpecError where the table is not there, or cannot have the columns that the letters need; the rest as
        `settled` does. Whatever it raises and wherever it dies, it may be called again.
        """
        for _ in range(_TRIES):
            letters = self.settled(table)
            if letters is None:
                return Retried()
            with suppress(ConflictError):
                return self._retry(table, letters, selection)
        raise _in_the_way(table)

    def drop(self, table: Table, selection: Selection) -> int:
        """Takes the selected letters away for good; how many they were. Raises as `settled` does."""
        for _ in range(_TRIES):
            letters = self.settled(table)
            if letters is None:
                return 0
            with suppress(ConflictError):
                return self._drop(table, letters, selection)
        raise _in_the_way(table)

    def _retry(self, table: Table, letters: TableState, selection: Selection) -> Retried:
        if table.state is None:
            raise SpecError(
                "there is no such table to put letters into", remedy="frazil run makes it", where=table.name
            )
        if table.spec.mode == "upsert":
            raise SpecError(
                "letters cannot be put into a table with `mode: upsert`: a newer change of the row may be there",
                remedy="produce the records again, in the order in which they should count, and drop the letters",
                where=table.name,
            )
        files = self._touched(letters, selection)
        if not files:
            return Retried()
        table.state = self._catalog.evolve(table.name, declared_adder(table.spec))
        written = self._write(table, letters, files, selection)
        self._commit(table, letters, written)
        return Retried(written.fitted, written.selected - written.fitted)

    def _drop(self, table: Table, letters: TableState, selection: Selection) -> int:
        files = self._touched(letters, selection)
        if not files:
            return 0
        target, dropped = letters_target(letters), 0
        writer = FileWriter(target)
        with _abandoning(writer):
            for rows in (rows for file in files for rows in pieces(target, file)):
                chosen = selection.of(rows)
                dropped += pc.sum(chosen).as_py() or 0
                _write_some(writer, rows.filter(pc.invert(chosen)))
            left = tuple(writer.finish())
        written = _Written((), left, tuple(file.path for file in files), 0, dropped)
        self._replace(table, letters, written, new_id(), {})
        return dropped

    def _touched(self, letters: TableState, selection: Selection) -> list[StoredFile]:
        """The files with letters that are meant."""
        if letters.head_id is None:
            return []
        target = letters_target(letters)
        columns = list(vars(selection))
        files = self._catalog.files(letters.name)
        return [file for file in files if any(pc.any(selection.of(r)).as_py() for r in pieces(target, file, columns))]

    # ---- writing

    def _write(self, table: Table, letters: TableState, files: Sequence[StoredFile], selection: Selection) -> _Written:
        """Writes the letters anew, after what they need is there."""
        for _ in range(_ROUNDS):
            attempt = _Attempt(table.target(), letters_target(letters), selection)
            with _abandoning(attempt.writer, attempt.letter_writer):
                for file in files:
                    for rows in pieces(attempt.letters, file):
                        attempt.take(rows)
                if attempt.needs.is_met:
                    return attempt.finish([file.path for file in files])
            attempt.abandon()
            self._meet(table, attempt.needs)
        raise SpecError(
            "the letters ask for changes of the table again and again",
            remedy="retry them in smaller parts, by --topic, --partition and --offset",
            where=table.name,
        )

    def _meet(self, table: Table, needs: _Needs) -> None:
        """Fetches schemas, or else changes the table as ingestion would."""
        if needs.missing:
            if self._schemas is None:
                raise SpecError(
                    "the letters need a schema registry, and the pipeline file names none", where=table.name
                )
            literals = [selector.literal for selector in table.spec.topics if selector.literal]
            table.schemas |= self._schemas.fetch_for(table.spec, needs.missing, min(literals or needs.topics))
            return
        try:
            wanted = merge_wanted(needs.wanted)
        except TypesDiffer:
            wanted = first_wanted(needs.wanted)
        try:
            change = adder(table.spec, wanted, sorted(needs.loosened))
            hit("retry.evolving")
            table.state = self._catalog.evolve(table.name, change)
        except NamesClash as error:
            remedy = "leave these letters out, by --offset or --error-class, or set `undeclared: drop`"
            raise SpecError(str(error), remedy=remedy, where=table.name) from None

    # ---- committing

    def _commit(self, table: Table, letters: TableState, written: _Written) -> None:
        hit("retry.written")
        if not written.rows:
            self._replace(table, letters, written, new_id(), {})
            return
        try:
            state = self._catalog.load(table.name)
            if state is None or table.state is None or state.uuid != table.state.uuid:
                raise ConflictError("the table was made anew while its letters were read", where=table.name)
            promise = Promise(new_id(), table.name, state.uuid, state.head_id, written.rows)
            announce(self._catalog, letters, promise)
        except FrazilError:
            self._delete(table.name, letters.name, written)
            raise
        hit("retry.announced")
        try:
            self._replace(table, letters, written, promise.id, {RETRY: promise.dump()})
        except ConflictError:
            withdraw(self._catalog, letters.name, promise)
            raise
        hit("retry.promised")
        try:
            keep(self._catalog, letters.name, promise)
        except ConflictError:
            self.settled(table)

    def _replace(
        self, table: Table, letters: TableState, written: _Written, name: str, words: Mapping[str, str]
    ) -> None:
        """The one commit that takes letters out and puts back those that stay."""
        assert letters.head_id is not None
        rewrite = Rewrite(letters.name, letters.head_id, name, written.removed, written.letters, words)
        try:
            self._catalog.rewrite(rewrite)
        except ConflictError:
            self._delete(table.name, letters.name, written)
            raise

    def _delete(self, table: str, letters: str, written: _Written) -> None:
        """Removes files that no commit can name any more."""
        self._catalog.delete_files(table, [file.path for file in written.rows])
        self._catalog.delete_files(letters, [file.path for file in written.letters])


class _Attempt:
    """Letters through the steps of a task, for as long as nothing is found that must be there first."""

    def __init__(self, target: TableTarget, letters: TableTarget, selection: Selection) -> None:
        self.target = target
        self.letters = letters
        self.writer = FileWriter(target)
        self.letter_writer = FileWriter(letters)
        self.needs = _Needs()
        self._selection = selection
        self._fitted = 0
        self._selected = 0

    def take(self, rows: pa.Table) -> None:
        """Letters of a file that has some that are meant."""
        chosen = self._selection.of(rows)
        _write_some(self.letter_writer, rows.filter(pc.invert(chosen)))
        for batch in rows.filter(chosen).to_batches():
            self._try(batch)

    def finish(self, removed: Sequence[str]) -> _Written:
        """Ends the files."""
        rows, letters = tuple(self.writer.finish()), tuple(self.letter_writer.finish())
        return _Written(rows, letters, tuple(removed), self._fitted, self._selected)

    def abandon(self) -> None:
        """Removes the files."""
        self.writer.abandon()
        self.letter_writer.abandon()

    def _try(self, batch: pa.RecordBatch) -> None:
        records = {name: batch.column(name) for name in SOURCE_COLUMNS}
        records["headers"] = as_written(records["headers"], _HEADERS)
        read = read_records(self.target, records, _ALL)
        decoded = read.decoded
        self.needs.note(decoded, pc.unique(records["topic"]).to_pylist())
        if not self.needs.is_met:
            return
        refused = pa.array(decoded.refused)
        fitting = read.rows(self.target, records)
        self._selected += batch.num_rows
        self._fitted += batch.num_rows - decoded.misfit_count
        _write_some(self.writer, fitting)
        staying = pa.Table.from_batches([batch]).filter(refused)
        if staying.num_rows:
            known = first_misfits(decoded)
            misfits = [known.get(row, UNEXPLAINED) for row in np.flatnonzero(decoded.refused).tolist()]
            self.letter_writer.write(_explained_anew(staying, misfits))


def _in_the_way(table: Table) -> ConflictError:
    return ConflictError(
        "other retries of dead letters are in the way", remedy="try again when they are done", where=table.letters_name
    )


def _write_some(writer: FileWriter, rows: pa.Table) -> None:
    """Nothing for no rows: a file without rows is of no use."""
    if rows.num_rows:
        writer.write(rows)


def _explained_anew(rows: pa.Table, misfits: Sequence[Misfit]) -> pa.Table:
    """The letters with today's reasons, and one more retry."""
    news = {
        "error_class": pa.array([misfit.kind for misfit in misfits], pa.string()),
        "message": pa.array([misfit.reason for misfit in misfits], pa.string()),
        "path": pa.array([misfit.path or None for misfit in misfits], pa.string()),
        "retries": pc.add(pc.fill_null(rows["retries"], 0), pa.scalar(1, pa.int32())),
        "frazil_version": pa.repeat(pa.scalar(__version__), rows.num_rows),
    }
    for name, column in news.items():
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(place), column)
    return rows


@contextmanager
def _abandoning(*writers: FileWriter) -> Iterator[None]:
    """In its block what goes wrong removes what was written; trouble with the store is UnavailableError."""
    try:
        yield
    except BaseException as error:
        for writer in writers:
            writer.abandon()
        if isinstance(error, OSError):
            raise UnavailableError(f"the store does not take or give a file: {error}") from None
        raise
