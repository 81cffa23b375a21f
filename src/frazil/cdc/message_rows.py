"""Messages with several rows each: read row by row, and gathered again, as a message is good or bad as one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from frazil.decode.columns import Decoded
from frazil.upsert.changes import Changes

Owner = NDArray[np.int32]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class MessageRows:
    """The rows of messages."""

    #: The result per row, in the order of their messages, with one row for each message that has none.
    decoded: Decoded
    #: The record of each row: shape (n_rows,).
    owner: Owner


def spread(records: Mapping[str, pa.Array], owner: Owner) -> dict[str, pa.Array]:
    """Returns the records' columns with one row for each of their rows. Values are read already, and are left out."""
    places = pa.array(owner)
    found = {name: array.take(places) for name, array in records.items() if name != "value"}
    return {**found, "value": pa.nulls(owner.size, pa.binary())}


def good_messages(owner: Owner | None, refused: Bools) -> Bools:
    """Returns which rows represent a message without a bad row: the first row of each. Without `owner`: the good rows."""
    if owner is None:
        return ~refused
    bad = np.zeros(int(owner.max(initial=-1)) + 1, np.bool_)
    bad[owner[refused]] = True
    return np.diff(owner, prepend=-1).astype(np.bool_) & ~bad[owner]


def gather(changes: Changes, owner: Owner, count: int) -> Changes:
    """Returns the changes by their records, of which there are `count`. Where one row of a message is bad, the entire
    message is.
    """
    decoded = changes.decoded
    refused = np.zeros(count, np.bool_)
    refused[owner[decoded.refused]] = True
    decoded = replace(
        decoded,
        refused=refused,
        mismatches=[replace(mismatch, row=int(owner[mismatch.row])) for mismatch in decoded.mismatches],
        rescued=None,
    )
    found = replace(
        changes,
        records=owner[changes.records],
        decoded=decoded,
        rescued=changes.rescued_rows,
    )
    return found.without_refused()
