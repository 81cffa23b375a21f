"""Every command either changes nothing that others see, or is recorded in the audit log: none is forgotten."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from docs.scan import ROOT, name_of, nodes, sources
from frazil.cli.commands import every_command
from tests.needs import needs_all

#: Commands that read, or write files and processes of their user alone.
_UNRECORDED = {
    "blobs demo": "runs a demo",
    "blobs verify": "reads",
    "check": "reads",
    "dead-letters list": "reads",
    "dead-letters show": "reads",
    "demo": "runs a demo",
    "dev broker": "runs a broker of its user",
    "doctor": "reads",
    "init": "prints a pipeline file",
    "lineage": "reads",
    "plan": "reads",
    "run": "is the pipeline, whose changes are in its log and in snapshots",
    "schema": "reads",
    "setup": "fetches jars",
    "size": "reads",
    "status": "reads",
    "test": "writes into a folder of its own",
    "topic show": "reads",
    "try": "reads",
    "verify": "reads",
    "watermark": "reads",
}
#: Commands that call the HTTP API of the running pipeline, which records them.
_THROUGH_THE_API = {"pause", "reset", "resume", "stand-down"}


@needs_all()
def test_every_command_is_recorded_or_changes_nothing_or_calls_the_api() -> None:
    commands = {command.name for command in every_command() if not command.name.startswith("import ")}
    recorded = {operation for operation, _ in recorded_operations()}
    assert commands == recorded | _UNRECORDED.keys() | _THROUGH_THE_API
    assert recorded & (_UNRECORDED.keys() | _THROUGH_THE_API) == set()


def test_a_command_is_recorded_where_it_is_implemented() -> None:
    targets = {command.name: command.target.partition(":")[0].split(".") for command in every_command()}
    places = {operation: name_of(path).removesuffix(".py").split("/") for operation, path in recorded_operations()}
    assert {operation: targets[operation][-len(place) :] for operation, place in places.items()} == places


@needs_all()
def test_the_page_names_every_command_that_is_recorded() -> None:
    page = (ROOT / "docs/security/audit.md").read_text()
    [row] = re.findall(r"^\| `operation` \|(.*), or the operation of the", page, re.MULTILINE)
    operations = [operation for operation, _ in recorded_operations()]
    assert sorted(re.findall(r"`([^`]+)`", row)) == sorted(operations)


def recorded_operations() -> list[tuple[str, Path]]:
    """Returns the operation of each call of `record_command`, with its module."""
    return [
        (str(node.args[1].value), path)
        for path in sources()
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "record_command"
        and isinstance(node.args[1], ast.Constant)
    ]
