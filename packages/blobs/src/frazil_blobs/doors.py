"""What the package adds to Frazil by its entry points, but for the stage (`stage.STAGE`), which imports more."""

from __future__ import annotations

from frazil.cli.commands import Command
from frazil.plugins.driver import ActionKind

VERIFY = Command(
    "blobs verify",
    "frazil_blobs.verify:command",
    "Prove that every reference to an object resolves, with its checksum.",
)
DEMO = Command("blobs demo", "frazil_blobs.demo:command", "Show similar pictures of two snapshots.")
COMPACT = ActionKind(
    "frazil_blobs.upkeep:plan_compaction", "frazil_blobs.upkeep:compact", is_rewrite=True, is_daily=True
)
INDEX = ActionKind("frazil_blobs.index_upkeep:plan_index", "frazil_blobs.index_upkeep:index", is_daily=True)
SWEEP = ActionKind("frazil_blobs.upkeep:plan_sweep", "frazil_blobs.upkeep:sweep", is_daily=True)
