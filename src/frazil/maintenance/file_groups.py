"""Which small files are put together, and the options that make Iceberg's planner choose them: pure.

The planner goes through the files of a partition in turn and fills one group after another up to a size. A group is
rewritten when it has enough files, or more in it than one file should have; what ends up alone in its group stays.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain

from frazil.maintenance.health import SMALL_SHARE_OF_TARGET

FEWEST_REGULAR = 8
"""Of tables with few commits, so many small files are put together: waiting for more would take hours, and with fewer each
row would be written again for each power of two between the size of a commit and that of a file.
"""
_EAGER_SHARE = 6
"""Where there is time to spare, a sixth of the small files that are worth it otherwise is put together."""
_FREE_BYTES = 4 * 1024 * 1024
"""To write so much anew costs no more than all else that such a round does, so whatever fits goes with it each time."""
_LARGEST_SHARE = 0.25
"""A file joins smaller ones up to this share of all of them together. At 1, each file would wait for as much as it has
itself, and rows be written again for each power of two; at 0.25 they are a quarter to a third less often. Where fewer than
eight files are said to be worth it, it is more: so many of one size are to go together.
"""
_LARGEST_SHARE_WHEN_IDLE = 2
"""When records have stopped coming, for little more comes to join."""


@dataclass(frozen=True)
class Packing:
    """How files are put together. target_bytes: of a file; group_bytes: what is rewritten at once at most; fewest: small
    files that are worth it. mode: as plan_maintenance has it.
    """

    target_bytes: int
    group_bytes: int
    fewest: int
    mode: str

    @property
    def fewest_now(self) -> int:
        """Small files that are worth it in this mode."""
        return fewest_files(self.fewest, self.mode)


def fewest_files(usual: int, mode: str) -> int:
    """Small files that are worth it in this mode, where so many usually are."""
    modes = {"busy": usual, "eager": max(2, usual // _EAGER_SHARE), "regular": min(usual, FEWEST_REGULAR)}
    return modes.get(mode, 2)


@dataclass(frozen=True)
class Chosen:
    """Small files that become fewer. partitions: theirs. groups: their sizes, those together that become one. below_bytes:
    the smallest size of none of them. fewest: files of a group that is worth it. packing: how they are put together.
    has_rest: when all is done, some files may go together that could not before.
    """

    partitions: frozenset[str]
    groups: tuple[tuple[int, ...], ...]
    below_bytes: int
    fewest: int
    packing: Packing
    has_rest: bool

    @property
    def sizes(self) -> list[int]:
        """Of all files."""
        return list(chain.from_iterable(self.groups))

    @property
    def files_after(self) -> int:
        """About so many files they become."""
        return sum(max(1, round(sum(group) / self.packing.target_bytes)) for group in self.groups)

    @property
    def options(self) -> dict[str, str]:
        """Iceberg's, by which it chooses these files, as far as it can be told."""
        return {
            "target-file-size-bytes": str(self.packing.target_bytes),
            "max-file-group-size-bytes": str(self.packing.group_bytes),
            "min-file-size-bytes": str(self.below_bytes),
            "min-input-files": str(self.fewest),
        }


def choose(small: Mapping[str, Sequence[int]], packing: Packing) -> Chosen | None:
    """What is worth rewriting now; None: nothing.

    small: sizes of files by partition, in the order of the table, two at least; all of them small, or such that they fit
    into one file of the target size.
    """
    chosen = _choose(small, packing)
    if chosen is None and packing.mode == "thorough":
        # No two small files of a partition fit into one of the target size any more: two make one half as large again.
        of_two = 2 * int(packing.target_bytes * SMALL_SHARE_OF_TARGET)
        chosen = _choose(small, replace(packing, target_bytes=of_two, group_bytes=of_two))
    return chosen


def _choose(small: Mapping[str, Sequence[int]], packing: Packing) -> Chosen | None:
    groups: list[tuple[int, ...]] = []
    partitions = set()
    largest, fewest, has_rest = 0, packing.fewest_now, False
    for partition, sizes in small.items():
        inspected = _looked_at(sizes, packing) if packing.mode == "thorough" else sizes
        whole = _whole(inspected, packing)
        few = _few(sizes, packing) if not whole and packing.mode != "thorough" else []
        groups += whole or few
        if whole or few:
            partitions.add(partition)
        largest = max(largest, max(inspected if whole else chain.from_iterable(few), default=0))
        # Files may come in another order, and then fewer of them fill a group.
        fewest = min([fewest, *(max(2, 3 * len(group) // 4) for group in whole)])
        is_one = [len(group) for group in whole] == [len(sizes)] and sum(sizes) <= packing.target_bytes
        has_rest = has_rest or not is_one
    if not groups:
        return None
    return Chosen(frozenset(partitions), tuple(groups), largest + 1, fewest, packing, has_rest)


def _looked_at(sizes: Sequence[int], packing: Packing) -> Sequence[int]:
    """The files of a partition among which neighbours fit into one: all of them; else the smaller ones, which others between
    them would keep apart for good; none where not even the two smallest fit.
    """
    for most in (max(sizes), packing.target_bytes // 2, sorted(sizes)[1]):
        found = [size for size in sizes if size <= most]
        if _whole(found, packing):
            return found
    return ()


def _whole(sizes: Sequence[int], packing: Packing) -> list[tuple[int, ...]]:
    """The groups of a partition that has enough for a file of the target size, or of which all is to be put together."""
    if packing.mode != "thorough" and sum(sizes) < packing.target_bytes:
        return []
    is_ending = packing.mode in ("quiet", "thorough")
    least = 0 if is_ending else int(packing.target_bytes * SMALL_SHARE_OF_TARGET)
    return [group for group in packed(sizes, packing.group_bytes) if len(group) > 1 and sum(group) >= least]


def _few(sizes: Sequence[int], packing: Packing) -> list[tuple[int, ...]]:
    """As many of a partition's small files, smallest first, as are worth putting together now.

    A file that is large beside all the smaller ones together is left alone until there are more of them: so a row is
    written again a few times only, however small the commits are.
    """
    fewest = packing.fewest_now
    share = _LARGEST_SHARE_WHEN_IDLE if packing.mode == "quiet" else max(_LARGEST_SHARE, 2 / fewest)
    ordered = sorted(sizes)
    smaller = list(accumulate(ordered))
    count = next((n for n in range(len(ordered), 1, -1) if ordered[n - 1] <= share * smaller[n - 2]), 0)
    if packing.mode == "eager":
        count = max(count, bisect_right(smaller, _FREE_BYTES))
    chosen = [size for size in sizes if count and size <= ordered[count - 1]]
    return [group for group in packed(chosen, packing.group_bytes) if len(group) >= fewest]


def packed(sizes: Iterable[int], limit_bytes: int) -> list[tuple[int, ...]]:
    """Groups as Iceberg's planner makes them: what does not fit into a group begins the next one."""
    groups: list[list[int]] = []
    left = 0
    for size in sizes:
        if not groups or size > left:
            groups.append([])
            left = limit_bytes
        groups[-1].append(size)
        left -= size
    return [tuple(group) for group in groups]
