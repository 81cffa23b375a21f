"""The checks of `frazil check`: the machine, Kafka and its topics, the catalog with its tables, and the store.

Every check runs, also after another has failed. Nothing is changed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field
from pyiceberg.schema import Schema

from frazil.catalog.layout import partition_terms
from frazil.catalog.port import Catalog, TableState
from frazil.column_names import fold_case
from frazil.errors import FrazilError, SpecError, UnavailableError, unforeseen
from frazil.ingest.batches.outcome import WITHOUT_ROWS_REMEDY, without_rows
from frazil.ingest.failures import TableStopped
from frazil.ingest.loop.discovery import Discovery
from frazil.ingest.loop.topics import missing_topics, refuse_empty_patterns
from frazil.ingest.tables.lookups import open_lookups
from frazil.ingest.tables.preflight import refuse_foreseen, warnings_of
from frazil.ingest.tables.schema_changes import declared_adder
from frazil.ingest.tables.table import Table
from frazil.kafka.port import Source
from frazil.ops.layouts import order_mismatch
from frazil.ops.plan import PlannedTable
from frazil.ops.status import MissingTopics, problem_of
from frazil.printable import plural
from frazil.runtime.jars import Use
from frazil.runtime.jvm import cluster_of
from frazil.runtime.machine import check_files, check_jars, check_java, check_temporary
from frazil.schema.evolve import compare_schemas, new_schema
from frazil.secrets import SHORTEST_CHARACTERS, is_secret_key
from frazil.spec import PipelineSpec
from frazil.spec.changes import refusing_engine
from frazil.spec.publishing import NEWEST_FORMAT, OLDER_FORMAT
from frazil.stages.table import table_stages

_ASKED_FOR_RIGHTS = "asked Kafka what this client may do with it"
_TASKS_HERE = re.compile(r"local(\[(\d+|\*)(,\s*\d+)?\])?|local-cluster\[.*\]")
"""Masters with which tasks run in the process of `frazil run`."""
_SPARK_NEEDS = ("spark.authenticate", "spark.network.crypto.enabled", "spark.io.encryption.enabled")


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    #: The subject of the check, such as `kafka` or `table shop.orders`.
    name: str
    #: Whether the check passed.
    is_ok: Annotated[bool, Field(alias="ok")]
    #: What the check did.
    tried: str
    #: The result.
    found: str
    #: What to do; empty when the check passed.
    remedy: str = ""
    #: The place of the problem.
    where: str = ""


def failed(name: str, tried: str, error: FrazilError | TableStopped) -> Finding:
    """Returns the finding of a check that raised this error."""
    problem = problem_of(error)
    remedy = problem.remedy.removesuffix("; `frazil check` checks all services")
    return Finding(name, False, tried, problem.message, remedy, problem.where)


def check_machine(needs_s3: bool) -> Iterator[Finding]:
    """Checks Java and the jars."""
    java = check_java()
    yield Finding("java", java.is_ok, "started it with -version", java.result, java.remedy)
    files = check_files()
    if not files.is_ok:
        yield Finding(files.name, False, "looked at ulimit -n", files.result, files.remedy)
    temporary = check_temporary()
    if not temporary.is_ok:
        yield Finding(temporary.name, False, "looked at how the folder is mounted", temporary.result, temporary.remedy)
    uses: tuple[Use, ...] = ("spark", "s3") if needs_s3 else ("spark",)
    for use in uses:
        jars = check_jars(use)
        yield Finding(jars.name, jars.is_ok, "compared the cache with what was fetched", jars.result, jars.remedy)


def check_kafka(
    spec: PipelineSpec, source: Source, discovery: Discovery, denied: Callable[[Iterable[str], str], set[str]]
) -> Iterator[Finding]:
    """Checks the cluster and every topic. denied: returns those of the topics on which this client lacks a right.

    Raises: SpecError for a regular expression that matches no topic.
    """
    servers = spec.kafka["bootstrap.servers"]
    tried = f"asked {servers} for its cluster and topics"
    try:
        cluster_id = source.cluster_id()
        discovery.refresh_topics()
    except UnavailableError as error:
        yield failed("kafka", tried, error)
        return
    tables = list(discovery.tables.values())
    refuse_empty_patterns(spec, source)
    yield Finding("kafka", True, tried, f"cluster {cluster_id} at {servers}")
    unreadable = denied({topic for table in tables for topic in table.offsets.topics}, "READ")
    for table in tables:
        yield from _check_topics(table, unreadable)
    for topic in sorted(denied(_dead_letter_topics(tables), "WRITE")):
        yield _denied(topic, "this client may not write to it, and dead letters go there", "WRITE")
    yield from _check_missing(spec, tables, source)


def check_group(group: str, may_commit: Callable[[], bool]) -> Finding:
    """Checks whether offsets may be committed in the consumer group that shows them to tools that measure lag. may_commit:
    returns whether this client has the right, and raises UnavailableError where that is not known.
    """
    name = f"group {group}"
    remedy = (
        f"allow it: `kafka-acls --add --allow-principal User:NAME --operation READ --group {group}`, or write"
        " `publish_offsets: false`"
    )
    try:
        if may_commit():
            return Finding(name, True, _ASKED_FOR_RIGHTS, "shows the offsets of the tables to tools that measure lag")
    except UnavailableError as error:
        return Finding(name, False, _ASKED_FOR_RIGHTS, error.message, remedy, name)
    return Finding(name, False, _ASKED_FOR_RIGHTS, "this client may not commit offsets in it", remedy, name)


def _check_missing(spec: PipelineSpec, tables: Sequence[Table], source: Source) -> Iterator[Finding]:
    """Yields findings for topics that the pipeline file names and that do not exist."""
    named = sorted({selector.literal for selector in spec.selected.topics if selector.literal})
    uses = [(topic, f"table {spec.selected.namespace}.{topic} waits for it") for topic in named]
    uses += [
        (table.spec.changes.atomic.transaction_topic, f"table {table.name} waits for it")
        for table in tables
        if table.spec.changes.atomic is not None and table.spec.changes.atomic.transaction_topic is not None
    ]
    dead_letters = _dead_letter_topics(tables)
    uses += [(topic, f"dead letters of {', '.join(names)} go there") for topic, names in dead_letters.items()]
    existing = source.topics({topic for topic, _ in uses}.__contains__) if uses else {}
    absent = [(topic, f"table {table.name} waits for it") for table, topic in missing_topics(tables)]
    absent += [(topic, use) for topic, use in uses if topic not in existing]
    missing = MissingTopics(source)
    for topic, use in absent:
        absence, remedy = f"the topic does not exist; {use}", missing.remedy(topic)
        yield Finding(f"topic {topic}", False, "asked Kafka to describe it", absence, remedy, f"topic {topic}")


def _dead_letter_topics(tables: Iterable[Table]) -> dict[str, list[str]]:
    """Returns the names of the tables whose dead letters go to each topic."""
    names_by_topic: dict[str, list[str]] = {}
    for table in tables:
        if (
            table.spec.bad_records.dead_letters.topic is not None
            and table.spec.bad_records.on_bad_record == "dead_letter"
        ):
            names_by_topic.setdefault(table.spec.bad_records.dead_letters.topic, []).append(table.name)
    return names_by_topic


def _denied(topic: str, denial: str, right: str) -> Finding:
    remedy = f"allow it: `kafka-acls --add --allow-principal User:NAME --operation {right} --topic {topic}`"
    return Finding(f"topic {topic}", False, _ASKED_FOR_RIGHTS, denial, remedy, f"topic {topic}")


def _check_topics(table: Table, denied: set[str]) -> Iterator[Finding]:
    for topic in sorted(table.offsets.topics):
        if topic in denied:
            yield _denied(topic, "this client may not read it", "READ")
        else:
            partitions = plural(table.offsets.topics[topic].partition_count, "partition")
            yield Finding(f"topic {topic}", True, _ASKED_FOR_RIGHTS, f"{partitions}, for table {table.name}")


def check_tables(tables: Iterable[Table], compare: Callable[[Table], None]) -> Iterator[Finding]:
    """Checks every table with `compare`."""
    for table in tables:
        name, tried = f"table {table.name}", "loaded it from the catalog"
        try:
            compare(table)
            _refuse_unreadable(table)
            yield _describe(name, tried, table)
        except (FrazilError, TableStopped) as error:
            yield failed(name, tried, error)
        except Exception as error:  # noqa: BLE001  (whatever is wrong with one table, the others are checked)
            yield failed(name, tried, unforeseen(error, table.name))


ABSENT_REMEDY = "name a field that records have, or declare it under `columns` where `field` names another one"


def check_records(planned: Iterable[PlannedTable], stopped: Container[str]) -> Iterator[Finding]:
    """Yields findings for tables that a run would stop at unread records of a sample, as found by `plan`, and the warnings
    that records of other tables show. stopped: tables that would stop anyway. A single bad record under
    `on_bad_record: stop` is left to `plan`.
    """
    for table in planned:
        is_known = table.name in stopped or table.query.problem is not None
        is_well = table.action != "stop" or is_known or (table.bad and not table.sample.is_too_bad)
        name, tried = f"records of {table.name}", f"decoded {plural(table.sampled, 'unread record')} as a run would"
        problem = table.problem
        if problem is not None and not is_well:
            yield Finding(name, False, tried, problem.message, problem.remedy, problem.where or table.name)
        elif table.sample.ignored_kinds and table.action == "wait":
            yield Finding(name, True, tried, f"{without_rows(table.sample.ignored_kinds)}; {WITHOUT_ROWS_REMEDY}")
        elif table.sample.absent_columns and table.name not in stopped:
            yield Finding(name, False, tried, "; ".join(table.sample.absent_columns), ABSENT_REMEDY, table.name)
        elif table.sample.warnings and table.name not in stopped:
            yield Finding(name, True, tried, "; ".join(f"warning: {words}" for words in table.sample.warnings))


def check_queries(
    planned: Iterable[PlannedTable], stopped: Container[str], reported: Iterable[Finding] = ()
) -> Iterator[Finding]:
    """Yields, for each table with a query, the columns that it makes of the fields in a sample, or what is wrong with it.
    stopped: tables that would stop anyway. reported: findings of the tables, whose warnings are not repeated.
    """
    words_of_tables = {finding.name: finding.found for finding in reported}
    for table in planned:
        name = f"query of {table.name}"
        tried = f"analysed it for the fields of {plural(table.sampled, 'unread record')} and of the table"
        problem = table.query.problem
        if problem is not None and table.name not in stopped:
            yield Finding(name, False, tried, problem.message, problem.remedy, problem.where or table.name)
        elif table.query.columns:
            known = words_of_tables.get(f"table {table.name}", "")
            warnings = "".join(f"; warning: {words}" for words in table.warnings if words not in known)
            yield Finding(name, True, tried, made_by_query(table.query.columns) + warnings)


def made_by_query(columns: Iterable[tuple[str, str]]) -> str:
    """Returns the columns of a query, for people."""
    return f"makes {', '.join(f'{name}: {kind}' for name, kind in columns)}"


def check_lookups(tables: Iterable[Table], catalog: Catalog) -> Iterator[Finding]:
    """Yields a finding for each reference table that records are joined with."""
    joined = [(table, lookup) for table in tables for lookup in table.spec.query.lookup]
    if not joined:
        return
    lookups, states = open_lookups(catalog), dict[str, TableState | None]()
    for table, lookup in joined:
        name, tried = f"lookup {lookup.name} of {table.name}", f"read {lookup.table or lookup.file}"
        try:
            reference = lookups.find(table, lookup, states)
            yield Finding(name, True, tried, plural(len(reference.values), "row"))
        except FrazilError as error:
            yield failed(name, tried, error)


def check_orders(tables: Iterable[Table], file: Path) -> Iterator[Finding]:
    """Yields findings for existing tables whose rows maintenance cannot sort as the pipeline file asks."""
    for table in tables:
        error = order_mismatch(table.spec, table.state, file) if table.state is not None else None
        if error is not None:
            tried = "looked for the columns by which compaction sorts rows"
            remedy = f"{error.remedy}; files are not rewritten until then"
            yield Finding(f"maintenance of {table.name}", False, tried, error.message, remedy, error.where)


def check_stages(tables: Iterable[Table]) -> Iterator[Finding]:
    """Yields what the stages of tables find, such as places outside of the table that they write to."""
    for table in tables:
        for stage in table_stages(table.spec):
            for check in stage.check_table(table.state.location if table.state is not None else None):
                name, where = f"stage of {table.name}", "" if check.is_ok else table.name
                yield Finding(name, check.is_ok, check.tried, check.result, check.remedy, where)


def comparison(spec: PipelineSpec, source: Source | None, catalog: Catalog) -> Callable[[Table], None]:
    """Returns a function that loads a table and compares its progress with the topics, where there is a source; it
    raises what would stop a run.
    """
    if source is None:
        return lambda table: _load(table, catalog)
    discovery, cluster_id = Discovery(spec, source, catalog), source.cluster_id()

    def compare(table: Table) -> None:
        discovery.load(table, cluster_id)
        discovery.check_start(table)
        refuse_foreseen(table, catalog)
        if table.progress.snapshot_id is not None:
            discovery.check_offsets(table, source.ends(table.partitions()))

    return compare


def _load(table: Table, catalog: Catalog) -> None:
    table.state = catalog.load(table.name)


def _refuse_unreadable(table: Table) -> None:
    """Raises SpecError for an existing table that an engine of `readers` cannot read."""
    if table.state is None:
        return
    version = table.state.format_version
    reader = refusing_engine(table.spec, version)
    if reader is not None:
        other = OLDER_FORMAT if version == NEWEST_FORMAT else NEWEST_FORMAT
        raise SpecError(
            f"{reader.label} is not known to read the table: it has format version {version}",
            remedy=f"take it out of `readers`, or let the pipeline fill another table with `format_version: {other}`",
            where=table.name,
        )


def _describe(name: str, tried: str, table: Table) -> Finding:
    if table.state is None:
        warnings = _warnings(table, declared_schema(table))
        return Finding(name, True, tried, f"not created yet; `frazil run` creates it{warnings}")
    rows = f", {plural(table.catalog.size.live_row_count, 'row')}" if table.catalog.size else ""
    parts = ", ".join(partition_terms(table.state.partitioning, table.state.schema))
    layout = f", partitioned by {parts}" if parts else ""
    words = f"there, {plural(len(table.state.schema.fields), 'column')}{rows}{layout}"
    widened = compare_schemas(table.state.schema, declared_adder(table.spec)(table.state.schema))
    if widened:
        columns = ", ".join(f"{change.path}: {change.kind}" for change in widened)
        words += f"; `frazil run` adds or widens {columns}, as `columns` declares"
    kept = [key for key, text in table.spec.layout.properties.items() if table.state.properties.get(key) != text]
    if table.spec.layout.location not in (None, table.state.location):
        words += f"; keeps its location {table.state.location}: `location` is for new tables"
    if table.state.format_version < table.spec.layout.format_version:
        words += f"; has format version {table.state.format_version}, which `format_version` does not change"
    if table.state.properties.get("gc.enabled", "").lower() == "false":
        words += "; keeps snapshots and orphan files, as its gc.enabled is false"
    if kept:
        words += f"; keeps its own {', '.join(sorted(kept))}: `properties` are for new tables"
    return Finding(name, True, tried, words + _warnings(table, table.state.schema))


def declared_schema(table: Table) -> Schema:
    """Returns the schema of the columns that the pipeline file declares."""
    return new_schema((column.name, column.type) for column in table.spec.shape.columns)


def _warnings(table: Table, schema: Schema) -> str:
    return "".join(f"; warning: {words}" for words in warnings_of(table, schema))


def check_local_folder(name: str, folder: Path) -> Finding:
    """Checks whether files can be created in a folder that exists or can be created. Nothing is written."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    tried = f"checked the permissions of {existing}"
    if not existing.is_dir():
        remedy = "move it, or name another place"
        return Finding(name, False, tried, f"{existing} is a file, not a folder", remedy, str(existing))
    if existing.resolve().parts[1:2] in (("proc",), ("sys",)):
        return Finding(name, False, tried, f"{existing} takes no folders", "name another place", str(existing))
    if not os.access(existing, os.W_OK | os.X_OK):
        remedy = "make the folder writable for this user, or name another place"
        return Finding(name, False, tried, "this user may not write there", remedy, str(existing))
    state = "writable" if existing == folder else "not created yet; `frazil run` creates it"
    return Finding(name, True, tried, f"{folder}, {state}")


