"""The part of `frazil check` that needs no service: the file in each of its environments, and its queries."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from frazil.errors import SpecError
from frazil.ingest.tables.preflight import declared_mismatch
from frazil.ingest.tables.queries import Queries
from frazil.ops.check import Finding, check_secrets, check_transport, failed
from frazil.ops.store_check import check_catalog_settings, check_hadoop_settings
from frazil.secrets import Secrets
from frazil.spec import PipelineSpec, TableSpec, load_spec
from frazil.spec.publishing import subquery, view_of
from frazil.spec.syntax.environments import Overrides

_MISSING = "the environment variable `"
NOT_CHECKED = (
    "Kafka and its topics", "the schema registry", "the catalog and its tables", "the store", "records",
    "columns that queries make", "this machine",
)  # fmt: skip
"""What an offline check leaves out."""


@dataclass(frozen=True)
class _AuditQuery:
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


def check_offline(spec: PipelineSpec, overrides: Overrides, queries: Queries | None) -> Iterator[Finding]:
    """Yields what can be checked of a loaded file without a service. overrides: with which it was loaded. queries: None
    where no table has a query or an audit.
    """
    yield from check_secrets(spec)
    yield from check_transport(spec)
    yield from check_hadoop_settings(spec)
    yield from check_catalog_settings(spec)
    yield from check_environments(spec, overrides)
    yield from _check_columns(spec)
    if queries is not None:
        yield from _check_queries(spec, queries)
        yield from check_audits(spec, queries)


def check_environments(spec: PipelineSpec, overrides: Overrides) -> Iterator[Finding]:
    """Yields whether the file is valid in each of its other environments."""
    for name in spec.environments:
        if name == overrides.environment:
            continue
        tried = f"read the file as with --env {name}"
        try:
            secrets = Secrets(os.environ, has_placeholders=True)
            other = load_spec(spec.file.path, overrides=Overrides(name, overrides.values), secrets=secrets)
        except SpecError as error:
            yield from _problems(name, tried, (error, *error.others))
        else:
            yield Finding(f"environment {name}", True, tried, f"pipeline {other.pipeline}")


def _problems(name: str, tried: str, errors: Iterable[SpecError]) -> Iterator[Finding]:
    """Yields what is wrong with the file in an environment. Variables may be set only where it is used."""
    name = f"environment {name}"
    wrong = [error for error in errors if not error.message.startswith(_MISSING)]
    if not wrong:
        variables = sorted({error.message.split("`")[1] for error in errors})
        yield Finding(name, True, tried, f"as far as it can be read without the variables {', '.join(variables)}")
    yield from (failed(name, tried, error) for error in wrong)


def _check_columns(spec: PipelineSpec) -> Iterator[Finding]:
    """Yields declared columns, and members of their types, that no new table can have together."""
    for table in spec.declared:
        mismatch = declared_mismatch(table, None)
        if mismatch is not None:
            remedy = f"{mismatch.remedy}; a table that has both already may declare both, as `frazil check` sees"
            finding = failed(f"columns {table.name}", "compared the names of declared columns", mismatch)
            yield replace(finding, remedy=remedy)


def _check_queries(spec: PipelineSpec, queries: Queries) -> Iterator[Finding]:
    """Yields what is wrong with the query of each table whatever fields its records have."""
    for table in spec.declared:
        if not (table.query.select or table.query.where or table.query.filter):
            continue
        name, tried = f"query {table.name}", "parsed its query and conditions"
        try:
            queries.check(table)
            yield Finding(name, True, tried, "can be parsed")
        except SpecError as error:
            yield failed(name, tried, error)


def _audit_queries(spec: PipelineSpec) -> Iterator[_AuditQuery]:
    """Yields the audits of all tables that the file declares."""
    for table in spec.tables:
        publish = table.publishing.publish
        for name, query in publish.audits if publish is not None else ():
            remedy = f"correct `publish.audits.{name}`: a query that fails keeps the table from its readers"
            views = _views(spec, table, publish.group if publish is not None else None)
            yield _AuditQuery(table.name, name, subquery(query), views, remedy=remedy)


def _views(spec: PipelineSpec, table: TableSpec, group: str | None) -> tuple[str, ...] | None:
    if group is None:
        return "candidate", "published"
    if spec.makes_tables:
        return None
    of_group = [other for other in spec.tables if (publish := other.publishing.publish) and publish.group == group]
    return "candidate", "published", *(view_of(other.name) for other in of_group if other is not table)


def has_audits(spec: PipelineSpec) -> bool:
    """Whether some table is audited for its readers."""
    return any(True for _ in _audit_queries(spec))


def check_audits(spec: PipelineSpec, queries: Queries) -> Iterator[Finding]:
    """Yields whether the audits of each table can be parsed, and read views that audits have; which columns these have is
    known once the tables exist.
    """
    for audit in _audit_queries(spec):
        name, tried = f"audit {audit.name} of {audit.table}", "parsed its query"
        try:
            _refuse_unknown(queries.parse(audit.statement), audit)
            yield Finding(name, True, tried, "can be parsed")
        except SpecError as error:
            yield Finding(name, False, tried, error.message, audit.remedy, audit.table)


def _refuse_unknown(views: Iterable[str], audit: _AuditQuery) -> None:
    """Raises SpecError for a view that the audit does not have."""
    for view in sorted(views) if audit.views is not None else ():
        assert audit.views is not None
        if view not in audit.views:
            raise SpecError(f"there is no view `{view}`: the audit can read {', '.join(audit.views)}")
