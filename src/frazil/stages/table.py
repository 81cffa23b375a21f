"""The stages of a table, in the order in which they see its rows, and what documents have of each kind."""

from __future__ import annotations

from collections.abc import Iterator

from frazil.plugins.stages import TABLE_STAGES
from frazil.spec.models import TableSpec
from frazil.stages.notes import ProtectedFields, StageNote
from frazil.stages.package import PackageStage
from frazil.stages.stage import TableStage
from frazil.stages.watch import StageWatch

NOTES: tuple[type[StageNote], ...] = (ProtectedFields,)
"""The notes of all kinds of stages, whose keys a document has also where a table has no such stage."""


def table_stages(spec: TableSpec) -> tuple[TableStage, ...]:
    """Returns the stages that the settings of a table ask for."""
    return tuple(filter(None, _stages(spec)))


def _stages(spec: TableSpec) -> Iterator[TableStage | None]:
    for name, keys in spec.stages:
        yield PackageStage(name, keys.model_dump_json(by_alias=True))
    for settings in spec.stage_settings.values():
        if settings.is_used:
            yield TABLE_STAGES.get(settings.stage).maker(settings)


def stage_watches() -> tuple[StageWatch, ...]:
    """Returns what the driver remembers of a table for its stages, at its start."""
    kinds = map(TABLE_STAGES.get, TABLE_STAGES.added())
    return tuple(kind.watcher() for kind in kinds if kind.watch is not None)
