"""Messages that have several rows each: records spread to rows, and the changes of rows gathered by their records."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from frazil.decode.columns import Decoded
from frazil.schema.arrow import Records, spread_mask
from frazil.stages.changes import Changes

Owner = NDArray[np.int32]
"""The record of each row: shape (n_rows,)."""


@dataclass(frozen=True)
class MessageRows:
    """The rows of messages."""

    #: The result per row, in the order of their messages, with one row for each message that has none.
    decoded: Decoded
    #: The record of each row: shape (n_rows,).
    owner: Owner


def spread(records: Records, owner: Owner) -> dict[str, pa.Array]:
    """Returns the records' columns with one row for each of their rows. Values are read already, and are left out."""
    places = pa.array(owner)
    spread_columns = {name: array.take(places) for name, array in records.items() if name != "value"}
    return {**spread_columns, "value": pa.nulls(owner.size, pa.binary())}


def gather(changes: Changes, owner: Owner, count: int) -> Changes:
    """Returns the changes by their records, of which there are `count`. Where one row of a message is bad, the entire
    message is.
    """
    decoded = changes.decoded
    decoded = replace(
        decoded,
        refused=spread_mask(decoded.refused, owner, count),
        mismatches=[replace(mismatch, row=int(owner[mismatch.row])) for mismatch in decoded.mismatches],
    )
    gathered = replace(
        changes,
        records=owner[changes.records],
        decoded=decoded,
        ignored={kind: spread_mask(mask, owner, count) for kind, mask in changes.ignored.items()},
    )
    return gathered.without_refused()
