"""Which records of a topic each table of a job takes: those from its own start on, and of a route those with its values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from frazil.decode.columns import offsets_of
from frazil.ingest.together import MadeRows, Together
from frazil.report import RouteReport
from frazil.rows.routes import RouteValues, read_route_values
from frazil.schema.arrow import Bools, Ints
from frazil.schema.routes import Router
from frazil.types import Offsets
from frazil.write.target import TableTarget

OVERSIZED_PARTITION = -1
"""The partition of an oversized record that was left out of a batch of small records."""
_NEVER = 2**63 - 1
_UNREAD = -1


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
            due = _due(target, topic, records, starts)
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
    if together is not None and not (np.asarray(records.column("partition")) == OVERSIZED_PARTITION).any():
        made = together.make_rows(topic, records)
        if made is not None:
            are_made = made.is_made.all()
            with_rows = records if are_made else records.filter(pa.array(made.is_made))
            yield from _divide_rows(targets, topic, with_rows, starts, made, together)
            if are_made:
                return
            records = records.filter(pa.array(~made.is_made))
    yield from _divide_records(targets, topic, records, starts)


def _divide_rows(
    targets: Sequence[TableTarget],
    topic: str,
    records: pa.RecordBatch,
    starts: Mapping[str, Offsets],
    made: MadeRows,
    together: Together,
) -> Iterator[Share]:
    """Yields the shares of records that have become rows: as rows where the table may have these, else as records."""
    sizes, none = value_sizes(records.column("value")), records.slice(0, 0)
    of_rows: list[Ints] = []
    for target, own, routed in _own_records(targets, topic, records, starts, made.values, made.values.codes):
        has_rows = target.name in together.tables
        of_rows.append(own if has_rows else own[:0])
        if has_rows:
            yield Share(target, none, routed, row_value_bytes=sizes[own])
        else:
            yield Share(target, records.take(pa.array(own)), routed)
    together.hold(made.rows, of_rows)


def _divide_records(
    targets: Sequence[TableTarget], topic: str, records: pa.RecordBatch, starts: Mapping[str, Offsets]
) -> Iterator[Share]:
    """Yields the shares as records. Of records whose values are not read, an oversized one goes to every table, and one
    that ends tasks to those that know of it.
    """
    route = targets[0].route
    assert route is not None
    crashing = {target.name: _crashing(target, topic, records) for target in targets}
    is_read = ~np.logical_or.reduce(list(crashing.values()))
    named = records if is_read.all() else records.filter(pa.array(is_read))
    values = read_route_values(route, targets, topic, named)
    codes = np.full(records.num_rows, _UNREAD)
    codes[is_read] = values.codes
    is_oversized = np.asarray(records.column("partition")) == OVERSIZED_PARTITION
    for target, own, routed in _own_records(targets, topic, records, starts, values, codes):
        is_own = is_oversized & _due(target, topic, records, starts) if is_oversized.any() else is_oversized.copy()
        is_own[own] = True
        rows = np.flatnonzero(is_own | crashing[target.name])
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
    route = targets[0].route
    assert route is not None
    router = Router(route, next((target.routed for target in targets if not target.route_values), ()))
    owner = _owners(values, targets, router)[codes]
    order = np.argsort(owner, kind="stable")  # Once for all tables: there may be hundreds.
    ends = np.searchsorted(owner[order], np.arange(len(targets) + 1))
    for number, target in enumerate(targets):
        own, due_count = order[ends[number] : ends[number + 1]], len(owner)
        if target.name in starts:
            due = _due(target, topic, records, starts)
            own, due_count = own[due[own]], int(np.count_nonzero(due))
        others = due_count - len(own)
        routed = RouteReport(others=others)
        if not target.route_values:
            own, routed = _without_new(own, codes, values, router, others)
        yield target, own, routed


def _owners(values: RouteValues, targets: Sequence[TableTarget], router: Router) -> NDArray[np.uint16 | np.uint32]:
    """Returns the table of the records with each of the different values, and last that of records whose values are not
    read, of shape (n_distinct + 1,): its number among `targets`, or their number where no table of the job takes them.
    """
    numbers: dict[tuple[str | None, ...], int] = {one.route_values: number for number, one in enumerate(targets)}
    nobody, rest = len(targets), numbers.get((), len(targets))
    owners = [numbers.get(one, nobody if router.has_table(one) else rest) for one in values.distinct]
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


def _crashing(target: TableTarget, topic: str, records: pa.RecordBatch) -> Bools:
    """Returns which records the table refuses unread, bool of shape (n_records,)."""
    known = {(one.partition, one.offset) for one in target.crashing if one.topic == topic}
    if not known:
        return np.zeros(records.num_rows, np.bool_)
    places = zip(records.column("partition").to_pylist(), records.column("offset").to_pylist(), strict=True)
    return np.array([place in known for place in places], np.bool_)


def value_sizes(values: pa.Array) -> Ints:
    """Returns the bytes of each value, 0 for none: int of shape (n_values,)."""
    return np.diff(offsets_of(values)).astype(np.int64)


def _due(target: TableTarget, topic: str, records: pa.RecordBatch, starts: Mapping[str, Offsets]) -> Bools:
    """Returns which records begin at the table's own start or after it, bool of shape (n_records,)."""
    if target.name not in starts:
        return np.ones(records.num_rows, np.bool_)
    partitions, codes = np.unique(np.asarray(records.column("partition")), return_inverse=True)
    # An oversized record has no partition: it counts for all tables.
    known = {OVERSIZED_PARTITION: 0, **starts[target.name][topic]}
    first = np.array([known.get(partition, _NEVER) for partition in partitions.tolist()], np.int64)
    return np.asarray(np.asarray(records.column("offset")) >= first[codes])
