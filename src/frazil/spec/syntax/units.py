"""Durations and sizes as people write them: a number and its unit, always both.

`MB` is a million bytes and `MiB` is 1024 * 1024; the case of a unit is part of its name.
"""

from __future__ import annotations

import re

from frazil.errors import SpecError

SECONDS_OF = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
BYTES_OF = {
    "B": 1,
    "kB": 1000,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
    "TiB": 1024**4,
}
_SPELLED_SECONDS = {
    **dict.fromkeys(("ms", "msec", "msecs", "millis", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 24 * 3600.0),
    **dict.fromkeys(("w", "week", "weeks"), 7 * 24 * 3600.0),
}
"""Units of durations as other tools spell them, in seconds."""
_DAY_S = 86_400.0
_ISO_8601 = re.compile(r"P((?:[0-9]+[WD])*)(?:T([0-9.A-Z]+))?")
_PART_OF_DURATION = r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]+)"
_QUANTITY = r"([0-9]+(?:\.[0-9]+)?) ?"
DURATION_PATTERN = f"^{_QUANTITY}({'|'.join(SECONDS_OF)})$"
WINDOW_PATTERN = r"^([01][0-9]|2[0-3]):[0-5][0-9]-([01][0-9]|2[0-3]):[0-5][0-9]$"
DAYS_PATTERN = r"^([1-9][0-9]{0,4}) ?d$"
SIZE_PATTERN = f"^{_QUANTITY}({'|'.join(BYTES_OF)})$"


LONGEST_S = 876_000 * 3600.0
"""The longest duration: a hundred years, whose milliseconds and dates every service can hold."""


