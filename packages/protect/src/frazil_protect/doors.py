"""What the package adds to Frazil, by its entry points."""

from frazil.plugins.stages import StageKind

PROTECT = StageKind(
    "frazil.stages.protect_settings:ProtectSpec",
    "frazil_protect.stage:ProtectStage",
    note="frazil.stages.notes:ProtectedFields",
    kernels="frazil_protect.kernels:KERNELS",
)
