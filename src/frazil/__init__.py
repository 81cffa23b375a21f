"""Frazil turns Kafka topics into maintained Apache Iceberg tables.

What is named in `__all__` is the Python API. It is imported when it is first used: `import frazil` takes a millisecond.
`frazil.blobs` and the like are modules of installed packages (`plugins/registration.py`).
"""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from frazil.api.pipeline import Pipeline as Pipeline
    from frazil.api.pipeline import load as load
    from frazil.api.results import CheckResult as CheckResult
    from frazil.api.results import PlanResult as PlanResult
    from frazil.api.results import RunResult as RunResult
    from frazil.api.results import VerifiedTable as VerifiedTable
    from frazil.api.results import VerifyResult as VerifyResult
    from frazil.errors import ConflictError as ConflictError
    from frazil.errors import FencedError as FencedError
    from frazil.errors import FrazilError as FrazilError
    from frazil.errors import InvariantError as InvariantError
    from frazil.errors import RecordError as RecordError
    from frazil.errors import SpecError as SpecError
    from frazil.errors import UnavailableError as UnavailableError
    from frazil.ops.check import Finding as Finding
    from frazil.ops.pipeline_status import PipelineReport as PipelineReport
    from frazil.ops.pipeline_status import TableStatus as TableStatus
    from frazil.ops.plan import PlannedTable as PlannedTable

__version__ = "0.1.0"
_Function = TypeVar("_Function", bound=Callable[..., Any])
_MODULES = {
    "frazil.api.pipeline": ("Pipeline", "load"),
    "frazil.api.results": ("CheckResult", "PlanResult", "RunResult", "VerifiedTable", "VerifyResult"),
    "frazil.errors": (
        "ConflictError", "FencedError", "FrazilError", "InvariantError", "RecordError", "SpecError", "UnavailableError",
    ),
    "frazil.ops.check": ("Finding",),
    "frazil.ops.pipeline_status": ("PipelineReport", "TableStatus"),
    "frazil.ops.plan": ("PlannedTable",),
}  # fmt: skip
_HOMES = {name: module for module, names in _MODULES.items() for name in names}
"""The module of each name of the API that is imported when it is used."""
__all__ = [
    "CheckResult",
    "ConflictError",
    "FencedError",
    "Finding",
    "FrazilError",
    "InvariantError",
    "Pipeline",
    "PipelineReport",
    "PlanResult",
    "PlannedTable",
    "RecordError",
    "RunResult",
    "SpecError",
    "TableStatus",
    "UnavailableError",
    "VerifiedTable",
    "VerifyResult",
    "__version__",
    "load",
    "udf",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        module = (
            None if name.startswith("_") else importlib.import_module("frazil.plugins.registration").module_of(name)
        )
        if module is not None:
            return module
        raise AttributeError(f"module 'frazil' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def udf(returns: str) -> Callable[[_Function], _Function]:
    """Returns a decorator for functions that queries call: those that `udf` of the pipeline file names.

    Such a function takes an Arrow array for each argument, and returns an array with a value for each row, computed
    from that row alone. If it raises an exception, it is called again with fewer rows, down to one. returns: the type
    of its values, as in the pipeline file, such as `decimal(12,2)`.
    """

    def declare(function: _Function) -> _Function:
        function.__dict__["frazil_returns"] = returns
        return function

    return declare
