"""`frazil check`: validates the pipeline file, reaches the services it names, and reports what is missing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Annotated

import typer

from frazil.api.pipeline import Pipeline
from frazil.cli.output import DEFAULT_FILE, Output, SpecFile
from frazil.ops.check import Finding
from frazil.ops.offline_check import NOT_CHECKED
from frazil.ops.reports import to_json
from frazil.secrets import Secrets
from frazil.spec import load_spec
from frazil.spec.load import read_settings
from frazil.spec.syntax.shown import shown

Offline = Annotated[bool, typer.Option("--offline", help="Check what can be checked without any service.")]
Show = Annotated[
    bool,
    typer.Option("--show", help="Show the file as it is read, with the line or option that each value comes from."),
]


def command(output: Output, file: SpecFile = DEFAULT_FILE, offline: Offline = False, show: Show = False) -> int:
    """Validate the pipeline file and check everything that a run needs: Java, jars, Spark's master, Kafka, election,
    catalog, store, schema registry.

    Compares the newest schemas of the registry with the tables and shows which schema changes would be refused; decodes
    a sample of up to 10,000 unread records per table and shows where a run would stop at them. Analyses each query for
    the fields of the sample, of the table and of the registry's schemas, and shows its columns, or its error, such as a
    column that no record has. Shows the result of each check and, when it failed, the remedy. A failed check does not
    prevent the others. Changes nothing: no table, no folder, no file.

    With --offline it connects to no service: it validates the file in each of its environments, parses queries, and
    lists what it did not check. --show prints the settings first, without defaults and secrets.

    Exit code: 0 when `frazil run` would find everything that it needs; 1 when a service is unreachable, something is
    missing, or a query cannot be computed; 2 when the pipeline file is wrong, or one of its regular expressions matches
    no topic.
    """
    secrets = Secrets(os.environ, has_placeholders=offline)
    spec = load_spec(file, secrets=secrets)
    output.hide(spec.file.secrets)
    pipeline = Pipeline(spec, file, output.redaction)
    result = pipeline.check_offline(secrets.missing) if offline else pipeline.check(progress=output.doing)
    settings = read_settings(file) if show else ()
    document = result.document() | {
        "not_checked": list(NOT_CHECKED) if offline else [],
        "settings": [to_json(setting, "depth", "label") for setting in settings],
    }
    lines = [*shown(settings), *([""] if show else [])]
    lines += [line for finding in result.findings for line in _lines(finding)]
    lines += [f"not checked: {', '.join(NOT_CHECKED)}"] if offline else []
    output.result(document, "\n".join(lines))
    return 0 if result.is_ok else 1


def _lines(finding: Finding) -> Iterator[str]:
    mark = "ok     " if finding.is_ok else "problem"
    yield f"{mark}  {finding.name:<24} {finding.found}"
    if not finding.is_ok:
        for word, text in (("tried", finding.tried), ("where", finding.where), ("remedy", finding.remedy)):
            if text:
                yield f"         {word}: {text}"
