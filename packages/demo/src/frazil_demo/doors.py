"""What the package adds to Frazil, by its entry points."""

from frazil.cli.commands import Command

DEMO = Command("demo", "frazil_demo.command:command", "Run a broker, producers and a pipeline on this machine.")
