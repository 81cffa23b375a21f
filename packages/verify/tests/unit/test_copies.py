"""Which tables `frazil verify` can prove, and how far their copies read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from frazil.ingest.batches.services import Services
from frazil.ingest.loop.service import Service
from frazil.ingest.tables.table import Table
from frazil.ops.pipeline_status import ProcessState
from frazil.ops.status import find_tables
from frazil.spec import PipelineSpec
from frazil.spec.models import Start
from frazil.spec.settings import AtomicSpec
from frazil.stages.expect_settings import ExpectationSpec
from frazil_testing.twins import MemoryCatalog, MemoryJobs, StepWorkers, live_rows
from frazil_verify.copies import UpTo, copying, has_lost_records, load_for_copy, plan_copies
from tests.unit.ingest.service_scene import Scene, turn_until
from tests.unit.ingest.test_topic_tables import ON, TEXT, Keyed


def _scene(root: Path) -> tuple[Scene, list[Table]]:
    """Two tables that have read their topics, which have grown since."""
    scene = Scene(root / "lake", "a", "b")
    scene.feed("a", {"id": 1}, {"id": 2}, b"no json")
    scene.feed("b", {"id": 7})
    tables = scene.catch_up()
    scene.feed("a", {"id": 3})
    scene.feed("b", {"id": 8})
    return scene, tables


def _copied(scene: Scene, tables: Sequence[Table], spec: PipelineSpec) -> MemoryCatalog:
    """The catalog of a copy of the tables, made as far as they have read."""
    folder = scene.root / "copy"
    (copies,) = plan_copies(tables)
    catalog = MemoryCatalog(folder, "p")
    source, workers = UpTo(scene.source, copies.goal), StepWorkers(scene.clock)
    services = Services(source, catalog, MemoryJobs(scene.source), scene.clock, workers=workers)
    copy = Service(copying(spec, copies, folder), services, "run", lambda _: None)
    copy.connect()
    assert turn_until(copy, lambda: copy.is_over(until_caught_up=True), until_caught_up=True)
    return catalog


def test_a_copy_has_the_rows_of_its_table_and_none_of_later_records(tmp_path: Path) -> None:
    scene, tables = _scene(tmp_path)
    catalog = _copied(scene, tables, scene.spec("a", "b"))
    for name in ("n.a", "n.b"):
        assert live_rows(catalog, name) == scene.rows(name)
    assert [len(scene.rows(name)) for name in ("n.a", "n.b")] == [2, 1]


def test_a_table_that_the_keys_of_a_topic_ask_for_is_found_and_copied_alone(tmp_path: Path) -> None:
    scene = Keyed(tmp_path, "orders", "others")
    scene.source.keys |= {"orders": ON | TEXT, "others": ON | TEXT}
    scene.feed("others", b"x")
    scene.feed("orders", b"a")
    scene.settle(scene.start())
    (table,) = find_tables(scene.spec(), scene.source, ProcessState(), "shop.orders")
    assert load_for_copy(table, scene.catalog, scene.source) is None
    copy = _copied(scene, [table], scene.spec())
    assert [row["value"] for row in live_rows(copy, "shop.orders")] == ["a"]
    assert copy.load("shop.others") is None


def test_tables_that_have_read_one_topic_to_different_places_are_copied_apart(tmp_path: Path) -> None:
    _, (a, b) = _scene(tmp_path)
    assert a.state is not None
    further = replace(a, state=replace(a.state, progress=replace(a.progress, offsets={"a": {0: 4}})))
    assert [copies.tables for copies in plan_copies([a, b, further])] == [[a, b], [further]]


def test_a_copy_sees_the_change_that_shows_that_the_last_transaction_is_complete(
    tmp_path: Path,
) -> None:
    _, (table, _) = _scene(tmp_path)
    table.spec = table.spec.model_copy(update={"atomic": AtomicSpec()})
    assert table.state is not None
    table.state = replace(table.state, progress=replace(table.progress, offsets={"a": {0: 4}}))
    assert [copies.goal for copies in plan_copies([table])] == [{("a", 0): 5}]


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("no progress", "it has no progress yet"),
        ("latest", "`start: latest` does not say which record was its first, and it is older than its ledger"),
        ("events", "no copy reads its topic of transactions t"),
        ("deleted", "the topic a no longer exists"),
        ("recreated", "the topic a was deleted and created again"),
    ],
)
def test_what_no_topic_can_prove_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, reason: str
) -> None:
    scene, (table, _) = _scene(tmp_path)
    catalog = MemoryCatalog(tmp_path / "empty", "p") if case == "no progress" else scene.catalog
    if case == "latest":
        table.spec = table.spec.model_copy(update={"start": Start(kind="latest")})
        assert table.state is not None
        older = replace(table.state, progress=replace(table.progress, ledger=None))
        monkeypatch.setattr(scene.catalog, "load", lambda _: older)
    elif case == "events":
        table.spec = table.spec.model_copy(update={"atomic": AtomicSpec(transaction_topic="t")})
    elif case == "deleted":
        del scene.source.by_name["a"]
    elif case == "recreated":
        scene.source.create("a")
    refusal = load_for_copy(table, catalog, scene.source)
    assert refusal is not None
    assert refusal.reason == reason
    assert refusal.remedy


def test_records_that_retention_has_deleted_are_noticed(tmp_path: Path) -> None:
    scene, (a, b) = _scene(tmp_path)
    scene.source.trim("a", 0, 1)
    assert [has_lost_records(table, scene.source) for table in (a, b)] == [True, False]


def test_records_that_compaction_has_deleted_are_noticed_where_their_rows_are_kept(tmp_path: Path) -> None:
    scene, (a, b) = _scene(tmp_path)
    scene.source.compact("a", 0, 1)
    assert [has_lost_records(table, scene.source) for table in (a, b)] == [True, False]
    a.spec = a.spec.model_copy(update={"mode": "upsert"})
    assert not has_lost_records(a, scene.source)
    a.spec = a.spec.model_copy(update={"deletes": "soft"})
    assert has_lost_records(a, scene.source)


def test_a_copy_expects_nothing_of_its_commits_which_are_others(tmp_path: Path) -> None:
    scene, (a, _) = _scene(tmp_path)
    of_rows, of_commits = ExpectationSpec(name="r", that="id > 0"), ExpectationSpec(name="c", min_rows=9, action="stop")
    a.spec = a.spec.model_copy(update={"expect": (of_rows, of_commits)})
    (copy,) = copying(scene.spec("a"), plan_copies([a])[0], tmp_path / "copy").tables
    assert copy.expectations.expect == (of_rows,)


def test_a_table_that_began_at_the_latest_offset_is_copied_from_its_first_one(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "lake", "a", start=Start(kind="offsets", offsets={None: {0: 2}}))
    scene.feed("a", {"id": 1}, {"id": 2}, {"id": 3}, {"id": 4})
    (table,) = scene.catch_up()
    table.spec = table.spec.model_copy(update={"start": Start(kind="latest")})
    assert load_for_copy(table, scene.catalog, scene.source) is None
    copy = _copied(scene, [table], scene.spec("a"))
    assert live_rows(copy, "n.a") == scene.rows("n.a") == [{"id": 3}, {"id": 4}]


def test_a_table_that_has_rows_of_a_topic_before_it_was_recreated_is_partial(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "a", on_data_loss="skip")
    scene.feed("a", {"id": 1})
    (table,) = scene.catch_up()
    assert not has_lost_records(table, scene.source, scene.catalog)
    assert table.state is not None
    other = {"a": "another id"}
    table.state = replace(table.state, progress=replace(table.progress, topic_ids=other))
    assert has_lost_records(table, scene.source, scene.catalog)
