"""The port of audits: queries over a table as it would be published and as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from frazil.publish.report import FailedAudit

Audit = tuple[str, str]
"""The name of an audit, and its query."""


class Audits(Protocol):
    """The port."""

    def run(
        self, table: str, candidate_id: int, published_id: int | None, audits: Sequence[Audit]
    ) -> list[FailedAudit]:
        """Returns the audits that do not hold, over the table at two of its snapshots with its present columns. A query
        that fails does not hold. published_id: None: the table without rows.

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
    ) -> list[FailedAudit]:
        """See Audits."""
        assert not audits
        return []


NO_AUDITS: Audits = _NoAudits()
