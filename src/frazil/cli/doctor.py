"""`frazil doctor`: reports what this machine has and lacks, and what to do about it."""

from __future__ import annotations

from typing import Annotated

import typer

from frazil.cli.output import Output
from frazil.runtime.jars import are_jars_present, jars
from frazil.runtime.machine import PRODUCT_USES, Check, checks

Fetch = Annotated[bool, typer.Option("--fetch", help="Fetch missing jars first.")]


def command(output: Output, fetch: Fetch = False) -> int:
    """Check Java, jars and the rest of what Frazil needs on this machine; exit with 1 when something is missing."""
    if fetch:
        _fetch_missing(output)
    found = checks()
    is_well = all(check.is_ok for check in found)
    output.result({"ok": is_well, "checks": [_document(check) for check in found]}, "\n".join(map(_line, found)))
    return 0 if is_well else 1


def _fetch_missing(output: Output) -> None:
    for use in PRODUCT_USES:
        if not are_jars_present(use):
            output.note(f"fetching the jars for {use}")
            jars(use)


def _document(check: Check) -> dict[str, str | bool]:
    return {"name": check.name, "ok": check.is_ok, "found": check.found, "remedy": check.remedy}


def _line(check: Check) -> str:
    mark = "ok     " if check.is_ok else "problem"
    remedy = f"; {check.remedy}" if check.remedy else ""
    return f"{mark}  {check.name:<16}{check.found}{remedy}"
