from __future__ import annotations

import pytest

from frazil.errors import SpecError
from frazil.spec.syntax.units import LONGEST_S, duration_text, parse_days, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("2s", 2.0), ("1.5s", 1.5), ("5m", 300.0), ("1h", 3600.0), ("2 s", 2.0)]
)
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("1B", 1),
        ("2KiB", 2048),
        ("64MiB", 64 * 1024**2),
        ("1GiB", 1024**3),
        ("10MB", 10_000_000),
        ("1.5kB", 1500),
        ("1TB", 10**12),
    ],
)
def test_a_size_is_a_number_and_a_unit(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


def test_a_bare_number_is_asked_for_its_unit() -> None:
    with pytest.raises(SpecError) as duration:
        parse_duration("2")
    with pytest.raises(SpecError) as size:
        parse_size("64")
    assert str(duration.value) == "the duration `2` has no unit; write a unit: one of ms, s, m, h, for example `2s`"
    assert str(size.value) == (
        "the size `64` has no unit; write a unit: one of B, KB, MB, GB, TB, KiB, MiB, GiB, TiB, for example `64MiB`"
    )


@pytest.mark.parametrize("text", ["", "s", "2 sec", "-1s", "1e3s", "2s 5ms", "٢s", "0s", "0ms"])
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        parse_duration(text)


@pytest.mark.parametrize("text", ["", "MB", "64mb", "64Mib", "-1MB", "1 000MB", "0MB", "0.5B"])
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("5 min", "5m"),
        ("5minutes", "5m"),
        ("1M", "1m"),
        ("10 Seconds", "10s"),
        ("2hours", "2h"),
        ("250millis", "250ms"),
        ("1m30s", "90s"),
        ("1h 30m", "90m"),
        ("PT5M", "5m"),
        ("PT1H30M", "90m"),
        ("1.5 days", "36h"),
        ("5000", "5000ms"),
        ("5", "5s"),
        ("2 weeks", "336h"),
        ("1w", "168h"),
        ("P2D", "48h"),
        ("0 min", "5s"),
        ("often", "5s"),
    ],
)
def test_a_duration_in_another_form_is_answered_with_the_one_that_it_means(text: str, meant: str) -> None:
    with pytest.raises(SpecError) as error:
        parse_duration(text)
    assert error.value.remedy.endswith(f"for example `{meant}`")
    parse_duration(meant)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("128mb", "128MB"),
        ("128M", "128MiB"),
        ("64k", "64KiB"),
        ("2 gib", "2GiB"),
        ("1000 bytes", "1000B"),
        ("134217728", "128MiB"),
        ("100000000", "100MB"),
        ("100000001", "100000001B"),
        ("512", "512MiB"),
        ("large", "128MiB"),
    ],
)
def test_a_size_in_another_form_is_answered_with_the_one_that_it_means(text: str, meant: str) -> None:
    with pytest.raises(SpecError) as error:
        parse_size(text)
    assert error.value.remedy.endswith(f"for example `{meant}`")
    parse_size(meant)


def test_days_are_asked_for_in_hours() -> None:
    with pytest.raises(SpecError) as duration:
        parse_duration("7d")
    assert str(duration.value) == "`7d` is not a duration; write it in hours: `168h`"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("30 days", "30d"),
        ("30", "30d"),
        ("-7 days", "7d"),
        ("30D", "30d"),
        ("1w", "7d"),
        ("4 weeks", "28d"),
        ("P30D", "30d"),
        ("P1DT12H", "36h"),
        ("36 hours", "36h"),
    ],
)
def test_days_are_suggested_where_they_can_be_written(text: str, meant: str) -> None:
    with pytest.raises(SpecError) as error:
        parse_days(text)
    assert error.value.remedy.endswith(f"`{meant}`")
    parse_days(meant)


@pytest.mark.parametrize("text", ["0d", "0 d", "0s"])
def test_no_days_are_a_duration_of_zero(text: str) -> None:
    for parse in (parse_days, parse_duration):
        with pytest.raises(SpecError, match="is zero"):
            parse(text)


@pytest.mark.parametrize("text", ["1000000h", "876000.1h", f"{'9' * 400}h"])
def test_a_duration_of_more_than_a_hundred_years_is_refused_with_the_longest_one(text: str) -> None:
    with pytest.raises(SpecError) as duration:
        parse_duration(text)
    assert duration.value.remedy == "write `876000h` or less"
    assert parse_duration("876000h") == LONGEST_S


def test_days_beyond_the_longest_duration_are_asked_for_as_the_longest() -> None:
    with pytest.raises(SpecError) as duration:
        parse_duration("30d", 7 * 24 * 3600)
    assert duration.value.remedy == "write it in hours: `168h`"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.5, "500ms"), (90, "90s"), (1_234_567, "1234567s"), (3.6e9, "1000000h"), (604_800, "168h")]
)
def test_a_duration_is_written_as_it_is_read(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
