"""Records to the rows that are appended for them, whether they are rows themselves or changes in a CDC envelope."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from frazil.cdc.changes import read_envelope
from frazil.decode.columns import Decoded
from frazil.decode.json.slices import MAX_MISMATCHES
from frazil.decode.settings import OWN_TYPES
from frazil.rows.project import decode_rows, shape_rows
from frazil.rows.tombstones import decode_others, find_tombstones, read_others
from frazil.schema.arrow import Bools, Records
from frazil.upsert.changes import Changes
from frazil.write.target import TableTarget


@dataclass(frozen=True)
class ReadRecords:
    """The results of reading some records."""

    #: The result per record; its columns are the rows where there are no `changes`.
    decoded: Decoded
    #: The changes of a table with an envelope.
    changes: Changes | None = None
    #: Which records are tombstones that make no row because the table's `tombstones` is `ignore`.
    ignored: Bools | None = None

    @property
    def ignored_records(self) -> Mapping[str, int]:
        """The number of records that make no row and are no bad records, by kind of record."""
        if self.ignored is not None:
            return {"tombstone": int(np.count_nonzero(self.ignored))}
        return self.changes.ignored_records if self.changes is not None else {}

    def rows(self, target: TableTarget, records: Records) -> pa.Table:
        """Returns the rows of the good records in the schema of the table's files. records: the records that were read."""
        if self.changes is not None:
            return _change_rows(target, self.changes, records)
        rows = shape_rows(target, self.decoded, records)
        out = self.decoded.refused if self.ignored is None else self.decoded.refused | self.ignored
        if out.any() and rows.num_columns:
            rows = rows.filter(pa.array(~out))
        return rows


def read_records(target: TableTarget, records: Records, limit: int = MAX_MISMATCHES) -> ReadRecords:
    """Decodes records. limit: the number of mismatches that are kept."""
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
    """Returns a row for each change."""
    places = pa.array(changes.records)
    own = {name: records[name].take(places) for name, _ in target.metadata if name not in OWN_TYPES}
    decoded = Decoded(changes.columns, np.zeros(changes.records.size, np.bool_), rescued=changes.rescued_rows)
    return shape_rows(target, decoded, {**own, **changes.own})
