"""What a run would find, and what it would do.

The first is whether the services that a pipeline file names have what it needs, the second what it would create or change.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, closing, nullcontext
from functools import partial

from frazil.api.wiring import (
    catalog_and_queries,
    has_catalog,
    has_queries,
    light_jvm,
    open_catalog_for_reading,
    open_schemas,
    queries_in,
    refuse_lost_catalog,
    sqlite_file,
    topics_for_reading,
    unmade_catalog,
)
from frazil.catalog.iceberg.opening import settings_of_driver
from frazil.catalog.iceberg.store_access import probe_store
from frazil.catalog.port import Catalog
from frazil.clock import SystemClock
from frazil.errors import FrazilError, SpecError, UnavailableError
from frazil.ingest.loop.discovery import Discovery
from frazil.ingest.loop.published_offsets import group_of
from frazil.ingest.tables.queries import Queries, QueryTables
from frazil.ingest.tables.table import Table
from frazil.kafka.group import KafkaGroup
from frazil.kafka.port import ReadRecord
from frazil.kafka.properties import task_properties
from frazil.kafka.reader import read_sample
from frazil.kafka.topics import KafkaTopics, denied_topics
from frazil.ops.check import (
    Finding,
    check_cluster,
    check_group,
    check_kafka,
    check_local_folder,
    check_lookups,
    check_machine,
    check_orders,
    check_queries,
    check_records,
    check_secrets,
    check_service,
    check_stages,
    check_tables,
    check_transport,
    comparison,
    failed,
)
from frazil.ops.observers import check_observers
from frazil.ops.offline_check import check_audits, check_offline, has_audits
from frazil.ops.plan import PlannedTable, plan_tables
from frazil.ops.status import no_such_table
from frazil.ops.store_check import (
    check_catalog_settings,
    check_driver_settings,
    check_hadoop_settings,
    check_store,
    check_store_properties,
)
from frazil.plugins.driver import ELECTIONS, REGISTRIES
from frazil.runtime.light_jvm import LightJvm
from frazil.runtime.properties import properties_for_reading, uses_aws
from frazil.spec import PipelineSpec
from frazil.spec.syntax.environments import Overrides
from frazil.types import OffsetRange

_STANDALONE = "spark://"


def offline_findings(spec: PipelineSpec, missing: Collection[str], overrides: Overrides) -> Iterator[Finding]:
    """Yields the result of every check that needs no service. missing: secrets that are not set here. overrides: with which
    the file was read.
    """
    if missing:
        yield Finding("secrets", True, "read the secrets of the file", f"not set here: {', '.join(sorted(missing))}")
    with ExitStack() as opened:
        queries = None
        try:
            if has_queries(spec) or has_audits(spec):
                queries = queries_in(opened.enter_context(light_jvm(spec, needs_spark_jars=True)))
        except UnavailableError as error:
            tried = "started a JVM with Spark's classes, to parse queries"
            yield Finding("queries", True, tried, f"not checked: {error.message}", error.remedy)
        yield from check_offline(spec, overrides, queries)


def findings_of(spec: PipelineSpec) -> Iterator[Finding]:
    """Yields the result of every check."""
    yield from check_machine(uses_aws(spec))
    yield from check_secrets(spec)
    yield from check_transport(spec)
    yield from check_hadoop_settings(spec)
    yield from check_catalog_settings(spec)
    yield from check_observers(spec)
    url = spec.spark.master
    with ExitStack() as opened:
        jvm = None
        try:
            if has_queries(spec) or has_audits(spec) or url.startswith(_STANDALONE):
                jvm = opened.enter_context(light_jvm(spec, needs_spark_jars=True))
        except UnavailableError as error:
            yield failed("jvm", "started a JVM with Spark's classes", error)
        if jvm is not None:
            yield from check_audits(spec, queries_in(jvm))
        yield from check_cluster(url, spec.spark.conf, os.environ, jvm and jvm.gateway.jvm)
        yield from _check_services(spec, jvm)


def _check_services(spec: PipelineSpec, jvm: LightJvm | None) -> Iterator[Finding]:
    """jvm: where queries are analysed; None where there are none, or where it did not start."""
    queries = queries_in(jvm) if jvm is not None else None
    source, unmade = topics_for_reading(spec), unmade_catalog(spec, jvm)
    discovery = Discovery(spec, source, unmade)
    of_kafka = list(check_kafka(spec, source, discovery, partial(denied_topics, spec.kafka)))
    yield from of_kafka
    if of_kafka[0].is_ok:
        yield from check_tasks(spec)
    if spec.process.publish_offsets and of_kafka[0].is_ok:
        group = KafkaGroup(spec.kafka, group_of(spec.pipeline))
        yield check_group(group.name, group.may_commit)
    if spec.process.ha is not None:
        yield ELECTIONS.get(spec.process.ha.elect).checker(spec)
    tables = list(discovery.tables.values())
    lost = _lost_catalog(spec)
    yield from lost
    if not lost:
        yield from _check_storage(spec, source if of_kafka[0].is_ok else None, tables, jvm, queries)
    schemas = open_schemas(spec)
    if spec.registry is not None and schemas is not None:
        analysed = QueryTables(unmade, queries) if queries is not None else None
        yield from REGISTRIES.get("confluent").checker(spec, schemas, tables, analysed)


def check_tasks(spec: PipelineSpec) -> Iterator[Finding]:
    """Connects to a broker and logs in as tasks do, which have a client of their own; yields nothing where that works."""
    from frazil.kafka.fetch.cluster import KafkaCluster  # noqa: PLC0415  (a fifth of a second that other commands need not pay)

    try:
        with closing(KafkaCluster(task_properties(spec.kafka))) as cluster:
            cluster.refresh([])
    except UnavailableError as error:
        yield failed("kafka", "connected and logged in as tasks do", error)


def _lost_catalog(spec: PipelineSpec) -> list[Finding]:
    try:
        refuse_lost_catalog(spec)
    except (SpecError, UnavailableError) as error:
        return [failed("catalog", "looked for the catalog's file", error)]
    return []


def _check_storage(
    spec: PipelineSpec,
    source: KafkaTopics | None,
    tables: list[Table],
    running: LightJvm | None,
    queries: Queries | None,
) -> Iterator[Finding]:
    file, warehouse = sqlite_file(spec), spec.catalog.warehouse
    if file is not None:
        folder = check_local_folder("catalog", file.parent)
        if not (has_catalog(spec) and folder.is_ok):
            yield folder
    if not has_catalog(spec) and source is not None:  # None of its tables exists yet.
        unmade = unmade_catalog(spec, running)
        findings = [finding for finding in check_tables(tables, comparison(spec, source, unmade)) if not finding.is_ok]
        yield from findings
        yield from check_lookups(tables, unmade)
        yield from _check_records(spec, source, unmade, findings, queries)
    if not has_catalog(spec) and _is_local(warehouse):
        yield check_store(warehouse, {}, [], lambda *_: "")
        yield from check_store_properties(spec, [])
        return
    try:
        with nullcontext(running) if running is not None else light_jvm(spec) as jvm:
            places: list[str] = []
            if has_catalog(spec):
                yield from _check_tables(jvm, spec, tables, source, queries, places)
            states = [table.state for table in tables if table.state is not None]
            probe = partial(probe_store, jvm.gateway, jvm.hadoop)
            is_place = _is_local(warehouse) or "://" in (warehouse or "")
            place = warehouse if is_place else next(iter(places), warehouse)
            yield check_store(place, properties_for_reading(spec), states, probe)
            yield from check_store_properties(spec, states)
            if (spec.catalog.uri or "").startswith("jdbc:"):
                yield from check_driver_settings(spec, settings_of_driver(jvm.gateway, spec.catalog.uri))
    except UnavailableError as error:
        yield failed("jvm", "started a JVM to reach catalog and store", error)


def _check_tables(
    jvm: LightJvm,
    spec: PipelineSpec,
    tables: list[Table],
    source: KafkaTopics | None,
    queries: Queries | None,
    places: list[str],
) -> Iterator[Finding]:
    """places: gets the places that the catalog has for files of new tables."""
    address = spec.catalog.uri or spec.catalog.warehouse or spec.catalog.impl or spec.catalog.type
    tried = f"opened the catalog at {address}, and requested a namespace"
    try:
        catalog = open_catalog_for_reading(jvm, spec)
        namespace = tables[0].name.rpartition(".")[0] if tables else spec.selected.namespace or "default"
        # Hive's metastore has a place for namespaces that do not exist yet beside this one.
        places += filter(None, (catalog.ask(address, candidate) for candidate in dict.fromkeys((namespace, "default"))))
        compare = comparison(spec, source, catalog)
    except (SpecError, UnavailableError) as error:
        yield failed("catalog", tried, error)
        return
    yield Finding("catalog", True, tried, address)
    findings = list(check_tables(tables, compare))
    yield from findings
    yield from check_service(spec, tables)
    yield from check_orders(tables, spec.file.path)
    yield from check_stages(tables)
    yield from check_lookups(tables, catalog)
    if source is not None:
        yield from _check_records(spec, source, catalog, findings, queries)


def _check_records(
    spec: PipelineSpec, source: KafkaTopics, catalog: Catalog, findings: list[Finding], queries: Queries | None
) -> Iterator[Finding]:
    """Decodes a sample of the unread records of each table, and analyses its query for their fields. Services that do not
    answer, and topics that may not be read, have been reported before. findings: those of the tables.
    """
    if queries is None and has_queries(spec):
        return
    stopped = {finding.name.removeprefix("table ") for finding in findings if not finding.is_ok}
    try:
        planned = plan_of(spec, source, catalog, queries)
        yield from check_records(planned, stopped)
        yield from check_queries(planned, stopped, findings)
    except FrazilError as error:
        if "Group authorization failed" in error.message:
            yield failed("records", "read a sample of the unread records", error)


def _is_local(warehouse: str | None) -> bool:
    return warehouse is not None and warehouse.startswith(("/", "file:"))


def plan(spec: PipelineSpec, only: str | None, note: Callable[[str], None]) -> list[PlannedTable]:
    """Returns what a run would do with each table, or with the one named `only`. note: receives what is read.

    Raises: SpecError for a name that no table has; UnavailableError where Kafka or the catalog does not answer.
    """
    names = [table.name for table in spec.tables]
    if only is not None and only not in names and not spec.makes_tables:  # Before a service is asked.
        raise no_such_table(only, names)
    refuse_lost_catalog(spec)
    with catalog_and_queries(spec) as (catalog, queries):
        return plan_of(spec, topics_for_reading(spec), catalog, queries, only, note)


def plan_of(
    spec: PipelineSpec,
    source: KafkaTopics,
    catalog: Catalog,
    queries: Queries | None,
    only: str | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> list[PlannedTable]:
    """Returns what a run would do with each table, or the one named `only`, from a sample of its unread records. note:
    receives whose records are read.
    """
    clock = SystemClock()

    def read(ranges: list[OffsetRange]) -> list[ReadRecord]:
        if ranges:
            note(f"reading a sample of {ranges[0].topic}")
        return read_sample(spec.kafka, ranges, clock)

    return plan_tables(spec, source, catalog, read, open_schemas(spec), queries, only)
