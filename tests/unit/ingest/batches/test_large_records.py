"""Large records: handed over without their values where no table takes them, and a stop with the place where one would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from frazil.decode.settings import Reading
from frazil.ingest.batches.large_records import LargeRecords, refusing, without_values
from frazil.ingest.failures import TooLargeForMemoryError
from frazil.ingest.tasks.task_job import Job
from frazil.kafka.port import ReadRecord
from frazil.kafka.record_sizes import LargeRecord
from frazil.kafka.source import Stretch
from frazil.routing import Route, parse_template
from frazil.types import BadRecord, OffsetRange
from frazil.write.target import TableTarget

MIB = 1024 * 1024
HUGE = LargeRecord("a", 0, 7, 8, 400 * MIB, 1, b"k", (("h", b"x"),))
UNKNOWN = LargeRecord("a", 0, 9, 10)
BATCH = LargeRecord("a", 0, 20, 25)
WHOLE = OffsetRange("a", 0, 0, 12)


def target(name: str, limit: int, route: Route | None = None) -> TableTarget:
    reading = Reading(max_record_bytes=limit)
    return TableTarget(name, "", "", (), (), 0, (), 1, reading=reading, route=route)


def found(*records: LargeRecord) -> LargeRecords:
    def find(ranges: Sequence[OffsetRange], _floor: int) -> list[LargeRecord]:
        return [one for one in records if any(r.start <= one.offset < r.end for r in ranges)]

    return LargeRecords(find)


def test_a_record_that_no_table_takes_is_handed_over_without_its_value_and_refused_by_all_of_them() -> None:
    job = Job({"a": target("t", MIB)}, beside={"a": (target("u", 2 * MIB),)})
    known = found(HUGE, UNKNOWN)
    assert known.within([WHOLE], job) == []
    assert known.search([WHOLE])
    assert not known.search([WHOLE]), "nothing is new"
    large = known.within([WHOLE], job)
    assert large == [HUGE, UNKNOWN]
    assert list(without_values(large)) == [
        Stretch(OffsetRange("a", 0, 7, 8), (ReadRecord("a", 0, 7, None, 1, (("h", b"x"),), b"k"),)),
        Stretch(OffsetRange("a", 0, 9, 10), (ReadRecord("a", 0, 9, None),)),
    ]
    assert known.within([OffsetRange("a", 0, 8, 9), OffsetRange("a", 1, 0, 12), OffsetRange("b", 0, 0, 12)], job) == []
    reasons = [
        f"the value has 419430400 bytes, and `limits.record_size` allows {MIB}: it was not read, and only Kafka has it",
        f"the value has more bytes than fit into memory, and `limits.record_size` allows {MIB}: it was not read, and only"
        " Kafka has it",
    ]
    refused = refusing(job, large)
    assert refused.targets["a"].crashing == tuple(
        BadRecord("a", 0, offset, "too_large", "", reason) for offset, reason in zip((7, 9), reasons, strict=True)
    )
    assert [one.offset for one in refused.beside["a"][0].crashing] == [7, 9]
    assert refusing(job, []) is job


def test_of_a_route_the_table_of_the_rest_has_the_dead_letter() -> None:
    route = Route("rest", parse_template("t.${kind}"), 10)
    rest, own = target("rest", MIB, route), replace(target("own", MIB, route), route_values=("x",))
    refused = refusing(Job({"a": rest}, beside={"a": (own,)}), [HUGE])
    assert [len(one.crashing) for one in (refused.targets["a"], *refused.beside["a"])] == [1, 0]


@pytest.mark.parametrize(
    ("record", "words", "where", "remedy"),
    [
        (
            HUGE,
            "a record of 419430400 bytes needs more memory than the process which reads it has",
            "topic a, partition 0, offset 7",
            "write `limits: {record_size: 399MiB}` or less",
        ),
        (
            BATCH,
            "a batch of records needs more memory than the process which reads it has",
            "topic a, partition 0, offsets 20 to 24",
            "inspect the records of this range",
        ),
    ],
)
def test_a_record_that_a_table_would_take_and_a_batch_that_nobody_can_read_stop_it_at_the_place(
    record: LargeRecord, words: str, where: str, remedy: str
) -> None:
    known, whole = found(record), [OffsetRange("a", 0, 0, 30)]
    job = Job({"a": target("t", MIB)}, beside={"a": (target("u", 400 * MIB),)})
    assert known.search(whole)
    with pytest.raises(TooLargeForMemoryError) as raised:
        known.within(whole, job)
    assert (raised.value.message, raised.value.where) == (words, where)
    assert raised.value.remedy.startswith(remedy)
    assert known.within([OffsetRange("a", 0, 0, 7)], job) == []


def test_the_remedy_of_the_stop_makes_the_record_a_dead_letter() -> None:
    known = found(HUGE)
    assert known.search([WHOLE])
    assert known.within([WHOLE], Job({"a": target("t", 399 * MIB)})) == [HUGE]
