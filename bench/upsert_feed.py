"""A topic of changes and what the table must be after them; and when a reader first saw each change."""

from __future__ import annotations

import dataclasses
import json
import threading
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy
from confluent_kafka import Producer
from pyiceberg.table import StaticTable

from bench.machine import CLOCK, now_s
from bench.place import PARTITIONS, Place
from bench.table import Table, local_path
from bench.topics import make_topics
from frazil.clock import new_id

_POLL_S = 0.01
_NEW_SHARE, _DELETED_SHARE = 0.1, 0.1
_SLOTS_PER_S = 10


@dataclasses.dataclass(frozen=True)
class Mirror:
    """What a table of changes comes to: rows, and the sums of their ids and versions."""

    rows: int
    id_sum: int
    version_sum: int


class Changes:
    """Changes of keys that stay in their partitions. Remembers when each record was produced, and the newest of each key."""

    def __init__(self, place: Place, most_keys: int) -> None:
        self.topic = f"bench_upsert_{new_id()[:8]}"
        self.told = [array("q") for _ in range(PARTITIONS)]
        self.keys = 0
        self._versions = numpy.full(most_keys, -1, numpy.int64)
        make_topics(place.bootstrap, [self.topic], PARTITIONS)
        self._producer = Producer(
            {
                "bootstrap.servers": place.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 4,
            }
        )

    def insert(self, count: int) -> None:
        """So many new keys, in an order of their own."""
        for number, key in enumerate(numpy.random.default_rng(1).permutation(count).tolist()):
            self.put(key, 0)
            if number % 10_000 == 0:
                self._producer.poll(0)
        self.keys = count
        self.flush()

    def put(self, key: int, version: int, is_delete: bool = False) -> None:
        """One change, now."""
        now_us, partition = int(now_s() * 1e6), key % PARTITIONS
        value = None if is_delete else b'{"id":%d,"v":%d,"s":"customer %d","ts":%d}' % (key, version, key, now_us)
        self.send(partition, b"%d" % key, value)
        self.note(key, partition, now_us, -1 if is_delete else version)

    def send(self, partition: int, key: bytes, value: bytes | None) -> None:
        """One record."""
        while True:
            try:
                self._producer.produce(self.topic, value, key=key, partition=partition)
                return
            except BufferError:
                self._producer.poll(0.1)

    def note(self, key: int, partition: int, at_us: int, version: int) -> None:
        """Remembers a change that was sent. version: -1 for a delete."""
        self.told[partition].append(at_us // 1000)
        self._versions[key] = version

    def stream(self, rate: int, seconds: int, seed: int) -> None:
        """At a steady rate: a tenth of the changes are new keys, a tenth deletes, all others updates of keys anywhere."""
        rng, began_s, keys = numpy.random.default_rng(seed), CLOCK.monotonic_s(), self.keys
        for slot in range(seconds * _SLOTS_PER_S):
            kinds = rng.random(rate // _SLOTS_PER_S)
            chosen = rng.integers(0, keys, rate // _SLOTS_PER_S)
            for kind, key in zip(kinds.tolist(), chosen.tolist(), strict=True):
                if kind < _NEW_SHARE:
                    self.put(self.keys, slot)
                    self.keys += 1
                else:
                    self.put(key, slot, is_delete=kind > 1 - _DELETED_SHARE)
            self._producer.poll(0)
            CLOCK.sleep(max(0.0, began_s + (slot + 1) / _SLOTS_PER_S - CLOCK.monotonic_s()))
        self.flush()

    def flush(self) -> None:
        """All of them are with the broker."""
        if self._producer.flush(300):
            raise RuntimeError("the broker did not take all changes")

    @property
    def ends(self) -> list[int]:
        """The next offset of each partition."""
        return [len(told) for told in self.told]

    @property
    def mirror(self) -> Mirror:
        """What a table of all changes must be now."""
        (keys,) = numpy.nonzero(self._versions >= 0)
        return Mirror(len(keys), int(keys.sum()), int(self._versions[keys].sum()))


def mirror_of(table: Table) -> Mirror:
    """What the table is, deletes taken off, as PyIceberg reads it."""
    rows = StaticTable.from_metadata(table.location()).scan(selected_fields=("id", "v")).to_arrow()
    return Mirror(rows.num_rows, int(rows["id"].to_numpy().sum()), int(rows["v"].to_numpy().sum()))


def committed(table: Table, pipeline: str) -> list[int]:
    """Up to where each partition has been committed, as the newest snapshot with progress says."""
    location = table.location()
    found = _progress(location, pipeline) if location else []
    return found[-1][1] if found else [0] * PARTITIONS


class Sights:
    """When a reader first saw each change, while the table's snapshots come and expire."""

    def __init__(self, table: Table, pipeline: str, changes: Changes) -> None:
        self._table, self._pipeline, self._changes = table, pipeline, changes
        self._read = changes.ends
        self._ages: list[Any] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> tuple[float, float]:
        """Median and 99th percentile of all ages, in milliseconds."""
        self._stopping.set()
        self._thread.join()
        p50, p99 = numpy.percentile(numpy.concatenate(self._ages), [50, 99])
        return round(float(p50), 1), round(float(p99), 1)

    def _watch(self) -> None:
        last = ""
        while not self._stopping.wait(_POLL_S):
            location = self._table.location()
            if location and location != last:
                now_ms, last = CLOCK.now_ms(), location
                for _, ends in _progress(location, self._pipeline)[-1:]:
                    self._take(ends, now_ms)

    def _take(self, ends: Sequence[int], now_ms: int) -> None:
        for told, before, end in zip(self._changes.told, self._read, ends, strict=True):
            if end > before:
                self._ages.append(now_ms - numpy.array(told[before:end]))
        self._read = [max(one, other) for one, other in zip(self._read, ends, strict=True)]


def _progress(location: str, pipeline: str) -> list[tuple[int, list[int]]]:
    """Each snapshot with progress, oldest first, and the next offset of each partition."""
    try:
        document: dict[str, Any] = json.loads(local_path(location).read_text())
    except OSError:
        return []  # It was replaced often meanwhile: the next look finds its successor.
    ordered = sorted(document.get("snapshots", []), key=lambda one: int(one["sequence-number"]))
    return [
        (one["snapshot-id"], ends)
        for one in ordered
        if (ends := _offsets(one["summary"].get(f"frazil.{pipeline}.offsets")))
    ]


def _offsets(text: str | None) -> list[int]:
    topics: Mapping[str, Mapping[str, int]] = json.loads(text) if text else {}
    found = next(iter(topics.values()), None)
    return [] if found is None else [found.get(str(partition), 0) for partition in range(PARTITIONS)]
