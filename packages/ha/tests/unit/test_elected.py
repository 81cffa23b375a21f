"""Leadership of several processes that elect by a register in memory, and are linked by real connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Literal

import pytest

from frazil.clock import SystemClock
from frazil.errors import SpecError
from frazil.ingest.loop.leadership import Member
from frazil_ha import elected
from frazil_ha.elected import Elected
from frazil_ha.elector import Claim
from frazil_ha.link import Guest, Host
from frazil_ha.memory import MemoryElector, MemoryRegister
from tests.fixtures.waiting import wait_until

_CLOCK = SystemClock()
_TABLES = ("a.t1", "a.t2", "a.t3", "a.t4")
_SOON_S = 20.0


class Processes:
    """Those of a test, by name. Each is warm and has the same load of every table."""

    def __init__(self) -> None:
        self.register = MemoryRegister()
        self._open = ExitStack()

    def start(
        self, name: str, mode: Literal["lead", "spread"] = "lead", tables: tuple[str, ...] = (), *, is_warm: bool = True
    ) -> Elected:
        """tables: those of its pipeline file."""
        me = Member(name, "1", _CLOCK.now_ms(), is_warm=is_warm)
        made = Elected(MemoryElector(self.register, name), Host("127.0.0.1", 0, _CLOCK), me, mode, _CLOCK, tables)
        made.offer(dict.fromkeys(_TABLES, 1.0), is_warm=is_warm)
        made.start(lambda: None)
        self._open.callback(made.close)
        return made

    def pair(self, mode: Literal["lead", "spread"] = "lead") -> tuple[Elected, Elected]:
        """A leader, and a process that is linked with it."""
        leader = self.start("one", mode)
        wait_until(lambda: leader.owns("a.t1"), "it leads", _SOON_S)
        other = self.start("two", mode)
        both = (leader, other)
        wait_until(lambda: all(len(each.state.members) == 2 for each in both), "they know each other", _SOON_S)
        return leader, other

    def close(self) -> None:
        """Ends all that run."""
        self._open.close()


@pytest.fixture
def processes() -> Iterator[Processes]:
    made = Processes()
    yield made
    made.close()


def _owned(process: Elected) -> set[str]:
    return {table for table in _TABLES if process.owns(table)}


def _waits_to_own(process: Elected, tables: set[str] | None = None) -> None:
    wait_until(lambda: _owned(process) == set(tables or _TABLES), f"{process.state.name} owns them", _SOON_S)


def _never(happens: Callable[[], bool], for_s: float = 0.6) -> bool:
    """Whether it does not happen within the time: several turns of the election."""
    until_s = _CLOCK.monotonic_s() + for_s
    while _CLOCK.monotonic_s() < until_s:
        if happens():
            return False
        _CLOCK.sleep(0.02)
    return True


def test_one_process_leads_and_the_other_knows_it(processes: Processes) -> None:
    leader, other = processes.pair()
    assert (_owned(leader), _owned(other)) == (set(_TABLES), set())
    for process in (leader, other):
        state = process.state
        assert (state.elect, state.mode, state.leader, state.reason) == ("memory", "lead", "one", "start")
        assert [(one.name, one.is_warm) for one in state.members] == [("one", True), ("two", True)]
        assert state.owners is None


def test_tables_of_a_new_leader_are_taken_whatever_its_claims_number(
    processes: Processes,
) -> None:
    """Numbers begin again where the register was deleted and made anew, as the control topic of Kafka can be."""
    with ExitStack() as leaders:
        for name, table in (("first", "a.t1"), ("second", "a.t2")):
            host = Host("127.0.0.1", 0, _CLOCK)
            leaders.callback(host.close)
            beat = {"has_left": False, "members": [], "version": 7, "owners": {table: "two"}}
            host.serve(name, lambda _, sent=beat: sent, lambda: None)  # type: ignore[misc]
            claim = Claim(name, host.address, name, _CLOCK.now_ms(), "start", number=1)
            processes.register.present.add(name)
            processes.register.newest = claim
            if name == "first":
                follower = processes.start("two", "spread")
            _waits_to_own(follower, {table})


def test_a_leader_that_stands_down_is_followed_once_it_has_released_its_tables(processes: Processes) -> None:
    leader, other = processes.pair()
    leader.stand_down("an operator has requested it")
    assert _owned(leader) == set()
    assert _never(lambda: bool(_owned(other))), "a batch may be in hand"
    leader.release()
    _waits_to_own(other)
    assert (other.state.leader, other.state.reason) == ("two", "released")
    wait_until(lambda: leader.state.leader == "two", "the former leader knows it", _SOON_S)
    assert _owned(leader) == set()


def test_a_leader_that_ends_is_followed(processes: Processes) -> None:
    leader, other = processes.pair()
    leader.release()
    leader.close()
    _waits_to_own(other)
    assert other.state.reason == "released"


def test_a_leader_that_is_alone_takes_its_tables_again_after_standing_down(processes: Processes) -> None:
    alone = processes.start("one")
    _waits_to_own(alone)
    alone.stand_down("an operator has requested it")
    assert not alone.owns("a.t1")
    alone.release()
    _waits_to_own(alone)
    assert alone.state.reason == "start"


def test_a_process_that_is_not_warm_leaves_the_lead_to_one_that_is(processes: Processes) -> None:
    leader, warm = processes.pair()
    cold = processes.start("three", is_warm=False)
    wait_until(lambda: len(cold.state.members) == 3, "it is linked", _SOON_S)
    leader.release()
    leader.close()
    _waits_to_own(warm)
    assert _owned(cold) == set()


def test_while_the_elector_is_away_the_leader_continues_and_nobody_follows_it(processes: Processes) -> None:
    leader, other = processes.pair()
    processes.register.is_away = True
    assert _never(lambda: _owned(leader) != set(_TABLES))
    leader.stand_down("an operator has requested it")
    assert _owned(leader) == set()
    leader.release()
    assert _never(lambda: bool(_owned(other)))
    processes.register.is_away = False
    _waits_to_own(other)


def test_a_fenced_leader_stands_by_for_another_process(processes: Processes) -> None:
    leader, other = processes.pair()
    assert leader.fenced("a.t1")
    assert _owned(leader) == set()
    leader.release()
    _waits_to_own(other)


def test_a_fenced_leader_that_has_met_no_other_process_ends(processes: Processes) -> None:
    alone = processes.start("one")
    _waits_to_own(alone)
    assert not alone.fenced("a.t1")


def test_with_spread_a_table_changes_hands_once_its_owner_has_released_it(processes: Processes) -> None:
    first = processes.start("one", "spread")
    _waits_to_own(first)
    second = processes.start("two", "spread")
    wait_until(lambda: len(_owned(first)) == 2, "two tables are taken back", _SOON_S)
    moved = set(_TABLES) - _owned(first)
    assert _never(lambda: bool(_owned(second))), "the owner may have batches of them in hand"
    first.release()
    _waits_to_own(second, moved)
    assert _owned(first) == set(_TABLES) - moved
    wait_until(lambda: first.state.owners == second.state.owners, "both report the same owners", _SOON_S)
    assert first.state.owners == {table: "two" if table in moved else "one" for table in _TABLES}


def test_with_spread_the_tables_of_a_process_that_ends_go_to_the_others(processes: Processes) -> None:
    first = processes.start("one", "spread")
    _waits_to_own(first)
    second = processes.start("two", "spread")

    def is_even() -> bool:
        counts = [len(_owned(process)) for process in (first, second)]
        first.release()
        return counts == [2, 2]

    wait_until(is_even, "each has its share", _SOON_S)
    second.stand_down("the process is ending")
    assert _owned(second) == set()
    second.release()
    _waits_to_own(first)


def test_with_spread_a_table_that_a_later_run_has_written_is_left_alone_for_a_while(processes: Processes) -> None:
    leader, _ = processes.pair("spread")
    mine = next(iter(_owned(leader)))
    assert leader.fenced(mine)
    assert not leader.owns(mine)


def test_a_process_of_another_pipeline_with_the_same_name_is_refused_with_both_named(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elected, "_OTHERS_S", 0.5)
    leader = processes.start("one", tables=("a.t1 in lake", "a.t2 in lake"))
    _waits_to_own(leader)
    other = processes.start("two", tables=("a.t1 in pond",))

    def refused() -> SpecError | None:
        try:
            assert not other.owns("a.t1")
        except SpecError as error:
            return error
        return None

    error = wait_until(refused, "it is refused", _SOON_S)
    assert error.message == "another pipeline has this one's name: one writes a.t1 in lake, not a.t1 in pond"
    assert "name one of them otherwise under `pipeline`" in error.remedy
    assert _owned(leader) == set(_TABLES)
    assert [member.name for member in leader.state.members] == ["one"], "it was never linked"


def test_a_process_of_another_pipeline_leads_once_the_last_one_has_ended(processes: Processes) -> None:
    former = processes.start("one", tables=("a.t1 in lake",))
    _waits_to_own(former)
    heir = processes.start("two", tables=("a.t1 in pond",))
    assert _never(lambda: bool(_owned(heir)))
    former.close()
    _waits_to_own(heir)
    assert heir.state.reason == "lost"


def test_a_pipeline_file_with_some_other_tables_is_of_the_same_pipeline(processes: Processes) -> None:
    leader = processes.start("one", tables=("a.t1 in lake", "a.t2 in lake"))
    _waits_to_own(leader)
    newer = processes.start("two", tables=("a.t2 in lake", "a.t3 in lake"))
    wait_until(lambda: len(newer.state.members) == 2, "they are linked", _SOON_S)


def test_a_change_of_leadership_wakes_the_service(processes: Processes) -> None:
    leader, _ = processes.pair()
    woken = threading.Event()
    third = processes.start("three")
    third._wake = woken.set
    leader.release()
    leader.close()
    assert woken.wait(_SOON_S)


def _shares(processes: list[Elected]) -> list[int]:
    """How many tables each owns. Each releases what it has lost, and reports the loads of its own tables alone, as a service
    does.
    """
    for process in processes:
        owned = _owned(process)
        process.release()
        process.offer({table: 100.0 if table in owned else None for table in _TABLES}, is_warm=True)
    return [len(_owned(process)) for process in processes]


def _spread(processes: Processes, count: int, tables: int) -> list[Elected]:
    """So many processes among which the tables are divided evenly."""
    started: list[Elected] = []
    for number in range(count):
        started.append(processes.start(f"p{number}", "spread"))
        wait_until(lambda: sum(_shares(started)) == tables and min(_shares(started)) > 0, "all own some", _SOON_S)
    return started


def test_with_spread_a_leader_that_is_gone_moves_no_table_of_the_others(processes: Processes) -> None:
    """Its heir knows the loads of its own tables alone: the others must not look idle."""
    gone, *others = _spread(processes, 3, len(_TABLES))
    before = [_owned(process) for process in others]
    gone.release()
    gone.close()
    wait_until(lambda: sum(_shares(others)) == len(_TABLES), "the others own its tables", _SOON_S)
    assert _never(lambda: any(not mine <= _owned(one) for mine, one in zip(before, others, strict=True)))
    assert _shares(others) == [2, 2]


def test_with_spread_a_process_that_leads_again_divides_as_its_predecessor_did(processes: Processes) -> None:
    """And not as it did itself when it led before."""
    me = Member("one", "1", 0, is_warm=True)
    leader = Elected(MemoryElector(processes.register, "one"), Host("127.0.0.1", 0, _CLOCK), me, "spread", _CLOCK)
    leader.offer(dict.fromkeys(_TABLES, 1.0), is_warm=True)
    leader._see(Claim("one", "127.0.0.1:1", "first", 0, "start", 1))
    leader._divide({})
    assert _owned(leader) == set(_TABLES)
    leader._see(Claim("two", "127.0.0.1:1", "second", 0, "forced", 2))
    assert _owned(leader) == set()
    leader.release()
    divided = {"a.t1": "three", "a.t2": "three", "a.t3": "one", "a.t4": "one"}
    leader._members, leader._owners = dict.fromkeys(("one", "three"), me), divided
    leader._see(Claim("one", "127.0.0.1:1", "third", 0, "lost", 3))
    leader._divide({})
    assert leader.state.owners == divided
    leader.close()


def test_with_spread_a_connection_that_merely_broke_moves_no_table(processes: Processes) -> None:
    two = _spread(processes, 2, len(_TABLES))
    wait_until(lambda: _shares(two) == [2, 2], "they are divided", _SOON_S)
    before = [_owned(process) for process in two]
    for _ in range(3):
        connection = two[1]._guest._connection
        assert connection is not None
        with suppress(OSError):  # It is just being opened again.
            connection.shutdown(socket.SHUT_RDWR)
        assert _never(lambda: [_owned(process) for process in two] != before, 0.4)


def test_with_spread_a_process_that_hangs_loses_its_tables(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elected, "_STALLED_S", 0.5)
    leader, hanging = _spread(processes, 2, len(_TABLES))
    wait_until(lambda: _shares([leader]) == [len(_TABLES)], "the leader owns all", _SOON_S)
    assert [member.name for member in leader.state.members] == ["p0"]
    wait_until(lambda: _shares([leader, hanging]) == [2, 2], "it turns again, and gets its share", _SOON_S)


def test_a_leader_that_hangs_is_followed_by_a_process_that_it_never_let_in(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elected, "_HANGING_TURNS", 3)
    hanging = processes.start("one")
    _waits_to_own(hanging)
    hanging._turned_s = _CLOCK.monotonic_s() - 60
    other = processes.start("two")
    _waits_to_own(other)
    assert other.state.reason == "lost"
    hanging.offer({}, is_warm=True)
    wait_until(lambda: not hanging.owns("a.t1") and len(other.state.members) == 2, "it stands by", _SOON_S)


def test_a_process_that_hangs_claims_nothing(processes: Processes) -> None:
    leader, hanging = processes.pair()
    hanging._turned_s = _CLOCK.monotonic_s() - 60
    leader.close()
    assert _never(lambda: bool(_owned(hanging)), 1.5)
    hanging.offer({}, is_warm=True)
    _waits_to_own(hanging)


def test_a_leader_whose_batch_hangs_is_followed_after_a_while(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its other tables must not wait for a store that does not answer."""
    monkeypatch.setattr(elected, "_LEAVE_S", 0.5)
    leader, other = processes.pair()
    leader.stand_down("an operator has requested it")
    assert _owned(leader) == set()
    leader.release(in_hand={"a.t1"})
    _waits_to_own(other)
    assert other.state.reason == "released"


