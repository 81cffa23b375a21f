"""What the package adds to Frazil, by its entry points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from frazil.cli.commands import Command
from frazil.plugins.driver import MethodKind, ObserverKind

if TYPE_CHECKING:  # Help needs what is here, and not the time of that import.
    from frazil.spec import PipelineSpec

VERIFY = Command("verify", "frazil_verify.command:command", "Prove that tables have exactly the rows of their topics.")

REPAIR = Command("repair", "frazil_verify.repair:command", "Repair the differences in a report of `verify`.")

METHOD = MethodKind("frazil_verify.verify:verify_tables")
"""`verify` of the Python API's `Pipeline`."""


def _is_wanted(spec: PipelineSpec, _environment: Mapping[str, str]) -> bool:
    return spec.process.verify is not None


SCHEDULE = ObserverKind(_is_wanted, "frazil_verify.schedule:open_schedule")
"""Compares newest commits with the topics, with `verify` in the pipeline file. Importing it costs a fifth of a second."""
