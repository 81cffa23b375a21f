"""What records become on their way to the files of a table, from the reader of their format to the writer of rows.

A change writes the row of a key, deletes it, or empties the table. A row that is appended is an UPSERT without a key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from frazil.decode.columns import Decoded
from frazil.decode.conversion import has_member
from frazil.schema.arrow import Bools, Ints, Records
from frazil.stages.findings import StageFinding
from frazil.types import RESCUED_COLUMN

UPSERT, DELETE, TRUNCATE = 1, 2, 3
"""Operations: write the row of the key, delete the row of the key, delete all rows."""


def are_of_keys(ops: NDArray[np.int8]) -> Bools:
    """Returns which operations are of the row of a key, and not of all rows, bool of the same shape."""
    return np.asarray(ops != TRUNCATE, np.bool_)


@dataclass(frozen=True)
class ReadRecords:
    """Records of one topic that are read at once: what every stage can ask for beside the changes."""

    #: The topic; empty where records are read once more, to explain why they are refused.
    topic: str
    #: The columns of Kafka as far as the table needs them, one value per record.
    columns: Records
    #: The number of mismatches that are kept.
    limit: int


class Carried(Protocol):
    """What is carried with changes, from the envelope to the room that reads it."""

    def take(self, at: pa.Array) -> Carried:
        """Returns what is carried with the changes at these places; null for a change without values."""

    def of_records(self, rows: Ints) -> Carried:
        """Returns the same for records with other indexes. rows: the new index by the old one."""

    def in_query(
        self, names: Sequence[str], columns: Records, make: Callable[[Records], Sequence[pa.Array]]
    ) -> Carried:
        """Returns the same for the rows that a query makes. names: the key columns of its records, whose `columns` these
        are. make: makes the key columns of the table from columns of records.
        """


@dataclass
class Changes:
    """Changes in the order of their records. Per-change arrays have the shape `(n_changes,)`, per-record arrays
    `(n_records,)`.
    """

    #: One array per field of the target's `fields`. A delete has values at least in its key columns.
    columns: list[pa.Array]
    #: UPSERT, DELETE or TRUNCATE per change.
    ops: NDArray[np.int8]
    #: The index of each change's record, ascending. A record may make two changes: a DELETE of one key, then an UPSERT of
    #: another.
    records: NDArray[np.int32]
    #: By index of the column, a mask of the changes whose envelope does not carry the value: the value of the replaced
    #: row is kept.
    unavailable: dict[int, Bools]
    #: Refused records with their mismatches, the requests for the schema, and the numbers of fields: all per record. It
    #: has no columns.
    decoded: Decoded
    #: The ordering value per change where `order_by` is declared; None where partition and offset decide.
    order: pa.Array | None = None
    #: What a room of `upsert` needs of the changes until they are rows; None without any.
    carried: Carried | None = None
    #: By field of `metadata`, or by extra column, the values that the envelope or the decoder provides, one per change.
    own: Mapping[str, pa.Array] = field(default_factory=dict)
    #: Which records make no change, by kind of record (docs/reference/envelopes.md) or by what dropped them. The change of
    #: a dropped row, if there is one, deletes the row of its key.
    ignored: Mapping[str, Bools] = field(default_factory=dict)
    #: What stages have found in records.
    findings: Sequence[StageFinding] = ()
    #: The fields of the records' keys, for a table whose key columns are not known yet.
    key_columns: tuple[str, ...] = ()
    #: Which records of an envelope's topic are tombstones that make no change yet. The tombstone directly behind the
    #: delete of its key is not included.
    tombstones: Bools | None = None
    #: The position of each change in the source's log, where headers name other records at the same one.
    positions: pa.Array | None = None
    #: The time of each change in the source, where deleted rows are marked with it (soft deletes).
    times: pa.Array | None = None
    #: The index of each record that is a delete and the last record of its partition in this stretch.
    last_deletes: Sequence[int] = ()

    @property
    def have_keys(self) -> Bools:
        """Which changes are of the row of a key, and not of all rows, bool `(n_changes,)`."""
        return are_of_keys(self.ops)

    @property
    def ignored_records(self) -> dict[str, int]:
        """The number of records that make no change and are not bad records, by the same names as `ignored`."""
        good = ~self.decoded.refused
        counts = ((name, int(np.count_nonzero(mask & good))) for name, mask in self.ignored.items())
        return {name: count for name, count in counts if count}

    @property
    def written_count(self) -> int:
        """The number of records that make a change, once all columns of the table are known."""
        is_written = np.zeros(self.decoded.refused.size, np.bool_)
        is_written[self.records] = True
        for mask in (self.decoded.refused, *self.ignored.values()):
            is_written &= ~mask
        return int(np.count_nonzero(is_written))

    @property
    def must_read_again(self) -> bool:
        """Whether the records must be read once more before they become rows: the schema has to change first."""
        needs = self.decoded
        return bool(needs.requested_fields or needs.made_optional or needs.missing or self.key_columns)

    @property
    def rescued(self) -> pa.Array | None:
        """The rescued values per change, headers included; None where no value was rescued."""
        return self.own.get(RESCUED_COLUMN)

    def mismatched(self, name: str) -> Bools:
        """Returns which changes have a value of this name that did not fit its column, bool of shape (n_changes,)."""
        return np.zeros(self.ops.size, np.bool_) if self.rescued is None else has_member(self.rescued, name)

    def without_refused(self) -> Changes:
        """Returns the changes whose records could be read."""
        return self.only(~self.decoded.refused[self.records])

    def only(self, kept: Bools) -> Changes:
        """Returns the changes where `kept`, bool `(n_changes,)`, is true."""
        return self if kept.all() else self.take(np.flatnonzero(kept), self.ops[kept], self.records[kept])

    def take(self, places: Ints, ops: NDArray[np.int8], records: NDArray[np.int32]) -> Changes:
        """Returns the changes at these places, with other operations and records; -1: a change without values."""
        at, is_there = pa.array(places, mask=places < 0), places >= 0

        def taken(values: pa.Array | None) -> pa.Array | None:
            return None if values is None else values.take(at)

        return replace(
            self,
            columns=[column.take(at) for column in self.columns],
            ops=ops,
            records=records,
            unavailable={n: mask[places] & is_there for n, mask in self.unavailable.items()},
            order=taken(self.order),
            carried=None if self.carried is None else self.carried.take(at),
            positions=taken(self.positions),
            times=taken(self.times),
            own={name: values.take(at) for name, values in self.own.items()},
        )


def as_versions(times: pa.Array) -> dict[str, pa.Array]:
    """Returns the columns of versions that are valid from these times and current, by the fields of `metadata`."""
    count = len(times)
    return {
        "valid_from": times,
        "valid_to": pa.nulls(count, pa.timestamp("us", tz="UTC")),
        "is_current": pa.array(np.ones(count, np.bool_)),
    }


def appended(decoded: Decoded) -> Changes:
    """Returns the changes that append each record as a row. decoded: with a column for each field of the table."""
    count = decoded.refused.size
    return Changes(
        columns=decoded.columns,
        ops=np.full(count, UPSERT, np.int8),
        records=np.arange(count, dtype=np.int32),
        unavailable={},
        decoded=replace(decoded, columns=[], own={}),
        own=decoded.own,
    )
