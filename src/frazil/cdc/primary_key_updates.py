"""Records of primary-key updates, recognised by their headers: a delete of the old key and an insert of the new key."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.cdc.change_plan import CREATE, REMOVE, Bools, Opened, Records
from frazil.cdc.envelope import ROW
from frazil.decode.envelope import NEW_KEY, OLD_KEY


def has_key_updates(records: Records) -> bool:
    """Whether a record is part of a primary-key update."""
    if "headers" not in records:
        return False
    names = records["headers"].flatten().field("key")
    return bool(pc.any(pc.is_in(names, pa.array([OLD_KEY, NEW_KEY]))).as_py())


def key_update_parts_of(records: Records, opened: Opened) -> list[tuple[int, str, bool]]:
    """Returns the index of each such record, its position in the source's log, and whether it is the delete. Bad
    records are included.
    """
    positions, is_change = opened.facts["position"], opened.record_kind <= ROW
    is_delete = is_change & (opened.op == REMOVE) & _has(records, NEW_KEY)
    is_insert = is_change & (opened.op == CREATE) & _has(records, OLD_KEY)
    is_key_update_part = (is_delete | is_insert) & np.asarray(positions.is_valid())
    return [(row, positions[row].as_py(), bool(is_delete[row])) for row in np.flatnonzero(is_key_update_part).tolist()]


def _has(records: Records, name: str) -> Bools:
    headers = records["headers"]
    found = np.zeros(len(headers), np.bool_)
    is_named = np.asarray(pc.fill_null(pc.equal(headers.flatten().field("key"), name), False))
    found[np.asarray(pc.list_parent_indices(headers))[is_named]] = True
    return found
