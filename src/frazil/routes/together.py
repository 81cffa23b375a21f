"""Records that several tables divide, read once for all of them.

They are the values by which records are divided, and the rows for all of these tables that are alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import NestedField, StringType, StructType

from frazil.decode.columns import member_at
from frazil.decode.limits import read_bounded
from frazil.decode.plain import read_text
from frazil.decode.settings import NO_EVOLUTION, Reading
from frazil.decode.wire_format import last_header
from frazil.routes.share import ValueSource
from frazil.rows.decoder import decode_values
from frazil.rows.project import shape_rows
from frazil.rows.storable import partition_floors
from frazil.schema.arrow import Bools, Ints, Records, pick, spread_mask
from frazil.schema.selection import DeclaredValues, Path, Selection
from frazil.stages.changes import Changes
from frazil.write.target import TableTarget


@dataclass(frozen=True)
class RecordValues:
    """The values of some records."""

    #: Which of `distinct` each record has, int of shape (n_records,).
    codes: Ints
    #: The different values, one for each source; None where a record has none, or none that can be read.
    distinct: tuple[tuple[str | None, ...], ...]
    #: Ids of schemas that are needed to read them.
    missing: frozenset[str]


def read_values(
    sources: Sequence[ValueSource], targets: Iterable[TableTarget], topic: str, records: pa.RecordBatch
) -> RecordValues:
    """Returns the values of records of a topic. targets: the tables that divide them, with the schemas that each knows."""
    pieces = list(read_bounded(records, partial(_read, _reading(sources, targets), sources, topic)))
    arrays = [pa.concat_arrays([read[number] for _, _, (read, _) in pieces]) for number in range(len(sources))]
    codes, distinct = encode_values(arrays)
    return RecordValues(codes, distinct, frozenset[str]().union(*(missing for _, _, (_, missing) in pieces)))


def _reading(sources: Sequence[ValueSource], targets: Iterable[TableTarget]) -> Reading:
    """Returns how the fields of sources are read: as text, and none of a record that cannot be read."""
    readings = [target.reading for target in targets]
    paths = tuple(source.path for source in sources if source.kind == "field")
    return replace(
        readings[0],
        schemas=tuple(sorted({schema for reading in readings for schema in reading.schemas})),
        unknown_fields="drop",
        is_rescuing=False,
        evolution=NO_EVOLUTION,
        on_bad="skip",
        # Of JSON one pass reads the fields of objects too where all are taken.
        selection=None if readings[0].format == "json" else Selection(include=paths),
        declared=DeclaredValues(coerced=paths),
        aliases=(),
        keys=(),
    )


def _read(
    reading: Reading, sources: Sequence[ValueSource], topic: str, records: Records
) -> tuple[list[pa.Array], set[str]]:
    """Returns the values of each source, and the ids of missing schemas."""
    fields = fields_of([source.path for source in sources if source.kind == "field"])
    decoded = decode_values(reading, fields, records, 0) if fields else None
    values: list[pa.Array] = []
    for source in sources:
        if decoded is not None and source.kind == "field":
            member = member_at(fields, decoded.columns, source.path)
            assert member is not None
            bad = pa.array(decoded.refused)
            values.append(pc.if_else(bad, pa.scalar(None, pa.string()), member[0].cast(pa.string())))
        elif source.kind == "header":
            values.append(read_text(last_header(records["headers"], source.path[0])).arrays[0])
        else:
            values.append(pa.repeat(pa.scalar(topic), len(records["value"])))
    return values, set(decoded.missing) if decoded is not None else set()


def fields_of(paths: Iterable[Path]) -> tuple[NestedField, ...]:
    """Returns optional fields of text at these paths."""
    members: dict[str, list[Path]] = {}
    for path in paths:
        members.setdefault(path[0], []).append(path[1:])
    return tuple(
        NestedField(
            number,
            name,
            StringType() if () in inner else StructType(*fields_of(inner)),
            required=False,
        )
        for number, (name, inner) in enumerate(members.items(), 1)
    )


def encode_values(arrays: Sequence[pa.Array]) -> tuple[Ints, tuple[tuple[str | None, ...], ...]]:
    """Returns the number of each record's values among the different ones, int of shape (n_records,), and these.

    arrays: text, one for each source.
    """
    codes = np.zeros(len(arrays[0]), np.int64)
    distinct: list[tuple[str | None, ...]] = [()]
    for array in arrays:
        encoded = array.dictionary_encode()
        names = [*encoded.dictionary.to_pylist(), None]
        own = np.asarray(encoded.indices.fill_null(len(names) - 1), np.int64)
        both = codes * len(names) + own
        # Renumbered after each, so that the product of the sizes is no limit.
        seen = np.unique(both) if len(distinct) > 1 else np.arange(len(names))
        codes = np.searchsorted(seen, both) if len(distinct) > 1 else own
        distinct = [(*distinct[code // len(names)], names[code % len(names)]) for code in seen.tolist()]
    return codes, tuple(distinct)


ReadRows = Callable[[TableTarget, str, Records], Changes]
"""Reads the records of a topic as rows of a table."""


@dataclass(frozen=True)
class MadeRows:
    """The rows of some records, for the tables that are alike."""

    #: Which records have a row, bool of shape (n_records,).
    is_made: Bools
    #: The rows of these, in the order of the records.
    rows: pa.Table
    #: The values of these that name their table.
    values: RecordValues
    #: The numbers of their fields (`Decoded.fates`); None where they are not counted.
    fates: NDArray[np.int32] | None = None


class Together:
    """The tables that divide records and are alike, and whether reading for all of them at once is worth it."""

    def __init__(self, targets: Sequence[TableTarget], read: ReadRows | None) -> None:
        self._targets = targets
        self._read = read
        self._held: list[tuple[pa.Table, Ints]] = []
        #: The memory of the rows that are kept.
        self.held_bytes = 0
        alike = _alike(targets)
        #: The names of the tables that are alike.
        self.tables = frozenset(target.name for target in alike)
        # Records that end tasks are read for no table.
        self._is_worth_it = len(alike) > 1 and not any(target.known.crashing for target in targets)
        if alike:
            schemas = tuple(sorted({schema for target in alike for schema in target.reading.schemas}))
            self._target = replace(alike[0], reading=replace(alike[0].reading, schemas=schemas))

    def make_rows(self, topic: str, records: pa.RecordBatch) -> MadeRows | None:
        """Returns the rows that the records are in a table that is alike, whichever they belong to; None where the tables
        must read their own.
        """
        if self._read is None or not self._is_worth_it or not records.num_rows:
            return None
        read = partial(self._read, self._target, topic)
        (_, columns, changes), *others = read_bounded(records, read, self._target.reading.evolution.columns_left)
        self._is_worth_it = not (others or _requests_any(changes))
        if not self._is_worth_it:
            return None
        accepted, fates = changes.without_refused(), changes.decoded.fates
        is_made = spread_mask(np.ones(accepted.records.size, np.bool_), accepted.records, records.num_rows)
        if not is_made.all():
            fates = None if fates is None else fates[:, is_made]
        if "topic" in self._target.metadata_fields and "topic" not in columns:
            columns["topic"] = pa.repeat(pa.scalar(topic), records.num_rows)
        rows = shape_rows(self._target, accepted, pick(columns, accepted.records))
        return MadeRows(is_made, rows, self._values(topic, records, is_made, accepted.columns), fates)

    def hold(self, rows: pa.Table, of_tables: Sequence[Ints]) -> None:
        """Keeps rows until there are more. of_tables: the places of each table's own rows."""
        order = np.concatenate(of_tables)
        self._is_worth_it &= 2 * order.size >= rows.num_rows
        # Each batch is ordered by itself, as long as it is in the processor's cache.
        kept = rows.take(pa.array(order))
        self._held.append((kept, np.cumsum([0, *map(len, of_tables)])))
        self.held_bytes += kept.nbytes

    def take_held(self) -> Iterator[tuple[TableTarget, pa.Table]]:
        """Yields the rows that were kept, by table. They are copies: slices would keep the rows of all tables in memory
        until the last of them is written.
        """
        held, self._held, self.held_bytes = self._held, [], 0
        for number, target in enumerate(self._targets):
            own = [rows.slice(ends[number], ends[number + 1] - ends[number]) for rows, ends in held]
            if any(some.num_rows for some in own):
                yield target, pa.concat_tables(own).combine_chunks()

    def _values(self, topic: str, records: pa.RecordBatch, is_made: Bools, columns: Sequence[pa.Array]) -> RecordValues:
        """Returns the values of the records with rows: from columns that are the fields, as text; else read once more, as
        where a column has fields of other names, such as aliases of Avro: each job must find the same owner of a record.
        """
        share, target = self._target.share, self._target
        assert share is not None
        sources = share.division.to.sources
        arrays = [column for source in sources if (column := self._column(source, columns)) is not None]
        has_own_names = target.reading.format == "json" and not target.reading.aliases
        if target.shaping is None and has_own_names and len(arrays) == len(sources):
            return RecordValues(*encode_values(arrays), frozenset())
        some = records if is_made.all() else records.filter(pa.array(is_made))
        return read_values(sources, self._targets, topic, some)

    def _column(self, source: ValueSource, columns: Sequence[pa.Array]) -> pa.Array | None:
        member = member_at(self._target.fields, columns, source.path) if source.kind == "field" else None
        return member[0] if member is not None and isinstance(member[1], StringType) else None


