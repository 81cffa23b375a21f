"""What is to be done for a table, and why: pure, from what its metadata says, the settings and the clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from frazil.catalog.maintenance_port import Compaction, Transfer
from frazil.catalog.table_metadata import StoredData, TableMetadata
from frazil.maintenance.file_groups import Packing, choose
from frazil.maintenance.health import (
    MOST_SMALL_FILES,
    SMALL_SHARE_OF_TARGET,
    TableHealth,
    measure,
    small_beside_larger,
    small_files,
)
from frazil.maintenance.retention import Retention, expirable, kept_count, needs_carrying, progress_depth
from frazil.spec.models import MaintenanceSpec

Kind = Literal["compact", "deletes", "manifests", "carry", "expire", "orphans", "statistics"]
REWRITES: tuple[Kind, ...] = ("compact", "deletes", "manifests")
DAILY: tuple[Kind, ...] = ("orphans", "statistics")
Mode = Literal["busy", "eager", "regular", "quiet", "thorough"]

IDLE_AFTER_MS = 60_000
MOST_DELETED: Mapping[Mode, float] = {"busy": 0.12, "eager": 0.12, "regular": 0.12, "quiet": 0.1, "thorough": 0.05}
"""A data file is written anew without its deleted rows when they are more of all than this: while changes arrive, each of
them would else cause many rows to be written, and afterwards readers are not to pay for them for long.
"""
LEAST_DELETED = 0.001
LITTLE_BYTES = 64 * 1024 * 1024
"""Once records have ended, files with a larger share of deleted rows than that are written anew where all of them together
are no more than this, the work of seconds: some readers take several times as long where a file has deletes, however few.
A file that was put together a moment before the end has hardly any, and would keep them until more are deleted.
"""
_VERY_SMALL_SHARE = 0.25
"""Of the target: files that are no larger become fewer, however they are dealt out to tasks."""
MOST_POSITION_DELETES = 100
MANIFEST_BYTES = 8 * 1024 * 1024
FEWEST_MANIFESTS = 100
DAILY_MS = 86_400_000
ORPHANS_NOTE = "orphans-removed-at"
"""The mark of a table: when its orphans were last removed, in milliseconds."""
BEGIN_NOTE = "maintenance-started-at"
"""The mark of a table: when a running pipeline first met it, in milliseconds."""


@dataclass(frozen=True)
class MaintenanceTask:
    """How one table is cared for. target_bytes: of data files. most_bytes: of them that one round rewrites; None: all.
    transfer: see Upkeep.compact.
    """

    spec: MaintenanceSpec
    target_bytes: int
    most_bytes: int | None = None
    transfer: Transfer | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Holds:
    """What other parts of the pipeline still need of the table.

    keep_back_to: snapshots that the history must reach. waits: why snapshots and files must all stay for now; empty: they
    need not. spared: paths of files that no snapshot names yet and that are promised to the table.
    """

    keep_back_to: tuple[int, ...] = ()
    waits: str = ""
    spared: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Action:
    """One thing to do. reason: why, in words; gain: what will be better. has_rest: there may be more of it afterwards.
    is_early: it could wait, and is done because there is time to spare.
    """

    kind: Kind
    table: str
    reason: str
    gain: str
    compaction: Compaction | None = None
    snapshots: tuple[int, ...] = ()
    has_rest: bool = False
    is_early: bool = False


@dataclass(frozen=True)
class Plan:
    """What a table owes and what is to be done about it, in this order. waiting: what is due and must not be done yet.
    files_since_ms: files that were written since then may be those of a batch in hand; None: no batch is known of.
    kept_snapshots: how many of this table's are kept at most. is_settled: as long as the table stays as it is, a more
    thorough look finds nothing to do either.
    """

    table: str
    health: TableHealth
    actions: tuple[Action, ...] = ()
    waiting: tuple[str, ...] = ()
    spared: frozenset[str] = field(default=frozenset(), repr=False)
    files_since_ms: int | None = None
    kept_snapshots: int | None = None
    is_settled: bool = False


def plan_maintenance(
    metadata: TableMetadata,
    maintenance: MaintenanceTask,
    holds: Holds,
    now_ms: int,
    mode: Mode,
    noted: Mapping[str, int],
) -> Plan:
    """The plan for a table that was looked at with its files.

    mode: `busy` while records arrive, so that each is rewritten few times; `eager` among them, for a table whose readers
    open each small file with deletes of its own, and while there is time to spare; `regular` now and then among them, for
    what few commits leave behind; `quiet` once they have ended, and a while later `thorough` does all that is worth
    anything. noted: when what leaves no trace in the metadata was last done, by its mark.
    """
    maintenance = as_the_table_says(maintenance, metadata)
    spec, table = maintenance.spec, metadata.name
    health = measure(metadata, maintenance.target_bytes)
    if not spec.is_on or metadata.head is None:
        return Plan(table, health)
    holds = _held(metadata, holds)
    waiting = [holds.waits] if holds.waits else []
    actions: list[Action] = []
    if is_open(spec.window, now_ms):
        actions += _rewrites(metadata, maintenance, health, mode)
    else:
        waiting.append("files are rewritten only within `maintenance.window`")
    actions += _carrying(metadata, maintenance, mode, is_rewritten=bool(actions))
    if metadata.has_own_retention:
        waiting.append("the branch main has its own retention, with which Iceberg would expire progress too")
    elif not holds.waits:
        actions += _expiry(metadata, maintenance, holds, now_ms, mode)
    if is_open(spec.window, now_ms):
        actions += _daily(metadata, spec, holds, now_ms, noted)
    kept = kept_count(metadata, spec.snapshot_count)
    return Plan(table, health, tuple(actions), tuple(waiting), holds.spared, kept_snapshots=kept)


def as_the_table_says(maintenance: MaintenanceTask, metadata: TableMetadata) -> MaintenanceTask:
    """With the size of files that the table's own property asks for, as ingestion has it, unless `maintenance` names one."""
    own = metadata.properties.get("write.target-file-size-bytes")
    return (
        maintenance
        if maintenance.spec.target_file_size_bytes or not own
        else replace(maintenance, target_bytes=int(own))
    )


