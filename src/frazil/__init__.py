"""Frazil turns Kafka topics into maintained Apache Iceberg tables."""

from collections.abc import Callable
from typing import Any, TypeVar

__version__ = "0.1.0"
_Function = TypeVar("_Function", bound=Callable[..., Any])


def udf(returns: str) -> Callable[[_Function], _Function]:
    """Returns a decorator for functions that queries call: those that `udf` of the pipeline file names.

    Such a function takes an Arrow array for each argument, and returns one with a value for each of their rows, made of
    that row alone. Where it raises, it is called again with fewer rows, until one is left. returns: the type of its
    values, in the words of the pipeline file, such as `decimal(12,2)`.
    """

    def declare(function: _Function) -> _Function:
        function.__dict__["frazil_returns"] = returns
        return function

    return declare
