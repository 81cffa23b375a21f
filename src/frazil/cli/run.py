"""`frazil run`: runs the pipeline until it is stopped, or until everything that was there at the start is committed."""

from __future__ import annotations

from typing import Annotated

import typer

from frazil.api.results import RunResult
from frazil.api.run import CAUGHT_UP_TIMEOUT_S, Limits, NothingInHand, Stopping, run_pipeline
from frazil.cli.commands import import_to_stay
from frazil.cli.output import DEFAULT_FILE, Output, SpecFile
from frazil.errors import SpecError
from frazil.spec import load_spec
from frazil.spec.syntax.units import parse_duration

UntilCaughtUp = Annotated[
    bool, typer.Option("--until-caught-up", help="Read up to the current end offsets of the topics, commit, and exit.")
]
Timeout = Annotated[
    str | None,
    typer.Option(
        "--timeout",
        metavar="DURATION",
        show_default="5m",
        help="How long --until-caught-up waits for an unavailable service, or builds the archives for a cluster, before it"
        " ends with exit code 1; time in which batches are read does not count. Waits for a topic that does not exist"
        " only if this option is given.",
    ),
]
Grace = Annotated[
    str,
    typer.Option(
        "--grace", metavar="DURATION", help="How long the batch in flight may take to be committed after SIGTERM."
    ),
]
STOPPED_TABLES = 4


def command(
    output: Output,
    file: SpecFile = DEFAULT_FILE,
    until_caught_up: UntilCaughtUp = False,
    timeout: Timeout = None,
    grace: Grace = "25s",
) -> int:
    """Run the pipeline until SIGTERM or Ctrl-C; then finish and commit the batch in flight and exit. A batch that is not
    committed within --grace is abandoned; the next run reads it again.

    An unavailable service is retried, with --until-caught-up for at most --timeout. A table that stops is logged, and
    the other tables continue. Records after an open transaction are read by the next run, and count as lag.

    Exit code: 0 when the run was stopped or has caught up; 1 when it failed, or a service was unavailable for longer than
    --timeout; 2 when the pipeline file is wrong, or it names no topic and none of its regular expressions matches one; 3
    when another run of the pipeline has taken over; 4 when a table stopped, or could not be read to the end with
    --until-caught-up.
    """
    limits, stopping = _limits(until_caught_up, timeout), Stopping(parse_duration(grace))
    try:
        spec = load_spec(file)
        output.hide(spec.file.secrets)
        if not until_caught_up:  # Its log reports what it does.
            output.end_progress()
        result = run_pipeline(spec, output.redaction, stopping, limits, output.doing, import_to_stay)
    except NothingInHand:
        result = RunResult(is_early=True)
    return report(output, result)


def report(output: Output, result: RunResult) -> int:
    """Writes how the tables are at the end of a run; returns the exit code."""
    lines = [f"{name}: {sentence}" for name, sentence in result.sentences.items()]
    nothing = "stopped before the tables were loaded" if result.is_early else "no table is known yet"
    output.result(result.document(), "\n".join(lines) or nothing)
    return 0 if result.is_ok else STOPPED_TABLES


def _limits(until_caught_up: bool, timeout: str | None) -> Limits:
    """Returns when the run ends by itself.

    Raises: SpecError for a text that is not a duration.
    """
    if until_caught_up:
        return Limits(CAUGHT_UP_TIMEOUT_S if timeout is None else parse_duration(timeout), timeout is not None)
    if timeout is not None:
        raise SpecError("`--timeout` is only for a run with `--until-caught-up`", remedy="add --until-caught-up")
    return Limits()
