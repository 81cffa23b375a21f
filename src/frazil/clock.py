"""The only clock, the only source of ids and of chance, so that tests can own time and runs can be repeated."""

from __future__ import annotations

import random as _random
import time as _time
import uuid as _uuid
from typing import Protocol

_chance = _random.Random()


class Clock(Protocol):
    """What the service needs of time."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, for humans and for comparison with record timestamps."""

    def monotonic_s(self) -> float:
        """Seconds that never go back, for intervals."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return _time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return _time.monotonic()

    def sleep(self, seconds: float) -> None:
        _time.sleep(seconds)


def new_id() -> str:
    """A fresh UUID, as text."""
    return str(_uuid.uuid4())


def jitter(seconds: float) -> float:
    """`seconds`, moved at random by up to a fifth either way, so that many processes do not retry in step."""
    return seconds * _chance.uniform(0.8, 1.2)


def repeat_chance(seed: int) -> None:
    """From now on all chance is that of the seed."""
    _chance.seed(seed)
