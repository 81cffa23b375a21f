"""`frazil dev broker`: the embedded Kafka broker in the foreground, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from frazil.cli.output import Output
from frazil.clock import SystemClock
from frazil.errors import UnavailableError
from frazil.runtime.broker import EmbeddedBroker

Port = Annotated[
    int,
    typer.Option(min=0, max=65_535, help="The port to listen on, on the loopback interface only; 0 picks a free one."),
]
Directory = Annotated[Path, typer.Option("--dir", metavar="DIR", help="The folder of the broker's topics.")]
_CHECK_EVERY_S = 0.5
# The default of every broker, so that a producer needs no other command first.
_OWN = {"auto.create.topics.enable": "true"}


def broker(output: Output, port: Port = 9092, directory: Directory = Path(".frazil/broker")) -> int:
    """Run a real single-node Kafka broker until Ctrl-C or SIGTERM; its topics stay in the directory. A topic is created when
    a producer first writes to it.
    """
    output.end_progress()
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, signal.default_int_handler)
    with suppress(KeyboardInterrupt), EmbeddedBroker(directory, port, _OWN) as running:
        address = running.bootstrap_servers
        output.result(
            {"bootstrap_servers": address, "pid": running.pid, "directory": str(running.directory)},
            f"Kafka broker on {address}, its topics in {running.directory}; Ctrl-C stops it",
        )
        clock = SystemClock()
        while running.is_running:
            clock.sleep(_CHECK_EVERY_S)
        raise UnavailableError("the broker ended by itself", remedy="read the broker's log", where=str(running.log))
    return 0