def _alike(targets: Sequence[TableTarget]) -> list[TableTarget]:
    """Returns the most tables with equal columns and settings, of those whose rows are the fields of their records."""
    plain = [target for target in targets if _is_plain(target)]
    if not plain:
        return []
    ((schema_json, _),) = Counter(target.schema_json for target in plain).most_common(1)
    first = next(target for target in plain if target.schema_json == schema_json)
    return [target for target in plain if _rows_depend_on(target) == _rows_depend_on(first)]


def _is_plain(target: TableTarget) -> bool:
    crashing = target.known.crashing or None
    others = (target.envelope, target.source, target.record_key, crashing)
    is_known = bool(target.schema_json) and (target.shaping is None or not target.layout.unbound)
    return is_known and not target.looks_up_rows and all(part is None for part in others)


def _rows_depend_on(target: TableTarget) -> object:
    """Returns all that the rows of some records depend on. What is known of schemas is equal where it is known."""
    reading = replace(target.reading, schemas=())
    fields = target.schema.fields
    return reading, target.record, target.shaping, target.metadata, target.stages, fields, partition_floors(target)


def _requests_any(changes: Changes) -> bool:
    """Whether the records need or report anything that one table alone must get."""
    decoded = changes.decoded
    requests = (decoded.requested_fields, decoded.made_optional, decoded.missing, decoded.refusals, decoded.dropped)
    return any(requests) or bool(changes.own)
