"""What an upsert table must hold, as a plain dictionary: the meaning of the settings, without any of the product's ways.

Batches are applied one after the other. Within a batch a truncation, or a delete without an ordering value, takes away
what came before it by topic, partition and offset. What is left of a key is applied in the order of (ordering value,
topic, partition, offset); a change that is older than the row that is there does nothing. A delete that has an ordering
value is remembered to the end of its batch and no longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Key = tuple[Any, ...]
Place = tuple[str, int, int]
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """What one record asks for. order: its ordering value; None where places alone decide, and for a delete without one.
    unavailable: columns of which the old row's value stays, null where there is none. is_mark: all stays as it was but what
    `row` has, as of a delete that is marked.
    """

    op: Literal["upsert", "delete", "truncate"]
    place: Place
    key: Key = ()
    row: Row = field(default_factory=dict)
    order: Any = None
    unavailable: frozenset[str] = frozenset()
    is_mark: bool = False


@dataclass(frozen=True)
class Held:
    """A row with its ordering value, None where it has none. row: None for one that this batch has deleted."""

    order: Any
    row: Row | None


class UpsertModel:
    """The rows by key. Only another writer can bring a second row of one key; the next change that counts replaces both.

    is_ordered: whether an ordering column is declared, for the next batch; without one every delete is by place.
    """

    def __init__(self, *, is_ordered: bool) -> None:
        self.rows: dict[Key, list[Held]] = {}
        self.is_ordered = is_ordered

    def adopt(self, key: Key, row: Row, order: Any = None) -> None:
        """A row that another writer has added."""
        self.rows.setdefault(key, []).append(Held(order, row))

    def apply(self, batch: Iterable[Change]) -> None:
        """All changes of one commit."""
        changes = sorted(batch, key=lambda change: change.place)
        cut = max((n for n, change in enumerate(changes) if change.op == "truncate"), default=-1)
        if cut >= 0:
            self.rows.clear()
        by_key: dict[Key, list[Change]] = {}
        for change in changes[cut + 1 :]:
            by_key.setdefault(change.key, []).append(change)
        for key, mine in by_key.items():
            self._apply_to(key, mine)

    def _apply_to(self, key: Key, changes: list[Change]) -> None:
        there = self.rows.pop(key, [])
        cleared = max((n for n, change in enumerate(changes) if self._is_blind(change)), default=-1)
        if cleared >= 0:
            there = []
        left = changes[cleared + 1 :]
        if self.is_ordered:
            left = sorted(left, key=lambda change: (change.order, change.place))
        for change in left:
            newest = self._newest(there)
            if newest is None or newest.order is None or not self.is_ordered or change.order >= newest.order:
                there = [_after(change, newest)]
        there = [held for held in there if held.row is not None]
        if there:
            self.rows[key] = there

    def _newest(self, there: list[Held]) -> Held | None:
        if not self.is_ordered:
            return there[-1] if there else None
        return max(there, key=lambda held: held.order, default=None)

    def _is_blind(self, change: Change) -> bool:
        return change.op == "delete" and (not self.is_ordered or change.order is None)


def _after(change: Change, before: Held | None) -> Held:
    if change.op == "delete":
        return Held(change.order, None)
    old = before.row if before is not None and before.row is not None else {}
    if change.is_mark:
        order = before.order if before is not None and change.order is None else change.order
        return Held(order, _over(old, change.row))
    return Held(change.order, {**change.row, **{name: old.get(name) for name in change.unavailable}})


def _over(old: Row, new: Row) -> Row:
    """The old row with what the new one has, member by member."""
    found = dict(old)
    for name, value in new.items():
        before = found.get(name)
        found[name] = _over(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return found
