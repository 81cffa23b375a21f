"""Runs the quick tests first: the order inside a tier stays random, the tiers come as listed."""

from __future__ import annotations

from pathlib import Path

import pytest

TIERS = ("unit", "contracts", "simulation", "docs", "spark", "integration", "acceptance")
_ROOT = Path(__file__).parent


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_tier)


def _tier(item: pytest.Item) -> int:
    folder = item.path.relative_to(_ROOT).parts[0] if item.path.is_relative_to(_ROOT) else ""
    if item.get_closest_marker("jvm"):  # A port's suite on the real thing is as slow as the tests of Spark.
        folder = "spark"
    return TIERS.index(folder) if folder in TIERS else len(TIERS)
