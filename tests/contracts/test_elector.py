"""The Elector port, in memory, on a real broker, a real PostgreSQL and the Lease of an API server: one claim follows
another, whoever claims at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from frazil.clock import new_id
from frazil.ha.elector import Claim, Elector
from frazil.ha.kafka import KafkaElector
from frazil.ha.memory import MemoryElector, MemoryRegister
from frazil.ha.postgres import PostgresElector
from frazil.runtime.broker import EmbeddedBroker
from tests.fixtures.postgres import DATABASE, PostgresServer
from tests.fixtures.standbys import Make
from tests.fixtures.waiting import wait_until


@pytest.fixture(scope="session")
def election_database() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(params=["memory", "kafka", "postgres"])
def make(request: pytest.FixtureRequest) -> Make:
    """Makes electors of one pipeline that nobody else has."""
    pipeline = f"elect-{new_id()[:8]}"
    if request.param == "memory":
        return partial(MemoryElector, MemoryRegister())
    if request.param == "kafka":
        broker: EmbeddedBroker = request.getfixturevalue("broker")
        return partial(KafkaElector, {"bootstrap.servers": broker.bootstrap_servers}, pipeline)
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
    assert one.claim(third := _claim("one"), after)
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
    wait_until(lambda: (one.newest(), other.is_present(claim))[1], "the other is present", 20)
    one.close()
    wait_until(lambda: not other.is_present(claim), "it has left", 20)
    assert not other.is_present(_claim("nobody"))
