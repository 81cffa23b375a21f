"""Creates the services of a process and connects them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Protocol

from frazil import __version__
from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.store_access import properties_of_file
from frazil.catalog.port import Catalog, catalog_without_tables
from frazil.clock import Clock, SystemClock
from frazil.errors import SpecError, UnavailableError
from frazil.files import make_private_directory, make_private_file
from frazil.ingest.loop.leadership import Alone, Leadership
from frazil.ingest.tables.queries import Queries, SparkQueries
from frazil.ingest.tables.schemas import Schemas
from frazil.kafka.properties import task_properties
from frazil.kafka.topics import KafkaTopics
from frazil.ops.pipeline_status import ProcessState
from frazil.ops.state_file import StateFile
from frazil.plugins.driver import ELECTIONS, REGISTRIES
from frazil.runtime.jvm import Jvm
from frazil.runtime.light_jvm import LightJvm
from frazil.runtime.properties import catalog_properties, properties_for_reading, spark_conf, uses_aws
from frazil.spec import PipelineSpec, load_spec
from frazil.spec.syntax.document import line_of
from frazil.spec.syntax.problems import place

_READ_TIMEOUT_S = 5.0


class Hides(Protocol):
    """Where secrets are to be masked: the output of a command, or the results of the Python API."""

    def hide(self, secrets: Iterable[str]) -> None:
        """Masks `secrets` from now on."""


def read_spec(output: Hides, file: Path) -> PipelineSpec:
    """Returns the pipeline file; its secrets are masked in everything that `output` writes or returns from now on."""
    spec = load_spec(file)
    output.hide(spec.file.secrets)
    return spec


def known_state(spec: PipelineSpec) -> ProcessState:
    """Returns what the pipeline's process last reported; nothing where it never ran here."""
    return StateFile(spec.file.state_dir, spec.pipeline, SystemClock(), spec.redact).read()


def open_catalog(jvm: Jvm, spec: PipelineSpec) -> IcebergCatalog:
    """Returns the pipeline file's catalog; creates the folder of a local one. Raises UnavailableError where the file of a
    local one is lost.
    """
    file = sqlite_file(spec)
    if file is not None:
        refuse_lost_catalog(spec)
        folder = file.parent
        try:
            make_private_directory(folder)
            for kept in (file, *(Path(f"{file}{end}") for end in ("-wal", "-shm") if Path(f"{file}{end}").exists())):
                make_private_file(kept)
        except OSError as error:
            raise UnavailableError(
                f"the folder of the catalog cannot be created: {error.strerror}", where=str(folder)
            ) from None
    return _catalog(jvm, spec, catalog_properties(spec))


def open_schemas(spec: PipelineSpec) -> Schemas | None:
    """Returns the schemas of the registry that the pipeline file names; None without one."""
    if spec.registry is None:
        return None
    return Schemas(REGISTRIES.get("confluent").opener(spec.registry), spec.registry.naming)


def open_topics(spec: PipelineSpec, timeout_s: float = 10.0) -> KafkaTopics:
    """Returns the Kafka client of the driver.

    Raises: SpecError, with its line, for a setting that one of the two Kafka clients refuses.
    """
    try:
        topics = KafkaTopics(spec.kafka, timeout_s)
        task_properties(spec.kafka)  # Refuses here what tasks could not log in with.
        return topics
    except SpecError as error:
        if error.where not in ("kafka", *spec.kafka):
            raise
        line = line_of(spec.file.path, error.where)
        raise SpecError(error.message, remedy=error.remedy, where=place(spec.file.path, line)) from None


def topics_for_reading(spec: PipelineSpec) -> KafkaTopics:
    """Returns the Kafka client of commands that only read: somebody waits for the answer, so an outage is reported
    sooner.
    """
    return open_topics(spec, _READ_TIMEOUT_S)


def open_leadership(spec: PipelineSpec, run_id: str, clock: Clock) -> Leadership:
    """Returns how this process knows which tables it works on: by the election of the pipeline file, or all of them.

    Raises: UnavailableError where the election cannot be taken part in.
    """
    if spec.process.ha is None:
        return Alone(run_id, __version__, clock.now_ms())
    # What is imported here takes a tenth of a second, which pipelines without an election save.
    leadership: Leadership = ELECTIONS.get(spec.process.ha.elect).opener(spec, run_id, clock)
    return leadership


def declared_tables(spec: PipelineSpec) -> list[str]:
    """Returns the tables that the pipeline file names, each with its catalog."""
    return [f"{name} in {catalog_address(spec)}" for name in spec.table_names]


@contextmanager
def light_jvm(spec: PipelineSpec, needs_spark_jars: bool = False) -> Iterator[LightJvm]:
    """Opens a JVM without a Spark session, for commands that only read. needs_spark_jars: whether it analyses SQL."""
    jvm = LightJvm(spark_conf(spec), uses_aws(spec), needs_spark_jars or spec.catalog.kind.needs_spark_jars)
    try:
        yield jvm
    finally:
        jvm.close()


