"""Refuses properties of a catalog that Iceberg would not obey, and names those that it ignores.

Iceberg does so without a word, or only once it needs them: a switch whose value is neither true nor false, a number or a
choice that is none, an empty value, a property without another one that it needs, and a name that it does not have. A
pipeline would log in as nobody, or write as somebody else. Properties of stores are in `store.properties`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from frazil.errors import SpecError
from frazil.store.properties import property_of

_SWITCHES = (
    "cache-enabled", "io.manifest.cache-enabled", "token-refresh-enabled", "token-exchange-enabled", "rest.sigv4-enabled",
    "rest-metrics-reporting-enabled", "view-endpoints-supported", "unique-table-location", "glue.skip-archive",
    "glue.skip-name-validation", "glue.lakeformation-enabled", "jdbc.strict-mode", "jdbc.init-catalog-tables",
    "list-all-tables", "suppress-permission-error", "s3.path-style-access", "gcs.no-auth", "cache.case-sensitive",
    "s3.directory-bucket.list-prefix-as-directory", "s3.access-grants.fallback-to-iam", "nessie.tracing",
    "nessie.http2-upgrade", "nessie.ssl.no-certificate-verification", "nessie.transport.disable-compression",
    "nessie.enable-api-compatibility-check", "nessie.force-url-connection-client", "s3.crt.enabled",
    "s3.analytics-accelerator.enabled", "gcs.analytics-core.enabled",
)  # fmt: skip
"""Those of stores end with `-enabled` besides."""
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "jdbc.schema-version": ("V0", "V1"),
    "snapshot-loading-mode": ("all", "refs"),
    "scan-planning-mode": ("client", "server"),
    "client-api-version": ("1", "2"),
    "nessie.http-redirects": ("never", "always", "normal"),
    "s3.sse.type": ("none", "s3", "kms", "dsse-kms", "custom"),
    "http-client.type": ("apache", "urlconnection"),
}
"""The values of properties that have only these, in any case."""
_NUMBERS_END = (
    "-ms", "-sec", "-seconds", "-bytes", "-threads", "-retries", "-connections", "-per-route", "-entries", "-length",
    "-size",
)  # fmt: skip
"""How the names of properties end whose values are whole numbers, without a unit."""
_AT_LEAST_ONE = ("s3.delete.num-threads", "s3.multipart.num-threads", "lock.heartbeat-threads")
"""Threads that Iceberg starts only once there is work for them."""
_NEVER_EMPTY = (
    "credential", "token", "oauth2-server-uri", "rest.auth.type", "io-impl", "lock-impl", "glue.endpoint",
)  # fmt: skip


@dataclass(frozen=True)
class _Need:
    """A property, or all whose names begin with `name` where it ends with a dot, and those of which it needs one."""

    name: str
    others: tuple[str, ...]
    #: What to write; by default the first of the others.
    written: str = ""


def _pair(name: str, other: str) -> tuple[_Need, _Need]:
    return _Need(name, (other,)), _Need(other, (name,))


_NEEDS = (
    *_pair("s3.access-key-id", "s3.secret-access-key"),
    *_pair("client.access-key-id", "client.access-key-secret"),
    *_pair("adls.auth.shared-key.account.name", "adls.auth.shared-key.account.key"),
    *_pair("rest.client.proxy.hostname", "rest.client.proxy.port"),
    *_pair("rest.client.proxy.username", "rest.client.proxy.password"),
    _Need("s3.session-token", ("s3.access-key-id",)),
    _Need("s3.sse.key", ("s3.sse.type",)),
    _Need("s3.sse.md5", ("s3.sse.type",)),
    _Need("http-client.urlconnection.", ("http-client.type",), "http-client.type: urlconnection"),
    _Need(
        "client.assume-role.",
        (
            "client.factory",
            "s3.client-factory-impl",
            "glue.lakeformation-enabled",
            "rest.auth.type",
            "rest.sigv4-enabled",
        ),
        "client.factory: org.apache.iceberg.aws.AssumeRoleAwsClientFactory",
    ),
)
_OF_LOGINS: Mapping[str, str] = {
    "credential": "oauth2",
    "token": "oauth2",
    "rest.auth.basic.username": "basic",
    "rest.auth.basic.password": "basic",
    "gcp.auth.credentials-path": "google",
    "gcp.auth.credentials-json": "google",
    "gcp.auth.scopes": "google",
    "rest.auth.sigv4.delegate-auth-type": "sigv4",
    "rest.signing-name": "sigv4",
    "rest.signing-region": "sigv4",
    "rest.access-key-id": "sigv4",
    "rest.secret-access-key": "sigv4",
    "rest.session-token": "sigv4",
}
"""Properties that one way to log in to a server reads, by its `rest.auth.type`."""
_LOGINS = ("none", "basic", "oauth2", "sigv4", "google")

_OF_ALL = (
    "io-impl", "cache-enabled", "cache.case-sensitive", "cache.expiration-interval-ms", "io.manifest.cache-enabled",
    "io.manifest.cache.expiration-interval-ms", "io.manifest.cache.max-total-bytes", "io.manifest.cache.max-content-length",
    "lock-impl", "lock.table", "lock.acquire-interval-ms", "lock.acquire-timeout-ms", "lock.heartbeat-interval-ms",
    "lock.heartbeat-timeout-ms", "lock.heartbeat-threads", "metrics-reporter-impl", "unique-table-location",
    "encryption.kms-type", "encryption.kms-impl", "kms.endpoint", "kms.encryption-algorithm-spec", "kms.data-key-spec",
    "dynamodb.endpoint", "dynamodb.table-name", "app-id", "app-name", "user",
)  # fmt: skip
"""Those that Iceberg reads with every catalog: also of its clients of Amazon's services, as a lock or keys need them."""
_CONNECTIONS = ("clients", "client.pool.cache.eviction-interval-ms", "client-pool-cache-keys")
_SIGNING = (
    "rest.signing-name",
    "rest.signing-region",
    "rest.access-key-id",
    "rest.secret-access-key",
    "rest.session-token",
)
_LAKE_FORMATION = ("glue.id", "glue.account-id", "glue.lakeformation-enabled")
_OF_TYPES: Mapping[str, tuple[str, ...]] = {
    "jdbc": ("clients", "retryable_status_codes"),
    "rest": (
        "prefix", "credential", "token", "scope", "audience", "resource", "oauth2-server-uri", "token-expires-in-ms",
        "token-refresh-enabled", "token-exchange-enabled", "auth.session-timeout-ms", "rest.auth.type",
        "rest.auth.basic.username", "rest.auth.basic.password", "rest.auth.sigv4.delegate-auth-type", "rest.sigv4-enabled",
        *_SIGNING, *_LAKE_FORMATION, "gcp.auth.credentials-path", "gcp.auth.credentials-json", "gcp.auth.scopes",
        "rest.client.max-retries", "rest.client.max-connections", "rest.client.connections-per-route",
        "rest.client.proxy.hostname", "rest.client.proxy.port", "rest.client.proxy.username", "rest.client.proxy.password",
        "rest.client.user-agent", "rest.client.connection-timeout-ms", "rest.client.socket-timeout-ms",
        "rest.client.tls.configurer-impl", "snapshot-loading-mode", "rest-metrics-reporting-enabled",
        "view-endpoints-supported", "rest-page-size", "namespace-separator", "scan-planning-mode",
        "rest-scan-planning.poll-timeout-ms", "rest-scan-planning.poll-num-retries", "rest-table-cache.max-entries",
        "rest-table-cache.expire-after-write-ms",
    ),
    "hive": (*_CONNECTIONS, "list-all-tables"),
    "glue": (*_LAKE_FORMATION, "glue.endpoint", "glue.skip-archive", "glue.skip-name-validation"),
    "nessie": (
        "ref", "ref.hash", "client-api-version", "nessie.tracing", "nessie.http2-upgrade", "nessie.http-redirects",
        "nessie.authentication.type", "nessie.authentication.username", "nessie.authentication.password",
        "nessie.authentication.token", "nessie.authentication.aws.region", "nessie.authentication.aws.profile",
        "nessie.authentication.oauth2.issuer-url", "nessie.authentication.oauth2.token-endpoint",
        "nessie.authentication.oauth2.grant-type", "nessie.authentication.oauth2.client-id",
        "nessie.authentication.oauth2.client-secret", "nessie.authentication.oauth2.client-scopes",
        "nessie.authentication.oauth2.username", "nessie.authentication.oauth2.password",
        "nessie.authentication.oauth2.extra-params", "nessie.authentication.oauth2.refresh-safety-window",
        "nessie.authentication.oauth2.default-access-token-lifespan", "nessie.ssl.no-certificate-verification",
        "nessie.ssl.cipher-suites", "nessie.ssl.protocols", "nessie.ssl.sni-hosts", "nessie.ssl.sni-matcher",
        "nessie.transport.connect-timeout", "nessie.transport.read-timeout", "nessie.transport.disable-compression",
        "nessie.client-builder-name", "nessie.client-builder-impl", "nessie.enable-api-compatibility-check",
        "nessie.force-url-connection-client", "nessie.commit-meta.message", "nessie.commit-meta.authors",
        "nessie.commit-meta.signed-off-by",
    ),
    "hadoop": ("suppress-permission-error",),
}  # fmt: skip
"""Those of Iceberg's catalogs, without the stores' and without families."""
_KNOWN = {*_OF_ALL, *(name for own in _OF_TYPES.values() for name in own)}
_FAMILIES = ("header", "jdbc", "table-default", "table-override", "view-default", "view-override")
_OWN_KEYS = {
    "uri": "catalog.uri",
    "warehouse": "catalog.warehouse",
    "type": "catalog.type",
    "catalog-impl": "catalog.impl",
}
_OF_NESSIE = {
    "nessie.ref": "ref", "nessie.ref.hash": "ref.hash", "nessie.client-api-version": "client-api-version",
}  # fmt: skip
"""Names of Nessie's other tools. Iceberg's catalog reads these without the prefix alone, and else writes to `main`."""
_OF_PYTHON = {"rest.authorization-url": "oauth2-server-uri", "glue.region": "client.region"}
_NEAR = 0.8


