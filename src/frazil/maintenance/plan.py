"""What is to be done for a table, and why: pure, from what its metadata says, the settings and the clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from frazil.catalog.maintenance_port import Compaction, Transfer
from frazil.catalog.table_metadata import StoredData, TableLook
from frazil.maintenance.file_groups import Packing, choose
from frazil.maintenance.health import (
    MOST_SMALL_FILES,
    SMALL_SHARE_OF_TARGET,
    Debt,
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

QUIET_AFTER_MS = 60_000
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
ORPHANS_NOTE = "orphans-removed"
"""The mark of a table: when its orphans were last removed, in milliseconds."""
BEGIN_NOTE = "care-began"
"""The mark of a table: when a running pipeline first met it, in milliseconds."""


@dataclass(frozen=True)
class Care:
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
    debt: Debt
    actions: tuple[Action, ...] = ()
    waiting: tuple[str, ...] = ()
    spared: frozenset[str] = field(default=frozenset(), repr=False)
    files_since_ms: int | None = None
    kept_snapshots: int | None = None
    is_settled: bool = False


def plan_care(look: TableLook, care: Care, holds: Holds, now_ms: int, mode: Mode, noted: Mapping[str, int]) -> Plan:
    """The plan for a table that was looked at with its files.

    mode: `busy` while records arrive, so that each is rewritten few times; `eager` among them, for a table whose readers
    open each small file with deletes of its own, and while there is time to spare; `regular` now and then among them, for
    what few commits leave behind; `quiet` once they have ended, and a while later `thorough` does all that is worth
    anything. noted: when what leaves no trace in the metadata was last done, by its mark.
    """
    care = as_the_table_says(care, look)
    spec, table = care.spec, look.name
    debt = measure(look, care.target_bytes)
    if not spec.is_on or look.head is None:
        return Plan(table, debt)
    holds = _held(look, holds)
    waiting = [holds.waits] if holds.waits else []
    actions: list[Action] = []
    if is_open(spec.window, now_ms):
        actions += _rewrites(look, care, debt, mode)
    else:
        waiting.append("files are rewritten in the window of `maintenance.window` alone")
    actions += _carrying(look, care, mode, is_rewritten=bool(actions))
    if look.has_own_retention:
        waiting.append("the branch main has a retention of its own, by which Iceberg would expire progress too")
    elif not holds.waits:
        actions += _expiry(look, care, holds, now_ms, mode)
    if is_open(spec.window, now_ms):
        actions += _daily(look, spec, holds, now_ms, noted)
    kept = kept_count(look, spec.snapshot_count)
    return Plan(table, debt, tuple(actions), tuple(waiting), holds.spared, kept_snapshots=kept)


def as_the_table_says(care: Care, look: TableLook) -> Care:
    """With the size of files that the table's own property asks for, as ingestion has it, unless `maintenance` names one."""
    own = look.properties.get("write.target-file-size-bytes")
    return care if care.spec.target_file_size_bytes or not own else replace(care, target_bytes=int(own))


def _held(look: TableLook, holds: Holds) -> Holds:
    """With what the table itself says."""
    is_kept = look.properties.get("gc.enabled", "true").lower() == "false"
    words = "nothing is removed from a table whose property gc.enabled is false"
    return replace(holds, waits=words) if is_kept and not holds.waits else holds


def is_open(window: tuple[int, int] | None, now_ms: int) -> bool:
    """Whether the time of the day (UTC) is in the window."""
    if window is None:
        return True
    minute, (begin, end) = now_ms // 60_000 % 1440, window
    return begin <= minute < end if begin < end else minute >= begin or minute < end


def mode_of(look: TableLook, now_ms: int) -> Mode:
    """Whether the table's newest snapshot is a while ago."""
    head = look.snapshots.get(look.head) if look.head is not None else None
    newest = next((s for s in look.ancestors() if s.operation != "replace"), head)
    return "quiet" if newest is None or now_ms - newest.at_ms >= QUIET_AFTER_MS else "busy"


# ---- rewriting


