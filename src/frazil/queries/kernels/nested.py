"""Parts of structs, lists and maps, and structs and lists made of columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.decode.columns import offsets_from, offsets_of
from frazil.queries.kernels.conditions import equal, same_type
from frazil.queries.kernels.values import (
    INVALID_ARRAY_INDEX,
    Kernel,
    Result,
    Value,
    as_array,
    both_there,
    failing,
    numbers,
    rows_of,
)
from frazil.queries.program import Call
from frazil.schema.arrow import list_array, struct_array


def _member(call: Call, structs: pa.Array) -> pa.Array:
    return pc.struct_field(structs, int(dict(call.options)["ordinal"]))


def _lengths(array: pa.Array) -> Any:
    """Returns the number of elements of each list or map, 0 for null: int64 of shape (rows,)."""
    lengths = np.diff(offsets_of(array)).astype(np.int64)
    return np.where(np.asarray(array.is_valid()), lengths, 0)


def _size(_: Call, array: pa.Array) -> pa.Array:
    return pa.array(_lengths(array).astype(np.int32), pa.int32(), mask=np.asarray(array.is_null()))


def _item(_: Call, lists: Value, index: Value) -> Result:
    """`list[index]`, from 0."""
    rows, have_values = rows_of(lists, index), both_there(lists, index)
    lists = as_array(lists, rows)
    place = np.asarray(numbers(index)).astype(np.int64)
    bad = (place < 0) | (place >= _lengths(lists))
    missing = bad if have_values is None else bad | ~have_values
    starts = offsets_of(lists)[:-1].astype(np.int64)
    values = lists.values.take(pa.array(np.where(missing, 0, starts + place), mask=missing))
    return failing(values, bad if have_values is None else bad & have_values, INVALID_ARRAY_INDEX)


def _owners(array: pa.Array) -> tuple[Any, Any]:
    """Returns the row of each element of lists or maps, and the elements' places among all."""
    lengths = _lengths(array)
    owner = np.repeat(np.arange(lengths.size), lengths)
    starts = offsets_of(array)[:-1].astype(np.int64)
    ends = np.cumsum(lengths)
    return owner, np.arange(owner.size) - np.repeat(ends - lengths, lengths) + np.repeat(starts, lengths)


def _value_of_key(_: Call, maps: Value, key: Value) -> pa.Array:
    """The value of the first entry that has the key."""
    rows = rows_of(maps, key)
    maps, keys = as_array(maps, rows), as_array(key, rows)
    owner, place = _owners(maps)
    is_same = equal(maps.keys.take(pa.array(place)), keys.take(pa.array(owner)))
    hits = np.flatnonzero(np.asarray(is_same.fill_null(False)))
    entries = np.full(rows, -1, np.int64)
    entries[owner[hits][::-1]] = place[hits][::-1]
    return maps.items.take(pa.array(entries, mask=entries < 0))


def _struct(call: Call, *values: Value) -> pa.Array:
    rows = rows_of(*values)
    members = [as_array(value, rows) for value in values[1::2]]
    return struct_array(rows, [call.type.field(n).name for n in range(call.type.num_fields)], members, None, 0)


def _list(_: Call, *values: Value) -> pa.Array:
    rows, count = rows_of(*values), len(values)
    every = pa.concat_arrays([as_array(value, rows) for value in values])
    places = (np.arange(rows)[:, None] + np.arange(count) * rows).ravel()
    return list_array(offsets_from(np.full(rows, count)), every.take(pa.array(places)), None, 0)


KERNELS = {
    "GetStructField": Kernel(("struct",), _member),
    "GetArrayItem": Kernel(("list, int",), _item),
    "GetMapValue": Kernel(("map, text", "map, int", "map, long"), _value_of_key),
    "Size": Kernel(("list", "map"), _size),
    "CreateNamedStruct": Kernel(("text!, any, ...",), _struct, is_eager=True),
    "CreateArray": Kernel(("any, ...",), _list, is_eager=True, objection=same_type),
}
