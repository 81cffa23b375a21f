"""Properties of a catalog that Iceberg would not obey, without a word: a switch whose value is neither true nor false, an
empty value, a property without another one that it needs, and a name that it does not have. A pipeline would log in as
nobody, or write as somebody else.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from frazil.errors import SpecError
from frazil.spec.connections import CatalogSpec
from frazil.store.properties import property_of

_SWITCHES = (
    "cache-enabled", "io.manifest.cache-enabled", "token-refresh-enabled", "token-exchange-enabled", "rest.sigv4-enabled",
    "rest-metrics-reporting-enabled", "view-endpoints-supported", "unique-table-location", "glue.skip-archive",
    "glue.skip-name-validation", "glue.lakeformation-enabled", "jdbc.strict-mode", "jdbc.init-catalog-tables",
    "list-all-tables", "suppress-permission-error", "s3.path-style-access", "gcs.no-auth",
)  # fmt: skip
"""Those of stores end with `-enabled` besides."""
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


def _pair(one: str, other: str) -> tuple[_Need, _Need]:
    return _Need(one, (other,)), _Need(other, (one,))


_NEEDS = (
    *_pair("s3.access-key-id", "s3.secret-access-key"),
    *_pair("client.access-key-id", "client.access-key-secret"),
    *_pair("adls.auth.shared-key.account.name", "adls.auth.shared-key.account.key"),
    *_pair("rest.client.proxy.hostname", "rest.client.proxy.port"),
    *_pair("rest.client.proxy.username", "rest.client.proxy.password"),
    _Need("s3.session-token", ("s3.access-key-id",)),
    _Need("s3.sse.key", ("s3.sse.type",)),
    _Need("s3.sse.md5", ("s3.sse.type",)),
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
    _Need("rest.auth.basic.", ("rest.auth.type",), "rest.auth.type: basic"),
    *(
        _Need(name, ("rest.auth.type", "rest.sigv4-enabled"), "rest.auth.type: sigv4")
        for name in ("rest.signing-name", "rest.signing-region", "rest.access-key-id", "rest.secret-access-key")
    ),
)
_WITHOUT_OAUTH2 = ("none", "basic", "google")

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
    is_switch = name in _SWITCHES or (name.endswith("-enabled") and property_of(name) is not None)
    if is_switch and value.lower() not in ("true", "false"):
        raise SpecError(f"`{name}` is `{value}`, which Iceberg takes for false", remedy="write true or false")
    if name == "clients" and re.fullmatch(r"-?\d+", value) and int(value) < 1:
        message = f"`{name}` is `{value}`: the catalog would be waited for without end"
        raise SpecError(message, remedy="write how many connections there are, such as 2")
    if name == "oauth2-server-uri" and any(map(str.isspace, value)):
        raise SpecError(f"`{name}` is no address", remedy="write it as https://HOST/PATH")


def lacking(properties: Mapping[str, str]) -> Iterator[SpecError]:
    """Yields an error for each property that has no effect because of the others."""
    kind = properties.get("rest.auth.type", "").lower()
    for name, value in properties.items():
        need = next((one for one in _NEEDS if _is_of(name, one.name)), None)
        if value and need is not None and not any(map(properties.get, need.others)):
            message = f"`{name}` has no effect without `{need.others[0]}`"
            yield SpecError(message, remedy=f"write `{need.written or need.others[0]}` too, or remove `{name}`")
        if name in ("credential", "token") and kind in _WITHOUT_OAUTH2:
            yield SpecError(f"`{name}` is not sent with `rest.auth.type: {kind}`", remedy="remove one of them")


def ignored_properties(catalog: CatalogSpec) -> list[str]:
    """Returns a sentence for each property that Iceberg ignores, with what to do: for one whose name is near to that of a
    property of this type of catalog, or is a property of another type. Any other may be read by a class that the properties
    name.
    """
    kind = None if catalog.impl else catalog.type
    used = f"`impl: {catalog.impl}`" if catalog.impl else f"`type: {catalog.type}`"
    known = {*_OF_ALL, *_OF_TYPES.get(kind or "", ())}
    found = []
    for name in sorted(catalog.properties):
        if name in known or property_of(name) is not None or name.partition(".")[0] in _FAMILIES:
            continue
        other = next((other for other, own in _OF_TYPES.items() if kind in _OF_TYPES and name in own), None)
        if other is not None:
            found.append(f"Iceberg reads no `{name}` with {used}: it is one of `type: {other}`; remove it")
        elif meant := _OF_PYTHON.get(name) or _nearest(name, known):
            found.append(f"Iceberg reads no `{name}` with {used}; did you mean `{meant}`?")
    return found


def _nearest(name: str, known: Iterable[str]) -> str:
    """Returns the property that a name is near to; empty for none. Of a family it is the first part."""
    written = name.strip().lower()
    near = difflib.get_close_matches(written, [*known, *_OWN_KEYS], n=1, cutoff=_NEAR)
    if near:
        return _OWN_KEYS.get(near[0], near[0])
    family, _, rest = name.partition(".")
    head = difflib.get_close_matches(family.strip().lower(), _FAMILIES, n=1, cutoff=_NEAR) if rest else []
    return f"{head[0]}.{rest}" if head else ""


def _is_of(name: str, described: str) -> bool:
    return name.startswith(described) if described.endswith(".") else name == described
