"""Patience of the tests that wait until a read has none left."""

from __future__ import annotations

import pytest

from tests.fixtures import range_reads


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads give up soon."""
    monkeypatch.setattr(range_reads, "PATIENCE_MS", 900)
