"""The ports' suites run on the twin in memory and on the real thing; the real one is asked for only once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from frazil.runtime.broker import EmbeddedBroker
from tests.fixtures.registry import ApicurioRegistry


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker for the session: give every test topics of its own."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="session")
def apicurio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApicurioRegistry]:
    """A real schema registry for the session: give every test subjects and schemas of its own."""
    server = ApicurioRegistry(tmp_path_factory.mktemp("registry"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where tables go."""
    return tmp_path / "warehouse"
