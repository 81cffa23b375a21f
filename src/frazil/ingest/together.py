"""Records of a route that are decoded once for all of its tables with the same columns, and then divided as rows.

The outcome is that of each table reading its own records, or None: where records request a change of a table's columns,
only their own table may get it, and which that is must be known first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
from pyiceberg.types import StringType

from frazil.decode.columns import Decoded
from frazil.decode.limits import read_bounded
from frazil.decode.regroup import member_at
from frazil.routing import ValueSource
from frazil.rows.project import shape_rows
from frazil.rows.routes import RouteValues, encode_values, read_route_values
from frazil.rows.storable import partition_floors
from frazil.schema.arrow import Bools, Ints, Records
from frazil.write.target import TableTarget

ReadRows = Callable[[TableTarget, Records], Decoded]
"""Reads records as rows of a table; all are refused that become none, for whatever reason."""
_MANY_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True)
class MadeRows:
    """The rows of some records, for the tables that are alike."""

    #: Which records have a row, bool of shape (n_records,).
    is_made: Bools
    #: The rows of these, in the order of the records.
    rows: pa.Table
    #: The values of these that name their table.
    values: RouteValues


class Together:
    """The tables of one route that are alike, and whether reading for all of them at once is worth it."""

    def __init__(self, targets: Sequence[TableTarget], read: ReadRows) -> None:
        self._targets = targets
        self._read = read
        self._held: list[tuple[pa.Table, Ints]] = []
        #: The memory of the rows that are kept.
        self.held_bytes = 0
        alike = _alike(targets)
        #: The names of the tables that are alike.
        self.tables = frozenset(target.name for target in alike)
        # Records that end tasks are read for no table.
        self._is_worth_it = len(alike) > 1 and not any(target.crashing for target in targets)
        if alike:
            schemas = tuple(sorted({one for target in alike for one in target.reading.schemas}))
            self._target = replace(alike[0], reading=replace(alike[0].reading, schemas=schemas))

    def make_rows(self, topic: str, records: pa.RecordBatch) -> MadeRows | None:
        """Returns the rows that the records are in a table that is alike, whichever they belong to; None where the tables
        must read their own.
        """
        if not self._is_worth_it or not records.num_rows:
            return None
        pieces = list(read_bounded(records, partial(self._read, self._target), self._target.reading.columns_left))
        (_, columns, decoded), *others = pieces
        self._is_worth_it = not (others or _requests_any(decoded))
        if not self._is_worth_it:
            return None
        is_made = ~decoded.refused
        if not is_made.all():
            places = pa.array(np.flatnonzero(is_made))
            columns = {name: column.take(places) for name, column in columns.items()}
            kept = [column.take(places) for column in decoded.columns]
            decoded = Decoded(kept, np.zeros(len(places), np.bool_))
        if "topic" in self._target.metadata_fields and "topic" not in columns:
            columns["topic"] = pa.repeat(pa.scalar(topic), len(decoded.refused))
        values = self._values(topic, records, is_made, decoded)
        return MadeRows(is_made, shape_rows(self._target, decoded, columns), values)

    def hold(self, rows: pa.Table, of_tables: Sequence[Ints]) -> None:
        """Keeps rows until there are more. of_tables: the places of each table's own rows."""
        order = np.concatenate(of_tables)
        self._is_worth_it &= 2 * order.size >= rows.num_rows
        # Each batch is ordered by itself, as long as it is in the processor's cache.
        kept = rows.take(pa.array(order))
        self._held.append((kept, np.cumsum([0, *map(len, of_tables)])))
        self.held_bytes += kept.nbytes

    def take_held(self) -> Iterator[tuple[str, pa.Table]]:
        """Yields the rows that were kept, by table. They are copies: slices would keep the rows of all tables in memory
        until the last of them is written.
        """
        held, self._held, self.held_bytes = self._held, [], 0
        for number, target in enumerate(self._targets):
            own = [rows.slice(ends[number], ends[number + 1] - ends[number]) for rows, ends in held]
            if any(some.num_rows for some in own):
                yield target.name, pa.concat_tables(own).combine_chunks()

    def _values(self, topic: str, records: pa.RecordBatch, is_made: Bools, decoded: Decoded) -> RouteValues:
        """Returns the values of the records with rows: from columns that are the fields, as text; else read once more, as
        where a column has fields of other names, such as aliases of Avro: each job must find the same owner of a record.
        """
        route, target = self._target.route, self._target
        assert route is not None
        found = [self._column(source, decoded) for source in route.to.sources]
        arrays = [column for column in found if column is not None]
        has_own_names = target.reading.format == "json" and not target.reading.aliases
        if target.shaping is None and has_own_names and len(arrays) == len(found):
            return RouteValues(*encode_values(arrays), frozenset())
        some = records if is_made.all() else records.filter(pa.array(is_made))
        return read_route_values(route, self._targets, topic, some)

    def _column(self, source: ValueSource, decoded: Decoded) -> pa.Array | None:
        found = member_at(self._target.fields, decoded.columns, source.path) if source.kind == "field" else None
        return found[0] if found is not None and isinstance(found[1], StringType) else None


def hold_many(every: Iterable[Together]) -> bool:
    """Whether these hold so much together that more rows would not make their copies cheaper."""
    return sum(one.held_bytes for one in every) >= _MANY_BYTES


def _alike(targets: Sequence[TableTarget]) -> list[TableTarget]:
    """Returns the most tables with equal columns and settings, of those whose rows are the fields of their records."""
    plain = [target for target in targets if _is_plain(target)]
    if not plain:
        return []
    ((schema_json, _),) = Counter(target.schema_json for target in plain).most_common(1)
    first = next(target for target in plain if target.schema_json == schema_json)
    return [target for target in plain if _rows_depend_on(target) == _rows_depend_on(first)]


def _is_plain(target: TableTarget) -> bool:
    others = (target.changes, target.envelope, target.source, target.protection, target.crashing or None)
    is_known = bool(target.schema_json) and (target.shaping is None or not target.layout.unbound)
    return is_known and all(one is None for one in others)


def _rows_depend_on(target: TableTarget) -> object:
    """Returns all that the rows of some records depend on. What is known of schemas is equal where it is known."""
    reading = replace(target.reading, schemas=())
    fields = target.schema.fields
    own = (target.shaping, target.key, target.headers, target.metadata, target.tombstones)
    return reading, *own, fields, partition_floors(target)


def _requests_any(decoded: Decoded) -> bool:
    """Whether the records need or report anything that one table alone must get."""
    found = (decoded.requested_fields, decoded.made_optional, decoded.missing, decoded.refusals, decoded.dropped)
    return any(found) or decoded.rescued is not None
