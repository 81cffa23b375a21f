"""The dead letters in the files of a dead-letter table: read and written in pieces, so that memory is bounded.

Records that wait for their row of a reference table (`wait` of a lookup) are dead letters of a class of their own: the
commit of their batch holds them, as it holds every dead letter, with the time since when the record waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from frazil.catalog.port import Catalog, TableState
from frazil.catalog.scans import LiveFile
from frazil.dead_letters.record import FAR_TIME, HELD_AT, SOURCE_COLUMNS, held_since, opened, reason_columns
from frazil.decode.columns import Mismatch
from frazil.error_classes import ErrorClass
from frazil.errors import UnavailableError
from frazil.ingest.failures import TableStopped
from frazil.rows.metadata_columns import undivided_times
from frazil.schema.arrow import as_written
from frazil.types import Place
from frazil.write.file_formats import read_file
from frazil.write.plain_target import plain_target
from frazil.write.target import TableTarget
from frazil.write.write import FileWriter, file_io

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass(frozen=True)
class Selection:
    """A selection of dead letters: those that match every given value."""

    error_class: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None

    def of(self, rows: pa.Table) -> pa.ChunkedArray:
        """Returns per row whether it is selected, bool `(n_rows,)`."""
        chosen = pa.chunked_array([pa.repeat(pa.scalar(True), rows.num_rows)])
        for name, wanted in vars(self).items():
            if wanted is not None:
                chosen = pc.and_(chosen, pc.fill_null(pc.equal(rows[name], pa.scalar(wanted, rows[name].type)), False))
        return chosen


@dataclass(frozen=True)
class ReplayResult:
    """The outcome of a replay."""

    #: The number of dead letters whose rows are in the table now.
    replayed: int = 0
    #: The number of dead letters that remain in the dead-letter table.
    remaining: int = 0


def pieces(dead_letters: TableTarget, file: LiveFile, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yields the dead letters of one file, one row group at a time, with all columns of the dead-letter table or with
    `columns`.

    Raises: TableStopped for a file of which another engine has deleted rows without rewriting it.
    """
    if file.deletes:
        raise TableStopped(
            "another engine deleted rows of the dead-letter table with delete files",
            "rewrite the data files of the dead-letter table there, so that no delete file remains, or use `frazil"
            " dead-letters drop` from now on",
            dead_letters.name,
        )
    wanted = dead_letters.arrow_schema
    if columns is not None:
        wanted = pa.schema([wanted.field(name) for name in columns])
    with file_io(dead_letters).new_input(file.path).open() as stream:
        # Of pending dead letters only the path is known.
        parquet = read_file(stream, file.path.rpartition(".")[2].lower(), file.path)
        stored_names = set(parquet.schema_arrow.names)
        for number in range(parquet.num_row_groups):
            rows = parquet.read_row_group(number, columns=[name for name in wanted.names if name in stored_names])
            # A column that the file lacks is null.
            filled = [
                rows[field.name].cast(field.type)
                if field.name in rows.column_names
                else pa.nulls(rows.num_rows, field.type)
                for field in wanted
            ]
            yield pa.Table.from_arrays(filled, schema=wanted)


def places_of(rows: pa.Table | pa.RecordBatch) -> list[Place]:
    """Returns the places of the dead letters' records."""
    columns = (rows.column(name).to_pylist() for name in ("topic", "partition", "offset"))
    return list(zip(*columns, strict=True))


