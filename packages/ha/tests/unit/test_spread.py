"""How tables are divided among processes: every table has one owner, evenly, with few moves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from frazil_ha.spread import Division, Holding, divide

_NAMES = st.sampled_from(["p1", "p2", "p3", "p4", "p5"])
_MEMBERS = st.sets(_NAMES, min_size=1)
_LOADS = st.dictionaries(st.sampled_from([f"a.t{n}" for n in range(40)]), st.floats(0, 1e6), max_size=40)


def _sums(owners: dict[str, str], loads: dict[str, float], members: set[str]) -> dict[str, float]:
    sums = dict.fromkeys(members, 0.0)
    for table, owner in owners.items():
        sums[owner] += loads[table]
    return sums


@given(_LOADS, _MEMBERS, st.dictionaries(st.sampled_from([f"a.t{n}" for n in range(40)]), _NAMES))
def test_every_table_gets_one_owner_that_lives(
    loads: dict[str, float], members: set[str], owners: dict[str, str]
) -> None:
    found = divide(loads, loads, members, owners)
    assert found.keys() == loads.keys()
    assert set(found.values()) <= members


@given(_LOADS, _MEMBERS)
def test_the_loads_differ_by_less_than_the_largest_table_or_a_third_of_the_mean(
    loads: dict[str, float], members: set[str]
) -> None:
    sums = _sums(divide(loads, loads, members, {}), loads, members)
    mean = sum(loads.values()) / len(members)
    largest = max(loads.values(), default=0.0)
    # Beside its load a table counts for a tenth of the mean of all tables, so counts of tables may differ a little too.
    assert max(sums.values()) - min(sums.values()) <= 1.6 * largest + mean / 2


@given(_LOADS, _MEMBERS)
def test_tables_that_are_divided_well_stay(loads: dict[str, float], members: set[str]) -> None:
    owners = divide(loads, loads, members, {})
    assert divide(loads, loads, members, owners) == owners


@given(_LOADS, st.sets(_NAMES, min_size=2), st.data())
def test_only_the_tables_of_a_process_that_is_gone_move(
    loads: dict[str, float], members: set[str], data: st.DataObject
) -> None:
    owners = divide(loads, dict.fromkeys(loads, 1.0), members, {})
    gone = data.draw(st.sampled_from(sorted(members)))
    after = divide(loads, dict.fromkeys(loads, 1.0), members - {gone}, owners)
    moved = {table for table in owners if after[table] != owners[table]}
    assert moved >= {table for table, owner in owners.items() if owner == gone}
    assert len(moved - {table for table, owner in owners.items() if owner == gone}) <= 1


def test_a_process_that_joins_gets_its_share_and_nothing_else_moves() -> None:
    loads = {f"a.t{number:03}": 10.0 for number in range(100)}
    owners = divide(loads, loads, {"p1", "p2"}, {})
    after = divide(loads, loads, {"p1", "p2", "p3"}, owners)
    moved = {table for table in owners if after[table] != owners[table]}
    assert {after[table] for table in moved} == {"p3"}
    assert 25 <= len(moved) <= 34


def test_a_table_changes_hands_only_after_its_owner_has_let_it_go() -> None:
    division = Division({})
    everyone = {"p1": Holding(0, frozenset()), "p2": Holding(0, frozenset())}
    assert division.turn({"a.t": "p1"}, everyone)
    assert division.owners == {"a.t": "p1"}
    division.turn({"a.t": "p2"}, everyone)
    assert division.owners == {}
    # It may not have heard of that yet, or have a batch in hand.
    for seen, tables in ((division.version - 1, frozenset[str]()), (division.version, frozenset({"a.t"}))):
        assert not division.turn({"a.t": "p2"}, {**everyone, "p1": Holding(seen, tables)})
        assert division.owners == {}
    assert division.turn({"a.t": "p2"}, {**everyone, "p1": Holding(division.version, frozenset())})
    assert division.owners == {"a.t": "p2"}


def test_the_tables_of_a_process_that_is_gone_have_an_owner_at_once() -> None:
    division = Division({"a.t": "p1"})
    division.turn({"a.t": "p2"}, {"p2": Holding(0, frozenset())})
    assert division.owners == {"a.t": "p2"}


def test_a_table_that_another_process_still_holds_has_no_owner() -> None:
    division = Division({"a.t": "p1"})
    held = {"p1": Holding(0, frozenset()), "p2": Holding(0, frozenset({"a.t"}))}
    division.turn({"a.t": "p1"}, held)
    assert division.owners == {}
    division.turn({"a.t": "p1"}, {**held, "p2": Holding(0, frozenset())})
    assert division.owners == {"a.t": "p1"}


def test_tables_of_unknown_load_count_as_the_mean_of_the_others() -> None:
    """A new leader knows the loads of its own tables alone: those of others must not look idle."""
    owners = {f"a.t{number:02}": f"p{number % 3}" for number in range(60)}
    loads = {table: 500.0 for table, owner in owners.items() if owner == "p1"}
    after = divide(owners, loads, {"p1", "p2"}, owners)
    moved = {table for table in owners if after[table] != owners[table]}
    assert moved == {table for table, owner in owners.items() if owner == "p0"}
    assert sorted(list(after.values()).count(name) for name in ("p1", "p2")) == [30, 30]
