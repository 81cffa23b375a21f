"""A login by Kerberos, with a principal's key or with the tickets of this user (`kinit`)."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from kafka.net.sasl.gssapi import SaslMechanismGSSAPI

from frazil.kafka.credentials import KEYTAB, PACKAGE, PRINCIPAL, SERVICE, require_kerberos
from frazil.kafka.fetch.tls import private_file


class TicketError(Exception):
    """Kerberos refuses a ticket, in its own words."""


@contextmanager
def ticket(settings: Mapping[str, str], host: str) -> Iterator[SaslMechanismGSSAPI]:
    """The mechanism, which has a ticket for the service on the host. settings: see `task_properties`; the keytab is its
    content, as base64.

    Raises: SpecError; TicketError.
    """
    require_kerberos()
    gssapi: Any = import_module(PACKAGE)
    try:
        if KEYTAB not in settings:
            yield _Kerberos(gssapi, settings, host, None)
            return
        with private_file(base64.b64decode(settings[KEYTAB])) as path:
            name = gssapi.Name(settings[PRINCIPAL], gssapi.NameType.kerberos_principal)
            # Tickets are kept in memory: nobody else finds them.
            store = {"client_keytab": f"FILE:{path}", "ccache": "MEMORY:frazil"}
            yield _Kerberos(gssapi, settings, host, gssapi.Credentials(name=name, usage="initiate", store=store))
    except gssapi.exceptions.GSSError as error:
        raise TicketError(f"Kerberos authentication failed: {error}") from None


class _Kerberos(SaslMechanismGSSAPI):  # type: ignore[misc]
    """The package's, with credentials other than those of this user."""

    def __init__(self, gssapi: Any, settings: Mapping[str, str], host: str, credentials: Any) -> None:
        self._is_done = self._is_authenticated = False
        self.auth_id = f"{settings[SERVICE]}@{host}"
        service = gssapi.Name(self.auth_id, gssapi.NameType.hostbased_service)
        self.gssapi_name = service.canonicalize(gssapi.MechType.kerberos)
        self._client_ctx = gssapi.SecurityContext(name=self.gssapi_name, creds=credentials, usage="initiate")
        self._next_token = self._client_ctx.step(None)
