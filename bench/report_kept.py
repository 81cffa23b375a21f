"""What a report keeps of the one before it: a machine need not have measured all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

GOALS, SURROUNDINGS = "Figures and goals", "Where and with what"
UNMEASURED = "not measured"
_EARLIER = "The other figures are from earlier runs:"


def with_kept(new: Mapping[str, str], old: Mapping[str, str]) -> dict[str, str]:
    """The sections of a report by their titles, in their order; those that are empty, and goals without a figure, as the old
    report has them, with where these come from.
    """
    found = {title: body or old.get(title, "") for title, body in new.items()}
    found[GOALS] = "\n".join(_goals(new.get(GOALS, ""), old.get(GOALS, ""))) + "\n"
    is_kept = any(old.get(title) and not body for title, body in new.items()) or found[GOALS] != new.get(GOALS)
    before = old.get(SURROUNDINGS, "")
    if new.get(SURROUNDINGS) and before and is_kept:
        is_known = new[SURROUNDINGS] in before
        found[SURROUNDINGS] = (
            before if is_known else f"{new[SURROUNDINGS]}\n{_EARLIER}\n\n" + before.replace(f"{_EARLIER}\n\n", "")
        )
    return found


def sections_of(report: str) -> dict[str, str]:
    """A report's sections by their titles."""
    parts = (part.partition("\n") for part in f"\n{report}".split("\n## ")[1:])
    return {title: body.strip("\n") + "\n" for title, _, body in parts}


def _goals(new: str, old: str) -> Iterator[str]:
    known = dict(_rows(old))
    for place, line in _rows(new):
        is_missing = f"| {UNMEASURED} |" in line
        yield known.get(place, line) if is_missing else line


def _rows(goals: str) -> Iterator[tuple[tuple[str, int], str]]:
    """The lines of a table by what they are of, and which of several such they are."""
    seen: Counter[str] = Counter()
    for line in filter(lambda line: line.startswith("|"), goals.splitlines()):
        what = "|".join(line.split("|")[1:3])
        seen[what] += 1
        yield (what, seen[what]), line
