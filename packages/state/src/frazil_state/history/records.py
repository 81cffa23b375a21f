"""Records of a table that keeps history: each change has the time from which its version is valid, or is a bad record."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow.compute as pc

from frazil.decode.columns import Mismatch
from frazil.error_classes import ErrorClass
from frazil.stages.changes import Changes, ReadRecords
from frazil.upsert.records.read_changes import refuse
from frazil.write.target import TableTarget
from frazil_state.history.times import TIME, as_times

_NO_TIME = "the record has no timestamp, from which its version would be valid"
_NO_VALUE = "the change does not have the value of {}, and a version is a whole row"
_TRUNCATE = "a truncate would close the versions of every key, and a table that keeps history closes them key by key"


def take_times(target: TableTarget, read: ReadRecords, changes: Changes) -> Changes:
    """Returns the changes of a table that keeps history, each with the time from which its version is valid. Records are
    refused without a time, without a value that the source did not send, and where they truncate the table.
    """
    if target.changes is None or target.changes.history is None or not changes.ops.size or changes.must_read_again:
        return changes
    own = changes.own
    ordered = as_times(changes.order) if changes.order is not None else None
    if ordered is not None:
        own = {**own, "valid_from": pc.coalesce(ordered, own["valid_from"].cast(TIME, safe=False))}
    mismatches: list[Mismatch] = []
    for n, lacks in changes.unavailable.items():
        name = target.fields[n].name
        reason = _NO_VALUE.format(name)
        mismatches += refuse(changes, lacks, name, ErrorClass.UNAVAILABLE_VALUE, reason, read.limit)
    mismatches += refuse(changes, ~changes.have_keys, "", ErrorClass.UNKNOWN_OPERATION, _TRUNCATE, read.limit)
    lacks = np.asarray(own["valid_from"].is_null())
    mismatches += refuse(changes, lacks, "", ErrorClass.NO_ORDER_VALUE, _NO_TIME, read.limit)
    decoded = changes.decoded.refusing(changes.decoded.refused, mismatches, read.limit)
    return replace(changes, own=own, decoded=decoded)
