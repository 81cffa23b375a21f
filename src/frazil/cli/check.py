"""`frazil check`: validates the pipeline file, reaches the services it names, and reports what is missing."""

from __future__ import annotations

from collections.abc import Iterator

from frazil.api.pipeline import open_pipeline
from frazil.cli.output import DEFAULT_FILE, Output, SpecFile
from frazil.ops.check import Finding


def command(output: Output, file: SpecFile = DEFAULT_FILE) -> int:
    """Validate the pipeline file and check what it needs: Java, jars, Spark's master, Kafka, election, catalog, store,
    schema registry.

    Compares the newest schemas of the registry with the tables and shows which schema changes would be refused; decodes a
    sample of up to 10,000 unread records per table and shows where a run would stop at them. Analyses each query for the
    fields of the sample, of the table and of the registry's schemas, and shows the columns that it makes, or what is wrong
    with it, such as a column that no record has. Shows what each check did and,
    when it failed, what to do. A failed check does not prevent the others. Changes nothing: no table, no folder, no file.

    Exit code: 0 when `frazil run` would find all it needs; 1 when a service is unreachable, something is missing, or a
    query cannot be computed; 2 when
    the pipeline file is wrong, also when one of its regular expressions matches no topic.
    """
    pipeline = open_pipeline(output, file)
    result = pipeline.check(progress=output.doing)
    output.result(result.document(), "\n".join(line for finding in result.findings for line in _lines(finding)))
    return 0 if result.is_ok else 1


def _lines(finding: Finding) -> Iterator[str]:
    mark = "ok     " if finding.is_ok else "problem"
    yield f"{mark}  {finding.name:<24} {finding.found}"
    if not finding.is_ok:
        for word, text in (("tried", finding.tried), ("where", finding.where), ("remedy", finding.remedy)):
            if text:
                yield f"         {word}: {text}"
