"""What the tests of the pipeline file share: a working directory of their own, and a file in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from frazil.errors import SpecError
from frazil.spec import PipelineSpec, load_spec
from tests.unit.spec.pipeline_file import Load, Refuse


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def load() -> Load:
    def write_and_load(text: str, environment: Mapping[str, str] = {}) -> PipelineSpec:
        path = Path("pipeline.yaml")
        path.write_text(text, encoding="utf-8")
        return load_spec(path, environment)

    return write_and_load


@pytest.fixture
def refuse(load: Load) -> Refuse:
    def load_and_fail(text: str, environment: Mapping[str, str] = {}) -> SpecError:
        with pytest.raises(SpecError) as caught:
            load(text, environment)
        return caught.value

    return load_and_fail
