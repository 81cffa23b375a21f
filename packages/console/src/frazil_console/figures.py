"""What the list of tables shows of each: figures from what the loop published, their order, and their cells as HTML. Pure.

A cell is the unit of live updates, so each is made here and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import numpy as np
from markupsafe import Markup, escape

from frazil.ops.pipeline_status import TableStatus
from frazil.ops.reports import NOTHING, Problem, count, duration, held_back
from frazil.printable import plain
from frazil_console.charts import sparkline
from frazil_console.history import Samples

LATE_S = 60.0
"""From this lag on a table needs attention: a commit interval is seconds."""
_RATE_SAMPLES = 6
_DAY_MS = 86_400_000
_IDLE = frozenset(("waiting", "running"))
_RANKS = {"stopped": 0, "backing off": 1, "paused": 2}
_LATE, _HELD_BACK, _NEW, _DEAD_LETTERS, _WELL = 3, 4, 5, 6, 7
_STATE = Markup('<span class="state {kind}">{state}</span>{reason}')
_LINE = Markup(' <span class="{kind}">{text}</span>')
_HELD = Markup('{lag} <span class="reason">{held} behind an open transaction</span>')
_FRESHNESS = Markup("{spark} <span>{now}</span> <small>{most}</small>")
_DEAD_LETTER_LINK = Markup('<a href="{url}">{number}</a>')


@dataclass(frozen=True)
class LastHour:
    """What the list shows of a table's last hour; None for what is not known."""

    worst_freshness_s: float | None
    #: Records per second over the last minute.
    rate: float | None
    spark: Markup


@dataclass(frozen=True)
class Figures:
    """One table as the list shows it; None for what is not known."""

    table: TableStatus
    lag_s: float | None
    #: See `TableStatus.freshness_s`.
    freshness_s: float | None
    hour: LastHour

    @property
    def rate(self) -> float | None:
        """Records per second over the last minute."""
        return self.hour.rate

    @property
    def held_back(self) -> Problem | None:
        """What it cannot read yet, though it is in Kafka; None where nothing is."""
        return held_back(self.table.lag.open_transactions)

    @property
    def unpublished(self) -> Problem | None:
        """Why readers do not see what its branch has; None where nothing is held."""
        seen = self.table.recorded.publishing
        if seen is None or seen.state not in ("held", "diverged"):
            return None
        return Problem(f"not published: {seen.reason}", seen.remedy)

    @property
    def is_new(self) -> bool:
        """Whether the pipeline has not committed to it yet, though there may be records."""
        return not self.table.progress.committed and self.table.lag.lag_records != 0

    @property
    def dead_letters(self) -> int:
        """The number of its dead letters."""
        return self.table.progress.dead_letters or 0

    @property
    def shown_problem(self) -> Problem | None:
        """What is shown beside its state. Open transactions come and go: they are a problem of a table that is late."""
        return (
            self.table.condition.problem
            or (self.held_back if self.rank in (_LATE, _NEW) else None)
            or (self.unpublished if self.rank == _HELD_BACK else None)
        )

    @property
    def rank(self) -> int:
        """How urgently the table needs attention, the most urgent first."""
        if self.table.condition.state in _RANKS:
            return _RANKS[self.table.condition.state]
        if (self.lag_s or 0) > LATE_S:
            return _LATE
        if self.unpublished is not None:
            return _HELD_BACK
        if self.is_new:
            return _NEW
        return _DEAD_LETTERS if self.dead_letters else _WELL


def last_hour_of(samples: Samples, spark: Markup | None = None) -> LastHour:
    """Returns what the list shows of the samples of a table's last hour, which change every ten seconds. spark: a chart of
    them that is recent enough; drawn where it is None.
    """
    fresh, rates = samples[1], samples[2, -_RATE_SAMPLES:]
    known_rates = rates[~np.isnan(rates)]
    return LastHour(
        worst_freshness_s=None if np.isnan(fresh).all() else float(np.nanmax(fresh)),
        rate=float(known_rates.mean()) if known_rates.size else None,
        spark=sparkline(fresh, 1.0) if spark is None else spark,
    )


def figures_of(table: TableStatus, hour: LastHour, now_ms: int) -> Figures:
    """Returns the figures of one table."""
    return Figures(table, table.lag_s(now_ms), table.freshness_s(now_ms), hour)


# ---- cells


def cells_of(figures: Figures, now_ms: int) -> tuple[str, ...]:
    """Returns the HTML inside the cells of a table's row behind its name, in the order of `COLUMNS`."""
    table = figures.table
    lag = count(table.lag.lag_records)
    if table.lag.open_transactions:
        lag = _HELD.format(lag=lag, held=count(sum(held.span for held in table.lag.open_transactions)))
    most = "" if figures.hour.worst_freshness_s is None else f"max {duration(figures.hour.worst_freshness_s)}"
    cells = (
        state_cell(figures),
        clock_time(table.progress.watermark_ms, now_ms),
        lag,
        _FRESHNESS.format(spark=figures.hour.spark, now=duration(figures.freshness_s), most=most),
        rate_text(figures.rate),
        clock_time(table.progress.last_commit_ms, now_ms),
        _dead_letters(figures),
    )
    return tuple(str(escape(cell)) for cell in cells)


