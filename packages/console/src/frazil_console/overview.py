"""The answer to "is all well?": what the first page shows of all tables together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from frazil.printable import plural
from frazil_console.figures import FILTERS, Figures
from frazil_console.history import FINE, Samples


@dataclass(frozen=True)
class Overview:
    """All tables together; None for what is not known of any."""

    #: One sentence.
    answer: str
    is_well: bool
    #: Records per second over the last minute.
    rate: float | None
    lag_records: int | None
    #: The table that shows its rows latest, and by how much in the last hour.
    latest: tuple[str, float] | None
    #: The table of the newest commit, and its time.
    newest_commit: tuple[str, int] | None
    dead_letters: int
    #: Tables that have stopped, the longest list that one looks at.
    stopped: tuple[Figures, ...]


def overview_of(every: Sequence[Figures], is_starting: bool) -> Overview:
    """Returns what the first page shows of these tables. is_starting: whether no state is known yet."""
    needy = [figures for figures in every if FILTERS["attention"](figures)]
    stopped = [figures for figures in every if FILTERS["stopped"](figures)]
    late = [
        (figures.table.name, figures.hour.worst_freshness_s)
        for figures in every
        if figures.hour.worst_freshness_s is not None
    ]
    commits = [
        (figures.table.name, figures.table.progress.last_commit_ms)
        for figures in every
        if figures.table.progress.last_commit_ms is not None
    ]
    rates = [figures.rate for figures in every if figures.rate is not None]
    lags = [figures.table.lag.lag_records for figures in every if figures.table.lag.lag_records is not None]
    return Overview(
        answer=_answer(len(every), len(needy), len(stopped), is_starting),
        is_well=not needy and not is_starting,
        rate=sum(rates) if rates else None,
        lag_records=sum(lags) if lags else None,
        latest=max(late, key=lambda pair: pair[1], default=None),
        newest_commit=max(commits, key=lambda pair: pair[1], default=None),
        dead_letters=sum(figures.dead_letters for figures in every),
        stopped=tuple(stopped[:5]),
    )


def total_rate(histories: Iterable[Samples]) -> Samples:
    """Returns the records per second of all tables together, from samples of each; NaN where no table has one."""
    rates = np.array([samples[2] for samples in histories] or [np.full(FINE.size, np.nan)], np.float32)
    known = ~np.isnan(rates)
    return np.where(known.any(axis=0), np.where(known, rates, 0).sum(axis=0), np.float32(np.nan)).astype(np.float32)


def _answer(total: int, needy: int, stopped: int, is_starting: bool) -> str:
    if is_starting:
        return "The pipeline is starting."
    if not needy:
        return f"All is well: {plural(total, 'table')}."
    verb = "needs" if needy == 1 else "need"
    rest = f", {stopped} stopped" if stopped else ""
    return f"{needy:,} of {plural(total, 'table')} {verb} attention{rest}."
