"""Sessions: the records of a key that are at most a gap apart are one row, and a record between two sessions joins them.

Parts and rows have the start and the end of their records; the end is that of the last record and the gap behind it. Two
touch where one begins no later than the other ends, as Spark's `session_window` has it, and what touches is one session,
whatever the order of records. The rows of a key never touch each other: those which a batch joins touch its own parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numba import njit
from pyiceberg.types import PrimitiveType

from frazil.catalog.scans import LiveFile
from frazil.errors import SpecError
from frazil.raw_memory import COMPILED
from frazil.schema.arrow import Ints, one_array
from frazil.upsert.lookup.live_rows import read_columns
from frazil.upsert.lookup.pruning import bounds_of
from frazil.upsert.lookup.search import Found, Hits
from frazil.write.target import TableTarget
from frazil_state.merge.parts import group_parts


@dataclass(frozen=True)
class Joined:
    """The sessions that a batch begins, extends or joins."""

    #: The session of each part of the batch, int64 `(n_parts,)`.
    parts: Ints
    #: The index of the key of each session, int64 `(count,)`.
    keys: Ints
    #: The live rows that become part of a session; the key of each is the session's number.
    live_rows: Found


def in_sessions(target: TableTarget, parts: pa.Table, codes: Ints, count: int) -> tuple[Ints, int]:
    """Returns the session of each part and the number of sessions; the groups as they are for a table without sessions.
    codes: the group of each part, int64 `(n_parts,)`, below `count`.
    """
    session = target.changes.session if target.changes is not None else None
    if session is None:
        return codes, count
    return number_sessions(codes, *(_micros(one_array(parts[name])) for name in session))


def join_sessions(target: TableTarget, parts: pa.Table, live_rows: Found) -> Joined:
    """Returns the sessions of a batch with the rows of the table that are in them. live_rows: of all keys of the parts, in
    the order of `group_parts`.

    Raises: OSError where the store fails; SpecError where a row is not a session.
    """
    assert target.changes is not None
    session = target.changes.session
    assert session is not None
    codes, _ = group_parts(parts, by_partition=False)
    bounds = [tuple(one_array(parts[name]) for name in session)]
    bounds += [_read_bounds(target, hits, session) for hits in live_rows.hits]
    owners = np.concatenate([codes, *(hits.keys for hits in live_rows.hits)])
    starts, ends = (np.concatenate([_micros(pair[n]) for pair in bounds]) for n in (0, 1))
    numbers, count = number_sessions(owners, starts, ends)
    is_of_batch = np.zeros(count, np.bool_)
    is_of_batch[numbers[: codes.size]] = True
    places = np.cumsum(is_of_batch) - 1
    cuts = np.cumsum([codes.size, *(hits.rows.size for hits in live_rows.hits)])[:-1]
    of_parts, *of_rows = np.split(numbers, cuts)
    joined = []
    for hits, of_hits in zip(live_rows.hits, of_rows, strict=True):
        is_joined = is_of_batch[of_hits]
        if is_joined.any():
            joined.append(replace(hits.only(is_joined), keys=places[of_hits[is_joined]]))
    keys = np.zeros(int(is_of_batch.sum()), np.int64)
    keys[places[of_parts]] = codes
    return Joined(places[of_parts], keys, Found(joined, live_rows.inspected))


def may_touch(target: TableTarget, parts: pa.Table, files: Sequence[LiveFile]) -> Sequence[LiveFile]:
    """Returns the files that may have a session which the parts of a batch extend, by their bounds; all files of a table
    without sessions.
    """
    changes = target.changes
    if changes is None or changes.session is None or not len(parts):
        return files
    start, end = changes.session
    first, last = int(_micros(one_array(parts[start])).min()), int(_micros(one_array(parts[end])).max())
    begins, ends = (target.schema.find_field(name) for name in (start, end))
    assert isinstance(begins.field_type, PrimitiveType)
    assert isinstance(ends.field_type, PrimitiveType)
    kept = []
    for file in files:
        least, _ = bounds_of(file, begins.field_id, begins.field_type)
        _, most = bounds_of(file, ends.field_id, ends.field_type)
        if (least is None or least <= last) and (most is None or most >= first):
            kept.append(file)
    return kept


def _read_bounds(target: TableTarget, hits: Hits, session: tuple[str, str]) -> tuple[pa.Array, ...]:
    columns = tuple(read_columns(target, hits.file, [(name,) for name in session], hits.rows))
    if any(column.null_count for column in columns):
        raise SpecError(
            f"the table has rows without `{session[0]}` or `{session[1]}`: they are not sessions",
            remedy="give the sessions a table of their own, or drop the table, so that it is created again from the topic",
            where=target.name,
        )
    return columns


def _micros(times: pa.Array) -> Ints:
    return np.asarray(times.cast(pa.int64()))


def number_sessions(codes: Ints, starts: Ints, ends: Ints) -> tuple[Ints, int]:
    """Returns the number of the session of each interval, and the number of sessions. codes: the key of each."""
    order = np.lexsort((starts, codes))
    numbers = np.empty(codes.size, np.int64)
    return numbers, _number(codes.astype(np.int64, copy=False), starts, ends, order, numbers)


@njit(**COMPILED)  # type: ignore[untyped-decorator]
def _number(codes: Ints, starts: Ints, ends: Ints, order: Ints, numbers: Ints) -> int:
    """Writes the session of each interval, and returns how many there are. order: by code and start."""
    number, code, until = -1, -1, 0
    for n in order:
        if codes[n] != code or starts[n] > until:
            number += 1
            until = ends[n]
        code = codes[n]
        until = max(until, ends[n])
        numbers[n] = number
    return number + 1
