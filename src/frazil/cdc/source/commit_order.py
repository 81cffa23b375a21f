"""The position of a change among its source's commits, and its transaction."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from frazil.cdc.source.positions import format_position, pad_number

ORDER_FIELDS = (
    "lsn", "commit_lsn", "change_lsn", "event_serial_no", "file", "pos", "row", "sequence", "txId", "gtid",
)  # fmt: skip
"""The members of a change's `source` that give its transaction and its position."""
_COMMIT_OF_SEQUENCE = r'^\[\s*(?:null|"(?P<commit>[0-9]+)")\s*,'
# PostgreSQL's connector appends the position of each change to the transaction's id.
_PLACE_BEHIND = r"^([0-9]+):[0-9]+$"

Fields = Mapping[str, pa.Array | None]


def format_commit_position(fields: Fields) -> pa.Array | None:
    """Returns the position in the order of commits, as text that sorts so: greater for a transaction than for every
    earlier one. Null where the source gives none.

    PostgreSQL interleaves the changes of concurrent transactions, so there the last commit before the transaction (in
    Debezium's `sequence`) comes first. The logs of other databases are in commit order; Oracle's is not.
    """
    found = []
    others = format_position({name: array for name, array in fields.items() if name not in ("lsn", "scn", "sequence")})
    if others is not None:
        found.append(others)
    sequence, own = fields.get("sequence"), fields.get("lsn")
    if sequence is not None and own is not None:
        commit = pc.struct_field(pc.extract_regex(sequence, _COMMIT_OF_SEQUENCE), "commit")
        found.append(pc.binary_join_element_wise(pad_number(commit), pad_number(own), "/"))
    return pc.coalesce(*found) if found else None


def format_transaction(fields: Fields) -> pa.Array | None:
    """Returns the transaction id of the source itself: PostgreSQL's number, MySQL's GTID, SQL Server's LSN of the
    commit; None where the source has none.
    """
    found = [
        array.cast(pa.string()) for name in ("txId", "gtid", "commit_lsn") if (array := fields.get(name)) is not None
    ]
    return pc.coalesce(*found) if found else None


def normalize_ids(ids: pa.Array) -> pa.Array:
    """Returns Debezium's transaction ids with the same id for all changes of a transaction."""
    return pc.replace_substring_regex(ids, _PLACE_BEHIND, r"\1")


def normalize_id(text: str) -> str:
    """Returns a single id in the same form."""
    return re.sub(_PLACE_BEHIND, r"\1", text)
