"""What the package adds to Frazil, by its entry points."""

from frazil.plugins.stages import TableStageKind

EXPECT = TableStageKind("frazil_expect.stage:expect_stage", watch="frazil_expect.watch:ExpectWatch")
