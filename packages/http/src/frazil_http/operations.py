"""Work that takes longer than a request: done one after another, its results kept for a while."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal

from pydantic import BaseModel

from frazil.clock import new_id
from frazil_http.problems import Problem, Refused, problem_of

_KEPT = 100


class Operation(BaseModel):
    """One piece of work."""

    id: str
    state: Literal["running", "done", "failed"]
    #: What the command prints with `--output json`, once it is done.
    result: dict[str, Any] | None = None
    #: Why it failed.
    problem: Problem | None = None


class Operations:
    """The last hundred pieces of work of this process."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "http-operation")
        self._futures: dict[str, Future[dict[str, Any]]] = {}

    def begin(self, work: Callable[[], dict[str, Any]]) -> Operation:
        """Queues the work, unless too much is queued."""
        for name in [name for name, future in self._futures.items() if future.done()][: len(self._futures) - _KEPT + 1]:
            del self._futures[name]
        if len(self._futures) >= _KEPT:
            raise Refused(503, "TooManyOperations", "too many operations are waiting", "ask again later")
        name = new_id()
        self._futures[name] = self._thread.submit(work)
        return Operation(id=name, state="running")

    def get(self, name: str) -> Operation:
        """Returns the piece of work. Raises: Refused for one that is not known."""
        future = self._futures.get(name)
        if future is None:
            raise Refused(404, "UnknownOperation", "this process knows no such operation", "begin it again")
        if not future.done():
            return Operation(id=name, state="running")
        error = future.exception()
        if error is None:
            return Operation(id=name, state="done", result=future.result())
        problem = problem_of(error if isinstance(error, Exception) else RuntimeError(str(error)))
        return Operation(id=name, state="failed", problem=problem)
