"""The real broker that the integration tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from frazil.runtime.broker import EmbeddedBroker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A running broker for the whole session: give every test topics of its own."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running
