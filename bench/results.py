"""The results on disk: of each benchmark, subject and variant the newest file counts."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.arithmetic import ratio


@dataclasses.dataclass(frozen=True)
class Result:
    """One result file."""

    benchmark: str
    subject: str
    variant: str
    content: Mapping[str, Any]

    @property
    def runs(self) -> Sequence[Mapping[str, Any]]:
        """Every run, noisy ones included."""
        return list(self.content["runs"])

    @property
    def records(self) -> int:
        """How many records a throughput benchmark read."""
        return int(self.content["settings"]["records"])

    @property
    def invocation(self) -> str:
        """Tells what was measured together, one after another on the same machine."""
        return str(self.content.get("invocation", ""))

    def median(self, name: str) -> float | None:
        """The median of a number over the runs that count."""
        spread = self.spread(name)
        return spread["median"] if spread else None

    def spread(self, name: str) -> Mapping[str, float] | None:
        """Smallest, median and largest of a number over the runs that count."""
        found: Mapping[str, float] | None = self.content["summary"].get(name)
        return found


class Results:
    """The newest result of everything that was measured; ratios are of results of one invocation."""

    def __init__(self, results: Iterable[Result]) -> None:
        """results: older before newer."""
        self._every = list(results)
        self._all = list({(one.benchmark, one.subject, one.variant): one for one in self._every}.values())

    def of(self, benchmark: str, subject: str = "", variant: str = "") -> list[Result]:
        """The results of a benchmark, of one subject, of the variants that begin with `variant`."""
        return [
            result
            for result in self._all
            if result.benchmark == benchmark and subject in ("", result.subject) and result.variant.startswith(variant)
        ]

    def best(self, benchmark: str, subject: str, variant: str = "", by: str = "cpu_s_per_million") -> Result | None:
        """The result with the smallest median of `by`: a peer is compared at its best setting."""
        found = [result for result in self.of(benchmark, subject, variant) if result.median(by) is not None]
        return min(found, key=lambda result: result.median(by) or 0.0, default=None)

    def median(self, benchmark: str, subject: str, variant: str, name: str) -> float | None:
        """A number of the best such result, or None where it was not measured."""
        found = self.best(benchmark, subject, variant, by=name)
        return found.median(name) if found else None

    def times_frazil(self, result: Result, name: str) -> float | None:
        """How many times Frazil's number the peer's is, in the same variant, over as many records and measured by the same
        invocation: the machine is not the same from one hour to the next.
        """
        same = result.variant.split("-")[0]
        own = self._beside(result, "frazil", same)
        return ratio(result.median(name), own.median(name)) if own else None

    def times_plain(self, variant: str, name: str, plain: str = "running") -> float | None:
        """How many times the number of `plain`, JSON unless named, a variant's is, both running, in the newest invocation
        that has both.
        """
        for own in reversed(self._every):
            if (own.benchmark, own.subject, own.variant) == ("throughput", "frazil", variant):
                clean = self._beside(own, "frazil", plain)
                if clean is not None:
                    return ratio(own.median(name), clean.median(name))
        return None

    def best_ratio(self, benchmark: str, peer: str, variant: str, name: str) -> float | None:
        """How many times Frazil's number the peer's is at its best setting, in the newest invocation that measured both."""
        found: dict[str, list[float]] = {}
        for result in self._every:
            if (result.benchmark, result.subject) == (benchmark, peer) and result.variant.startswith(variant):
                times = self.times_frazil(result, name)
                if times is not None:
                    found.setdefault(result.invocation, []).append(times)
        return min(list(found.values())[-1]) if found else None

    def _beside(self, result: Result, subject: str, variant: str) -> Result | None:
        """What the same invocation measured over as many records."""
        for other in reversed(self._every):
            is_same = (other.benchmark, other.subject, other.variant) == (result.benchmark, subject, variant)
            if is_same and other.invocation == result.invocation and other.records == result.records:
                return other
        return None

    def __iter__(self) -> Any:
        return iter(self._all)


def read_results(folder: Path) -> Results:
    """All of them; file names begin with their time."""
    contents = (json.loads(path.read_text()) for path in sorted(folder.glob("*.json")))
    return Results(Result(one["benchmark"], one["subject"], one["variant"], one) for one in contents)
