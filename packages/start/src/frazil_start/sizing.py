"""How many cores, how much memory and how many requests to the store a load takes, for `frazil size`.

The numbers are those of docs/performance.md, on a core of the machine that is described there; docs/deploy/sizing.md has
the formula, and compares it with what was measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Format = Literal["json", "avro", "protobuf"]
Mode = Literal["append", "upsert"]

_DAY_S = 86_400
_IDLE_CORES = 0.03
_JOB_CPU_S = 0.03
"""What a Spark job costs, in CPU seconds; tables that are due together share it."""
_COMMIT_CPU_S = 0.02
_SMALL_BATCH_RECORDS = 50_000
_SMALL_BATCH_RECORD_CPU_S = 7.3e-6
"""What each of the first records of a batch costs besides its decoding and writing: later ones find the code warm."""
_RECORD_CPU_S: dict[Format, tuple[float, int]] = {
    "json": (0.519e-6, 193),
    "avro": (0.387e-6, 95),
    "protobuf": (0.406e-6, 95),
}
"""What a record costs a running process, and its bytes."""
_BYTE_CPU_S = 7.3e-9
"""What each further byte of a record costs, of wide nested JSON: text without numbers costs less."""
_CHANGE_CPU_S = 63e-6
"""What a change of an upsert table costs besides: its key is looked up in the table."""
_MAINTENANCE_SHARE = 0.06
_MOST_LOAD = 0.5
"""The share of the cores that the load may take: the rest is for catching up after an outage."""
_BASE_MB = 1_300
_MAINTENANCE_MB = 1_100
_UPSERT_MB = 800
_CORE_MB = 250
_ROW_BYTES = 60
"""What a row of an upsert table takes of the memory: its key, where that is a number."""
_MEASURED_CORES = 2
PUTS_PER_COMMIT = 4
"""A data file, a manifest, a manifest list and the metadata file, which a REST catalog writes itself."""
GETS_PER_COMMIT = 1
"""The manifest list, whose size is asked for."""
_FILES_PER_COMPACTION = 50
_HOURS_PER_MONTH = 730


@dataclass(frozen=True)
class Load:
    """What a pipeline has to do, steadily."""

    #: Of all topics together.
    records_per_s: float
    bytes_per_record: int = 193
    tables: int = 1
    commit_interval_s: float = 1.0
    format: Format = "json"
    mode: Mode = "append"
    #: Rows of all upsert tables together.
    rows: int = 0


@dataclass(frozen=True)
class Prices:
    """Prices in one currency, by default Amazon's in us-east-1 in US dollars."""

    per_core_hour: float = 0.045
    per_gib_hour: float = 0.005
    per_1000_puts: float = 0.005
    per_1000_gets: float = 0.0004


@dataclass(frozen=True)
class Size:
    """What a load takes."""

    #: The cores that the load takes on average.
    load_cores: float
    #: The cores to give it, so that half of them catch up after an outage.
    cores: int
    #: The memory of the driver and its workers, in MB, peak.
    memory_mb: int
    #: Commits of all tables in a day.
    commits_per_day: int
    #: Requests in a day that write to the store.
    puts_per_day: int
    #: Requests in a day that read from the store.
    gets_per_day: int
    #: How many records a second are read when as many cores as these catch up.
    catch_up_records_per_s: int
    #: The price of cores and memory in a month.
    compute_per_month: float
    #: The price of the requests in a month.
    requests_per_month: float
    #: Both.
    price_per_month: float


def size_of(load: Load, prices: Prices) -> Size:
    """Returns what a load takes."""
    record_s = record_cpu_s(load)
    batch_records = load.records_per_s * load.commit_interval_s
    first_records = min(batch_records, _SMALL_BATCH_RECORDS)
    # A table commits when it has records: fewer times than the interval allows where there are few.
    commits_per_s = load.tables * min(1 / load.commit_interval_s, load.records_per_s / load.tables)
    jobs_per_s = min(1 / load.commit_interval_s, load.records_per_s)
    cores = _IDLE_CORES + jobs_per_s * _JOB_CPU_S + commits_per_s * _COMMIT_CPU_S
    cores += load.records_per_s * record_s + first_records * _SMALL_BATCH_RECORD_CPU_S / load.commit_interval_s
    if load.mode == "upsert":
        cores += load.records_per_s * _CHANGE_CPU_S
    cores *= 1 + _MAINTENANCE_SHARE
    given = max(1, math.ceil(cores / _MOST_LOAD))
    more_cores = max(0, given - _MEASURED_CORES) * _CORE_MB
    upsert = _UPSERT_MB + load.rows * _ROW_BYTES // 1_000_000 if load.mode == "upsert" else 0
    memory_mb = _BASE_MB + _MAINTENANCE_MB + more_cores + upsert
    commits = round(commits_per_s * _DAY_S)
    puts = round(commits * (PUTS_PER_COMMIT + PUTS_PER_COMMIT / _FILES_PER_COMPACTION))
    gets = round(commits * (GETS_PER_COMMIT + 1))  # Compaction reads each file again.
    compute = _HOURS_PER_MONTH * (given * prices.per_core_hour + memory_mb / 1024 * prices.per_gib_hour)
    days = _HOURS_PER_MONTH / 24
    requests = days * (puts * prices.per_1000_puts + gets * prices.per_1000_gets) / 1000
    caught_up = record_s + (_CHANGE_CPU_S if load.mode == "upsert" else 0)
    return Size(
        round(cores, 3),
        given,
        memory_mb,
        commits,
        puts,
        gets,
        round((given - cores) / caught_up),
        round(compute, 2),
        round(requests, 2),
        round(compute + requests, 2),
    )


def record_cpu_s(load: Load) -> float:
    """Returns what a record costs in a large batch, in CPU seconds: as measured, more for each further byte, and in
    proportion for a shorter one.
    """
    measured_s, measured_bytes = _RECORD_CPU_S[load.format]
    if load.bytes_per_record <= measured_bytes:
        return measured_s * load.bytes_per_record / measured_bytes
    return measured_s + (load.bytes_per_record - measured_bytes) * _BYTE_CPU_S