def check_service(spec: PipelineSpec, tables: Iterable[Table]) -> Iterator[Finding]:
    """Yields findings about table names, and about what is known of the managed service at the catalog's address. tables:
    those of the pipeline, loaded where they exist.
    """
    tables, service = list(tables), spec.catalog.service
    yield from _check_letter_case(tables, must_differ=service is not None and service.ignores_case)
    if service is None:
        return
    name, tried = f"service {service.name}", "looked for the address among those of managed services"
    left = [
        action
        for action in service.maintains
        if any(t.spec.maintenance.is_on and action not in t.spec.maintenance.skip for t in tables)
    ]
    if left:
        remedy = f"write `maintenance: {{skip: [{', '.join(left)}]}}`"
        yield Finding(name, True, tried, f"mind: it maintains tables by itself; {remedy}")
    homeless = [table.name for table in tables if table.state is None and table.spec.layout.location is None]
    if service.needs_location and homeless:
        remedy = "write `location` for each"
        yield Finding(
            name, True, tried, f"mind: it demands a location of new tables, as {', '.join(homeless)}; {remedy}"
        )


def _check_letter_case(tables: Iterable[Table], must_differ: bool) -> Iterator[Finding]:
    names: dict[str, str] = {}
    for table in tables:
        other = names.setdefault(fold_case(table.name), table.name)
        if other != table.name:
            clash = f"{other} and {table.name} differ in case alone"
            remedy = "leave its topic out of `topics`, or give one of the two a table of its own under `tables`"
            tried = "compared the names of tables without regard to case"
            if must_differ:
                yield Finding("table names", False, tried, f"{clash}: the catalog has one table for both", remedy)
            else:
                yield Finding(
                    "table names", True, tried, f"mind: {clash}, which many catalogs take for one name; {remedy}"
                )


