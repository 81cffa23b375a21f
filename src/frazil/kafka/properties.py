"""One set of client properties, and one identity, for two Kafka clients: librdkafka in the driver and the sockets of tasks.

A pipeline file may use librdkafka's spelling or that of Java's client. TLS, client certificates and SASL are put in
librdkafka's words; a setting that only one of the two can follow is refused where the other would then trust other brokers
or log in as somebody else. Any other property that only one client knows goes to that client.
"""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import structlog
from confluent_kafka import KafkaError

from frazil.errors import SpecError
from frazil.kafka.credentials import (
    ENDPOINT,
    KEYTAB,
    METHOD,
    MSK,
    PACKAGE,
    PRINCIPAL,
    PROFILE,
    REGION,
    ROLE,
    SCOPE,
    SERVICE,
    SESSION,
    native_tokens,
    region_of,
    require_kerberos,
    require_signer,
)
from frazil.kafka.tls import (
    CIPHERS,
    HOST_CHECK,
    NATIVE_CA,
    NATIVE_KEYS,
    VERIFICATION,
    authorities,
    content,
    key_and_chain,
    tls_context,
    version_of,
)
from frazil.spec.syntax.problems import nearest

_JAAS = "sasl.jaas.config"
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_TOKEN_HANDLER = "sasl.login.callback.handler.class"
_TOKEN_HANDLERS = tuple(f"{_OAUTH}.{package}OAuthBearerLoginCallbackHandler" for package in ("", "secured."))
_CLIENT_HANDLER = "sasl.client.callback.handler.class"
_IAM = "software.amazon.msk.auth.iam"
# Amazon's classes for Java, whose part its signer for Python does here.
_MSK_HANDLERS = {f"{_IAM}.IAMClientCallbackHandler", f"{_IAM}.IAMOAuthBearerLoginCallbackHandler"}
_MSK_MECHANISM = "AWS_MSK_IAM"
_MSK_OPTIONS = {"awsProfileName": PROFILE, "awsRoleArn": ROLE, "awsRoleSessionName": SESSION}
# What changes nothing about who logs in.
_MSK_IDLE = {"awsStsRegion", "awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs"}
_EXTENSIONS = "sasl.oauthbearer.extensions"
_GRANT = "sasl.oauthbearer.grant.type"
_PATIENCE_MS = "30000"
"""How long a task waits for a broker's answer."""
_FALSE = {"false", "f", "0"}
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
    ),
    "GSSAPI": _LoginModule(
        "com.sun.security.auth.module.Krb5LoginModule",
        {"keyTab": KEYTAB, "principal": PRINCIPAL},
    ),
}
_LOGINS = {name for module in _LOGIN_MODULES.values() for name in module.options.values()}

