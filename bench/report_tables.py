"""How the report writes tables and numbers."""

from __future__ import annotations

from collections.abc import Sequence

from bench.results import Result


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, or nothing when it would be empty."""
    if not rows:
        return ""
    lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines) + "\n"


def number(value: float | None) -> str:
    """As the report writes it; nothing where it was not measured."""
    if value is None:
        return ""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def median_of(result: Result, name: str) -> str:
    """The median of the runs that count."""
    return number(result.median(name))


def spread_of(result: Result, name: str) -> str:
    """Smallest, median and largest of the runs that count."""
    spread = result.spread(name)
    if not spread:
        return ""
    return f"{number(spread['min'])} / **{number(spread['median'])}** / {number(spread['max'])}"