def check_value(name: str, value: str) -> None:
    """Checks the value of one property.

    Raises: SpecError for one that Iceberg takes for another.
    """
    if name in _OF_NESSIE:
        raise SpecError(f"`{name}` is not one of Iceberg's properties", remedy=f"write `{_OF_NESSIE[name]}`")
    if name in _NEVER_EMPTY and not value.strip():
        raise SpecError(f"`{name}` is empty", remedy="write its value, or remove it")
    of_store = property_of(name)
    is_of_store = of_store is not None and of_store.name == name  # Not a tag, or another name that a user chooses.
    is_switch = name in _SWITCHES or (is_of_store and name.endswith("-enabled"))
    if is_switch and value.lower() not in ("true", "false"):
        raise SpecError(f"`{name}` is `{value}`, which Iceberg takes for false", remedy="write true or false")
    if (is_of_store or name in _KNOWN) and name.endswith(_NUMBERS_END):
        _check_number(name, value)
    _check_choice(name, value)
    if name == "clients" and re.fullmatch(r"-?\d+", value) and int(value) < 1:
        message = f"`{name}` is `{value}`: the catalog would be waited for without end"
        raise SpecError(message, remedy="write how many connections there are, such as 2")
    if name == "oauth2-server-uri" and any(map(str.isspace, value)):
        raise SpecError(f"`{name}` is no address", remedy="write it as https://HOST/PATH")
    if name == "ref.hash":
        raise SpecError(f"`{name}` names a commit, which can only be read", remedy="remove it: `ref` names the branch")


