"""The stages of a table, in the order in which they see its rows, and what documents have of each kind."""

from __future__ import annotations

from frazil.plugins.stages import STAGES
from frazil.spec.models import TableSpec
from frazil.stages.notes import StageNote
from frazil.stages.stage import TableStage
from frazil.stages.watch import StageWatch

NOTES: tuple[type[StageNote], ...] = tuple(
    kind.load("note") for kind in STAGES.built_in.values() if kind.note is not None
)
"""The notes of Frazil's own stages, whose keys a document has also where a table has no such stage."""


def table_stages(spec: TableSpec) -> tuple[TableStage, ...]:
    """Returns the stages that the settings of a table ask for."""
    stages = (STAGES.get(name).load("stage").make(name, settings) for name, settings in spec.stage_settings.items())
    return tuple(stage for stage in stages if stage is not None)


def stage_watches(spec: TableSpec) -> tuple[StageWatch, ...]:
    """Returns what the driver remembers of a table for its stages, at its start."""
    kinds = [STAGES.get(name) for name in spec.stage_settings]
    return tuple(kind.load("watch")() for kind in kinds if kind.watch is not None)
