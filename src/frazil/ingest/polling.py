"""How often the ends of topics are requested from Kafka: as often as it costs little."""

from __future__ import annotations

SHORTEST_POLL_S = 0.02
LONGEST_POLL_S = 0.25
# Requests for ends may take this share of the loop's time, so that hundreds of idle topics cost little.
POLL_SHARE = 0.03
# While tables become due one after another it may take this share.
BUSY_POLL_SHARE = 0.25
# One slow answer, or a broker that stops answering, must not make the loop wait for seconds: an answer counts at most as
# a few times the average of the last ones, so that a broker that stays slow is noticed after a dozen answers.
ASKS_REMEMBERED = 8
MOST_TIMES = 4
LEAST_S = 0.02


class Polling:
    """The average cost of a request for the ends of topics, and the pause that follows from it."""

    def __init__(self) -> None:
        self._cost_s = 0.0

    def record(self, took_s: float) -> None:
        """Adds the duration of a request to the average."""
        counted_s = min(took_s, MOST_TIMES * self._cost_s + LEAST_S)
        self._cost_s += (counted_s - self._cost_s) / ASKS_REMEMBERED

    def pause_s(self, next_due_in_s: float) -> float:
        """Returns the pause before the next request, which ends no later than the next table is due."""
        earned_s = max(SHORTEST_POLL_S, self._cost_s / POLL_SHARE)
        return min(earned_s, max(LONGEST_POLL_S, self._cost_s / BUSY_POLL_SHARE, next_due_in_s))
