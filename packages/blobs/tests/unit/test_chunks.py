"""Values with parts in several records: whole, or named dead letters, wherever a task begins and ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from frazil.kafka.fetch.columns import Wanted
from frazil.types import OffsetRange
from frazil_blobs.chunks import Chunks
from frazil_blobs.values import checksum_of

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


def outcomes(records: Sequence[Record], *cuts: int) -> dict[int, Any]:
    """What becomes of each record, by offset: its value, a reason, or None for a part. cuts: where further tasks begin."""

    def read_back(before: OffsetRange, _: Wanted) -> Iterator[pa.RecordBatch]:
        yield batch(records, before.start, before.end)

    became: dict[int, Any] = {}
    bounds = [0, *cuts, len(records)]
    for begin, end in pairwise(bounds):
        chunks = Chunks("t", WITHIN, MOST_BYTES, read_back)
        middle = (begin + end) // 2
        for some in (batch(records, begin, middle), batch(records, middle, end)):  # As a task reads several batches.
            assembled = chunks.take(some)
            whole = some if assembled is None else assembled.records
            became |= dict(zip(whole["offset"].to_pylist(), whole["value"].to_pylist(), strict=True))
            if assembled is not None:
                became |= dict.fromkeys(assembled.parts["offset"].to_pylist())
                became |= dict(zip(assembled.refused["offset"].to_pylist(), assembled.reasons, strict=True))
    return became


A = [part("a", n, 3, content) for n, content in enumerate((b"11", b"22", b"33"))]
B = [part("b", n, 2, content) for n, content in enumerate((b"xx", b"yy"))]
PLAIN: Record = (b"plain", None)
WHOLE = b"112233"
MISSING = "part 2 of 3: part 1 is missing, or follows it"
SERIES = {
    "contiguous": ([*A, PLAIN, *B], [None, None, WHOLE, b"plain", None, b"xxyy"]),
    "interleaved": ([A[0], B[0], A[1], PLAIN, A[2], B[1]], [None, None, None, b"plain", WHOLE, b"xxyy"]),
    "missing": ([A[0], A[2], PLAIN], [None, MISSING, b"plain"]),
    "without its first": ([A[1], A[2]], [f"part {n} of 3: part 0 is not among the 8 offsets before it" for n in (1, 2)]),
    "doubled": ([A[0], A[1], A[1], A[2]], [None, None, "part 1 of 3: it is there already", WHOLE]),
    "last doubled": ([*A, A[2]], [None, None, WHOLE, "part 2 of 3: it is there already"]),
    "first doubled": ([A[0], A[0], A[1], A[2]], [None, None, None, WHOLE]),
    "begun again": ([A[0], A[1], A[0], A[1], A[2]], [None, None, None, None, WHOLE]),
    "sent twice": ([*A, *A], [None, None, WHOLE, None, None, WHOLE]),
    "begun again behind another": (
        [A[0], B[0], A[0], *[PLAIN] * 7, B[1], A[1], A[2]],
        [
            None, None, None, *[b"plain"] * 7, "part 1 of 2: part 0 is not among the 8 offsets before it",
            *[f"part {n} of 3: part 0 is not among the 8 offsets before it" for n in (1, 2)],
        ],
    ),
    "out of order": ([A[0], A[2], A[1]], [None, MISSING, "part 1 of 3: part 1 is missing, or follows it"]),
    "too far": (
        [A[0], *[PLAIN] * 9, A[1]],
        [None, *[b"plain"] * 9, "part 1 of 3: part 0 is not among the 8 offsets before it"],
    ),
    "another count": (
        [A[0], part("a", 1, 4, b"22")], [None, "part 1 of 4: the parts before it say that there are 3"]
    ),
    "no numbers": (
        [part("a", 0, 3, b"1", index=b"x")], ["`frazil-chunk-index` and `frazil-chunk-count` are not both whole numbers"]
    ),
    "no id": (
        [part("", 0, 3, b"1")],
        ["`frazil-chunk-index` is not below `frazil-chunk-count`, or `frazil-chunk-id` does not have 1 to 256 bytes"],
    ),
    "too large": (
        [part("a", 0, 2, b"1" * 60), part("a", 1, 2, b"1" * 60)],
        [None, "part 1 of 2: the value has more bytes than `limits.record_size` allows, 100"],
    ),
    "checksum": ([part("a", 0, 1, b"11", checksum=checksum_of(b"11").encode())], [b"11"]),
    "wrong checksum": (
        [part("a", 0, 1, b"11", checksum=checksum_of(b"12").encode())],
        ["part 0 of 1: the whole value has another checksum"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SERIES)
def test_what_becomes_of_a_record_does_not_depend_on_where_tasks_begin(name: str) -> None:
    records, wanted = SERIES[name]
    for cut in range(len(records)):
        assert list(dict(sorted(outcomes(records, *([cut] if cut else [])).items())).values()) == wanted, cut
    everywhere = outcomes(records, *range(1, len(records)))
    assert list(dict(sorted(everywhere.items())).values()) == wanted


def test_a_whole_record_keeps_its_other_headers_and_what_was_read_as_its_value() -> None:
    assembled = Chunks("t", WITHIN, MOST_BYTES).take(batch([*A, PLAIN], 0, 4))
    assert assembled is not None
    assert assembled.records["headers"].to_pylist() == [[{"key": "other", "value": b"o"}], None]
    assert assembled.records["raw_value"].to_pylist() == [b"33", b"plain"]
    assert (
        Chunks("t", WITHIN, MOST_BYTES).take(assembled.records.select(["partition", "offset", "headers", "value"]))
        is None
    )


def test_an_earlier_part_that_is_too_large_to_be_read_leaves_no_hole_in_its_value() -> None:
    asked: list[int] = []

    def read_back(before: OffsetRange, wanted: Wanted) -> Iterator[pa.RecordBatch]:
        asked.append(wanted.most_value_bytes)
        some = batch([(None, A[0][1])], before.start, before.end)
        yield some.append_column("left_out", pa.array([101]))

    assembled = Chunks("t", WITHIN, MOST_BYTES, read_back).take(batch(A, 1, 3))
    assert assembled is not None
    assert (assembled.records.num_rows, assembled.refused["offset"].to_pylist(), asked) == (0, [1, 2], [MOST_BYTES])


def test_a_task_reads_back_once_for_a_partition_and_not_without_need() -> None:
    asked: list[OffsetRange] = []

    def read_back(before: OffsetRange, _: Wanted) -> Iterator[pa.RecordBatch]:
        asked.append(before)
        yield batch(records, before.start, before.end)

    records = [PLAIN] * 5 + [A[0], A[1], A[2], *B, PLAIN]
    chunks = Chunks("t", WITHIN, MOST_BYTES, read_back)
    chunks.take(batch(records, 5, 11))
    assert asked == []
    chunks = Chunks("t", WITHIN, MOST_BYTES, read_back)
    chunks.take(batch(records, 7, 8))
    chunks.take(batch(records, 8, 11))
    assert asked == [OffsetRange("t", 0, 0, 7)]
