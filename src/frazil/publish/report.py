"""What publishing reports of a table: for its status, the API, metrics and the console."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

Milliseconds = Annotated[int, Field(ge=-(2**63), lt=2**63), "milliseconds since the epoch"]
PublishState = Literal["waiting", "published", "held", "diverged", "failed", "unpublished"]
HELD_REMEDY = (
    "correct the data or the audit; `frazil publish TABLE --override` publishes it as it is, `frazil publish TABLE"
    " --discard` makes the branch begin again at main"
)


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