def _held(metadata: TableMetadata, holds: Holds) -> Holds:
    """With what the table itself says."""
    is_kept = metadata.properties.get("gc.enabled", "true").lower() == "false"
    words = "nothing is removed from a table whose property gc.enabled is false"
    return replace(holds, waits=words) if is_kept and not holds.waits else holds


def is_open(window: tuple[int, int] | None, now_ms: int) -> bool:
    """Whether the time of the day (UTC) is in the window."""
    if window is None:
        return True
    minute, (begin, end) = now_ms // 60_000 % 1440, window
    return begin <= minute < end if begin < end else minute >= begin or minute < end


def mode_of(metadata: TableMetadata, now_ms: int) -> Mode:
    """Whether the table's newest snapshot is a while ago."""
    head = metadata.snapshots.get(metadata.head) if metadata.head is not None else None
    newest = next((s for s in metadata.ancestors() if s.operation != "replace"), head)
    return "quiet" if newest is None or now_ms - newest.at_ms >= IDLE_AFTER_MS else "busy"


# ---- rewriting


def _rewrites(
    metadata: TableMetadata, maintenance: MaintenanceTask, health: TableHealth, mode: Mode
) -> Iterator[Action]:
    compaction = _compaction(metadata, maintenance, health, mode)
    if compaction is not None:
        yield compaction
    positions = [file for file in metadata.deletes if file.kind == "position"]
    if len(positions) >= (2 if mode == "thorough" else MOST_POSITION_DELETES) and len(positions) > health.files:
        reason = f"{len(positions):,} files of position deletes for {health.files:,} data files"
        yield Action("deletes", metadata.name, reason, "readers open fewer delete files")
    manifests = metadata.rewritable_manifests
    most = max(FEWEST_MANIFESTS, 2 * sum(manifests) // MANIFEST_BYTES)
    if maintenance.spec.manifests and len(manifests) > most:
        reason = f"{len(manifests):,} manifests of {_size(sum(manifests) / len(manifests))} each"
        yield Action("manifests", metadata.name, reason, "readers plan with fewer manifests")


def _compaction(
    metadata: TableMetadata, maintenance: MaintenanceTask, health: TableHealth, mode: Mode
) -> Action | None:
    small = small_files(metadata, int(maintenance.target_bytes * SMALL_SHARE_OF_TARGET))
    beside = small_beside_larger(metadata, maintenance.target_bytes) if mode == "thorough" else {}
    count = health.small_files + len(beside.keys() - small.keys())
    small = {**small, **beside}
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
        # The share of one file's rows that such deletes take is not known to Iceberg's planner.
        options["delete-file-threshold"] = "1"
        share = f"about {MOST_DELETED[mode]:.0%} of their rows deleted, or more"
        reasons.append(f"{_files(loose)} with {share}, by deletes that name no file")
    if not reasons:
        return None
    # These are chosen for their deletes, whatever their size.
    takes_all = health.equality_deletes or loose
    others = [f.size_bytes for f in metadata.files if _is_worn(f, most, f.deleted) or (takes_all and f.has_deletes)]
    options |= _limit([*files, *others], maintenance, 2 if files else 1)
    # The options are the table's: what is worth it in one partition must not be what others are rewritten for.
    partitions = chosen.partitions if chosen is not None and not (health.equality_deletes or worn or loose) else None
    compaction = Compaction(
        options, maintenance.spec.sort, maintenance.spec.zorder, health.equality_deletes > 0, partitions
    )
    after, has_rest = (chosen.files_after, chosen.has_rest) if chosen is not None else (0, False)
    gain = f"{len(files):,} files become about {after:,}" if files else "readers skip no deleted rows there"
    is_early = mode == "eager" and not (takes_all or worn)
    return Action("compact", metadata.name, "; ".join(reasons), gain, compaction, has_rest=has_rest, is_early=is_early)


def _most_deleted(metadata: TableMetadata, mode: Mode) -> float:
    sizes = [file.size_bytes for file in metadata.files if _is_worn(file, LEAST_DELETED, file.deleted)]
    return LEAST_DELETED if mode in ("quiet", "thorough") and sum(sizes) <= LITTLE_BYTES else MOST_DELETED[mode]


def _is_worn(file: StoredData, most: float, deleted: int) -> bool:
    return deleted >= most * max(1, file.record_count)


def _group_bytes(metadata: TableMetadata, maintenance: MaintenanceTask, small: Mapping[str, Sequence[int]]) -> int:
    """What is rewritten at once: about one file for each task. Of files that are not very small, and of rows in an order, it
    is one file in all: more of them might become as many as they were, and would be rewritten for ever.
    """
    largest = max((size for sizes in small.values() for size in sizes), default=0)
    is_ordered = metadata.is_sorted or maintenance.spec.sort or maintenance.spec.zorder
    one_by_one = is_ordered or largest > maintenance.target_bytes * _VERY_SMALL_SHARE
    return maintenance.target_bytes * (1 if one_by_one else maintenance.spec.cores)


def _limit(files: list[int], maintenance: MaintenanceTask, least: int) -> dict[str, str]:
    """How many of such files one round rewrites, `least` whatever their size."""
    if maintenance.most_bytes is None or not files:
        return {}
    affordable = max(least, int(maintenance.most_bytes / max(1.0, sum(files) / len(files))))
    # Of the last two that belong together not one: it would be written anew as it is.
    affordable -= affordable % least
    return {"max-files-to-rewrite": str(affordable)}


def _common(maintenance: MaintenanceTask, largest_bytes: int, group_bytes: int) -> dict[str, str]:
    return {
        "target-file-size-bytes": str(maintenance.target_bytes),
        # A file that is large enough is never chosen for its size.
        "min-file-size-bytes": "0",
        "max-file-size-bytes": str(max(largest_bytes + 1, int(1.8 * maintenance.target_bytes))),
        # Groups are committed soon, and lost alone if they are.
        "max-file-group-size-bytes": str(group_bytes),
        "rewrite-job-order": "files-desc",
    }


# ---- forgetting


def _carrying(
    metadata: TableMetadata, maintenance: MaintenanceTask, mode: Mode, is_rewritten: bool
) -> Iterator[Action]:
    """Once records no longer arrive, the newest snapshot is to tell the progress: others who expire snapshots keep that one
    and may keep no more, and then the table could never be gone on with. is_rewritten: snapshots without it come on top.
    """
    depth = progress_depth(metadata)
    if needs_carrying(metadata, _retention(metadata, maintenance.spec)):
        reason = "the newest progress is behind many snapshots of other writers"
        yield Action("carry", metadata.name, reason, "snapshots before it can be expired")
    elif mode not in ("busy", "eager") and (depth > 1 or (depth == 1 and is_rewritten)):
        tells = "does not have" if depth > 1 else "will not have, once files are rewritten,"
        reason = f"the newest snapshot {tells} the table's progress"
        yield Action("carry", metadata.name, reason, "others may expire all snapshots but the newest")


def _expiry(
    metadata: TableMetadata, maintenance: MaintenanceTask, holds: Holds, now_ms: int, mode: Mode
) -> Iterator[Action]:
    retention = _retention(metadata, maintenance.spec)
    ids = expirable(metadata, retention, holds.keep_back_to, now_ms)
    oldest = min((metadata.snapshots[i].at_ms for i in ids), default=now_ms)
    is_overdue = now_ms - oldest > retention.age_ms * 1.25
    if ids and (
        mode in ("regular", "thorough") or is_overdue or len(ids) >= max(1, kept_count(metadata, retention.count) // 4)
    ):
        count = len(metadata.snapshots)
        reason = f"{len(ids):,} of {count:,} snapshots are older or more than `maintenance.snapshots` keeps"
        saved = metadata.metadata_bytes * len(ids) / count
        gain = f"about {_size(saved)} of metadata less at each commit, and the files that only they reference"
        yield Action("expire", metadata.name, reason, gain, snapshots=ids)


def _retention(metadata: TableMetadata, spec: MaintenanceSpec) -> Retention:
    """The file's, unless the table's own properties ask for more."""
    age_ms = int(metadata.properties.get("history.expire.max-snapshot-age-ms", 0))
    fewest = int(metadata.properties.get("history.expire.min-snapshots-to-keep", 0))
    return Retention(max(int(spec.snapshot_age_s * 1000), age_ms), max(spec.snapshot_count, fewest))


def _sooner(period_ms: int) -> int:
    """A little less: rounds of a day's cron begin a day apart, and what one does is noted when it is done."""
    return period_ms - period_ms // 24


def _daily(
    metadata: TableMetadata, spec: MaintenanceSpec, holds: Holds, now_ms: int, noted: Mapping[str, int]
) -> Iterator[Action]:
    every_ms = _sooner(min(DAILY_MS, int(spec.orphan_age_s * 1000)))
    last_ms = noted.get(ORPHANS_NOTE)
    since_ms = last_ms if last_ms is not None else noted.get(BEGIN_NOTE, 0)
    if not holds.waits and now_ms - since_ms >= every_ms:
        when = (
            "were never looked for"
            if last_ms is None
            else f"were last looked for {(now_ms - last_ms) / 3_600_000:.0f} h ago"
        )
        reason = f"files that no snapshot references {when}"
        gain = f"the space of those older than {spec.orphan_age_s / 3600:.0f} h"
        yield Action("orphans", metadata.name, reason, gain)
    counted = [metadata.snapshots[i].at_ms for i in metadata.statistics if i in metadata.snapshots]
    if (
        spec.statistics
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
