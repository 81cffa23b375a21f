"""One set of client properties, and one identity, for two Kafka clients: librdkafka in the driver and Java in the tasks.

A pipeline file may use either spelling. TLS, client certificates and SASL are put in the words of both; a setting that only
one of the two can follow is refused where the other would then trust other brokers or log in as somebody else. Any other
property that only one client knows goes to that client.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import structlog
from confluent_kafka import KafkaError

from frazil.errors import SpecError
from frazil.refusals import Settings, refusal_remedy
from frazil.spec.syntax.problems import nearest

HOST_CHECK = "ssl.endpoint.identification.algorithm"
_VERIFICATION = "enable.ssl.certificate.verification"
_JAAS = "sasl.jaas.config"
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_TOKEN_HANDLER = "sasl.login.callback.handler.class"
_TOKEN_HANDLERS = tuple(f"{_OAUTH}.{package}OAuthBearerLoginCallbackHandler" for package in ("", "secured."))
_EXTENSIONS = "sasl.oauthbearer.extensions"
_NATIVE_CA = ("ssl.ca.location", "ssl.ca.pem")
_NATIVE_KEYS = ("ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location", "ssl.key.pem")
log = structlog.get_logger("frazil")
# Known to Java's consumer only; librdkafka would refuse to start. A property that neither knows is misspelt, and
# librdkafka refuses it.
_JAVA_ONLY_PREFIXES = (
    "sasl.login.", "max.poll.rec", "metric.", "metrics.",
    "sasl.oauthbearer.jwks.", "sasl.kerberos.ticket.", "config.providers",
)  # fmt: skip


@dataclass(frozen=True)
class _LoginModule:
    """A JAAS login module: how Java logs in by one mechanism."""

    name: str
    #: librdkafka's property for each option; the first two are required.
    options: Mapping[str, str]
    #: Options with their only possible values.
    fixed: Mapping[str, str] = field(default_factory=dict)


_PASSWORD = {"username": "sasl.username", "password": "sasl.password"}
_SCRAM = _LoginModule("org.apache.kafka.common.security.scram.ScramLoginModule", _PASSWORD)
_LOGIN_MODULES = {
    "PLAIN": _LoginModule("org.apache.kafka.common.security.plain.PlainLoginModule", _PASSWORD),
    "SCRAM-SHA-256": _SCRAM,
    "SCRAM-SHA-512": _SCRAM,
    "OAUTHBEARER": _LoginModule(
        f"{_OAUTH}.OAuthBearerLoginModule",
        {
            "clientId": "sasl.oauthbearer.client.id",
            "clientSecret": "sasl.oauthbearer.client.secret",
            "scope": "sasl.oauthbearer.scope",
            "ssl.truststore.location": "https.ca.location",
        },
        {"ssl.truststore.type": "PEM"},
    ),
    "GSSAPI": _LoginModule(
        "com.sun.security.auth.module.Krb5LoginModule",
        {"keyTab": "sasl.kerberos.keytab", "principal": "sasl.kerberos.principal"},
        {"useKeyTab": "true", "storeKey": "true"},
    ),
}
_LOGINS = {name for module in _LOGIN_MODULES.values() for name in module.options.values()}

#: Properties of librdkafka that reach Java under other names.
NATIVE = {
    *_LOGINS, *_NATIVE_CA, *_NATIVE_KEYS, _VERIFICATION, _EXTENSIONS, "sasl.mechanisms", "sasl.oauthbearer.method",
}  # fmt: skip
#: Properties of Java that reach librdkafka under other names.
JAVA = {
    _JAAS, _TOKEN_HANDLER, HOST_CHECK,
    "ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.certificates",
    "ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
}  # fmt: skip
#: Properties with the same name and meaning in both clients.
OF_BOTH = {
    "security.protocol", "sasl.mechanism", "ssl.key.password", "sasl.kerberos.service.name",
    "sasl.kerberos.min.time.before.relogin", "sasl.oauthbearer.token.endpoint.url",
}  # fmt: skip

_USE_OIDC = (
    "write `sasl.oauthbearer.method: oidc`, sasl.oauthbearer.client.id, .client.secret and .token.endpoint.url:"
    " both Kafka clients can do that"
)
_NO_CLASSES = (
    "leave it out: the driver's Kafka client runs no Java classes; log in with a client certificate, PLAIN, SCRAM,"
    " OAUTHBEARER by OIDC, or GSSAPI"
)
_NO_COUNTERPART = "leave it out: only one of the two Kafka clients has it; restrict it on the brokers"
_CHECK_KEY = "check ssl.key.location (or ssl.key.pem) and ssl.key.password"
_ONE_SIDED_REMEDIES: Mapping[str, str] = {
    "ssl.cipher.suites": "leave it out: the two Kafka clients name ciphers differently; restrict them on the brokers",
    **dict.fromkeys(
        (
            "ssl.ca.certificate.stores", "ssl.crl.location", "ssl.curves.list", "ssl.sigalgs.list", "ssl.providers",
            "ssl.engine.id", "ssl.engine.location", "ssl.enabled.protocols", "ssl.protocol", "sasl.kerberos.kinit.cmd",
            "sasl.kerberos.principal.to.local.rules",
        ),
        _NO_COUNTERPART,
    ),
    **dict.fromkeys(
        ("ssl.engine.factory.class", "security.providers", "sasl.login.class", "sasl.client.callback.handler.class"),
        _NO_CLASSES,
    ),
    "https.ca.pem": "write the certificates to a file, and name it in https.ca.location",
    "sasl.oauthbearer.config": _USE_OIDC,
    "enable.sasl.oauthbearer.unsecure.jwt": _USE_OIDC,  # codespell:ignore unsecure
}  # fmt: skip
_ONE_SIDED_PREFIXES = ("sasl.oauthbearer.assertion.", "sasl.oauthbearer.metadata.", "sasl.oauthbearer.client.cred")
_SETTINGS = Settings(
    trust="ssl.ca.location, or of a token endpoint in https.ca.location",
    certificate="ssl.certificate.location and ssl.key.location",
    login="sasl.mechanism and the user, password or client secret under `kafka`",
)
_ACL_REMEDIES = {
    "topic": "allow this user to DESCRIBE and READ the topic, and to READ and WRITE a topic of dead letters",
    "group": "allow this user to READ groups with the prefix `frazil-`",
    "transactional id": "allow this user to WRITE with transactional ids of the prefix `frazil-`",
    "cluster": "allow this user to DESCRIBE the cluster",
}
_MODULE = re.compile(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b", re.IGNORECASE)
_OPTION = re.compile(r'([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([\w./@:-]+))')


def native_security(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties of librdkafka that follow from those that only Java has.

    Raises: SpecError for a setting that only one of the clients could follow.
    """
    _refuse_one_sided(properties)
    native = {**_native_trust(properties), **_native_key(properties), **_native_login(properties)}
    if HOST_CHECK in properties:
        native[HOST_CHECK] = properties[HOST_CHECK] or "none"  # Java's value is the empty text.
    return native


