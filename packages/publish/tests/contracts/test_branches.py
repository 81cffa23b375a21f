"""The Catalog port on a branch, and the port that moves branches, on memory and on Iceberg's own JDBC catalog."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from frazil.catalog.maintenance_port import MOVE_ID, Branches, BranchMove, Tag
from frazil.catalog.port import Catalog, NamedAppend, Rewrite
from frazil.catalog.progress import key
from frazil.clock import new_id
from frazil.errors import ConflictError, SpecError
from frazil.runtime.jvm import Jvm
from frazil.types import MAIN, Progress, RowDelta
from frazil_publish.iceberg_branches import IcebergBranches
from frazil_publish.position import find_position
from frazil_testing.memory_branches import MemoryBranches
from frazil_testing.memory_catalog import MemoryCatalog
from tests.contracts.catalogs import IcebergLake, Lake
from tests.contracts.tables import SCHEMA, TABLE, commit_of, create, files_of, head_of, load, paths, plain

BRANCH = "ingest"
OTHER = f"{TABLE}_b"


def on_branch(lake: Lake) -> Catalog:
    """The catalog of a process whose pipeline file has `branch: ingest`."""
    catalog: Any = lake.catalog()
    branched: Catalog = catalog.with_branches(lambda _: BRANCH)
    return branched


def branches_of(catalog: Catalog) -> Branches:
    real: Any = catalog
    return MemoryBranches(catalog) if isinstance(catalog, MemoryCatalog) else IcebergBranches(real)


def main_of(lake: Lake) -> list[int]:
    """The ids of the rows that readers see."""
    return lake.column(TABLE, "id")


def publish(catalog: Catalog, **changes: Any) -> None:
    state = load(catalog)
    move = BranchMove(TABLE, MAIN, state.main_id, state.head_id, new_id())
    branches_of(catalog).move(replace(move, **changes))


def test_the_first_commit_makes_the_branch_of_an_empty_table(lake: Lake) -> None:
    catalog = on_branch(lake)
    committed = catalog.commit(commit_of(create(catalog), 5))
    state = load(on_branch(lake))
    assert (plain(state.progress), state.head_id, state.main_id) == (plain(committed), committed.snapshot_id, None)
    assert load(lake.catalog()).progress == Progress()
    assert main_of(lake) == []
    assert catalog.size(TABLE).row_count == 2


def test_a_branch_of_a_table_with_rows_begins_at_main_with_its_progress(lake: Lake) -> None:
    before = lake.catalog()
    published = before.commit(commit_of(create(before), 5))
    catalog = on_branch(lake)
    state = load(catalog)
    assert plain(state.progress) == plain(published)
    catalog.commit(commit_of(state, 9, ids=(3,)))
    assert [offsets.progress.offsets["a"][0] for offsets in (load(catalog), load(lake.catalog()))] == [9, 5]
    assert (main_of(lake), len(paths(catalog))) == ([1, 2], 2)


def test_a_stale_writer_is_refused_on_the_branch(lake: Lake) -> None:
    winner, loser = on_branch(lake), on_branch(lake)
    create(winner)
    mine, other = load(winner), load(loser)
    first = winner.commit(commit_of(mine, 5))
    with pytest.raises(ConflictError):
        loser.commit(commit_of(other, 7))
    assert plain(load(loser).progress) == plain(first)
    assert loser.commit(commit_of(load(loser), 9)).offsets["a"][0] == 9


def test_a_commit_to_main_does_not_hinder_one_to_the_branch(lake: Lake) -> None:
    catalog = on_branch(lake)
    catalog.commit(commit_of(create(catalog), 5))
    state = load(catalog)
    lake.append_foreign(TABLE)
    assert catalog.commit(commit_of(state, 7)).offsets["a"][0] == 7


def test_a_commit_whose_answer_was_lost_is_found_on_the_branch(lake: Lake) -> None:
    catalog = on_branch(lake)
    state = create(catalog)
    with lake.lose_next_response():
        committed = catalog.commit(commit_of(state, 5))
    assert plain(load(on_branch(lake)).progress) == plain(committed)


def test_rows_are_looked_up_and_deleted_on_the_branch(lake: Lake) -> None:
    catalog = on_branch(lake)
    first = commit_of(create(catalog), 5)
    progress = catalog.commit(first)
    scan = catalog.scan(TABLE)
    assert [file.path for file in scan.files] == [first.files[0].path]
    delta = RowDelta(scan.read_at, removed=first.files)
    catalog.commit(replace(commit_of(load(catalog), 7, ids=(3,)), expected=progress, delta=delta))
    publish(catalog)
    assert main_of(lake) == [3]


def test_replays_and_rewrites_go_to_the_branch(lake: Lake) -> None:
    catalog = on_branch(lake)
    state = create(catalog)
    old = commit_of(state, 5)
    catalog.commit(old)
    catalog.append_once(NamedAppend(TABLE, files_of(state, 8), "replay-id", "r", None))
    with lake.lose_next_response("replay.append-landed"):
        catalog.append_once(NamedAppend(TABLE, files_of(state, 9), "replay-id", "s", head_of(catalog)))
    catalog.rewrite(Rewrite(TABLE, head_of(catalog), "w", (old.files[0].path,), files_of(state, 4)))
    assert main_of(lake) == []
    names = [snapshot.summary for snapshot in catalog.history(TABLE, ("replay-id", "rewrite-id"))]
    assert names == [{"rewrite-id": "w"}, {"replay-id": "s"}, {"replay-id": "r"}, {}]
    publish(catalog)
    assert main_of(lake) == [4, 8, 9]


def test_a_branch_that_was_removed_begins_at_main_again(lake: Lake) -> None:
    catalog = on_branch(lake)
    published = catalog.commit(commit_of(create(catalog), 5))
    publish(catalog)
    catalog.commit(commit_of(load(catalog), 9, ids=(3,)))
    publish(catalog, branch=BRANCH, expected=head_of(catalog), snapshot_id=None)
    assert plain(load(catalog).progress) == plain(published)
    catalog.commit(commit_of(load(catalog), 8, ids=(4,)))
    publish(catalog)
    assert main_of(lake) == [1, 2, 4]


def test_main_is_moved_with_properties_and_tags_in_one_commit(lake: Lake) -> None:
    catalog = on_branch(lake)
    first = catalog.commit(commit_of(create(catalog), 5))
    head = head_of(catalog)
    publish(catalog, id="i", marks={"published-snapshot": str(head), "x": None}, tags={"day": Tag(head, 60_000)})
    metadata = branches_of(on_branch(lake)).metadata(TABLE)
    assert metadata is not None
    names = ("published-snapshot", MOVE_ID, "x")
    assert [metadata.properties.get(key("p", name)) for name in names] == [str(head), "i", None]
    assert {name: ref.snapshot for name, ref in metadata.refs.items()} == {MAIN: head, "day": head}
    position = find_position(metadata, "p")
    assert (position.is_published, plain(position.published)) == (True, plain(first))
    assert main_of(lake) == [1, 2]


def test_main_is_moved_only_from_where_it_was_seen(lake: Lake) -> None:
    catalog = on_branch(lake)
    catalog.commit(commit_of(create(catalog), 5))
    first = head_of(catalog)
    catalog.commit(commit_of(load(catalog), 7, ids=(3,)))
    publish(catalog, snapshot_id=first)
    with pytest.raises(ConflictError, match="was moved in the meantime"):
        publish(catalog, expected=None)
    lake.append_foreign(TABLE)
    with pytest.raises(ConflictError, match="was moved in the meantime"):
        publish(catalog, expected=first)
    assert main_of(lake) == [1, 2]


def test_main_is_not_moved_to_a_snapshot_that_was_expired(lake: Lake) -> None:
    catalog = on_branch(lake)
    catalog.commit(commit_of(create(catalog), 5))
    first = head_of(catalog)
    catalog.commit(commit_of(load(catalog), 7, ids=(3,)))
    publish(catalog)
    lake.expire_all_but_newest(TABLE)
    with pytest.raises(ConflictError, match="was expired in the meantime"):
        publish(catalog, snapshot_id=first)


def test_main_is_not_moved_to_a_snapshot_that_the_branch_has_lost(lake: Lake) -> None:
    catalog = on_branch(lake)
    catalog.commit(commit_of(create(catalog), 5))
    first = head_of(catalog)
    publish(catalog, source="ingest")
    catalog.commit(commit_of(load(catalog), 7, ids=(3,)))
    second = head_of(catalog)
    discard = BranchMove(TABLE, "ingest", second, first, new_id())
    branches_of(catalog).move(discard)
    with pytest.raises(ConflictError, match="`ingest` was discarded in the meantime"):
        publish(catalog, snapshot_id=second, source="ingest")
    catalog.commit(commit_of(load(catalog), 7, ids=(3,)))
    publish(catalog, source="ingest")
    assert main_of(lake) == [1, 2, 3]


@pytest.mark.parametrize("point", ["publish.before", "publish.landed"])
def test_a_move_whose_answer_was_lost_is_judged_by_the_table(lake: Lake, point: str) -> None:
    catalog = on_branch(lake)
    catalog.commit(commit_of(create(catalog), 5))
    with lake.lose_next_response(point):
        outcome = _outcome(lambda: publish(catalog))
    has_landed = main_of(lake) == [1, 2]
    assert (outcome is None) == has_landed
    publish(catalog)
    assert main_of(lake) == [1, 2]


def test_two_tables_are_moved_together_with_their_tags(lake: Lake) -> None:
    catalog = on_branch(lake)
    catalog.create(OTHER, catalog.create(TABLE, SCHEMA, {}, 2).schema, {}, 2)
    moves = []
    for name in (TABLE, OTHER):
        state = catalog.load(name)
        assert state is not None
        catalog.commit(replace(commit_of(load(catalog), 5), table=name, expected=state.progress))
        head = catalog.load(name)
        assert head is not None
        assert head.head_id is not None
        tags = {"pub-2": Tag(head.head_id, 60_000)}
        moves.append(
            BranchMove(name, MAIN, None, head.head_id, "together", tags=tags, dropped_tags=frozenset({"pub-1"}))
        )
    branches = branches_of(catalog)
    branches.move(replace(moves[0], branch=None, tags={"pub-1": moves[0].tags["pub-2"]}, id="before"))
    branches.move_together(moves)
    for name in (TABLE, OTHER):
        metadata = branches.metadata(name)
        assert metadata is not None
        assert metadata.refs.keys() == {MAIN, "pub-2"}
    with pytest.raises(ConflictError, match="was moved in the meantime"):
        branches.move_together([replace(move, id="later") for move in moves])


def _outcome(act: Callable[[], None]) -> Exception | None:
    try:
        act()
    except Exception as error:  # noqa: BLE001  (which one it is depends on the catalog)
        return error
    return None


def test_ingestion_between_the_look_and_the_move_does_not_hinder_it(lake: Lake) -> None:
    catalog, ingesting = on_branch(lake), on_branch(lake)
    catalog.commit(commit_of(create(catalog), 5))
    candidate = head_of(catalog)
    ingesting.commit(commit_of(load(ingesting), 7, ids=(3,)))
    publish(catalog, snapshot_id=candidate)
    assert main_of(lake) == [1, 2]
    publish(ingesting)
    assert main_of(lake) == [1, 2, 3]


def test_a_tag_is_not_taken_for_a_branch_until_another_one_is_named(jvm: Jvm, folder: Path) -> None:
    lake = IcebergLake(jvm, folder)
    catalog = on_branch(lake)
    catalog.commit(commit_of(create(catalog), 5))
    publish(catalog, tags={"day": Tag(head_of(catalog), 60_000)})
    tagged: Any = lake.catalog()
    with pytest.raises(SpecError, match="`branch: day` is the name of a tag") as refused:
        tagged.with_branches(lambda _: "day").load(TABLE)
    assert refused.value.remedy == "name another branch, or remove the tag"
    tagged.with_branches(lambda _: "nights")
    tagged.commit(commit_of(load(tagged), 7, ids=(3,)))
    assert main_of(lake) == [1, 2]