def _check_number(name: str, value: str) -> None:
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", value):
        raise SpecError(f"`{name}` is `{value}`", remedy="write a whole number, without a unit")
    if name in _AT_LEAST_ONE and int(value) < 1:
        raise SpecError(f"`{name}` is `{value}`", remedy="write at least 1, or remove it")


def _check_choice(name: str, value: str) -> None:
    choices = _CHOICES.get(name, ())
    if choices and value.lower() not in map(str.lower, choices):
        raise SpecError(f"`{name}` is `{value}`", remedy=f"write one of {', '.join(choices)}")
    if name == "rest.auth.type" and value != "sigv4" and value.lower() == "sigv4":  # Its case alone counts.
        raise SpecError(f"`{name}` is `{value}`", remedy="write sigv4, in lower case")


def lacking(properties: Mapping[str, str]) -> Iterator[SpecError]:
    """Yields an error for each property that has no effect because of the others."""
    logins = _logins(properties)
    for name, value in properties.items():
        need = next((candidate for candidate in _NEEDS if _is_of(name, candidate.name)), None)
        if value and need is not None and not any(map(properties.get, need.others)):
            message = f"`{name}` has no effect without `{need.others[0]}`"
            yield SpecError(message, remedy=f"write `{need.written or need.others[0]}` too, or remove `{name}`")
        login = _OF_LOGINS.get(name)
        if value and login and login not in logins and logins <= {*_LOGINS}:
            message = f"`{name}` has no effect without `rest.auth.type: {login}`"
            yield SpecError(message, remedy=f"write `rest.auth.type: {login}`, or remove `{name}`")
    if properties.get("s3.sse.type", "").lower() == "custom" and not properties.get("s3.sse.key"):
        yield SpecError("`s3.sse.type: custom` has no effect without `s3.sse.key`", remedy="write `s3.sse.key` too")


