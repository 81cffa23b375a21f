"""Maintenance of packs: dead ones are removed, and those that are mostly dead, or small, are copied into new ones.

A pack is dead when no branch, no tag and no kept snapshot of the table has a row that refers to it: what a killed task
left, what a refused commit left, and what the rows of expired snapshots had. Copying frees nothing by itself: it lets
the older snapshots expire without the pack.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from frazil.catalog.maintenance_port import Compaction, Rewritten
from frazil.failpoints import hit
from frazil.maintenance.plan import DAILY_MS, Action, Planning
from frazil.maintenance.run import Round
from frazil.schema.arrow import one_array, unsliced
from frazil.stages.row_stage import RowStage
from frazil.stages.stage import TableStage
from frazil.store.file_io import StoredFile, StoreIO, store_of
from frazil.write.target import TableTarget
from frazil_blobs.packs import SUFFIX, Packs, folder_of
from frazil_blobs.reading import Reader
from frazil_blobs.references import PackUse, all_packs, opened, packs_of_snapshot
from frazil_blobs.settings import BlobSettings, MiB
from frazil_blobs.values import FIELDS, Path, blob_paths, blobs_of, member_at, members_of, with_member

SWEPT_NOTE, COPIED_NOTE = "blobs-swept-at", "blobs-compacted-at"
"""Table properties, behind `frazil.<pipeline>.`: when packs were last removed and copied, in milliseconds."""
_LIVE_SHARE = 0.5
"""A pack with a smaller share of bytes that the newest snapshot refers to is copied."""
_DEAD_SHARE = 0.05
"""The share of dead bytes that a table's packs may have together: above it the packs that have most are copied. A dead byte
costs at most 19 copied ones, 9 to 10 where rows are deleted at random, and less where they lie together.
"""
_SMALL_SHARE = 0.25
_MANY_SMALL = 8
"""So many packs below this share of the size to aim at are copied into one."""
_AT_ONCE_BYTES = 64 * MiB
"""The most bytes of objects that are copied at once, but for one larger object."""
_GROUP_BYTES = 256 * MiB


def settings_in(stages: Sequence[TableStage]) -> BlobSettings | None:
    """Returns the settings of the table's objects; None where it has none."""
    for stage in stages:
        if isinstance(stage, RowStage) and isinstance(stage.settings, BlobSettings):
            return stage.settings
    return None


def plan_sweep(planning: Planning) -> Iterator[Action]:
    """Yields the removal of dead packs, once a day."""
    since_ms = planning.noted.get(SWEPT_NOTE, 0)
    if _may_begin(planning) and planning.now_ms - since_ms >= DAILY_MS:
        reason = "packs were last looked at a day ago" if since_ms else "packs have never been looked at"
        yield Action(
            "blobs_sweep", planning.metadata.name, reason, "the space of objects that no snapshot has is freed"
        )


def plan_compaction(planning: Planning) -> Iterator[Action]:
    """Yields the copying of packs that are mostly dead, once a day."""
    since_ms = planning.noted.get(COPIED_NOTE, 0)
    if _may_begin(planning) and planning.now_ms - since_ms >= DAILY_MS:
        reason = "packs were last compared with the rows a day ago" if since_ms else "packs have never been compared"
        yield Action("blobs_compact", planning.metadata.name, reason, "packs that are mostly dead can be removed")


def _may_begin(planning: Planning) -> bool:
    return settings_in(planning.maintenance.stages) is not None and not planning.holds.waits


def sweep(action: Action, current: Round) -> Rewritten:
    """Removes the packs that no snapshot refers to and that are older than orphan files must be.

    A pack is listed before the snapshots are read: one that is committed in between is young, or is among the references.
    """
    settings = settings_in(current.maintenance.stages)
    assert settings is not None
    now_ms = current.clock.now_ms()
    begun_ms = current.plan.files_since_ms if current.plan.files_since_ms is not None else now_ms
    oldest_ms = min(begun_ms, now_ms - int(current.maintenance.spec.orphans.age_s * 1000))
    metadata_json, io_properties = current.table_maintenance.described(action.table)
    table, io = opened(action.table, metadata_json, io_properties), _io(io_properties)
    listed = _packs_in(io, folder_of(settings.store, table.location()))
    old = [pack for pack in listed if pack.written_ms < oldest_ms]
    removed = 0
    if old:
        fresh = opened(action.table, *current.table_maintenance.described(action.table))
        live = all_packs(fresh)
        dead = [pack for pack in old if pack.location not in live]
        hit("blobs.sweep.found")
        for pack in dead:
            if current.is_stopping():
                return Rewritten(removed=removed)
            with suppress(FileNotFoundError):  # Another process sweeps too.
                io.delete(pack.location)
            removed += 1
    current.table_maintenance.note(action.table, SWEPT_NOTE, str(now_ms))
    return Rewritten(removed=removed)


def compact(action: Action, current: Round) -> Rewritten:
    """Copies the objects of packs that are mostly dead, small, or old with dead bytes, with the rows that refer to them."""
    settings = settings_in(current.maintenance.stages)
    assert settings is not None
    metadata_json, io_properties = current.table_maintenance.described(action.table)
    table, io = opened(action.table, metadata_json, io_properties), _io(io_properties)
    metadata = current.table_maintenance.metadata(action.table, with_files=False)
    uses = packs_of_snapshot(table, metadata.head if metadata is not None else None)
    packs = {pack.location: pack for pack in _packs_in(io, folder_of(settings.store, table.location()))}
    chosen = worth_copying(uses, packs, settings.pack, current.clock.now_ms() - int(settings.forget * 1000))
    rewritten = Rewritten()
    if chosen:
        files = frozenset[str]().union(*(uses[uri].files for uri in chosen))
        options = {"rewrite-all": "true", "max-file-group-size-bytes": str(_GROUP_BYTES)}
        stage = CopyPacks(settings.model_dump_json(by_alias=True), tuple(sorted(chosen)))
        compaction = Compaction(options, files=files, stages=(stage,))
        rewritten = current.table_maintenance.compact(action.table, compaction, current.maintenance.transfer)
    if not rewritten.lost:
        current.table_maintenance.note(action.table, COPIED_NOTE, str(current.clock.now_ms()))
    return rewritten


