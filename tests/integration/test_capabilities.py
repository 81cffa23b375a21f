"""What Frazil does without where a catalog refuses it, and what it reports where it cannot: simulated services
in front of Iceberg's own REST server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyiceberg.catalog.rest import RestCatalog

from frazil.catalog.iceberg.catalog import IcebergCatalog
from frazil.catalog.iceberg.maintenance import IcebergMaintenance
from frazil.catalog.port import TableState
from frazil.clock import SystemClock, new_id
from frazil.dead_letters.tables import DELETES_OLD, create_table
from frazil.errors import SpecError, UnavailableError
from frazil.maintenance.plan import MaintenanceTask
from frazil.maintenance.run import MaintainedTable, MaintenanceRunner
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.light_jvm import LightJvm
from frazil.spec.settings import MaintenanceSpec, OrphansSpec, SnapshotsSpec
from tests.contracts.tables import SCHEMA, commit_of
from tests.fixtures.gatekeeper import CLIENT, SECRET, OAuth2Gatekeeper, OwnReply, refusal
from tests.fixtures.jvms import light_jvm
from tests.fixtures.services import (
    DEMANDS_LOCATION,
    HAS_ONE_LEVEL,
    ONLY_READS,
    REFUSES_FORMAT_3,
    REFUSES_LOCATION,
    SIMULATED,
    Habit,
    Request,
    Service,
    may_not,
    refuses_properties,
    shows_one_snapshot,
)
from tests.integration.pipelines import Ledger, Pipeline
from tests.integration.servers import RestCatalogServer, assert_whole, pipeline_on

REMEDY = "correct what the catalog names: the table's name, `properties`, `format_version` or `location`"


@pytest.fixture(scope="module")
def small_jvm() -> Iterator[LightJvm]:
    """A JVM whose catalogs can commit."""
    with light_jvm() as running:
        running.listen()
        yield running


class Client:
    """A pipeline's catalogs, each as a new process opens it."""

    def __init__(self, jvm: LightJvm, server: RestCatalogServer) -> None:
        self._jvm = jvm
        self._server = server
        self.folder = server.directory

    @contextmanager
    def of(self, *habits: Habit) -> Iterator[Service]:
        """A service with these habits."""
        service = Service(self._server.port, *habits)
        try:
            yield service
        finally:
            service.close()

    def open(self, service: Service) -> IcebergCatalog:
        """As a new process opens it."""
        return IcebergCatalog(self._jvm.gateway, "p", {"type": "rest", "uri": service.url}, {}, True)


@pytest.fixture
def client(small_jvm: LightJvm, server: RestCatalogServer) -> Client:
    return Client(small_jvm, server)


def make(catalog: IcebergCatalog, table: str = "", version: int = 2, **settings: Any) -> TableState:
    """As a run creates it. settings: `properties` and `location` of the pipeline file."""
    properties: Mapping[str, str] = settings.get("properties", {})
    name = table or f"n{new_id()[:8]}.t"
    return create_table(catalog, name, SCHEMA, properties, version, location=settings.get("location"))


def commit(catalog: IcebergCatalog, state: TableState, end: int = 5) -> None:
    """A batch of two rows."""
    catalog.commit(replace(commit_of(state, end), table=state.name))


@pytest.mark.parametrize("service_name", SIMULATED)
def test_a_table_is_created_and_committed_to_in_every_service(service_name: str, client: Client) -> None:
    with client.of(*SIMULATED[service_name]) as service:
        catalog, table = client.open(service), f"n{new_id()[:8]}.t"
        assert catalog.load(table) is None
        location = str(client.folder / table) if service_name == "Glue" else None
        state = make(catalog, table, location=location)
        commit(catalog, state)
        found = client.open(service).load(table)
        assert found is not None
        assert (found.progress.offsets["a"][0], found.history_lost) == (5, False)
        asked = [request.document for request in service.requests if request.creates_table]
    assert [one.get("location") for one in asked] == [location] * len(asked)
    assert not any(one.get("stage-create") for one in asked)
    assert (DELETES_OLD in found.properties) == (service_name != "Unity Catalog")
    assert len(asked) == (3 if service_name == "Unity Catalog" else 1)


@pytest.mark.parametrize(
    ("habit", "wrong", "words", "right"),
    [
        (refuses_properties("acme."), {"properties": {"acme.x": "1"}}, "unsupported table property: acme.x", {}),
        (refuses_properties("frazil."), {}, "unsupported table property: frazil.p.created", None),
        (REFUSES_FORMAT_3, {"version": 3}, "Unsupported format version: 3", {"version": 2}),
        (REFUSES_LOCATION, {"location": "HERE"}, "Custom locations are not supported", {}),
        (DEMANDS_LOCATION, {}, "location is required", {"location": "HERE"}),
        (HAS_ONE_LEVEL, {"table": "a.b.t"}, "Nested namespaces are not supported", {"table": "a_b.t"}),
    ],
)
def test_a_refused_table_stops_with_the_catalogs_words_until_the_file_is_corrected(
    habit: Habit, wrong: dict[str, Any], words: str, right: dict[str, Any] | None, client: Client
) -> None:
    here = str(client.folder / new_id())
    with client.of(habit) as service:
        catalog = client.open(service)
        with pytest.raises(SpecError) as refused:
            make(catalog, **_placed(wrong, here))
        assert words in refused.value.message
        assert refused.value.remedy == REMEDY
        asked = Counter(str(request.document) for request in service.requests if request.creates_table)
        assert len(asked) <= 2  # With the properties that Frazil adds, and without.
        assert set(asked.values()) <= {2}  # A refusal counts when it is repeated.
        if right is not None:
            assert make(catalog, **_placed(right, here)).progress.snapshot_id is None


