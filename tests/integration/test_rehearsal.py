"""Commits that are rehearsed in a JVM: they take the way of real ones, and leave nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.api.running import rehearse_commits
from frazil.runtime.jvm import Jvm


def test_commits_are_rehearsed_in_memory_and_leave_no_file(
    jvm: Jvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rehearse_commits(jvm.gateway)
    rehearse_commits(jvm.gateway)
    assert list(tmp_path.iterdir()) == []