def _rewrites(look: TableLook, care: Care, debt: Debt, mode: Mode) -> Iterator[Action]:
    compaction = _compaction(look, care, debt, mode)
    if compaction is not None:
        yield compaction
    positions = [file for file in look.deletes if file.kind == "position"]
    if len(positions) >= (2 if mode == "thorough" else MOST_POSITION_DELETES) and len(positions) > debt.files:
        reason = f"{len(positions):,} files of position deletes for {debt.files:,} data files"
        yield Action("deletes", look.name, reason, "readers open fewer delete files")
    manifests = look.rewritable_manifests
    most = max(FEWEST_MANIFESTS, 2 * sum(manifests) // MANIFEST_BYTES)
    if care.spec.manifests and len(manifests) > most:
        reason = f"{len(manifests):,} manifests of {_size(sum(manifests) / len(manifests))} each"
        yield Action("manifests", look.name, reason, "readers plan with fewer of them")


def _compaction(look: TableLook, care: Care, debt: Debt, mode: Mode) -> Action | None:
    small = small_files(look, int(care.target_bytes * SMALL_SHARE_OF_TARGET))
    beside = small_beside_larger(look, care.target_bytes) if mode == "thorough" else {}
    count = debt.small_files + len(beside.keys() - small.keys())
    small = {**small, **beside}
    group_bytes = _group_bytes(look, care, small)
    chosen = None
    is_too_much = count > MOST_SMALL_FILES or count / max(1, debt.files) > care.spec.small_file_share
    if mode != "thorough" or is_too_much:
        chosen = choose(small, Packing(care.target_bytes, group_bytes, care.spec.min_input_files, mode))
    files = chosen.sizes if chosen is not None else []
    options = _common(care, max((file.size_bytes for file in look.files), default=0), group_bytes)
    reasons = []
    if chosen is not None:
        options |= chosen.options
        reasons.append(f"{len(files):,} files of {_size(sum(files) / len(files))} on average")
    if debt.equality_deletes:
        options["delete-file-threshold"] = "1"
        reasons.append(f"{_files(debt.equality_deletes)} of equality deletes, which every reader must apply")
    most = _most_deleted(look, mode)
    worn = sum(_is_worn(file, most, file.deleted) for file in look.files)
    if worn:
        options["delete-ratio-threshold"] = str(most)
        reasons.append(f"{_files(worn)} with more than {most * 100:g}% of their rows deleted")
    loose = sum(_is_worn(file, MOST_DELETED[mode], file.loosely_deleted) for file in look.files)
    if loose:
        # The share of one file's rows that such deletes take is not known to Iceberg's planner.
        options["delete-file-threshold"] = "1"
        share = f"about {MOST_DELETED[mode]:.0%} of their rows deleted, or more"
        reasons.append(f"{_files(loose)} with {share}, by deletes that name no file")
    if not reasons:
        return None
    # These are chosen for their deletes, whatever their size.
    takes_all = debt.equality_deletes or loose
    others = [f.size_bytes for f in look.files if _is_worn(f, most, f.deleted) or (takes_all and f.has_deletes)]
    options |= _limit([*files, *others], care, 2 if files else 1)
    # The options are the table's: what is worth it in one partition must not be what others are rewritten for.
    partitions = chosen.partitions if chosen is not None and not (debt.equality_deletes or worn or loose) else None
    compaction = Compaction(options, care.spec.sort, care.spec.zorder, debt.equality_deletes > 0, partitions)
    after, has_rest = (chosen.files_after, chosen.has_rest) if chosen is not None else (0, False)
    gain = f"{len(files):,} files become about {after:,}" if files else "readers skip no deleted rows there"
    is_early = mode == "eager" and not (takes_all or worn)
    return Action("compact", look.name, "; ".join(reasons), gain, compaction, has_rest=has_rest, is_early=is_early)


def _most_deleted(look: TableLook, mode: Mode) -> float:
    sizes = [file.size_bytes for file in look.files if _is_worn(file, LEAST_DELETED, file.deleted)]
    return LEAST_DELETED if mode in ("quiet", "thorough") and sum(sizes) <= LITTLE_BYTES else MOST_DELETED[mode]


def _is_worn(file: StoredData, most: float, deleted: int) -> bool:
    return deleted >= most * max(1, file.record_count)


def _group_bytes(look: TableLook, care: Care, small: Mapping[str, Sequence[int]]) -> int:
    """What is rewritten at once: about one file for each task. Of files that are not very small, and of rows in an order, it
    is one file in all: more of them might become as many as they were, and would be rewritten for ever.
    """
    largest = max((size for sizes in small.values() for size in sizes), default=0)
    is_ordered = look.is_sorted or care.spec.sort or care.spec.zorder
    one_by_one = is_ordered or largest > care.target_bytes * _VERY_SMALL_SHARE
    return care.target_bytes * (1 if one_by_one else care.spec.cores)


def _limit(files: list[int], care: Care, least: int) -> dict[str, str]:
    """How many of such files one round rewrites, `least` whatever their size."""
    if care.most_bytes is None or not files:
        return {}
    affordable = max(least, int(care.most_bytes / max(1.0, sum(files) / len(files))))
    # Of the last two that belong together not one: it would be written anew as it is.
    affordable -= affordable % least
    return {"max-files-to-rewrite": str(affordable)}


def _common(care: Care, largest_bytes: int, group_bytes: int) -> dict[str, str]:
    return {
        "target-file-size-bytes": str(care.target_bytes),
        # A file that is large enough is never chosen for its size.
        "min-file-size-bytes": "0",
        "max-file-size-bytes": str(max(largest_bytes + 1, int(1.8 * care.target_bytes))),
        # Groups are committed soon, and lost alone if they are.
        "max-file-group-size-bytes": str(group_bytes),
        "rewrite-job-order": "files-desc",
    }


# ---- forgetting


def _carrying(look: TableLook, care: Care, mode: Mode, is_rewritten: bool) -> Iterator[Action]:
    """Once records no longer arrive, the newest snapshot is to tell the progress: others who expire snapshots keep that one
    and may keep no more, and then the table could never be gone on with. is_rewritten: snapshots without it come on top.
    """
    depth = progress_depth(look)
    if needs_carrying(look, _retention(look, care.spec)):
        reason = "the newest progress lies behind many snapshots of other writers"
        yield Action("carry", look.name, reason, "snapshots before it can be expired")
    elif mode not in ("busy", "eager") and (depth > 1 or (depth == 1 and is_rewritten)):
        tells = "does not tell" if depth > 1 else "will not tell, once files are rewritten,"
        reason = f"the newest snapshot {tells} how far the table is"
        yield Action("carry", look.name, reason, "others may expire all snapshots but the newest")


def _expiry(look: TableLook, care: Care, holds: Holds, now_ms: int, mode: Mode) -> Iterator[Action]:
    retention = _retention(look, care.spec)
    ids = expirable(look, retention, holds.keep_back_to, now_ms)
    oldest = min((look.snapshots[i].at_ms for i in ids), default=now_ms)
    is_overdue = now_ms - oldest > retention.age_ms * 1.25
    if ids and (
        mode in ("regular", "thorough") or is_overdue or len(ids) >= max(1, kept_count(look, retention.count) // 4)
    ):
        reason = (
            f"{len(ids):,} of {len(look.snapshots):,} snapshots are older or more than `maintenance.snapshots` keeps"
        )
        saved = look.metadata_bytes * len(ids) / len(look.snapshots)
        gain = f"about {_size(saved)} of metadata less at each commit, and the files that only they name"
        yield Action("expire", look.name, reason, gain, snapshots=ids)


def _retention(look: TableLook, spec: MaintenanceSpec) -> Retention:
    """The file's, unless the table's own properties ask for more."""
    age_ms = int(look.properties.get("history.expire.max-snapshot-age-ms", 0))
    fewest = int(look.properties.get("history.expire.min-snapshots-to-keep", 0))
    return Retention(max(int(spec.snapshot_age_s * 1000), age_ms), max(spec.snapshot_count, fewest))


def _sooner(period_ms: int) -> int:
    """A little less: rounds of a day's cron begin a day apart, and what one does is noted when it is done."""
    return period_ms - period_ms // 24


def _daily(
    look: TableLook, spec: MaintenanceSpec, holds: Holds, now_ms: int, noted: Mapping[str, int]
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
        reason = f"files that no snapshot names {when}"
        gain = f"the space of those older than {spec.orphan_age_s / 3600:.0f} h"
        yield Action("orphans", look.name, reason, gain)
    counted = [look.snapshots[i].at_ms for i in look.statistics if i in look.snapshots]
    if spec.statistics and look.head not in look.statistics and now_ms - max(counted, default=0) >= _sooner(DAILY_MS):
        yield Action("statistics", look.name, "distinct values were not counted for a day", "better query plans")


def _files(number: int) -> str:
    return "1 file" if number == 1 else f"{number:,} files"


def _size(size_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} GiB"
