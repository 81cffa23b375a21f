"""What is to be done for a table, and why: pure, from what its metadata says, the settings and the clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

from frazil.catalog.look import TableLook
from frazil.catalog.upkeep import Compaction
from frazil.maintain.debt import SMALL_SHARE_OF_TARGET, Debt, measure, small_files
from frazil.maintain.retention import Retention, expirable, needs_carrying
from frazil.spec.models import MaintenanceSpec

Kind = Literal["compact", "deletes", "manifests", "carry", "expire", "orphans", "statistics"]
Mode = Literal["busy", "quiet", "thorough"]

QUIET_AFTER_MS = 60_000
MOST_DELETED_SHARE = 0.3
"""A data file with more deleted rows than this is written anew without them."""
MOST_POSITION_DELETES = 100
MANIFEST_BYTES = 8 * 1024 * 1024
FEWEST_MANIFESTS = 100
DAILY_MS = 86_400_000
ORPHANS_NOTE = "orphans-removed"
"""The mark of a table: when its orphans were last removed, in milliseconds."""


@dataclass(frozen=True)
class Care:
    """How one table is cared for. target_bytes: of data files. most_bytes: of them that one round rewrites; None: all."""

    spec: MaintenanceSpec
    target_bytes: int
    most_bytes: int | None = None


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
    """One thing to do. reason: why, in words; gain: what will be better."""

    kind: Kind
    table: str
    reason: str
    gain: str
    compaction: Compaction | None = None
    snapshots: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What a table owes and what is to be done about it, in this order. waiting: what is due and must not be done yet."""

    table: str
    debt: Debt
    actions: tuple[Action, ...] = ()
    waiting: tuple[str, ...] = ()
    spared: frozenset[str] = field(default=frozenset(), repr=False)


