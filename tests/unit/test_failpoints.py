"""Failpoints do nothing when off, and what they say when on."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from frazil.failpoints import VARIABLE, arm, hit, reached


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    arm({})


def test_nothing_happens_when_off() -> None:
    arm({})
    hit("commit.before")


def test_a_point_acts_at_its_nth_time_only() -> None:
    arm({VARIABLE: "a=error@2; b=enospc"})
    hit("a")
    with pytest.raises(RuntimeError, match="failpoint a"):
        hit("a")
    hit("a")
    with pytest.raises(OSError, match="No space left") as full:
        hit("b")
    assert full.value.errno == errno.ENOSPC


def test_a_point_acts_while_its_file_exists(tmp_path: Path) -> None:
    switch = tmp_path / "switch"
    arm({VARIABLE: f"a=reset@{switch}"})
    hit("a")
    switch.touch()
    for _ in range(2):
        with pytest.raises(ConnectionResetError):
            hit("a")
    assert reached(switch).read_text() == str(os.getpid())
    switch.unlink()
    hit("a")


def test_a_held_thread_continues_when_the_file_is_gone(tmp_path: Path) -> None:
    switch = tmp_path / "switch"
    switch.touch()
    arm({VARIABLE: f"a=hold@{switch}"})
    thread = threading.Thread(target=hit, args=("a",))
    thread.start()
    while not reached(switch).exists():
        assert thread.is_alive()
    switch.unlink()
    thread.join(10)
    assert not thread.is_alive()


def test_an_unknown_action_is_an_error() -> None:
    arm({VARIABLE: "a=explode"})
    with pytest.raises(ValueError, match="no action explode"):
        hit("a")