def worth_copying(
    uses: Mapping[str, PackUse], packs: Mapping[str, StoredFile], pack_bytes: int, forgotten_ms: int
) -> set[str]:
    """Returns the packs whose live bytes are to be copied. uses: of the newest snapshot. packs: those in the folder.
    forgotten_ms: a pack that was written before has no bytes of deleted rows left when it is copied.
    """
    live = {uri: use.live_bytes for uri, use in uses.items() if uri in packs}
    dying = {uri for uri, size in live.items() if size < _LIVE_SHARE * packs[uri].size_bytes}
    old = {uri for uri, size in live.items() if size < packs[uri].size_bytes and packs[uri].written_ms < forgotten_ms}
    chosen = dying | old
    chosen |= _most_dead({uri: (packs[uri].size_bytes, size) for uri, size in live.items()}, chosen)
    small = {uri for uri in live if packs[uri].size_bytes < _SMALL_SHARE * pack_bytes} - chosen
    return chosen | (small if len(small) >= _MANY_SMALL else set())


def _most_dead(sizes: Mapping[str, tuple[int, int]], chosen: Set[str]) -> set[str]:
    """Returns the packs to copy besides the chosen ones, so that few of the bytes that are left are dead. sizes: by pack,
    all its bytes and the live ones.
    """
    left = {uri: of for uri, of in sizes.items() if uri not in chosen}
    whole_bytes = sum(live if uri in chosen else size for uri, (size, live) in sizes.items())
    dead_bytes = sum(size - live for size, live in left.values())
    more = set[str]()
    for uri in sorted(left, key=lambda uri: (left[uri][1] / max(1, left[uri][0]), uri)):
        if dead_bytes <= _DEAD_SHARE * whole_bytes:
            break
        size, live = left[uri]
        dead_bytes, whole_bytes = dead_bytes - (size - live), whole_bytes - (size - live)
        more.add(uri)
    return more


def _packs_in(io: StoreIO, folder: str) -> list[StoredFile]:
    return [file for file in io.files(folder) if file.location.endswith(SUFFIX)]


def _io(io_properties: Mapping[str, str]) -> StoreIO:
    return store_of(tuple(sorted(io_properties.items())))


@dataclass(frozen=True)
class CopyPacks(TableStage):
    """As a stage of a compaction: the rows that are written again refer to new packs in place of these."""

    settings_json: str
    uris: tuple[str, ...]

    def open(self, target: TableTarget) -> CopyingRows:
        """See TableStage."""
        settings = BlobSettings.model_validate_json(self.settings_json)
        io = store_of(target.files.io_properties)
        packs = Packs(io, folder_of(settings.store, target.files.location), settings.pack)
        return CopyingRows(io, packs, blob_paths(target.schema), frozenset(self.uris))


class CopyingRows:
    """Implements `stages.stage.RowWriter`: copies objects of some packs into new ones."""

    def __init__(self, io: StoreIO, packs: Packs, paths: Sequence[Path], uris: frozenset[str]) -> None:
        self._io = io
        self._packs = packs
        self._paths = paths
        self._uris = pa.array(sorted(uris), pa.string())

    def write(self, rows: pa.Table) -> pa.Table:
        """See RowWriter. Raises: UnavailableError, InvariantError for an object that is not what it was."""
        for name, *inner in self._paths:
            place = rows.schema.get_field_index(name)
            column = unsliced(one_array(rows.column(place)))
            blobs = member_at(column, inner) if inner else column
            copied = self._copied(unsliced(blobs))
            rows = rows.set_column(place, rows.schema.field(place), with_member(column, inner, copied))
        return rows

    def _copied(self, blobs: pa.StructArray) -> pa.Array:
        members = members_of(blobs)
        is_meant = np.asarray(pa.compute.is_in(members["uri"], value_set=self._uris))
        rows = np.flatnonzero(is_meant & np.asarray(members["inline"].is_null()))
        uris, offsets = members["uri"].to_pylist(), members["offset"].to_pylist()
        sizes = np.asarray(members["size"].fill_null(0))[rows]
        for begin, end in pairs_of(sizes.tolist(), _AT_ONCE_BYTES):
            some = rows[begin:end]
            reader = Reader(
                self._io, pa.StructArray.from_arrays([members[name].take(pa.array(some)) for name in FIELDS], FIELDS)
            )
            contents = reader.contents(verify=True)
            for row, content in zip(some.tolist(), contents, strict=True):
                uris[row], offsets[row] = self._packs.append(content.as_buffer())
        members |= {"uri": pa.array(uris, pa.string()), "offset": pa.array(offsets, pa.int64())}
        return blobs_of(members, blobs.type)

    def finish(self) -> None:
        """See RowWriter."""
        self._packs.finish()

    def abandon(self) -> None:
        """See RowWriter."""
        self._packs.abandon()


def pairs_of(sizes: Sequence[int], most_bytes: int) -> Iterator[tuple[int, int]]:
    """Yields begin and end of runs of sizes that together have at most `most_bytes`, or are one size."""
    begin = total = 0
    for place, size in enumerate(sizes):
        if place > begin and total + size > most_bytes:
            yield begin, place
            begin, total = place, 0
        total += size
    if begin < len(sizes):
        yield begin, len(sizes)
