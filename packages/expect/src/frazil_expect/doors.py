"""What the package adds to Frazil, by its entry points."""

from frazil.plugins.stages import StageKind

EXPECT = StageKind(
    "frazil.stages.expect_settings:ExpectSpec",
    "frazil_expect.stage:ExpectStage",
    watch="frazil_expect.watch:ExpectWatch",
)