def test_with_spread_tables_change_hands_while_the_batch_of_another_hangs(processes: Processes) -> None:
    first = processes.start("one", "spread")
    _waits_to_own(first)
    second = processes.start("two", "spread")
    wait_until(lambda: len(_owned(first)) == 2, "two tables are taken back", _SOON_S)
    hanging, moved = sorted(set(_TABLES) - _owned(first))
    first.release(in_hand={hanging})
    _waits_to_own(second, {moved})
    assert _never(lambda: second.owns(hanging))
    first.release()
    _waits_to_own(second, {moved, hanging})


def test_a_process_that_is_ending_gets_no_table_again(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last batch may take minutes, and it begins no other."""
    monkeypatch.setattr(elected, "_EVEN_OUT_S", 0.3)
    leader, ending = two = _spread(processes, 2, len(_TABLES))
    ending.stand_down("the process is ending", is_final=True)
    wait_until(lambda: _shares(two) == [len(_TABLES), 0], "the other owns all", _SOON_S)
    assert _never(lambda: _shares(two) != [len(_TABLES), 0], 1.0)
    leader.close()
    assert _never(lambda: bool(_owned(ending)))


def test_a_leader_of_a_newer_version_is_followed_and_missed(processes: Processes) -> None:
    """What it sends has more than this version knows."""
    newer = Host("127.0.0.1", 0, _CLOCK)
    member = {"name": "newer", "version": "2", "started_at_ms": 0, "is_warm": True, "region": "north"}
    beat = {"has_left": False, "members": [member], "version": 0, "quorum": 2}
    newer.serve("the key", lambda _: beat, lambda: None)
    processes.register.newest = Claim("newer", newer.address, "the key", 0, "start", 1)
    processes.register.present.add("newer")
    other = processes.start("two")
    wait_until(lambda: [one.version for one in other.state.members] == ["2", "1"], "both are known", _SOON_S)
    newer.close()
    _waits_to_own(other)
    assert other.state.reason == "lost"


def test_a_process_of_another_version_beside_a_leader_is_named_and_gets_no_table(processes: Processes) -> None:
    """What it sends lacks what this version needs to give it tables."""
    leader = processes.start("one", "spread")
    _waits_to_own(leader)
    assert processes.register.newest is not None
    older = Guest(_CLOCK, lambda: {"name": "older", "version": "0"}, lambda: None)
    older.follow(processes.register.newest)
    wait_until(lambda: [one.name for one in leader.state.members] == ["older", "one"], "named", _SOON_S)
    second = processes.start("two", "spread")
    wait_until(lambda: _shares([leader, second]) == [2, 2], "the two divide the tables", _SOON_S)
    older.close()


def test_with_spread_an_heir_divides_the_tables_at_once(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    """No step of a takeover waits for the next turn of the election."""
    leader, other = _spread(processes, 2, len(_TABLES))
    monkeypatch.setattr(elected, "BEAT_S", 60.0)
    leader._guest.close()
    leader._host.close()  # As the system does when a process is killed.
    wait_until(lambda: _owned(other) == set(_TABLES), "it owns all", 5)
    monkeypatch.undo()
