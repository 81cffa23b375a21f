"""Rescued values: those that do not fit their column, for the column `_rescued`.

They are one JSON object per record, from the path to the value and the reason.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.decode.columns import FieldValues, Mismatch, as_text
from frazil.error_classes import ErrorClass

UNKNOWN_FIELD = str(ErrorClass.UNKNOWN_FIELD)
"""The reason for a rescued field that the table does not have."""
_NUMBER = "#"


def rescued_column(
    unknown: Sequence[tuple[str, FieldValues]], rescued: Sequence[Mismatch], row_count: int
) -> pa.Array | None:
    """Returns one text per record, null where nothing was rescued; None without any.

    Fields that the table does not have (`unknown`, by path) are joined column by column; mismatches, values in lists and
    maps, and paths that a record may have more than once, one by one.
    """
    members, singles = [], list(rescued)
    # The field `a.b` and the member `b` of a field `a` have one path; a number may make it that of another field.
    sources = Counter([*(path for path, _ in unknown), *{mismatch.path for mismatch in rescued}])
    for path, values in unknown:
        is_single = sources[path] > 1 or _NUMBER in path
        if not is_single and values.owner.size == row_count and (values.owner == np.arange(row_count)).all():
            members.append(_members(path, values))
        else:
            singles += single_values([(path, values)])
    if singles:
        members.append(members_of(singles, row_count))
    return _join_members(members, row_count) if members else None


def single_values(unknown: Iterable[tuple[str, FieldValues]]) -> list[Mismatch]:
    """Returns the values of fields that the table does not have, one by one."""
    return [
        Mismatch(int(values.owner[n]), path, ErrorClass.UNKNOWN_FIELD, UNKNOWN_FIELD, values.text(n))
        for path, values in unknown
        for n in np.flatnonzero(values.there).tolist()
    ]


def _members(path: str, values: FieldValues) -> pa.Array:
    """Returns each record's member for a field that the table does not have; null without one."""
    before = f'{json.dumps(path, ensure_ascii=False)}:{{"value":'
    members = pc.binary_join_element_wise(before, values.texts(), f',"reason":"{UNKNOWN_FIELD}"}}', "")
    is_present = np.asarray(values.there)
    return members.take(pa.array(np.cumsum(is_present) - 1, mask=~is_present))


def add_members(
    rescued: pa.Array | None, mismatches: Iterable[Mismatch], row_count: int, are_first: bool = False
) -> pa.Array | None:
    """Returns the column with further members, the last or the first; None where there still are none."""
    new = list(mismatches)
    if not new:
        return rescued
    members = [members_of(new, row_count)]
    if rescued is not None:
        members.insert(int(are_first), pc.utf8_slice_codeunits(rescued, 1, -1))
    return _join_members(members, row_count)


def has_member(rescued: pa.Array, path: str) -> NDArray[np.bool_]:
    """Returns which records have a rescued value at this path."""
    has_path = pc.match_substring(rescued, f'{json.dumps(path, ensure_ascii=False)}:{{"value":')
    return np.asarray(has_path.fill_null(False))


def _join_members(members: list[pa.Array], row_count: int) -> pa.Array:
    """Returns objects of all members of each record; null where there are none."""
    inner = pa.nulls(row_count, pa.string())
    for member in members:
        # Not with `null_handling="skip"`: pyarrow 26 then leaves out the rows in which all are null.
        inner = pc.coalesce(pc.binary_join_element_wise(inner, member, ","), inner, member)
    return pc.binary_join_element_wise("{", inner, "}", "")


def members_of(mismatches: Iterable[Mismatch], row_count: int) -> pa.Array:
    """Returns the members of each record, one after another; a path that a record has more than once gets a number."""
    by_row: dict[int, dict[str, str]] = {}
    numbers: dict[tuple[int, str], int] = {}
    for mismatch in mismatches:
        mine = by_row.setdefault(mismatch.row, {})
        path, number = mismatch.path, numbers.get((mismatch.row, mismatch.path), 1)
        while path in mine:
            number += 1
            path = f"{mismatch.path}{_NUMBER}{number}"
        numbers[mismatch.row, mismatch.path] = number
        mine[path] = f'{{"value":{mismatch.text},"reason":{json.dumps(mismatch.reason, ensure_ascii=False)}}}'
    out: list[str | None] = [None] * row_count
    for row, mine in by_row.items():
        out[row] = as_text(",".join(f"{json.dumps(path, ensure_ascii=False)}:{text}" for path, text in mine.items()))
    return pa.array(out, pa.string())
