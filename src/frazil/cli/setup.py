"""`frazil setup`: gets the jars, and does once what a first start would otherwise wait for; writes an offline bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from frazil.cli.output import Output
from frazil.errors import SpecError
from frazil.runtime.bundle import install_bundle, write_bundle
from frazil.runtime.jars import USES, Use, jars
from frazil.runtime.java import find_java
from frazil.runtime.warm import compile_all, record_start

Bundle = Annotated[
    Path | None,
    typer.Option("--bundle", metavar="FILE", help="Write an offline bundle to this file, for a machine like this one."),
]
Source = Annotated[
    Path | None, typer.Option("--from", metavar="FILE", help="Take the jars from this bundle; no network is needed.")
]

_ERROR = "error: "
"""How the line begins in which a command reports its failure."""


def command(output: Output, bundle: Bundle = None, source: Source = None) -> int:
    """Fetch the jars now, compile what is compiled at a first start, and record the classes that every start loads.

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
