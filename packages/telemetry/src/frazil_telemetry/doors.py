"""What the package adds to Frazil, by its entry points."""

from frazil.plugins.driver import ObserverKind

_TELEMETRY = "frazil_telemetry.telemetry"
TELEMETRY = ObserverKind(f"{_TELEMETRY}:is_wanted", f"{_TELEMETRY}:open_telemetry", f"{_TELEMETRY}:check_telemetry")
