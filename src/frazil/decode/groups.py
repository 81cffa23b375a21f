"""Records of one batch that were decoded in groups, merged in the order of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.types import NestedField

from frazil.decode.columns import Decoded
from frazil.schema.arrow import arrow_type, as_written
from frazil.schema.evolve import merge_requested_fields


@dataclass(frozen=True)
class Group:
    """Some records of a batch."""

    #: The place of each record in the batch, ascending or not, `(n_records,)`.
    rows: NDArray[np.int64]
    #: What became of these records, in the order of `rows`.
    decoded: Decoded


def in_order(groups: Sequence[Group], fields: Sequence[NestedField], count: int, limit: int) -> Decoded:
    """Returns the columns `fields` of a batch of `count` records, each of which is in one of the groups.

    limit: the number of mismatches that are kept.
    """
    if len(groups) == 1 and groups[0].rows.size == count and (np.diff(groups[0].rows) > 0).all():
        return groups[0].decoded
    place = np.empty(count, np.int64)
    place[np.concatenate([group.rows for group in groups])] = np.arange(count)
    places = pa.array(place)
    columns = [
        pa.concat_arrays([as_written(group.decoded.columns[n], arrow_type(one.field_type)) for group in groups])
        for n, one in enumerate(fields)
    ]
    refused = np.zeros(count, np.bool_)
    mismatches = []
    for group in groups:
        refused[group.rows] = group.decoded.refused
        mismatches += [replace(mismatch, row=int(group.rows[mismatch.row])) for mismatch in group.decoded.mismatches]
    decoded = [group.decoded for group in groups]
    return Decoded(
        columns=[column.take(places) for column in columns],
        refused=refused,
        mismatches=sorted(mismatches, key=lambda mismatch: mismatch.row)[:limit],
        requested_fields=merge_requested_fields([one.requested_fields for one in decoded], keeps_first=True),
        made_optional=set().union(*(one.made_optional for one in decoded)),
        dropped=set().union(*(one.dropped for one in decoded)),
        rescued=_rescued(groups, places),
        missing=set().union(*(one.missing for one in decoded)),
        refusals=set().union(*(one.refusals for one in decoded)),
    )


def _rescued(groups: Sequence[Group], places: pa.Array) -> pa.Array | None:
    if all(group.decoded.rescued is None for group in groups):
        return None
    parts = [
        pa.nulls(group.rows.size, pa.string()) if group.decoded.rescued is None else group.decoded.rescued
        for group in groups
    ]
    return pa.concat_arrays(parts).take(places)
