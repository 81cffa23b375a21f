"""Record keys of Maxwell with `kafka_key_format: array`: lists, `["shop", "orders", [{"id": 7}]]`.

By default they are objects already, which name the table, and the columns of its primary key with the prefix `pk.`.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

from frazil_cdc.raw_json import elements, members

PRIMARY = "pk."
"""The prefix of the names of primary-key columns."""


def flat_keys(keys: pa.Array) -> pa.Array:
    """Returns the keys as objects. A key in neither form is returned unchanged, for the reader of the keys to refuse."""
    is_list = pc.fill_null(pc.starts_with(keys.cast(pa.binary()), b"["), False)
    if not pc.any(is_list).as_py():
        return keys
    objects = [_flat(key) for key in keys.filter(is_list).to_pylist()]
    return pc.replace_with_mask(keys, is_list, pa.array(objects, keys.type))


def _flat(key: bytes) -> bytes:
    try:
        database, table, columns = elements(key.decode())
        named = [(f"{PRIMARY}{name}", value) for column in elements(columns) for name, value in members(column)]
    except (ValueError, RecursionError):
        return key
    # Texts as they are written: fractions with many digits would become others.
    texts = [f"{json.dumps(name)}:{value}" for name, value in (("database", database), ("table", table), *named)]
    return f"{{{','.join(texts)}}}".encode()
