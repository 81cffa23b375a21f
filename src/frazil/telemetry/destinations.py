"""Where telemetry goes: to the addresses of the pipeline file, or of the standards' environment variables. Without an
address none of the libraries is loaded, which are extras of the package.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from frazil.errors import SpecError
from frazil.spec.connections import TelemetrySpec

_LONGEST_PAUSE_S = 86_400.0
OTLP, OPENLINEAGE = "otlp", "openlineage"
_VARIABLES = {
    OTLP: (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    ),
    OPENLINEAGE: ("OPENLINEAGE_URL",),
}
_SWITCHES = {OTLP: "OTEL_SDK_DISABLED", OPENLINEAGE: "OPENLINEAGE_DISABLED"}
_EXTRAS = {
    OTLP: ("otel", ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")),
    OPENLINEAGE: ("openlineage", ("openlineage.client",)),
}


@dataclass(frozen=True)
class Destination:
    """One place that telemetry goes to."""

    #: `otlp` or `openlineage`.
    name: str
    #: The address that the pipeline file has; None where the environment has it.
    url: str | None
    #: The key, or the variable, that has the address.
    where: str

    def missing_extra(self) -> SpecError | None:
        """Returns the error where the libraries that it needs are not installed."""
        extra, modules = _EXTRAS[self.name]
        if all(map(_is_installed, modules)):
            return None
        return SpecError(
            f"`{self.where}` needs libraries that are not installed",
            remedy=f"install them with `pip install 'frazil[{extra}]'`, or remove the address",
            where=self.where,
        )


def destinations(spec: TelemetrySpec, environment: Mapping[str, str]) -> Iterator[Destination]:
    """Yields the places that telemetry goes to."""
    for name, variables in _VARIABLES.items():
        if environment.get(_SWITCHES[name], "").strip().lower() == "true":
            continue
        declared: str | None = getattr(spec, name)
        found = [variable for variable in variables if environment.get(variable)]
        if declared:
            yield Destination(name, declared, f"telemetry.{name}")
        elif found:
            yield Destination(name, None, found[0])


def pause_s(variable: str, default_s: float) -> float:
    """Returns the seconds of a variable in milliseconds; the default for another text, and where there would be no pause."""
    try:
        found = float(os.environ.get(variable, "")) / 1000
    except ValueError:
        return default_s
    return found if 0 < found <= _LONGEST_PAUSE_S else default_s


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # Of a package in its path.
        return False
