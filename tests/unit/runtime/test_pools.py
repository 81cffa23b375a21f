"""Spark's scheduler pools: one that the file does not name has another scheduling mode, and Spark warns of it."""

from __future__ import annotations

from importlib import resources
from xml.etree import ElementTree

from frazil.catalog.iceberg.maintenance import POOL


def test_table_maintenance_has_the_least_weight_of_all_pools() -> None:
    pools = ElementTree.fromstring((resources.files("frazil.runtime") / "fairscheduler.xml").read_text())
    weights = {pool.get("name"): int(pool.findtext("weight", "0")) for pool in pools}
    assert weights[POOL] == 1
    assert min(weight for name, weight in weights.items() if name != POOL) == 1000
