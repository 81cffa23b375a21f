"""Which small files are compacted together, and the options that make Iceberg's planner choose them. Pure.

The planner goes through the files of a partition in order and fills one group after another up to a size. A group is
rewritten when it has enough files, or more bytes than one file should have; a file alone in its group stays.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain

from frazil.maintenance.health import SMALL_SHARE_OF_TARGET

FEWEST_REGULAR = 8
"""The number of small files that is worth a compaction in a table with few commits: waiting for more would take hours,
and with fewer each row would be rewritten once per power of two between the size of a commit and that of a file.
"""
_EAGER_SHARE = 6
"""With spare time, a sixth of the usual number of small files is compacted."""
_FREE_BYTES = 4 * 1024 * 1024
"""Rewriting this many bytes costs no more than the rest of a round, so files of this total are always included."""
_LARGEST_SHARE = 0.25
"""A file joins smaller files while it has at most this share of their total size. At 1, each file would wait for as
many bytes as it has, and rows would be rewritten once per power of two; at 0.25 they are rewritten a quarter to a third
less often. Where fewer than eight files are worth a compaction the share is larger, so that this many files of equal
size can be compacted.
"""
_LARGEST_SHARE_WHEN_IDLE = 2
"""The share once records have stopped arriving, when few more files will join."""


@dataclass(frozen=True)
class Packing:
    """How files are compacted together."""

    #: The target size of a file.
    target_bytes: int
    #: The maximum size of a group.
    group_bytes: int
    #: The number of small files that is worth a compaction.
    fewest: int
    #: The mode of plan_maintenance.
    mode: str

    @property
    def fewest_now(self) -> int:
        """The number of small files that is worth a compaction in this mode."""
        return fewest_files(self.fewest, self.mode)


def fewest_files(usual: int, mode: str) -> int:
    """Returns the number of small files that is worth a compaction in this mode, given the usual number."""
    modes = {"busy": usual, "eager": max(2, usual // _EAGER_SHARE), "regular": min(usual, FEWEST_REGULAR)}
    return modes.get(mode, 2)


@dataclass(frozen=True)
class Chosen:
    """Small files that are compacted."""

    #: Their partitions.
    partitions: frozenset[str]
    #: Their sizes in bytes, grouped by the file that they become.
    groups: tuple[tuple[int, ...], ...]
    #: A size above all of theirs.
    below_bytes: int
    #: The number of files of a group that is worth a compaction.
    fewest: int
    #: How they are compacted.
    packing: Packing
    #: Whether further files may become compactable afterwards.
    has_follow_up: bool

    @property
    def sizes(self) -> list[int]:
        """The sizes of all files, in bytes."""
        return list(chain.from_iterable(self.groups))

    @property
    def files_after(self) -> int:
        """The approximate number of files that they become."""
        return sum(max(1, round(sum(group) / self.packing.target_bytes)) for group in self.groups)

    @property
    def options(self) -> dict[str, str]:
        """Iceberg's options that choose these files, as far as options can."""
        return {
            "target-file-size-bytes": str(self.packing.target_bytes),
            "max-file-group-size-bytes": str(self.packing.group_bytes),
            "min-file-size-bytes": str(self.below_bytes),
            "min-input-files": str(self.fewest),
        }


def choose(small: Mapping[str, Sequence[int]], packing: Packing) -> Chosen | None:
    """Returns the files that are worth a compaction now; None without such files.

    small: sizes of files by partition, in the order of the table, at least two each. All of them are small, or fit into
    one file of the target size.
    """
    chosen = _choose(small, packing)
    if chosen is None and packing.mode == "thorough":
        # No two small files of a partition fit into one file of the target size: two make a file half as large again.
        of_two = 2 * int(packing.target_bytes * SMALL_SHARE_OF_TARGET)
        chosen = _choose(small, replace(packing, target_bytes=of_two, group_bytes=of_two))
    return chosen


def _choose(small: Mapping[str, Sequence[int]], packing: Packing) -> Chosen | None:
    groups: list[tuple[int, ...]] = []
    partitions = set()
    largest, fewest, has_follow_up = 0, packing.fewest_now, False
    for partition, sizes in small.items():
        inspected = _candidates(sizes, packing) if packing.mode == "thorough" else sizes
        full = _full_groups(inspected, packing)
        few = _few_groups(sizes, packing) if not full and packing.mode != "thorough" else []
        groups += full or few
        if full or few:
            partitions.add(partition)
        largest = max(largest, max(inspected if full else chain.from_iterable(few), default=0))
        # Files may come in another order, and then fewer of them fill a group.
        fewest = min([fewest, *(max(2, 3 * len(group) // 4) for group in full)])
        is_one = [len(group) for group in full] == [len(sizes)] and sum(sizes) <= packing.target_bytes
        has_follow_up = has_follow_up or not is_one
    if not groups:
        return None
    return Chosen(frozenset(partitions), tuple(groups), largest + 1, fewest, packing, has_follow_up)


def _candidates(sizes: Sequence[int], packing: Packing) -> Sequence[int]:
    """Returns the files of a partition among which neighbours fit into one file: all files; else the smaller ones,
    which larger files between them would separate for good; none where not even the two smallest fit.
    """
    for most in (max(sizes), packing.target_bytes // 2, sorted(sizes)[1]):
        small_sizes = [size for size in sizes if size <= most]
        if _full_groups(small_sizes, packing):
            return small_sizes
    return ()


def _full_groups(sizes: Sequence[int], packing: Packing) -> list[tuple[int, ...]]:
    """Returns the groups of a partition that has enough bytes for a file of the target size, or all of which is
    compacted.
    """
    if packing.mode != "thorough" and sum(sizes) < packing.target_bytes:
        return []
    is_ending = packing.mode in ("idle", "thorough")
    least = 0 if is_ending else int(packing.target_bytes * SMALL_SHARE_OF_TARGET)
    return [group for group in packed(sizes, packing.group_bytes) if len(group) > 1 and sum(group) >= least]


def _few_groups(sizes: Sequence[int], packing: Packing) -> list[tuple[int, ...]]:
    """Returns as many of a partition's small files, the smallest first, as are worth a compaction now. A file that is
    large compared with all smaller ones together is left out until there are more of them, so that each row is
    rewritten only a few times however small the commits are.
    """
    fewest = packing.fewest_now
    share = _LARGEST_SHARE_WHEN_IDLE if packing.mode == "idle" else max(_LARGEST_SHARE, 2 / fewest)
    ordered = sorted(sizes)
    smaller = list(accumulate(ordered))
    count = next((n for n in range(len(ordered), 1, -1) if ordered[n - 1] <= share * smaller[n - 2]), 0)
    if packing.mode == "eager":
        count = max(count, bisect_right(smaller, _FREE_BYTES))
    chosen = [size for size in sizes if count and size <= ordered[count - 1]]
    return [group for group in packed(chosen, packing.group_bytes) if len(group) >= fewest]


def packed(sizes: Iterable[int], limit_bytes: int) -> list[tuple[int, ...]]:
    """Returns groups as Iceberg's planner makes them: a file that does not fit into a group begins the next one."""
    groups: list[list[int]] = []
    left = 0
    for size in sizes:
        if not groups or size > left:
            groups.append([])
            left = limit_bytes
        groups[-1].append(size)
        left -= size
    return [tuple(group) for group in groups]
