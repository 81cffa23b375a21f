"""What changes carry of primary-key updates, from the envelope to the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.schema.arrow import Bools, Ints, Records
from frazil.stages.changes import Changes

Make = Callable[[Records], Sequence[pa.Array]]
"""Makes the key columns of the table from columns of records."""


@dataclass(frozen=True)
class UpdatedKeys:
    """Keys that rows had before, and the records that are parts of updates."""

    #: One array per key column, `(n_changes,)`, where some UPSERT replaces a row with another key; null where the key is
    #: unchanged. A key that could not be read is given as the row's own key. Unavailable values are in the row of the old
    #: key. Empty where no change does.
    old_keys: tuple[pa.Array, ...] = ()
    #: Per record that is one of the two parts of an update: its index, its position in the source's log, and whether it is
    #: the delete part.
    parts: Sequence[tuple[int, str, bool]] = field(default=())

    def take(self, at: pa.Array) -> UpdatedKeys:
        """See Carried."""
        return replace(self, old_keys=tuple(key.take(at) for key in self.old_keys))

    def of_records(self, rows: Ints) -> UpdatedKeys:
        """See Carried."""
        return replace(self, parts=[(int(rows[row]), position, is_delete) for row, position, is_delete in self.parts])

    def in_query(self, names: Sequence[str], columns: Records, make: Make) -> UpdatedKeys:
        """See Carried."""
        if not self.old_keys:
            return self
        old = dict(zip(names, self.old_keys, strict=True))
        before = {name: pc.coalesce(old[name], column) if name in old else column for name, column in columns.items()}
        is_changed: Bools = np.logical_or.reduce([np.asarray(key.is_valid()) for key in self.old_keys])
        mask = pa.array(is_changed)
        return replace(self, old_keys=tuple(pc.if_else(mask, key, pa.scalar(None, key.type)) for key in make(before)))


def updated_keys(changes: Changes) -> UpdatedKeys:
    """Returns what the changes carry of primary-key updates."""
    return changes.carried if isinstance(changes.carried, UpdatedKeys) else UpdatedKeys()
