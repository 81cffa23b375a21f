"""What the package adds to Frazil, by its entry points."""

from frazil.cli.commands import Command

LIST = Command(
    "dead-letters list", "frazil_deadletters.commands:list_dead_letters", "Show how many dead letters each table has."
)
SHOW = Command("dead-letters show", "frazil_deadletters.commands:show", "Show the dead letters themselves.")
REPLAY = Command(
    "dead-letters replay",
    "frazil_deadletters.commands:replay",
    "Write dead letters that can be decoded now into their table.",
)
DROP = Command("dead-letters drop", "frazil_deadletters.commands:drop", "Remove dead letters permanently.")