def parse_duration(text: str, longest_s: float = LONGEST_S) -> float:
    """Seconds of a duration such as `500ms`, `2s`, `5m` or `1h`; more than zero, and `longest_s` at most."""
    match = re.fullmatch(DURATION_PATTERN[1:-1], text, re.ASCII)
    days = re.fullmatch(r"([0-9]{1,9}) ?d", text, re.ASCII)
    if days is not None and int(days[1]) == 0:
        raise _zero(text)
    if days is not None:
        hours = min(int(days[1]) * 24, int(longest_s // 3600))
        raise SpecError(f"`{text}` is not a duration", remedy=f"write it in hours: `{hours}h`")
    if match is None:
        raise _unreadable(text, "duration", f"one of {', '.join(SECONDS_OF)}, for example `{_meant_duration(text)}`")
    seconds = float(match[1]) * SECONDS_OF[match[2]]
    if seconds <= 0:
        raise _zero(text)
    if seconds > longest_s:
        raise SpecError(f"the duration `{text}` is too long", remedy=f"write `{duration_text(longest_s)}` or less")
    return seconds


def parse_days(text: str) -> float:
    """Seconds of days, such as `30d`, or of a duration."""
    days = re.fullmatch(DAYS_PATTERN[1:-1], text, re.ASCII)
    if days is not None:
        return int(days[1]) * _DAY_S
    try:
        return parse_duration(text)
    except SpecError as error:
        if _number(text) == text:
            raise SpecError(error.message, remedy=f"write it in days, such as `{int(float(text)) or 7}d`") from None
        seconds = _meant_seconds(text)
        if not 0 < seconds <= LONGEST_S or seconds % _DAY_S:
            raise
        raise SpecError(error.message, remedy=f"write it in days: `{seconds / _DAY_S:.0f}d`") from None


def parse_size(text: str) -> int:
    """Bytes of a size such as `128MiB`, `1GiB` or `10MB`; at least one."""
    match = re.fullmatch(SIZE_PATTERN[1:-1], text, re.ASCII)
    if match is None:
        units = ", ".join(unit for unit in BYTES_OF if unit != "kB")
        raise _unreadable(text, "size", f"one of {units}, for example `{_meant_size(text)}`")
    size_bytes = int(float(match[1]) * BYTES_OF[match[2]])
    if size_bytes < 1:
        raise SpecError(f"the size `{text}` is zero", remedy="write a size that is more than zero, such as `128MiB`")
    return size_bytes


def parse_share(text: str) -> float:
    """The share, 0 to 1, of a percentage such as `5%`."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*%", text, re.ASCII)
    if match is None or float(match[1]) > 100:
        raise SpecError(
            f"`{text}` is not a share", remedy=f"write a percentage up to 100%, such as `{_meant_share(text)}`"
        )
    return float(match[1]) / 100


def parse_window(text: str) -> tuple[int, int]:
    """Minutes of the day (UTC) from and to of a window such as `22:00-06:00`."""
    if re.fullmatch(WINDOW_PATTERN, text) is None:
        raise SpecError(f"`{text}` is not a window", remedy="write two times of the day (UTC), such as `22:00-06:00`")
    begin, end = (int(part[:2]) * 60 + int(part[3:]) for part in text.split("-"))
    if begin == end:
        raise SpecError(f"the window `{text}` is empty", remedy="write two different times, or remove it")
    return begin, end


def duration_text(seconds: float) -> str:
    """The duration as a pipeline file writes it, in the largest unit that gives a whole number."""
    millis, millis_of = round(seconds * 1000), {unit: round(of_s * 1000) for unit, of_s in SECONDS_OF.items()}
    unit = next(unit for unit in reversed(SECONDS_OF) if millis % millis_of[unit] == 0)
    return f"{millis // millis_of[unit]}{unit}"


def days_text(seconds: float) -> str:
    """The duration in days, where they are a whole number; else as `duration_text`."""
    return f"{seconds / _DAY_S:.0f}d" if seconds % _DAY_S == 0 else duration_text(seconds)


def size_text(size_bytes: int) -> str:
    """The size as a pipeline file writes it, in the largest binary unit that gives a whole number."""
    unit = next(unit for unit in reversed(BYTES_OF) if size_bytes % BYTES_OF[unit] == 0)
    return f"{size_bytes // BYTES_OF[unit]}{unit}"


def share_text(share: float) -> str:
    """The share, 0 to 1, as a percentage."""
    return f"{share * 100:g}%"


def _number(text: str) -> str:
    match = re.match(r"[0-9]+(?:\.[0-9]+)?", text, re.ASCII)
    return match[0] if match else ""


def _meant_duration(text: str) -> str:
    """The duration that a text in another form probably means; that of its number where the unit is unknown."""
    if seconds := _meant_seconds(text):
        return duration_text(seconds)
    number = _number(text)
    # Other tools have such settings in milliseconds.
    return f"{number if float(number or 0) else 5}{'ms' if len(number) > 3 else 's'}"


def _meant_seconds(text: str) -> float:
    """The seconds of a duration in another form, such as `5 min`, `1m30s` or ISO 8601's `PT5M`; 0 where they are unknown."""
    words = text.replace(" ", "").lstrip("+-")
    if of_iso := _ISO_8601.fullmatch(words):
        words = "".join(part or "" for part in of_iso.groups())
    parts = re.findall(_PART_OF_DURATION, words, re.ASCII) if re.fullmatch(f"(?:{_PART_OF_DURATION})+", words) else []
    units = [unit.lower() for _, unit in parts]
    if not all(unit in _SPELLED_SECONDS for unit in units):
        return 0.0
    return sum(float(number) * _SPELLED_SECONDS[unit] for (number, _), unit in zip(parts, units, strict=True))


def _zero(text: str) -> SpecError:
    return SpecError(f"the duration `{text}` is zero", remedy="write a duration that is more than zero, such as `1s`")


def _meant_share(text: str) -> str:
    """The share that a number without a percent sign, or with a comma, probably means."""
    plain = text.replace(",", ".").removesuffix("%").strip()
    if re.fullmatch(r"[0-9]*\.?[0-9]+", plain, re.ASCII) is None or not 0 < float(plain) <= 100:
        return "20%"
    is_fraction = "%" not in text and float(plain) < 1
    return share_text(float(plain) if is_fraction else float(plain) / 100)


def _meant_size(text: str) -> str:
    """The size that a text in another form probably means, such as `128m` or a number of bytes."""
    number = _number(text)
    unit = text.removeprefix(number).strip().lower()
    if number and not unit and float(number) >= 1024:
        return size_text(int(float(number)))
    unit = "b" if unit in ("byte", "bytes") else unit
    meant = (name for name in BYTES_OF if unit and name != "kB" and name.lower() in (unit, f"{unit}ib"))
    return f"{number or 128}{next(meant, 'MiB')}"


def _unreadable(text: str, kind: str, units: str) -> SpecError:
    if _number(text) == text:
        return SpecError(f"the {kind} `{text}` has no unit", remedy=f"write a unit: {units}")
    return SpecError(f"`{text}` is not a {kind}", remedy=f"write a number and a unit: {units}")
