"""What the package adds to Frazil, by its entry points."""

from frazil.cli.commands import Command

REPLAY = Command(
    "replay", "frazil_replay.command:command", "Write rows or changes of a table to a topic, exactly once."
)
