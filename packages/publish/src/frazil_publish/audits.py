"""The port of audits: queries over a table as it would be published and as it is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from frazil.ops.seen_by_readers import FailedAudit

Audit = tuple[str, str]
"""The name of an audit, and its query."""


NO_OTHERS: Mapping[str, int | None] = MappingProxyType({})


def names(query: str, view: str) -> bool:
    """Returns whether a query may read the view."""
    return re.search(rf"(?<!\w){re.escape(view)}(?!\w)", query, re.IGNORECASE) is not None


class Audits(Protocol):
    """The port."""

    def run(
        self,
        table: str,
        candidate_id: int,
        published_id: int | None,
        audits: Sequence[Audit],
        others: Mapping[str, int | None] = NO_OTHERS,
    ) -> list[FailedAudit]:
        """Returns the audits that do not hold, over the table at two of its snapshots with its present columns. A query
        that fails does not hold. published_id: None: the table without rows. others: snapshots of other tables, or None, by
        the names of tables, which queries know by its name without the namespace.

        Raises: UnavailableError where the table or Spark does not answer.
        """


class _NoAudits:
    """For tables without audits, and for commands that publish without them."""

    def run(
        self,
        table: str,  # noqa: ARG002
        candidate_id: int,  # noqa: ARG002
        published_id: int | None,  # noqa: ARG002
        audits: Sequence[Audit],
        others: Mapping[str, int | None] = NO_OTHERS,  # noqa: ARG002
    ) -> list[FailedAudit]:
        """See Audits."""
        assert not audits
        return []


NO_AUDITS: Audits = _NoAudits()
