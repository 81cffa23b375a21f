"""Decides what maintenance does for a table, and why: pure, from the table's metadata, the settings and the clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from frazil.catalog.maintenance_port import Compaction, Transfer
from frazil.catalog.table_metadata import MAX_REF_AGE, StoredData, TableMetadata, is_own
from frazil.maintenance.file_groups import Packing, choose
from frazil.maintenance.health import (
    MOST_SMALL_FILES,
    SMALL_SHARE_OF_TARGET,
    TableHealth,
    measure,
    small_and_larger_files,
    small_files,
)
from frazil.maintenance.retention import Retention, expirable, kept_count, needs_carrying, progress_depth
from frazil.plugins.driver import ACTIONS
from frazil.spec.settings import MaintenanceSpec
from frazil.stages.stage import TableStage
from frazil.types import MAIN
from frazil.write.file_formats import check_properties

Mode = Literal["busy", "eager", "regular", "idle", "thorough"]

IDLE_AFTER_MS = 60_000
MOST_DELETED: Mapping[Mode, float] = {"busy": 0.12, "eager": 0.12, "regular": 0.12, "idle": 0.1, "thorough": 0.05}
"""A data file with a greater share of deleted rows is rewritten: while changes arrive, a smaller share would cause many
rows to be rewritten per change; afterwards readers should not pay for deletes for long.
"""
LEAST_DELETED = 0.001
LITTLE_BYTES = 64 * 1024 * 1024
"""Once records have stopped arriving, files with a greater share of deleted rows than LEAST_DELETED are rewritten where
all of them together have at most this size, which takes seconds: some readers are several times slower for a file with
deletes, however few. A file that was compacted just before the end has hardly any, and would keep them until more are
deleted.
"""
_VERY_SMALL_SHARE = 0.25
"""Share of the target size: files of at most this size become fewer however they are distributed among tasks."""
MOST_POSITION_DELETES = 100
MANIFEST_BYTES = 8 * 1024 * 1024
FEWEST_MANIFESTS = 100
DAILY_MS = 86_400_000
_MAX_SNAPSHOT_AGE = "history.expire.max-snapshot-age-ms"
_MIN_SNAPSHOTS = "history.expire.min-snapshots-to-keep"
ORPHANS_NOTE = "orphans-removed-at"
"""Table property, behind `frazil.<pipeline>.`: when orphan files were last removed, in milliseconds."""
BEGIN_NOTE = "maintenance-started-at"
"""Table property, behind `frazil.<pipeline>.`: when a running pipeline first maintained the table, in milliseconds. A table
that the pipeline has created needs none.
"""


@dataclass(frozen=True)
class MaintenanceTask:
    """How one table is maintained."""

    #: The settings.
    spec: MaintenanceSpec
    #: The target size of data files.
    target_bytes: int
    #: The number of bytes that one round rewrites at most; None: all.
    most_bytes: int | None = None
    #: See TableMaintenance.compact.
    transfer: Transfer | None = field(default=None, compare=False)
    #: The stages of the table, whose actions it has besides.
    stages: tuple[TableStage, ...] = ()


@dataclass(frozen=True)
class Holds:
    """What other parts of the pipeline still need of the table."""

    #: Snapshots that the kept history must reach back to.
    keep_back_to: tuple[int, ...] = ()
    #: Why no snapshot and no file may be removed now; empty where they may.
    waits: str = ""
    #: Paths of files that no snapshot names yet, and that a commit to the table will name.
    pending_files: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Action:
    """One maintenance action."""

    #: What is done: its name among `plugins.driver`.
    kind: str
    table: str
    #: Why it is done.
    reason: str
    #: What improves.
    gain: str
    #: Which data files are rewritten, for `compact`.
    compaction: Compaction | None = None
    #: The snapshots to expire, for `expire`.
    snapshots: tuple[int, ...] = ()
    #: Whether more of it may be worth doing afterwards.
    has_follow_up: bool = False
    #: Whether it could wait and is done because there is spare time.
    is_early: bool = False
    #: Whether the table is well without it: it is done for what other tools may do.
    is_precaution: bool = False


@dataclass(frozen=True)
class Plan:
    """The health of a table and the actions to be run, in order."""

    table: str
    #: Its figures.
    health: TableHealth
    actions: tuple[Action, ...] = ()
    #: What is due and must not be done yet.
    waiting: tuple[str, ...] = ()
    #: Paths of files that no snapshot names yet, and that are not orphans.
    pending_files: frozenset[str] = field(default=frozenset(), repr=False)
    #: Files written since then may belong to a batch in progress; None where no batch is known.
    files_since_ms: int | None = None
    #: The maximum number of snapshots that are kept.
    kept_snapshots: int | None = None
    #: Whether even a thorough plan has no action, as long as the table does not change.
    is_settled: bool = False


@dataclass(frozen=True)
class Planning:
    """What actions of one table are planned from."""

    #: The table's metadata, which includes its files.
    metadata: TableMetadata
    #: How the table is maintained.
    maintenance: MaintenanceTask
    #: The figures of the table.
    health: TableHealth
    #: What other parts of the pipeline still need of the table.
    holds: Holds
    #: The clock.
    now_ms: int
    #: See `plan_maintenance`.
    mode: Mode
    #: Properties of the table that are this pipeline's own and whole numbers, without `frazil.<pipeline>.`.
    noted: Mapping[str, int]
    #: The actions that are planned before.
    planned: tuple[Action, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether files may be rewritten at this time of day."""
        return is_open(self.maintenance.spec.window, self.now_ms)


