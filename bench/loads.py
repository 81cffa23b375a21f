"""What a throughput variant reads: a filled topic, how its table is declared, and what that must hold in the end."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from bench.encoded import FORMATS, Value, damaged_avro
from bench.place import JSON_TOPIC, PARTITIONS, Place, say
from bench.records import SCHEMA, DamagedPool, Totals, make_pool
from bench.registry import Registry
from bench.table import Table
from bench.topics import fill, make_topics
from bench.wide import make_wide_pool
from frazil.clock import new_id

_DATED = {**SCHEMA, "ts": "timestamptz(us)"}
_MANY = {"partition_by": ["bucket(user_id, 10000)"]}
LAYOUTS: Mapping[str, Mapping[str, object]] = {
    "running_days": {"columns": _DATED},
    "running_partitioned": {"columns": _DATED, "partition_by": ["bucket(user_id, 16)", "day(ts)"]},
    # Columns that had to be found out would take a batch of their own.
    "one_million": {"columns": SCHEMA},
    "many_partitions": {"columns": SCHEMA, **_MANY},
    "running_one_million": {"columns": SCHEMA},
    "running_many_partitions": {"columns": SCHEMA, **_MANY},
}
_OF_DAYS = ("running_days", "running_partitioned")
_OF_A_MILLION = ("one_million", "many_partitions")
_A_SECOND_US = 1_000_000  # Apart, the records of a pool are of two days.
_MANY_RECORDS = 1_000_000
_WIDE_FILE_BYTES = 16 * 1024 * 1024
METADATA: Mapping[str, object] = {"metadata": ["partition", "offset", "timestamp"]}


@dataclasses.dataclass(frozen=True)
class Load:
    """A topic to be read from its beginning.

    total: records in the topic. warm: so many of them, at the least, are committed before counting begins. expected: what
    the table must hold. dead_letters: how many of the records must be in the dead-letter table instead. dropped: how
    many a query leaves out. table, pipeline: further settings of each.
    """

    topic: str
    total: int
    warm: int
    expected: Totals | dict[str, int]
    dead_letters: int = 0
    dropped: int = 0
    table: Mapping[str, object] = dataclasses.field(default_factory=dict)
    pipeline: Mapping[str, object] = dataclasses.field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Rows of the table in the end."""
        return self.total - self.dead_letters - self.dropped

    def found(self, table: Table) -> Totals | dict[str, int]:
        """What the table holds, for comparison with `expected`."""
        return table.totals() if isinstance(self.expected, Totals) else table.field_totals()


def json_load(place: Place, variant: str) -> Load:
    """Plain records: as many as one batch has, for a running process some more, of which that batch does not count."""
    records, is_running = place.settings.records, variant.startswith("running")
    counted = records * (place.settings.running_batches if is_running else 1)
    if variant.endswith(_OF_A_MILLION):
        counted = min(records, _MANY_RECORDS)
    warm = records if is_running else 0
    prefix, pool = JSON_TOPIC, place.pool
    if variant in _OF_DAYS:
        prefix, pool = "bench_days", make_pool(apart_us=_A_SECOND_US)
    table = METADATA if variant.endswith("metadata") else LAYOUTS.get(variant, {})
    total = warm + counted
    return Load(place.topic(prefix, pool, total), total, warm, pool.totals(total), table=table)


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
    return Load(topic, total, records, expected, dead_letters=total - expected.rows, table=table)


def _total(place: Place, records: int) -> int:
    return records * (1 + place.settings.running_batches)


def _fill(place: Place, topic: str, value: Callable[[int], bytes], count: int) -> None:
    say(f"filling {topic}")
    make_topics(place.bootstrap, [topic], PARTITIONS)
    fill(place.bootstrap, topic, PARTITIONS, value, count)
