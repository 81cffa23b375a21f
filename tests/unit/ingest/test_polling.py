"""How often the ends of topics are requested: as often as it costs little, and less once nothing arrives any more."""

from __future__ import annotations

import pytest

from frazil.ingest.loop.planner import IDLE_AFTER_S, LONGEST_IDLE_POLL_S, LONGEST_POLL_S, SHORTEST_POLL_S, Polling


def polled(took_s: float, last_change_s: float, now_s: float) -> Polling:
    """After a hundred requests that took as long, with the last new end at one time and the last request at another."""
    polling = Polling()
    for _ in range(100):
        polling.record(last_change_s, took_s, is_changed=True)
    polling.record(now_s, took_s, is_changed=False)
    return polling


def test_few_topics_are_asked_for_as_soon_when_idle() -> None:
    busy, idle = polled(0.0001, 50.0, 50.0), polled(0.0001, 50.0, 50.0 + IDLE_AFTER_S)
    assert busy.pause_s(0.0) == idle.pause_s(0.0) == SHORTEST_POLL_S


@pytest.mark.parametrize(
    ("idle_s", "expected_s"), [(IDLE_AFTER_S - 0.1, LONGEST_POLL_S), (IDLE_AFTER_S, LONGEST_IDLE_POLL_S)]
)
def test_hundreds_of_topics_are_asked_for_less_often_when_idle(idle_s: float, expected_s: float) -> None:
    assert polled(0.05, 50.0, 50.0 + idle_s).pause_s(0.0) == pytest.approx(expected_s)


def test_one_new_end_makes_it_as_often_as_before() -> None:
    polling = polled(0.05, 50.0, 50.0 + 5 * IDLE_AFTER_S)
    polling.record(51.0 + 5 * IDLE_AFTER_S, 0.05, is_changed=True)
    assert polling.pause_s(0.0) == pytest.approx(LONGEST_POLL_S)


def test_a_thousand_idle_topics_are_asked_for_in_a_hundredth_of_the_time() -> None:
    idle = polled(0.02, 50.0, 50.0 + IDLE_AFTER_S)
    assert idle.pause_s(float("inf")) == pytest.approx(2.0, rel=1e-3)  # An average approaches what all answers take.
