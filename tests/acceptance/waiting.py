"""Waiting for a condition, with a deadline: the only way in which these tests let time pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 180.0
"""Longer than anything takes on a machine that is busy with other work; a broken product costs this once."""


def wait_until(question: Callable[[], T | None], what: Callable[[], str] | str, within_s: float = PATIENCE_S) -> T:
    """Asks until the answer is true, and answers it; AssertionError with `what` after the deadline."""
    deadline = time.monotonic() + within_s
    while True:
        answer = question()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s:.0f} s: {what if isinstance(what, str) else what()}")
        time.sleep(0.02)
