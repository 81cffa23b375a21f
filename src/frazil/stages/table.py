"""The stages of a table, in the order in which they see its rows, and what documents have of each kind."""

from __future__ import annotations

from frazil.plugins.stages import STAGES, TABLE_STAGES, StageKind
from frazil.spec.models import STAGE_FIELDS, TableSpec
from frazil.stages.notes import ProtectedFields, StageNote
from frazil.stages.stage import TableStage
from frazil.stages.watch import StageWatch

NOTES: tuple[type[StageNote], ...] = (ProtectedFields,)
"""The notes of stages whose keys a document has also where a table has no such stage."""


def table_stages(spec: TableSpec) -> tuple[TableStage, ...]:
    """Returns the stages that the settings of a table ask for."""
    used = ((name, settings) for name, settings in spec.stage_settings.items() if settings.is_used)
    stages = (_kind(name).load("stage").make(name, settings) for name, settings in used)
    return tuple(stage for stage in stages if stage is not None)


def stage_watches(spec: TableSpec) -> tuple[StageWatch, ...]:
    """Returns what the driver remembers of a table for its stages, at its start."""
    kinds = [_kind(name) for name, settings in spec.stage_settings.items() if settings.is_used]
    return tuple(kind.load("watch")() for kind in kinds if kind.watch is not None)


def _kind(name: str) -> StageKind:
    return (TABLE_STAGES if name in STAGE_FIELDS else STAGES).get(name)
