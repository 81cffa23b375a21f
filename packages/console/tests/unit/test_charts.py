"""Charts of the console."""

from __future__ import annotations

import re

import numpy as np

from frazil_console.charts import bars, chart, peaks, sparkline


def test_no_peak_is_lost_and_gaps_stay_gaps() -> None:
    values = np.full(360, np.nan, np.float32)
    values[120:240] = 1
    values[200] = 9
    found = peaks(values, 30)
    assert np.nan_to_num(found, nan=-1).tolist() == [-1.0] * 10 + [1.0] * 6 + [9.0] + [1.0] * 3 + [-1.0] * 10
    assert sparkline(values, 1.0).count("M") == 1


def test_an_unchanged_value_is_one_stroke() -> None:
    assert 'd="M0 1H58"' in sparkline(np.ones(360, np.float32), 1.0)
    assert 'd=""' in sparkline(np.full(360, np.nan, np.float32), 1.0)


def test_a_chart_is_also_text_and_a_table() -> None:
    values = np.arange(360, dtype=np.float32)
    found = chart("Lag <now>", values, 7_200, 10, lambda value: f"{value:.0f} r")
    assert (found.now, found.highest, found.rows[-1], len(found.rows)) == ("359 r", "359 r", (7_200, "359 r"), 12)
    assert 'aria-label="Lag &lt;now&gt;: now 359 r, highest 359 r"' in found.svg
    unknown = chart("Lag", np.full(360, np.nan, np.float32), 7_200, 10, str)
    assert (unknown.now, unknown.highest, {text for _, text in unknown.rows}) == ("–", "–", {"–"})


def test_a_young_past_fills_its_chart_and_says_its_times_and_values() -> None:
    values = np.full(360, np.nan, np.float32)
    values[-40:] = np.arange(40)
    drawn = chart("Rate", values, 7_200, 10, lambda value: f"{value:.0f}/s")
    assert re.findall("<text[^>]*>(.*?)</text>", drawn.svg) == [
        "39/s", "20/s", "01:53:30", "01:55:07", "01:56:45", "01:58:22", "02:00:00",
    ]  # fmt: skip
    assert "<title>02:00:00: 39/s</title>" in drawn.svg
    assert 'd="M0 111' in drawn.svg
    short = np.full(360, np.nan, np.float32)
    short[-2:] = 5
    assert ">01:59:10<" in chart("Rate", short, 7_200, 10, str).svg, "a minute at least"


def test_a_chart_ends_with_the_newest_value_until_the_next_one_is_known() -> None:
    values = np.arange(360, dtype=np.float32)
    values[-1] = np.nan
    drawn = chart("Rate", values, 7_200, 10, lambda value: f"{value:.0f}/s")
    assert (drawn.now, drawn.rows[-1], len(drawn.rows)) == ("358/s", (7_190, "358/s"), 12)
    assert "<title>01:59: 358/s</title>" in drawn.svg
    values[-2] = np.nan
    assert chart("Rate", values, 7_200, 10, str).now == "–", "nobody takes samples"


def test_a_histogram_shows_every_count() -> None:
    widths = [(label, count, "0" in bar) for label, count, bar in bars([0, 1, 1_000], ["a", "b", "c"])]
    assert [found[:2] for found in widths] == [("a", 0), ("b", 1), ("c", 1_000)]
    assert 'width="1"' in bars([1, 100_000], ["a", "b"])[0][2]
