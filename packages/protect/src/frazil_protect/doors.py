"""What the package adds to Frazil, by its entry points."""

from frazil.plugins.stages import TableStageKind

PROTECT = TableStageKind("frazil_protect.stage:protect_stage", kernels="frazil_protect.kernels:KERNELS")
