"""What is worth doing for a table, and when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from statistics import median
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.catalog.table_metadata import MetadataSizes, OwnBranch
from frazil.errors import SpecError
from frazil.maintenance.file_groups import packed
from frazil.maintenance.health import (
    MOST_DELETE_FILES,
    MOST_METADATA_BYTES,
    MOST_SMALL_FILES,
    TableHealth,
)
from frazil.maintenance.plan import (
    BEGIN_NOTE,
    ORPHANS_NOTE,
    Holds,
    MaintenanceTask,
    Mode,
    Plan,
    is_open,
    mode_of,
    plan_maintenance,
)
from frazil.spec.settings import MaintenanceSpec, SnapshotsSpec
from tests.unit.maintenance.tables import MIB, NOTED, TARGET, compaction, line, table, without_progress

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
MODES: tuple[Mode, ...] = ("busy", "regular", "idle", "thorough")


def plan(
    sizes: dict[str, list[int]], mode: Mode = "busy", spec: MaintenanceSpec | None = None, holds: Holds | None = None
) -> Plan:
    metadata = table(line(3), sizes)
    return plan_maintenance(
        metadata, MaintenanceTask(spec or MaintenanceSpec(), TARGET), holds or Holds(), 10_000, mode, NOTED
    )


@pytest.mark.parametrize(
    ("sizes", "mode", "chosen"),
    [
        ([MIB] * 49, "busy", 0),
        ([MIB] * 50, "busy", 50),
        ([MIB] * 50 + [12 * MIB], "busy", 51),
        ([MIB] * 50 + [13 * MIB], "busy", 50),
        ([4 * MIB] * 32, "busy", 32),
        ([60 * MIB] * 3, "busy", 2),
        ([90 * MIB, 30 * MIB, 8 * MIB], "busy", 3),
        ([90 * MIB, 90 * MIB], "busy", 0),
        ([90 * MIB, 90 * MIB, 5 * MIB], "busy", 0),
        ([90 * MIB] * 4 + [MIB] * 50, "busy", 39),
        ([90 * MIB] * 4, "idle", 0),
        ([90 * MIB] * 4, "thorough", 4),
        ([90 * MIB] * 3, "thorough", 2),
        ([40 * MIB, 94 * MIB, 60 * MIB, 94 * MIB, 40 * MIB], "thorough", 2),
        ([MIB] * 2, "idle", 2),
        ([MIB, 2 * MIB, 90 * MIB], "idle", 2),
        ([MIB, 90 * MIB], "idle", 0),
        ([MIB, 90 * MIB], "thorough", 2),
        ([MIB, 120 * MIB], "idle", 0),
        ([MIB, 120 * MIB], "thorough", 2),
        ([120 * MIB, MIB, 110 * MIB], "thorough", 2),
        ([MIB, MIB, 120 * MIB], "thorough", 3),
        ([8 * MIB, 120 * MIB], "thorough", 0),
        ([MIB, 128 * MIB], "thorough", 0),
        ([MIB], "thorough", 0),
        ([], "thorough", 0),
    ],
)
def test_files_are_combined_when_it_is_worth_it(sizes: list[int], mode: Mode, chosen: int) -> None:
    action = compaction(plan({"[0,[]]": sizes}, mode))
    assert (action is not None) == (chosen > 0)
    if action is not None:
        assert action.reason.startswith(f"{chosen} files of ")


@pytest.mark.parametrize("fewest", range(3, 9))
def test_min_input_files_of_about_one_size_are_combined(fewest: int) -> None:
    spec, sizes = MaintenanceSpec(min_input_files=fewest), [MIB + number for number in range(fewest)]
    assert compaction(plan({"[0,[]]": sizes}, "busy", spec)) is not None
    assert compaction(plan({"[0,[]]": sizes[1:]}, "busy", spec)) is None


@pytest.mark.parametrize(("size", "count", "fewest"), [(4 * MIB, 32, "24"), (40 * MIB, 4, "2"), (MIB, 128, "50")])
def test_a_whole_file_s_worth_is_combined_however_few_files_it_is(size: int, count: int, fewest: str) -> None:
    action = compaction(plan({"[0,[]]": [size] * count, "[0,[1]]": [MIB, MIB]}))
    assert action is not None
    assert action.compaction is not None
    options = action.compaction.options
    assert (options["min-input-files"], options["min-file-size-bytes"]) == (fewest, str(size + 1))


def test_each_row_is_rewritten_a_few_times_only() -> None:
    sizes: list[int] = []
    written = 0
    for _ in range(2000):
        sizes.append(MIB)
        action = compaction(plan({"[0,[]]": sizes}))
        if action is not None and action.compaction is not None:
            below = int(action.compaction.options["min-file-size-bytes"])
            together = sum(size for size in sizes if size < below)
            sizes = [size for size in sizes if size >= below] + [together]
            written += together
    assert written <= 2.2 * 2000 * MIB
    assert len([size for size in sizes if size < 0.75 * TARGET]) <= 51


def rewritten(sizes: Sequence[int], options: Mapping[str, str], is_ordered: bool) -> list[int]:
    """What Iceberg makes of the files of one partition."""
    target, below = int(options["target-file-size-bytes"]), int(options["min-file-size-bytes"])
    left = [size for size in sizes if size >= below]
    for group in packed([size for size in sizes if size < below], int(options["max-file-group-size-bytes"])):
        if len(group) == 1 or (len(group) < int(options["min-input-files"]) and sum(group) <= target):
            left += group
        elif is_ordered:
            count = expected_files(sum(group), target, below)
            left += [sum(group) // count] * count
        else:
            split = max(target, sum(group) // expected_files(sum(group), target, below))
            left += [sum(task) for task in packed(group, split)]
    return left


def expected_files(size: int, target: int, below: int) -> int:
    """SizeBasedFileRewritePlanner.expectedOutputFiles."""
    if size < target:
        return 1
    is_round = size % target <= below and size // (size // target) < 1.1 * target
    return size // target if is_round else -(-size // target)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.one_of(st.integers(1, 30), st.integers(1, 200)), max_size=60),
    st.integers(1, 3),
    st.sampled_from([{}, {"sort": ("id",)}, {"zorder": ("id",)}]),
    st.sampled_from(["busy", "idle", "thorough"]),
)
def test_no_bytes_are_rewritten_for_ever(
    sizes: list[int], cores: int, order: dict[str, tuple[str, ...]], mode: Mode
) -> None:
    spec = MaintenanceSpec(cores=cores, small_file_share=0.0, min_input_files=5).model_copy(update=order)
    sizes = [size * MIB for size in sizes]
    for _ in range(len(sizes) + 1):
        action = compaction(plan({"[0,[]]": sizes}, mode, spec))
        if action is None:
            break
        assert action.compaction is not None
        fewer = rewritten(sizes, action.compaction.options, bool(order))
        assert len(fewer) < len(sizes)
        sizes = fewer
    assert compaction(plan({"[0,[]]": sizes}, mode, spec)) is None


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.lists(st.one_of(st.integers(1, 30), st.integers(1, 200)), max_size=25), min_size=1, max_size=5),
    st.integers(1, 3),
    st.sampled_from([{}, {"sort": ("id",)}, {"zorder": ("id",)}]),
    st.sampled_from([0.0, 0.1]),
)
def test_a_table_at_rest_ends_with_files_as_they_should_be(
    sizes: list[list[int]], cores: int, order: dict[str, tuple[str, ...]], share: float
) -> None:
    spec = MaintenanceSpec(cores=cores, small_file_share=share).model_copy(update=order)
    files = {f"[0,[{number}]]": [size * MIB for size in found] for number, found in enumerate(sizes)}
    total, largest, written = sum(chain(*files.values())), max(chain(*files.values()), default=0), 0
    while (action := compaction(plan(files, "thorough", spec))) is not None:
        assert action.compaction is not None
        options = action.compaction.options
        assert int(options["min-file-size-bytes"]) < int(options["target-file-size-bytes"]), "Iceberg asks for it"
        after = {partition: rewritten(found, options, bool(order)) for partition, found in files.items()}
        assert len([*chain(*after.values())]) < len([*chain(*files.values())]), "it comes to an end"
        written += sum((Counter(chain(*after.values())) - Counter(chain(*files.values()))).elements())
        files = after
    assert written <= 3 * total + TARGET * len(files)
    assert max(chain(*files.values()), default=0) <= max(largest, 1.5 * TARGET)
    small = sum(map(small_for_good, files.values()))
    assert small <= share * len([*chain(*files.values())])
    if not share:
        assert all(len(found) < 2 or median(found) >= TARGET / 2 for found in files.values())


def small_for_good(sizes: Sequence[int]) -> int:
    """How many of a partition's files are small though each could be part of a larger one."""
    small = [size for size in sizes if size < 0.75 * TARGET]
    larger = min((size for size in sizes if size >= 0.75 * TARGET), default=TARGET)
    return len(small) if len(small) > 1 or sum(small) + larger < TARGET else 0


