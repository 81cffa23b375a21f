"""The Leadership port by processes that are killed, frozen and cut off: one of them leads, and a table has one owner.

The processes do nothing else (`tests/fixtures/standbys.py`); the link between them and the electors are real.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from functools import partial

import pytest

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from frazil_ha.kafka import KafkaElector
from frazil_ha.postgres import PostgresElector
from packages.ha.tests.contracts.test_elector import election_database, uri_of  # noqa: F401  (a fixture)
from packages.ha.tests.fixtures.standbys import Make, Standby, leaders, standbys, wait_for_leader
from tests.fixtures.postgres import PostgresServer
from tests.fixtures.processes import frozen
from tests.fixtures.waiting import wait_until
from tests.integration.servers import Relay, free_port

TABLES = {f"a.t{number}": float(number % 7) for number in range(20)}


@pytest.fixture
def make(broker: EmbeddedBroker) -> Make:
    """Elections of a pipeline that nobody else has."""
    return partial(KafkaElector, {"bootstrap.servers": broker.bootstrap_servers}, f"lead-{new_id()[:8]}")


@pytest.fixture
def pair(make: Make) -> Iterator[tuple[Standby, Standby]]:
    """A leader, and a process that stands by."""
    with standbys([Standby(make), Standby(make)]) as running:
        leader = wait_for_leader(running)
        yield leader, next(one for one in running if one is not leader)


def _takeover_s(killed_s: float, heirs: Sequence[Standby]) -> float:
    """How long after that moment one of them owned something."""
    [heir] = wait_until(lambda: leaders(heirs), "another leads")
    return next(report.at_s for report in heir.reports if report.owned and report.at_s > killed_s) - killed_s


def test_of_processes_started_in_one_moment_one_leads(make: Make) -> None:
    with standbys(Standby(make) for _ in range(3)) as running:
        leader = wait_for_leader(running)
        assert [one.state.leader for one in running] == [leader.state.name] * 3
        assert sum(any(report.owned for report in one.reports) for one in running) == 1


def _kill(make: Make, times: int) -> list[float]:
    """How long each takeover took; a new process takes the place of each that was killed."""
    with standbys(Standby(make) for _ in range(3)) as running:
        took = []
        for _ in range(times):
            leader = wait_for_leader(running)
            running.remove(leader)
            took.append(_takeover_s(leader.kill(), running))
            running.append(Standby(make))
            running[-1].start()
        wait_for_leader(running)
        return took


def test_a_killed_leader_is_replaced_at_once(make: Make) -> None:
    took = _kill(make, 4)
    assert max(took) < 2, took


@pytest.mark.soak
def test_killed_leaders_are_replaced_at_once_again_and_again(make: Make) -> None:
    took = _kill(make, 50)
    assert statistics.median(took) < 0.5, took
    assert max(took) < 2, took


def test_postgres_elects_another_leader_at_once(election_database: PostgresServer) -> None:  # noqa: F811
    took = _kill(partial(PostgresElector, uri_of(election_database), f"lead-{new_id()[:8]}"), 3)
    assert max(took) < 2, took


def test_a_leader_continues_while_postgres_restarts(election_database: PostgresServer) -> None:  # noqa: F811
    make = partial(PostgresElector, uri_of(election_database), f"lead-{new_id()[:8]}")
    with standbys(Standby(make) for _ in range(2)) as running:
        leader = wait_for_leader(running)
        election_database.kill()
        election_database.start()
        assert wait_for_leader(running) is leader
        assert len(leaders(running)) == 1
        running.remove(leader)
        leader.kill()
        assert wait_until(lambda: leaders(running), "the database elects again", 20) == running


def test_a_frozen_leader_is_replaced_and_stands_by_when_it_continues(pair: tuple[Standby, Standby]) -> None:
    leader, other = pair
    frozen_s = time.monotonic()
    with frozen(leader.pid):
        assert _takeover_s(frozen_s, [other]) < 3
        assert other.state.reason == "forced"
    assert wait_for_leader(pair) is other


def test_a_leader_that_stands_down_is_replaced_and_stands_by(pair: tuple[Standby, Standby]) -> None:
    leader, other = pair
    asked_s = time.monotonic()
    leader.call("stand_down", "an operator has asked for it")
    assert _takeover_s(asked_s, [other]) < 2
    assert other.state.reason == "released"
    assert wait_for_leader(pair) is other


def test_a_leader_that_ends_by_itself_is_replaced(pair: tuple[Standby, Standby]) -> None:
    leader, other = pair
    leader.close()
    wait_for_leader(pair)
    assert other.state.reason == "released"


def test_a_process_alone_leads_again_after_standing_down(make: Make) -> None:
    with standbys([Standby(make)]) as [alone]:
        wait_for_leader([alone])
        alone.call("stand_down", "an operator has asked for it")
        time.sleep(0.5)
        assert wait_for_leader([alone]) is alone


def test_a_fenced_leader_stands_by_for_another_and_ends_where_there_is_none(pair: tuple[Standby, Standby]) -> None:
    leader, other = pair
    assert leader.call("fenced", "a.t")
    wait_until(lambda: other.owned, "the other leads")
    assert wait_for_leader(pair) is other
    leader.kill()
    wait_until(lambda: len(other.state.members) == 1, "it is alone")
    assert other.call("fenced", "a.t"), "whoever is gone may have been the one that wrote the table"
    wait_until(lambda: not other.call("fenced", "a.t"), "nobody has come back")


@pytest.fixture
def relayed(make: Make) -> Iterator[tuple[list[Standby], list[Relay]]]:
    """Two processes that reach each other by ways that can be cut."""
    ports = [free_port(), free_port()]
    ways = [Relay(port) for port in ports]
    for way in ways:
        way.join()
    processes = [Standby(make, ports=(port, way.port)) for port, way in zip(ports, ways, strict=True)]
    with standbys(processes) as running:
        wait_for_leader(running)
        yield running, ways
    for way in ways:
        way.cut()


def test_a_connection_that_merely_broke_changes_nothing(relayed: tuple[list[Standby], list[Relay]]) -> None:
    running, ways = relayed
    leader = wait_for_leader(running)
    for _ in range(3):
        for way in ways:
            way.sever()
        time.sleep(0.5)
    assert wait_for_leader(running) is leader
    assert leader.state.reason == "start"


def test_processes_that_are_cut_off_from_each_other_change_the_leader_once(
    relayed: tuple[list[Standby], list[Relay]],
) -> None:
    running, ways = relayed
    leader = wait_for_leader(running)
    [other] = [one for one in running if one is not leader]
    with ways[0].silent(), ways[1].silent():
        wait_until(lambda: leaders(running) == [other], "the other leads alone")
        time.sleep(8)  # Longer than the group's session: a leader that lives is not replaced.
        assert leaders(running) == [other]
        assert (
            sum(report.owned != frozenset() for report in leader.reports[-20:] if report.state.reason == "forced") == 0
        )
        assert other.state.reason == "forced"
    assert wait_for_leader(running) is other


@pytest.mark.parametrize("away_s", [3, pytest.param(60, marks=pytest.mark.soak)])
def test_a_leader_that_dies_while_the_broker_is_away_is_replaced_when_it_is_back(
    pair: tuple[Standby, Standby], broker: EmbeddedBroker, away_s: float
) -> None:
    leader, other = pair
    with frozen(broker.pid):
        leader.kill()
        time.sleep(away_s)
        assert not other.owned
    wait_until(lambda: other.owned, "the other leads")


def _owners(running: Sequence[Standby]) -> dict[str, str]:
    return {table: one.state.name for one in running for table in one.owned}


def _check_no_two_owned(running: Sequence[Standby]) -> None:
    """No table had two owners at one moment, by the reports of all processes in their order in time."""
    moments = sorted(
        (report.at_s, number, report.owned) for number, one in enumerate(running) for report in one.reports
    )
    owned: dict[int, frozenset[str]] = {}
    for _, number, tables in moments:
        owned[number] = tables
        assert sum(map(len, owned.values())) == len(frozenset().union(*owned.values()))


def test_tables_are_spread_and_move_one_owner_at_a_time(make: Make) -> None:
    with standbys(Standby(make, TABLES, "spread") for _ in range(2)) as running:
        wait_until(lambda: len(_owners(running)) == len(TABLES) and all(one.owned for one in running), "all own")
        running.append(Standby(make, TABLES, "spread"))
        running[-1].start()
        wait_until(
            lambda: len(_owners(running)) == len(TABLES) and all(one.owned for one in running), "all three own", 30
        )
        _check_no_two_owned(running)
        wait_until(lambda: all(one.state.owners == _owners(running) for one in running), "all know who owns what")
        for victim in ("leader", "other"):
            [lost, *_] = sorted(running, key=lambda one: (one.state.leader == one.state.name) != (victim == "leader"))
            running.remove(lost)
            kept = [one.owned for one in running]
            killed_s = lost.kill()
            wait_until(lambda: len(_owners(running)) == len(TABLES), "the others own its tables")
            assert max(one.reports[-1].at_s for one in running) - killed_s < 3
            assert all(before <= one.owned for before, one in zip(kept, running, strict=True))
