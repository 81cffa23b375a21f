"""`frazil doctor`: reports what this machine has and lacks, and what to do about it."""

from __future__ import annotations

from frazil.cli.output import Output
from frazil.runtime.machine import Check, checks


def command(output: Output) -> int:
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
        "\n".join(map(_line, results)),
    )
    return 0 if is_well else 1


def _line(check: Check) -> str:
    mark = "ok     " if check.is_ok else "problem"
    remedy = f"; {check.remedy}" if check.remedy else ""
    return f"{mark}  {check.name:<16}{check.result}{remedy}"
