"""What a replay remembers, and how fast it may be."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from frazil.kafka.port import OutFields
from frazil_replay.replay import Pace, Replay, ReplayProgress, Request, load_progress, one_ahead
from frazil_replay.snapshots import FilePosition, FileRows, Snapshots
from frazil_replay.values import JsonEncoder
from frazil_testing.memory_kafka import MemoryOutbox
from frazil_testing.twins import FakeClock
from packages.verify.tests.unit.test_compare import ROWS, SCHEMA, file, target

REQUEST = Request("t", "i", "topic", None, None, "", "json", (), ())


def test_progress_is_read_back_as_it_was() -> None:
    progress = ReplayProgress(7, FilePosition(3, 11), 5, is_complete=True)
    assert load_progress(progress.dump()) == progress
    assert load_progress("") is None


def test_equal_requests_are_one_replay_and_others_are_not() -> None:
    others = [
        replace(REQUEST, where="a"),
        replace(REQUEST, topic_id="j"),
        replace(REQUEST, after=1),
        replace(REQUEST, key=("a",)),
    ]
    names = {one.owner("p") for one in (REQUEST, replace(REQUEST), *others)}
    assert len(names) == 1 + len(others)
    assert all(name.startswith("frazil-p-replay-") for name in names)


def test_a_writer_is_held_back_to_its_rate() -> None:
    clock = FakeClock()
    begun_s = clock.monotonic_s()
    pace = Pace(clock, 100)
    assert pace.at_once == 100
    for _ in range(5):
        pace.wait(100)
    assert clock.monotonic_s() - begun_s == 5.0
    assert Pace(clock, None).at_once > 1000


def test_batches_are_made_one_ahead_in_order_and_an_error_follows_those_before() -> None:
    made: list[int] = []

    def batches() -> Iterator[tuple[list[Any], ReplayProgress]]:
        for number in range(4):
            made.append(number)
            yield [], ReplayProgress(number)
        raise OSError("the store is gone")

    found = one_ahead(batches())
    for number in range(4):
        assert next(found)[1].snapshot_id == number
        assert len(made) <= number + 2
    with pytest.raises(OSError, match="the store is gone"):
        next(found)


class Untracked(MemoryOutbox):
    """Takes records that collections of garbage do not visit."""

    def write(self, owner: str, topic: str, name: str, records: Sequence[OutFields]) -> None:
        for _ in range(3):  # Each leaves one level of tuples out.
            gc.collect()
        assert not any(map(gc.is_tracked, records))
        super().write(owner, topic, name, records)


class OneSnapshot:
    """A snapshot that added one file."""

    def __init__(self, rows: FileRows) -> None:
        self._rows = replace(rows, snapshot_id=7)

    def changes(self, after: int, last: int) -> Iterator[FileRows]:
        assert (after, last) == (1, 7)
        yield self._rows


class FilesOfASnapshot:
    """A snapshot of several files."""

    def __init__(self, files: list[FileRows]) -> None:
        self._files = files

    def rows(self, snapshot_id: int) -> Iterator[FileRows]:
        assert snapshot_id == 7
        yield from self._files


def test_the_share_of_a_replay_grows_with_the_rows_that_are_read(tmp_path: Path) -> None:
    of = target(tmp_path)
    snapshots = cast(Snapshots, FilesOfASnapshot([file(of, ROWS), file(of, ROWS)]))
    replay = Replay(REQUEST, "owner", snapshots, of, JsonEncoder(SCHEMA.fields), None, None)
    pace, shares = Pace(FakeClock(), len(ROWS) // 2), list[float | None]()
    done = replay.run(MemoryOutbox(), ReplayProgress(7), pace, lambda _, share: shares.append(share))
    assert (done.records, shares) == (2 * len(ROWS), [0.2, 0.4, 0.6, 0.8, 1.0, 1.0])
    changes = replace(replay, request=replace(REQUEST, after=1), snapshots=cast(Snapshots, OneSnapshot(file(of, ROWS))))
    shares.clear()
    changes.run(MemoryOutbox(), ReplayProgress(7), Pace(FakeClock(), None), lambda _, share: shares.append(share))
    assert shares == [None]


def test_records_do_not_slow_down_collections_of_garbage(tmp_path: Path) -> None:
    of, outbox = target(tmp_path), Untracked()
    request = replace(REQUEST, after=1, key=("id",), headers=(("from", "lake"),))
    snapshots = cast(Snapshots, OneSnapshot(file(of, ROWS)))
    keys = JsonEncoder(SCHEMA.fields[:1])
    replay = Replay(request, "owner", snapshots, of, JsonEncoder(SCHEMA.fields), keys, None)
    done = replay.run(outbox, ReplayProgress(7), Pace(FakeClock(), None), lambda *_: None)
    assert (done.records, done.is_complete) == (len(ROWS), True)
    written = outbox.topics["topic"]
    assert [record.key for record in written] == [b'{"id":%d}' % number for number, _ in ROWS]
    headers = (("from", b"lake"), ("_change_type", b"INSERT"), ("_commit_snapshot_id", b"7"))
    assert {tuple(record.headers) for record in written} == {headers}
