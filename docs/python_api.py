"""The reference page of the Python API, made of the signatures, docstrings and comments in its source."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import frazil
from frazil.api.pipeline import Pipeline, load
from frazil.api.results import CheckResult, PlanResult, RunResult, VerifiedTable, VerifyResult
from frazil.errors import FrazilError
from frazil.ops.check import Finding
from frazil.ops.pipeline_status import Derived, Lag, Noticed, PipelineReport, TableCondition, TableProgress, TableStatus
from frazil.ops.plan import PlannedQuery, PlannedTable, SampleFindings

_COMMENTED = re.compile(r"((?:^ +#:.*\n)+)^ +(\w+):", re.MULTILINE)
_INTERNAL = re.compile(r"^(Annotated\[)(.*?), .*\]( \| None)?$")
RESULTS = (
    CheckResult, Finding, PlanResult, PlannedTable, SampleFindings, PlannedQuery, RunResult, PipelineReport, TableStatus,
    TableCondition, Lag, TableProgress, Noticed, Derived, VerifyResult, VerifiedTable,
)  # fmt: skip
_INTRODUCTION = """\
A Python program checks, plans and runs a pipeline with the functions that the commands use:

```python
import frazil

pipeline = frazil.load("frazil.yaml")
plan = pipeline.plan()
if plan.has_changes:
    print([table.name for table in plan.tables if table.action == "create"])
result = pipeline.run(until_caught_up=True, timeout="5m")
assert result.is_ok, result.sentences
```

The commands call this API and print its results: `result.document()` is the document that `--output json` prints.
Results are values: nothing changes them, and secrets in their texts are masked. `import frazil` takes a millisecond;
everything else is imported when it is used. The package has types (`py.typed`).

Everything in `frazil.__all__` is kept until a major version; other modules of `frazil` may change
([upgrades](../deploy/upgrade.md)). There are pages for [notebooks](../guides/notebook.md),
[Airflow](../guides/airflow.md), [Dagster](../guides/dagster.md) and [dbt](../guides/dbt.md)."""
_ERRORS = """\
Each error that a method raises is a `frazil.FrazilError` with `message`,
`remedy` and `where`, and means one thing to do ([errors](errors.md)):"""
_PROCESS = """\
- A process can have one JVM with Spark. `run` and `verify` start one, and end it; in a second thread, or with a Spark
session of your own in the process, they raise `SpecError`. `check`, `plan` and `status` start a small one of their own,
and may be called at any time.
- No method handles signals. An exception that a signal handler raises in the main thread, such as `KeyboardInterrupt`,
ends `run` like a kill: nothing is lost or written twice, and the next run reads the batch again. `stop` ends it after
the commit of the batch.
- The log goes to the logger `frazil` of Python's `logging`, as `event=… key=value`. If a program has configured
structlog, its configuration applies to the events. Secrets are masked in both.
- Relative paths in the pipeline file are relative to the current directory, as for the commands."""


def python_page() -> list[str]:
    """Returns the blocks of the page."""
    members = [member for name, member in vars(Pipeline).items() if not name.startswith("_") and name != "open_status"]
    blocks = ["# The Python API", _INTRODUCTION, "## Functions", *_function("frazil.load", load)]
    blocks += _function("frazil.udf", frazil.udf)
    blocks += ["## Pipeline", _text(Pipeline), "### Properties", _table(_properties(Pipeline))]
    for member in members:
        if inspect.isfunction(member):
            blocks += _function(f"pipeline.{member.__name__}", member)
    blocks += ["## Processes, signals and the log", _PROCESS, "## Errors", _ERRORS, _table(_errors())]
    blocks += ["## Results"]
    for kind in RESULTS:
        blocks += [f"### {kind.__name__}", _text(kind), _table([*_fields(kind), *_properties(kind)])]
    return blocks


def _function(name: str, function: Any) -> list[str]:
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters.values() if p.name != "self"]
    shown = signature.replace(parameters=parameters)
    return [f"### {name}", f"```text\n{name}{str(shown).replace(chr(39), '')}\n```", _text(function)]


def _text(owner: Any) -> str:
    return inspect.cleandoc(owner.__doc__ or "")


def _fields(kind: type) -> Iterator[tuple[str, str, str]]:
    comments = {name: comment for comment, name in _COMMENTED.findall(inspect.getsource(kind))}
    for field in fields(kind):
        if field.name in comments:
            words = " ".join(comments[field.name].replace("#:", " ").split())
            yield field.name, _INTERNAL.sub(r"\2\3", str(field.type)), words
        elif kind is TableStatus and field.name in ("condition", "lag", "progress", "noticed", "derived"):
            yield field.name, str(field.type), "See below."


def _properties(kind: type) -> Iterator[tuple[str, str, str]]:
    for name, member in vars(kind).items():
        if isinstance(member, property) and member.fget is not None and not name.startswith("_"):
            yield name, str(inspect.signature(member.fget).return_annotation), " ".join(_text(member).split())


def _errors() -> Iterator[tuple[str, str, str]]:
    kinds = [getattr(frazil, name) for name in frazil.__all__ if name.endswith("Error")]
    for kind in kinds:
        if kind is not FrazilError:
            meaning, remedy = _text(kind).splitlines()[:2]
            yield f"frazil.{kind.__name__}", meaning, remedy


def _table(rows: Any) -> str:
    cells = [(f"`{name}`", f"`{kind}`" if " " not in kind or "|" in kind else kind, text) for name, kind, text in rows]
    lines = ["| name | type | meaning |", "| --- | --- | --- |"]
    return "\n".join([*lines, *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells)])
