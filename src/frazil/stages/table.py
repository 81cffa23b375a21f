"""The stages of a table, in the order in which they see its rows, and what documents have of each kind."""

from __future__ import annotations

from frazil.spec.models import TableSpec
from frazil.stages.expect.stage import expect_stage
from frazil.stages.expect.watch import ExpectWatch
from frazil.stages.notes import StageNote
from frazil.stages.package import PackageStage
from frazil.stages.protect.rules import ProtectedFields
from frazil.stages.protect.stage import protect_stage
from frazil.stages.stage import TableStage
from frazil.stages.watch import StageWatch

NOTES: tuple[type[StageNote], ...] = (ProtectedFields,)
"""The notes of all kinds of stages, whose keys a document has also where a table has no such stage."""


def table_stages(spec: TableSpec) -> tuple[TableStage, ...]:
    """Returns the stages that the settings of a table ask for."""
    packages = (PackageStage(name, settings.model_dump_json(by_alias=True)) for name, settings in spec.stages)
    own = protect_stage(spec.protection), expect_stage(spec.expectations)
    return tuple(filter(None, (*packages, *own)))


def stage_watches() -> tuple[StageWatch, ...]:
    """Returns what the driver remembers of a table for its stages, at its start."""
    return (ExpectWatch(),)