def plan_maintenance(
    metadata: TableMetadata,
    maintenance: MaintenanceTask,
    holds: Holds,
    now_ms: int,
    mode: Mode,
    noted: Mapping[str, int],
) -> Plan:
    """Returns the plan for a table whose metadata includes its files.

    mode: `busy` while records arrive, so that each is rewritten few times; `eager` meanwhile, for a table whose readers
    open each small file with its deletes, when there is spare time; `regular` now and then meanwhile, for the files of
    few commits; `idle` once records have stopped arriving; `thorough` a while later, for everything that improves
    anything. noted: when actions that leave no trace in the metadata were last done, by their property.
    """
    maintenance = with_table_file_size(maintenance, metadata)
    spec, table = maintenance.spec, metadata.name
    health = measure(metadata, maintenance.target_bytes)
    if not spec.is_on or metadata.head is None:
        return Plan(table, health)
    holds = _held(metadata, holds)
    planning = Planning(metadata, maintenance, health, holds, now_ms, mode, noted)
    waiting = [holds.waits] if holds.waits else []
    if not planning.is_open:
        waiting.append("files are rewritten only within `maintenance.window`")
    if metadata.branch.has_own_retention:
        waiting.append(
            f"the branch {metadata.branch.name} has its own retention, with which Iceberg would expire progress too"
        )
    waiting += [
        f"orphan files stay in the folder of the table property {name}, where other tables may have files"
        for name in _files_elsewhere(metadata)
        if "orphans" not in spec.skip
    ]
    of_stages = (action for stage in maintenance.stages for action in stage.actions)
    for name in dict.fromkeys((*ACTIONS.built_in, *spec.actions, *of_stages)):
        kind = ACTIONS.get(name)
        if name not in spec.skip and (planning.is_open or not (kind.is_rewrite or kind.is_daily)):
            planning = replace(planning, planned=(*planning.planned, *kind.planner(planning)))
    kept = kept_count(metadata, spec.snapshots.kept)
    return Plan(table, health, planning.planned, tuple(waiting), holds.pending_files, kept_snapshots=kept)


def with_table_file_size(maintenance: MaintenanceTask, metadata: TableMetadata) -> MaintenanceTask:
    """Returns the task with the file size of the table's own property, as ingestion uses it, unless `maintenance` sets
    one.

    Raises: SpecError for a property of the table that no file can be written with.
    """
    check_properties(metadata.properties, metadata.name)
    file_size = metadata.properties.get("write.target-file-size-bytes")
    return (
        maintenance
        if maintenance.spec.target_file_size_bytes or not file_size
        else replace(maintenance, target_bytes=int(file_size))
    )