#: Properties of Java that reach both clients under other names.
JAVA = {
    _JAAS, _TOKEN_HANDLER, _CLIENT_HANDLER, HOST_CHECK,
    "ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.certificates",
    "ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
}  # fmt: skip
#: Properties of security that both clients follow.
OF_BOTH = {
    *_LOGINS, *NATIVE_CA, *NATIVE_KEYS, HOST_CHECK, VERIFICATION, CIPHERS, _EXTENSIONS,
    "security.protocol", "sasl.mechanism", "sasl.mechanisms", "ssl.key.password", "ssl.keystore.location",
    "ssl.keystore.password", "sasl.kerberos.service.name", "sasl.kerberos.min.time.before.relogin",
    "sasl.oauthbearer.method", "sasl.oauthbearer.token.endpoint.url", "https.ca.pem", _GRANT,
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
_CHECK_TLS = "check that the certificate, the key and the ciphers are what OpenSSL takes, and belong together"
_ONE_SIDED_REMEDIES: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "ssl.ca.certificate.stores", "ssl.crl.location", "ssl.curves.list", "ssl.sigalgs.list", "ssl.providers",
            "ssl.engine.id", "ssl.engine.location", "ssl.enabled.protocols", "ssl.protocol", "sasl.kerberos.kinit.cmd",
            "sasl.kerberos.principal.to.local.rules",
        ),
        _NO_COUNTERPART,
    ),
    **dict.fromkeys(
        ("ssl.engine.factory.class", "security.providers", "sasl.login.class"),
        _NO_CLASSES,
    ),
    "sasl.oauthbearer.config": _USE_OIDC,
    "enable.sasl.oauthbearer.unsecure.jwt": _USE_OIDC,  # codespell:ignore unsecure
}  # fmt: skip
_ONE_SIDED_PREFIXES = ("sasl.oauthbearer.assertion.", "sasl.oauthbearer.metadata.", "sasl.oauthbearer.client.cred")
_MODULE = re.compile(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b", re.IGNORECASE)
_OPTION = re.compile(r'([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([\w./@:-]+))')


def native_security(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties of librdkafka that follow from those that only Java has.

    Raises: SpecError for a setting that only one of the clients could follow.
    """
    for name, value in properties.items():
        if remedy := one_sided_remedy(name, value):
            raise _refused(f"kafka `{name}` cannot be followed by both Kafka clients", remedy, name)
    native = {**_native_trust(properties), **_native_key(properties), **_native_login(properties)}
    if HOST_CHECK in properties:
        native[HOST_CHECK] = properties[HOST_CHECK] or "none"  # Java's value is the empty text.
    return native


def one_sided_remedy(name: str, value: str) -> str:
    """Returns what to do about a setting that only one of the clients could follow; empty for any other."""
    handlers = {_TOKEN_HANDLER: {*_TOKEN_HANDLERS, *_MSK_HANDLERS}, _CLIENT_HANDLER: _MSK_HANDLERS}.get(name)
    if handlers is not None and value not in handlers:
        return _NO_CLASSES
    if name.startswith(_ONE_SIDED_PREFIXES) or (name == _GRANT and value != "client_credentials"):
        return _USE_OIDC
    return _ONE_SIDED_REMEDIES.get(name, "")


# ---- login


def _native_login(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the login of a JAAS configuration, unless librdkafka's own is written."""
    if _is_msk(properties):
        return {"sasl.mechanism": "OAUTHBEARER"}
    jaas = properties.get(_JAAS)
    if not jaas or _LOGINS & properties.keys():
        return {}
    named = _MODULE.match(jaas)
    module = next(
        (
            login_module
            for login_module in _LOGIN_MODULES.values()
            if named and _class(login_module.name) == _class(named[1])
        ),
        None,
    )
    if module is None:
        raise _refused(f"kafka `{_JAAS}` names a login module that the driver's client lacks", _NO_CLASSES, _JAAS)
    options = _jaas_options(jaas)
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


def _jaas_options(jaas: str) -> dict[str, str]:
    return {match[1]: re.sub(r"\\(.)", r"\1", match[2] or match[3] or "") for match in _OPTION.finditer(jaas)}


def _is_msk(properties: Mapping[str, str]) -> bool:
    """Whether the login is that of Amazon MSK by IAM, in any of its spellings."""
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or ""
    return mechanism.upper() == _MSK_MECHANISM or properties.get(_TOKEN_HANDLER) in _MSK_HANDLERS


def _msk(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns what Amazon's signer needs to know, for both clients."""
    require_signer()
    options = _jaas_options(properties.get(_JAAS, ""))
    if strange := sorted(options.keys() - _MSK_OPTIONS.keys() - _MSK_IDLE):
        message = f"kafka `{_JAAS}` has {', '.join(strange)}, which Amazon's signer for Python does not know"
        raise _refused(message, "put it in a profile of the AWS configuration, and name that in awsProfileName", _JAAS)
    region = region_of(properties.get("bootstrap.servers", ""))
    if not region:
        message = "neither bootstrap.servers nor the environment names the AWS region of the cluster"
        raise _refused(message, "set AWS_REGION in the environment of this process", "bootstrap.servers")
    named = {_MSK_OPTIONS[option]: value for option, value in options.items() if option in _MSK_OPTIONS}
    return {"sasl.mechanism": "OAUTHBEARER", METHOD: MSK, REGION: region, **named}


def _class(name: str) -> str:
    return name.rpartition(".")[2]


# ---- certificates


def _native_trust(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns Java's trust store for librdkafka, which reads PEM."""
    if _has_any(properties, NATIVE_CA):
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
    if _has_any(properties, NATIVE_KEYS):
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


def _is_pkcs12(properties: Mapping[str, str]) -> bool:
    kind, location = properties.get("ssl.keystore.type"), properties.get("ssl.keystore.location", "")
    return kind.upper() == "PKCS12" if kind else location.lower().endswith((".p12", ".pfx"))


def _renamed(properties: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties among `names` under their new names."""
    return {new: properties[old] for old, new in names.items() if old in properties}


def _has_any(properties: Mapping[str, str], names: Iterable[str]) -> bool:
    return any(name in properties for name in names)


def _refused(message: str, remedy: str, name: str) -> SpecError:
    return SpecError(message, remedy=remedy, where=name)


# What tasks get as it is.
_OF_TASKS = (
    "bootstrap.servers", "client.id", "client.rack", "isolation.level", "fetch.max.bytes", "max.partition.fetch.bytes",
    "broker.address.family",
)  # fmt: skip
_NUMBER = r"[1-9]\d{0,8}"
# What values of tasks' settings are, where librdkafka does not say so.
_VALUES = {
    "isolation.level": "read_committed|read_uncommitted",
    "request.timeout.ms": _NUMBER,
    "fetch.max.bytes": _NUMBER,
    "max.partition.fetch.bytes": _NUMBER,
    "security.protocol": "(SASL_)?(PLAINTEXT|SSL)",
}
_NATIVE_ONLY = {
    "debug", "log_level", "socket.keepalive.enable", "topic.metadata.refresh.interval.ms", "queued.max.messages.kbytes",
}  # fmt: skip
_NOT_NATIVE = {
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
# Properties that reach a client under another name, or in another way.
_TRANSLATED = {*OF_BOTH, *JAVA, "isolation.level", "request.timeout.ms", "socket.timeout.ms"}
# Common properties of both clients, besides those above.
_OF_BOTH = {
    *OF_BOTH, "bootstrap.servers", "client.id", "client.rack", "broker.address.family", "connections.max.idle.ms",
    "socket.connection.setup.timeout.ms", "socket.timeout.ms", "allow.auto.create.topics",
}  # fmt: skip


def native_properties(properties: Mapping[str, str]) -> dict[str, Any]:
    """Returns the properties for librdkafka, used by the driver."""
    native: dict[str, Any] = {
        name: value
        for name, value in properties.items()
        if name not in _NOT_NATIVE and not name.startswith(_JAVA_ONLY_PREFIXES)
    }
    native |= native_security(properties)
    if _is_msk(properties):
        native.pop("sasl.mechanisms", None)
        native["oauth_cb"] = native_tokens(_msk(properties))
    _say_left_out("librdkafka", frozenset(properties.keys() - native.keys() - _TRANSLATED))
    return native


# ---- tasks


def task_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties for tasks: librdkafka's words, with the texts of certificates, keys and authorities as their
    files have them now.

    Raises: SpecError for a setting that only one of the clients could follow, and for a file that cannot be read.
    """
    if _is_msk(properties):  # What it needs is in the environment.
        return _task_properties(properties)
    files = [Path(text) for name, text in properties.items() if name.endswith(("location", "keytab"))]
    return dict(_kept_task_properties(tuple(properties.items()), tuple(map(version_of, files))))


@lru_cache(maxsize=4)
def _kept_task_properties(properties: tuple[tuple[str, str], ...], _: tuple[object, ...]) -> dict[str, str]:
    """Every job asks for them, and to decrypt a key takes milliseconds. The versions of files make a renewed one count."""
    return _task_properties(dict(properties))


def _task_properties(properties: Mapping[str, str]) -> dict[str, str]:
    native = {**properties, **native_security(properties)}
    protocol = native.get("security.protocol", "plaintext").upper()
    patience = native.get("request.timeout.ms") or native.get("socket.timeout.ms") or _PATIENCE_MS
    tasks = {name: native[name] for name in _OF_TASKS if name in native}
    tasks |= {"security.protocol": protocol, "request.timeout.ms": patience}
    tasks.setdefault("isolation.level", "read_committed")
    for name, allowed in _VALUES.items():
        if name in tasks and not re.fullmatch(allowed, tasks[name]):
            raise _refused(f"kafka `{name}` cannot be {tasks[name]!r}", "correct it or remove it", name)
    if protocol.endswith("SSL"):
        tasks |= _task_tls(native)
    if protocol.startswith("SASL_"):
        tasks |= _msk(properties) if _is_msk(properties) else _task_login(native)
    elif _LOGINS & native.keys() and _has_any(native, ("sasl.mechanism", "sasl.mechanisms")):
        _task_login(native)  # Without a protocol of SASL it has no effect, and is no less wrong.
    _say_left_out("tasks", frozenset(properties.keys() - tasks.keys() - _TRANSLATED - _OF_BOTH))
    return tasks


def _task_tls(native: Mapping[str, str]) -> dict[str, str]:
    settings = {
        HOST_CHECK: native.get(HOST_CHECK, "https").lower(),
        VERIFICATION: "false" if native.get(VERIFICATION, "true").lower() in _FALSE else "true",
        **_renamed(native, {CIPHERS: CIPHERS}),
        **authorities(native, "ssl.ca"),
        **key_and_chain(native),
    }
    try:
        if not settings.keys().isdisjoint((CIPHERS, "ssl.ca.pem", "ssl.key.pem")):
            tls_context(settings)
    except (ssl.SSLError, ValueError) as error:
        name = next((name for name in (CIPHERS, *NATIVE_KEYS, *NATIVE_CA) if name in native), "kafka")
        raise _refused(f"kafka's settings of TLS cannot be followed: {error}", _CHECK_TLS, name) from None
    return settings


def _task_login(native: Mapping[str, str]) -> dict[str, str]:
    """Returns the mechanism and its settings."""
    written = native.get("sasl.mechanism") or native.get("sasl.mechanisms") or ""
    name = written.upper() or "GSSAPI"
    if name == "OAUTHBEARER" and native.get(METHOD, "").lower() != "oidc":
        message = "kafka `sasl.mechanism: OAUTHBEARER` has nothing to get a token with"
        raise _refused(message, _USE_OIDC, "sasl.mechanism")
    module = _LOGIN_MODULES.get(name)
    foreign = sorted(_LOGINS & native.keys() - set(module.options.values() if module else ()))
    if module is None or foreign:
        fault = f"takes no {', '.join(foreign)}" if foreign else "is not one that Frazil logs in with"
        remedy = f"leave it out, or use one of {', '.join((*_LOGIN_MODULES, _MSK_MECHANISM))}"
        raise _refused(f"kafka `sasl.mechanism: {name}` {fault}", remedy, "sasl.mechanism" if written else foreign[0])
    required = [*module.options.values()][:2] + ([ENDPOINT] if name == "OAUTHBEARER" else [])
    missing = [setting for setting in required if not native.get(setting)]
    if missing and name != "GSSAPI":
        message = f"kafka `sasl.mechanism: {name}` has no {' and no '.join(missing)}"
        raise _refused(message, f"write {' and '.join(missing)} under `kafka`", "sasl.mechanism")
    login = {setting: native[setting] for setting in required if setting in native}
    return {"sasl.mechanism": name, **login, **_MORE.get(name, lambda _: {})(native)}


def _oidc(native: Mapping[str, str]) -> dict[str, str]:
    if not re.match("https?://", native[ENDPOINT]):
        raise _refused(f"kafka `{ENDPOINT}` is not an address of HTTP", "correct it or remove it", ENDPOINT)
    return {
        METHOD: "oidc",
        **_renamed(native, {name: name for name in (SCOPE, _EXTENSIONS)}),
        **authorities(native, "https.ca"),
    }


def _kerberos(native: Mapping[str, str]) -> dict[str, str]:
    require_kerberos()
    service = {SERVICE: native.get(SERVICE, "kafka")}
    if KEYTAB not in native:
        return service
    keytab = base64.b64encode(content(native[KEYTAB])).decode()
    return {**service, PRINCIPAL: native.get(PRINCIPAL, "kafkaclient"), KEYTAB: keytab}


# What a mechanism has besides what is required.
_MORE = {"OAUTHBEARER": _oidc, "GSSAPI": _kerberos}


def refused_setting(error: Exception, properties: Mapping[str, str]) -> SpecError:
    """Returns the error for the first setting that librdkafka refuses; `where` is that setting, or `kafka` where none
    is named.
    """
    [cause] = error.args[:1] or [error]
    message = cause.str() if isinstance(cause, KafkaError) else str(cause)
    if "No provider for SASL mechanism" in message:
        where = next((name for name in ("sasl.mechanism", "sasl.mechanisms") if name in properties), "kafka")
        if find_spec(PACKAGE) is not None:
            return _refused(
                "the driver's Kafka client is built without GSSAPI (Kerberos), which is SASL's default mechanism",
                "name another mechanism in sasl.mechanism, or install a confluent-kafka that is built with libsasl2",
                where,
            )
        return _refused(
            "the driver's Kafka client is built without GSSAPI (Kerberos), which is SASL's default mechanism, and tasks"
            " lack the Python package gssapi",
            "name another mechanism in sasl.mechanism, or install a confluent-kafka that is built with libsasl2, and gssapi"
            " here and where tasks run",
            where,
        )
    named = (name for name in properties if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", message))
    name = max(named, key=len, default="kafka")
    near = nearest(name, _NATIVE_ONLY | _NOT_NATIVE | _OF_BOTH) if "No such" in message else None
    remedy = f"did you mean `{near}`?" if near else "correct it or remove it"
    return SpecError(f"the Kafka client refuses its settings: {message}", remedy=remedy, where=name)


@cache
def _say_left_out(client: str, names: frozenset[str]) -> None:
    """Logs properties left out, once for each client and set of names."""
    if names:
        log.debug("settings_ignored", client=client, settings=sorted(names))
