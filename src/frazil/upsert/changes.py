"""What a stretch of records asks of a table, one row per change: what envelopes become and upserts are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from frazil.decode.columns import Decoded

UPSERT, DELETE, TRUNCATE = 1, 2, 3
"""Write the row of this key; take it away; take all rows away."""


@dataclass
class Changes:
    """Changes in the order of their records.

    columns: one array per field of the target's `fields`, a row per change; a delete has at least its key columns.
    ops: UPSERT, DELETE or TRUNCATE. records: index of the record in the stretch; an update that changes the key is two
    changes, a DELETE of the old one and an UPSERT. unavailable: by column the rows whose value the envelope does not carry:
    the old row's is kept. decoded: refused, misfits, requested_fields and so on, per record as for appended rows. order:
    the ordering value per change, where one is declared; None: partition and offset. old_keys: where some UPSERT takes the
    place of a row with another key, one array per key column, null where the key is the same: what is unavailable is in the
    row of the old key; the row's own key stands for one that could not be read. own: by field of `metadata` the values that
    the envelope gives, a row per change. ignored_records: how many records of a kind make no change
    (docs/reference/envelopes.md). key_columns: of a table that does not know its key yet, the fields of the records' keys.
    tombstones: which records of an envelope's topic have no value, and so far make no change; not those right after the
    delete of their key. last_deletes: the index of each record that is such a delete and the last one of its partition
    here. positions: where each change is in the log of its source, where headers tell of rows that get another key; times:
    when it was made, where deleted rows are marked with that; key_update_parts: the index of each record that is one of two
    which tell of such a row, its position, and whether it is the delete. rescued: what was put aside of each change,
    headers included; None: `decoded` says it of records.
    """

    columns: list[pa.Array]
    ops: NDArray[np.int8]
    records: NDArray[np.int32]
    unavailable: dict[int, NDArray[np.bool_]]
    decoded: Decoded
    order: pa.Array | None = None
    old_keys: list[pa.Array] | None = None
    own: Mapping[str, pa.Array] = field(default_factory=dict)
    ignored_records: Mapping[str, int] = field(default_factory=dict)
    key_columns: tuple[str, ...] = ()
    tombstones: NDArray[np.bool_] | None = None
    positions: pa.Array | None = None
    rescued: pa.Array | None = None
    times: pa.Array | None = None
    key_update_parts: Sequence[tuple[int, str, bool]] = ()
    last_deletes: Sequence[int] = ()

    @property
    def rescued_rows(self) -> pa.Array | None:
        """What was put aside, a value per change; None when nothing was."""
        of_records = self.decoded.rescued
        if self.rescued is not None or of_records is None:
            return self.rescued
        return of_records.take(pa.array(self.records))

    def without_refused(self) -> Changes:
        """The changes of the records that could be read."""
        return self.only(~self.decoded.refused[self.records])

    def only(self, kept: NDArray[np.bool_]) -> Changes:
        """The changes that `kept` marks."""
        if kept.all():
            return self
        places = pa.array(np.flatnonzero(kept))
        return replace(
            self,
            columns=[column.take(places) for column in self.columns],
            ops=self.ops[kept],
            records=self.records[kept],
            unavailable={n: mask[kept] for n, mask in self.unavailable.items()},
            order=self.order.take(places) if self.order is not None else None,
            old_keys=None if self.old_keys is None else [key.take(places) for key in self.old_keys],
            positions=self.positions.take(places) if self.positions is not None else None,
            rescued=self.rescued.take(places) if self.rescued is not None else None,
            times=self.times.take(places) if self.times is not None else None,
            own={name: values.take(places) for name, values in self.own.items()},
        )
