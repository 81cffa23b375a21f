"""The Elector port, in memory, on a real broker, a real PostgreSQL and the Lease of an API server: one claim follows
another, whoever claims at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from frazil.clock import new_id
from frazil.errors import SpecError, UnavailableError
from frazil.runtime.broker import EmbeddedBroker
from frazil_ha.elector import Claim, Elector
from frazil_ha.kafka import KafkaElector, control_topic
from frazil_ha.kubernetes import LeaseElector
from frazil_ha.memory import MemoryElector, MemoryRegister
from frazil_ha.postgres import PostgresElector
from packages.ha.tests.fixtures.lease_server import LeaseServer
from packages.ha.tests.fixtures.standbys import Make
from tests.fixtures.postgres import DATABASE, PostgresServer
from tests.fixtures.waiting import wait_until


@pytest.fixture(scope="session")
def election_database() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def lease_server(tmp_path: Path) -> Iterator[LeaseServer]:
    server = LeaseServer(tmp_path)
    yield server
    server.close()


@pytest.fixture(params=["memory", "kafka", "postgres", "kubernetes"])
def make(request: pytest.FixtureRequest) -> Make:
    """Makes electors of one pipeline that nobody else has."""
    pipeline = f"elect-{new_id()[:8]}"
    if request.param == "memory":
        return partial(MemoryElector, MemoryRegister())
    if request.param == "kafka":
        broker: EmbeddedBroker = request.getfixturevalue("broker")
        return partial(KafkaElector, {"bootstrap.servers": broker.bootstrap_servers}, pipeline)
    if request.param == "kubernetes":
        leases: LeaseServer = request.getfixturevalue("lease_server")
        return partial(LeaseElector, leases.environment, pipeline, account=leases.account)
    server: PostgresServer = request.getfixturevalue("election_database")
    return partial(PostgresElector, uri_of(server), pipeline)


def uri_of(server: PostgresServer) -> str:
    return f"postgresql://postgres@127.0.0.1:{server.port}/{DATABASE}"


@pytest.fixture
def two(make: Make) -> Iterator[tuple[Elector, Elector]]:
    """Those of two processes."""
    electors = make("one"), make("two")
    for elector in electors:
        elector.prepare()
    yield electors
    for elector in electors:
        elector.close()


def _claim(name: str) -> Claim:
    return Claim(name, "127.0.0.1:7000", new_id(), 1_790_000_000_000, "start")


def _sees(elector: Elector, claim: Claim) -> Claim:
    """The newest claim, once it is the one that was made."""

    def newest() -> Claim | None:
        found = elector.newest()
        return found if found is not None and found.key == claim.key else None

    return wait_until(newest, "the claim is seen", 20)


def test_a_claim_is_seen_by_all_and_the_next_one_has_a_greater_number(two: tuple[Elector, Elector]) -> None:
    one, other = two
    assert one.newest() is other.newest() is None
    first, second = _claim("one"), _claim("two")
    assert one.claim(first, None)
    seen = _sees(other, first)
    assert (seen.name, seen.address, seen.cause) == ("one", "127.0.0.1:7000", "start")
    assert other.claim(second, seen)
    assert _sees(one, second).number > seen.number


def test_a_claim_after_another_than_the_newest_is_refused(two: tuple[Elector, Elector]) -> None:
    one, other = two
    first, second = _claim("one"), _claim("two")
    assert one.claim(first, None)
    assert not other.claim(second, None)
    assert _sees(other, first).name == "one"
    after = _sees(one, first)
    third = _claim("one")
    assert one.claim(third, after)
    assert not other.claim(second, after)
    assert _sees(other, third) == _sees(one, third)


def test_of_claims_at_one_moment_one_is_made(two: tuple[Elector, Elector]) -> None:
    with ThreadPoolExecutor(2) as both:
        after = None
        for _ in range(3):
            claims = _claim("one"), _claim("two")
            made = list(both.map(lambda elector, claim, last: elector.claim(claim, last), two, claims, (after, after)))
            assert sorted(made) == [False, True]
            after = _sees(two[made.index(False)], claims[made.index(True)])
            assert _sees(two[made.index(True)], claims[made.index(True)]) == after


def test_a_process_is_present_until_it_leaves(two: tuple[Elector, Elector]) -> None:
    one, other = two
    claim = _claim("one")
    assert one.claim(claim, None)
    wait_until(lambda: (one.newest(), other.is_present(claim))[1], "the other is present", 20)
    one.close()
    wait_until(lambda: (other.newest(), not other.is_present(claim))[1], "it has left", 20)


def test_a_register_can_be_checked_before_it_is_made_and_a_check_changes_nothing(make: Make) -> None:
    checking = make("check")
    before = checking.check()
    assert checking.check() == before
    checking.close()
    one = make("one")
    one.prepare()
    assert one.newest() is None
    claim = _claim("one")
    assert one.claim(claim, None)
    made = _sees(one, claim)
    checking = make("check")
    after = checking.check()
    checking.close()
    assert one.newest() == made
    assert "does not exist" not in after
    one.close()


def test_a_claim_keeps_the_tables_that_tell_pipelines_apart(two: tuple[Elector, Elector]) -> None:
    one, other = two
    claim = replace(_claim("one"), tables=("a.t in lake", "a.u in lake"))
    assert one.claim(claim, None)
    assert _sees(other, claim).tables == claim.tables


def test_a_control_topic_of_several_partitions_is_refused_until_it_has_one(broker: EmbeddedBroker) -> None:
    pipeline = f"elect-{new_id()[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    topic = f"frazil-{pipeline}-ha"
    admin.create_topics([NewTopic(topic, 2)])[topic].result(20)
    elector = KafkaElector({"bootstrap.servers": broker.bootstrap_servers}, pipeline, "one")
    with pytest.raises(SpecError, match="must have one partition"):
        elector.check()
    with pytest.raises(SpecError, match="must have one partition") as refused:
        elector.prepare()
    assert f"--topic {topic} --partitions 1" in refused.value.remedy
    admin.delete_topics([topic])[topic].result(20)
    wait_until(lambda: topic not in admin.list_topics(timeout=10).topics, "it is gone", 20)
    elector.prepare()
    assert elector.newest() is None
    elector.close()


def test_a_broker_that_creates_topics_by_itself_makes_none_of_a_question(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, properties={"auto.create.topics.enable": "true", "num.partitions": "3"}) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        elector = KafkaElector(servers, "p", "one")
        elector.check()
        elector.prepare()
        elector.close()
        topics = AdminClient({**servers}).list_topics(timeout=10).topics
        assert len(topics["frazil-p-ha"].partitions) == 1


def test_a_database_that_is_away_is_an_outage() -> None:
    with pytest.raises(UnavailableError, match="PostgreSQL cannot elect a leader"):
        PostgresElector("postgresql://postgres@127.0.0.1:1/frazil", "p", "one").check()
    with pytest.raises(UnavailableError, match="PostgreSQL cannot elect a leader"):
        PostgresElector("postgresql://postgres@127.0.0.1:1/frazil", "p", "one").prepare()


def test_a_user_that_may_not_create_the_table_is_refused_until_it_exists(election_database: PostgresServer) -> None:
    with election_database.connected() as owner:
        owner.run("create database strict")
    with election_database.connected("strict") as owner:
        owner.run("create role least login")
        uri = f"postgresql://least@127.0.0.1:{election_database.port}/strict"
        with pytest.raises(SpecError, match="the database refuses") as refused:
            PostgresElector(uri.replace("strict", "none"), "p", "one").prepare()
        assert refused.value.remedy == "correct `ha.uri`"
        elector = PostgresElector(uri, "p", "one")
        with pytest.raises(SpecError, match="the table does not exist, and this user may not create it"):
            elector.check()
        with pytest.raises(SpecError, match="the database refuses an election") as refused:
            elector.prepare()
        assert "create the table frazil_leader, and grant select, insert, update" in refused.value.remedy
        owner.run("create table frazil_leader (pipeline text primary key, number bigint not null, claim text not null)")
        owner.run("grant select, insert on frazil_leader to least")
        with pytest.raises(SpecError, match="this user has no right to update"):
            elector.check()
        owner.run("grant update on frazil_leader to least")
    assert elector.check() == "table frazil_leader, which this user may read and write"
    elector.prepare()
    claim = _claim("one")
    assert elector.claim(claim, None)
    assert _sees(elector, claim).number == 1
    elector.close()


def test_a_lease_needs_a_cluster_and_a_role(lease_server: LeaseServer) -> None:
    with pytest.raises(SpecError, match="for processes in a cluster"):
        LeaseElector({}, "p", "one").prepare()
    token = lease_server.account / "token"
    allowed = token.read_text()
    token.write_text("another")
    elector = LeaseElector(lease_server.environment, "p", "one", lease_server.account)
    elector.prepare()
    with pytest.raises(SpecError, match="may not use its lease") as refused:
        elector.newest()
    assert "get, create and update on leases" in refused.value.remedy
    token.write_text(allowed)
    for method in ("GET", "POST", "PUT"):
        lease_server.denied = {method}
        with pytest.raises(SpecError, match="may not use its lease"):
            elector.check()
    lease_server.denied = set()
    assert elector.check() == "lease frazil-p, which this service account may create"
    assert lease_server.leases == {}
    assert elector.newest() is None
    elector.close()


def test_a_process_that_has_left_is_present_again_once_it_is_back(two: tuple[Elector, Elector]) -> None:
    """Its service hung, and does no more."""
    one, other = two
    claim = _claim("one")
    assert one.claim(claim, None)
    one.close()
    wait_until(lambda: (other.newest(), not other.is_present(claim))[1], "it has left", 20)
    one.prepare()
    assert _sees(one, claim).name == "one"
    wait_until(lambda: (one.newest(), other.is_present(claim))[1], "it is present", 20)


@pytest.mark.parametrize("failure", [0, 503])
def test_an_api_server_that_is_away_is_an_outage_and_the_claim_remains(lease_server: LeaseServer, failure: int) -> None:
    one, other = (LeaseElector(lease_server.environment, "p", name, lease_server.account) for name in ("one", "two"))
    for elector in (one, other):
        elector.prepare()
    claim = _claim("one")
    assert one.claim(claim, None)
    lease_server.failure = failure
    for ask in (one.newest, one.check, lambda: other.claim(_claim("two"), None), lambda: other.is_present(claim)):
        with pytest.raises(UnavailableError, match="Kubernetes cannot elect a leader") as away:
            ask()
        assert away.value.remedy == "Frazil retries; look at the API server of the cluster"
    lease_server.failure = None
    made = _sees(other, claim)
    assert other.is_present(made)
    assert not other.claim(_claim("two"), None), "the leader continues"
    one.close()
    assert not other.is_present(made)
    assert other.claim(_claim("two"), made)
    other.close()


def test_a_register_with_what_is_no_claim_elects_again_once_that_is_deleted(
    election_database: PostgresServer, lease_server: LeaseServer
) -> None:
    database = PostgresElector(uri_of(election_database), "scribbled", "one")
    database.prepare()
    assert database.claim(_claim("one"), None)
    leases = LeaseElector(lease_server.environment, "p", "one", lease_server.account)
    leases.prepare()
    assert leases.claim(_claim("one"), None)
    with election_database.connected() as administrator:
        administrator.run("update frazil_leader set claim = 'hello' where pipeline = 'scribbled'")
        lease_server.leases["frazil-p"]["metadata"]["annotations"]["frazil/claim"] = "hello"
        for elector, remedy in ((database, "delete the row"), (leases, "delete the lease")):
            with pytest.raises(UnavailableError) as refused:
                elector.newest()
            assert refused.value.remedy == f"{remedy}; a leader claims again"
        administrator.run("delete from frazil_leader where pipeline = 'scribbled'")
        lease_server.leases.clear()
    for elector in (database, leases):
        elector.prepare()
        assert elector.newest() is None
        claim = _claim("one")
        assert elector.claim(claim, None)
        assert _sees(elector, claim).name == "one"
        elector.close()


def test_a_record_that_is_no_claim_keeps_nobody_from_the_election(broker: EmbeddedBroker) -> None:
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    pipeline = f"elect-{new_id()[:8]}"
    one, late = (KafkaElector(servers, pipeline, name) for name in ("one", "late"))
    one.prepare()
    claim = _claim("one")
    assert one.claim(claim, None)
    stranger = Producer(servers)
    for value in (b"hello", None):
        stranger.produce(control_topic(pipeline), value, b"key")
    assert stranger.flush(20) == 0
    late.prepare()
    seen = _sees(late, claim)
    second = _claim("late")
    assert late.claim(second, seen)
    assert _sees(one, second).name == "late"
    for elector in (one, late):
        elector.close()


def test_a_control_topic_that_is_deleted_is_made_again_and_elects(broker: EmbeddedBroker) -> None:
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    pipeline = f"elect-{new_id()[:8]}"
    electors = one, other = [KafkaElector(servers, pipeline, name) for name in ("one", "two")]
    for elector in electors:
        elector.prepare()
    claim, second = _claim("one"), _claim("two")
    assert one.claim(claim, None)
    seen = _sees(other, claim)
    admin = AdminClient({**servers})
    admin.delete_topics([control_topic(pipeline)])[control_topic(pipeline)].result(20)

    def follows() -> bool:
        """As the thread of an election does: after an outage it prepares again."""
        with suppress(UnavailableError):
            for elector in electors:
                elector.prepare()
                elector.newest()
            return other.claim(second, seen)
        return False

    wait_until(follows, "the next process claims", 30)
    assert _sees(one, second).name == "two"
    third = _claim("one")
    assert one.claim(third, _sees(one, second))
    assert _sees(other, third).name == "one"

    for elector in electors:
        elector.close()
