"""The charts of docs/start/compare.md are those of docs/figures.json, and say how often and when each was measured."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from docs import charts
from docs.charts import Measured, entry_of, lost, read_figures, write_figures
from docs.scan import ROOT

_ENTRIES = read_figures()
_WHEN = {"date": "2026-01-02", "commit": "abc1234", "machine": "2 cores (c), 8 GiB"}


@pytest.mark.parametrize("chart", charts.charts(_ENTRIES), ids=lambda chart: chart.file)
def test_the_charts_are_fresh(chart: charts.Chart) -> None:
    drawn = charts.draw(chart)
    assert (charts.IMAGES / f"chart-{chart.file}.svg").read_text() == drawn, "make docs"
    assert ElementTree.fromstring(drawn).tag.endswith("svg")
    assert chart.bars


def test_the_page_is_fresh_and_says_of_each_figure_how_often_and_when_it_was_measured() -> None:
    text = charts.PAGE.read_text()
    assert charts.page(text, _ENTRIES) == text, "make docs"
    assert len(re.findall(r"^!\[", text, re.MULTILINE)) == 6
    for entry in _ENTRIES:
        assert re.search(rf"{entry.runs} runs?(; [^*]*)?: {entry.date}, commit {entry.commit}", text), entry


@pytest.mark.parametrize("chart", charts.charts(_ENTRIES), ids=lambda chart: chart.file)
def test_what_a_chart_compares_is_of_one_commit_and_machine_and_was_measured_five_times(chart: charts.Chart) -> None:
    assert len({(entry.commit, entry.machine) for entry in chart.sources}) == 1, "make figures"
    assert min(entry.runs for entry in chart.sources) >= 5, "make figures"


def test_the_readme_has_the_cpu_of_the_charts() -> None:
    loads = {entry.subject: entry.median("cpu_s_per_million") for entry in _ENTRIES if entry.what == "load"}
    times = " | ".join(f"{loads[subject] / loads['frazil']:.1f}" for subject in ("connect", "flink", "stock"))
    assert f"(docs/start/compare.md)) | 1 | {times} |" in (ROOT / "README.md").read_text()


def test_the_later_of_two_entries_of_one_measurement_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    earlier, later = (entry_of("frazil", "kill", "", [{"recovered_s": one}], _WHEN) for one in (9.0, 5.0))
    other = entry_of("stock", "kill", "", [{"recovered_s": 8.0}, {"recovered_s": 10.0}, {"recovered_s": 12.0}], _WHEN)
    write_figures(file, [earlier, other, later])
    assert read_figures(file) == [later, other]
    assert (other.runs, other.values) == (3, {"recovered_s": {"min": 8.0, "median": 10.0, "max": 12.0}})


def test_what_frazil_loses_is_listed_with_both_values() -> None:
    ours, theirs = (
        entry_of(subject, "load", "", [{"cpu_s_per_million": cpu, "records_per_s": 1e6, "peak_rss_mb": memory}], _WHEN)
        for subject, cpu, memory in (("frazil", 0.5, 1767), ("connect", 2.5, 1470))
    )
    assert lost([ours, theirs]) == ["Kafka Connect Iceberg sink: less memory (1,470; Frazil 1,767)."]
    assert lost([ours]) == lost([theirs]) == []


def test_a_whisker_ends_at_the_largest_run() -> None:
    spread = {"min": 1.0, "median": 2.0, "max": 4.0}
    [*_, chart] = charts.charts([Measured("frazil", "load", "", dict.fromkeys(_LOAD, spread), 5, **_WHEN)])
    assert (chart.bars[0].value, chart.bars[0].until) == (0.002, 0.004)
    assert '<path d="M' in charts.draw(chart)


_LOAD = ("cpu_s_per_million", "records_per_s", "peak_rss_mb")
