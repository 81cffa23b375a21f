"""What the package adds to Frazil, by its entry points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from frazil.cli.commands import Command
from frazil.plugins.driver import ObserverKind

if TYPE_CHECKING:  # Help needs what is here, and not the time of that import.
    from frazil.spec import PipelineSpec


def _is_wanted(spec: PipelineSpec, _environment: Mapping[str, str]) -> bool:
    return spec.process.http is not None


HTTP = ObserverKind(_is_wanted, "frazil_http.observer:open_observer", "frazil_http.observer:check_http")
PAUSE = Command("pause", "frazil_http.commands:pause", "Pause one table of the running pipeline.")
RESUME = Command("resume", "frazil_http.commands:resume", "Continue a paused or stopped table of the running pipeline.")
RESET = Command("reset", "frazil_http.commands:reset", "Make one table of the running pipeline begin again at `start`.")
STAND_DOWN = Command(
    "stand-down", "frazil_http.commands:stand_down", "Let another process of the pipeline take over from this one."
)