def _held(metadata: TableMetadata, holds: Holds) -> Holds:
    """Returns `holds` with what the table's own properties require."""
    words = ""
    for name in (_MAX_SNAPSHOT_AGE, _MIN_SNAPSHOTS, MAX_REF_AGE):
        if not metadata.properties.get(name, "0").isdecimal():
            words = f"nothing is removed from a table whose property {name} is not a whole number"
    if metadata.properties.get("gc.enabled", "true").lower() == "false":
        words = "nothing is removed from a table whose property gc.enabled is false"
    return replace(holds, waits=words) if words and not holds.waits else holds


def _files_elsewhere(metadata: TableMetadata) -> list[str]:
    """Returns the table properties that send new files to other folders than those searched for orphan files."""
    folders = {name: metadata.properties.get(name) for name in ("write.data.path", "write.metadata.path")}
    return [
        name for name, path in folders.items() if path and not is_own(f"{path.rstrip('/')}/file", metadata.location)
    ]


def is_open(window: tuple[int, int] | None, now_ms: int) -> bool:
    """Returns whether the time of day (UTC) is in the window."""
    if window is None:
        return True
    minute, (begin, end) = now_ms // 60_000 % 1440, window
    return begin <= minute < end if begin < end else minute >= begin or minute < end


def mode_of(metadata: TableMetadata, now_ms: int) -> Mode:
    """Returns `idle` where the table's newest snapshot is a while ago, else `busy`."""
    head = metadata.snapshots.get(metadata.head) if metadata.head is not None else None
    newest = next((s for s in metadata.ancestors() if s.operation != "replace"), head)
    return "idle" if newest is None or now_ms - newest.at_ms >= IDLE_AFTER_MS else "busy"


# ---- rewriting


def plan_compaction(planning: Planning) -> Iterator[Action]:
    """Yields the compaction of small data files and of those with many deleted rows."""
    compaction = _compaction(planning.metadata, planning.maintenance, planning.health, planning.mode)
    if compaction is not None:
        yield compaction


def plan_deletes(planning: Planning) -> Iterator[Action]:
    """Yields the rewrite of files of position deletes."""
    metadata, health, mode = planning.metadata, planning.health, planning.mode
    positions = [file for file in metadata.deletes if file.kind == "position"]
    if len(positions) >= (2 if mode == "thorough" else MOST_POSITION_DELETES) and len(positions) > health.files:
        reason = f"{len(positions):,} files of position deletes for {health.files:,} data files"
        yield Action("deletes", metadata.name, reason, "readers open fewer delete files")


