"""Reference tables of lookups, read in the driver: the rows at the newest version, as programs join them.

A version is asked for before every batch, and read only where this process does not have it yet.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, StringType

from frazil.catalog.port import Catalog, TableState
from frazil.catalog.scans import LiveFile
from frazil.clock import Clock, SystemClock
from frazil.decode.values_as_json import key_text
from frazil.errors import SpecError, UnavailableError
from frazil.ingest.tables.table import Table
from frazil.printable import plural
from frazil.queries.analysis import Query
from frazil.queries.kernels.keys import comparable
from frazil.queries.program import Lookup
from frazil.queries.references import Reference, find_reference, key_of, note
from frazil.schema.arrow import arrow_type, iceberg_type, one_array
from frazil.spec.settings import LookupSpec
from frazil.spec.syntax.problems import advice
from frazil.store.addresses import Address, address_of
from frazil.store.file_io import StoreIO, store_of
from frazil.store.properties import credentials_end_ms
from frazil.types import FIRST_PLACEHOLDER_ID, as_json
from frazil.upsert.lookup.delete_files import live_rows
from frazil.upsert.lookup.live_rows import read_columns
from frazil.write.plain_target import plain_target
from frazil_lookup.query import joined, lookup_operator, with_lookups

MOST_ROWS = 1_000_000
MOST_BYTES = 256 * 1024 * 1024
# Of the table's own credentials it is as much before their end.
_MARGIN_MS = 5 * 60 * 1000
Fields = Mapping[str, IcebergType]
_USABLE_REMEDY = "take another column, or store it as text, a number, a boolean, a date or a time"


class _Source(Protocol):
    """A reference table at one version."""

    #: What distinguishes it from others, also from one that had its name before.
    identity: str
    #: The version, as a commit names it.
    version: Mapping[str, Any]
    #: Its columns that lookups can use.
    fields: Fields
    #: The names of all of its columns: of a file one can occur several times.
    names: Sequence[str]

    def read(self, names: list[str]) -> list[pa.Array]:
        """Returns these columns.

        Raises: OSError where the store fails; UnavailableError where there are too many rows, or the version is gone.
        """


class References:
    """See Lookups."""

    def __init__(self, catalog: Catalog, clock: Clock | None = None) -> None:
        self._catalog = catalog
        self._clock = clock or SystemClock()
        #: What reaches files in other stores than their tables, by store and bucket, until its credentials end, or fail.
        self._reached: dict[Address, Mapping[str, str]] = {}

    def refresh(self, table: Table, states: dict[str, TableState | None]) -> None:
        """See Lookups."""
        table.schema.references = {lookup.name: self.find(table, lookup, states) for lookup in table.spec.query.lookup}

    def find(self, table: Table, lookup: LookupSpec, states: dict[str, TableState | None]) -> Reference:
        """See Lookups."""
        try:
            where = f"table {table.name}, lookup {lookup.name}"
            with _failing_as_unavailable(lookup, where):
                source = self._open(table, lookup, states, where)
                on, take = [column for _, column in lookup.on], list(lookup.take)
                for name in (*on, *take):
                    _check_column(source, lookup, name, where)
                name = as_json([source.identity, on, take])
                reference = find_reference(key_of(name, source.version))
                return reference or note(_read(source, lookup, name, where))
        except UnavailableError:
            self._reached.clear()  # Keys may have been replaced.
            raise

    def operators(self, table: Table, records: Schema) -> list[Lookup]:
        """See Lookups."""
        return [
            lookup_operator(lookup, table.schema.references[lookup.name], records) for lookup in table.spec.query.lookup
        ]

    def columns_behind(self, records: Schema, lookups: Sequence[Lookup]) -> Schema:
        """See Lookups."""
        return with_lookups(records, lookups)

    def joined(self, query: Query, lookups: Sequence[Lookup], has_where: bool) -> Query:
        """See Lookups."""
        return joined(query, lookups, has_where)

    def _open(self, table: Table, lookup: LookupSpec, states: dict[str, TableState | None], where: str) -> _Source:
        if lookup.file:
            store = store_of(tuple(sorted(self._access(table.state, lookup.file).items())))
            return _File(store, lookup.file)
        catalog = self._catalog.on_main(lookup.table)
        if lookup.table not in states:
            states[lookup.table] = catalog.load(lookup.table)
        state = states[lookup.table]
        if state is None:
            raise UnavailableError(
                f"{_named(lookup)} does not exist", remedy="create it, or correct `table` of the lookup", where=where
            )
        return _IcebergTable(catalog, state)

    def _access(self, state: TableState | None, file: str) -> Mapping[str, str]:
        """Returns what reaches a file: what reaches the table where both are in one store."""
        other = address_of(file)
        if state is not None:
            own = address_of(state.data_location)
            if (own.kind, own.host) == (other.kind, other.host):
                return state.io_properties
        place = replace(other, key="")
        properties = self._reached.get(place)
        ends_ms = credentials_end_ms(properties or {})
        if properties is None or (ends_ms is not None and ends_ms <= self._clock.now_ms() + _MARGIN_MS):
            properties = self._reached[place] = self._catalog.store_properties(file)
        return properties


@contextmanager
def _failing_as_unavailable(lookup: LookupSpec, where: str) -> Iterator[None]:
    try:
        yield
    # Names of columns may be no UTF-8.
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise UnavailableError(
            f"{_named(lookup)} cannot be read: {error}",
            remedy="put the file in place, or correct it; Frazil retries with back-off",
            where=where,
        ) from None


def _named(lookup: LookupSpec) -> str:
    return f"the reference table {lookup.table or lookup.file}"


def _check_column(source: _Source, lookup: LookupSpec, name: str, where: str) -> None:
    """Refuses a column that cannot be read.

    Raises: SpecError where there is none of that name, or of its type; UnavailableError where there are several.
    """
    if source.names.count(name) > 1:
        raise UnavailableError(
            f"{_named(lookup)} has several columns `{name}`",
            remedy="give each column of the file a name of its own; Frazil retries with back-off",
            where=where,
        )
    if name in source.fields:
        return
    is_there = name in source.names
    which = (
        f"the column `{name}` with a type that lookups cannot" if is_there else f"no column `{name}` that lookups can"
    )
    remedy = _USABLE_REMEDY if is_there or not source.fields else advice(name, source.fields)
    raise SpecError(f"{_named(lookup)} has {which} use", remedy=remedy, where=where)


def _read(source: _Source, lookup: LookupSpec, name: str, where: str) -> Reference:
    on = [column for _, column in lookup.on]
    read = dict(zip(names := sorted({*on, *lookup.take}), source.read(names), strict=True))
    rows, size = len(read[on[0]]), sum(column.nbytes for column in read.values())
    if rows > MOST_ROWS or size > MOST_BYTES:
        raise _too_large(f"{plural(rows, 'row')}, {plural(size, 'byte')}", where)
    kinds = {column: comparable(read[column].type) for column in on}
    keys = [read[column] if kinds[column] is None else read[column].cast(kinds[column]) for column in on]
    members = [pa.field(column, read[column].type) for column in lookup.take]
    values = pa.StructArray.from_arrays([read[column] for column in lookup.take], fields=members)
    reference = Reference(name, source.version, keys, values)
    if all(kinds.values()) and (row := reference.keys.repeated) is not None:
        key = ", ".join(f"{column} {key_text(read[column][row])}" for column in on)
        raise UnavailableError(
            f"{_named(lookup)} has several rows with the key {key}",
            remedy="leave one row for each key, or compare further columns in `on`",
            where=where,
        )
    return reference


def _too_large(size: str, where: str) -> UnavailableError:
    return UnavailableError(
        f"the reference table is too large: {size}, and at most {MOST_ROWS} rows, {MOST_BYTES} bytes can be sent to tasks",
        remedy="take fewer columns, or make a smaller table of the rows that are looked up",
        where=where,
    )


class _IcebergTable:
    """An Iceberg table of the catalog."""

    def __init__(self, catalog: Catalog, state: TableState) -> None:
        self._catalog = catalog
        self._state = state
        self.identity = f"{state.name} {state.uuid} {state.schema.schema_id}"
        self.fields: Fields = {field.name: field.field_type for field in state.schema.fields}
        self.names: Sequence[str] = tuple(self.fields)
        self.version: Mapping[str, Any] = {"table": state.name, "snapshot-id": state.head_id}

    def read(self, names: list[str]) -> list[pa.Array]:
        scan = self._catalog.scan(self._state.name)
        self.version = {**self.version, "snapshot-id": scan.read_at}
        live = sum(file.record_count - sum(deletes.record_count for deletes in file.deletes) for file in scan.files)
        if live > MOST_ROWS:
            raise _too_large(plural(live, "row"), self._state.name)
        parts = [self._rows(file, names) for file in scan.files]
        return [
            pa.concat_arrays([pa.nulls(0, arrow_type(self.fields[name])), *(part[n] for part in parts)])
            for n, name in enumerate(names)
        ]

    def _rows(self, file: LiveFile, names: list[str]) -> list[pa.Array]:
        """Returns the columns of the rows of a file that are not deleted."""
        target = plain_target(self._state)
        live = pa.array(live_rows(target, file))
        return [column.take(live) for column in read_columns(target, file, [(name,) for name in names])]


class _File:
    """A Parquet or CSV file, whose version is that of its store."""

    def __init__(self, store: StoreIO, location: str) -> None:
        self._store, self._location = store, location
        self.identity = location
        self.version: Mapping[str, Any] = {"file": location, "version": store.version_of(location)}
        self._reader: Any = _Csv if location.lower().endswith(".csv") else _Parquet
        with store.new_input(location).open() as stream:
            columns = list(self._reader.columns(stream))
        self.names: Sequence[str] = tuple(name for name, _ in columns)
        self.fields: Fields = {name: kind for name, kind in columns if kind is not None}

    def read(self, names: list[str]) -> list[pa.Array]:
        with self._store.new_input(self._location).open() as stream:
            rows = self._read_within_limits(*self._reader.open(stream, names))
        if self._store.version_of(self._location) != self.version["version"]:
            raise UnavailableError(
                "the file was replaced while it was read", remedy="Frazil reads it again", where=self._location
            )
        return [one_array(rows[name]).cast(arrow_type(self.fields[name])) for name in names]

    def _read_within_limits(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.Table:
        """Returns the batches as one table; of a file that is too large no more than that is in memory.

        Raises: UnavailableError where there are too many rows or bytes.
        """
        parts, rows, size = list[pa.RecordBatch](), 0, 0
        for batch in batches:
            parts.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows > MOST_ROWS or size > MOST_BYTES:
                raise _too_large(f"at least {plural(rows, 'row')}, {plural(size, 'byte')}", self._location)
        return pa.Table.from_batches(parts, schema)


# Without it, a line break between quotes ends a value where Arrow divides the file into blocks.
_PARSED = csv.ParseOptions(newlines_in_values=True)


class _Csv:
    """CSV in UTF-8 with the names of columns in its first line. Every column is text; an empty value without quotes is
    null.
    """

    @staticmethod
    def columns(stream: Any) -> Iterator[tuple[str, IcebergType | None]]:
        """Yields the columns."""
        for name in csv.open_csv(stream, parse_options=_PARSED).schema.names:
            yield name, StringType()

    @staticmethod
    def open(stream: Any, names: list[str]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Returns these columns, and their batches."""
        options = csv.ConvertOptions(
            include_columns=names,
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        reader = csv.open_csv(stream, parse_options=_PARSED, convert_options=options)
        return reader.schema, iter(reader)


class _Parquet:
    """Parquet."""

    @staticmethod
    def columns(stream: Any) -> Iterator[tuple[str, IcebergType | None]]:
        """Yields the columns; with None those of types that lookups cannot use, such as nested ones."""
        for column in pq.read_schema(stream):
            kind = _written_type(column.type)
            yield column.name, iceberg_type(kind, itertools.count(FIRST_PLACEHOLDER_ID)) if kind is not None else None

    @staticmethod
    def open(stream: Any, names: list[str]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Returns these columns, and their batches."""
        file = pq.ParquetFile(stream)
        batches = file.iter_batches(columns=names, use_threads=False)
        return pa.schema([file.schema_arrow.field(name) for name in names]), (batch.select(names) for batch in batches)


def _written_type(kind: pa.DataType) -> pa.DataType | None:
    """Returns the type in which a table would have values of an Arrow type; None where it would not."""
    types = pa.types
    if types.is_dictionary(kind):
        return _written_type(kind.value_type)
    if types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    if types.is_decimal128(kind):
        return kind
    return next((written for is_one, written in _WRITTEN if is_one(kind)), None)


_WRITTEN = (
    (pa.types.is_boolean, pa.bool_()),
    (lambda kind: pa.types.is_integer(kind) and kind.bit_width < 32, pa.int32()),
    (pa.types.is_int32, pa.int32()),
    (lambda kind: pa.types.is_int64(kind) or pa.types.is_uint32(kind), pa.int64()),
    (pa.types.is_float32, pa.float32()),
    (pa.types.is_float64, pa.float64()),
    (lambda kind: kind in (pa.string(), pa.large_string(), pa.string_view()), pa.string()),
    (lambda kind: kind in (pa.binary(), pa.large_binary(), pa.binary_view()), pa.binary()),
    (pa.types.is_date, pa.date32()),
    (pa.types.is_time, pa.time64("us")),
)
"""Kinds of Arrow types with the type in which a table has them."""
