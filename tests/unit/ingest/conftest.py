"""A scene of tables with a query, which Spark's classes analyse in a JVM without a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from frazil.ingest.batches.services import Services
from frazil.ingest.tables.queries import SparkQueries
from tests.unit.ingest import service_scene
from tests.unit.ingest.service_scene import Scene


@pytest.fixture
def scene(tmp_path: Path, queries: SparkQueries, monkeypatch: pytest.MonkeyPatch) -> Any:
    def services(**parts: Any) -> Services:
        return Services(queries=queries, **parts)

    monkeypatch.setattr(service_scene, "Services", services)
    return lambda **settings: Scene(tmp_path, "a", **settings)
