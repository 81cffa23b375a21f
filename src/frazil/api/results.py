"""What the Python API returns: values, each with the JSON document that the command of its name prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frazil.ops.check import Finding
    from frazil.ops.pipeline_status import TableStatus
    from frazil.ops.plan import PlannedTable


@dataclass(frozen=True)
class CheckResult:
    """Whether a run would find everything that it needs."""

    #: The pipeline's name.
    pipeline: str
    #: The result of each check, in the order of the checks.
    findings: tuple[Finding, ...]

    @property
    def is_ok(self) -> bool:
        """Whether every check passed."""
        return all(finding.is_ok for finding in self.findings)

    @property
    def failed(self) -> tuple[Finding, ...]:
        """The checks that did not pass."""
        return tuple(finding for finding in self.findings if not finding.is_ok)

    def document(self) -> dict[str, Any]:
        """Returns the JSON of `frazil check`."""
        from frazil.ops.reports import to_json  # noqa: PLC0415  (results are imported before a JVM starts)

        return {
            "ok": self.is_ok,
            "pipeline": self.pipeline,
            "checks": [to_json(finding) for finding in self.findings],
        }


@dataclass(frozen=True)
class PlanResult:
    """What a run would create or change."""

    #: The pipeline's name.
    pipeline: str
    #: What a run would do with each table, by name.
    tables: tuple[PlannedTable, ...]
    #: Warnings about the file: properties of the catalog that have no effect.
    warnings: tuple[str, ...] = ()

    @property
    def has_changes(self) -> bool:
        """Whether a run would create or change something, wait or stop."""
        return not all(table.is_idle for table in self.tables)

    def document(self) -> dict[str, Any]:
        """Returns the JSON of `frazil plan`."""
        return {
            "pipeline": self.pipeline,
            "changes": self.has_changes,
            "warnings": list(self.warnings),
            "tables": {table.name: table.document() for table in self.tables},
        }


@dataclass(frozen=True)
class RunResult:
    """How a run has ended."""

    #: The tables at the end, by name.
    tables: tuple[TableStatus, ...] = ()
    #: How each table ended, in a sentence, by its name.
    sentences: Mapping[str, str] = field(default_factory=dict)
    #: The names of the tables that are stopped, or that a run with until_caught_up could not read to the end.
    failed: tuple[str, ...] = ()
    #: Whether the run was stopped before it had loaded its tables.
    is_early: bool = False

    @property
    def is_ok(self) -> bool:
        """Whether no table is stopped, and a run with until_caught_up has read every table to the end."""
        return not self.failed

    def document(self) -> dict[str, Any]:
        """Returns the JSON of `frazil run`."""
        from frazil.ops.pipeline_status import ended_document  # noqa: PLC0415  (results are imported before a JVM starts)

        return {"tables": {table.name: ended_document(table) for table in self.tables}}


@dataclass(frozen=True)
class Difference:
    """How the rows of a table differ from those that it should have."""

    #: The number of its rows.
    rows: int
    #: The number of rows that it lacks.
    missing: int
    #: The number of rows that it has and should not have, repeated ones included.
    surplus: int
    #: Some of the missing rows, as JSON.
    missing_rows: tuple[str, ...] = ()
    #: Some of the surplus rows, as JSON.
    surplus_rows: tuple[str, ...] = ()


@dataclass(frozen=True)
class VerifiedTable:
    """The result of the comparison of one table with its topics."""

    #: The table's name.
    name: str
    #: Why nothing was compared; empty after a comparison.
    reason: str = ""
    #: What to do if nothing was compared.
    remedy: str = ""
    #: The rows that are missing and surplus; None without a comparison.
    difference: Difference | None = None
    #: Whether Kafka has deleted records of its topics, or may have by compaction: surplus rows are not judged then.
    is_partial: bool = False

    @property
    def is_equal(self) -> bool | None:
        """Whether the table has the rows of its topics; None if this is unknown."""
        if self.difference is None:
            return None
        return not self.difference.missing and (self.is_partial or not self.difference.surplus)

    def document(self) -> dict[str, Any]:
        """Returns the JSON of the table."""
        difference = {} if self.difference is None else asdict(self.difference)
        result = {"equal": self.is_equal, "reason": self.reason, "remedy": self.remedy}
        return {**result, "partial": self.is_partial, **difference}


@dataclass(frozen=True)
class VerifyResult:
    """Whether tables have exactly the rows of their topics."""

    #: The pipeline's name.
    pipeline: str
    #: The tables, by name.
    tables: tuple[VerifiedTable, ...]

    @property
    def is_ok(self) -> bool:
        """Whether every table was compared and is equal."""
        return all(table.is_equal for table in self.tables)

    def document(self) -> dict[str, Any]:
        """Returns the JSON of `frazil verify`."""
        return {"pipeline": self.pipeline, "tables": {table.name: table.document() for table in self.tables}}