def java_security(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties of Java's client that follow from those that only librdkafka has.

    Raises: SpecError for a setting that only one of the clients could follow.
    """
    _refuse_one_sided(properties)
    java = {**_java_trust(properties), **_java_key(properties), **_java_login(properties)}
    if properties.get(_VERIFICATION) == "false" or properties.get(HOST_CHECK) == "none":
        java[HOST_CHECK] = ""
    return java


def _refuse_one_sided(properties: Mapping[str, str]) -> None:
    for name in properties:
        remedy = _ONE_SIDED_REMEDIES.get(name) or (_USE_OIDC if name.startswith(_ONE_SIDED_PREFIXES) else "")
        is_of_class = name == _TOKEN_HANDLER and properties[name] not in _TOKEN_HANDLERS
        if remedy or is_of_class:
            raise _refused(f"kafka `{name}` cannot be followed by both Kafka clients", remedy or _NO_CLASSES, name)
    if properties.get(_VERIFICATION) == "false" and not _has_any(properties, (*_NATIVE_CA, "ssl.truststore.location")):
        raise _refused(
            f"kafka `{_VERIFICATION}: false` is for the driver's client alone: Java's always verifies certificates",
            f"name the authority in ssl.ca.location; `{HOST_CHECK}: none` skips the host's name",
            _VERIFICATION,
        )


def kafka_remedy(words: str) -> str:
    """Returns the remedy for what one of the two clients reports of TLS, a login or an ACL; empty for anything else."""
    lower = words.lower()
    for kind, acl in _ACL_REMEDIES.items():
        if f"{kind} authorization" in lower or f"{kind.replace(' ', '')}authorization" in lower:
            return acl
    return refusal_remedy(words, _SETTINGS)


# ---- login


def _native_login(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the login of a JAAS configuration, unless librdkafka's own is written."""
    jaas = properties.get(_JAAS)
    if not jaas or _LOGINS & properties.keys():
        return {}
    named = _MODULE.match(jaas)
    module = next((one for one in _LOGIN_MODULES.values() if named and _class(one.name) == _class(named[1])), None)
    if module is None:
        raise _refused(f"kafka `{_JAAS}` names a login module that the driver's client lacks", _NO_CLASSES, _JAAS)
    options = {found[1]: _unquoted(found[2] or found[3] or "") for found in _OPTION.finditer(jaas)}
    required = list(module.options)[:2]
    missing = [option for option in required if option not in options]
    if missing:
        remedy = f"write {' and '.join(module.options[option] for option in required)} in place of `{_JAAS}`"
        message = f"kafka `{_JAAS}` has no {' and '.join(missing)} to share with the driver's client"
        raise _refused(message, remedy, _JAAS)
    native = {module.options[option]: value for option, value in options.items() if option in module.options}
    if module is not _LOGIN_MODULES["OAUTHBEARER"]:
        return native
    extensions = [f"{option[10:]}={value}" for option, value in options.items() if option.startswith("extension_")]
    return {
        **native,
        "sasl.oauthbearer.method": "oidc",
        **({_EXTENSIONS: ",".join(extensions)} if extensions else {}),
    }


def _java_login(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the mechanism and the JAAS configuration of librdkafka's login, unless Java's own is written."""
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or ""
    java = {"sasl.mechanism": mechanism} if mechanism else {}
    is_oauth = mechanism.upper() == "OAUTHBEARER"
    if is_oauth:
        java[_TOKEN_HANDLER] = _TOKEN_HANDLERS[0]
    if _JAAS in properties:
        return java | ({_TOKEN_HANDLER: properties[_TOKEN_HANDLER]} if _TOKEN_HANDLER in properties else {})
    if is_oauth and properties.get("sasl.oauthbearer.method") != "oidc":
        raise _refused(
            "kafka `sasl.mechanism: OAUTHBEARER` has nothing to get a token with", _USE_OIDC, "sasl.mechanism"
        )
    written = _LOGINS & properties.keys()
    if not written or not (mechanism or properties.get("security.protocol", "").upper().startswith("SASL_")):
        return java  # Without a login such settings have no effect.
    module = _LOGIN_MODULES.get(mechanism.upper())
    foreign = sorted(written - set(module.options.values() if module else ()))
    if module is None or foreign:
        raise _refused(
            f"kafka `sasl.mechanism: {mechanism or 'GSSAPI'}` takes no {', '.join(foreign)}",
            f"leave it out, or use one of {', '.join(_LOGIN_MODULES)}",
            "sasl.mechanism" if mechanism else foreign[0],
        )
    return java | {_JAAS: _jaas(module, properties)}


def _jaas(module: _LoginModule, properties: Mapping[str, str]) -> str:
    options = {option: properties[name] for option, name in module.options.items() if name in properties}
    if any(option.startswith("ssl.") for option in options) or module is _LOGIN_MODULES["GSSAPI"]:
        options |= module.fixed
    for extension in filter(None, properties.get(_EXTENSIONS, "").split(",")):
        name, _, value = extension.partition("=")
        options[f"extension_{name.strip()}"] = value
    return f"{module.name} required {' '.join(f'{name}={_quoted(value)}' for name, value in options.items())};"


def _class(name: str) -> str:
    return name.rpartition(".")[2]


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


# ---- certificates


def _native_trust(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns Java's trust store for librdkafka, which reads PEM."""
    if _has_any(properties, _NATIVE_CA):
        return {}
    if properties.get("ssl.truststore.type", "").upper() == "PEM":
        return _renamed(
            properties,
            {"ssl.truststore.location": "ssl.ca.location", "ssl.truststore.certificates": "ssl.ca.pem"},
        )
    if "ssl.truststore.location" in properties:
        raise _refused(
            "the driver's Kafka client reads no trust store of Java",
            "write its certificates as PEM (keytool -exportcert -rfc) and name the file in ssl.ca.location",
            "ssl.truststore.location",
        )
    return {}


def _native_key(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns Java's key store for librdkafka, which reads PEM and PKCS12."""
    if _has_any(properties, _NATIVE_KEYS):
        return {}
    if properties.get("ssl.keystore.type", "").upper() == "PEM":
        one_file = _renamed(properties, {"ssl.keystore.location": "ssl.certificate.location"})
        both = _renamed(properties, {"ssl.keystore.location": "ssl.key.location"})
        texts = {"ssl.keystore.certificate.chain": "ssl.certificate.pem", "ssl.keystore.key": "ssl.key.pem"}
        return {**one_file, **both, **_renamed(properties, texts)}
    if _is_pkcs12(properties):
        names = ("ssl.keystore.location", "ssl.keystore.password")
        return _renamed(properties, {name: name for name in names})
    if "ssl.keystore.location" in properties:
        raise _refused(
            "the driver's Kafka client reads no key store of this type",
            "convert it with `keytool -importkeystore -deststoretype PKCS12`, and write `ssl.keystore.type: PKCS12`",
            "ssl.keystore.location",
        )
    return {}


def _java_trust(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns librdkafka's authorities for Java, unless Java's own are written."""
    if any(name.startswith("ssl.truststore.") for name in properties):
        return {}
    names = {"ssl.ca.location": "ssl.truststore.location", "ssl.ca.pem": "ssl.truststore.certificates"}
    found = _renamed(properties, names)
    return {"ssl.truststore.type": "PEM", **found} if found else {}


def _java_key(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns librdkafka's certificate and key for Java, unless Java's own are written."""
    if any(name.startswith("ssl.keystore.") for name in properties):
        return {"ssl.keystore.type": "PKCS12"} if _is_pkcs12(properties) else {}
    chain, key = (_pem(properties, name) for name in ("ssl.certificate", "ssl.key"))
    if chain is None and key is None:
        return {}
    if chain is None or key is None:
        raise _refused(
            "kafka has one of a client certificate and its key",
            "write both ssl.certificate.location and ssl.key.location; they may name one file",
            next(name for name in _NATIVE_KEYS if name in properties),
        )
    return {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}


def with_plain_key(java: Mapping[str, str]) -> dict[str, str]:
    """Returns Java's properties with a client's key that Java reads: as PKCS#8 and decrypted, since Java 17 does not know
    the encryption of today's keys (PBES2).

    Raises: SpecError for a key that cannot be read, or a wrong password.
    """
    key = java.get("ssl.keystore.key")
    if key is None or "BEGIN PRIVATE KEY" in key:
        return dict(java)
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415  (most pipelines have no such key)
    from cryptography.hazmat.primitives import serialization as forms  # noqa: PLC0415

    password = java.get("ssl.key.password")
    try:
        loaded = forms.load_pem_private_key(key.encode(), password.encode() if password else None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _refused(f"kafka's client key cannot be read: {error}", _CHECK_KEY, "kafka") from None
    plain = loaded.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption()).decode()
    return {name: text for name, text in java.items() if name != "ssl.key.password"} | {"ssl.keystore.key": plain}


def _is_pkcs12(properties: Mapping[str, str]) -> bool:
    kind, location = properties.get("ssl.keystore.type"), properties.get("ssl.keystore.location", "")
    return kind.upper() == "PKCS12" if kind else location.lower().endswith((".p12", ".pfx"))


def _pem(properties: Mapping[str, str], name: str) -> str | None:
    if f"{name}.pem" in properties:
        return properties[f"{name}.pem"]
    return _read(properties[f"{name}.location"]) if f"{name}.location" in properties else None


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        raise SpecError(f"a Kafka certificate or key cannot be read: {error.strerror}", where=path) from None


def _renamed(properties: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties among `names` under their new names."""
    return {new: properties[old] for old, new in names.items() if old in properties}


def _has_any(properties: Mapping[str, str], names: Iterable[str]) -> bool:
    return any(name in properties for name in names)


def _refused(message: str, remedy: str, name: str) -> SpecError:
    return SpecError(message, remedy=remedy, where=name)


# Known to librdkafka only; Java would warn about them or, worse, print their values.
_NATIVE_ONLY = {
    *NATIVE, "broker.address.family", "debug", "log_level",
    "socket.keepalive.enable", "socket.timeout.ms", "topic.metadata.refresh.interval.ms", "queued.max.messages.kbytes",
}  # fmt: skip
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


def task_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties of the clients that read records."""
    level = {"isolation.level": "read_committed", "request.timeout.ms": "30000"}
    return {**level, **properties, **native_security(properties)}
