"""Rescued values: those that do not fit their column, for the column `_rescued`.

They are one JSON object per record, from the path to the value and the reason.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from frazil.decode.columns import Mismatch, as_text
from frazil.decode.json.grammar import NULL
from frazil.decode.json.slices import Slices, Texts
from frazil.decode.values_as_json import json_texts
from frazil.error_classes import ErrorClass
from frazil.schema.selection import Path

UNKNOWN_FIELD = str(ErrorClass.UNKNOWN_FIELD)
"""The reason for a rescued field that the table does not have."""
_NUMBER = "#"


def rescued_column(texts: Texts, row_count: int) -> pa.Array:
    """Returns one text per record, null where nothing was rescued.

    Fields that the table does not have are joined column by column; mismatches, values in lists and maps, and paths that
    a record may have more than once, one by one.
    """
    members, singles = [], list(texts.rescued)
    # The field `a.b` and the member `b` of a field `a` have one path; a number may make it that of another field.
    sources = Counter([*(path for path, _ in texts.unknown_fields), *{one.path for one in texts.rescued}])
    for path, column in texts.unknown_fields:
        is_single = sources[path] > 1 or _NUMBER in path
        if not is_single and len(column) == row_count and (column.owner == np.arange(row_count)).all():
            members.append(_members(texts, path, column))
        else:
            singles += _singles(texts, path, column)
    if singles:
        members.append(members_of(singles, row_count))
    return join_members(members, row_count)


def unknown_values(texts: Texts) -> list[Mismatch]:
    """Returns the values of fields that the table does not have, one by one."""
    return [one for path, column in texts.unknown_fields for one in _singles(texts, path, column)]


def _singles(texts: Texts, path: str, column: Slices) -> list[Mismatch]:
    return [
        Mismatch(int(column.owner[n]), path, ErrorClass.UNKNOWN_FIELD, UNKNOWN_FIELD, texts.text(column, n))
        for n in np.flatnonzero(column.kind > NULL).tolist()
    ]


def add_members(rescued: pa.Array | None, mismatches: Iterable[Mismatch], row_count: int) -> pa.Array | None:
    """Returns the column with further members; None where there still are none."""
    found = list(mismatches)
    if not found:
        return rescued
    before = [] if rescued is None else [pc.utf8_slice_codeunits(rescued, 1, -1)]
    return join_members([*before, members_of(found, row_count)], row_count)


def join_members(members: list[pa.Array], row_count: int) -> pa.Array:
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


def _members(texts: Texts, path: str, column: Slices) -> pa.Array:
    """Returns each record's member for a field that the table does not have; null without one."""
    there = column.kind > NULL
    return _at(path, texts.raw_texts(column, np.flatnonzero(there).astype(np.int32)), there)


def members_at(path: Path, array: pa.Array, there: NDArray[np.bool_]) -> pa.Array:
    """Returns each record's member from a writer's column with one value per record. there: which of them are values of
    the field.
    """
    return _at(".".join(path), json_texts(array.filter(pa.array(there))), there)


def _at(path: str, texts: pa.Array, there: NDArray[np.bool_]) -> pa.Array:
    """Returns a member with each of the texts, for the records in `there`."""
    before = f'{json.dumps(path, ensure_ascii=False)}:{{"value":'
    members = pc.binary_join_element_wise(before, texts, f',"reason":"{UNKNOWN_FIELD}"}}', "")
    places = np.cumsum(there) - 1
    return members.take(pa.array(places, mask=~there))
