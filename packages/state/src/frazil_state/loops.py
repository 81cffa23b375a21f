"""What `frazil setup` compiles: the loops of each kind of table, each by a value or two.

A first batch would wait for them, with a sketch of quantiles for a quarter of a minute.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from frazil_state.dedupe.decide import find_duplicates
from frazil_state.dedupe.seen import SeenIds, hash_ids
from frazil_state.dedupe.stored import HashNumbers
from frazil_state.history.apply import KeyChanges, Rules, StoredVersions, apply_changes
from frazil_state.merge import quantiles, sketches
from frazil_state.merge.sessions import number_sessions


def of_dedupe() -> None:
    """Compiles those of tables with `dedupe`."""
    hashes = hash_ids([pa.array(["a", "b"])])
    SeenIds().add(hashes)
    codes, times = np.zeros(2, np.int64), np.arange(2)
    find_duplicates(codes, times, np.zeros(2, np.bool_), None)
    rows = HashNumbers(hashes)
    for wanted in (hashes, np.asarray(pa.array(hashes))):  # Those of files cannot be written to.
        rows.are_in(wanted)
        rows.find(wanted)


def of_history() -> None:
    """Compiles those of tables with `mode: history`."""
    nothing, begins = np.zeros(0, np.int64), np.array([0, 1])
    changes = KeyChanges(begins, np.zeros(1, np.int64), np.zeros(1, np.bool_), np.ones(1, np.bool_))
    stored = StoredVersions(np.zeros(2, np.int64), nothing, nothing, nothing)
    apply_changes(stored, changes, np.zeros(1, np.int64), Rules(is_ordered=True, has_untracked=False))


def of_merge() -> None:
    """Compiles those of tables with `merge`: of sessions, and of sketches."""
    groups, counted = np.zeros(2, np.int64), np.ones(2, np.bool_)
    number_sessions(groups, np.arange(2), np.arange(1, 3))
    values = pa.array([b"1", b"2"])
    sketches.sketches_of(values)
    quantiles.united(*quantiles.sketches_of(values), groups, counted, 1)
