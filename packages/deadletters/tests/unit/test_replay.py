"""Retries and drops of dead letters, on tables in memory: what moves, what stays, and what a death in the middle leaves."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from frazil import failpoints
from frazil.catalog.port import NamedAppend, Rewrite
from frazil.catalog.scans import Scan
from frazil.dead_letters.files import ReplayResult, Selection
from frazil.dead_letters.pending import PendingReplay, mark_replay, settle_replays
from frazil.dead_letters.record import DEAD_LETTER_TYPES, dead_letter_rows
from frazil.decode.columns import Mismatch
from frazil.error_classes import ErrorClass
from frazil.errors import ConflictError, SpecError, UnavailableError
from frazil.ingest.failures import TableStopped
from frazil.spec.settings import METADATA_COLUMNS, LimitsSpec, ValueSpec
from frazil.types import DeleteFile
from frazil.write.plain_target import plain_target
from frazil.write.target import METADATA_TYPES
from frazil.write.write import FileWriter
from frazil_deadletters.replay import Replayer
from frazil_testing.twins import MemoryCatalog
from packages.deadletters.tests.unit.scene import DEAD_LETTERS, TABLE, Scene

ALL = Selection()
LARGE = 3_000_000_000
STEPS = ("replay.written", "replay.marked", "replay.pending", "replay.appended", "replay.done")
PROMISED = STEPS[2:]


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.arm({})


def _ids(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(row["id"] for row in rows)


def _narrow(root: Path) -> Scene:
    """Four rows; dead letters of offsets 1 (too large), 3 (no JSON) and 5 (too large, with a field that nobody knows)."""
    scene = Scene(root, {"id": "int"})
    return scene.feed({"id": 0}, {"id": LARGE}, {"id": 2}, b"{", {"id": 4}, {"id": LARGE + 1, "new": "x"}, {"id": 6})


def _die_at(step: str, scene: Scene) -> None:
    failpoints.arm({failpoints.VARIABLE: f"{step}=error"})
    with pytest.raises(RuntimeError, match=step):
        scene.replayer.replay(scene.table, ALL)
    failpoints.arm({})


def test_dead_letters_that_fit_now_become_rows_and_others_count_one_more_retry(tmp_path: Path) -> None:
    scene = _narrow(tmp_path)
    assert [(dead_letter["offset"], dead_letter["retries"]) for dead_letter in scene.dead_letters()] == [
        (1, 0),
        (3, 0),
        (5, 0),
    ]
    assert scene.replayer.replay(scene.table, ALL) == ReplayResult(0, 3)
    scene.declare({"id": "long"})
    assert scene.replayer.replay(scene.table, ALL) == ReplayResult(2, 1)
    assert _ids(scene.rows()) == [0, 2, 4, 6, LARGE, LARGE + 1]
    assert [row["new"] for row in scene.rows() if row["id"] == LARGE + 1] == ["x"]
    [left] = scene.dead_letters()
    assert (left["offset"], left["value"], left["error_class"], left["retries"]) == (3, b"{", "malformed", 2)
    assert scene.replayer.replay(scene.table, ALL) == ReplayResult(0, 1)


def test_what_fails_again_has_the_reason_of_today(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"id": "int"}, limits=LimitsSpec(record_bytes=12)).feed({"id": 0}, {"id": "a text"})
    [before] = scene.dead_letters()
    assert (before["error_class"], before["path"]) == ("too_large", None)
    scene.declare({"id": "int"}, limits=LimitsSpec())
    assert scene.replayer.replay(scene.table, ALL) == ReplayResult(0, 1)
    [after] = scene.dead_letters()
    changed = {name: after[name] for name in after if after[name] != before[name]}
    assert changed == {
        "error_class": "type_mismatch",
        "message": 'string "a text" does not fit int',
        "path": "id",
        "retries": 1,
    }
    assert scene.replayer.replay(scene.table, ALL) == ReplayResult(0, 1)
    assert scene.dead_letters() == [{**after, "retries": 2}]


@pytest.mark.parametrize(
    ("selection", "left"),
    [
        (Selection(offset=1), [3, 5]),
        (Selection(error_class="malformed"), [1, 3, 5]),
        (Selection(error_class="out_of_range"), [3]),
        (Selection(partition=1), [1, 3, 5]),
        (Selection(topic="b"), [1, 3, 5]),
        (Selection(topic="a", partition=0, offset=5), [1, 3]),
    ],
)
def test_only_dead_letters_that_are_meant_are_tried(tmp_path: Path, selection: Selection, left: list[int]) -> None:
    scene = _narrow(tmp_path)
    scene.declare({"id": "long"})
    before = scene.dead_letters()
    scene.replayer.replay(scene.table, selection)
    after = scene.dead_letters()
    assert sorted(dead_letter["offset"] for dead_letter in after) == left
    tried = {dead_letter["offset"] for dead_letter in after if dead_letter["retries"]}
    assert tried == ({3} if selection.error_class == "malformed" else set())
    assert [dead_letter for dead_letter in after if not dead_letter["retries"]] == [
        dead_letter for dead_letter in before if dead_letter["offset"] in set(left) - tried
    ]


def test_columns_of_record_metadata_are_those_of_the_dead_letter(tmp_path: Path) -> None:
    scene = Scene(
        tmp_path,
        {"id": "long"},
        metadata={field: name for field, name in METADATA_COLUMNS.items() if field in METADATA_TYPES},
    ).feed({"id": 0}, b"{")
    state = scene.catalog.load(DEAD_LETTERS)
    assert state is not None
    target = plain_target(state)
    headers = [{"key": "h", "value": b"v"}, {"key": "n", "value": None}]
    record = {
        "topic": pa.array(["a"]),
        "partition": pa.array([1], pa.int32()),
        "offset": pa.array([77], pa.int64()),
        "timestamp": pa.array([5_000_001], pa.timestamp("us", "UTC")),
        "key": pa.array([b"\xff"], pa.binary()),
        "headers": pa.array([headers], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        "value": pa.array([b'{"id": 5}'], pa.binary()),
    }
    writer = FileWriter(target)
    writer.write(dead_letter_rows(target, record, [Mismatch(0, "id", ErrorClass.TYPE_MISMATCH, "once upon a time")]))
    scene.catalog.append_once(NamedAppend(DEAD_LETTERS, writer.finish(), "test", "1", None))
    assert scene.replayer.replay(scene.table, Selection(offset=77)) == ReplayResult(1, 0)
    assert next(row for row in scene.rows() if row["id"] == 5) == {
        "id": 5,
        "_topic": "a",
        "_kafka_partition": 1,
        "_offset": 77,
        "_timestamp": datetime(1970, 1, 1, 0, 0, 5, 1, UTC),
        "_headers": headers,
        "_key": b"\xff",
    }


def test_a_far_timestamp_is_that_of_the_record_when_its_dead_letter_is_retried(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"id": "int"}, metadata={"timestamp": "_timestamp"})
    scene.source.produce("a", 0, b'{"id": 1}', 10**15)
    scene.source.produce("a", 0, b'{"id": %d}' % LARGE, 10**15)
    scene.catch_up()
    assert [(one["timestamp"], one["timestamp_ms"]) for one in scene.dead_letters()] == [(None, 10**15)] * 2
    scene.declare({"id": "long"})
    assert scene.replayer.replay(scene.table, ALL) == ReplayResult(0, 2)
    assert {one["message"] for one in scene.dead_letters()} == {
        f"the record's timestamp of {10**15} ms is outside the years 1 to 9999"
    }
    assert [one["timestamp_ms"] for one in scene.dead_letters()] == [10**15] * 2
    scene.declare({"id": "long"}, metadata={})
    assert scene.replayer.replay(scene.table, ALL) == ReplayResult(2, 0)
    assert _ids(scene.rows()) == [1, LARGE]


def test_a_dead_letter_table_from_before_far_timestamps_were_kept_is_one_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "frazil.dead_letters.tables.DEAD_LETTER_TYPES",
        {n: k for n, k in DEAD_LETTER_TYPES.items() if n != "timestamp_ms"},
    )
    scene = Scene(tmp_path, {"id": "int"}).feed({"id": LARGE})
    monkeypatch.undo()
    scene.source.produce("a", 0, b'{"id": %d}' % LARGE, 10**15)
    scene.catch_up()
    known = sorted((one["timestamp"] is None, "timestamp_ms" in one) for one in scene.dead_letters())
    assert known == [(False, False), (True, False)]
    scene.declare({"id": "long"})
    assert scene.replayer.replay(scene.table, ALL) == ReplayResult(2, 0)


def test_schemas_that_the_registry_knows_by_now_are_fetched(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"id": "long"}, value=ValueSpec(format="avro"))
    text = (
        '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}, {"name": "s", "type": "string"}]}'
    )
    scene.feed(b"\x00" + struct.pack(">i", 1) + b"\x06\x04ab")
    assert [(one["error_class"], one["schema_id"]) for one in scene.dead_letters()] == [("unknown_schema_id", "1")]
    scene.registry.register("avro", text)
    scene.registry.is_down = True
    with pytest.raises(UnavailableError):
        scene.replayer.replay(scene.table, ALL)
    assert [dead_letter["retries"] for dead_letter in scene.dead_letters()] == [0]
    scene.registry.is_down = False
    scene.clock.sleep(3)
    assert scene.replayer.replay(scene.table, ALL) == ReplayResult(1, 0)
    assert scene.rows() == [{"id": 3, "s": "ab"}]
    with pytest.raises(SpecError, match="names none"):
        Replayer(scene.catalog, None).replay(_with_dead_letter(scene).table, ALL)


def _with_dead_letter(scene: Scene) -> Scene:
    return scene.feed(b"\x00" + struct.pack(">i", 9) + b"\x06\x04ab")


def test_without_dead_letters_there_is_nothing_to_do(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"id": "long"})
    assert scene.replayer.replay(scene.table, ALL) == ReplayResult()
    assert scene.replayer.drop(scene.table, ALL) == 0
    scene.feed({"id": 1})
    assert scene.replayer.replay(scene.table, ALL) == ReplayResult()
    assert scene.catalog.load(DEAD_LETTERS) is None


def test_dropped_dead_letters_are_gone_and_the_others_are_as_they_were(tmp_path: Path) -> None:
    scene = _narrow(tmp_path)
    before = scene.dead_letters()
    assert scene.replayer.drop(scene.table, Selection(offset=3)) == 1
    assert scene.dead_letters() == [dead_letter for dead_letter in before if dead_letter["offset"] != 3]
    assert scene.replayer.drop(scene.table, ALL) == 2
    assert (scene.dead_letters(), scene.replayer.drop(scene.table, ALL)) == ([], 0)
    assert scene.catalog.scan(DEAD_LETTERS).files == ()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("who", ["retry", "drop", "run"])
def test_a_retry_that_dies_at_any_step_is_finished_or_undone_by_whoever_comes_next(
    tmp_path: Path, step: str, who: str
) -> None:
    scene = _narrow(tmp_path)
    scene.declare({"id": "long"})
    _die_at(step, scene)
    if who == "run":
        scene.catch_up()
    elif who == "drop":
        assert scene.replayer.drop(scene.table, Selection(offset=3)) == 1
    else:
        scene.replayer.replay(scene.table, ALL)
    is_in_table = who == "retry" or step in PROMISED
    assert _ids(scene.rows()) == [0, 2, 4, 6, *([LARGE, LARGE + 1] if is_in_table else [])]
    expected = [*([] if is_in_table else [1, 5]), *([] if who == "drop" else [3])]
    assert sorted(dead_letter["offset"] for dead_letter in scene.dead_letters()) == sorted(expected)
    state = scene.catalog.load(DEAD_LETTERS)
    assert state is not None
    assert [name for name in state.marks if name.startswith("replaying")] == []
    assert _named_files(scene) == sorted(str(path) for path in tmp_path.rglob("*.parquet")) or step in STEPS[:2]


def _named_files(scene: Scene) -> list[str]:
    return sorted({f.path for t in (TABLE, DEAD_LETTERS) for s in scene.catalog.ancestors(t) for f in s.files})


def test_a_retry_that_lost_the_race_leaves_nothing_and_starts_over(tmp_path: Path) -> None:
    scene = _narrow(tmp_path)
    scene.declare({"id": "long"})
    quicker = [lambda: scene.replayer.replay(scene.table, Selection(offset=1))]

    class Slow(MemoryCatalog):
        def rewrite(self, rewrite: Rewrite) -> None:
            if quicker:
                quicker.pop()()
            super().rewrite(rewrite)

    slow = Slow(tmp_path, "p")
    vars(slow).update(_tables=scene.catalog._tables)
    assert Replayer(slow, None).replay(scene.table, ALL) == ReplayResult(1, 1)
    assert _ids(scene.rows()) == [0, 2, 4, 6, LARGE, LARGE + 1]
    assert _named_files(scene) == sorted(str(path) for path in tmp_path.rglob("*.parquet"))


def test_retries_that_are_refused_for_ever_say_so(tmp_path: Path) -> None:
    scene = _narrow(tmp_path)

    class Busy(MemoryCatalog):
        def rewrite(self, rewrite: Rewrite) -> None:
            raise ConflictError("somebody was quicker", where=rewrite.table)

    busy = Busy(tmp_path, "p")
    vars(busy).update(_tables=scene.catalog._tables)
    for step in (Replayer(busy, None).replay, Replayer(busy, None).drop):
        with pytest.raises(ConflictError, match="other replays of dead letters are running"):
            step(scene.table, ALL)


@pytest.mark.parametrize("loss", ["question", "outcome"])
@pytest.mark.parametrize("which", [0, 1])
def test_a_lost_question_or_answer_changes_nothing_in_the_end(tmp_path: Path, loss: str, which: int) -> None:
    scene = _narrow(tmp_path)
    scene.declare({"id": "long"})
    scene.catalog.losses += [""] * which + [loss]
    with pytest.raises(UnavailableError):
        scene.replayer.replay(scene.table, ALL)
    scene.replayer.replay(scene.table, ALL)
    assert _ids(scene.rows()) == [0, 2, 4, 6, LARGE, LARGE + 1]
    assert [dead_letter["offset"] for dead_letter in scene.dead_letters()] == [3]


def test_a_promise_that_is_made_while_somebody_decides_that_it_was_not_is_kept(tmp_path: Path) -> None:
    scene = _narrow(tmp_path)
    scene.declare({"id": "long"})
    _die_at("replay.marked", scene)
    state = scene.catalog.load(DEAD_LETTERS)
    assert state is not None and state.head_id is not None  # noqa: PT018  (for the type checker)
    replay_id = next(name.removeprefix("replaying.") for name in state.marks if name.startswith("replaying."))
    main = scene.catalog.load(TABLE)
    assert main is not None
    promise = PendingReplay(replay_id, TABLE, main.uuid, main.head_id, ())
    late = [Rewrite(DEAD_LETTERS, state.head_id, replay_id, (), (), {"replay": promise.dump()})]

    class Deciding(MemoryCatalog):
        def append_once(self, append: NamedAppend) -> None:
            while late:
                super().rewrite(late.pop())
            super().append_once(append)

    deciding = Deciding(tmp_path, "p")
    vars(deciding).update(_tables=scene.catalog._tables)
    settle_replays(deciding, state)
    assert next(reported.summary for reported in scene.catalog.history(TABLE, ("replay-id",))) == {
        "replay-id": replay_id
    }


def test_a_promise_that_comes_after_it_was_given_up_is_refused(tmp_path: Path) -> None:
    scene = _narrow(tmp_path)
    state, main = scene.catalog.load(DEAD_LETTERS), scene.catalog.load(TABLE)
    assert state is not None and state.head_id is not None and main is not None  # noqa: PT018  (for the type checker)
    promise = PendingReplay("slow", TABLE, main.uuid, main.head_id, ())
    mark_replay(scene.catalog, state, promise)
    scene.replayer.settled(scene.table)
    with pytest.raises(ConflictError):
        scene.catalog.rewrite(Rewrite(DEAD_LETTERS, state.head_id, "slow", (), (), {"replay": promise.dump()}))


def test_where_nobody_can_tell_whether_a_promise_was_kept_everything_stops(tmp_path: Path) -> None:
    scene = _narrow(tmp_path)
    scene.declare({"id": "long"})
    _die_at("replay.pending", scene)
    scene.catalog.append_foreign(TABLE)
    _, *older = scene.catalog.ancestors(TABLE)
    for snapshot in older:
        scene.catalog.expire(TABLE, snapshot.id)
    with pytest.raises(
        TableStopped, match="snapshots that show whether replayed dead letters are in the table were expired"
    ):
        scene.replayer.settled(scene.table)


def test_a_promise_that_was_expired_itself_stops_everything(tmp_path: Path) -> None:
    scene = _narrow(tmp_path)
    scene.declare({"id": "long"})
    _die_at("replay.pending", scene)
    scene.catalog.append_foreign(DEAD_LETTERS)
    _, *older = scene.catalog.ancestors(DEAD_LETTERS)
    for snapshot in older:
        scene.catalog.expire(DEAD_LETTERS, snapshot.id)
    state = scene.catalog.load(DEAD_LETTERS)
    assert state is not None
    with pytest.raises(
        TableStopped, match="snapshots that show whether replayed dead letters are in the table were expired"
    ):
        settle_replays(scene.catalog, state)


def test_rows_for_a_table_that_is_gone_stop_everything(tmp_path: Path) -> None:
    scene = _narrow(tmp_path)
    scene.declare({"id": "long"})
    _die_at("replay.pending", scene)
    found = scene.catalog._tables[TABLE]
    found.state = replace(found.state, uuid="another")
    with pytest.raises(TableStopped, match="belong to a table that no longer exists"):
        scene.replayer.settled(scene.table)


def test_a_table_that_is_not_there_takes_no_dead_letters(tmp_path: Path) -> None:
    scene = _narrow(tmp_path)
    scene.catalog.drop(TABLE)
    with pytest.raises(SpecError, match="the table of the dead letters does not exist"):
        scene.replayer.replay(scene.table, ALL)


def test_a_field_that_the_table_cannot_have_retains_its_dead_letters_alone(tmp_path: Path) -> None:
    scene = _narrow(tmp_path)
    scene.declare({"id": "long"}, metadata={"offset": "new"}, on_bad_record="stop")
    assert scene.replayer.replay(scene.table, ALL) == ReplayResult(1, 2)
    classes = {dead_letter["offset"]: dead_letter["error_class"] for dead_letter in scene.dead_letters()}
    assert classes == {3: "malformed", 5: "name_conflict"}


def test_dead_letters_with_too_many_columns_together_are_an_error(tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"id": "int"})
    scene.feed({"id": LARGE, "a": 1}, {"id": LARGE + 1, "b": 1})
    scene.declare({"id": "long"}, limits=LimitsSpec(columns=2))
    with pytest.raises(SpecError, match="records bring the table to 3 columns"):
        scene.replayer.replay(scene.table, ALL)
    scene.declare({"id": "long"}, limits=LimitsSpec(columns=3))
    assert scene.replayer.replay(scene.table, ALL) == ReplayResult(2, 0)


def test_rows_that_another_engine_deleted_do_not_come_back(tmp_path: Path) -> None:
    scene = _narrow(tmp_path)

    class Deleted(MemoryCatalog):
        def scan(self, table: str) -> Scan:
            found = super().scan(table)
            deletes = DeleteFile("deletes", "positions", "", 1, "{}")
            return Scan(found.read_at, tuple(file.with_deletes((deletes,)) for file in found.files))

    deleted = Deleted(tmp_path, "p")
    vars(deleted).update(_tables=scene.catalog._tables)
    with pytest.raises(TableStopped, match="another engine deleted rows"):
        Replayer(deleted, None).replay(scene.table, ALL)


def test_the_running_pipeline_reports_how_many_dead_letters_there_are(tmp_path: Path) -> None:
    scene = _narrow(tmp_path)
    assert [table.catalog.dead_letter_count for table in scene.catch_up()] == [3]
    state = scene.catalog.load(TABLE)
    assert state is not None
    assert state.marks["dead-letters"] == DEAD_LETTERS
