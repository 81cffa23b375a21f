"""Groups, windows and deduplication of Flink SQL as the pipeline file has them.

A windowing function in FROM (`TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))`) or in GROUP BY becomes Spark's
`window`, one of sessions its `session_window`; the first row of `ROW_NUMBER` by a key becomes `mode: upsert` or `dedupe`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from frazil_migrate.imports.sql import Word, comma_separated, group, joined, outer, plain

_BOUNDS = {"window_start": "start", "window_end": "end"}
_WINDOWS = {"TUMBLE": "window", "HOP": "window", "SESSION": "session_window"}
"""Spark's function for each of Flink's."""
_UNITS = ("SECOND", "MINUTE", "HOUR", "DAY")
_SECONDS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86_400}


@dataclass(frozen=True)
class Selected:
    """A SELECT as Frazil has it."""

    words: list[str]
    #: Keys of the table that are not in the query.
    settings: dict[str, Any] = field(default_factory=dict)


def rewritten(words: list[str]) -> Selected | None:
    """Returns a SELECT with groups, windows or ROW_NUMBER in Frazil's form, and any other as it is; None for one that has no
    such form.
    """
    upper = [word.upper() for word in words]
    if "ROW_NUMBER" in upper:
        return _deduplicated(words, upper)
    if "GROUP" not in upper:
        return Selected(words)
    of_table, window = _without_function(words)
    if of_table is None:
        return None
    words = of_table
    groups = next(place for place in outer(words) if words[place].upper() == "GROUP")
    if any(word.upper() in ("HAVING", "ROLLUP", "CUBE", "SETS") for word in words[groups:]):
        return None
    entries = []
    for entry in comma_separated(words[groups + 2 :]):
        if entry[0].upper() in _WINDOWS and len(entry) > 1:
            window = _window(entry[0].upper(), group(entry, 1)[0])
            if window is None:
                return None
        elif joined(entry) not in _BOUNDS:
            entries.append(entry)
        elif window is None:
            return None
    entries += [window] if window else []
    comma = Word(",")
    comma.is_apart = False
    grouped = [*(word for entry in entries for word in (comma, *entry))][1:]
    name = window[0].partition("(")[0] if window else "window"
    return Selected([*_with_bounds(words[:groups], name), Word("GROUP"), Word("BY"), *grouped])


def late_of(watermark: Sequence[str]) -> str | None:
    """Returns the delay of a watermark, such as that of `ts - INTERVAL '5' SECOND`, as a duration; None for another one."""
    upper = [word.upper() for word in watermark]
    if "INTERVAL" not in upper:
        return None
    number, unit = plain(watermark[upper.index("INTERVAL") + 1]), upper[-1].removesuffix("S")
    if unit not in _SECONDS or not number.isdigit() or number == "0":
        return None
    return f"{int(number) * _SECONDS[unit]}s"


def _without_function(words: list[str]) -> tuple[list[str] | None, list[str] | None]:
    """Returns the SELECT with the table in place of a windowing function in FROM, and the window; no words for a
    function that has no such form.
    """
    start = next((place for place in outer(words) if words[place].upper() == "FROM"), len(words) - 1)
    if words[start + 1].upper() != "TABLE":
        return words, None
    inner, end = group(words, start + 2)
    table, time, *durations = comma_separated(group(inner, 1)[0])
    if inner[0].upper() not in _WINDOWS or table[0].upper() != "TABLE" or time[0].upper() != "DESCRIPTOR":
        return None, None
    window = _window(inner[0].upper(), [*group(time, 1)[0], *(w for d in durations for w in (Word(","), *d))])
    upper = [word.upper() for word in table]
    table = table[1 : upper.index("PARTITION") if "PARTITION" in upper else None]  # GROUP BY has the same columns.
    return ([*words[: start + 1], *table, *words[end:]], window) if window else (None, None)


def _window(function: str, arguments: list[str]) -> list[str] | None:
    """Returns Spark's window of a tumbling, a hopping or a session window; None for durations that are not plain."""
    time, *durations = comma_separated(arguments)
    lengths = [_duration(duration) for duration in durations]
    if len(lengths) != (2 if function == "HOP" else 1) or None in lengths:
        return None
    shown = ", ".join(f"'{length}'" for length in reversed(lengths))  # Flink has the slide first.
    return [Word(f"{_WINDOWS[function]}({joined(time)}, {shown})")]


def _duration(words: Sequence[str]) -> str | None:
    if len(words) != 3 or words[0].upper() != "INTERVAL":
        return None
    unit = words[2].upper().removesuffix("S")
    return f"{plain(words[1])} {unit.lower()}s" if unit in _UNITS and plain(words[1]).isdigit() else None


def _with_bounds(words: list[str], name: str) -> list[str]:
    """Returns the words with the start and the end of a window in place of Flink's names and functions. name: of Spark's
    window.
    """
    bounds, place = list[str](), 0
    while place < len(words):
        function, _, bound = words[place].upper().rpartition("_")
        if words[place].lower() in _BOUNDS:
            bounds.append(Word(f"{name}.{_BOUNDS[words[place].lower()]}"))
            has_name = words[place + 1].upper() == "AS" or words[place + 1 : place + 2] not in ([","], ["FROM"])
            bounds += [] if has_name else [Word("AS"), Word(words[place].lower())]
            place += 1
        elif function in _WINDOWS and bound in ("START", "END") and words[place + 1] == "(":
            bounds.append(Word(f"{name}.{bound.lower()}"))
            place = group(words, place + 1)[1]
        else:
            bounds.append(words[place])
            place += 1
    return bounds


def _deduplicated(words: list[str], upper: list[str]) -> Selected | None:
    """Returns the SELECT of the rows whose ROW_NUMBER is 1, without it; None for another use of it."""
    start = next(place for place in outer(words) if upper[place] == "FROM")
    if words[start + 1] != "(":
        return None
    inner, end = group(words, start + 1)
    inner_upper = [word.upper() for word in inner]
    over = inner_upper.index("OVER")
    clause, after = group(inner, over + 1)
    clause_upper = [word.upper() for word in clause]
    if inner_upper[after] != "AS" or clause_upper[:2] != ["PARTITION", "BY"] or "ORDER" not in clause_upper:
        return None
    number = plain(inner[after + 1])
    rest = list(map(plain, words[end:]))
    rest = rest[rest.index("WHERE") if "WHERE" in rest else rest.index("where") :]
    if rest[1:] != [number, "=", "1"] and rest[1:] != [number, "<=", "1"]:
        return None
    order = clause_upper.index("ORDER")
    keys = [plain(word) for word in clause[2:order] if word != ","]
    ordered = clause[order + 2 :]
    is_last = ordered[-1].upper() == "DESC"
    by = plain(ordered[0])
    if len(ordered) > 2 or inner_upper[inner_upper.index("FROM") + 2 :]:
        return None
    source = inner[inner_upper.index("FROM") + 1 :]
    is_processing = by.upper().startswith("PROCTIME") or by.lower() in ("proctime", "proc_time")
    settings: dict[str, Any]
    if is_last:
        settings = {"mode": "upsert", "key_columns": keys, **({} if is_processing else {"order_by": by})}
    elif is_processing:
        settings = {"dedupe": {"by": keys}}
    else:
        return None  # The first by time needs the rows of all records.
    return Selected([*words[: start + 1], *source], settings)
