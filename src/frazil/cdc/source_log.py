"""Where among its source's commits a change was made, and by which transaction."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from frazil.cdc.positions import format_position, padded

ORDER_FIELDS = (
    "lsn", "commit_lsn", "change_lsn", "event_serial_no", "file", "pos", "row", "sequence", "txId", "gtid",
)  # fmt: skip
"""What of a change's `source` tells its transaction, and its place among the others."""
_COMMIT_OF_SEQUENCE = r'^\[\s*(?:null|"(?P<commit>[0-9]+)")\s*,'
# PostgreSQL's connector names a transaction with the place of each change behind it.
_PLACE_BEHIND = r"^([0-9]+):[0-9]+$"

Fields = Mapping[str, pa.Array | None]


def format_commit_position(fields: Fields) -> pa.Array | None:
    """The place in the order in which transactions were committed, as text that sorts so: that of a transaction's changes is
    beyond those of every earlier one. Null where the source tells none.

    PostgreSQL writes changes of transactions that run at a time among each other, so there the last commit before the
    transaction (in Debezium's `sequence`) comes first. The others' logs are in this order. Oracle's is not.
    """
    found = []
    others = format_position({name: array for name, array in fields.items() if name not in ("lsn", "scn", "sequence")})
    if others is not None:
        found.append(others)
    sequence, own = fields.get("sequence"), fields.get("lsn")
    if sequence is not None and own is not None:
        commit = pc.struct_field(pc.extract_regex(sequence, _COMMIT_OF_SEQUENCE), "commit")
        found.append(pc.binary_join_element_wise(padded(commit), padded(own), "/"))
    return pc.coalesce(*found) if found else None


def format_transaction(fields: Fields) -> pa.Array | None:
    """The transaction as the source itself calls it: PostgreSQL's number, MySQL's GTID, SQL Server's LSN of the commit.
    None where it does not.
    """
    found = [
        array.cast(pa.string()) for name in ("txId", "gtid", "commit_lsn") if (array := fields.get(name)) is not None
    ]
    return pc.coalesce(*found) if found else None


def bare_ids(ids: pa.Array) -> pa.Array:
    """Debezium's ids of transactions, all changes of one with the same."""
    return pc.replace_substring_regex(ids, _PLACE_BEHIND, r"\1")


def bare_id(text: str) -> str:
    """The same of one."""
    return re.sub(_PLACE_BEHIND, r"\1", text)
