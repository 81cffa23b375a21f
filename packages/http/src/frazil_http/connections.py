"""Connections of the HTTP service: one that brings no whole request for ten seconds is closed.

uvicorn keeps such ones for ever, and as many as the service has places for, which need no token, would keep out Prometheus
and the probes.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_WITHIN_S = 10.0


class Connection(H11Protocol):
    """A connection that is closed where it takes too long to ask."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.Protocol."""
        super().connection_made(transport)
        self._expect_request()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        super().data_received(data)
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._end_deadline()
        super().connection_lost(exc)

    def _expect_request(self) -> None:
        """Begins the time for the next request, which further bytes do not lengthen; ends it while one is answered."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._end_deadline()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_WITHIN_S, self.transport.close)

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
