"""Types that Kafka Connect and Debezium name: docs/reference/debezium.md and docs/reference/connect.md."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

from frazil_verify.model import times
from frazil_verify.model.faults import Fault
from frazil_verify.model.types import Plain
from frazil_verify.model.written import INT, LONG, STRING, Written

CONNECT, DEBEZIUM = "org.apache.kafka.connect.data.", "io.debezium.time."
_LOCAL_TIMES = {
    f"{CONNECT}Timestamp": "ms",
    f"{DEBEZIUM}Timestamp": "ms",
    f"{DEBEZIUM}MicroTimestamp": "us",
    f"{DEBEZIUM}NanoTimestamp": "ns",
}
_TIMES = {
    f"{CONNECT}Time": "ms",
    f"{DEBEZIUM}Time": "ms",
    f"{DEBEZIUM}MicroTime": "us",
    f"{DEBEZIUM}NanoTime": "ns",
}
_DATES = (f"{CONNECT}Date", f"{DEBEZIUM}Date")


def written_of(name: str, base: Plain, value: Any, parameters: Mapping[str, Any]) -> Written | None:
    """Returns a value of a named type; None where the name changes nothing."""
    if name in _LOCAL_TIMES and base == LONG:
        local = times.local_instant(Decimal(value), _LOCAL_TIMES[name])
        return Written(Plain("timestamp"), local, base, value, is_moment=name.startswith(CONNECT))
    if name in _TIMES and base in (INT, LONG):
        return Written(Plain("time"), times.time_since_midnight(Decimal(value), _TIMES[name]), base, value)
    if name in _DATES and base == INT:
        return Written(Plain("date"), times.day_of(value), base, value)
    if name == f"{CONNECT}Decimal" and isinstance(value, bytes):
        scale = int(parameters.get("scale", 0))
        precision = int(parameters.get("connect.decimal.precision", 38))
        number = Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale)
        if abs(number) >= Decimal(10) ** (precision - scale):
            raise Fault("out_of_range")
        return Written(Plain("decimal", (precision, scale)), number, base, value)
    if base == STRING:
        return _of_text(name, value)
    return None


def _of_text(name: str, value: str) -> Written | None:
    if name == f"{DEBEZIUM}ZonedTimestamp":
        return Written(Plain("timestamptz"), times.moment_of(value, True, ""), STRING, value)
    if name == f"{DEBEZIUM}IsoTimestamp":
        # Debezium writes local times with a Z that means nothing.
        return Written(Plain("timestamp"), times.moment_of(value.removesuffix("Z"), False, ""), STRING, value)
    if name == f"{DEBEZIUM}IsoDate":
        return Written(Plain("date"), times.date_of(value.removesuffix("Z")), STRING, value)
    if name == f"{DEBEZIUM}IsoTime":
        return Written(Plain("time"), times.time_of(value.removesuffix("Z")), STRING, value)
    if name == "io.debezium.data.Uuid":
        return Written(Plain("uuid"), UUID(value).bytes, STRING, value)
    return None
