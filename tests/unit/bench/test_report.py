"""From results to the page: the newest counts, the peer's best setting counts, the rest of the page stays."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from bench.arithmetic import summary
from bench.connect import renamed
from bench.goals import GOALS, Goal
from bench.plot import draw
from bench.report import between_markers, render
from bench.report_tables import table
from bench.results import Result, Results, read_results
from bench.settings import FORMAT_VARIANTS


def result(
    subject: str,
    variant: str,
    cpu: float,
    records: int = 4_000_000,
    invocation: str = "one",
    benchmark: str = "throughput",
) -> Result:
    runs = [{"cpu_s_per_million": cpu, "records_per_s": 1000.0, "other_cores": 0.01}]
    machine = {"cores": 2, "cpu": "c", "memory_gib": 8, "system": "s", "java": "j", "python": "3", "commit": "abc"}
    content = {
        "benchmark": benchmark,
        "invocation": invocation,
        "subject": subject,
        "variant": variant,
        "finished": "2026-01-01T00:00:00+00:00",
        "command": ["python", "-m", "bench"],
        "settings": {"records": records},
        "machine": {**machine, "packages": {"pyspark": "4"}},
        "summary": summary(runs),
        "runs": runs,
    }
    return Result(benchmark, subject, variant, content)


def write(folder: Path, name: str, one: Result) -> None:
    (folder / name).write_text(json.dumps(one.content))


def test_of_the_same_measurement_the_newest_file_counts(tmp_path: Path) -> None:
    write(tmp_path, "2-throughput.json", result("frazil", "plain", 2.0))
    write(tmp_path, "1-throughput.json", result("frazil", "plain", 9.0))
    assert read_results(tmp_path).median("throughput", "frazil", "plain", "cpu_s_per_million") == 2.0


def test_a_peer_is_compared_at_its_best_setting() -> None:
    peers = [result("stock", "plain-zstd-3", 6.0), result("stock", "plain-zstd-1", 5.0)]
    results = Results([result("frazil", "plain", 2.0), *peers])
    assert results.best_ratio("throughput", "stock", "plain", "cpu_s_per_million") == 2.5


def test_a_peer_is_compared_with_what_the_same_invocation_measured() -> None:
    together = [result("frazil", "plain", 2.0), result("stock", "plain-zstd-3", 5.0)]
    later = [
        result("frazil", "plain", 1.0, invocation="later"),
        result("stock", "plain-zstd-1", 9.0, invocation="alone"),
    ]
    results = Results([*together, *later])
    assert results.best_ratio("throughput", "stock", "plain", "cpu_s_per_million") == 2.5
    assert results.times_frazil(later[1], "cpu_s_per_million") is None
    assert Results(later).best_ratio("throughput", "stock", "plain", "cpu_s_per_million") is None


def test_a_peer_is_compared_with_the_same_variant_of_frazil() -> None:
    peer = result("stock", "metadata-zstd-3", 9.0)
    results = Results([result("frazil", "plain", 2.0), result("frazil", "metadata", 3.0), peer])
    assert results.times_frazil(peer, "cpu_s_per_million") == 3.0


def test_runs_over_different_topics_are_not_compared() -> None:
    peer = result("stock", "plain-zstd-3", 9.0, records=200_000)
    assert Results([result("frazil", "plain", 2.0), peer]).times_frazil(peer, "cpu_s_per_million") is None


def test_what_was_not_measured_has_no_number() -> None:
    assert Results([]).median("throughput", "frazil", "plain", "cpu_s_per_million") is None
    assert [goal.measured(Results([])) for goal in GOALS] == [None] * len(GOALS)


@pytest.mark.parametrize(("at_least", "value", "is_met"), [(False, 3.0, True), (False, 3.1, False), (True, 2.9, False)])
def test_a_goal_is_an_upper_or_a_lower_bound(at_least: bool, value: float, is_met: bool) -> None:
    assert Goal("what", "s", 3.0, lambda _: value, at_least).is_met(value) is is_met


def test_only_what_stands_between_the_markers_is_written_again() -> None:
    page = "before\n<!-- bench report begins -->\nold\n<!-- bench report ends -->\nafter\n"
    written = between_markers(page, "new\n")
    assert written == "before\n<!-- bench report begins -->\n\nnew\n\n<!-- bench report ends -->\nafter\n"
    assert between_markers(written, "new\n") == written


def test_what_was_not_measured_again_stays_with_where_it_was_measured() -> None:
    first = render(Results([result("frazil", "running", 1.0), result("frazil", "avro", 0.5)]))
    idle = result("frazil", "200-topics", 9.0, benchmark="idle")
    idle.content["machine"]["commit"] = "def"
    second = render(Results([idle]), first)
    rows = ("| Frazil", "| JSON, 8 fields: CPU seconds per million records, run", "| avro ")
    kept = [line for line in first.splitlines() if line.startswith(rows)]
    assert len(kept) == 3
    assert set(kept) <= set(second.splitlines())
    assert "| idle | 200-topics |" in second
    new, _, earlier = second.partition("The other figures are from earlier runs:")
    assert ("at commit def" in new, "at commit abc" in earlier) == (True, True)
    assert second.count("(performance.svg)") == 1
    assert render(Results([idle]), second) == second, "once more it is the same"
    assert render(Results([]), first) == first


def test_a_page_without_markers_is_not_overwritten() -> None:
    with pytest.raises(ValueError, match="no markers"):
        between_markers("my page", "new")


def test_an_empty_table_is_left_out() -> None:
    assert table(["a"], []) == ""
    assert table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"


def test_the_report_names_goals_ratios_and_the_machine() -> None:
    page = render(Results([result("frazil", "plain", 2.0), result("stock", "plain-zstd-3", 6.0)]))
    assert "| CPU of Spark Structured Streaming, both new | ≥ 4 × Frazil's | 3 | **no** |" in page
    assert "| CPU of the Kafka Connect sink, both new | ≥ 3.2 × Frazil's | not measured |  |" in page
    assert (
        "| JSON, 8 fields: CPU seconds per million records, the first 4 M of a new process | ≤ 1.6 | 2 | **no** |"
        in page
    )
    assert "`python -m bench`" in page


def test_a_ratio_to_plain_json_is_of_one_invocation_alone() -> None:
    results = Results([result("frazil", "running", 2.0), result("frazil", "bad", 2.5)])
    assert results.times("throughput", "bad", "running", "cpu_s_per_million") == 1.25
    other = Results([result("frazil", "running", 2.0, invocation="another"), result("frazil", "bad", 2.5)])
    assert other.times("throughput", "bad", "running", "cpu_s_per_million") is None
    assert Results([result("frazil", "bad", 2.5)]).times("throughput", "bad", "running", "cpu_s_per_million") is None


def test_bad_records_in_avro_are_compared_with_clean_avro_of_the_same_invocation() -> None:
    results = Results(
        [result("frazil", name, cpu) for name, cpu in (("running", 2.0), ("avro", 1.0), ("avro_bad", 1.2))]
    )
    page = render(results)
    assert "| 1 % bad records scattered evenly, in Avro: CPU | ≤ 1.5 × clean Avro's | 1.2 | yes |" in page
    assert "| avro_bad | the Avro of `avro`, 1 % bad, to dead letters |" in page
    alone = Results([result("frazil", "avro", 1.0, invocation="another"), result("frazil", "avro_bad", 1.2)])
    assert "| 1 % bad records scattered evenly, in Avro: CPU | ≤ 1.5 × clean Avro's | not measured |  |" in render(
        alone
    )


def test_formats_have_a_table_of_their_own_in_a_fixed_order() -> None:
    page = render(
        Results([result("frazil", name, cpu) for name, cpu in (("wide", 8.0), ("avro", 1.5), ("running", 2.0))])
    )
    head, _, formats = page.partition("## Formats and bad records")
    assert "| Frazil | running |" in head
    assert "| Frazil | avro |" not in head
    assert formats.index("| avro |") < formats.index("| wide |")
    assert "| Avro of the same record: CPU seconds per million records | ≤ 0.65 | 1.5 | **no** |" in page
    assert "| protobuf |" not in formats


def test_formats_are_reported_without_plain_json_to_compare_with() -> None:
    page = render(Results([result("frazil", "json_schema", 2.0)]))
    assert "| json_schema |" in page
    assert "| JSON Schema framing: CPU | ≤ 1.1 × plain JSON's | not measured |  |" in page


def test_a_new_schema_has_its_goal_and_its_table() -> None:
    one = result("frazil", "300ms", 0.0, benchmark="new_schema")
    numbers = {"back_s": 2.25, "first_new_row_s": 1.5, "max_ms": 2600.0, "rate_per_s": 10_000.0}
    content = {**one.content, "summary": summary([numbers])}
    page = render(Results([dataclasses.replace(one, content=content)]))
    assert "| a new writer schema in mid-stream: freshness back under 2 s after | ≤ 3 s | 2.25 | yes |" in page
    assert "| 300ms | 10,000 | 2.25 / **2.25** / 2.25 |" in page


@pytest.mark.parametrize(
    "results",
    [[], [("running", 2.0)], [("avro", 1.5)], [("running", 2.0), ("plain", 3.0), ("bad", 2.9), ("wide", 8.0)]],
)
def test_the_plot_draws_what_there_is(results: list[tuple[str, float]], tmp_path: Path) -> None:
    path = tmp_path / "plot.svg"
    draw(Results([result("frazil", variant, cpu) for variant, cpu in results]), path)
    drawn = path.read_text() if path.exists() else ""
    assert drawn.count("Frazil by format") == 2 * any(variant in FORMAT_VARIANTS for variant, _ in results)


def test_the_sinks_numbers_get_our_names_and_only_those_that_are_there() -> None:
    assert renamed({"rps_committed": 5, "other": 1}, {"rps_committed": "records_per_s", "x": "y"}) == {
        "records_per_s": 5
    }


def maintenance_run(variant: str, invocation: str = "one", **numbers: float) -> Result:
    one = result("frazil", variant, 0.0, benchmark="maintenance", invocation=invocation)
    return dataclasses.replace(one, content={**one.content, "summary": summary([numbers])})


def test_the_cost_of_maintenance_is_what_as_many_records_cost_more_with_it() -> None:
    off = maintenance_run("off", cpu_s_per_million=16.0)
    on = maintenance_run("on", cpu_s_per_million=20.0, p99_ms=1200, p99_worst_minute_ms=1600, tidy_after_s=200.5)
    page = render(Results([off, on]))
    assert "| 20,000 records/s with maintenance: CPU of maintenance, of that of ingestion | ≤ 25 % | 25 | yes |" in page
    assert (
        "| 20,000 records/s with maintenance: freshness p99 of the slowest minute | ≤ 1,500 ms | 1,600 | **no** |"
        in page
    )
    assert (
        "| 20,000 records/s with maintenance: from the last record until nothing is due | ≤ 300 s | 200.5 | yes |"
        in page
    )


def test_runs_of_maintenance_from_before_its_cpu_was_counted_have_no_cost() -> None:
    old = [maintenance_run("off", cores=0.375, p99_ms=1858), maintenance_run("on", cores=0.317, p99_ms=1387)]
    page = render(Results(old))
    what = "20,000 records/s with maintenance: CPU of maintenance, of that of ingestion"
    assert f"| {what} | ≤ 25 % | not measured |  |" in page
    assert (
        "| 20,000 records/s with maintenance: freshness p99 of the slowest minute | ≤ 1,500 ms | not measured |  |"
        in page
    )
    assert "| Frazil | on |" in page
