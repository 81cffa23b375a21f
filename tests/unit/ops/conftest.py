"""Pipelines whose topics and tables are in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.kafka.port import ReadRecord
from frazil.spec import PipelineSpec, load_spec
from frazil.types import OffsetRange
from frazil_testing.memory_catalog import MemoryCatalog
from frazil_testing.memory_kafka import MemorySource

HEAD = 'pipeline: p\nkafka: {bootstrap.servers: "x:1"}\n'


class Scenario:
    """A pipeline file with topics and tables in memory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.source = MemorySource()
        self.catalog = MemoryCatalog(root, "p")

    def spec(self, text: str) -> PipelineSpec:
        file = self.root / "frazil.yaml"
        file.write_text(HEAD + text)
        return load_spec(file)

    def read(self, ranges: list[OffsetRange]) -> list[ReadRecord]:
        return [
            ReadRecord(r.topic, r.partition, one.offset, one.value, one.timestamp_ms, one.headers, one.key)
            for r in ranges
            for one in self.source.by_name[r.topic].partitions[r.partition]
            if r.start <= one.offset < r.end
        ]


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    monkeypatch.chdir(tmp_path)
    return Scenario(tmp_path)