def check_secrets(spec: PipelineSpec) -> Iterator[Finding]:
    """Yields a finding where secrets are too short to be masked in every text."""
    short = sum(len(secret) < SHORTEST_CHARACTERS for secret in spec.file.secrets)
    if short:
        weakness = (
            f"{plural(short, 'secret')} of less than {SHORTEST_CHARACTERS} characters, masked only as a whole value"
        )
        remedy = "use longer secrets, and write values that are none into the file itself"
        yield Finding("secrets", True, "measured the secrets of the file", f"mind: {weakness}; {remedy}")


def check_transport(spec: PipelineSpec) -> Iterator[Finding]:
    """Yields a finding for each connection that sends secrets unencrypted."""
    yield from _check_http(spec)
    yield from _check_kafka(spec.kafka)
    yield from _check_spark(spec)


def _check_http(spec: PipelineSpec) -> Iterator[Finding]:
    uri = spec.catalog.uri
    named = [key for key in spec.catalog.properties if is_secret_key(key)]
    has_secret = bool(named) or "@" in urlsplit(uri).netloc if uri.startswith("http") else False
    if uri.startswith("http://") and has_secret and not _is_loopback(uri):
        yield _mind("catalog", "the catalog's credentials are sent over http://", "write https:// in `catalog.uri`")
    registry = spec.registry
    if registry is None or not (
        registry.auth.password or registry.auth.token or any(map(is_secret_key, registry.properties))
    ):
        return
    if any(url.startswith("http://") and not _is_loopback(url) for url in registry.urls):
        yield _mind("registry", "the registry's credentials are sent over http://", "write https:// in `registry.url`")


