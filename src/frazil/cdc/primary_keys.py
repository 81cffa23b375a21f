"""Keys of a source's table, where records name them themselves: the same in all, or no row is found by them. And those of
documents, which records' keys call otherwise.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import StructType

from frazil.cdc.change_parts import EMPTY, Bools, Check, Opened
from frazil.cdc.document_ids import ID
from frazil.cdc.envelope import BARE
from frazil.cdc.images import MONGODB
from frazil.schema.evolve import type_at
from frazil.upsert.key_names import leaves_of, name_columns
from frazil.write.target import TableTarget

_NONE = "the message names no primary key (`pkNames`): name the table's `key_columns`"
_NO_ID = "the document has no `_id`, which identifies its row"
_OTHER = "the message's primary key is {}, and the table's rows are identified by {}: name the table's `key_columns`"


def takes_primary_keys(target: TableTarget) -> bool:
    """Whether the table's key columns are those that its records name."""
    is_named = target.envelope is not None and target.envelope.names_keys
    return is_named and target.changes is not None and target.changes.is_key_of_record


def check_primary_keys(check: Check, opened: Opened, target: TableTarget) -> tuple[str, ...]:
    """Refuses changes whose record names no primary key, or another than the table's. The key of the first change, where the
    table knows none yet.
    """
    if not takes_primary_keys(target):
        return ()
    assert target.changes is not None
    told = opened.facts["primary_key"]
    is_row: Bools = (opened.note <= BARE) & (opened.op != EMPTY) & ~check.refused
    check.refuse(is_row & np.asarray(told.is_null()), "no_key", _NONE)
    is_row &= ~check.refused
    texts = pc.unique(told.filter(pa.array(is_row))).to_pylist()
    named = {text: tuple(_column(target, name) for name in json.loads(text)) for text in texts}
    known = target.changes.key_columns
    expected = known or next(iter(named.values()), ())
    for text, columns in named.items():
        if set(columns) != set(expected):
            same = np.asarray(pc.fill_null(pc.equal(told, text), False))
            check.refuse(is_row & same, "key_mismatch", _OTHER.format(", ".join(columns), ", ".join(expected)))
    return () if known else expected


def _column(target: TableTarget, name: str) -> str:
    """The column that a field of the row feeds."""
    if target.shaping is None:
        return name
    found = next((column for column, path in target.layout.paths.items() if path == (name,)), None)
    return found or target.shaping.column_name((name,))


def may_get_document_key(target: TableTarget) -> bool:
    """Whether the table's key columns are not known yet, and may turn out to be those of documents."""
    is_debezium = target.envelope is not None and target.envelope.kind == "debezium"
    changes = target.changes
    return is_debezium and changes is not None and changes.is_key_of_record and not changes.key_columns


def find_document_key(check: Check, opened: Opened, target: TableTarget) -> tuple[str, ...]:
    """The key columns of a table whose changes are of MongoDB's documents: their `_id`, or what is in it. Nothing where
    other changes are, or the key is known.
    """
    if not may_get_document_key(target):
        return ()
    is_document = np.asarray(pc.fill_null(pc.equal(opened.facts["connector"], MONGODB), False)) & (opened.note <= BARE)
    if not (is_document & ~check.refused).any():
        return ()
    row = StructType(*(target.fields if target.shaping is None else target.layout.fields))
    kind = opened.decoded.wanted.get((), {}).get(ID) or type_at(row, (ID,))
    if kind is None:
        check.refuse(is_document, "no_key", _NO_ID, ID)
        return ()
    return name_columns(target, [(ID, *path) for path in leaves_of(kind)])
