"""Parts of structs, lists and maps, and structs and lists made of columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.decode.columns import offsets_from, offsets_of
from frazil.process.kernels.compare import equal, same_type
from frazil.process.kernels.values import (
    INVALID_ARRAY_INDEX,
    INVALID_ARRAY_INDEX_IN_ELEMENT_AT,
    INVALID_INDEX_OF_ZERO,
    NO_ERROR,
    Bools,
    Kernel,
    Result,
    Value,
    as_array,
    both_there,
    kind_of,
    numbers,
    rows_of,
)
from frazil.process.program import Call
from frazil.schema.arrow import list_array, struct_array


def _member(call: Call, structs: pa.Array) -> pa.Array:
    return pc.struct_field(structs, int(dict(call.options)["ordinal"]))


def _lengths(array: pa.Array) -> Any:
    """Returns the number of elements of each list or map, 0 for null: int64 of shape (rows,)."""
    lengths = np.diff(offsets_of(array)).astype(np.int64)
    return np.where(np.asarray(array.is_valid()), lengths, 0)


def _size(_: Call, array: pa.Array) -> pa.Array:
    return pa.array(_lengths(array).astype(np.int32), pa.int32(), mask=np.asarray(array.is_null()))


def _pick(lists: Value, index: Value, place: Any, bad: Bools, error: Any) -> Result:
    """Returns the elements at these places of lists, counted from 0."""
    have_values = both_there(lists, index)
    bad = bad if have_values is None else bad & have_values
    missing = bad if have_values is None else bad | ~have_values
    rows = rows_of(lists, index)
    lists = as_array(lists, rows)
    starts = offsets_of(lists)[:-1].astype(np.int64)
    places = pa.array(np.where(missing, 0, starts + place), mask=missing)
    errors = np.where(bad, error, NO_ERROR).astype(np.uint8) if error is not None and bad.any() else None
    return Result(lists.values.take(places), errors)


def _item(call: Call, lists: Value, index: Value) -> Result:
    """`list[index]`, from 0; GET is null beyond the ends."""
    place = np.asarray(numbers(index)).astype(np.int64)
    count = _lengths(as_array(lists, rows_of(lists, index)))
    bad = (place < 0) | (place >= count)
    return _pick(lists, index, place, bad, INVALID_ARRAY_INDEX if call.function == "GetArrayItem" else None)


def _element_at(call: Call, whole: Value, index: Value) -> Result | pa.Array:
    """An element of a list, from 1 or, below 0, from the end; the value of a key of a map."""
    if kind_of(whole.type) == "map":
        return _value_of_key(call, whole, index)
    number = np.asarray(numbers(index)).astype(np.int64)
    count = _lengths(as_array(whole, rows_of(whole, index)))
    bad = (np.abs(number) > count) | (number == 0)
    error = np.where(number == 0, INVALID_INDEX_OF_ZERO, INVALID_ARRAY_INDEX_IN_ELEMENT_AT)
    has_errors = dict(call.options).get("failOnError") is not False
    place = np.where(number > 0, number - 1, count + number)
    zero_only = np.where(number == 0, INVALID_INDEX_OF_ZERO, NO_ERROR)
    return _pick(whole, index, place, bad, error if has_errors else zero_only)


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


def _contains(_: Call, lists: Value, wanted: Value) -> pa.Array:
    """Whether a list has a value; NULL where it has not, but a NULL."""
    rows = rows_of(lists, wanted)
    have_values = both_there(lists, wanted)
    lists, items = as_array(lists, rows), as_array(wanted, rows)
    owner, place = _owners(lists)
    is_same = equal(lists.values.take(pa.array(place)), items.take(pa.array(owner)))
    is_found, has_null = np.zeros(rows, np.bool_), np.zeros(rows, np.bool_)
    is_found[owner[np.asarray(is_same.fill_null(False))]] = True
    has_null[owner[np.asarray(is_same.is_null())]] = True
    missing = has_null & ~is_found
    return pa.array(is_found, pa.bool_(), mask=missing if have_values is None else missing | ~have_values)


def _struct(call: Call, *values: Value) -> pa.Array:
    rows = rows_of(*values)
    members = [as_array(value, rows) for value in values[1::2]]
    return struct_array(rows, [call.type.field(n).name for n in range(call.type.num_fields)], members, None, 0)


def _list(_: Call, *values: Value) -> pa.Array:
    rows, count = rows_of(*values), len(values)
    every = pa.concat_arrays([as_array(value, rows) for value in values])
    places = (np.arange(rows)[:, None] + np.arange(count) * rows).ravel()
    return list_array(offsets_from(np.full(rows, count)), every.take(pa.array(places)), None, 0)


_KEYS = ("map, text", "map, int", "map, long")
KERNELS = {
    "GetStructField": Kernel(("struct",), _member),
    "GetArrayItem": Kernel(("list, int",), _item),
    "Get": Kernel(("list, int",), _item),
    "ElementAt": Kernel(("list, int", *_KEYS), _element_at),
    "GetMapValue": Kernel(_KEYS, _value_of_key),
    "Size": Kernel(("list", "map"), _size),
    "ArraySize": Kernel(("list",), _size),
    "ArrayContains": Kernel(("list, text", "list, int", "list, long", "list, double", "list, date"), _contains),
    "CreateNamedStruct": Kernel(("text!, any, ...",), _struct, is_eager=True),
    "CreateArray": Kernel(("any, ...",), _list, is_eager=True, objection=same_type),
}
