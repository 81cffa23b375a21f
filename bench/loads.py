"""What a throughput variant reads: a filled topic, how its table is declared, and what that must hold in the end."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from bench.encoded import FORMATS, Value, damaged_avro
from bench.place import PARTITIONS, Place, say
from bench.records import DamagedPool, Totals
from bench.registry import Registry
from bench.table import Table
from bench.topics import fill, make_topics
from bench.wide import make_wide_pool
from frazil.clock import new_id

# A record's time is a whole number of microseconds: a stretch of it stands for a day.
LAYOUTS: Mapping[str, Mapping[str, object]] = {
    "running_partitioned": {"partition_by": ["bucket(user_id, 16)", "truncate(ts, 60000000)"]},
    "many_partitions": {"partition_by": ["bucket(user_id, 10000)"]},
}
_MANY_RECORDS = 1_000_000
_WIDE_FILE_BYTES = 16 * 1024 * 1024
METADATA: Mapping[str, object] = {"metadata": ["partition", "offset", "timestamp"]}


@dataclasses.dataclass(frozen=True)
class Load:
    """A topic to be read from its beginning.

    total: records in the topic. warm: so many of them, at the least, are committed before counting begins. expected: what
    the table must hold. letters: how many of the records must be in the dead-letter table instead. table, pipeline:
    further settings of each.
    """

    topic: str
    total: int
    warm: int
    expected: Totals | dict[str, int]
    letters: int = 0
    table: Mapping[str, object] = dataclasses.field(default_factory=dict)
    pipeline: Mapping[str, object] = dataclasses.field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Rows of the table in the end."""
        return self.total - self.letters

    def found(self, table: Table) -> Totals | dict[str, int]:
        """What the table holds, for comparison with `expected`."""
        return table.totals() if isinstance(self.expected, Totals) else table.field_totals()


def json_load(place: Place, variant: str) -> Load:
    """The plain records: as many as one batch has, or for a running process some more."""
    is_small = variant in ("one_million", "many_partitions")
    records = min(place.settings.records, _MANY_RECORDS) if is_small else place.settings.records
    is_running = variant.startswith("running")
    total = _total(place, records) if is_running else records
    table = METADATA if variant.endswith("metadata") else LAYOUTS.get(variant, {})
    topic, expected = place.json_topic(total), place.pool.totals(total)
    return Load(topic, total, records if is_running else 0, expected, table=table)


def format_load(place: Place, registry: Registry, variant: str) -> Load:
    """One of FORMAT_VARIANTS, for a running process, in a topic that nobody else reads."""
    topic = f"bench_{variant}_{new_id()[:8]}"
    if variant == "wide":
        return _wide_load(place, topic)
    damaged = DamagedPool(place.pool)
    if variant == "bad":
        return _bad_load(place, topic, damaged, damaged.value)
    name = variant.removesuffix("_bad")
    form, records = FORMATS[name], place.settings.records
    schema_id = registry.register(f"{topic}-value", form.kind, form.schema)
    table, pipeline = {"value": {"format": name}}, {"registry": {"url": registry.url}}
    if variant == "avro_bad":
        load = _bad_load(place, topic, damaged, damaged_avro(damaged, schema_id))
        return dataclasses.replace(load, table={**load.table, **table}, pipeline=pipeline)
    total = _total(place, records)
    _fill(place, topic, form.values(place.pool, schema_id), total)
    return Load(topic, total, records, place.pool.totals(total), table=table, pipeline=pipeline)


def _wide_load(place: Place, topic: str) -> Load:
    pool, records = make_wide_pool(), place.settings.wide_records
    total = _total(place, records)
    _fill(place, topic, pool.value, total)
    # With files of the usual size a batch would cover the whole topic, and none would be left for the warm process.
    table = {"properties": {"write.target-file-size-bytes": str(_WIDE_FILE_BYTES)}}
    return Load(topic, total, records, pool.totals(total), table=table)


def _bad_load(place: Place, topic: str, pool: DamagedPool, value: Value) -> Load:
    records = place.settings.records
    total = _total(place, records)
    _fill(place, topic, value, total)
    expected = pool.totals(total)
    table = {"on_bad_record": "dead_letter"}
    return Load(topic, total, records, expected, letters=total - expected.rows, table=table)


def _total(place: Place, records: int) -> int:
    return records * (1 + place.settings.running_batches)


def _fill(place: Place, topic: str, value: Callable[[int], bytes], count: int) -> None:
    say(f"filling {topic}")
    make_topics(place.bootstrap, [topic], PARTITIONS)
    fill(place.bootstrap, topic, PARTITIONS, value, count)
