"""The table of proven functions: what of a query tasks evaluate by themselves."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import cache

from frazil.plugins.registration import value_of
from frazil.plugins.stages import TABLE_STAGES
from frazil.queries.kernels import arithmetic, casts, conditions, functions, hashes, nested, text, time
from frazil.queries.kernels.values import Kernel, kind_of, matches
from frazil.queries.program import Call, Program, calls_in, expressions_of

KERNELS: dict[str, Kernel] = {
    name: kernel
    for family in (conditions, arithmetic, casts, text, hashes, time, nested, functions)
    for name, kernel in family.KERNELS.items()
}
"""By the name of Spark's class."""


@cache
def _kernels_of_stages() -> Mapping[str, Kernel]:
    """Returns the functions that programs call for the stages of installed packages, by name."""
    kinds = (TABLE_STAGES.get(name).kernels for name in TABLE_STAGES.added())
    kernels: dict[str, Kernel] = {}
    for target in filter(None, kinds):
        kernels |= value_of(target)
    return kernels


def _kernel(function: str) -> Kernel | None:
    return KERNELS.get(function) or _kernels_of_stages().get(function)


def kernel_of(call: Call) -> Kernel | None:
    """Returns the kernel for a call; None where there is none for its types."""
    kernel = _kernel(call.function)
    return kernel if kernel is not None and not _objection(call, kernel) else None


def objection(call: Call) -> str:
    """Returns why a call is outside the table; empty where it is not."""
    kernel = _kernel(call.function)
    return f"{call.function} is not a proven function" if kernel is None else _objection(call, kernel)


def _objection(call: Call, kernel: Kernel) -> str:
    if not any(matches(pattern, call) for pattern in kernel.takes):
        kinds = ", ".join(kind_of(argument.type) for argument in call.arguments)
        return f"{call.function} is not proven for these arguments ({kinds})"
    return kernel.objection(call)


def reason(program: Program) -> str | None:
    """Returns why tasks cannot evaluate a program by themselves: its first expression that is outside the table; None
    where they can.
    """
    judged = (condition for _, condition in program.conditions)
    for expression in itertools.chain(*map(expressions_of, program.operators), judged):
        for call in calls_in(expression):
            why_not = objection(call)
            if why_not:
                return f"`{call.sql or call.function}`: {why_not}"
    return None