def state_cell(figures: Figures) -> Markup:
    """Returns the state as text beside its shape, with the reason, its place and what to do."""
    state = figures.table.condition.state
    kind = state.replace(" ", "-")
    if figures.rank == _LATE:
        kind, state = "late", f"{state}, late"
    elif figures.rank == _HELD_BACK:
        kind, state = "held", f"{state}, not published"
    if figures.rank in (_LATE, _NEW) and figures.is_new:
        state = f"{state}, no commit yet"
    return _STATE.format(kind=kind, state=state, reason=_problem(figures))


def _problem(figures: Figures) -> Markup:
    problem = figures.shown_problem
    if problem is None:
        return Markup()
    # The page has a button for what the remedy of a paused table names.
    remedy = "" if figures.table.condition.state == "paused" else problem.remedy
    lines = (("reason", plain(problem.message)), ("where", plain(problem.where)), ("remedy", with_code(remedy)))
    return Markup().join(_LINE.format(kind=kind, text=text) for kind, text in lines if text)


def with_code(text: str) -> Markup:
    """Returns the text as markup, with each part between backticks as code, such as a setting or a command."""
    pieces = re.split(r"`([^`]+)`", plain(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if place % 2 else escape(piece) for place, piece in enumerate(pieces)
    )


def _dead_letters(figures: Figures) -> str:
    if not figures.dead_letters:
        return "0"
    return _DEAD_LETTER_LINK.format(
        url=f"{url_of(figures.table.name)}/dead-letters", number=count(figures.dead_letters)
    )


def url_of(name: str) -> str:
    """Returns the path of a table's page."""
    return f"/tables/{quote(name, safe='')}"


def rate_text(rate: float | None) -> str:
    """Returns a rate in records per second."""
    if rate is None:
        return NOTHING
    return f"{rate:,.1f}/s" if 0 < rate < 9.95 else f"{rate:,.0f}/s"


def clock_time(at_ms: int | None, now_ms: int | None = None) -> str:
    """Returns a time in UTC, without its date on the day of `now_ms`. It is not an age, which would change every second."""
    if at_ms is None:
        return NOTHING
    is_today = now_ms is not None and at_ms // _DAY_MS == now_ms // _DAY_MS
    try:
        return f"{datetime.fromtimestamp(at_ms / 1000, UTC):{'%H:%M:%S' if is_today else '%Y-%m-%d %H:%M:%S'}}"
    except (OverflowError, ValueError, OSError):  # A record's timestamp can be anything.
        return f"{at_ms} ms"


def moment(text: str | None) -> str:
    """Returns a time in ISO 8601 and UTC as people write it."""
    return NOTHING if text is None else text.replace("T", " ").removesuffix("+00:00")


# ---- order


@dataclass(frozen=True)
class Column:
    """One column of the list."""

    key: str
    title: str
    #: What its rows are ordered by, the smallest first.
    order: Callable[[Figures], Any]
    is_number: bool = False


def _largest_first(read: Callable[[Figures], float | None]) -> Callable[[Figures], float]:
    return lambda figures: -(read(figures) or 0)


COLUMNS = (
    Column("name", "Table", lambda figures: figures.table.name),
    # Not by the lag of tables that are well: it is another at each moment, and they would change places.
    Column("state", "State", lambda figures: (figures.rank, -(figures.lag_s or 0) if figures.rank <= _LATE else 0)),
    Column("complete", "Complete to", lambda figures: figures.table.progress.watermark_ms or 0),
    Column("lag", "Lag", _largest_first(lambda figures: figures.table.lag.lag_records), True),
    Column("freshness", "Freshness, last hour", _largest_first(lambda figures: figures.freshness_s), True),
    Column("rate", "Rate", _largest_first(lambda figures: figures.rate), True),
    Column("commit", "Last commit", lambda figures: -(figures.table.progress.last_commit_ms or 0)),
    Column("dead_letters", "Dead letters", _largest_first(lambda figures: figures.dead_letters), True),
)
FILTERS: Mapping[str, Callable[[Figures], bool]] = {
    "attention": lambda figures: figures.rank < _WELL,
    "stopped": lambda figures: figures.table.condition.state == "stopped",
    "backing off": lambda figures: figures.table.condition.state == "backing off",
    "paused": lambda figures: figures.table.condition.state == "paused",
    "late": lambda figures: figures.rank == _LATE,
    "not published": lambda figures: figures.unpublished is not None,
    "without a commit": lambda figures: figures.rank == _NEW,
    "with dead letters": lambda figures: figures.dead_letters > 0,
    "active": lambda figures: bool(figures.rate),
    "idle": lambda figures: not figures.rate and figures.table.condition.state in _IDLE,
}
"""Which tables a filter keeps, by its name."""


def chosen(every: Iterable[Figures], text: str, kept: str, column: str, is_reversed: bool) -> list[Figures]:
    """Returns the tables whose name contains `text` and that the filter `kept` keeps, ordered by a column."""
    words = text.lower().split()
    keeps = FILTERS.get(kept)
    kept_figures = [
        figures
        for figures in every
        if (keeps is None or keeps(figures)) and all(word in figures.table.name.lower() for word in words)
    ]
    orders = {shown.key: shown.order for shown in COLUMNS}
    by_name = sorted(kept_figures, key=lambda figures: figures.table.name)
    return sorted(by_name, key=orders.get(column, orders["state"]), reverse=is_reversed)


def summary_of(every: Iterable[Figures]) -> dict[str, int]:
    """Returns how many tables each filter keeps, for those that ask for attention."""
    tables = list(every)
    names = ("stopped", "backing off", "paused", "late", "not published", "without a commit", "with dead letters")
    return {name: sum(map(FILTERS[name], tables)) for name in names}
