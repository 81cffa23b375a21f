"""What `frazil doctor` reports about a machine that lacks something."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from frazil.runtime.machine import Check, check_disk, check_jars, check_java, check_memory, check_python, checks


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_CACHE", str(tmp_path / "cache"))


def test_what_is_well_has_no_remedy(fake_java: Callable[..., Path]) -> None:
    home = fake_java()
    assert check_java() == Check("java", True, f"17 at {home / 'bin' / 'java'}")
    assert check_memory(8 * 1024**3) == Check("memory", True, "8.0 GiB")
    assert check_disk(8 * 1024**3).is_ok
    assert check_python((3, 12, 1)) == Check("python", True, "3.12.1")


def test_what_is_missing_has_one(fake_java: Callable[..., Path]) -> None:
    fake_java("11.0.2")
    missing = [check_java(), check_memory(1024**3), check_disk(1024), check_python((3, 9, 1)), check_jars("spark")]
    assert [(check.is_ok, bool(check.remedy)) for check in missing] == [(False, True)] * 5


def test_every_check_is_made(fake_java: Callable[..., Path]) -> None:
    fake_java()
    names = [check.name for check in checks()]
    assert names == ["python", "java", "jars for spark", "jars for s3", "jars for broker", "memory", "disk"]
