"""The port of audits: queries over a table as it would be published and as it is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from frazil.ops.seen_by_readers import FailedAudit

Audit = tuple[str, str]
"""The name of an audit, and its query."""


def names(query: str, view: str) -> bool:
    """Returns whether a query may read the view."""
    return re.search(rf"(?<!\w){re.escape(view)}(?!\w)", query, re.IGNORECASE) is not None


@dataclass(frozen=True)
class Audited:
    """A table at two of its snapshots, with the audits that must hold."""

    table: str
    #: The snapshot that would be published.
    candidate_id: int
    #: The snapshot that readers see; None: the table without rows.
    published_id: int | None
    audits: Sequence[Audit]
    #: Snapshots of other tables, or None, by the names of tables, which queries know by its name without the namespace.
    others: Mapping[str, int | None] = field(default_factory=dict)


class Audits(Protocol):
    """The port."""

    def run(self, tables: Sequence[Audited]) -> list[list[FailedAudit]]:
        """Returns the audits of each table that do not hold, over snapshots with the present columns of their tables. A
        query that fails does not hold.

        Raises: UnavailableError where a table or Spark does not answer.
        """


class _NoAudits:
    """For tables without audits, and for commands that publish without them."""

    def run(self, tables: Sequence[Audited]) -> list[list[FailedAudit]]:
        """See Audits."""
        assert not any(audited.audits for audited in tables)
        return [[] for _ in tables]


NO_AUDITS: Audits = _NoAudits()