def has_queries(spec: PipelineSpec) -> bool:
    """Whether some table has a query."""
    return any(table.has_query for table in spec.declared)


@contextmanager
def catalog_for_reading(spec: PipelineSpec, commits: bool = False) -> Iterator[Catalog]:
    """Opens the pipeline file's catalog; creates neither a file nor a table. commits: for a command that commits."""
    with _opened(spec, commits, analyses=False) as (catalog, _):
        yield catalog


@contextmanager
def catalog_and_queries(spec: PipelineSpec, commits: bool = False) -> Iterator[tuple[Catalog, Queries | None]]:
    """Opens the catalog, as `catalog_for_reading` does, and in the same JVM what analyses the queries of tables; None where
    no table has one.
    """
    with _opened(spec, commits, analyses=has_queries(spec)) as opened:
        yield opened


@contextmanager
def _opened(spec: PipelineSpec, commits: bool, analyses: bool) -> Iterator[tuple[Catalog, Queries | None]]:
    if not has_catalog(spec) and not analyses:
        yield unmade_catalog(spec, None), None
        return
    with light_jvm(spec, needs_spark_jars=analyses) as jvm:
        if commits:
            jvm.listen()
        is_made = has_catalog(spec)
        catalog = open_catalog_for_reading(jvm, spec) if is_made else unmade_catalog(spec, jvm)
        yield catalog, queries_in(jvm) if analyses else None


def unmade_catalog(spec: PipelineSpec, jvm: LightJvm | None) -> Catalog:
    """Returns a catalog without tables, in place of one that the first run creates. jvm: where files of stores are reached;
    None where none is read.
    """
    if jvm is None:
        return catalog_without_tables()
    reach = partial(properties_of_file, jvm.gateway, jvm.hadoop, properties_for_reading(spec))
    return catalog_without_tables(reach)


def queries_in(jvm: LightJvm) -> Queries:
    """Returns what analyses the queries of tables in a JVM with Spark's jars."""
    return SparkQueries(lambda: jvm.gateway.jvm)


def has_catalog(spec: PipelineSpec) -> bool:
    """Returns False while a catalog on SQLite is yet to be created by the first run."""
    file = sqlite_file(spec)
    return file is None or _has_tables(file)


def catalog_address(spec: PipelineSpec) -> str:
    """Returns where the pipeline's catalog is, as the state file records it."""
    return spec.redact(" ".join(filter(None, (spec.catalog.uri or spec.catalog.type, spec.catalog.warehouse))))


def committed_in(spec: PipelineSpec) -> str | None:
    """Returns the address of the catalog with tables to which the last run has committed; empty where its state file does
    not name it, None without such tables.
    """
    state = known_state(spec)
    is_committed = any(table.progress.last_commit_ms for table in state.tables.values())
    return state.catalog if is_committed else None


def refuse_lost_catalog(spec: PipelineSpec) -> None:
    """Raises SpecError or UnavailableError where a new catalog on SQLite would be made in place of another one, or of a
    lost one: it would have no tables, and the topics would be read again from their starts.
    """
    file = sqlite_file(spec)
    last = committed_in(spec) if file is not None and not file.exists() else None
    if last is None:
        return
    state = StateFile(spec.file.state_dir, spec.pipeline, SystemClock(), spec.redact).path
    begin = f"to begin again without those tables, delete {state}"
    if last and last != catalog_address(spec):
        raise SpecError(
            f"the last run has committed to tables in another catalog, {last}, and there is none at this address",
            remedy=f"correct `catalog.uri` and `catalog.warehouse`; {begin}",
            where=str(file),
        )
    raise UnavailableError(
        "the catalog's file is not there, and the last run has committed to tables in it",
        remedy=f"mount or restore it, or correct `catalog.uri`; {begin}",
        where=str(file),
    )


def open_catalog_for_reading(jvm: LightJvm, spec: PipelineSpec) -> IcebergCatalog:
    """Returns the pipeline file's catalog, which exists."""
    return _catalog(jvm, spec, properties_for_reading(spec))


def _catalog(jvm: Jvm | LightJvm, spec: PipelineSpec, properties: Mapping[str, str]) -> IcebergCatalog:
    vends = spec.catalog.kind.vends_credentials
    name = spec.catalog.name
    catalog = IcebergCatalog(jvm.gateway, spec.pipeline, properties, jvm.hadoop, vends, name)
    return catalog.with_branches(cache(spec.branch_of))


def sqlite_file(spec: PipelineSpec) -> Path | None:
    """Returns the file of a catalog on SQLite; None for another catalog."""
    prefix, uri = "jdbc:sqlite:", spec.catalog.uri
    return Path(uri.removeprefix(prefix).split("?")[0]) if uri.startswith(prefix) else None


def _has_tables(file: Path) -> bool:
    if not file.exists():
        return False
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            row = database.execute("select 1 from sqlite_master where name = 'iceberg_tables'").fetchone()
    except sqlite3.Error:
        return True  # Iceberg will report what is wrong with it.
    return row is not None
