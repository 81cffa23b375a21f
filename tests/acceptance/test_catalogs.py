"""The same scenarios on a real server of every kind of catalog. SQLite and REST, which all other tests use, are left to
`make catalogs`, with the longer scenarios. In time Hive's metastore stands for the others, and nothing is killed: each has
its own answers in unit/catalog/test_answers.py, and drivers die between a commit and its answer in test_upserts.py.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyiceberg.types import LongType

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.layout import Layout
from frazil.clock import new_id
from frazil.errors import SpecError
from frazil.plugins.catalogs import CATALOGS
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.light_jvm import LightJvm
from frazil.runtime.properties import catalog_properties, spark_conf, uses_aws
from frazil.schema.evolve import new_schema
from frazil.spec import PipelineSpec, load_spec
from frazil.spec.partitioning import parse_term
from tests.acceptance.catalogs import KINDS, AnyLake, GlueLake, HiveLake, NessieLake, running_lake
from tests.acceptance.ledger import events
from tests.acceptance.pipelines import Pipeline, opened
from tests.acceptance.proxy import LossyRelay
from tests.acceptance.running import Run
from tests.acceptance.scenes import BLOWS, Contested, Struck
from tests.acceptance.verifier import open_table
from tests.fixtures.foreign_spark import ForeignSpark
from tests.fixtures.glue_proxy import GlueProxy
from tests.fixtures.jvms import light_jvm
from tests.integration.servers import HOST

pytestmark = pytest.mark.timeout(900)

USED_ELSEWHERE = ("jdbc on SQLite", "rest")
IN_TIME = "hive"


def _marks(kind: str) -> list[pytest.MarkDecorator]:
    """For `make catalogs`, for `make test-all`, or none."""
    if kind in USED_ELSEWHERE:
        return [pytest.mark.soak]
    return [] if kind == IN_TIME else [pytest.mark.slow]


@pytest.fixture(
    scope="module",
    params=[pytest.param(kind, marks=_marks(kind)) for kind in KINDS],
)
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnyLake]:
    """The server of a catalog."""
    with running_lake(request.param, tmp_path_factory.mktemp("lake")) as running:
        yield running


@pytest.fixture(scope="module")
def spec(lake: AnyLake, tmp_path_factory: pytest.TempPathFactory) -> PipelineSpec:
    """A pipeline file with the catalog."""
    file = tmp_path_factory.mktemp("file") / "frazil.yaml"
    conf = {"spark": {"conf": dict(lake.conf)}} if lake.conf else {}
    document = {"pipeline": "p", "kafka": {"bootstrap.servers": "localhost:9"}, "tables": {"t.any": {"topic": "any"}}}
    file.write_text(yaml.safe_dump({**document, **conf, "catalog": lake.section()}))
    with _environment(lake):
        return load_spec(file)


@pytest.fixture(scope="module")
def jvm(lake: AnyLake, spec: PipelineSpec) -> Iterator[LightJvm]:
    """As commands have one for this catalog."""
    with ExitStack() as started:
        with _environment(lake):
            running = started.enter_context(
                light_jvm(uses_aws(spec), spec.catalog.kind.needs_spark_jars, spark_conf(spec))
            )
        running.listen()
        yield running


@pytest.fixture(scope="module")
def catalog(jvm: LightJvm, spec: PipelineSpec) -> IcebergCatalog:
    """As commands open it."""
    return IcebergCatalog(jvm.gateway, spec.pipeline, catalog_properties(spec), jvm.hadoop)


@pytest.fixture
def pipeline(lake: AnyLake, broker: EmbeddedBroker, spark: ForeignSpark, tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline with a namespace of its own in the catalog."""
    with opened(tmp_path, broker.bootstrap_servers, spark, lake) as made:
        made.document["spark"]["conf"] |= lake.conf
        yield made


