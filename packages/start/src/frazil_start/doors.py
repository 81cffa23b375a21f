"""What the package adds to Frazil, by its entry points."""

from frazil.cli.commands import Command

INIT = Command(
    "init", "frazil_start.init_command:command", "Propose a first pipeline file for the topics of a cluster."
)
SIZE = Command("size", "frazil_start.size_command:command", "Estimate cores, memory, requests and price of a load.")
