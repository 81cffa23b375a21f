"""One set of client properties for two clients: librdkafka in the driver and Java in the tasks.

A pipeline file may use either spelling. Properties with different names in the two clients are translated (`security.py`);
a property that only one client knows goes to that client.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

import structlog
from confluent_kafka import KafkaError

from frazil.errors import SpecError
from frazil.kafka.security import JAVA, NATIVE, OF_BOTH, java_security, native_security, with_plain_key
from frazil.spec.problems import nearest

log = structlog.get_logger("frazil")

# Known to librdkafka only; Java would warn about them or, worse, print their values.
_NATIVE_ONLY = {
    *NATIVE, "broker.address.family", "debug", "log_level",
    "socket.keepalive.enable", "socket.timeout.ms", "topic.metadata.refresh.interval.ms", "queued.max.messages.kbytes",
}  # fmt: skip
# Known to Java's consumer only; librdkafka would refuse to start. A property that neither knows is misspelt, and
# librdkafka refuses it.
_JAVA_ONLY_PREFIXES = (
    "sasl.login.", "max.poll.rec", "metric.", "metrics.",
    "sasl.oauthbearer.jwks.", "sasl.kerberos.ticket.", "config.providers",
)  # fmt: skip
_JAVA_ONLY = {
    *JAVA,
    "default.api.timeout.ms", "request.timeout.ms", "receive.buffer.bytes", "send.buffer.bytes",
    "fetch.max.wait.ms", "metadata.max.age.ms", "client.dns.lookup", "max.partition.fetch.bytes", "fetch.max.bytes",
    "fetch.min.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms", "isolation.level",
    "auto.include.jmx.reporter", "exclude.internal.topics", "interceptor.classes",
    "socket.connection.setup.timeout.max.ms", "ssl.keymanager.algorithm", "ssl.provider",
    "ssl.secure.random.implementation", "ssl.trustmanager.algorithm", "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience", "sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.header.urlencode",
    "sasl.oauthbearer.scope.claim.name", "sasl.oauthbearer.sub.claim.name",
}  # fmt: skip
# Properties that reach the other client under another name.
_TRANSLATED = {*NATIVE, *JAVA, "sasl.mechanism", "isolation.level"}
# Common properties of both clients, besides those above.
_OF_BOTH = {
    *OF_BOTH, "bootstrap.servers", "client.id", "client.rack", "connections.max.idle.ms",
    "socket.connection.setup.timeout.ms", "allow.auto.create.topics",
}  # fmt: skip


def native_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties for librdkafka, used by the driver."""
    native = {
        name: value
        for name, value in properties.items()
        if name not in _JAVA_ONLY and not name.startswith(_JAVA_ONLY_PREFIXES)
    }
    native |= native_security(properties)
    _say_left_out("librdkafka", frozenset(properties.keys() - native.keys() - _TRANSLATED))
    return native


def java_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties for the Java consumers of Spark's Kafka source."""
    java = {name: value for name, value in properties.items() if name not in _NATIVE_ONLY}
    java = with_plain_key({**java, **java_security(properties)})
    _say_left_out("java", frozenset(properties.keys() - java.keys() - _TRANSLATED))
    return java


def refused_setting(error: Exception, properties: Mapping[str, str]) -> SpecError:
    """Returns the error for the first setting that librdkafka refuses; `where` is that setting, or `kafka` where none
    is named.
    """
    [cause] = error.args[:1] or [error]
    message = cause.str() if isinstance(cause, KafkaError) else str(cause)
    if "No provider for SASL mechanism" in message:
        return SpecError(
            "the driver's Kafka client is built without GSSAPI (Kerberos), which is SASL's default mechanism",
            remedy="name another mechanism in sasl.mechanism, or install a confluent-kafka that is built with libsasl2",
            where=next((name for name in ("sasl.mechanism", "sasl.mechanisms") if name in properties), "kafka"),
        )
    named = (name for name in properties if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", message))
    name = max(named, key=len, default="kafka")
    near = nearest(name, _NATIVE_ONLY | _JAVA_ONLY | _OF_BOTH) if "No such" in message else None
    remedy = f"did you mean `{near}`?" if near else "correct it or remove it"
    return SpecError(f"the Kafka client refuses its settings: {message}", remedy=remedy, where=name)


@cache
def _say_left_out(client: str, names: frozenset[str]) -> None:
    """Logs properties left out, once for each client and set of names."""
    if names:
        log.debug("settings_ignored", client=client, settings=sorted(names))