def by_topic(dead_letters: pa.Table) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields the dead letters of each topic, with its name."""
    for topic in pc.unique(dead_letters["topic"]).to_pylist():
        for batch in dead_letters.filter(pc.equal(dead_letters["topic"], topic)).combine_chunks().to_batches():
            yield topic, batch


def records_of(target: TableTarget, dead_letters: pa.RecordBatch) -> dict[str, pa.Array]:
    """Returns the records with the columns that the source would send. target: the table that they are for.

    Raises: SpecError where they are encrypted with another key than the table's.
    """
    records = {name: dead_letters.column(name) for name in SOURCE_COLUMNS}
    if FAR_TIME in dead_letters.schema.names:
        records["timestamp"] = undivided_times(records["timestamp"], dead_letters.column(FAR_TIME))
    return opened({**records, "headers": as_written(records["headers"], _HEADERS)}, target.record_key)


def write_some(writer: FileWriter, rows: pa.Table) -> None:
    """Writes the rows unless there are none: a file without rows is useless."""
    if rows.num_rows:
        writer.write(rows)


def with_new_reason(rows: pa.Table, mismatches: Sequence[Mismatch]) -> pa.Table:
    """Returns the dead letters with the current reasons, and one more replay counted."""
    retries = pc.add(pc.fill_null(rows["retries"], 0), pa.scalar(1, pa.int32()))
    columns = {**reason_columns(mismatches), "retries": retries}
    if HELD_AT in rows.schema.names:  # A longer wait began when the record was held first.
        columns[HELD_AT] = pc.coalesce(rows[HELD_AT], held_since(mismatches).cast(rows.schema.field(HELD_AT).type))
    for name, column in columns.items():
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(place), column)
    return rows


@contextmanager
def abandoning(*writers: FileWriter) -> Iterator[None]:
    """Deletes what the writers have written where its block raises.

    Raises: UnavailableError for an OSError of the store.
    """
    try:
        yield
    except BaseException as error:
        for writer in writers:
            writer.abandon()
        if isinstance(error, OSError):
            raise UnavailableError(f"the store does not read or write a file: {error}") from None
        raise


_COLUMNS = ("error_class", "path", HELD_AT)


def are_waiting(rows: pa.Table) -> pa.ChunkedArray:
    """Returns which dead letters wait, bool `(n_rows,)`."""
    return pc.fill_null(pc.equal(rows["error_class"], str(ErrorClass.LOOKUP_WAITING)), False)


@dataclass(frozen=True)
class Held:
    """The records of a table that wait."""

    #: The number of these records.
    count: int = 0
    #: By lookup, since when the first of its records waits, in microseconds since 1970.
    since_us: Mapping[str, int] = field(default_factory=dict)
    #: The files of the dead-letter table.
    files: frozenset[str] = frozenset()


class HeldRecords:
    """Counts the records of one table that wait; each file of its dead-letter table is read once."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._by_file: dict[str, Held] = {}

    def read(self, dead_letters: TableState | None) -> Held:
        """Returns the records that wait. dead_letters: as it was just loaded; None where it does not exist.

        Raises: UnavailableError; OSError where the store fails; TableStopped as `pieces`.
        """
        if dead_letters is None or HELD_AT not in {field.name for field in dead_letters.schema.fields}:
            return Held()
        target, files = plain_target(dead_letters), self._catalog.scan(dead_letters.name).files
        known = self._by_file
        self._by_file = {file.path: known.get(file.path) or _held_in(pieces(target, file, _COLUMNS)) for file in files}
        return _together(self._by_file.values(), frozenset(self._by_file))


def _held_in(parts: Iterable[pa.Table]) -> Held:
    counted = list[Held]()
    for rows in parts:
        waiting = rows.filter(are_waiting(rows))
        micros, names = waiting[HELD_AT].cast(pa.int64()).fill_null(0).to_pylist(), waiting["path"].to_pylist()
        since: dict[str, int] = {}
        for name, held_us in zip(names, micros, strict=True):
            since[name or ""] = min(held_us, since.get(name or "", held_us))
        counted.append(Held(waiting.num_rows, since))
    return _together(counted)


def _together(parts: Iterable[Held], files: frozenset[str] = frozenset()) -> Held:
    count, since = 0, dict[str, int]()
    for part in parts:
        count += part.count
        for name, held_us in part.since_us.items():
            since[name] = min(held_us, since.get(name, held_us))
    return Held(count, since, files)


def count_waiting(catalog: Catalog, dead_letters: TableState | None) -> int | None:
    """Returns how many records of a table wait; None where that cannot be read. dead_letters: as it was just loaded."""
    with suppress(OSError, UnavailableError, TableStopped):
        return HeldRecords(catalog).read(dead_letters).count
    return None