class Shop:
    """A table of events and an upsert table of orders, which are fed twice; the second events have another column."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.table, self.topic = pipeline.add_fed_table("events", partition_by=["bucket(id, 4)"])
        self.orders = pipeline.new_topic("orders", 1)
        self.upserts = pipeline.add_table("orders", self.orders, mode="upsert", key_columns=["id"])
        self.feed(range(50), events(200))

    def feed_again(self) -> None:
        self.feed(range(50, 95), events(200, 200, more="new"))

    def feed(self, orders: range, records: Iterable[dict[str, Any]]) -> None:
        self.pipeline.feed.produce(self.topic, records)
        self.pipeline.feed.produce(self.orders, ({"id": n % 10, "v": n} for n in orders))

    def check(self, jvm: LightJvm) -> None:
        pipeline = self.pipeline
        pipeline.check(self.table)
        metadata = pipeline.current(self.upserts)
        assert metadata is not None
        rows = open_table(metadata).scan().to_arrow().to_pylist()
        assert {row["id"]: row["v"] for row in rows} == {n % 10: n for n in range(95)}
        assert len(rows) == 10
        pipeline.check_readers(self.upserts)
        reported = pipeline.command_on(jvm, "status")["tables"]
        assert {name: found["rows"] for name, found in reported.items()} == {self.table: 400, self.upserts: 10}
        assert all(check["ok"] for check in pipeline.command_on(jvm, "check")["checks"])


def wait_until_committed(run: Run, counts: Mapping[str, int]) -> None:
    """Waits until the process has committed so many records of each table."""

    def are_committed() -> bool:
        found = {name: sum(one["records"] for one in run.seen("batch_committed", table=name)) for name in counts}
        return found == counts

    run.wait_while_running(are_committed, f"{counts} are committed")


@pytest.mark.parametrize("lake", [IN_TIME], indirect=True)
def test_tables_are_created_appended_to_evolved_and_upserted_to(pipeline: Pipeline, jvm: LightJvm) -> None:
    shop = Shop(pipeline)
    with pipeline.running() as run:
        # By the log: who asks the catalog meets a table whose creation is not finished.
        wait_until_committed(run, {shop.table: 200, shop.upserts: 50})
        shop.feed_again()
        wait_until_committed(run, {shop.table: 400, shop.upserts: 95})
        assert run.stop() == 0, run.tail()
    shop.check(jvm)


@pytest.mark.slow  # In time: the same without a kill, above.
def test_a_pipeline_is_killed_and_continues_in_every_catalog(pipeline: Pipeline, jvm: LightJvm) -> None:
    """Tables are created, appended to, evolved and upserted to; the driver is killed between a commit and its answer."""
    shop = Shop(pipeline)
    with pipeline.running("--until-caught-up", failpoints="commit.landed=kill") as run:
        assert run.wait() == -signal.SIGKILL, run.tail()
    shop.feed_again()
    pipeline.catch_up()
    shop.check(jvm)


@pytest.mark.soak
@pytest.mark.parametrize("blow", BLOWS, ids=", ".join)
def test_a_driver_killed_at_any_step_loses_and_doubles_nothing(pipeline: Pipeline, blow: Sequence[str]) -> None:
    Struck(pipeline, ["both"], blow).kill_driver(blow, "both")


@pytest.mark.soak
def test_of_two_processes_the_later_one_continues(pipeline: Pipeline) -> None:
    contested = Contested(pipeline)
    contested.freeze_while_another_runs("commit.validating")
    contested.end()


@pytest.mark.soak
def test_a_table_is_partitioned_rolled_back_and_maintained(pipeline: Pipeline, catalog: IcebergCatalog) -> None:
    pipeline.document["maintenance"] = {"min_input_files": 3, "snapshots": {"count": 3}}
    table, topic = pipeline.add_fed_table("events", 1)
    with pipeline.running() as run:
        for number in range(5):
            pipeline.feed.produce(topic, events(50, number * 50))
            pipeline.wait_for_commit_of(table, run)
        assert run.stop() == 0, run.tail()
    pipeline.document["tables"][table]["partition_by"] = ["bucket(id, 2)"]
    pipeline.feed.produce(topic, events(50, 250))
    pipeline.catch_up()
    pipeline.check(table)
    _roll_back(catalog, table)
    assert pipeline.verify(table).row_count == 250
    pipeline.catch_up()
    pipeline.check(table)
    planned = pipeline.command("maintain", "--dry-run")["tables"][table]["actions"]
    assert [action["action"] for action in planned][:1] == ["compact"]
    done = pipeline.command("maintain")["tables"][table]
    assert [action["failure"] for action in done["actions"]] == [""] * len(done["actions"])
    pipeline.check(table)
    pipeline.feed.produce(topic, events(50, 300))
    pipeline.catch_up()
    pipeline.check(table)


@pytest.mark.soak
def test_dead_letters_are_kept_and_replayed(pipeline: Pipeline) -> None:
    topic = pipeline.new_topic("bad", 1)
    table = pipeline.add_table("bad", topic, dead_letters={"stop_above": "100%"})
    pipeline.feed.produce(topic, events(5))
    pipeline.feed_elsewhere(topic, [None])
    pipeline.catch_up()
    assert pipeline.command("status")["tables"][table]["dead_letters"] == 1
    pipeline.document["tables"][table]["tombstones"] = "row"
    pipeline.command("dead-letters", "replay", table)
    reported = pipeline.command("status")["tables"][table]
    assert (reported["dead_letters"], reported["rows"]) == (0, 6)


@pytest.mark.parametrize(
    "lake",
    [pytest.param(kind, marks=_marks(kind)) for kind in ("jdbc on PostgreSQL", "hive", "nessie")],
    indirect=True,
)
def test_a_view_is_not_taken_for_a_table(catalog: IcebergCatalog) -> None:
    table = f"v{new_id()[:8]}.orders"
    catalog.create(f"{table}_of_iceberg", new_schema([("id", LongType())]), {}, 2)
    identifier, java = catalog._identifier(table), catalog._catalog
    view = java.buildView(identifier).withSchema(catalog.java_table(f"{table}_of_iceberg").schema())
    view.withDefaultNamespace(identifier.namespace()).withQuery("spark", "select 1 as id").create()
    with pytest.raises(SpecError) as refused:
        catalog.load(table)
    assert (refused.value.message, refused.value.where) == (
        "the catalog has a view of this name, and Frazil writes to Iceberg tables",
        table,
    )
    assert java.dropView(identifier)
    assert catalog.load(table) is None


@pytest.mark.parametrize("lake", [IN_TIME], indirect=True)
def test_a_table_whose_creation_is_not_answered_can_be_used(lake: HiveLake, jvm: LightJvm) -> None:
    """Iceberg sends the request again, is refused, and deletes the metadata file of the table that it has just created."""
    way, namespace = LossyRelay(lake.server.port, rb"alter_table|create_table"), f"u{new_id()[:8]}"
    properties = {"type": "hive", "uri": f"thrift://{HOST}:{way.port}", "warehouse": str(lake.warehouse)}
    hadoop = {**jvm.hadoop, "hive.metastore.client.socket.timeout": "2s"}
    columns = new_schema([("id", LongType())])
    metadata_files = []
    catalog = IcebergCatalog(jvm.gateway, "p", properties, hadoop)
    for number, fault in enumerate(way.faults):
        table = f"{namespace}.t{number}"
        with way.faulty(fault):
            catalog.create(table, columns, {"owner": "us"}, 2, Layout((parse_term("bucket(id, 4)"),)))
        assert way.met[fault] >= 1, fault
        seen = IcebergCatalog(jvm.gateway, "q", properties, hadoop).load(table)
        assert seen is not None, fault
        assert (seen.schema.column_names, len(seen.partitioning.fields)) == (columns.column_names, 1)
        assert (seen.properties["owner"], seen.location.rpartition("/")[2]) == ("us", f"t{number}")
        metadata_files.append(lake.locations(namespace)[table])
    way.close()
    assert all(f"/t{number}/metadata/00000-" in file for number, file in enumerate(metadata_files))


@pytest.mark.slow  # In no quicker one: it needs a second server. Its remedy: unit/remedies.
@pytest.mark.parametrize("lake", ["nessie"], indirect=True)
def test_the_rest_endpoint_of_nessie_is_refused(lake: NessieLake) -> None:
    kind = CATALOGS.get("rest")
    with light_jvm(needs_s3=True) as jvm, pytest.raises(SpecError) as refused:
        IcebergCatalog(jvm.gateway, "p", {**kind.properties, "uri": lake.server.rest}, {})
    assert "shows only the newest snapshot" in refused.value.message
    assert "`type: nessie`" in refused.value.remedy


@pytest.mark.slow  # In time: its refusal in a pipeline file, unit/spec/test_refusals.py.
@pytest.mark.parametrize("lake", ["glue"], indirect=True)
def test_glue_keeps_commits_of_others_without_a_lock_alone(lake: GlueLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit of another process lands while an update is on its way, as it may once a lock has expired."""
    for name, value in lake.environment().items():
        monkeypatch.setenv(name, value)
    direct = {**CATALOGS.get("glue").properties, **lake.properties(), "warehouse": "s3://lake/glue"}
    direct["glue.endpoint"] = direct["dynamodb.endpoint"] = lake.server.url
    lock = {"lock-impl": "org.apache.iceberg.aws.dynamodb.DynamoDbLockManager", "lock.table": "locks"}
    way, kept = GlueProxy(lake.server.port), {}
    with light_jvm(needs_s3=True) as jvm:
        for name, properties in (("without", {}), ("with", lock)):
            table = f"g{new_id()[:8]}.orders"
            mine = IcebergCatalog(jvm.gateway, "p", {**direct, **properties, "glue.endpoint": way.url}, {})
            mine.create(table, new_schema([("id", LongType())]), {}, 2)
            other = IcebergCatalog(jvm.gateway, "p", direct, {}).java_table(table)
            way.before_update = other.updateProperties().set("of-another", "x").commit
            mine.java_table(table).updateProperties().set("mine", "x").commit()
            found = mine.java_table(table).properties()
            kept[name] = "of-another" in found
            assert "mine" in found
    way.close()
    assert kept == {"without": True, "with": False}


def _roll_back(catalog: IcebergCatalog, table: str) -> None:
    """Makes the snapshot before the newest one the current one, as an operator does with Iceberg's own API."""
    java = catalog.java_table(table)
    java.manageSnapshots().rollbackTo(java.currentSnapshot().parentId()).commit()


@contextmanager
def _environment(lake: AnyLake) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in lake.environment().items():
            patch.setenv(name, value)
        yield
