"""Hands tables back to another tool.

A commit without files ends the pipeline's part in a table for good, then the offsets are written where the tool reads
them.

The commit comes first, so that no batch of a running pipeline lands once the offsets are written; a release that ends in
between is repeated, and writes what the table has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from frazil.clock import new_id
from frazil.dead_letters.tables import DeadLetterTables
from frazil.errors import ConflictError, SpecError
from frazil.ingest.failures import TableStopped
from frazil.ingest.plan import lag_records
from frazil.ingest.tables.table import Table
from frazil.kafka.port import GroupOffset
from frazil.ops.seen_by_readers import refuse_unseen
from frazil.types import Commit, Offsets, as_json, by_partition
from frazil_migrate.adopt.adopt import Handover, Origin, Tool, check_options, load
from frazil_migrate.adopt.kafka_connect import control_ends, find_sink
from frazil_migrate.adopt.offsets import Services, refuse_members
from frazil_migrate.adopt.spark import write_checkpoint

_TRIES = 20
_ADDRESS = re.compile("[A-Za-z][A-Za-z0-9+.-]+:/")
_GROUP_REMEDY = "give --group; Kafka Connect's is connect-CONNECTOR"


def plan_release(
    services: Services,
    table: Table,
    target: Origin,
    others: Iterable[Table] = (),
    dead_letters: DeadLetterTables | None = None,
) -> Handover:
    """Returns what releasing a table would do. others: of the pipeline. dead_letters: to finish pending commits of dead
    letters, before a release.

    Raises: TableStopped where it cannot be released; SpecError where the target is not named;
    UnavailableError and ConflictError as the services.
    """
    state = load(services, table)
    progress = state.progress
    if table.spec.changes.emit == "closed":
        raise TableStopped(
            "the table has `emit: closed`: its main lacks the windows that are open, and no other tool can complete them",
            "write another table of the same topics without `emit: closed`, and release that one once it has caught up",
            table.name,
        )
    if progress.snapshot_id is None:
        raise TableStopped("the table has no progress of this pipeline", "name a table that it has written", table.name)
    if progress.released_to and state.head_id != progress.snapshot_id:
        raise TableStopped(
            f"the table was released to {progress.released_to}, and another writer has committed since",
            "run `frazil adopt` before it is released again",
            table.name,
        )
    if progress.released_to:
        refuse_unseen(state)
    if target.tool is not Tool.SPARK:
        _refuse_other_offsets(services, progress.offsets, others)
    place, entries = _target(services, table.name, target)
    commit = None
    if not progress.released_to:
        if dead_letters is not None:
            dead_letters.settle(table)
        released = replace(
            table.progress,
            commit_id=new_id(),
            released_to=target.tool.value,
            batch=replace(table.progress.batch, skipped={}, balance=None, lookups={}),
        )
        commit = Commit(table.name, (), released, progress, shape=state.shape, entries=entries)
    ends = services.source.log_ends([*by_partition(progress.offsets)])
    return Handover(table.name, "release", place, progress.offsets, lag_records(progress.offsets, ends), commit=commit)


def release(
    services: Services, table: Table, target: Origin, others: Sequence[Table], dead_letters: DeadLetterTables
) -> Handover:
    """Releases a table; returns what was done. A pipeline that is running commits no more: it stops the table.

    Raises: as `plan_release`; ConflictError where the pipeline commits faster.
    """
    for _ in range(_TRIES):
        planned = plan_release(services, table, target, others, dead_letters)
        try:
            if planned.commit is not None:
                services.catalog.commit(planned.commit)
        except ConflictError:  # A batch was faster.
            continue
        refuse_unseen(load(services, table))
        _write(services, target, planned)
        return planned
    raise ConflictError("the pipeline commits faster than the table can be released", where=table.name)


def _refuse_other_offsets(services: Services, offsets: Offsets, others: Iterable[Table]) -> None:
    """Raises TableStopped where another table that was released reads the same partitions from other offsets: the group has
    one offset of each.
    """
    mine = by_partition(offsets)
    for other in others:
        state = services.catalog.load(other.name)
        its = by_partition(state.progress.offsets) if state is not None and state.progress.released_to else {}
        if any(mine[place] != its[place] for place in mine.keys() & its.keys()):
            raise TableStopped(
                "another table was released at other offsets of the same topic, and a group has one of each partition",
                "adopt that table again, run `frazil run --until-caught-up`, and release both while no pipeline runs",
                other.name,
            )


def _target(services: Services, table: str, target: Origin) -> tuple[str, Mapping[str, str]]:
    """Returns where the offsets go, and entries for the summary of the commit. Raises TableStopped where they cannot."""
    check_target(target)
    if target.tool is Tool.SPARK:
        return f"checkpoint {_new_folder(target.checkpoint)}", {}
    group, entries = target.group, {}
    if target.tool is Tool.KAFKA_CONNECT:
        sink = find_sink(services, table, group)
        if sink is not None:
            # Events from before the release are none of the table's, whatever became of them.
            entries = {sink.key: as_json({str(p): end for p, end in control_ends(services, sink).items()})}
        group = group or (sink.group if sink is not None else None)
    if group is None:
        raise SpecError("the group is not named", remedy=_GROUP_REMEDY)
    refuse_members(services.group(group))
    return f"group {group}", entries


def check_target(target: Origin) -> None:
    """Raises SpecError for a tool that cannot be given offsets, for another tool's option, and for one without what they are
    written to.
    """
    if target.tool not in (Tool.KAFKA_CONNECT, Tool.GROUP, Tool.SPARK):
        raise SpecError(
            f"{target.tool.value} cannot be given offsets",
            remedy="release the table to a group; Flink starts from it with `scan.startup.mode` = `group-offsets`",
        )
    check_options(target)
    if target.tool is Tool.SPARK and target.checkpoint is None:
        _new_folder(None)
    if target.tool is Tool.GROUP and target.group is None:
        raise SpecError("the group is not named", remedy=_GROUP_REMEDY)


def _new_folder(checkpoint: Path | None) -> Path:
    if checkpoint is not None and _ADDRESS.match(str(checkpoint)):
        raise SpecError(
            f"the checkpoint {checkpoint} is an address, and a folder of this machine is written",
            remedy="give --checkpoint with a folder of this machine, and copy it to the store before the query starts",
        )
    if checkpoint is None or (checkpoint.exists() and (not checkpoint.is_dir() or any(checkpoint.iterdir()))):
        raise SpecError("the checkpoint is not a new folder", remedy="give --checkpoint with a folder that is empty")
    return checkpoint


def _write(services: Services, target: Origin, planned: Handover) -> None:
    offsets: Offsets = planned.offsets or {}
    if target.tool is Tool.SPARK:
        assert target.checkpoint is not None
        write_checkpoint(target.checkpoint, offsets)
        return
    group = services.group(planned.place.removeprefix("group "))
    group.commit({place: GroupOffset(offset, "") for place, offset in by_partition(offsets).items()})
