"""How often Kafka is asked where its topics end: as often as it is cheap."""

from __future__ import annotations

SHORTEST_POLL_S = 0.02
LONGEST_POLL_S = 0.25
# Asking may take this share of the loop's time, so that hundreds of idle topics cost little.
POLL_SHARE = 0.03
# While tables become due one after another it may take this share.
BUSY_POLL_SHARE = 0.25
# One slow answer out of so many must not make the loop wait for seconds, nor a broker that has just fallen silent: an
# answer counts for a few times what the others cost, so that those that stay slow are noticed after a dozen.
ASKS_REMEMBERED = 8
MOST_TIMES = 4
LEAST_S = 0.02


class Polling:
    """Remembers what asking costs, in seconds."""

    def __init__(self) -> None:
        self._cost_s = 0.0

    def note(self, took_s: float) -> None:
        """An answer has taken so long."""
        counted_s = min(took_s, MOST_TIMES * self._cost_s + LEAST_S)
        self._cost_s += (counted_s - self._cost_s) / ASKS_REMEMBERED

    def pause_s(self, next_due_in_s: float) -> float:
        """As long as asking has earned, but not past the moment at which the next table is due."""
        earned_s = max(SHORTEST_POLL_S, self._cost_s / POLL_SHARE)
        return min(earned_s, max(LONGEST_POLL_S, self._cost_s / BUSY_POLL_SHARE, next_due_in_s))
