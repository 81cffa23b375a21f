"""`frazil demo`: a broker, producers, a pipeline and a live view; ends cleanly and keeps the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from frazil.cli.output import Output
from frazil.clock import SystemClock
from frazil.errors import UnavailableError
from frazil_demo.producers import Course, counts
from frazil_demo.session import Session
from frazil_demo.show import Show, save_picture, summarise

Once = Annotated[bool, typer.Option("--once", help="Send a fixed number of records, print what arrived, and end.")]
Records = Annotated[int, typer.Option(min=100, help="How many records --once sends.")]
Rate = Annotated[int, typer.Option(min=10, max=20_000, help="How many records are sent per second.")]
Directory = Annotated[
    Path, typer.Option("--dir", metavar="DIR", help="The folder of the tables, which is emptied at the start.")
]
Picture = Annotated[Path | None, typer.Option(metavar="FILE", help="Save the live view as an SVG.")]
_LATE_AFTER_S = 20


def command(
    output: Output,
    once: Once = False,
    records: Records = 30_000,
    rate: Rate = 2_000,
    directory: Directory = Path("frazil-data/demo"),
    picture: Picture = None,
) -> int:
    """Run a Kafka broker, producers of three kinds of events and the pipeline on this machine; watch the tables grow.

    After a while the events get new fields, and the tables get the columns. Ctrl-C ends the demo: all sent records are
    read, committed and compared with the tables, and a query is printed. A second Ctrl-C does not wait for unread records.
    Before the pipeline is started, Ctrl-C ends the command at once.
    No process keeps running; the tables stay until the next demo in the same folder.

    Exit code: 0 when the tables have every sent record exactly once; 1 when they do not, or when a process failed.
    """
    clock = SystemClock()
    course = Course(rate, counts(records) if once else None, counts(records // 2 if once else rate * _LATE_AFTER_S))
    with Session(directory, course, clock) as session:
        output.note("starting a Kafka broker, producers and the pipeline")
        session.start()
        show = Show(session, clock, output.note)
        show.listen()  # Not before: Ctrl-C in a terminal ends the programs that the start waits for too.
        show.run()
        exit_code = session.stop_pipeline()
        if exit_code:
            message = f"the pipeline ended with code {exit_code}"
            raise UnavailableError(message, remedy="read the pipeline's log", where=str(session.log))
        arrivals = session.lake.compare(session.producers.ledger)
        output.result(*summarise(arrivals, session.lake.top_pages(), session.lake))
        if picture is not None and show.best is not None:
            save_picture(show.best, picture)
    return 0 if all(arrival.is_equal for arrival in arrivals) else 1
