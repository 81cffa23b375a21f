"""One set of client properties, two clients: librdkafka in the driver and Java in the tasks.

A pipeline file may use either spelling. What the two call differently (SASL credentials, certificates) is translated;
what only one of them knows goes to that one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from frazil.errors import SpecError

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
# Known to librdkafka alone; Java would warn about them or, worse, print their value.
_NATIVE_ONLY = {
    "sasl.username", "sasl.password", "sasl.mechanisms", "ssl.ca.location", "ssl.certificate.location",
    "ssl.key.location", "ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem",
    "enable.ssl.certificate.verification", "broker.address.family", "debug", "log_level",
    "socket.keepalive.enable", "socket.timeout.ms", "topic.metadata.refresh.interval.ms", "queued.max.messages.kbytes",
}  # fmt: skip
# Known to Java alone; librdkafka would refuse to start.
_JAVA_ONLY_PREFIXES = ("ssl.truststore.", "ssl.keystore.", "sasl.jaas.", "sasl.login.", "sasl.client.", "max.poll.rec")
_JAVA_ONLY = {
    "default.api.timeout.ms", "request.timeout.ms", "receive.buffer.bytes", "send.buffer.bytes",
    "ssl.endpoint.identification.algorithm", "ssl.enabled.protocols", "ssl.protocol", "fetch.max.wait.ms",
    "metadata.max.age.ms", "client.dns.lookup", "max.partition.fetch.bytes", "fetch.max.bytes", "fetch.min.bytes",
    "reconnect.backoff.max.ms", "reconnect.backoff.ms", "isolation.level",
}  # fmt: skip
_CREDENTIAL = re.compile(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


def native_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """For librdkafka (the driver's admin client and its sample reader)."""
    native = {
        name: value
        for name, value in properties.items()
        if name not in _JAVA_ONLY and not name.startswith(_JAVA_ONLY_PREFIXES)
    }
    if properties.get("ssl.truststore.type") == "PEM" and "ssl.truststore.location" in properties:
        native.setdefault("ssl.ca.location", properties["ssl.truststore.location"])
    jaas = properties.get("sasl.jaas.config")
    if jaas and "sasl.username" not in native:
        found = dict(_CREDENTIAL.findall(jaas))
        if set(found) != {"username", "password"}:
            raise SpecError(
                "kafka `sasl.jaas.config` has no user name and password to share with the driver's client",
                remedy="write sasl.username and sasl.password",
            )
        native |= {f"sasl.{name}": re.sub(r"\\(.)", r"\1", value) for name, value in found.items()}
    return native


def java_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """For the Java consumers of Spark's Kafka source."""
    java = {name: value for name, value in properties.items() if name not in _NATIVE_ONLY}
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms")
    if mechanism:
        java["sasl.mechanism"] = mechanism
    if "sasl.username" in properties and "sasl.jaas.config" not in properties:
        module = _LOGIN_MODULES.get((mechanism or "").upper())
        if module is None:
            raise SpecError(
                f"kafka `sasl.mechanism: {mechanism}` takes no user name and password",
                remedy=f"use one of {', '.join(_LOGIN_MODULES)}, or write sasl.jaas.config",
            )
        credentials = " ".join(
            f'{name}="{_quoted(properties.get(f"sasl.{name}", ""))}"' for name in ("username", "password")
        )
        java["sasl.jaas.config"] = f"{module} required {credentials};"
    if "ssl.ca.location" in properties:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": properties["ssl.ca.location"]}
    if "ssl.certificate.location" in properties and "ssl.key.location" in properties:
        java |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": _read(properties["ssl.certificate.location"]),
            "ssl.keystore.key": _read(properties["ssl.key.location"]),
        }
    if properties.get("enable.ssl.certificate.verification") == "false":
        java["ssl.endpoint.identification.algorithm"] = ""
    return java


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        raise SpecError(f"a Kafka certificate or key cannot be read: {error.strerror}", where=path) from None


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
