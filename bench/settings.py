"""What a benchmark run may be told, with defaults that let the whole set end within 45 minutes on two cores."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

from frazil.runtime.jars import cache_directory

CHECKOUT = Path(__file__).resolve().parent.parent
SUBJECTS = ("frazil", "stock", "connect", "flink")
LAYOUT_VARIANTS = (
    "running_days",
    "running_partitioned",
    "one_million",
    "many_partitions",
    "running_one_million",
    "running_many_partitions",
)
FORMAT_VARIANTS = ("avro", "avro_bad", "protobuf", "json_schema", "bad", "wide")


@dataclasses.dataclass(frozen=True)
class Settings:
    """One invocation's values. Times are in seconds; `heap` is every JVM's, so that memory can be compared."""

    subjects: tuple[str, ...] = SUBJECTS
    variants: tuple[str, ...] = ("plain", "metadata", "running", "running_metadata", *LAYOUT_VARIANTS, *FORMAT_VARIANTS)
    records: int = 4_000_000
    wide_records: int = 2_000_000
    running_batches: int = 2
    runs: int = 3
    peer_runs: int = 2
    rate: int = 10_000
    seconds: int = 300
    peer_seconds: int = 60
    warm_seconds: int = 20
    schema_seconds: int = 30
    interval: str = "300ms"
    stock_trigger: str = "0 seconds"
    catch_up_interval: str = "1s"
    tables: int = 200
    new_tables: int = 1000
    table_rate: int = 20
    idle_seconds: int = 60
    many_seconds: int = 180
    many_interval_s: int = 30
    upsert_rows: int = 2_000_000
    upsert_keys: int = 5_000_000
    upsert_rate: int = 5_000
    upsert_seconds: int = 600
    upsert_interval: str = "1s"
    upsert_rest_s: float = 300.0
    merge_seconds: int = 120
    standby_rate: int = 5_000
    standby_kills: int = 50
    standby_seconds: int = 1200
    spread_tables: int = 100
    spread_rate: int = 20
    spread_interval: str = "10s"
    maintenance_rate: int = 20_000
    maintenance_seconds: int = 1200
    maintenance_off_seconds: int = 600
    maintenance_warm_seconds: int = 60
    metadata_commits: int = 10_000
    lake_commits: int = 200
    heap: str = "2g"
    quiet_cores: float = 0.2
    quiet_wait_s: float = 60.0
    bootstrap: str = ""
    broker_pid: int = 0
    results: Path = CHECKOUT / "bench" / "results"
    cache: Path = dataclasses.field(default_factory=lambda: cache_directory() / "bench")
    docs: Path = CHECKOUT / "docs"
    peer: Path = Path(os.environ.get("FRAZIL_PEER_BENCH") or CHECKOUT.parent / "shared" / "bench")
    frazil: Path = Path(sys.executable).parent / "frazil"
    keep: bool = False

    @property
    def connect_folder(self) -> Path:
        """Where the Kafka Connect sink's own benchmark is, if it is there."""
        return self.peer / "kafka-connect"

    def runs_of(self, subject: str) -> int:
        """How often `subject` is measured: the product more often than its peers."""
        return self.runs if subject == "frazil" else self.peer_runs

    def seconds_of(self, subject: str) -> int:
        """How long the freshness of `subject` is watched."""
        return self.seconds if subject == "frazil" else self.peer_seconds
