"""Records to the rows that are appended for them, whether they are rows themselves or changes in a CDC envelope.

The setting `tombstones` (`ignore`, `dead_letter`, `row`) overrides what the table's mode does with records without a
value: an upsert table deletes the row of the key, an append table of rows makes a dead letter, an append table of
changes ignores and counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from frazil.cdc.changes import read_envelope
from frazil.decode.cast import Conversion, Place, require
from frazil.decode.columns import Decoded, Mismatch
from frazil.decode.json.slices import MAX_MISMATCHES
from frazil.decode.settings import OWN_TYPES
from frazil.rows.decoder import has_value
from frazil.rows.project import decode_rows, shape_rows
from frazil.schema.arrow import Bools, Records, pick
from frazil.types import add_counts
from frazil.upsert.changes import Changes
from frazil.write.target import TableTarget

_REASON = "the record has no value (a tombstone), and `tombstones` of the table is dead_letter"


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


def find_tombstones(target: TableTarget, records: Records) -> Bools | None:
    """Returns which records are tombstones that the setting applies to, bool of shape (n_records,); None where there
    are none.
    """
    if not target.tombstones:
        return None
    found: Bools = ~has_value(target.reading, records["value"])
    return found if found.any() else None


def decode_others(target: TableTarget, records: Records, tombstones: Bools, limit: int) -> Decoded:
    """Returns the columns of the records of an append table. Tombstones are null in every column of the value: refused
    where the setting is `dead_letter`, rows where it is `row`.
    """
    found = decode_rows(target, records, limit, ~tombstones)
    if target.tombstones == "dead_letter":
        return _refuse(found, tombstones, limit)
    if target.tombstones == "row":
        return _require(target, found, tombstones, limit)
    return found


def read_others(
    read: Callable[[TableTarget, Records, int], Changes],
    target: TableTarget,
    records: Records,
    tombstones: Bools,
    limit: int,
) -> Changes:
    """Returns the changes of the records that have a value. Tombstones are refused where the setting is `dead_letter`,
    and counted as ignored where it is `ignore`.
    """
    rows = np.flatnonzero(~tombstones)
    changes = read(target, pick(records, rows), limit)
    # Changes have columns and rescued values of their own, a row for each change.
    decoded = replace(changes.decoded, columns=[], rescued=None).spread(rows, tombstones.size)
    ignored_records = changes.ignored_records
    if target.tombstones == "dead_letter":
        decoded = _refuse(decoded, tombstones, limit)
    else:
        ignored_records = add_counts(ignored_records, {"tombstone": int(np.count_nonzero(tombstones))})
    return replace(
        changes,
        decoded=decoded,
        records=rows[changes.records].astype(np.int32),
        rescued=changes.rescued_rows,
        ignored_records=ignored_records,
        tombstones=None,
        key_update_parts=[(int(rows[row]), key, is_delete) for row, key, is_delete in changes.key_update_parts],
        last_deletes=[int(rows[row]) for row in changes.last_deletes],
    )


def _refuse(decoded: Decoded, tombstones: Bools, limit: int) -> Decoded:
    others = [mismatch for mismatch in decoded.mismatches if not tombstones[mismatch.row]]
    mine = [Mismatch(row, "", "tombstone", _REASON) for row in np.flatnonzero(tombstones)[:limit].tolist()]
    return replace(decoded, mismatches=others).refusing(tombstones, mine, limit)


def _require(target: TableTarget, decoded: Decoded, tombstones: Bools, limit: int) -> Decoded:
    """Requests that required columns become optional, as for a record that lacks their fields."""
    size = tombstones.size
    conversion = Conversion(target.reading, "", size, limit)
    conversion.refused |= decoded.refused
    place = Place((), np.arange(size, dtype=np.int32), tombstones)
    for field, column in zip(target.fields, decoded.columns, strict=True):
        if field.required:
            require(conversion, column, place, (field.name,))
    decoded = decoded.refusing(conversion.refused, conversion.mismatches, limit)
    return replace(decoded, made_optional=decoded.made_optional | conversion.made_optional)