def _placed(settings: Mapping[str, Any], here: str) -> dict[str, Any]:
    return {name: here if value == "HERE" else value for name, value in settings.items()}


def test_a_refusal_that_is_not_repeated_stops_no_table(client: Client) -> None:
    by_proxy = refusal(400, "BadRequestException", "by a proxy on the way")
    table, namespace = iter([by_proxy]), iter([by_proxy])

    def refuse(request: Request) -> OwnReply | None:
        if request.creates_namespace:
            return next(namespace, None)
        return next(table, None) if request.creates_table else None

    with client.of(Habit(refuse)) as service:
        assert make(client.open(service)).progress.snapshot_id is None
        assert [list(one) for one in (namespace, table)] == [[], []], "nothing was refused"


def test_a_missing_right_is_named_and_waited_for(client: Client) -> None:
    with client.of(may_not("POST")) as service, pytest.raises(UnavailableError) as refused:
        make(client.open(service))
    assert "not authorized" in refused.value.message
    assert "grant this user the right" in refused.value.remedy


def test_a_catalog_that_can_only_be_read_is_refused_when_it_is_opened(client: Client) -> None:
    with client.of(ONLY_READS) as service, pytest.raises(SpecError, match="can only be read") as refused:
        client.open(service)
    assert refused.value.remedy.startswith("correct `catalog.uri`")


@pytest.mark.parametrize("with_parent", [True, False])
def test_progress_below_the_one_snapshot_that_is_shown_is_lost_and_not_none(client: Client, with_parent: bool) -> None:
    with client.of(shows_one_snapshot(with_parent)) as service:
        catalog = client.open(service)
        state = make(catalog)
        assert not state.history_lost
        for end in (5, 7):
            commit(catalog, state, end)
            found = catalog.load(state.name)
            assert found is not None
            assert (found.progress.offsets["a"][0], found.history_lost) == (end, False)
            state = found
        catalog.java_table(state.name).newAppend().commit()
        found = client.open(service).load(state.name)
    assert found is not None
    assert (found.progress.snapshot_id, found.history_lost) == (None, True)


def test_nothing_is_removed_where_the_catalog_forbids_it(client: Client) -> None:
    """Lakekeeper's simulator puts `gc.enabled` in; files are compacted all the same."""
    with client.of(*SIMULATED["Lakekeeper"]) as service:
        catalog = client.open(service)
        state = make(catalog)
        for end in range(1, 5):
            commit(catalog, state, end)
            loaded = catalog.load(state.name)
            assert loaded is not None
            state = loaded
        spec = MaintenanceSpec(min_input_files=2, snapshots=SnapshotsSpec(kept=2), orphans=OrphansSpec(age_s=0.0))
        runner = MaintenanceRunner(IcebergMaintenance(catalog), "p", SystemClock())
        plan = runner.plan(MaintainedTable(state.name, MaintenanceTask(spec, 1024 * 1024)), "thorough")
    assert plan is not None
    assert {action.kind for action in plan.actions} == {"compact", "carry"}
    assert plan.waiting == ("nothing is removed from a table whose property gc.enabled is false",)


def _port_of(service: Service) -> int:
    port = urlsplit(service.url).port
    assert port is not None
    return port


def test_a_pipeline_runs_on_a_service_that_refuses_much_and_outlives_its_tokens(
    client: Client, server: RestCatalogServer, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Unity Catalog's simulator makes tables of format version 2 of those of 3: an upsert table uses position deletes. Its
    tokens last for four seconds, and are exchanged before.
    """
    ledger = Ledger(broker.bootstrap_servers, new_id())
    table = f"n{new_id()[:8]}.words"
    with client.of(*SIMULATED["Unity Catalog"]) as service, closing(OAuth2Gatekeeper(_port_of(service), 4)) as gate:
        log_in = {"credential": f"{CLIENT}:${{env:SECRET}}", "oauth2-server-uri": f"{gate.url}/oauth/tokens"}
        document = pipeline_on(server, ledger.servers, ledger.topic, {})
        document["catalog"] = {"type": "rest", "uri": gate.url, "properties": {**log_in, "scope": "lake"}}
        document["tables"][table] = {"topic": ledger.topic, "mode": "upsert", "key_columns": ["word"]}
        pipeline = Pipeline(tmp_path, document, {"SECRET": SECRET})
        with pipeline.start() as running:
            while len(gate.grants) < 5:
                ledger.produce(97)  # Each word once.
                running.wait_until_committed(2 * ledger.count)
            running.stop()
        assert set(gate.grants) == {"client_credentials", "token-exchange"}
        checks = {check["name"]: check for check in pipeline.checks()}
        with RestCatalog("reader", uri=service.url) as reader:
            rows = reader.load_table(table).scan().to_arrow().to_pylist()
    assert not running.events_named("table_backing_off") + running.events_named("service_unavailable")
    assert all(check["ok"] for check in checks.values())
    newest = range(ledger.count - 97, ledger.count)
    assert sorted((row["number"], row["word"]) for row in rows) == [(n, f"w{n % 97}") for n in newest]
    assert "has format version 2, which `format_version` does not change" in checks[f"table {table}"]["found"]
    for event in ("properties_refused", "other_format_version"):
        assert [one["table"] for one in running.events_named(event)].count(table) == 1
    assert_whole(server, ledger, {})
    assert SECRET not in pipeline.reported + pipeline.state_text
