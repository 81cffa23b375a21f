"""The report's sections on upserts and on table maintenance."""

from __future__ import annotations

from bench.goals import READERS
from bench.report_tables import median_of, table
from bench.results import Results

_MAINTENANCE = {
    "rate_per_s": "records/s",
    "seconds": "seconds",
    "cores": "cores used",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "p99_worst_minute_ms": "p99 of the slowest minute, ms",
    "cpu_s_per_million": "CPU s per M",
    "tidy_after_s": "tidy after s",
    "files": "files",
    "p50_file_bytes": "p50 file bytes",
    "small_share": "small share",
    "peak_pss_mb": "peak MB",
}
_METADATA = {
    "commits": "commits",
    "metadata_bytes": "bytes of metadata.json",
    "snapshots": "snapshots",
    "manifests": "manifests",
    "first_ms": "first 100, median ms",
    "last_ms": "last 100, median ms",
    "ratio": "ratio",
}
_LOAD = {
    "records": "records",
    "cpu_s_per_million": "CPU s per M",
    "cpu_s_per_million_with_start": "CPU s per M from process start",
    "peak_pss_mb": "peak MB",
}
_SCATTERED = {
    "rows": "rows",
    "batches": "batches",
    "took_median_s": "median s",
    "took_max_s": "max s",
    "peak_pss_mb": "peak MB",
}
_STEADY = {
    "rate_per_s": "changes/s",
    "changes": "changes",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "behind_s": "behind s",
    "cpu_s_per_million": "CPU s per M",
    "cores": "cores used",
    "data_files_at_once": "data files",
    "deleted_share_at_once": "share of rows deleted",
    "rested_s": "maintenance's time s",
    "peak_pss_mb": "peak MB",
}
_READS = {
    "at_once": "right after, × new table",
    "rested": "after maintenance, × new table",
    "at_once_compacted": "right after, × same table rewritten",
    "rested_compacted": "after maintenance, × same table rewritten",
}
_SUBJECTS = {"frazil": "Frazil", "stock": "MERGE INTO per micro-batch"}


def upserts(results: Results) -> str:
    """First load, scattered updates, the steady stream."""
    parts = [
        ("First load by a new process, 5 M inserts:", _table(results, "upsert", "load", _LOAD)),
        (
            "Batches of 1,000 updates of keys all over the table, plan to commit:",
            _table(results, "upsert", "sc", _SCATTERED),
        ),
        (
            "80 % updates, 10 % inserts, 10 % deletes, until all of it is committed; `behind`: so long after the last "
            "change. Files and deleted rows are those right after the last change:",
            _table(results, "upsert", "steady", _STEADY),
        ),
        (
            "A read of the whole table, right after the last change, and again when table maintenance has finished, after "
            'five minutes at most. The time is divided by the time for another table: "new table" compares with a new table '
            'of the same rows that Spark wrote, "same table rewritten" with this table after Iceberg\'s '
            "`rewrite_data_files` of all its files:",
            _reads(results),
        ),
    ]
    return "\n".join(f"{told}\n\n{body}" for told, body in parts if body)


def _reads(results: Results) -> str:
    found = [result for result in results.of("upsert", variant="steady") if result.subject == "frazil"]
    rows = [
        [told, *(median_of(result, f"{reader}_{name}") for name in _READS)]
        for result in found
        for reader, told in READERS.items()
    ]
    return table(["reader", *_READS.values()], rows) if rows else ""


def maintenance(results: Results) -> str:
    """The feed with maintenance and without, and the metadata of many commits."""
    parts = [
        (
            "A commit each second, with maintenance and without. CPU counts until the last record is committed, with"
            " maintenance until no compaction is due, five minutes later at most:",
            _table(results, "maintenance", "", _MAINTENANCE),
        ),
        (
            "Commits of a small data file each, with expiry on, without Spark and Kafka; no files are put together:",
            _table(results, "metadata", "", _METADATA),
        ),
    ]
    return "\n".join(f"{told}\n\n{body}" for told, body in parts if body)


def _table(results: Results, benchmark: str, variant: str, names: dict[str, str]) -> str:
    found = results.of(benchmark, variant=variant)
    rows = [
        [_SUBJECTS[result.subject], result.variant, *(median_of(result, name) for name in names)] for result in found
    ]
    return table(["subject", "variant", *names.values()], rows)
