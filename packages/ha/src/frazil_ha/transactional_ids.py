"""What Kafka reports of a transactional id: librdkafka has no such request."""

from __future__ import annotations

from collections.abc import Mapping

from kafka.protocol.admin import DescribeTransactionsRequest
from kafka.protocol.metadata import FindCoordinatorRequest

from frazil.clock import SystemClock
from frazil.errors import UnavailableError
from frazil.kafka.fetch.connection import addresses, connect

_TIMEOUT_S = 5.0
_EVERY_S = 0.1
_TRANSACTION = 1
"""What a coordinator is asked for."""
_DENIED, _UNKNOWN = 53, 105
# The coordinator starts, moves, or is another one by now.
_SOON = (14, 15, 16)


def may_describe(settings: Mapping[str, str], transactional_id: str) -> bool | None:
    """Returns whether this client may describe the transactional id, which every client may that may write with it; None
    where the brokers do not answer, or are older than Kafka 3.0. Nothing is changed: no transaction is begun and none is
    ended. settings: see `task_properties`.
    """
    clock = SystemClock()
    deadline_s = clock.monotonic_s() + _TIMEOUT_S
    code = None
    for host, port in addresses(settings["bootstrap.servers"]):
        while (left_s := deadline_s - clock.monotonic_s()) > 0:
            try:
                code = _answer(host, port, settings, transactional_id, left_s)
            except UnavailableError:
                break
            if code not in _SOON:
                return {0: True, _UNKNOWN: True, _DENIED: False}.get(code)
            clock.sleep(_EVERY_S)
    return None


def _answer(host: str, port: int, settings: Mapping[str, str], transactional_id: str, timeout_s: float) -> int:
    """Returns the code that the id's coordinator answers, or the broker that is asked for it."""
    with connect(host, port, settings, timeout_s) as any_broker:
        if DescribeTransactionsRequest.API_KEY not in any_broker.versions:
            raise UnavailableError
        request = FindCoordinatorRequest(key_type=_TRANSACTION, coordinator_keys=[transactional_id], version=4)
        [place] = any_broker.ask(request, timeout_s).coordinators
    if place.error_code:
        return int(place.error_code)
    with connect(place.host, place.port, settings, timeout_s) as coordinator:
        described = DescribeTransactionsRequest(transactional_ids=[transactional_id], version=0)
        [state] = coordinator.ask(described, timeout_s).transaction_states
    return int(state.error_code)
