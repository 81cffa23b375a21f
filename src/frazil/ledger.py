"""The ledger of a table: sums over all of its commits, which every commit carries on.

As it holds sums, it is as long after ten thousand commits as after one, and expired snapshots take nothing from it. What a
single commit has read and written is the difference from the ledger of the commit before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

MODULUS = 2**64
"""Digests are sums modulo this number."""
HASH_VERSION = 2
"""Which hashes digests are sums of: 1 was before ledgers named it. Another hash in `write/digests.py` is another number."""


@dataclass(frozen=True)
class Ledger:
    """What all commits of a table have read and written, from the offsets `starts` on."""

    #: The number of commits that have read records.
    commits: int = 0
    #: The id of the commit whose ledger this one continues; empty for the first one.
    before: str = ""
    #: The number of offsets that were covered, those without a record included.
    offsets: int = 0
    #: The number of records that were read.
    records: int = 0
    #: The sum of the hashes of these records (`write/digests.py`), below 2**64.
    record_digest: int = 0
    #: The number of records that were written, as rows or as changes of an upsert table.
    written: int = 0
    #: The number of bad records.
    bad: int = 0
    #: The number of records that change no row.
    dropped: int = 0
    #: The number of rows that were appended since the table was created; None for a table whose rows are replaced or left
    #: out when they are committed, or refer to values beside it, and where the ledger is younger than the table.
    rows: int | None = None
    #: The sum of the hashes of these rows; None as `rows`.
    row_digest: int | None = None
    #: The first offset, by topic and partition, where it is not 0.
    starts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    #: Whether the table is older: it has rows of records before `starts`.
    partial: bool = False
    #: Which hashes the digests are sums of: those of the first commit, as sums of two cannot be compared.
    hash_version: int = HASH_VERSION

    @property
    def has_known_hashes(self) -> bool:
        """Whether this version of Frazil can compare the digests."""
        return self.hash_version == HASH_VERSION

    @property
    def lost(self) -> int:
        """The number of records of which nothing became; negative where more became of them than was read."""
        return self.records - self.written - self.bad - self.dropped


def dump_ledger(ledger: Ledger) -> str:
    """Returns a ledger as compact JSON, digests as 16 hexadecimal digits."""
    rows = {} if ledger.rows is None else {"rows": ledger.rows}
    digests = {"record_digest": ledger.record_digest, "row_digest": ledger.row_digest}
    starts = {topic: {str(n): offset for n, offset in firsts.items()} for topic, firsts in ledger.starts.items()}
    parts = {
        **{
            name: getattr(ledger, name)
            for name in ("commits", "before", "offsets", "records", "written", "hash_version")
        },
        **{name: number for name in ("bad", "dropped") if (number := getattr(ledger, name))},
        **rows,
        **{name: f"{digest:016x}" for name, digest in digests.items() if digest is not None},
        **({"partial": True} if ledger.partial else {}),
        **({"starts": starts} if starts else {}),
    }
    return json.dumps(parts, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def load_ledger(text: str) -> Ledger | None:
    """Returns the ledger that `dump_ledger` wrote, in whatever version of Frazil; None for an empty text."""
    if not text:
        return None
    parts = json.loads(text)
    digests = {name: int(parts[name], 16) for name in ("record_digest", "row_digest") if name in parts}
    starts = {
        topic: {int(n): int(offset) for n, offset in firsts.items()}
        for topic, firsts in parts.get("starts", {}).items()
    }
    known = {of.name: parts[of.name] for of in fields(Ledger) if of.name in parts}
    return Ledger(**{"hash_version": 1, **known, **digests, "starts": starts})