def plan_manifests(planning: Planning) -> Iterator[Action]:
    """Yields the rewrite of manifests, which Iceberg has for the main branch only."""
    if planning.metadata.branch.name != MAIN:
        return
    metadata = planning.metadata
    manifests = metadata.sizes.rewritable_manifests
    most = max(FEWEST_MANIFESTS, 2 * sum(manifests) // MANIFEST_BYTES)
    if planning.maintenance.spec.manifests and len(manifests) > most:
        reason = f"{len(manifests):,} manifests of {_size(sum(manifests) / len(manifests))} each"
        yield Action("manifests", metadata.name, reason, "readers plan with fewer manifests")


def _compaction(
    metadata: TableMetadata, maintenance: MaintenanceTask, health: TableHealth, mode: Mode
) -> Action | None:
    small = small_files(metadata, int(maintenance.target_bytes * SMALL_SHARE_OF_TARGET))
    with_larger = small_and_larger_files(metadata, maintenance.target_bytes) if mode == "thorough" else {}
    count = health.small_files + len(with_larger.keys() - small.keys())
    small = {**small, **with_larger}
    group_bytes = _group_bytes(metadata, maintenance, small)
    chosen = None
    is_too_much = count > MOST_SMALL_FILES or count / max(1, health.files) > maintenance.spec.small_file_share
    if mode != "thorough" or is_too_much:
        chosen = choose(small, Packing(maintenance.target_bytes, group_bytes, maintenance.spec.min_input_files, mode))
    files = chosen.sizes if chosen is not None else []
    options = _common(maintenance, max((file.size_bytes for file in metadata.files), default=0), group_bytes)
    reasons = []
    if chosen is not None:
        options |= chosen.options
        reasons.append(f"{len(files):,} files of {_size(sum(files) / len(files))} on average")
    if health.equality_deletes:
        options["delete-file-threshold"] = "1"
        reasons.append(f"{_files(health.equality_deletes)} of equality deletes, which every reader must apply")
    most = _most_deleted(metadata, mode)
    worn = sum(_is_worn(file, most, file.deleted) for file in metadata.files)
    if worn:
        options["delete-ratio-threshold"] = str(most)
        reasons.append(f"{_files(worn)} with more than {most * 100:g}% of their rows deleted")
    loose = sum(_is_worn(file, MOST_DELETED[mode], file.loosely_deleted) for file in metadata.files)
    if loose:
        # Iceberg's planner does not know the share of one file's rows that such deletes delete.
        options["delete-file-threshold"] = "1"
        share = f"about {MOST_DELETED[mode]:.0%} of their rows deleted, or more"
        reasons.append(f"{_files(loose)} with {share}, by deletes that name no file")
    if not reasons:
        return None
    # These are chosen for their deletes, whatever their size.
    takes_all = health.equality_deletes or loose
    others = [f.size_bytes for f in metadata.files if _is_worn(f, most, f.deleted) or (takes_all and f.has_deletes)]
    options |= _limit([*files, *others], maintenance, 2 if files else 1)
    # Options apply to the whole table: files of other partitions must not be rewritten because of one partition.
    partitions = chosen.partitions if chosen is not None and not (health.equality_deletes or worn or loose) else None
    compaction = Compaction(
        options, maintenance.spec.sort, maintenance.spec.zorder, health.equality_deletes > 0, partitions
    )
    after, has_follow_up = (chosen.files_after, chosen.has_follow_up) if chosen is not None else (0, False)
    gain = f"{len(files):,} files become about {after:,}" if files else "readers skip no deleted rows there"
    is_early = mode == "eager" and not (takes_all or worn)
    return Action(
        "compact", metadata.name, "; ".join(reasons), gain, compaction, has_follow_up=has_follow_up, is_early=is_early
    )


def _most_deleted(metadata: TableMetadata, mode: Mode) -> float:
    sizes = [file.size_bytes for file in metadata.files if _is_worn(file, LEAST_DELETED, file.deleted)]
    return LEAST_DELETED if mode in ("idle", "thorough") and sum(sizes) <= LITTLE_BYTES else MOST_DELETED[mode]


def _is_worn(file: StoredData, most: float, deleted: int) -> bool:
    return deleted >= most * max(1, file.record_count)


def _group_bytes(metadata: TableMetadata, maintenance: MaintenanceTask, small: Mapping[str, Sequence[int]]) -> int:
    """Returns the maximum size of a group: about one file per task. Where files are not very small, or rows are sorted,
    it is one file: more files might become as many as they were, and would be rewritten for ever.
    """
    largest = max((size for sizes in small.values() for size in sizes), default=0)
    is_ordered = metadata.shape.is_sorted or maintenance.spec.sort or maintenance.spec.zorder
    one_by_one = is_ordered or largest > maintenance.target_bytes * _VERY_SMALL_SHARE
    return maintenance.target_bytes * (1 if one_by_one else maintenance.spec.cores)


def _limit(files: list[int], maintenance: MaintenanceTask, least: int) -> dict[str, str]:
    """Returns the option that limits how many of these files one round rewrites; at least `least` whatever their size."""
    if maintenance.most_bytes is None or not files:
        return {}
    affordable = max(least, int(maintenance.most_bytes / max(1.0, sum(files) / len(files))))
    # Not one file of the last pair: it would be rewritten unchanged.
    affordable -= affordable % least
    return {"max-files-to-rewrite": str(affordable)}


def _common(maintenance: MaintenanceTask, largest_bytes: int, group_bytes: int) -> dict[str, str]:
    return {
        "target-file-size-bytes": str(maintenance.target_bytes),
        # A file that is large enough is never chosen for its size.
        "min-file-size-bytes": "0",
        "max-file-size-bytes": str(max(largest_bytes + 1, int(1.8 * maintenance.target_bytes))),
        # Groups are committed soon, and discarded one by one after a conflict.
        "max-file-group-size-bytes": str(group_bytes),
        "rewrite-job-order": "files-desc",
    }


# ---- expiry


def plan_carrying(planning: Planning) -> Iterator[Action]:
    """Yields the action that repeats the progress in the newest snapshot, once records no longer arrive: other tools
    that expire snapshots keep the newest one and may keep no more, and without progress the pipeline could not
    continue.
    """
    metadata, mode = planning.metadata, planning.mode
    depth = progress_depth(metadata.ancestors())
    is_rewritten = bool(planning.planned)  # Snapshots without progress are about to be added.
    if needs_carrying(metadata, _retention(metadata, planning.maintenance.spec)):
        reason = "the newest progress is behind many snapshots of other writers"
        yield Action("carry", metadata.name, reason, "snapshots before it can be expired")
    elif mode not in ("busy", "eager") and (depth > 1 or (depth == 1 and is_rewritten)):
        state = "does not have" if depth > 1 else "will not have, once files are rewritten,"
        reason = f"the newest snapshot {state} the table's progress"
        gain = "others may expire all snapshots but the newest"
        yield Action("carry", metadata.name, reason, gain, is_precaution=True)


def plan_expiry(planning: Planning) -> Iterator[Action]:
    """Yields the expiry of snapshots, unless something waits."""
    metadata, now_ms, mode = planning.metadata, planning.now_ms, planning.mode
    if planning.holds.waits or metadata.branch.has_own_retention:
        return
    retention = _retention(metadata, planning.maintenance.spec)
    ids = expirable(metadata, retention, planning.holds.keep_back_to, now_ms)
    oldest = min((metadata.snapshots[i].at_ms for i in ids), default=now_ms)
    is_overdue = now_ms - oldest > retention.age_ms * 1.25
    if ids and (
        mode in ("regular", "thorough") or is_overdue or len(ids) >= max(1, kept_count(metadata, retention.count) // 4)
    ):
        count = len(metadata.snapshots)
        reason = f"{len(ids):,} of {count:,} snapshots are older or more than `maintenance.snapshots` keeps"
        saved = metadata.sizes.metadata * len(ids) / count
        gain = f"about {_size(saved)} of metadata less at each commit, and the files that only they reference"
        yield Action("expire", metadata.name, reason, gain, snapshots=ids)


def _retention(metadata: TableMetadata, spec: MaintenanceSpec) -> Retention:
    """Returns the retention of the pipeline file, and of the table's own properties."""
    texts = [metadata.properties.get(name, "") for name in (_MAX_SNAPSHOT_AGE, _MIN_SNAPSHOTS)]
    age_ms, fewest = (int(text) if text.isdecimal() else 0 for text in texts)
    return Retention(max(int(spec.snapshots.age_s * 1000), age_ms), max(spec.snapshots.kept, fewest), age_ms, fewest)


def _sooner(period_ms: int) -> int:
    """Returns a slightly shorter period: rounds of a daily cron job begin a day apart, and an action is noted when it
    ends.
    """
    return period_ms - period_ms // 24


def plan_orphans(planning: Planning) -> Iterator[Action]:
    """Yields the search for orphan files, once a day."""
    spec, noted, now_ms = planning.maintenance.spec, planning.noted, planning.now_ms
    every_ms = _sooner(min(DAILY_MS, int(spec.orphans.age_s * 1000)))
    last_ms = noted.get(ORPHANS_NOTE)
    since_ms = last_ms if last_ms is not None else noted.get(BEGIN_NOTE, 0)
    if not planning.holds.waits and now_ms - since_ms >= every_ms:
        when = (
            "were never looked for"
            if last_ms is None
            else f"were last looked for {(now_ms - last_ms) / 3_600_000:.0f} h ago"
        )
        reason = f"files that no snapshot references {when}"
        gain = f"the space of those older than {spec.orphans.age_s / 3600:.0f} h"
        yield Action("orphans", planning.metadata.name, reason, gain)


def plan_statistics(planning: Planning) -> Iterator[Action]:
    """Yields the count of distinct values, once a day."""
    metadata, now_ms = planning.metadata, planning.now_ms
    counted = [metadata.snapshots[i].at_ms for i in metadata.statistics if i in metadata.snapshots]
    if (
        planning.maintenance.spec.statistics
        and metadata.head not in metadata.statistics
        and now_ms - max(counted, default=0) >= _sooner(DAILY_MS)
    ):
        yield Action("statistics", metadata.name, "distinct values were not counted for a day", "better query plans")


def _files(number: int) -> str:
    return "1 file" if number == 1 else f"{number:,} files"


def _size(size_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} GiB"
