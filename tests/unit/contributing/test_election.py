"""docs/contributing/election.md: an election of a package lets one of two processes work, and the other one after it."""

from __future__ import annotations

from frazil.api.wiring import open_leadership
from frazil.plugins.driver import ELECTIONS
from frazil_testing.twins import FakeClock
from tests.unit.contributing.conftest import Install
from tests.unit.spec.pipeline_file import Load, Refuse, with_section


def test_an_election_of_a_package_lets_one_process_work_after_the_other(example: Install, load: Load) -> None:
    example("election.md")
    spec = load(with_section("ha: {elect: file}"))
    first, second = (open_leadership(spec, run_id, FakeClock(0)) for run_id in ("one", "two"))
    assert [first.owns("t.a"), second.owns("t.a"), first.owns("t.a")] == [True, False, True]
    assert (first.state.leader, second.state.leader) == (first.state.name, None)
    first.stand_down("asked")
    assert [first.owns("t.a"), second.owns("t.a")] == [False, False]
    first.release(["t.a"])
    assert not second.owns("t.a")
    first.release()
    assert second.owns("t.a")
    assert ELECTIONS.get("file").checker(spec).is_ok
    first.close()
    second.close()


def test_an_unknown_election_is_refused_with_those_of_packages_named(example: Install, refuse: Refuse) -> None:
    example("election.md")
    error = refuse(with_section("ha: {elect: fil}"))
    assert (error.message, error.remedy) == ("`ha.elect` cannot be `fil`", "did you mean `file`?")
