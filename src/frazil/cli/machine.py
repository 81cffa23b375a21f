"""`frazil setup`, `frazil doctor` and `frazil dev broker`: what this machine has, gets, and runs for development.

`setup` gets the jars, and does once what a first start would otherwise wait for; it writes an offline bundle too.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from frazil.cli.output import Output
from frazil.clock import SystemClock
from frazil.errors import SpecError, UnavailableError
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.jars import USES, Use, jars
from frazil.runtime.java import find_java
from frazil.runtime.machine import Check, checks
from frazil.runtime.setup import compile_all, install_bundle, record_start, write_bundle

Bundle = Annotated[
    Path | None,
    typer.Option("--bundle", metavar="FILE", help="Write an offline bundle to this file, for a machine like this one."),
]
Source = Annotated[
    Path | None, typer.Option("--from", metavar="FILE", help="Take the jars from this bundle; no network is needed.")
]

_ERROR = "error: "
"""How the line begins in which a command reports its failure."""


def setup(output: Output, bundle: Bundle = None, source: Source = None) -> int:
    """Fetch the jars, compile the code that a first start compiles, and record the classes that every start loads.

    Skips finished steps, and continues where it was interrupted. Without this command the first `frazil run` fetches the
    jars. The offline bundle contains Frazil, the packages that it requires and the jars, with checksums, for a machine
    with this operating system and this version of Python; it has a README.

    Exit code: 0 when everything is installed, or the bundle is written; 1 when jars cannot be fetched or stored, or the
    bundle cannot be read or written.
    """
    if bundle is not None and source is not None:
        raise SpecError("`--bundle` writes a bundle and `--from` reads one", remedy="leave one of the two out")
    if source is not None:
        install_bundle(source)
    jar_counts: dict[str, int] = {use: _jars(output, use) for use in USES}
    if bundle is None:
        slower = _prepare(output)
    else:
        output.note("packing packages and jars: half a minute, and 1 GiB")
        write_bundle(bundle)
        slower = ""
    text = f"bundle: {bundle}" if bundle else f"ready; starts will be slower: {slower}" if slower else "ready"
    output.result({"jars": jar_counts, "bundle": str(bundle) if bundle else None, "slower": slower}, text)
    return 0


def _jars(output: Output, use: Use) -> int:
    jar_count = len(jars(use))
    output.note(f"jars for {use}: {jar_count}")
    return jar_count


def _prepare(output: Output) -> str:
    """Returns why starts will be slower than they could be; empty where they will not."""
    find_java()  # Before minutes of compiling, which needs none.
    output.note("compiling the loops that read records: minutes at the first time")
    failure = compile_all()
    if not failure:
        output.note("recording the classes of a first run")
        failure = record_start()
    lines = failure.strip().splitlines() or [""]
    return next((line.removeprefix(_ERROR) for line in reversed(lines) if line.startswith(_ERROR)), lines[-1])


def doctor(output: Output) -> int:
    """Check Java, jars and the rest of what Frazil needs on this machine; exit with 1 when something is missing."""
    results = checks()
    is_well = all(check.is_ok for check in results)
    output.result(
        {
            "ok": is_well,
            "checks": [
                {"name": check.name, "ok": check.is_ok, "found": check.result, "remedy": check.remedy}
                for check in results
            ],
        },
        "\n".join(map(_check_line, results)),
    )
    return 0 if is_well else 1


def _check_line(check: Check) -> str:
    mark = "ok     " if check.is_ok else "problem"
    remedy = f"; {check.remedy}" if check.remedy else ""
    return f"{mark}  {check.name:<16}{check.result}{remedy}"


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
