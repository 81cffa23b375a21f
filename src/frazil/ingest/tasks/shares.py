"""Which records of a topic each table of a job takes: those from its own start on, and of a route those with its values.

Records of a route are decoded once for all of its tables with the same columns, and then divided as rows. The outcome is
that of each table reading its own records, or None: where records request a change of a table's columns, only their own
table may get it, and which that is must be known first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import StringType

from frazil.decode.columns import offsets_of
from frazil.decode.limits import read_bounded
from frazil.decode.regroup import member_at
from frazil.report import RouteReport
from frazil.routing import ValueSource
from frazil.rows.project import shape_rows
from frazil.rows.routes import RouteValues, encode_values, read_route_values
from frazil.rows.storable import partition_floors
from frazil.schema.arrow import Bools, Ints, Records, pick, spread_mask
from frazil.schema.routes import Router
from frazil.stages.changes import Changes
from frazil.types import Offsets
from frazil.write.digests import digest_of, record_hashes
from frazil.write.target import TableTarget

ReadRows = Callable[[TableTarget, str, Records], Changes]
"""Reads the records of a topic as rows of a table."""
_MANY_BYTES = 32 * 1024 * 1024
_NEVER = 2**63 - 1
_UNREAD = -1


@dataclass(frozen=True)
class MadeRows:
    """The rows of some records, for the tables that are alike."""

    #: Which records have a row, bool of shape (n_records,).
    is_made: Bools
    #: The rows of these, in the order of the records.
    rows: pa.Table
    #: The values of these that name their table.
    values: RouteValues
    #: The numbers of their fields (`Decoded.fates`); None where they are not counted.
    fates: NDArray[np.int32] | None = None


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
        self._is_worth_it = len(alike) > 1 and not any(target.known.crashing for target in targets)
        if alike:
            schemas = tuple(sorted({schema for target in alike for schema in target.reading.schemas}))
            self._target = replace(alike[0], reading=replace(alike[0].reading, schemas=schemas))

    def make_rows(self, topic: str, records: pa.RecordBatch) -> MadeRows | None:
        """Returns the rows that the records are in a table that is alike, whichever they belong to; None where the tables
        must read their own.
        """
        if not self._is_worth_it or not records.num_rows:
            return None
        read = partial(self._read, self._target, topic)
        (_, columns, changes), *others = read_bounded(records, read, self._target.reading.columns_left)
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

    def take_held(self) -> Iterator[tuple[str, pa.Table]]:
        """Yields the rows that were kept, by table. They are copies: slices would keep the rows of all tables in memory
        until the last of them is written.
        """
        held, self._held, self.held_bytes = self._held, [], 0
        for number, target in enumerate(self._targets):
            own = [rows.slice(ends[number], ends[number + 1] - ends[number]) for rows, ends in held]
            if any(some.num_rows for some in own):
                yield target.name, pa.concat_tables(own).combine_chunks()

    def _values(self, topic: str, records: pa.RecordBatch, is_made: Bools, columns: Sequence[pa.Array]) -> RouteValues:
        """Returns the values of the records with rows: from columns that are the fields, as text; else read once more, as
        where a column has fields of other names, such as aliases of Avro: each job must find the same owner of a record.
        """
        route, target = self._target.route, self._target
        assert route is not None
        route_columns = [self._column(source, columns) for source in route.to.sources]
        arrays = [column for column in route_columns if column is not None]
        has_own_names = target.reading.format == "json" and not target.reading.aliases
        if target.shaping is None and has_own_names and len(arrays) == len(route_columns):
            return RouteValues(*encode_values(arrays), frozenset())
        some = records if is_made.all() else records.filter(pa.array(is_made))
        return read_route_values(route, self._targets, topic, some)

    def _column(self, source: ValueSource, columns: Sequence[pa.Array]) -> pa.Array | None:
        member = member_at(self._target.fields, columns, source.path) if source.kind == "field" else None
        return member[0] if member is not None and isinstance(member[1], StringType) else None


def hold_many(every: Iterable[Together]) -> bool:
    """Whether these hold so much together that more rows would not make their copies cheaper."""
    return sum(together.held_bytes for together in every) >= _MANY_BYTES


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
    others = (target.changes, target.envelope, target.source, target.record_key, target.dedupe, crashing)
    is_known = bool(target.schema_json) and (target.shaping is None or not target.layout.unbound)
    return is_known and all(part is None for part in others)


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


@dataclass(frozen=True)
class Share:
    """The records of one table."""

    #: The table.
    target: TableTarget
    #: Its records.
    records: pa.RecordBatch
    #: What a table of a route reports of the records that it does not take.
    routed: RouteReport = field(default_factory=RouteReport)
    #: Ids of schemas without which it is not known whose records these are.
    missing: frozenset[str] = frozenset()
    #: Bytes of the values of further records, whose rows are made together with those of other tables: int of shape
    #: (n_rows,).
    row_value_bytes: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    #: The numbers of the fields of these further records (`Decoded.fates`); None where they are not counted.
    fates: NDArray[np.int32] | None = None
    #: The digest of these further records.
    record_digest: int = 0


def shares_of(
    targets: Sequence[TableTarget],
    topic: str,
    records: pa.RecordBatch,
    starts: Mapping[str, Offsets],
    together: Mapping[str, Together] = MappingProxyType({}),
) -> Iterator[Share]:
    """Yields the shares of each table in the records of a topic. starts: the offsets at which the records of a table
    begin, for tables that do not use all of them. together: the tables of routes that are read at once, by the rest.
    """
    for target in targets:
        if target.route is None:
            due = due_records(target, topic, records, starts)
            yield Share(target, records if due.all() else records.filter(pa.array(due)))
    for rest, members in routes_of(targets).items():
        yield from _divide(members, topic, records, starts, together.get(rest))


def routes_of(targets: Iterable[TableTarget]) -> dict[str, list[TableTarget]]:
    """Returns the tables of each route, by its table of the rest."""
    routes: dict[str, list[TableTarget]] = {}
    for target in targets:
        if target.route is not None:
            routes.setdefault(target.route.rest, []).append(target)
    return routes


def _divide(
    targets: Sequence[TableTarget],
    topic: str,
    records: pa.RecordBatch,
    starts: Mapping[str, Offsets],
    together: Together | None,
) -> Iterator[Share]:
    """Yields the shares of the tables of one route, first those in rows that are made for several tables at once."""
    if together is not None:
        made_rows = together.make_rows(topic, records)
        if made_rows is not None:
            are_made = made_rows.is_made.all()
            with_rows = records if are_made else records.filter(pa.array(made_rows.is_made))
            yield from _divide_rows(targets, topic, with_rows, starts, made_rows, together)
            if are_made:
                return
            records = records.filter(pa.array(~made_rows.is_made))
    yield from _divide_records(targets, topic, records, starts)


def _divide_rows(
    targets: Sequence[TableTarget],
    topic: str,
    records: pa.RecordBatch,
    starts: Mapping[str, Offsets],
    made_rows: MadeRows,
    together: Together,
) -> Iterator[Share]:
    """Yields the shares of records that have become rows: as rows where the table may have these, else as records."""
    sizes, none = value_sizes(records.column("value")), records.slice(0, 0)
    hashes = record_hashes(topic, dict(zip(records.schema.names, records.columns, strict=True)))
    of_rows: list[Ints] = []
    for target, own, routed in _own_records(targets, topic, records, starts, made_rows.values, made_rows.values.codes):
        has_rows = target.name in together.tables
        of_rows.append(own if has_rows else own[:0])
        if has_rows:
            fates = None if made_rows.fates is None else made_rows.fates[:, own]
            digest = digest_of(hashes[own])
            yield Share(target, none, routed, row_value_bytes=sizes[own], fates=fates, record_digest=digest)
        else:
            yield Share(target, records.take(pa.array(own)), routed)
    together.hold(made_rows.rows, of_rows)


def _divide_records(
    targets: Sequence[TableTarget], topic: str, records: pa.RecordBatch, starts: Mapping[str, Offsets]
) -> Iterator[Share]:
    """Yields the shares as records. One that ends tasks, whose value is not read, goes to the tables that know of it."""
    route = targets[0].route
    assert route is not None
    crashing = {target.name: crashing_records(target, topic, records) for target in targets}
    is_read = ~np.logical_or.reduce(list(crashing.values()))
    named = records if is_read.all() else records.filter(pa.array(is_read))
    values = read_route_values(route, targets, topic, named)
    codes = np.full(records.num_rows, _UNREAD)
    codes[is_read] = values.codes
    for target, own, routed in _own_records(targets, topic, records, starts, values, codes):
        is_own = crashing[target.name].copy()
        is_own[own] = True
        rows = np.flatnonzero(is_own)
        yield Share(target, records.take(pa.array(rows)), routed, values.missing)


def _own_records(
    targets: Sequence[TableTarget],
    topic: str,
    records: pa.RecordBatch,
    starts: Mapping[str, Offsets],
    values: RouteValues,
    codes: Ints,
) -> Iterator[tuple[TableTarget, Ints, RouteReport]]:
    """Yields each table of a route with the places of its own records, in order, int64 of shape (n_own_records,), and its
    report on the others.

    codes: which of the different values each record has, _UNREAD for a record whose values are not read.
    """
    taken = [target.routed for target in targets if target.routed is not None]
    router = Router(taken[0].route, next((division.others for division in taken if not division.values), ()))
    owner = _owners(values, [division.values for division in taken], router)[codes]
    order = np.argsort(owner, kind="stable")  # Once for all tables: there may be hundreds.
    ends = np.searchsorted(owner[order], np.arange(len(targets) + 1))
    for number, target in enumerate(targets):
        own, due_count = order[ends[number] : ends[number + 1]], len(owner)
        if target.name in starts:
            due = due_records(target, topic, records, starts)
            own, due_count = own[due[own]], int(np.count_nonzero(due))
        others = due_count - len(own)
        routed = RouteReport(others=others)
        if not taken[number].values:
            own, routed = _without_new(own, codes, values, router, others)
        yield target, own, routed


def _owners(
    values: RouteValues, of_tables: Sequence[tuple[str, ...]], router: Router
) -> NDArray[np.uint16 | np.uint32]:
    """Returns the table of the records with each of the different values, and last that of records whose values are not
    read, of shape (n_distinct + 1,): its number among the tables, or their number where no table of the job takes them.
    of_tables: the values of each table's records.
    """
    numbers: dict[tuple[str | None, ...], int] = {own: number for number, own in enumerate(of_tables)}
    nobody, rest = len(of_tables), numbers.get((), len(of_tables))
    owners = [numbers.get(distinct, nobody if router.has_table(distinct) else rest) for distinct in values.distinct]
    return np.array([*owners, nobody], np.uint16 if nobody < 2**16 else np.uint32)  # Small numbers are sorted faster.


def _without_new(own: Ints, code: Ints, values: RouteValues, router: Router, others: int) -> tuple[Ints, RouteReport]:
    """Returns the records of the rest without those that are to get a table, and the report on both."""
    numbers, counts = np.unique(code[own], return_counts=True)
    rest: Counter[str] = Counter()
    new: dict[int, tuple[str, ...]] = {}
    for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
        reason = router.refuse(values.distinct[number])
        if reason is None:
            new[number] = tuple(map(str, values.distinct[number]))
        else:
            rest[reason.value] += count
    first = tuple(sorted(new.values())[: router.free])
    return own[~np.isin(code[own], list(new))], RouteReport(first, dict(rest), others)


def crashing_records(target: TableTarget, topic: str, records: pa.RecordBatch) -> Bools:
    """Returns which records the table refuses unread, bool of shape (n_records,)."""
    crashing = {(record.partition, record.offset) for record in target.known.crashing if record.topic == topic}
    if not crashing:
        return np.zeros(records.num_rows, np.bool_)
    places = zip(records.column("partition").to_pylist(), records.column("offset").to_pylist(), strict=True)
    return np.array([place in crashing for place in places], np.bool_)


def value_sizes(values: pa.Array) -> Ints:
    """Returns the bytes of each value, 0 for none: int of shape (n_values,)."""
    return np.diff(offsets_of(values)).astype(np.int64)


def due_records(target: TableTarget, topic: str, records: pa.RecordBatch, starts: Mapping[str, Offsets]) -> Bools:
    """Returns which records begin at the table's own start or after it, bool of shape (n_records,)."""
    if target.name not in starts:
        return np.ones(records.num_rows, np.bool_)
    partitions, codes = np.unique(np.asarray(records.column("partition")), return_inverse=True)
    offsets = starts[target.name][topic]
    first = np.array([offsets.get(partition, _NEVER) for partition in partitions.tolist()], np.int64)
    return np.asarray(np.asarray(records.column("offset")) >= first[codes])
