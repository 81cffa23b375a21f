"""Runs the quick tests first: the order inside a tier stays random, the tiers come as listed. The longest files of a tier
begin it: at the end one worker would be busy with such a file, and the others idle. A test marked `last`, in one of these
files, ends what the others of its file share.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis.internal.conjecture import providers

from frazil.clock import SystemClock

TIERS = ("unit", "contracts", "simulation", "corpus", "jvm", "integration", "acceptance")
"""Folders of tests, and the tests of any folder that are marked `jvm`."""
LONGEST = (
    "test_spark_outages.py",
    "test_killed.py",
    "test_scenes.py",
    "test_upsert_maintenance.py",
    "test_by_hand.py",
    "test_loop.py",
    "test_standby.py",
    "test_open_transaction.py",
    "test_publish_groups.py",
    "test_publish_kills.py",
    "test_publish.py",
    "test_reference_versions.py",
    "test_broker_outages.py",
    "test_registry.py",
    "test_http_service.py",
    "test_catalogs.py",
    "test_other_writers.py",
    "test_replay.py",
    "test_foreign.py",
    "test_transactions.py",
    "test_upserts.py",
    "test_kills.py",
    "test_state.py",
    "test_spark_stages.py",
    "test_adopt.py",
    "test_poison.py",
    "test_full_disk.py",
    "test_tutorials.py",
    "test_dead_letters.py",
    "test_object_stores.py",
    "test_maintenance_faults.py",
    "test_commands.py",
    "test_database.py",
    "test_spark_workers.py",
    "test_maintenance_soak.py",
    "test_maintenance.py",
    "test_lake.py",
    "test_processing.py",
    "test_outages.py",
    "test_lost_answers.py",
    "test_partitions.py",
    "test_schemas.py",
    "test_big_catch_up.py",
    "test_plugins.py",
    "test_changelog.py",
    "test_proofs.py",
    "test_kinds.py",
    "test_sources.py",
    "test_upsert_dead_letters.py",
    "test_two_drivers.py",
    "test_bad_records.py",
    "test_remote_lake.py",
    "test_unreliable_catalogs.py",
    "test_interrupts.py",
)
"""Longest first, those of `make test` before those that only `make test-all` runs in full."""
_UNTIL = float(os.environ.get("FRAZIL_TESTS_UNTIL", "inf"))
"""The epoch second after which no test begins: CI ends in time on a slow machine too, and names what it has not run."""
_ROOT = Path(__file__).parent
_PACKAGES = tuple(_ROOT.parent.glob("packages/*/tests"))
# Hypothesis takes one value of twenty from the constants of all modules, for which each worker parses all of Frazil: five
# seconds of a processor in a new clone.
vars(providers)["is_local_module_file"] = lambda _: False


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:  # noqa: ARG001  (pytest goes by the name)
    """Looks for no garbage while ten thousand tests are made that all stay, and never among them after that: each worker
    makes them all.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (_tier(item), places.get(item.path.name, len(places)), _is_last(item)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if SystemClock().now_ms() > _UNTIL * 1000:
        pytest.skip(
            f"{item.path.name} was not run, as the time of FRAZIL_TESTS_UNTIL was over: run it with `make test`"
        )


def _is_last(item: pytest.Item) -> bool:
    return item.get_closest_marker("last") is not None


def _tier(item: pytest.Item) -> int:
    # A port's suite on the real thing is as slow as the tests of Spark.
    folder = "jvm" if item.get_closest_marker("jvm") else _folder(item.path)
    return TIERS.index(folder) if folder in TIERS else len(TIERS)


@cache
def _folder(path: Path) -> str:
    """Returns the folder of `tests`, or of the `tests` of a package beside the core, that a test is in."""
    for tests in (_ROOT, *_PACKAGES):
        if path.is_relative_to(tests):
            return path.relative_to(tests).parts[0]
    return ""
