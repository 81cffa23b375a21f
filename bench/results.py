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
    """The newest result of everything that was measured."""

    def __init__(self, results: Iterable[Result]) -> None:
        self._all = list(results)

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
        """How many times Frazil's number the peer's is, in the same variant and over as many records."""
        same = result.variant.split("-")[0]
        own = next((mine for mine in self.of(result.benchmark, "frazil") if mine.variant == same), None)
        if own is None or own.records != result.records:
            return None
        return ratio(result.median(name), own.median(name))

    def times_plain(self, variant: str, name: str) -> float | None:
        """How many times the plain JSON's number a variant's is, both running and measured by one invocation."""
        found = {result.variant: result for result in self.of("throughput", "frazil")}
        own, plain = found.get(variant), found.get("running")
        if own is None or plain is None or own.invocation != plain.invocation or own.records != plain.records:
            return None
        return ratio(own.median(name), plain.median(name))

    def __iter__(self) -> Any:
        return iter(self._all)


def read_results(folder: Path) -> Results:
    """The newest of each; file names begin with their time."""
    newest: dict[tuple[str, str, str], Result] = {}
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text())
        result = Result(content["benchmark"], content["subject"], content["variant"], content)
        newest[result.benchmark, result.subject, result.variant] = result
    return Results(newest.values())
