"""What `frazil doctor` reports about a machine that lacks something."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from frazil.files import NOEXEC_REMEDY
from frazil.ops.check import check_machine
from frazil.runtime.machine import (
    Check,
    check_disk,
    check_jars,
    check_java,
    check_memory,
    check_python,
    check_temporary,
    checks,
)


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


def test_a_folder_that_java_cannot_load_libraries_from_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_java: Callable[..., Path]
) -> None:
    fake_java()
    assert check_temporary(tmp_path).is_ok
    sizes = {"f_blocks": 1, "f_bfree": 1, "f_bavail": 1, "f_frsize": 4096}
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_NOEXEC | os.ST_NOSUID, **sizes))
    [found] = [check for check in checks() if check.name == "temporary files"]
    assert (found.is_ok, found.remedy) == (False, NOEXEC_REMEDY)
    [finding] = [one for one in check_machine(needs_s3=False) if one.name == "temporary files"]
    assert (finding.is_ok, finding.remedy) == (False, NOEXEC_REMEDY)


def test_every_check_is_made(fake_java: Callable[..., Path]) -> None:
    fake_java()
    names = [check.name for check in checks()]
    assert names == ["python", "java", "jars for spark", "jars for s3", "jars for broker", "memory", "disk"]
