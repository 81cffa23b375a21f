"""Which records of a topic each table of a job takes: those from its own start on, and of a route those with its values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from frazil.report import RouteReport
from frazil.rows.routes import RouteValues, read_route_values
from frazil.schema.arrow import Bools, Ints
from frazil.schema.routes import Router
from frazil.types import Offsets
from frazil.write.target import TableTarget

OVERSIZED_PARTITION = -1
"""The partition of an oversized record that was left out of a batch of small records."""
_NEVER = 2**63 - 1
_REST, _NOBODY = -1, -2


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


def shares_of(
    targets: Sequence[TableTarget], topic: str, records: pa.RecordBatch, starts: Mapping[str, Offsets]
) -> Iterator[Share]:
    """Yields the share of each table in the records of a topic. starts: the offsets at which the records of a table
    begin, for tables that do not use all of them.
    """
    routes: dict[str, list[TableTarget]] = {}
    for target in targets:
        if target.route is not None:
            routes.setdefault(target.route.rest, []).append(target)
        else:
            due = _due(target, topic, records, starts)
            yield Share(target, records if due.all() else records.filter(pa.array(due)))
    for members in routes.values():
        yield from _divide(members, topic, records, starts)


def _divide(
    targets: Sequence[TableTarget], topic: str, records: pa.RecordBatch, starts: Mapping[str, Offsets]
) -> Iterator[Share]:
    """Yields the shares of the tables of one route. Of records whose values are not read, an oversized one goes to every
    table, and one that ends tasks to those that know of it.
    """
    route = targets[0].route
    assert route is not None
    crashing = [_crashing(target, topic, records) for target in targets]
    is_read = ~np.logical_or.reduce(crashing)
    named = records if is_read.all() else records.filter(pa.array(is_read))
    values = read_route_values(route, targets, topic, named)
    router = Router(route, next((target.routed for target in targets if not target.route_values), ()))
    owner, code = np.full(records.num_rows, _NOBODY), np.zeros(records.num_rows, np.int64)
    owner[is_read], code[is_read] = _owners(values, targets, router)[values.codes], values.codes
    is_oversized = np.asarray(records.column("partition")) == OVERSIZED_PARTITION
    for number, target in enumerate(targets):
        due = _due(target, topic, records, starts)
        own = due & (owner == (number if target.route_values else _REST))
        others = int(np.count_nonzero(due & ~own))
        routed = RouteReport(others=others)
        if not target.route_values:
            own, routed = _without_new(own, code, values, router, others)
        rows = np.flatnonzero(own | (due & is_oversized) | crashing[number])
        yield Share(target, records.take(pa.array(rows)), routed, values.missing)


def _owners(values: RouteValues, targets: Sequence[TableTarget], router: Router) -> Ints:
    """Returns the table of the records with each of the different values, int64 of shape (n_distinct,): its number among
    `targets`, _REST, or _NOBODY where the table is not in the job.
    """
    numbers: dict[tuple[str | None, ...], int] = {
        target.route_values: number for number, target in enumerate(targets) if target.route_values
    }
    owners = [numbers.get(one, _NOBODY if router.has_table(one) else _REST) for one in values.distinct]
    return np.array(owners, np.int64)


def _without_new(own: Bools, code: Ints, values: RouteValues, router: Router, others: int) -> tuple[Bools, RouteReport]:
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
    return own & ~np.isin(code, list(new)), RouteReport(first, dict(rest), others)


def _crashing(target: TableTarget, topic: str, records: pa.RecordBatch) -> Bools:
    """Returns which records the table refuses unread, bool of shape (n_records,)."""
    known = {(one.partition, one.offset) for one in target.crashing if one.topic == topic}
    if not known:
        return np.zeros(records.num_rows, np.bool_)
    places = zip(records.column("partition").to_pylist(), records.column("offset").to_pylist(), strict=True)
    return np.array([place in known for place in places], np.bool_)


def _due(target: TableTarget, topic: str, records: pa.RecordBatch, starts: Mapping[str, Offsets]) -> Bools:
    """Returns which records begin at the table's own start or after it, bool of shape (n_records,)."""
    if target.name not in starts:
        return np.ones(records.num_rows, np.bool_)
    partitions, codes = np.unique(np.asarray(records.column("partition")), return_inverse=True)
    # An oversized record has no partition: it counts for all tables.
    known = {OVERSIZED_PARTITION: 0, **starts[target.name][topic]}
    first = np.array([known.get(partition, _NEVER) for partition in partitions.tolist()], np.int64)
    return np.asarray(np.asarray(records.column("offset")) >= first[codes])
