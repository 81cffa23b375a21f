"""The queries of a pipeline file that Spark runs beside ingestion, as `frazil check` parses them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from frazil.spec.models import PipelineSpec, TableSpec
from frazil.spec.publishing import subquery, view_of


@dataclass(frozen=True)
class AuditQuery:
    """A query over what readers of a table would see."""

    #: The table.
    table: str
    #: The name of the audit.
    name: str
    #: A statement whose syntax is right only if the audit is a query.
    statement: str
    #: The views that it can read; None where tables that the file does not name may be among them.
    views: tuple[str, ...] | None
    #: What to do where it is none.
    remedy: str


def audit_queries(spec: PipelineSpec) -> Iterator[AuditQuery]:
    """Yields the audits of all tables that the file declares."""
    for table in spec.tables:
        publish = table.publishing.publish
        for name, query in publish.audits if publish is not None else ():
            remedy = f"correct `publish.audits.{name}`: a query that fails keeps the table from its readers"
            views = _views(spec, table, publish.group if publish is not None else None)
            yield AuditQuery(table.name, name, subquery(query), views, remedy=remedy)


def _views(spec: PipelineSpec, table: TableSpec, group: str | None) -> tuple[str, ...] | None:
    if group is None:
        return "candidate", "published"
    if spec.makes_tables:
        return None
    of_group = [other for other in spec.tables if (publish := other.publishing.publish) and publish.group == group]
    return "candidate", "published", *(view_of(other.name) for other in of_group if other is not table)
