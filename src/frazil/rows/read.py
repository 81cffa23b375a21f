"""Records to the rows that are appended for them, be they rows themselves or changes in envelopes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from frazil.cdc.changes import read_envelope
from frazil.decode.columns import Decoded
from frazil.decode.envelope import OWN_TYPES
from frazil.decode.json.slices import MAX_MISMATCHES
from frazil.rows.project import decode_rows
from frazil.rows.shape import shape_rows
from frazil.rows.tombstones import decode_others, find_tombstones, read_others
from frazil.upsert.changes import Changes
from frazil.write.target import TableTarget

Records = Mapping[str, pa.Array]


@dataclass(frozen=True)
class ReadRecords:
    """What became of some records. decoded: per record; its columns count where there are no `changes`.
    ignored: tombstones that make no row because the table's `tombstones` is `ignore`.
    """

    decoded: Decoded
    changes: Changes | None = None
    ignored: NDArray[np.bool_] | None = None

    @property
    def ignored_records(self) -> Mapping[str, int]:
        """How many records make no row without being bad ones, by what they are."""
        if self.ignored is not None:
            return {"tombstone": int(np.count_nonzero(self.ignored))}
        return self.changes.ignored_records if self.changes is not None else {}

    def rows(self, target: TableTarget, records: Records) -> pa.Table:
        """The rows of the good records, in the files' schema; `records` are those that were read."""
        if self.changes is not None:
            return _change_rows(target, self.changes, records)
        rows = shape_rows(target, self.decoded, records)
        out = self.decoded.refused if self.ignored is None else self.decoded.refused | self.ignored
        if out.any() and rows.num_columns:
            rows = rows.filter(pa.array(~out))
        return rows


def read_records(target: TableTarget, records: Records, limit: int = MAX_MISMATCHES) -> ReadRecords:
    """Decodes records. limit: how many misfits are noted."""
    tombstones = find_tombstones(target, records)
    if target.envelope is None:
        if tombstones is None:
            return ReadRecords(decode_rows(target, records, limit))
        decoded = decode_others(target, records, tombstones, limit)
        return ReadRecords(decoded, ignored=tombstones if target.tombstones == "ignore" else None)
    if tombstones is None:
        changes = read_envelope(target, records, limit)
    else:
        changes = read_others(read_envelope, target, records, tombstones, limit)
    return ReadRecords(changes.decoded, changes)


def _change_rows(target: TableTarget, changes: Changes, records: Records) -> pa.Table:
    """A row for each change."""
    places = pa.array(changes.records)
    own = {name: records[name].take(places) for name, _ in target.metadata if name not in OWN_TYPES}
    decoded = Decoded(changes.columns, np.zeros(changes.records.size, np.bool_), rescued=changes.rescued_rows)
    return shape_rows(target, decoded, {**own, **changes.own})
