"""What tests need of the packages beside the core, each of which can be deleted with its folder: a module that imports a
missing one is skipped, and so is a test or a case with the mark of `needs`. The reason names the package.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Literal, get_args

import pytest
from _pytest.mark import ParameterSet

from frazil.plugins.extras import is_installed

Package = Literal[
    "blobs", "cdc", "cluster", "console", "deadletters", "demo", "expect", "ha", "hdfs", "http", "jsonschema", "lookup",
    "migrate", "protect", "protobuf", "publish", "registry", "replay", "start", "state", "telemetry", "testing",
    "transactions", "verify",
]  # fmt: skip
_PACKAGES: tuple[Package, ...] = get_args(Package)
OF_FORMATS: Mapping[str, Package] = {
    "canal": "cdc", "cloudevents": "cdc", "dms": "cdc", "json_schema": "jsonschema", "maxwell": "cdc", "outbox": "cdc",
    "protobuf": "protobuf",
}  # fmt: skip
"""The packages of formats and envelopes that the core lacks."""
_OF_A_PACKAGE = re.compile(rf"(?:frazil_|packages\.)({'|'.join(_PACKAGES)})")


def has_package(name: Package) -> bool:
    """Returns whether a package beside the core is installed. A module may import it below `if has_package(…):`."""
    return is_installed(name)


def needs(*names: Package) -> pytest.MarkDecorator:
    """Returns a mark that skips a test, or a case, where one of the packages is not installed."""
    missing = [f"frazil-{name}" for name in names if not has_package(name)]
    return pytest.mark.skipif(bool(missing), reason=f"needs {' and '.join(missing)}")


def needs_all() -> pytest.MarkDecorator:
    """Returns the mark for a test of the whole repository, such as of pages and lists that name each package."""
    return needs(*_PACKAGES)


def cases(names: Iterable[str], needed: Mapping[str, Package] = OF_FORMATS) -> list[ParameterSet]:
    """Returns names as parameters of a test. needed: the package without which the case of a name is skipped."""
    return [pytest.param(name, marks=needs(needed[name]) if name in needed else (), id=name) for name in names]


def missing_package(error: BaseException | None) -> str | None:
    """Returns the distribution whose absence is why an import failed; None if the import failed for another reason."""
    while error is not None and not isinstance(error, ModuleNotFoundError):
        error = error.__cause__
    match = _OF_A_PACKAGE.fullmatch(error.name or "") if error is not None else None
    return None if match is None else f"frazil-{match[1]}"


def _file_of(module: ModuleType | None) -> str | None:
    path: str | None = getattr(module, "__file__", None)
    return path


class _Module(pytest.Module):
    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        try:
            return super().collect()
        except self.CollectError as error:
            missing = missing_package(error)
            if missing is None:
                raise
            # What was imported until then would be taken for the module by another one that imports it.
            for name in [name for name, module in sys.modules.items() if _file_of(module) == str(self.path)]:
                del sys.modules[name]
            pytest.skip(f"{self.nodeid} needs {missing}", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    module: pytest.Module = _Module.from_parent(parent, path=module_path)
    return module
