"""One set of client properties for two clients: librdkafka in the driver and Java in the tasks.

A pipeline file may use either spelling. Properties with different names in the two clients (SASL credentials,
certificates) are translated; a property that only one client knows goes to that client.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import structlog
from confluent_kafka import KafkaError

from frazil.errors import SpecError
from frazil.spec.problems import nearest

log = structlog.get_logger("frazil")

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
# Known to librdkafka only; Java would warn about them or, worse, print their values.
_NATIVE_ONLY = {
    "sasl.username", "sasl.password", "sasl.mechanisms", "ssl.ca.location", "ssl.certificate.location",
    "ssl.key.location", "ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem",
    "enable.ssl.certificate.verification", "broker.address.family", "debug", "log_level",
    "socket.keepalive.enable", "socket.timeout.ms", "topic.metadata.refresh.interval.ms", "queued.max.messages.kbytes",
}  # fmt: skip
# Known to Java's consumer only; librdkafka would refuse to start. A property that neither knows is misspelt, and
# librdkafka refuses it.
_JAVA_ONLY_PREFIXES = (
    "sasl.login.", "sasl.client.", "max.poll.rec", "metric.", "metrics.",
    "sasl.oauthbearer.jwks.", "sasl.kerberos.ticket.", "config.providers",
)  # fmt: skip
_JAVA_ONLY = {
    "default.api.timeout.ms", "request.timeout.ms", "receive.buffer.bytes", "send.buffer.bytes",
    "ssl.endpoint.identification.algorithm", "ssl.enabled.protocols", "ssl.protocol", "fetch.max.wait.ms",
    "metadata.max.age.ms", "client.dns.lookup", "max.partition.fetch.bytes", "fetch.max.bytes", "fetch.min.bytes",
    "reconnect.backoff.max.ms", "reconnect.backoff.ms", "isolation.level", "sasl.jaas.config",
    "ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.certificates",
    "ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "auto.include.jmx.reporter", "exclude.internal.topics", "interceptor.classes", "security.providers",
    "socket.connection.setup.timeout.max.ms", "ssl.engine.factory.class", "ssl.keymanager.algorithm", "ssl.provider",
    "ssl.secure.random.implementation", "ssl.trustmanager.algorithm", "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience", "sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.header.urlencode",
    "sasl.oauthbearer.scope.claim.name", "sasl.oauthbearer.sub.claim.name",
}  # fmt: skip
_HOST_CHECK = "ssl.endpoint.identification.algorithm"
_NATIVE_CA = ("ssl.ca.location", "ssl.ca.pem")
_NATIVE_KEYS = ("ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location", "ssl.key.pem")
# Properties that reach the other client under another name.
_TRANSLATED = {
    "sasl.username", "sasl.password", "sasl.mechanism", "sasl.mechanisms", "sasl.jaas.config", "isolation.level",
    "ssl.truststore.type", "ssl.keystore.type", "enable.ssl.certificate.verification", *_NATIVE_CA, *_NATIVE_KEYS,
}  # fmt: skip
# Common properties of both clients, besides those above.
_OF_BOTH = {
    "bootstrap.servers", "client.id", "client.rack", "security.protocol", "ssl.key.password", "connections.max.idle.ms",
    "socket.connection.setup.timeout.ms", "allow.auto.create.topics", "sasl.kerberos.service.name",
    "sasl.oauthbearer.token.endpoint.url",
}  # fmt: skip
_CREDENTIAL = re.compile(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


def native_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties for librdkafka, used by the driver."""
    native = {
        name: value
        for name, value in properties.items()
        if name not in _JAVA_ONLY and not name.startswith(_JAVA_ONLY_PREFIXES)
    }
    native |= _native_certificates(properties)
    if _HOST_CHECK in properties:
        native[_HOST_CHECK] = properties[_HOST_CHECK] or "none"  # Java's value is the empty text.
    jaas = properties.get("sasl.jaas.config")
    if jaas and "sasl.username" not in native:
        found = dict(_CREDENTIAL.findall(jaas))
        if set(found) != {"username", "password"}:
            raise SpecError(
                "kafka `sasl.jaas.config` has no user name and password to share with the driver's client",
                remedy="write sasl.username and sasl.password",
                where="sasl.jaas.config",
            )
        native |= {f"sasl.{name}": re.sub(r"\\(.)", r"\1", value) for name, value in found.items()}
    _say_left_out("librdkafka", frozenset(properties.keys() - native.keys() - _TRANSLATED))
    return native


