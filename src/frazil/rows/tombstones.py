"""The setting `tombstones` (`ignore`, `dead_letter`, `row`): what becomes of records without a value.

It overrides what the table's mode does: an upsert table deletes the row of the key, an append table of rows makes a dead
letter, an append table of changes ignores and counts them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from frazil.decode.columns import Decoded, Mismatch
from frazil.decode.conversion import Conversion, ValuePlace, require
from frazil.error_classes import ErrorClass
from frazil.rows.decoder import has_value
from frazil.rows.project import decode_rows
from frazil.schema.arrow import Bools, Records, pick, spread_mask
from frazil.stages.changes import Changes, appended
from frazil.write.target import TableTarget

_REASON = "the record has no value (a tombstone), and `tombstones` of the table is dead_letter"


def read_appended(target: TableTarget, records: Records, limit: int) -> Changes:
    """Returns the rows of records without an envelope. Tombstones are null in every column of the value: refused where the
    setting is `dead_letter`, rows where it is `row`, and counted as ignored where it is `ignore`.
    """
    tombstones = _find(target, records)
    if tombstones is None:
        return appended(decode_rows(target, records, limit))
    decoded = decode_rows(target, records, limit, ~tombstones)
    if target.record.tombstones == "dead_letter":
        return appended(_refuse(decoded, tombstones, limit))
    if target.record.tombstones == "row":
        return appended(_require(target, decoded, tombstones, limit))
    return replace(appended(decoded).only(~tombstones), ignored={"tombstone": tombstones})


def read_others(
    read: Callable[[TableTarget, Records, int], Changes], target: TableTarget, records: Records, limit: int
) -> Changes:
    """Returns the changes that `read` makes of the records which have a value. Tombstones are refused where the setting is
    `dead_letter`, and counted as ignored where it is `ignore`.
    """
    tombstones = _find(target, records)
    if tombstones is None:
        return read(target, records, limit)
    rows = np.flatnonzero(~tombstones)
    changes = read(target, pick(records, rows), limit)
    decoded = changes.decoded.spread(rows, tombstones.size)
    ignored = {kind: spread_mask(mask, rows, tombstones.size) for kind, mask in changes.ignored.items()}
    if target.record.tombstones == "dead_letter":
        decoded = _refuse(decoded, tombstones, limit)
    else:
        ignored["tombstone"] = ignored.get("tombstone", np.False_) | tombstones
    return replace(
        changes,
        decoded=decoded,
        records=rows[changes.records].astype(np.int32),
        ignored=ignored,
        tombstones=None,
        carried=None if changes.carried is None else changes.carried.of_records(rows),
        last_deletes=[int(rows[row]) for row in changes.last_deletes],
    )


def _find(target: TableTarget, records: Records) -> Bools | None:
    """Returns which records are tombstones that the setting applies to, bool of shape (n_records,); None where there
    are none.
    """
    if not target.record.tombstones:
        return None
    are_tombstones: Bools = ~has_value(target.reading, records["value"])
    return are_tombstones if are_tombstones.any() else None


def _refuse(decoded: Decoded, tombstones: Bools, limit: int) -> Decoded:
    others = [mismatch for mismatch in decoded.mismatches if not tombstones[mismatch.row]]
    mine = [Mismatch(row, "", ErrorClass.TOMBSTONE, _REASON) for row in np.flatnonzero(tombstones)[:limit].tolist()]
    return replace(decoded, mismatches=others).refusing(tombstones, mine, limit)


def _require(target: TableTarget, decoded: Decoded, tombstones: Bools, limit: int) -> Decoded:
    """Requests that required columns become optional, as for a record that lacks their fields."""
    size = tombstones.size
    conversion = Conversion(target.reading, "", size, limit)
    conversion.refused |= decoded.refused
    place = ValuePlace((), np.arange(size, dtype=np.int32), tombstones)
    for field, column in zip(target.fields, decoded.columns, strict=True):
        if field.required:
            require(conversion, column, place, (field.name,))
    decoded = decoded.refusing(conversion.refused, conversion.mismatches, limit)
    return replace(decoded, made_optional=decoded.made_optional | conversion.made_optional)