@pytest.mark.parametrize(
    ("partitions", "little", "chosen"), [(5, MIB, 10), (6, MIB, 0), (6, 7 * MIB, 12), (60, 7 * MIB, 120)]
)
def test_much_is_not_written_again_for_little_in_many_partitions(partitions: int, little: int, chosen: int) -> None:
    action = compaction(plan({f"[0,[{n}]]": [100 * MIB, little] for n in range(partitions)}, "thorough"))
    assert (action is not None) == (chosen > 0)
    if action is not None:
        assert action.reason.startswith(f"{chosen} files of ")


@pytest.mark.parametrize(
    ("sizes", "chosen"),
    [
        ([100 * MIB] + [MIB // 20] * 7, 0),
        ([100 * MIB] + [MIB // 20] * 8, 8),
        ([100 * MIB, 3 * MIB] + [MIB // 20] * 7, 8),
        ([100 * MIB, 5 * MIB] + [MIB // 20] * 8, 8),
        ([100 * MIB, 5 * MIB, 3 * MIB] + [MIB // 20] * 8, 9),
    ],
)
def test_with_time_to_spare_few_files_are_combined_with_what_costs_no_more_than_that(
    sizes: list[int], chosen: int
) -> None:
    assert compaction(plan({"[0,[]]": sizes}, "busy")) is None
    action = compaction(plan({"[0,[]]": sizes}, "eager"))
    assert (action is not None) == (chosen > 0)
    if action is not None:
        assert action.compaction is not None
        assert (action.is_early, action.gain) == (True, f"{chosen} files become about 1")
        assert len(sizes) - len(rewritten(sizes, action.compaction.options, is_ordered=False)) == chosen - 1


def test_a_sorted_table_is_rewritten_once() -> None:
    spec = MaintenanceSpec(cores=2, sort=("id",))
    action = compaction(plan({"[0,[]]": [MIB] * 160}, "thorough", spec))
    assert action is not None
    assert action.gain == "160 files become about 2"
    assert action.compaction is not None
    sizes = rewritten([MIB] * 160, action.compaction.options, is_ordered=True)
    assert sizes == [128 * MIB, 32 * MIB]
    assert compaction(plan({"[0,[]]": sizes}, "thorough", spec)) is None


def test_a_small_share_of_small_files_is_left_alone() -> None:
    assert compaction(plan({"[0,[]]": [TARGET] * 98 + [MIB] * 2}, "thorough")) is None
    assert compaction(plan({"[0,[]]": [TARGET] * 8 + [MIB] * 2}, "thorough")) is not None


def test_a_round_rewrites_no_more_than_it_may() -> None:
    metadata = table(line(3), {"[0,[]]": [MIB] * 500})
    found = plan_maintenance(
        metadata, MaintenanceTask(MaintenanceSpec(), TARGET, 100 * MIB), Holds(), 10_000, "busy", NOTED
    )
    action = compaction(found)
    assert action is not None
    assert action.compaction is not None
    assert action.compaction.options["max-files-to-rewrite"] == "100"


def test_a_round_has_no_half_of_two_files_that_become_one() -> None:
    metadata = table(line(3), {f"[0,[{number}]]": [100 * MIB, 10 * MIB] for number in range(50)})
    for mib, most in ((300, "4"), (10, "2")):
        action = compaction(
            plan_maintenance(
                metadata, MaintenanceTask(MaintenanceSpec(), TARGET, mib * MIB), Holds(), 10_000, "thorough", NOTED
            )
        )
        assert action is not None
        assert action.compaction is not None
        assert action.compaction.options["max-files-to-rewrite"] == most


def test_manifests_of_an_older_partition_spec_are_not_due() -> None:
    metadata = replace(table(line(3)), sizes=MetadataSizes(3000, (1000,) * 200, (1000,) * 100))
    for mode in MODES:
        assert "manifests" not in {
            action.kind
            for action in plan_maintenance(
                metadata, MaintenanceTask(MaintenanceSpec(), TARGET), Holds(), 10_000, mode, NOTED
            ).actions
        }


def test_files_are_as_large_as_the_table_s_own_property_asks_for() -> None:
    own = {"write.target-file-size-bytes": str(32 * MIB)}
    metadata = replace(table(line(3), {"[0,[]]": [32 * MIB] * 60}), properties=own)
    for mode in MODES:
        assert (
            plan_maintenance(
                metadata, MaintenanceTask(MaintenanceSpec(), TARGET), Holds(), 10_000, mode, NOTED
            ).health.small_files
            == 0
        )
    named = MaintenanceSpec(target_file_size_bytes=TARGET)
    assert (
        plan_maintenance(metadata, MaintenanceTask(named, TARGET), Holds(), 10_000, "busy", NOTED).health.small_files
        == 60
    )


def test_heavy_snapshots_are_expired_before_the_metadata_is_large() -> None:
    count = 25
    metadata = replace(table(line(count)), sizes=MetadataSizes(count * 60_000))
    actions = plan_maintenance(
        metadata, MaintenanceTask(MaintenanceSpec(), TARGET), Holds(), 10**6, "busy", NOTED
    ).actions
    assert "expire" in {action.kind for action in actions}


def test_each_kind_of_debt_has_its_cap() -> None:
    most = TableHealth(
        small_files=MOST_SMALL_FILES, files=1, delete_files=MOST_DELETE_FILES, metadata_bytes=MOST_METADATA_BYTES
    )
    assert most.above_cap == ()
    more = replace(most, small_files=10_001, delete_files=2_001, metadata_bytes=9_000_000)
    assert more.above_cap == ("10,001 small files", "2,001 delete files", "9 MB of metadata")
    assert replace(more, files=2_001).above_cap == ("10,001 small files", "9 MB of metadata"), "one for each file"


def test_nothing_is_done_where_maintenance_is_off_or_the_table_is_empty() -> None:
    assert plan({"[0,[]]": [MIB] * 500}, "thorough", MaintenanceSpec(is_on=False)).actions == ()
    assert (
        plan_maintenance(table(), MaintenanceTask(MaintenanceSpec(), TARGET), Holds(), 0, "thorough", {}).actions == ()
    )


def test_what_the_catalog_does_is_left_to_it_and_progress_is_carried_all_the_same() -> None:
    *older, newest = line(400)
    metadata = table([*older, without_progress(newest, removes_files=True)], {"[0,[]]": [MIB] * 50})
    done = []
    for skip in ((), ("compact", "expire", "orphans")):
        maintenance = MaintenanceTask(MaintenanceSpec(skip=skip), TARGET)
        found = plan_maintenance(metadata, maintenance, Holds(), DAY_MS * 9, "thorough", {})
        done.append([action.kind for action in found.actions])
    assert done == [["compact", "carry", "expire", "orphans"], ["carry"]]


def test_expiry_waits_for_what_others_need_and_reports_it() -> None:
    metadata = table(line(400))
    maintenance = MaintenanceTask(MaintenanceSpec(), TARGET)
    free = plan_maintenance(metadata, maintenance, Holds(), 400_000, "busy", {ORPHANS_NOTE: 400_000})
    assert [action.kind for action in free.actions] == ["expire"]
    held = plan_maintenance(
        metadata, maintenance, Holds(waits="a replay of dead letters is not finished: t.x"), DAY_MS * 9, "thorough", {}
    )
    assert (held.actions, held.waiting) == ((), ("a replay of dead letters is not finished: t.x",))
    kept = replace(metadata, properties={"gc.enabled": "False"}, files=table(line(3), {"[0,[]]": [MIB] * 50}).files)
    found = plan_maintenance(kept, maintenance, Holds(), DAY_MS * 9, "thorough", {})
    assert [action.kind for action in found.actions] == ["compact", "carry"]
    assert found.waiting == ("nothing is removed from a table whose property gc.enabled is false",)
    for name in ("max-snapshot-age-ms", "min-snapshots-to-keep", "max-ref-age-ms"):
        unreadable = replace(kept, properties={f"history.expire.{name}": "5d"})
        found = plan_maintenance(unreadable, maintenance, Holds(), DAY_MS * 9, "thorough", {})
        assert [action.kind for action in found.actions] == ["compact", "carry"]
        words = f"nothing is removed from a table whose property history.expire.{name} is not a whole number"
        assert found.waiting == (words,)
    kept = replace(metadata, branch=OwnBranch(has_own_retention=True))
    own = plan_maintenance(kept, maintenance, Holds(), 400_000, "busy", {ORPHANS_NOTE: 400_000})
    assert own.actions == ()
    assert "its own retention" in own.waiting[0]


def test_expiry_keeps_all_that_the_properties_of_the_table_ask_for() -> None:
    maintenance = MaintenanceTask(MaintenanceSpec(snapshots=SnapshotsSpec(kept=10)), TARGET)
    counts = []
    for name, text in (("none", ""), ("max-snapshot-age-ms", "300000"), ("min-snapshots-to-keep", "350")):
        metadata = replace(table(line(400)), properties={f"history.expire.{name}": text})
        found = plan_maintenance(metadata, maintenance, Holds(), 400_000, "thorough", {ORPHANS_NOTE: 400_000})
        counts.append(sum(len(action.snapshots) for action in found.actions if action.kind == "expire"))
    assert counts == [390, 99, 50]


@pytest.mark.parametrize(
    ("properties", "stay"),
    [
        ({"write.data.path": "/t/a/data", "write.metadata.path": "/t/a/metadata/"}, []),
        (
            {"write.data.path": "/shared", "write.metadata.path": "/t/a/other"},
            ["write.data.path", "write.metadata.path"],
        ),
        ({"write.data.path": "/t/a/metadata/x"}, ["write.data.path"]),
    ],
)
def test_folders_that_are_not_searched_for_orphan_files_are_reported(
    properties: dict[str, str], stay: list[str]
) -> None:
    metadata = replace(table(line(3)), properties=properties)
    for skip in ((), ("orphans",)):
        maintenance = MaintenanceTask(MaintenanceSpec(skip=skip), TARGET)
        found = plan_maintenance(metadata, maintenance, Holds(), 4_000, "busy", NOTED)
        assert [words for words in found.waiting if "orphan files stay" in words] == [
            f"orphan files stay in the folder of the table property {name}, where other tables may have files"
            for name in ([] if skip else stay)
        ]


@pytest.mark.parametrize("mode", ["busy", "idle", "thorough"])
def test_progress_that_lies_far_back_is_carried_before_anything_is_expired(mode: Mode) -> None:
    snapshots = [without_progress(one) if one.id > 105 else one for one in line(400)]
    found = plan_maintenance(
        table(snapshots), MaintenanceTask(MaintenanceSpec(), TARGET), Holds(), 400_000, mode, NOTED
    )
    assert [action.kind for action in found.actions if action.kind in ("carry", "expire")] == ["carry", "expire"]


@pytest.mark.parametrize(
    ("covered", "files", "carried"),
    [(0, 1, False), (1, 1, True), (0, 9, True), (1, 9, True), (3, 0, False), (3, 9, False)],
    ids=["told", "covered", "will be covered", "both", "never told", "never told, rewritten"],
)
def test_once_a_table_is_quiet_its_newest_snapshot_tells_how_far_it_is(covered: int, files: int, carried: bool) -> None:
    snapshots = [without_progress(one, removes_files=True) if one.id > 3 - covered else one for one in line(3)]
    metadata = table(snapshots, {"[0,[]]": [MIB] * files})
    others = [
        metadata,
        replace(metadata, branch=OwnBranch(has_own_retention=True)),
        replace(metadata, properties={"gc.enabled": "false"}),
    ]
    for one in others:
        for mode, is_due in (("idle", carried), ("thorough", carried), ("busy", False)):
            found = plan_maintenance(
                one, MaintenanceTask(MaintenanceSpec(), TARGET), Holds(), 10_000, cast(Mode, mode), NOTED
            )
            kinds = [action.kind for action in found.actions]
            assert ("carry" in kinds) is is_due
            assert kinds == sorted(kinds, key=("compact", "carry", "expire", "orphans").index)


def test_the_progress_of_each_pipeline_is_told_though_another_continues() -> None:
    two = [*line(2, pipelines=("p",)), replace(line(3)[-1], progress={"q": "c3"})]
    found = plan_maintenance(table(two), MaintenanceTask(MaintenanceSpec(), TARGET), Holds(), 10_000, "thorough", NOTED)
    assert [action.kind for action in found.actions] == ["carry"]
    head = replace(two[-1], progress={"q": "c3", "p": "c2"})
    found = plan_maintenance(
        table([*two[:2], head]), MaintenanceTask(MaintenanceSpec(), TARGET), Holds(), 10_000, "thorough", NOTED
    )
    assert found.actions == ()


def test_the_window_is_for_rewriting_alone() -> None:
    spec = MaintenanceSpec(window=(22 * 60, 6 * 60))
    assert [is_open(spec.window, hour * 3_600_000) for hour in (0, 5, 6, 12, 21, 22, 23)] == [
        True, True, False, False, False, True, True,
    ]  # fmt: skip
    metadata = table(line(400), {"[0,[]]": [MIB] * 500})
    noon = plan_maintenance(metadata, MaintenanceTask(spec, TARGET), Holds(), 12 * 3_600_000, "thorough", NOTED)
    assert [action.kind for action in noon.actions] == ["expire"]
    assert noon.waiting


def test_orphans_are_looked_for_once_a_day() -> None:
    def reasons(now_ms: int, noted: dict[str, int]) -> list[str]:
        metadata = table(line(3, every_ms=DAY_MS // 2))
        found = plan_maintenance(metadata, MaintenanceTask(MaintenanceSpec(), TARGET), Holds(), now_ms, "idle", noted)
        return [action.reason for action in found.actions if action.kind == "orphans"]

    assert reasons(2 * DAY_MS, {}) == ["files that no snapshot references were never looked for"]
    assert reasons(2 * DAY_MS, {BEGIN_NOTE: DAY_MS + HOUR_MS + 1}) == []
    assert reasons(2 * DAY_MS, {BEGIN_NOTE: DAY_MS + HOUR_MS}) == [
        "files that no snapshot references were never looked for"
    ]
    assert reasons(2 * DAY_MS, {ORPHANS_NOTE: DAY_MS + HOUR_MS + 1, BEGIN_NOTE: 0}) == []
    sooner = reasons(2 * DAY_MS, {ORPHANS_NOTE: DAY_MS + HOUR_MS})
    assert sooner == ["files that no snapshot references were last looked for 23 h ago"], (
        "as the last round took an hour"
    )


def test_distinct_values_are_counted_once_a_day_and_once_for_each_snapshot() -> None:
    def is_counted(now_ms: int, *statistics: int) -> bool:
        metadata = replace(table(line(3)), statistics=statistics)
        found = plan_maintenance(
            metadata, MaintenanceTask(MaintenanceSpec(statistics=True), TARGET), Holds(), now_ms, "idle", {}
        )
        return "statistics" in [action.kind for action in found.actions]

    assert is_counted(DAY_MS)
    assert is_counted(DAY_MS - HOUR_MS + 2000, 2, 1)
    assert not is_counted(DAY_MS - HOUR_MS + 1999, 2, 1)
    assert not is_counted(9 * DAY_MS, 3, 1), "nothing has come since"


def test_a_table_is_quiet_a_minute_after_its_last_row() -> None:
    metadata = table([*line(3), without_progress(line(4)[-1], removes_files=True)])
    assert mode_of(metadata, 3_000 + 59_999) == "busy"
    assert mode_of(metadata, 3_000 + 60_000) == "idle"


def test_a_property_that_no_file_can_be_written_with_is_named() -> None:
    metadata = replace(table(line(3), {"": [MIB]}), properties={"write.target-file-size-bytes": "512MB"})
    with pytest.raises(SpecError, match=r"`write\.target-file-size-bytes` is `512MB`, and Iceberg takes a number"):
        plan_maintenance(metadata, MaintenanceTask(MaintenanceSpec(), TARGET), Holds(), 10_000, "idle", NOTED)