def plan_care(look: TableLook, care: Care, holds: Holds, now_ms: int, mode: Mode, noted: Mapping[str, int]) -> Plan:
    """The plan for a table that was looked at with its files.

    mode: `busy` while records arrive, so that each is rewritten few times; `quiet` for a while afterwards; `thorough` does
    all that is worth anything. noted: when what leaves no trace in the metadata was last done, by its mark.
    """
    spec, table = care.spec, look.name
    debt = measure(look, care.target_bytes)
    if not spec.is_on or look.head is None:
        return Plan(table, debt)
    waiting = [holds.waits] if holds.waits else []
    actions: list[Action] = []
    if is_open(spec.window, now_ms):
        actions += _rewrites(look, care, debt, mode)
    else:
        waiting.append("files are rewritten in the window of `maintenance.window` alone")
    if look.has_own_retention:
        waiting.append("the branch main has a retention of its own, by which Iceberg would expire progress too")
    elif not holds.waits:
        actions += _expiry(look, care, holds, now_ms, mode)
    if is_open(spec.window, now_ms):
        actions += _daily(look, spec, holds, now_ms, noted)
    return Plan(table, debt, tuple(actions), tuple(waiting), holds.spared)


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
    most = max(FEWEST_MANIFESTS, 2 * sum(look.manifests) // MANIFEST_BYTES)
    if care.spec.manifests and len(look.manifests) > most:
        reason = f"{len(look.manifests):,} manifests of {_size(sum(look.manifests) / len(look.manifests))} each"
        yield Action("manifests", look.name, reason, "readers plan with fewer of them")


def _compaction(look: TableLook, care: Care, debt: Debt, mode: Mode) -> Action | None:
    small = small_files(look, int(care.target_bytes * SMALL_SHARE_OF_TARGET))
    if mode != "thorough" or debt.small_share > care.spec.small_file_share:
        chosen = {p: n for p, sizes in small.items() if (n := _worth(sizes, care, mode))}
    else:
        chosen = {}
    files = [size for partition, count in chosen.items() for size in small[partition][:count]]
    options = {} if not files else _packing(files, care, mode)
    reasons = [f"{len(files):,} files of {_size(sum(files) / len(files))} on average"] if files else []
    if debt.equality_deletes:
        options["delete-file-threshold"] = "1"
        reasons.append(f"{_files(debt.equality_deletes)} of equality deletes, which every reader must apply")
    worn = sum(file.deleted >= MOST_DELETED_SHARE * max(1, file.record_count) for file in look.files)
    if worn:
        options["delete-ratio-threshold"] = str(MOST_DELETED_SHARE)
        reasons.append(f"{_files(worn)} with more than {MOST_DELETED_SHARE:.0%} of their rows deleted")
    if not reasons:
        return None
    largest = max((file.size_bytes for file in look.files), default=0)
    compaction = Compaction(
        _common(care, largest) | options, care.spec.sort, care.spec.zorder, removes_dangling=debt.equality_deletes > 0
    )
    after = sum(max(1, round(sum(small[p][:n]) / care.target_bytes)) for p, n in chosen.items())
    gain = f"{len(files):,} files become about {after:,}" if files else "readers skip no deleted rows there"
    return Action("compact", look.name, "; ".join(reasons), gain, compaction)


def _worth(sizes: list[int], care: Care, mode: Mode) -> int:
    """How many of a partition's small files, smallest first, are worth putting together now; 0 for none.

    A file much larger than all the smaller ones together is left alone until there are more of them: so a row is written
    again a few times only, however small the commits are.
    """
    if mode == "thorough" or sum(sizes) >= care.target_bytes:
        return len(sizes)
    fewest, weight = (2, 2) if mode == "quiet" else (care.spec.min_input_files, 1)
    smaller = list(accumulate(sizes))
    count = next((n for n in range(len(sizes), 1, -1) if sizes[n - 1] <= weight * smaller[n - 2]), 0)
    return count if count >= fewest else 0


def _packing(files: list[int], care: Care, mode: Mode) -> dict[str, str]:
    """Iceberg's options that make it choose these files."""
    floor = int(care.target_bytes * SMALL_SHARE_OF_TARGET)
    options = {
        "min-file-size-bytes": str(min(floor, max(files) + 1)),
        "min-input-files": str(care.spec.min_input_files if mode == "busy" else 2),
    }
    if care.most_bytes is not None:
        affordable = max(2, int(care.most_bytes / max(1.0, sum(files) / len(files))))
        options["max-files-to-rewrite"] = str(affordable)
    return options


def _common(care: Care, largest_bytes: int) -> dict[str, str]:
    return {
        "target-file-size-bytes": str(care.target_bytes),
        # A file that is large enough is never chosen for its size.
        "min-file-size-bytes": "0",
        "max-file-size-bytes": str(max(largest_bytes + 1, int(1.8 * care.target_bytes))),
        # One group makes about one file for each task; groups are committed soon, and lost alone if they are.
        "max-file-group-size-bytes": str(care.target_bytes * care.spec.cores),
        "rewrite-job-order": "files-desc",
    }


# ---- forgetting


def _expiry(look: TableLook, care: Care, holds: Holds, now_ms: int, mode: Mode) -> Iterator[Action]:
    retention = _retention(look, care.spec)
    if needs_carrying(look, retention):
        reason = "the newest progress lies behind many snapshots of other writers"
        yield Action("carry", look.name, reason, "snapshots before it can be expired")
    ids = expirable(look, retention, holds.keep_back_to, now_ms)
    oldest = min((look.snapshots[i].at_ms for i in ids), default=now_ms)
    is_overdue = now_ms - oldest > retention.age_ms * 1.25
    if ids and (mode == "thorough" or is_overdue or len(ids) >= max(1, retention.count // 4)):
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


def _daily(
    look: TableLook, spec: MaintenanceSpec, holds: Holds, now_ms: int, noted: Mapping[str, int]
) -> Iterator[Action]:
    every_ms = min(DAILY_MS, int(spec.orphan_age_s * 1000))
    if not holds.waits and now_ms - noted.get(ORPHANS_NOTE, 0) >= every_ms:
        reason = "files that no snapshot names have not been looked for since then"
        gain = f"the space of those older than {spec.orphan_age_s / 3600:.0f} h"
        yield Action("orphans", look.name, reason, gain)
    counted = [look.snapshots[i].at_ms for i in look.statistics if i in look.snapshots]
    if spec.statistics and now_ms - max(counted, default=0) >= DAILY_MS:
        yield Action("statistics", look.name, "distinct values were not counted for a day", "better query plans")


def _files(number: int) -> str:
    return "1 file" if number == 1 else f"{number:,} files"


def _size(size_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} GiB"
