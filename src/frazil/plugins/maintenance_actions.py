"""Maintenance actions by name, in the order in which a round plans and runs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from frazil.plugins.registration import Registered, function_of


@dataclass(frozen=True)
class ActionKind:
    """One kind of maintenance action."""

    #: `plan(planning)` yields the `maintenance.plan.Action`s that are due, from a `maintenance.plan.Planning`: a pure
    #: function, or `module:name` of it.
    plan: Callable[..., Any] | str
    #: `run(action, round)` does one of them in a `maintenance.run.Round` and returns a `Rewritten`.
    run: Callable[..., Any] | str
    #: Whether it rewrites files: within `maintenance.window`, and not after an action of the same round has failed.
    is_rewrite: bool = False
    #: Whether it lists or reads the entire table: within `maintenance.window`, and after a failure a day later.
    is_daily: bool = False

    @property
    def planner(self) -> Callable[..., Any]:
        """The function that plans."""
        return function_of(self.plan)

    @property
    def runner(self) -> Callable[..., Any]:
        """The function that does an action."""
        return function_of(self.run)


_PLAN, _RUN = "frazil.maintenance.plan:", "frazil.maintenance.run:"

ACTIONS: Registered[ActionKind] = Registered(
    "frazil.maintenance_actions",
    "maintenance action",
    ActionKind,
    {
        "compact": ActionKind(f"{_PLAN}plan_compaction", f"{_RUN}compact", is_rewrite=True),
        "deletes": ActionKind(f"{_PLAN}plan_deletes", f"{_RUN}rewrite_deletes", is_rewrite=True),
        "manifests": ActionKind(f"{_PLAN}plan_manifests", f"{_RUN}rewrite_manifests", is_rewrite=True),
        "carry": ActionKind(f"{_PLAN}plan_carrying", f"{_RUN}carry"),
        "expire": ActionKind(f"{_PLAN}plan_expiry", f"{_RUN}expire"),
        "orphans": ActionKind(f"{_PLAN}plan_orphans", f"{_RUN}remove_orphans", is_daily=True),
        "statistics": ActionKind(f"{_PLAN}plan_statistics", f"{_RUN}compute_statistics", is_daily=True),
    },
)
"""Every action; of a package `maintenance: {actions: [NAME]}` in its group `frazil.maintenance_actions`."""