def _logins(properties: Mapping[str, str]) -> set[str]:
    """Returns the ways to log in to a server, by their `rest.auth.type`: SigV4 signs what another one has authorized."""
    if properties.get("rest.sigv4-enabled", "").lower() == "true":
        named = "sigv4"
    else:
        named = properties.get("rest.auth.type", "oauth2").lower()
    return (
        {named, properties.get("rest.auth.sigv4.delegate-auth-type", "oauth2").lower()} if named == "sigv4" else {named}
    )


def ignored_properties(properties: Iterable[str], type_name: str, impl: str | None) -> list[str]:
    """Returns a sentence for each property that Iceberg ignores, with what to do: for one whose name is near to that of a
    property of this type of catalog, or is a property of another type. Any other may be read by a class that the properties
    name. type_name, impl: of the catalog.
    """
    kind = None if impl else type_name
    used = f"`impl: {impl}`" if impl else f"`type: {type_name}`"
    own_names = _OF_TYPES.get(kind or "", ())
    # Iceberg reads each of Nessie's names without its prefix too.
    known_names = {*_OF_ALL, *own_names, *(name.removeprefix("nessie.") for name in own_names)}
    sentences = []
    for name in sorted(properties):
        if name in known_names or property_of(name) is not None or name.partition(".")[0] in _FAMILIES:
            continue
        other = next((other for other, own in _OF_TYPES.items() if kind in _OF_TYPES and name in own), None)
        if other is not None:
            sentences.append(f"Iceberg reads no `{name}` with {used}: it is one of `type: {other}`; remove it")
        elif meant := _OF_PYTHON.get(name) or _nearest(name, known_names):
            sentences.append(f"Iceberg reads no `{name}` with {used}; did you mean `{meant}`?")
    return sentences


def _nearest(name: str, names: Iterable[str]) -> str:
    """Returns the property that a name is near to; empty for none. Of a family it is the first part."""
    written = name.strip().lower()
    near = difflib.get_close_matches(written, [*names, *_OWN_KEYS], n=1, cutoff=_NEAR)
    if near:
        return _OWN_KEYS.get(near[0], near[0])
    family, _, rest = name.partition(".")
    head = difflib.get_close_matches(family.strip().lower(), _FAMILIES, n=1, cutoff=_NEAR) if rest else []
    return f"{head[0]}.{rest}" if head else ""


def _is_of(name: str, described: str) -> bool:
    return name.startswith(described) if described.endswith(".") else name == described
