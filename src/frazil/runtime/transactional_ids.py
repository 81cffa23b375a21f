"""What Kafka reports of a transactional id, asked by Java's client: the driver's own client has no such request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

_TIMEOUTS = dict.fromkeys(("request.timeout.ms", "default.api.timeout.ms"), "5000")
_DENIED = "TransactionalIdAuthorizationException"
_UNKNOWN = "TransactionalIdNotFoundException"


def may_describe(gateway: Any, properties: Mapping[str, str], transactional_id: str) -> bool | None:
    """Returns whether this client may describe the transactional id, which every client may that may write with it; None
    where the brokers do not answer. Nothing is changed: no transaction is begun and none is ended. properties: those of
    Java's client.
    """
    admin = gateway.jvm.org.apache.kafka.clients.admin
    asked = gateway.jvm.java.util.Collections.singletonList(transactional_id)
    try:
        client = admin.AdminClient.create({**properties, **_TIMEOUTS})
        try:
            client.describeTransactions(asked).all().get()
        finally:
            client.close()
    except Py4JJavaError as error:
        cause = error.java_exception.getCause()
        name = cause.getClass().getSimpleName() if cause is not None else ""
        return {_DENIED: False, _UNKNOWN: True}.get(name)
    except Py4JError:
        return None
    return True
