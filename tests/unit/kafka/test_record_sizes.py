"""Where the batch ends of which a process dies: found by others that begin behind it; and the memory of these."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.kafka.record_sizes import MEMORY_BYTES, _end_of_batch, spare_bytes
from frazil.types import OffsetRange


@pytest.mark.parametrize("end", [*range(11, 31), 40])
@pytest.mark.parametrize("start", [10, 13])
def test_the_first_offset_behind_a_batch_is_found(start: int, end: int) -> None:
    if end <= start:
        return
    asked: list[int] = []

    def can_begin(rest: OffsetRange) -> bool:
        asked.append(rest.start)
        return rest.start >= end

    assert _end_of_batch(OffsetRange("a", 0, start, 30), can_begin) == min(end, 30)
    assert len(asked) <= 10


MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("most", "taken", "cached", "available", "spared"),
    [
        ("max", 0, 0, 16_384, MEMORY_BYTES),
        (f"{8192 * MIB}", 1024 * MIB, 0, 16_384, MEMORY_BYTES),
        (f"{3072 * MIB}", 2048 * MIB, 476 * MIB, 16_384, 1200 * MIB),
        ("max", 0, 0, 1000, 800 * MIB),
        (f"{1024 * MIB}", 1000 * MIB, 0, 16_384, 256 * MIB),
    ],
)
def test_the_process_takes_no_more_than_its_container_and_its_machine_have_left(
    tmp_path: Path, most: str, taken: int, cached: int, available: int, spared: int
) -> None:
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text(f"{most}\n")
    (group / "memory.current").write_text(f"{taken}\n")
    (group / "memory.stat").write_text(f"anon 5\ninactive_file {cached}\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text(f"MemTotal: 9 kB\nMemAvailable: {available * 1024} kB\n")
    assert spare_bytes(tmp_path) == spared


def test_where_nothing_is_known_of_it_the_process_takes_what_it_may(tmp_path: Path) -> None:
    assert spare_bytes(tmp_path) == MEMORY_BYTES
