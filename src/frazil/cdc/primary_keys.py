"""Primary keys of the source's table, where records name them: they must be the same in all records. And the keys of
MongoDB documents, which record keys name differently.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import StructType

from frazil.cdc.change_plan import EMPTY, BadRecords, Opened
from frazil.cdc.envelope import ROW
from frazil.cdc.json.row_images import MONGODB
from frazil.cdc.mongodb.document_ids import ID
from frazil.decode.columns import Fault
from frazil.name_case import fold_case
from frazil.schema.arrow import Bools
from frazil.schema.evolve import type_at
from frazil.upsert.records.key_fields import leaves_of, name_columns
from frazil.write.target import TableTarget

_NONE = "the message names no primary key (`pkNames`): name the table's `key_columns`"
_NO_ID = "the document has no `_id`, which identifies its row"
_OTHER = "the message's primary key is {}, and the table's rows are identified by {}: name the table's `key_columns`"


def takes_primary_keys(target: TableTarget) -> bool:
    """Whether the table's key columns are those that its records name."""
    is_named = target.envelope is not None and target.envelope.names_keys
    return is_named and target.changes is not None and target.changes.is_key_of_record


def check_primary_keys(check: BadRecords, opened: Opened, target: TableTarget) -> tuple[str, ...]:
    """Refuses changes whose record names no primary key, or another one than the table's. Returns the key of the first
    change, where the table has no key columns yet.
    """
    if not takes_primary_keys(target):
        return ()
    assert target.changes is not None
    primary_key = opened.facts["primary_key"]
    is_row: Bools = (opened.record_kind <= ROW) & (opened.op != EMPTY) & ~check.refused
    check.refuse(is_row & np.asarray(primary_key.is_null()), Fault("no_key", _NONE))
    is_row &= ~check.refused
    texts = pc.unique(primary_key.filter(pa.array(is_row))).to_pylist()
    named = {text: tuple(_column(target, name) for name in json.loads(text)) for text in texts}
    known = target.changes.key_columns
    expected = known or next(iter(named.values()), ())
    for text, columns in named.items():
        if set(map(fold_case, columns)) != set(map(fold_case, expected)):
            same = np.asarray(pc.fill_null(pc.equal(primary_key, text), False))
            reason = _OTHER.format(", ".join(columns), ", ".join(expected))
            check.refuse(is_row & same, Fault("key_mismatch", reason))
    return () if known else expected


def _column(target: TableTarget, name: str) -> str:
    """Returns the column that a field of the row feeds."""
    if target.shaping is None:
        return name
    found = next((column for column, path in target.layout.paths.items() if path == (name,)), None)
    return found or target.shaping.column_name((name,), target.layout.names)


def may_get_document_key(target: TableTarget) -> bool:
    """Whether the table's key columns are not known yet, and may be those of documents."""
    is_debezium = target.envelope is not None and target.envelope.kind == "debezium"
    changes = target.changes
    return is_debezium and changes is not None and changes.is_key_of_record and not changes.key_columns


def find_document_key(check: BadRecords, opened: Opened, target: TableTarget) -> tuple[str, ...]:
    """Returns the key columns of a table whose changes are of MongoDB documents: their `_id`, or its members; empty
    where there are other changes, or the key is known.
    """
    if not may_get_document_key(target):
        return ()
    is_document = np.asarray(pc.fill_null(pc.equal(opened.facts["connector"], MONGODB), False)) & (
        opened.record_kind <= ROW
    )
    if not (is_document & ~check.refused).any():
        return ()
    row = StructType(*(target.fields if target.shaping is None else target.layout.fields))
    kind = opened.decoded.requested_fields.get((), {}).get(ID) or type_at(row, (ID,))
    if kind is None:
        check.refuse(is_document, Fault("no_key", _NO_ID), ID)
        return ()
    return name_columns(target, [(ID, *path) for path in leaves_of(kind)])
