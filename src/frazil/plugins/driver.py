"""What packages add to the driver, and tasks do not import.

These are clients of schema registries, elections, clusters, observers of runs, what carries out the keys `atomic` and
`lookup` of a table, methods of the Python API, and maintenance actions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from frazil.plugins.registration import Registered, function_of


@dataclass(frozen=True)
class RegistryKind:
    """A kind of registry."""

    #: `open(spec)` returns the `registry.port.SchemaRegistry` of a `spec.connections.RegistrySpec`; the function, or
    #: `module:name` of it. Importing it costs a fifth of a second.
    open: Callable[..., Any] | str
    #: `check(spec, schemas, tables, queries)` yields the `ops.check.Finding`s of `frazil check`; the function, or
    #: `module:name` of it. schemas: asks the registry. queries: None where queries cannot be analysed.
    check: Callable[..., Any] | str

    @property
    def opener(self) -> Callable[..., Any]:
        """The function that opens the registry."""
        return function_of(self.open)

    @property
    def checker(self) -> Callable[..., Any]:
        """The function that checks the registry, and compares its newest schemas with the tables."""
        return function_of(self.check)


REGISTRIES: Registered[RegistryKind] = Registered("frazil.registries", "registry", RegistryKind, {})
"""Every kind of registry."""


@dataclass(frozen=True)
class ElectionKind:
    """One kind of election."""

    #: `open(spec, run_id, clock)` returns the `ingest.loop.leadership.Leadership` of this process; the function, or
    #: `module:name` of it.
    open: Callable[..., Any] | str
    #: `check(spec)` returns the `ops.check.Finding` of `frazil check`; the function, or `module:name` of it.
    check: Callable[..., Any] | str

    @property
    def opener(self) -> Callable[..., Any]:
        """The function that opens the leadership."""
        return function_of(self.open)

    @property
    def checker(self) -> Callable[..., Any]:
        """The function that checks what the election needs."""
        return function_of(self.check)


ELECTIONS: Registered[ElectionKind] = Registered("frazil.elections", "election", ElectionKind, {})
"""Every election; of a package `ha: {elect: NAME}` in its group `frazil.elections`."""


@dataclass(frozen=True)
class ClusterKind:
    """What lets tasks run on a Spark cluster."""

    #: `open(master)` returns the `runtime.jvm.SparkCluster` of a URL, as `module:name`.
    open: str

    @property
    def opener(self) -> Callable[..., Any]:
        """The function that opens the cluster."""
        return function_of(self.open)


CLUSTERS: Registered[ClusterKind] = Registered("frazil.clusters", "kind of cluster", ClusterKind, {})
"""The one kind is `spark`, of a package."""


@dataclass(frozen=True)
class ObserverKind:
    """One kind of observer."""

    #: `is_wanted(spec, environment)` returns whether a run of this pipeline file, with these variables, needs the observer:
    #: a function that imports little, or `module:name` of it.
    is_wanted: Callable[..., bool] | str
    #: `open(observed)` returns the `ops.observers.Observer` of one run, from an `ops.observers.Observed`; the function, or
    #: `module:name` of it.
    open: Callable[..., Any] | str
    #: `check(spec, environment)` yields the `ops.check.Finding`s of `frazil check`; None where there is nothing to check.
    check: Callable[..., Any] | str | None = None

    @property
    def decider(self) -> Callable[..., bool]:
        """The function that decides whether the observer is needed."""
        return function_of(self.is_wanted)

    @property
    def opener(self) -> Callable[..., Any]:
        """The function that opens an observer."""
        return function_of(self.open)

    @property
    def checker(self) -> Callable[..., Any]:
        """The function that checks what the observer needs."""
        return (lambda _spec, _environment: ()) if self.check is None else function_of(self.check)


OBSERVERS: Registered[ObserverKind] = Registered("frazil.observers", "observer", ObserverKind, {})
"""Observers of packages: every installed one that a run wants is opened."""


@dataclass(frozen=True)
class TableKeyKind:
    """What carries out one key."""

    #: `open(…)` returns what the loop asks, as `module:name`: of `atomic` the `ingest.tables.batch_ends.BatchEnds` for
    #: `(source, reader, schemas)`, of `lookup` the `ingest.tables.lookups.Lookups` for `(catalog)`.
    open: str
    #: Of `lookup`: `wait(running, is_ending)` returns the `ingest.tables.lookups.Waits` of a run, as `module:name`.
    wait: str | None = None

    @property
    def opener(self) -> Callable[..., Any]:
        """The function that opens it."""
        return function_of(self.open)

    @property
    def wait_opener(self) -> Callable[..., Any]:
        """The function that opens what replays records that wait."""
        assert self.wait is not None
        return function_of(self.wait)


TABLE_KEYS: Registered[TableKeyKind] = Registered("frazil.table_keys", "setting", TableKeyKind, {})
"""By the key of the pipeline file."""


@dataclass(frozen=True)
class MethodKind:
    """What carries out one method of `api.pipeline.Pipeline`."""

    #: Of `verify`: `call(spec, table, level, (begin, end, sample), note, has_digests=…, scratch=…)` returns the
    #: `api.results.VerifiedTable`s, as `module:name`.
    call: str

    @property
    def caller(self) -> Callable[..., Any]:
        """The function that carries it out."""
        return function_of(self.call)


METHODS: Registered[MethodKind] = Registered("frazil.methods", "method", MethodKind, {})
"""By the name of the method."""


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
