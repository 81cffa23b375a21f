"""The broker's configuration, as far as it needs no broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.errors import UnavailableError
from frazil.runtime.broker import EmbeddedBroker, broker_properties, render


def test_every_listener_is_on_the_loopback() -> None:
    properties = broker_properties(Path("/d"), 1111, 2222, {})
    assert properties["listeners"] == "BROKER://127.0.0.1:1111,CONTROLLER://127.0.0.1:2222"
    assert properties["advertised.listeners"] == "BROKER://127.0.0.1:1111"


def test_the_callers_properties_win() -> None:
    properties = broker_properties(Path("/d"), 1, 2, {"log.retention.ms": "5", "message.max.bytes": "9"})
    assert (properties["log.retention.ms"], properties["message.max.bytes"]) == ("5", "9")


def test_a_backslash_survives_the_properties_file() -> None:
    assert render({"a": r"x\y"}) == "a=x\\\\y\n"


def test_a_broker_that_was_not_started_has_no_pid_and_can_be_stopped(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path)
    broker.stop()
    assert not broker.is_running
    with pytest.raises(UnavailableError, match="not running"):
        _ = broker.pid


def test_letters_that_latin_1_lacks_survive_it_too() -> None:
    assert render({"a": "/jürgen/日/😀"}) == "a=/j\\u00fcrgen/\\u65e5/\\ud83d\\ude00\n"
