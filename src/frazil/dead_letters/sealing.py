"""The bytes of records in the dead letters of a protected table: encrypted, so that only who has `protect_key` reads them.

The names of headers stay as they are. Dead letters from before the table was protected are plain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np
import pyarrow as pa

from frazil.errors import SpecError
from frazil.process.protect import Protection
from frazil.process.protect_key import key_id_of
from frazil.schema.arrow import unsliced, with_children


def sealed(records: Mapping[str, pa.Array], protection: Protection | None) -> dict[str, pa.Array]:
    """Returns records with their keys, values and header values encrypted, each for its place; as they are without a
    protection.
    """
    return dict(records) if protection is None else _each(records, protection.key.seal)


def unsealed(records: Mapping[str, pa.Array], protection: Protection | None) -> dict[str, pa.Array]:
    """Returns the records that were given to `sealed`.

    Raises: SpecError where they are encrypted with another key.
    """

    def open_one(value: bytes, place: str) -> bytes:
        by = key_id_of(value)
        if by is None:
            return value
        if protection is None:
            message = f"the dead letters are encrypted with the key {by}, and the table has no `protect_key`"
            raise SpecError(message, remedy="write that `protect_key` until they are replayed", where=place)
        return protection.key.unseal(value, place)

    return _each(records, open_one)


def _each(records: Mapping[str, pa.Array], change: Callable[[bytes, str], bytes]) -> dict[str, pa.Array]:
    """Returns the records with each value of their bytes changed; null stays null."""
    topics, partitions, offsets = (records[name].to_pylist() for name in ("topic", "partition", "offset"))
    places = [
        f"topic {topic}, partition {partition}, offset {offset}"
        for topic, partition, offset in zip(topics, partitions, offsets, strict=True)
    ]
    found = {
        name: _changed(records[name], [f"{place}, {name}" for place in places], change) for name in ("key", "value")
    }
    return {**records, **found, "headers": _headers(records["headers"], places, change)}


def _headers(headers: pa.Array, places: list[str], change: Callable[[bytes, str], bytes]) -> pa.Array:
    headers = unsliced(headers)
    names, values = headers.values.field(0), headers.values.field(1)
    ends = np.asarray(headers.offsets).tolist()
    mine = [
        f"{place}, header {n}"
        for place, (start, end) in zip(places, pairwise(ends), strict=True)
        for n in range(end - start)
    ]
    entries = pa.StructArray.from_arrays([names, _changed(values, mine, change)], fields=list(headers.type.value_type))
    return with_children(headers, headers.type, [entries])


def _changed(values: pa.Array, places: list[str], change: Callable[[bytes, str], bytes]) -> pa.Array:
    changed = (
        None if value is None else change(value, place) for value, place in zip(values.to_pylist(), places, strict=True)
    )
    return pa.array(changed, pa.binary())
