"""What the package adds to Frazil, by its entry points."""

from frazil.cli.commands import Command

TEST = Command(
    "test", "frazil_testing.cases_command:command", "Play cases of the pipeline that are files, without a broker."
)
TRY = Command(
    "try", "frazil_testing.try_command:command", "Show the rows that a table makes of live records; write nothing."
)
