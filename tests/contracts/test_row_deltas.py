"""The Catalog port's commits that take rows away: on memory and on Iceberg's own JDBC catalog, formats 2 and 3."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, StringType
from pyroaring import BitMap64

from frazil.catalog.port import Catalog, NamedAppend, NotSent, Replacement, TableMoved, TableState
from frazil.catalog.scans import LiveFile, Scan
from frazil.clock import new_id
from frazil.errors import ConflictError, UnavailableError
from frazil.schema.evolve import new_schema
from frazil.types import Commit, DataFile, Progress, RowDelta, Writer
from frazil.upsert.commit import row_ids
from frazil.upsert.lookup.delete_files import read_deletes, write_deletes
from frazil.upsert.lookup.live_rows import read_columns
from frazil.write.plain_target import plain_target
from frazil.write.target import NO_ID, TableTarget, lineage_schema, with_row_ids
from frazil.write.write import FileWriter
from tests.contracts.catalogs import Lake

_TABLE = "lake.t"
_SCHEMA: Schema = new_schema([("id", LongType()), ("v", StringType())])


class Hand:
    """A writer of a table: commits rows and takes them away."""

    def __init__(self, catalog: Catalog, version: int, table: str = _TABLE) -> None:
        self.catalog = catalog
        self.version = version
        self._table = table
        self.state = catalog.create(table, _SCHEMA, {}, version)

    def fresh(self) -> TableState:
        """The table as it is now."""
        state = self.catalog.load(self._table)
        assert state is not None
        self.state = state
        return state

    @property
    def target(self) -> TableTarget:
        return plain_target(self.state)

    def write(self, *ids: int) -> tuple[DataFile, ...]:
        writer = FileWriter(self.target)
        columns = [pa.array(ids, pa.int64()), pa.array([f"v{n}" for n in ids])]
        writer.write(pa.Table.from_arrays(columns, schema=self.target.arrow_schema))
        return tuple(writer.finish())

    def commit(self, *ids: int, delta: RowDelta | None = None, offset: int = 1) -> Commit:
        progress = Progress(offsets={"a": {0: offset}}, commit_id=new_id(), writer=Writer(1, "r"))
        return Commit(self._table, self.write(*ids) if ids else (), progress, self.state.progress, delta)

    def send(self, commit: Commit) -> Progress:
        done = self.catalog.commit(commit)
        self.state = replace(self.state, progress=done)
        return done

    def scan(self) -> Scan:
        return self.catalog.scan(self._table)

    def delete(self, scan: Scan, **rows: list[int]) -> RowDelta:
        """Takes away rows of files, named f0, f1 and so on, the one with the most rows first."""
        gone: dict[LiveFile, BitMap64] = {}
        files = sorted(scan.files, key=lambda file: -file.record_count)
        for name, places in rows.items():
            file = files[int(name[1:])]
            gone[file] = read_deletes(self.target, file.path, file.deletes) | BitMap64(places)
        replaced = tuple(delete for file in gone for delete in file.deletes)
        deletes = tuple(write_deletes(self.target, gone, self.version))
        return RowDelta(scan.read_at, deletes, replaced, (), tuple(file.path for file in gone))


@pytest.fixture(params=[2, 3])
def hand(lake: Lake, request: pytest.FixtureRequest) -> Hand:
    return Hand(lake.catalog(), request.param)


def _live(hand: Hand, scan: Scan) -> dict[str, list[int]]:
    """By file the places of the rows that are left."""
    return {
        file.path: [n for n in range(file.record_count) if n not in read_deletes(hand.target, file.path, file.deletes)]
        for file in scan.files
    }


def test_an_empty_table_has_nothing_to_scan(hand: Hand) -> None:
    assert hand.scan() == Scan()


def test_rows_come_and_go_in_one_snapshot_and_a_fresh_process_sees_the_same(hand: Hand, lake: Lake) -> None:
    hand.send(hand.commit(1, 2, 3))
    before = hand.scan()
    assert [(file.record_count, file.deletes) for file in before.files] == [(3, ())]
    commit = hand.commit(2, delta=hand.delete(before, f0=[1]), offset=2)
    done = hand.send(commit)
    other = lake.catalog()
    state = other.load(_TABLE)
    assert state is not None
    assert (state.progress.commit_id, state.head_id) == (commit.progress.commit_id, done.snapshot_id)
    old, new = before.files[0].path, commit.files[0].path
    for scan in (hand.scan(), other.scan(_TABLE)):
        assert scan.read_at == done.snapshot_id
        assert _live(hand, scan) == {old: [0, 2], new: [0]}
    assert lake.column(_TABLE, "id") == [1, 2, 3]


def test_deletes_of_one_file_are_merged_into_one(hand: Hand, lake: Lake) -> None:
    hand.send(hand.commit(1, 2, 3, 4))
    for place in (3, 0, 1):
        hand.send(hand.commit(delta=hand.delete(hand.scan(), f0=[place])))
    other = lake.catalog()
    other.load(_TABLE)
    for scan in (hand.scan(), other.scan(_TABLE)):
        (file,) = scan.files
        (deletes,) = file.deletes
        assert (deletes.record_count, deletes.data_file) == (3, file.path)
        assert deletes.kind == ("vector" if hand.version == 3 else "positions")
        assert list(_live(hand, scan).values()) == [[2]]
    assert lake.column(_TABLE, "id") == [3]
    size = other.size(_TABLE)
    assert (size.row_count, size.deleted_row_count, size.live_row_count) == (4, 3, 1)


def test_a_row_of_the_commit_s_own_file_may_go_in_the_same_commit(hand: Hand, lake: Lake) -> None:
    hand.send(hand.commit(7))
    files = hand.write(1, 2)
    own = LiveFile(files[0].path, 2, files[0].content)
    scan = hand.scan()
    deletes = tuple(write_deletes(hand.target, {own: BitMap64([0])}, hand.version))
    hand.send(replace(hand.commit(delta=RowDelta(scan.read_at, deletes)), files=files))
    other = lake.catalog()
    other.load(_TABLE)
    for found in (hand.scan(), other.scan(_TABLE)):
        assert _live(hand, found)[files[0].path] == [1]
    assert lake.column(_TABLE, "id") == [2, 7]


def test_whole_files_go(hand: Hand, lake: Lake) -> None:
    hand.send(hand.commit(1, 2))
    hand.send(hand.commit(3))
    scan = hand.scan()
    removed = tuple(DataFile(file.path, file.record_count, 0, file.content) for file in scan.files)
    hand.send(hand.commit(9, delta=RowDelta(scan.read_at, removed=removed)))
    other = lake.catalog()
    other.load(_TABLE)
    assert [len(rows) for rows in _live(hand, other.scan(_TABLE)).values()] == [1]
    assert hand.catalog.size(_TABLE).row_count == 1


def test_a_whole_file_goes_and_of_another_some_rows(hand: Hand, lake: Lake) -> None:
    hand.send(hand.commit(1, 2, 3))
    hand.send(hand.commit(4, 5))
    hand.send(hand.commit(delta=hand.delete(hand.scan(), f0=[0], f1=[1])))
    scan = hand.scan()
    whole, other = sorted(scan.files, key=lambda file: -file.record_count)
    removed = (DataFile(whole.path, whole.record_count, 0, whole.content),)
    hand.send(hand.commit(9, delta=replace(hand.delete(scan, f1=[0]), removed=removed)))
    fresh = lake.catalog()
    fresh.load(_TABLE)
    for found in (hand.scan(), fresh.scan(_TABLE)):
        assert sorted(_live(hand, found).values()) == [[], [0]]
        assert (whole.path in _live(hand, found), other.path in _live(hand, found)) == (False, True)


def test_rows_that_another_writer_added_meanwhile_are_a_move(hand: Hand, lake: Lake) -> None:
    hand.send(hand.commit(1, 2))
    stale = hand.commit(2, delta=hand.delete(hand.scan(), f0=[1]))
    other = Hand(lake.catalog("other"), hand.version)
    other.fresh()
    other.send(other.commit(2))
    with pytest.raises(TableMoved):
        hand.catalog.commit(stale)
    hand.fresh()
    hand.send(hand.commit(2, delta=hand.delete(hand.scan(), f0=[1], f1=[0])))
    assert sorted(len(rows) for rows in _live(hand, hand.scan()).values()) == [0, 1, 1]


def test_deletes_that_another_writer_made_meanwhile_are_a_move(hand: Hand, lake: Lake) -> None:
    hand.send(hand.commit(1, 2, 3))
    stale = hand.commit(2, delta=hand.delete(hand.scan(), f0=[1]))
    other = Hand(lake.catalog("other"), hand.version)
    other.fresh()
    other.send(other.commit(delta=other.delete(other.scan(), f0=[0])))
    with pytest.raises(TableMoved):
        hand.catalog.commit(stale)
    hand.fresh()
    hand.send(hand.commit(2, delta=hand.delete(hand.scan(), f0=[1])))
    assert sorted(_live(hand, hand.scan()).values()) == [[0], [2]]


def test_a_file_that_another_writer_rewrote_meanwhile_is_a_move(hand: Hand, lake: Lake) -> None:
    hand.send(hand.commit(1, 2))
    stale = hand.commit(2, delta=hand.delete(hand.scan(), f0=[1]))
    other = Hand(lake.catalog("other"), hand.version)
    other.fresh()
    scan = other.scan()
    removed = tuple(DataFile(file.path, file.record_count, 0, file.content) for file in scan.files)
    other.send(other.commit(1, 2, delta=RowDelta(scan.read_at, removed=removed)))
    with pytest.raises(TableMoved):
        hand.catalog.commit(stale)


def test_whole_files_that_another_writer_has_touched_meanwhile_are_a_move(hand: Hand, lake: Lake) -> None:
    hand.send(hand.commit(1, 2, 3))
    scan = hand.scan()
    removed = tuple(DataFile(file.path, file.record_count, 0, file.content) for file in scan.files)
    stale = [hand.commit(9, delta=RowDelta(scan.read_at, removed=removed)) for _ in range(2)]
    other = Hand(lake.catalog("other"), hand.version)
    other.fresh()
    other.send(other.commit(delta=other.delete(other.scan(), f0=[0])))
    with pytest.raises(TableMoved):
        hand.catalog.commit(stale[0])
    hand.fresh()
    other.fresh()
    other.send(other.commit(delta=RowDelta(other.scan().read_at, removed=removed)))
    with pytest.raises(TableMoved):
        hand.catalog.commit(stale[1])


def test_a_stale_progress_is_a_conflict_and_no_move(hand: Hand, lake: Lake) -> None:
    hand.send(hand.commit(1, 2))
    stale = hand.commit(2, delta=hand.delete(hand.scan(), f0=[1]))
    second = Hand(lake.catalog(), hand.version)
    second.fresh()
    second.send(second.commit(5))
    with pytest.raises(ConflictError) as refused:
        hand.catalog.commit(stale)
    assert not isinstance(refused.value, TableMoved)


def test_a_lost_answer_is_found_in_the_table(hand: Hand, lake: Lake) -> None:
    hand.send(hand.commit(1, 2))
    commit = hand.commit(2, delta=hand.delete(hand.scan(), f0=[1]))
    with lake.lose_next_response():
        done = hand.catalog.commit(commit)
    assert done.commit_id == commit.progress.commit_id
    assert list(_live(hand, hand.scan()).values()) == [[0], [0]]


@pytest.mark.parametrize("is_delta", [False, True])
def test_a_commit_is_found_under_that_of_a_later_run(hand: Hand, lake: Lake, is_delta: bool) -> None:
    """It was sent again after its answer was lost, and the second time it is refused: a later run has continued from
    there.
    """
    hand.send(hand.commit(1, 2))
    later = Hand(lake.catalog(), hand.version)

    def resume() -> None:
        for number in (7, 8):
            later.fresh()
            later.send(later.commit(number))

    commit = hand.commit(2, delta=hand.delete(hand.scan(), f0=[1]) if is_delta else None)
    with lake.send_twice(resume):
        done = hand.catalog.commit(commit)
    assert (done.commit_id, done.offsets) == (commit.progress.commit_id, commit.progress.offsets)
    assert lake.column(_TABLE, "id") == ([1, 2, 7, 8] if is_delta else [1, 2, 2, 7, 8])


def test_where_history_does_not_tell_whether_a_commit_landed_nothing_is_reported(hand: Hand, lake: Lake) -> None:
    hand.send(hand.commit(1, 2))
    later = Hand(lake.catalog(), hand.version)

    def resume() -> None:
        later.fresh()
        later.send(later.commit(7))
        lake.expire_all_but_newest(_TABLE)

    commit = hand.commit(2)
    with lake.send_twice(resume), pytest.raises(UnavailableError, match=r"the snapshots .* were expired") as told:
        hand.catalog.commit(commit)
    assert not isinstance(told.value, NotSent)
    assert later.fresh().progress.offsets == commit.progress.offsets


def _replacement(hand: Hand, *ids: int, delta: RowDelta, name: str = "r1") -> Replacement:
    since, progress = hand.fresh().head_id, hand.state.progress
    return Replacement(_TABLE, hand.write(*ids), delta, progress, since, name, {"replayed-dead-letters": "x"})


def test_rows_are_replaced_once_under_a_name_and_the_progress_stays(hand: Hand, lake: Lake) -> None:
    hand.send(hand.commit(1, 2, 3))
    progress = hand.state.progress
    hand.catalog.replace_once(_replacement(hand, 2, delta=hand.delete(hand.scan(), f0=[1])))
    other = lake.catalog()
    state = other.load(_TABLE)
    assert state is not None
    assert (state.progress.commit_id, state.progress.offsets) == (progress.commit_id, progress.offsets)
    newest = next(iter(other.history(_TABLE, ("replay-id", "replayed-dead-letters", "commit-id"))))
    assert newest.summary == {"replay-id": "r1", "replayed-dead-letters": "x"}
    for scan in (hand.scan(), other.scan(_TABLE)):
        assert sorted(_live(hand, scan).values()) == [[0], [0, 2]]
    assert lake.column(_TABLE, "id") == [1, 2, 3]
    hand.fresh()
    hand.send(hand.commit(9, delta=hand.delete(hand.scan(), f0=[0])))
    assert lake.column(_TABLE, "id") == [2, 3, 9]


def test_a_replacement_that_was_made_for_another_progress_is_refused(hand: Hand, lake: Lake) -> None:
    hand.send(hand.commit(1, 2))
    stale = _replacement(hand, 2, delta=hand.delete(hand.scan(), f0=[1]))
    other = Hand(lake.catalog(), hand.version)
    other.fresh()
    other.send(replace(other.commit(offset=2), delta=RowDelta(other.scan().read_at)))
    with pytest.raises(ConflictError):
        hand.catalog.replace_once(stale)
    assert lake.column(_TABLE, "id") == [1, 2]


def test_a_replacement_whose_rows_another_writer_has_touched_is_refused(hand: Hand, lake: Lake) -> None:
    hand.send(hand.commit(1, 2))
    stale = _replacement(hand, 2, delta=hand.delete(hand.scan(), f0=[1]))
    other = Hand(lake.catalog("other"), hand.version)
    other.fresh()
    other.send(other.commit(2))
    with pytest.raises(ConflictError):
        hand.catalog.replace_once(stale)
    assert lake.column(_TABLE, "id") == [1, 2, 2]


def test_one_of_two_simultaneous_replays_is_refused_after_any_other_commit_too(hand: Hand, lake: Lake) -> None:
    hand.send(hand.commit(1, 2))
    other = lake.catalog()
    for name in ("", "quick"):
        slow = _replacement(hand, 7, delta=RowDelta(hand.scan().read_at), name="slow")
        assert other.load(_TABLE) is not None
        other.append_once(
            NamedAppend(_TABLE, hand.write(8) if name else (), "replay-id", name or "barrier", slow.since)
        )
        with pytest.raises(ConflictError):
            hand.catalog.replace_once(slow)
    assert lake.column(_TABLE, "id") == [1, 2, 8]


def test_a_replacement_whose_answer_was_lost_is_looked_up(hand: Hand, lake: Lake) -> None:
    hand.send(hand.commit(1, 2))
    with lake.lose_next_response("replay.replace-landed"):
        hand.catalog.replace_once(_replacement(hand, 2, delta=hand.delete(hand.scan(), f0=[1])))
    assert lake.column(_TABLE, "id") == [1, 2]
    assert sorted(_live(hand, hand.scan()).values()) == [[0], [0]]


def test_a_replacement_where_the_history_does_not_reach_back_far_enough_is_refused(hand: Hand, lake: Lake) -> None:
    hand.send(hand.commit(1, 2))
    since = hand.fresh().head_id
    hand.send(hand.commit(3))
    lake.expire_all_but_newest(_TABLE)
    hand.fresh()
    late = replace(_replacement(hand, 4, delta=RowDelta(hand.scan().read_at)), since=since)
    before = lake.column(_TABLE, "id")
    with pytest.raises((ConflictError, UnavailableError)):
        hand.catalog.replace_once(late)
    assert lake.column(_TABLE, "id") == before


def test_files_say_which_ids_their_rows_have(hand: Hand, lake: Lake) -> None:
    """Also those that the process knows from its own commits."""
    hand.send(hand.commit(1, 2, 3))
    hand.scan()
    two = (*hand.write(4), *hand.write(5, 6))
    hand.send(replace(hand.commit(delta=hand.delete(hand.scan(), f0=[0])), files=two))
    hand.catalog.replace_once(_replacement(hand, 2, delta=hand.delete(hand.scan(), f0=[1])))
    hand.fresh()
    hand.send(hand.commit(7, 8, delta=RowDelta(hand.scan().read_at)))
    mine, other = hand.scan(), lake.catalog()
    other.load(_TABLE)
    assert {file.path: file.first_row_id for file in mine.files} == {
        file.path: file.first_row_id for file in other.scan(_TABLE).files
    }
    if hand.version < 3:
        assert {file.first_row_id for file in mine.files} == {None}
        return
    ids = lake.row_ids(_TABLE, "id")
    assert len(set(ids.values())) == len(ids) == 7
    found: dict[int, int | None] = {}
    for file in mine.files:
        (column,) = read_columns(hand.target, file, [("id",)])
        places = _live(hand, mine)[file.path]
        assert file.first_row_id is not None
        found |= {column[place].as_py(): file.first_row_id + place for place in places}
    assert found == ids


def test_rows_have_the_ids_that_files_give_them(hand: Hand, lake: Lake) -> None:
    if hand.version < 3:
        pytest.skip("rows have no ids before format 3")
    hand.send(hand.commit(1, 2, 3))
    scan = hand.scan()
    target = hand.target
    rows = pa.Table.from_pylist([{"id": 2, "v": "b"}, {"id": 9, "v": "b"}], schema=target.arrow_schema)
    writer = FileWriter(target, lineage_schema(target))
    writer.write(with_row_ids(target, rows, np.array([1, NO_ID])))
    files = tuple(writer.finish())
    hand.send(replace(hand.commit(delta=hand.delete(scan, f0=[1])), files=files))
    (file,) = (file for file in hand.scan().files if file.path == files[0].path)
    assert file.first_row_id is not None
    assert row_ids(target, file, np.array([1, 0])).tolist() == [file.first_row_id + 1, 1]
    assert lake.row_ids(_TABLE, "id") == {1: 0, 2: 1, 3: 2, 9: file.first_row_id + 1}


def test_many_files_and_positions_are_read_alike_by_java(hand: Hand, lake: Lake) -> None:
    rng = np.random.default_rng(5)
    ids = [range(start, start + 1000) for start in (0, 10_000, 20_000, 30_000)]
    for one in ids:
        hand.send(hand.commit(*one))
    left = {n for one in ids for n in one}
    for _ in range(3):
        scan, rows = hand.scan(), {}
        starts = [int(read_columns(hand.target, file, [("id",)])[0][0].as_py()) for file in scan.files]
        files = sorted(range(4), key=lambda n: -scan.files[n].record_count)
        for name, at in enumerate(files):
            places = sorted(rng.choice(1000, 230, replace=False).tolist())
            rows[f"f{name}"] = places
            left -= {starts[at] + place for place in places}
        hand.send(hand.commit(delta=hand.delete(scan, **rows)))
    assert lake.column(_TABLE, "id") == sorted(left)