def java_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties for the Java consumers of Spark's Kafka source."""
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
                where="sasl.username" if mechanism is None else "sasl.mechanism",
            )
        credentials = " ".join(
            f'{name}="{_quoted(properties.get(f"sasl.{name}", ""))}"' for name in ("username", "password")
        )
        java["sasl.jaas.config"] = f"{module} required {credentials};"
    java |= _java_certificates(properties)
    if properties.get("enable.ssl.certificate.verification") == "false" or properties.get(_HOST_CHECK) == "none":
        java[_HOST_CHECK] = ""
    _say_left_out("java", frozenset(properties.keys() - java.keys() - _TRANSLATED))
    return java


def refused_setting(error: Exception, properties: Mapping[str, str]) -> SpecError:
    """Returns the error for the first setting that librdkafka refuses; `where` is that setting, or `kafka` where none
    is named.
    """
    [cause] = error.args[:1] or [error]
    message = cause.str() if isinstance(cause, KafkaError) else str(cause)
    named = (name for name in properties if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", message))
    name = max(named, key=len, default="kafka")
    near = nearest(name, _NATIVE_ONLY | _JAVA_ONLY | _OF_BOTH) if "No such" in message else None
    remedy = f"did you mean `{near}`?" if near else "correct it or remove it"
    return SpecError(f"the Kafka client refuses its settings: {message}", remedy=remedy, where=name)


def _native_certificates(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns Java's key and trust stores as librdkafka's properties, as far as it can read them (PEM, and PKCS12 for
    keys) and has none of its own.
    """
    translated: dict[str, str | None] = {}
    if properties.get("ssl.truststore.type", "").upper() == "PEM" and not _has_any(properties, _NATIVE_CA):
        translated["ssl.ca.location"] = properties.get("ssl.truststore.location")
        translated["ssl.ca.pem"] = properties.get("ssl.truststore.certificates")
    if _has_any(properties, _NATIVE_KEYS):
        pass
    elif properties.get("ssl.keystore.type", "").upper() == "PEM":
        translated["ssl.certificate.location"] = translated["ssl.key.location"] = properties.get(
            "ssl.keystore.location"
        )
        translated["ssl.certificate.pem"] = properties.get("ssl.keystore.certificate.chain")
        translated["ssl.key.pem"] = properties.get("ssl.keystore.key")
    elif _is_pkcs12(properties):
        translated |= {name: properties.get(name) for name in ("ssl.keystore.location", "ssl.keystore.password")}
    return {name: value for name, value in translated.items() if value is not None}


def _java_certificates(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns librdkafka's certificates as Java's properties, where it has none of its own."""
    java: dict[str, str] = {}
    if not any(name.startswith("ssl.truststore.") for name in properties):
        if "ssl.ca.location" in properties:
            java |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": properties["ssl.ca.location"]}
        elif "ssl.ca.pem" in properties:
            java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": properties["ssl.ca.pem"]}
    if any(name.startswith("ssl.keystore.") for name in properties):
        return java | ({"ssl.keystore.type": "PKCS12"} if _is_pkcs12(properties) else {})
    chain, key = (_pem(properties, name) for name in ("ssl.certificate", "ssl.key"))
    if chain is not None and key is not None:
        java |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}
    return java


def _is_pkcs12(properties: Mapping[str, str]) -> bool:
    kind, location = properties.get("ssl.keystore.type"), properties.get("ssl.keystore.location", "")
    return kind.upper() == "PKCS12" if kind else location.lower().endswith((".p12", ".pfx"))


def _pem(properties: Mapping[str, str], name: str) -> str | None:
    if f"{name}.pem" in properties:
        return properties[f"{name}.pem"]
    return _read(properties[f"{name}.location"]) if f"{name}.location" in properties else None


def _has_any(properties: Mapping[str, str], names: Iterable[str]) -> bool:
    return any(name in properties for name in names)


@cache
def _say_left_out(client: str, names: frozenset[str]) -> None:
    """Logs properties left out, once for each client and set of names."""
    if names:
        log.debug("settings_ignored", client=client, settings=sorted(names))


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        raise SpecError(f"a Kafka certificate or key cannot be read: {error.strerror}", where=path) from None


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
