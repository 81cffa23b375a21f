"""What the package adds to Frazil, by its entry points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from frazil.cli.commands import Command
from frazil.plugins.driver import ObserverKind

if TYPE_CHECKING:  # Help needs what is here, and not the time of that import.
    from frazil.spec import PipelineSpec

PUBLISH = Command(
    "publish", "frazil_publish.commands:publish", "Show readers what a table's branch has, if its audits hold."
)
WATERMARK = Command(
    "watermark", "frazil_publish.commands:watermark", "Print up to when what readers see of a table is complete."
)


def _is_wanted(spec: PipelineSpec, _environment: Mapping[str, str]) -> bool:
    return any(table.publishing.is_scheduled for table in spec.declared)


SCHEDULE = ObserverKind(_is_wanted, "frazil_publish.opening:open_schedule")
"""Publishes and tags tables, where the pipeline file has `publish` or `tags`."""
