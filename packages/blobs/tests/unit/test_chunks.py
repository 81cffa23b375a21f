"""Values with parts in several records: whole, or named dead letters, wherever a task begins and ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from frazil.ingest.tasks.task import read_records
from frazil.ingest.tasks.task_job import Job
from frazil.kafka.fetch.columns import Wanted
from frazil.stages.stage import Assembled
from frazil.types import OffsetRange
from frazil_blobs import chunks as chunks_module
from frazil_blobs.chunks import Chunks
from frazil_blobs.values import checksum_of
from packages.blobs.tests.unit.test_packs import table
from tests.fixtures.slices import sliced

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
WITHIN = 8
MOST_BYTES = 100
Record = tuple[bytes | None, dict[str, bytes] | None]


def part(name: str, index: int, count: int, content: bytes, /, **more: bytes) -> Record:
    """A record with a part of a value."""
    numbers = {"id": name.encode(), "index": str(index).encode(), "count": str(count).encode(), **more}
    return content, {**{f"frazil-chunk-{key}": value for key, value in numbers.items()}, "other": b"o"}


def batch(records: Sequence[Record], first: int, last: int) -> pa.RecordBatch:
    """The records from one offset up to another, of partition 0."""
    some = records[first:last]
    headers = [None if named is None else [{"key": k, "value": v} for k, v in named.items()] for _, named in some]
    columns = {
        "partition": pa.array([0] * len(some), pa.int32()),
        "offset": pa.array(range(first, last), pa.int64()),
        "headers": pa.array(headers, HEADERS),
        "value": pa.array([value for value, _ in some], pa.binary()),
    }
    return pa.RecordBatch.from_pydict(columns)


def taken(chunks: Chunks, records: pa.RecordBatch) -> list[Assembled]:
    """What becomes of records with parts among them."""
    assembled = chunks.take(records)
    assert assembled is not None
    return list(assembled)


def outcomes(records: Sequence[Record], *cuts: int, most_held_bytes: int = 10**6) -> dict[int, Any]:
    """What becomes of each record, by offset: its value, its class and reason, or what it is counted as. cuts: where further
    tasks begin.
    """

    def read_back(before: OffsetRange, _: Wanted) -> Iterator[pa.RecordBatch]:
        yield batch(records, before.start, before.end)

    became: dict[int, Any] = {}
    bounds = [0, *cuts, len(records)]
    for begin, end in pairwise(bounds):
        chunks = Chunks("t", WITHIN, MOST_BYTES, read_back, most_held_bytes)
        middle = (begin + end) // 2
        for some in (batch(records, begin, middle), batch(records, middle, end)):  # As a task reads several batches.
            assembled = chunks.take(some)
            if assembled is None:
                became |= dict(zip(some["offset"].to_pylist(), some["value"].to_pylist(), strict=True))
            for each in assembled or ():
                whole = each.records
                became |= dict(zip(whole["offset"].to_pylist(), whole["value"].to_pylist(), strict=True))
                for name, parts in each.parts.items():
                    became |= dict.fromkeys(parts["offset"].to_pylist(), f"counted as {name}")
                became |= dict(zip(each.refused["offset"].to_pylist(), each.reasons, strict=True))
    return dict(sorted(became.items()))


A = [part("a", n, 3, content) for n, content in enumerate((b"11", b"22", b"33"))]
OTHER = [part("a", n, 3, content) for n, content in enumerate((b"44", b"55", b"66"))]
B = [part("b", n, 2, content) for n, content in enumerate((b"xx", b"yy"))]
PLAIN: Record = (b"plain", None)
WHOLE = b"112233"
PART, AGAIN = "counted as chunk", "counted as repeated_chunk"


def missing(index: int, count: int = 3, words: str = "part 0 is not among the 8 offsets before it") -> tuple[str, str]:
    """The class and the reason of a part whose predecessor is not there."""
    return "chunk_missing", f"part {index} of {count}: {words}"


def conflict(index: int) -> tuple[str, str]:
    """The class and the reason of a part that has the number of another."""
    return "chunk_conflict", f"part {index} of 3: another part of the same id has this number"


GAP = missing(2, words="part 1 is missing, or follows it")
SERIES: dict[str, tuple[list[Record], list[Any]]] = {
    "contiguous": ([*A, PLAIN, *B], [PART, PART, WHOLE, b"plain", PART, b"xxyy"]),
    "interleaved": ([A[0], B[0], A[1], PLAIN, A[2], B[1]], [PART, PART, PART, b"plain", WHOLE, b"xxyy"]),
    "missing": ([A[0], A[2], PLAIN], [PART, GAP, b"plain"]),
    "without its first": ([A[1], A[2]], [missing(1), missing(2)]),
    "doubled": ([A[0], A[1], A[1], A[2]], [PART, PART, AGAIN, WHOLE]),
    "last doubled": ([*A, A[2]], [PART, PART, WHOLE, AGAIN]),
    "first doubled": ([A[0], A[0], A[1], A[2]], [PART, AGAIN, PART, WHOLE]),
    "first again later": ([A[0], A[1], A[0], A[2]], [PART, PART, AGAIN, WHOLE]),
    "begun again": ([A[0], A[1], A[0], A[1], A[2]], [PART, PART, AGAIN, AGAIN, WHOLE]),
    "sent twice": ([*A, *A], [PART, PART, WHOLE, AGAIN, AGAIN, AGAIN]),
    "first again behind another": (
        [A[0], B[0], A[0], *[PLAIN] * 7, B[1], A[1], A[2]],
        [PART, PART, AGAIN, *[b"plain"] * 7, missing(1, 2), missing(1), missing(2)],
    ),
    "another part with its number": ([A[0], A[1], OTHER[1], A[2]], [PART, PART, conflict(1), conflict(2)]),
    "another first": ([A[0], OTHER[0], A[1], A[2]], [PART, *map(conflict, range(3))]),
    "another value with its id": ([*A, *OTHER], [PART, PART, WHOLE, *map(conflict, range(3))]),
    "out of order": ([A[0], A[2], A[1]], [PART, GAP, ("chunk_out_of_order", "part 1 of 3: part 2 was before it")]),
    "too far": ([A[0], *[PLAIN] * 9, A[1]], [PART, *[b"plain"] * 9, missing(1)]),
    "another count": (
        [A[0], part("a", 1, 4, b"22")],
        [PART, ("chunk_conflict", "part 1 of 4: the parts before it say that there are 3")],
    ),
    "no numbers": (
        [part("a", 0, 3, b"1", index=b"x")],
        [("chunk_malformed", "`frazil-chunk-index` and `frazil-chunk-count` are not both whole numbers")],
    ),
    "no id": (
        [part("", 0, 3, b"1")],
        [
            (
                "chunk_malformed",
                "`frazil-chunk-index` is not below `frazil-chunk-count`, or `frazil-chunk-id` does not have 1 to 256 bytes",
            )
        ],
    ),
    "too large": (
        [part("a", 0, 2, b"1" * 60), part("a", 1, 2, b"1" * 60)],
        [PART, ("too_large", "part 1 of 2: the value has more bytes than `limits.record_size` allows, 100")],
    ),
    "checksum": ([part("a", 0, 1, b"11", checksum=checksum_of(b"11").encode())], [b"11"]),
    "wrong checksum": (
        [part("a", 0, 1, b"11", checksum=checksum_of(b"12").encode())],
        [("chunk_damaged", "part 0 of 1: the whole value has another checksum")],
    ),
}


@pytest.mark.parametrize("name", SERIES)
def test_what_becomes_of_a_record_does_not_depend_on_where_tasks_begin(name: str) -> None:
    records, wanted = SERIES[name]
    for cut in range(len(records)):
        assert list(outcomes(records, *([cut] if cut else [])).values()) == wanted, cut
    assert list(outcomes(records, *range(1, len(records))).values()) == wanted


def abandoned(records: Sequence[Record], *cuts: int) -> list[tuple[int, str]]:
    """The offset and the reason of each first part that is a dead letter at the end of a range. cuts: where ranges begin."""

    def read_back(before: OffsetRange, wanted: Wanted) -> Iterator[pa.RecordBatch]:
        some = batch(records, before.start, min(before.end, len(records)))
        assert wanted.headers or wanted.columns[2:4] == ("timestamp", "key")
        yield some

    places: list[tuple[int, str]] = []
    for begin, end in pairwise([0, *cuts, len(records)]):
        chunks = Chunks("t", WITHIN, MOST_BYTES, read_back)
        for assembled in chunks.take(batch(records, begin, end)) or ():
            assert not assembled.are_read_again
        for assembled in chunks.end(OffsetRange("t", 0, begin, end)):
            assert (assembled.records.num_rows, assembled.are_read_again) == (0, True)
            [(kind, reason)] = assembled.reasons
            assert kind == "chunk_missing"
            places.append((assembled.refused["offset"][0].as_py(), reason))
    return sorted(places)


def absent(index: int, count: int = 3) -> str:
    """The reason of a first part whose value lacks a part."""
    return f"part 0 of {count}: part {index} is not among the 8 offsets after it"


ENDS: dict[str, tuple[list[Record], list[tuple[int, str]]]] = {
    "whole": ([*A, *[PLAIN] * 9], []),
    "whole at the last offset": ([*A[:2], *[PLAIN] * 6, A[2], PLAIN], []),
    "a part too late": ([*A[:2], *[PLAIN] * 7, A[2]], [(0, absent(2))]),
    "the last part never comes": ([PLAIN, *A[:2], *[PLAIN] * 8], [(1, absent(2))]),
    "it may still come": ([PLAIN, *A[:2], *[PLAIN] * 7], []),
    "the first part alone": ([A[0], B[0], A[0], *[PLAIN] * 8], [(0, absent(1)), (1, absent(1, 2))]),
    "a later part is the dead letter": ([A[0], A[2], *[PLAIN] * 9], []),
    "the id begins again": ([A[0], *[PLAIN] * 4, *A, *[PLAIN] * 9], [(0, absent(1))]),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_value_whose_last_parts_never_come_is_one_dead_letter_wherever_ranges_begin(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(chunks_module, "REPEATED_WITHIN", 3)
    records, wanted = ENDS[name]
    for cut in range(len(records)):
        assert abandoned(records, *([cut] if cut else [])) == wanted, cut
    assert abandoned(records, *range(1, len(records))) == wanted


def test_a_range_without_records_gives_up_values_that_end_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks_module, "REPEATED_WITHIN", 3)
    ends = Chunks("t", WITHIN, MOST_BYTES, lambda of, _: iter([batch(A[:2], of.start, min(of.end, 2))]))
    assert [some.refused["offset"].to_pylist() for some in ends.end(OffsetRange("t", 0, 8, 9))] == []
    assert [some.refused["offset"].to_pylist() for some in ends.end(OffsetRange("t", 0, 9, 10))] == [[0]]


def test_a_table_that_has_read_a_part_of_a_range_before_gives_up_nothing_twice() -> None:
    job = Job({}, starts={"n.t": {"t": {0: 5}}})
    wanted = {0: OffsetRange("t", 0, 5, 10), 1: OffsetRange("t", 1, 10, 10)}
    assert {n: job.own_range("n.t", OffsetRange("t", n, 0, 10)) for n in (0, 1)} == wanted
    assert job.own_range("n.other", OffsetRange("t", 0, 0, 10)) == OffsetRange("t", 0, 0, 10)
    assert job.own_range("n.t", OffsetRange("t", 0, 7, 10)) == OffsetRange("t", 0, 7, 10)


def test_a_value_that_is_sent_again_much_later_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks_module, "REPEATED_WITHIN", 3)
    records = [*A, A[0], PLAIN, *[A[0]] * 2, *A[1:], PLAIN, *OTHER]
    wanted = [PART, PART, WHOLE, AGAIN, b"plain", AGAIN, AGAIN, AGAIN, AGAIN, b"plain", PART, PART, b"445566"]
    for cut in range(1, len(records)):
        assert list(outcomes(records, cut).values()) == wanted, cut
    assert list(outcomes([*A, PLAIN, *A]).values()) == [PART, PART, WHOLE, b"plain", PART, PART, WHOLE]


@pytest.mark.parametrize("seed", sliced(range(60), 20))
def test_parts_by_chance_become_the_same_wherever_tasks_begin_and_however_little_memory_there_is(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(chunks_module, "REPEATED_WITHIN", 3)
    chance = np.random.default_rng(seed)
    kinds = [*A, *A, *A, *B, *B, OTHER[seed % 3], PLAIN, *[part("c", n, 4, b"%d" % n * 25) for n in range(4)] * 2]
    places = np.sort(chance.integers(0, len(kinds), 40)) if seed % 2 else chance.integers(0, len(kinds), 40)
    records = [kinds[place] for place in places]
    wanted = outcomes(records)
    assert [*wanted] == [*range(40)]
    for _ in range(4):
        cuts = np.unique(chance.integers(1, 40, 3)).tolist()
        assert outcomes(records, *cuts, most_held_bytes=0) == wanted, cuts
        assert abandoned(records, *cuts) == abandoned(records), cuts


def test_values_that_are_too_many_for_memory_are_read_again_and_handed_over_some_at_a_time() -> None:
    names, asked = [f"v{n}" for n in range(WITHIN // 2)], list[OffsetRange]()
    records = [part(name, index, 2, name.encode() * 20) for index in range(2) for name in names]

    def read_back(before: OffsetRange, _: Wanted) -> Iterator[pa.RecordBatch]:
        asked.append(before)
        yield batch(records, before.start, before.end)

    chunks = Chunks("t", WITHIN, MOST_BYTES, read_back)
    chunks._most_held_bytes = MOST_BYTES
    assembled = taken(chunks, batch(records, 0, len(records)))
    values = [some.records["value"].to_pylist() for some in assembled]
    assert [value for some in values for value in some] == [name.encode() * 40 for name in names]
    assert [len(some) for some in values] == [2, 2]  # Each is of 80 bytes.
    assert asked == [OffsetRange("t", 0, 0, 1), OffsetRange("t", 0, 1, 2)]
    assert (chunks._held_bytes, chunks._pieces) == (0, {})


def test_a_value_whose_parts_the_topic_no_longer_has_is_a_dead_letter() -> None:
    records = [*[part(f"v{n}", 0, 2, b"1" * 60) for n in range(3)], part("v0", 1, 2, b"1")]
    [assembled] = taken(Chunks("t", WITHIN, MOST_BYTES, lambda *_: iter(()), 0), batch(records, 0, 4))
    reason = "part 1 of 2: the topic no longer has all parts before it"
    assert (assembled.refused["offset"].to_pylist(), assembled.reasons) == ([3], [("chunk_missing", reason)])


def test_a_whole_record_keeps_its_other_headers_and_what_was_read_as_its_value() -> None:
    [assembled] = taken(Chunks("t", WITHIN, MOST_BYTES), batch([*A, PLAIN], 0, 4))
    assert assembled.records["headers"].to_pylist() == [[{"key": "other", "value": b"o"}], None]
    assert assembled.records["raw_value"].to_pylist() == [b"33", b"plain"]
    whole = assembled.records.select(["partition", "offset", "headers", "value"])
    assert Chunks("t", WITHIN, MOST_BYTES).take(whole) is None


def test_an_earlier_part_that_is_too_large_to_be_read_leaves_no_hole_in_its_value() -> None:
    asked: list[int] = []

    def read_back(before: OffsetRange, wanted: Wanted) -> Iterator[pa.RecordBatch]:
        asked.append(wanted.most_value_bytes)
        some = batch([(None, A[0][1])], before.start, before.end)
        yield some.append_column("left_out", pa.array([101]))

    [assembled] = taken(Chunks("t", WITHIN, MOST_BYTES, read_back), batch(A, 1, 3))
    assert (assembled.records.num_rows, assembled.refused["offset"].to_pylist(), asked) == (0, [1, 2], [MOST_BYTES])


def test_a_task_reads_back_no_farther_than_to_where_a_value_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks_module, "REPEATED_WITHIN", 2)
    asked: list[OffsetRange] = []

    def read_back(before: OffsetRange, _: Wanted) -> Iterator[pa.RecordBatch]:
        asked.append(before)
        yield batch(records, before.start, before.end)

    records = [PLAIN] * 15 + [A[0], A[1], A[2], *B, PLAIN]
    chunks = Chunks("t", 1000, MOST_BYTES, read_back)
    taken(chunks, batch(records, 5, 21))
    assert asked == []
    chunks = Chunks("t", 1000, MOST_BYTES, read_back)
    taken(chunks, batch(records, 17, 18))
    taken(chunks, batch(records, 18, 21))
    assert asked == [OffsetRange("t", 0, 15, 17), OffsetRange("t", 0, 13, 15)]


def test_a_dead_letter_that_is_a_part_never_becomes_a_row_when_it_is_replayed(tmp_path: Path) -> None:
    target = table(tmp_path, {"id": "long", "image": "binary"}, ["image"], chunks={})
    contents = [part("a", 0, 2, b'{"id": 1}'), (b'{"id": 2}', {"other": b"o"}), (b'{"id": 3}', None)]
    records = batch(contents, 0, 3)
    changes = read_records(target, "", dict(zip(records.schema.names, records.columns, strict=True)))
    assert changes.decoded.refused.tolist() == [True, False, False]
    [mismatch] = changes.decoded.mismatches
    assert (mismatch.kind, mismatch.reason) == (
        "chunk_missing",
        "the record is a part of a value, which has to be sent again as a whole",
    )
