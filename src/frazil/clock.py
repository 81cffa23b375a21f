"""The only source of time, of ids and of randomness, so that tests can control time and repeat runs."""

from __future__ import annotations

import random as _random
import time as _time
import uuid as _uuid
from collections.abc import Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")
_generator = _random.Random()


class Clock(Protocol):
    """The time functions that the service uses."""

    def now_ms(self) -> int:
        """Returns milliseconds since 1970, for people and for comparison with record timestamps."""

    def monotonic_s(self) -> float:
        """Returns seconds that never go back, for intervals."""

    def sleep(self, seconds: float) -> None:
        """Waits."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return _time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return _time.monotonic()

    def sleep(self, seconds: float) -> None:
        _time.sleep(seconds)


def new_id() -> str:
    """Returns a new random UUID as text."""
    return str(_uuid.uuid4())


def jitter(seconds: float) -> float:
    """Returns `seconds` changed at random by up to a fifth, so that many processes do not retry at the same moment."""
    return seconds * _generator.uniform(0.8, 1.2)


def shuffled(values: Sequence[T]) -> list[T]:
    """Returns the same in an order by chance."""
    return _generator.sample(values, len(values))


def seed_randomness(seed: int) -> None:
    """Seeds the randomness of this module, so that a run can be repeated."""
    _generator.seed(seed)
