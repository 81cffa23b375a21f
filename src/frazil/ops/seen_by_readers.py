"""What readers of a table with a branch see, and why not more: for status, API, metrics and console.

It is in the properties of the table, which the package `publish` sets, for any process.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from frazil.catalog.port import TableState
from frazil.ingest.failures import TableStopped
from frazil.spec.publishing import PublishingSpec
from frazil.types import MAIN

PUBLISHED = "published-snapshot"
"""Table property, behind `frazil.<pipeline>.`: the snapshot that the pipeline has moved main to."""
PUBLISHED_FROM = "published-from"
"""Table property: the snapshot of the branch whose rows main has in a snapshot of its own, without delete files."""
PUBLISHED_AT = "published-at"
"""Table property: when the pipeline moved main, in milliseconds since 1970."""
COMPLETE_TO = "published-complete-to"
"""Table property: the record timestamp up to which main is complete, in milliseconds since 1970."""
HELD = "publish-held"
"""Table property: somebody has set main back, and nothing is published by schedule until `frazil publish`."""

Milliseconds = Annotated[int, Field(ge=-(2**63), lt=2**63), "milliseconds since the epoch"]
PublishState = Literal["waiting", "published", "held", "diverged", "failed", "unpublished"]


@dataclass(frozen=True)
class FailedAudit:
    """An audit, or an expectation of rows, that did not hold."""

    #: The name in the pipeline file.
    name: str
    #: Why it did not hold.
    reason: str
    #: Some of the rows that made it fail, each as JSON.
    rows: tuple[str, ...] = ()
    #: Whether the query itself has failed.
    has_failed: bool = False


@dataclass(frozen=True)
class PublishReport:
    """What readers of a table with a [`branch`](../guides/publish.md) see, and why not more."""

    #: The branch that takes the commits.
    branch: str = ""
    #: `published`: the newest snapshot that was audited is on main; `held`: it is not, and `failed_audits` or `reason` has
    #: why; `diverged`: main has commits that the branch lacks; `failed`: a service did not answer; `waiting`: nothing was
    #: audited yet; `unpublished`: the pipeline file has no `publish`.
    state: PublishState = "waiting"
    #: Why it is held, diverged or failed.
    reason: str = ""
    #: What to do.
    remedy: str = ""
    #: The audits and expectations that did not hold, with some rows that made them fail.
    failed_audits: tuple[FailedAudit, ...] = ()
    #: The snapshot that readers see.
    snapshot_id: Annotated[int, "number"] | None = None
    #: When it was published.
    published_ms: Milliseconds | None = None
    #: The record timestamp up to which it is [complete](../concepts/README.md#watermark).
    complete_to_ms: Milliseconds | None = None
    #: The snapshot that was audited last.
    candidate_id: Annotated[int, "number"] | None = None
    #: When it was audited.
    audited_ms: Milliseconds | None = None

    @property
    def is_well(self) -> bool:
        """Whether readers see what the branch has, or will without an operator."""
        return self.state not in ("held", "diverged")


def is_seen_whole(state: TableState) -> bool:
    """Returns whether readers of a table see all that its branch has."""
    is_own = state.marks.get(PUBLISHED) == str(state.main_id)
    source_id = number(state.marks.get(PUBLISHED_FROM)) if is_own else None
    return state.head_id in (state.main_id, source_id)


def refuse_unseen(state: TableState) -> None:
    """Raises TableStopped while readers of the table lack rows that the pipeline has committed to a branch: another tool,
    which continues on main, would give them later ones.
    """
    if not is_seen_whole(state):
        raise TableStopped(
            "the branch has commits that main lacks, and the tool is to continue on main",
            f"run `frazil publish {state.name}`, and repeat the command; the pipeline commits no more",
            state.name,
        )


def number(text: str | None) -> int | None:
    """Returns the number in a property of a table; None where it has none."""
    return int(text) if text is not None and text.isdecimal() else None


def held_report(report: PublishReport, reason: str, table: str) -> PublishReport:
    """Returns the report of a table whose main an operator has set back. reason: the table's property HELD."""
    return replace(report, state="held", reason=reason, remedy=f"run `frazil publish {table}` to continue")


def report_of_state(publishing: PublishingSpec, state: TableState | None) -> PublishReport:
    """Returns what readers of a table with a branch see, from its state alone."""
    report = PublishReport(publishing.branch, "waiting" if publishing.publish is not None else "unpublished")
    if state is None:
        return report
    if publishing.publish is not None and state.main_id is not None and is_seen_whole(state):
        report = replace(report, state="published")
    if held := state.marks.get(HELD):
        report = held_report(report, held, state.name)
    is_own = state.marks.get(PUBLISHED) == str(state.main_id)
    times = {name: number(state.marks.get(name)) if is_own else None for name in (PUBLISHED_AT, COMPLETE_TO)}
    return replace(
        report, snapshot_id=state.main_id, published_ms=times[PUBLISHED_AT], complete_to_ms=times[COMPLETE_TO]
    )


def report_shown(
    publishing: PublishingSpec, state: TableState | None, known: PublishReport | None
) -> PublishReport | None:
    """Returns what readers of a table see: from the table, and what the process has found of newer snapshots; None for a
    table that commits to main. known: the process's report.
    """
    if publishing.branch == MAIN:
        return None
    seen = report_of_state(publishing, state)
    if known is None or known.branch != publishing.branch:
        return seen
    # `frazil publish` may have moved main since the process looked.
    return known if state is None or known.snapshot_id == seen.snapshot_id else seen