def _check_kafka(kafka: Mapping[str, str]) -> Iterator[Finding]:
    protocol = kafka.get("security.protocol", "PLAINTEXT").upper()
    for prefix, part in (("sasl.", "SASL"), ("ssl.", "SSL")):
        unused = [name for name in kafka if name.startswith(prefix) and part not in protocol]
        if unused:
            weakness = f"Kafka's clients do not use {', '.join(unused)} with `security.protocol: {protocol}`"
            yield _mind("kafka", weakness, "write `security.protocol: SASL_SSL`")
    mechanism = (kafka.get("sasl.mechanism") or kafka.get("sasl.mechanisms") or "").upper()
    hosts = (f"kafka://{server.strip()}" for server in kafka.get("bootstrap.servers", "").split(","))
    if protocol == "SASL_PLAINTEXT" and mechanism in ("PLAIN", "OAUTHBEARER") and not all(map(_is_loopback, hosts)):
        yield _mind("kafka", "Kafka's credentials are sent without encryption", "write `security.protocol: SASL_SSL`")


def check_cluster(url: str, conf: Mapping[str, str], environment: Mapping[str, str], jvm: Any) -> Iterator[Finding]:
    """Yields whether the master of a cluster answers; nothing where tasks run in the process of the run. Arguments: as of
    `SparkCluster.check`, and the URL of the master.
    """
    if not _TASKS_HERE.fullmatch(url):
        yield from cluster_of(url).check(conf, environment, jvm)


def _check_spark(spec: PipelineSpec) -> Iterator[Finding]:
    """Checks Spark's connections: every task receives Kafka's passwords and the store's keys, and the driver unpickles
    its answer.
    """
    if spec.spark.master.startswith("local") and not spec.spark.master.startswith("local-cluster"):
        return
    lacking = [name for name in _SPARK_NEEDS if spec.spark.conf.get(name, "false").lower() != "true"]
    if spec.spark.conf.get("spark.ssl.rpc.enabled", "false").lower() == "true":
        lacking = [name for name in lacking if name != "spark.network.crypto.enabled"]
    if lacking:
        settings = ", ".join(f"{name}: true" for name in lacking)
        yield _mind(
            "spark",
            f"passwords travel between the driver and executors without {' and '.join(lacking)}",
            f"write `spark: {{conf: {{{settings}}}}}`, with spark.authenticate.secret where the master is standalone",
        )


def _mind(what: str, weakness: str, remedy: str) -> Finding:
    return Finding(f"transport of {what}", True, "looked for encryption in the file", f"mind: {weakness}; {remedy}")


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
