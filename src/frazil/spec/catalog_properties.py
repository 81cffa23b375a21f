"""Refuses properties of a catalog that Iceberg would not obey, and names those that it may ignore.

Iceberg does so without a word, or only once it needs them: a switch whose value is neither true nor false, a number or a
choice that is none, an empty value, a property without another one that it needs. A pipeline would log in as nobody, or
write as somebody else. Any other property is passed through. Properties of stores are in `store.properties`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from frazil.errors import SpecError
from frazil.store.properties import is_known, is_of_store, nearest_property, property_of

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
_OF_ICEBERG = (
    "cache.", "io.manifest.", "lock.", "token-", "auth.session-", "rest.client.", "rest-", "client.", "http-client.", "s3.",
    "gcs.", "adls.",
)  # fmt: skip
"""How their names begin."""
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

_OTHERS = (
    "cache.expiration-interval-ms", "lock.table", "unique-table-location", "metrics-reporter-impl", "prefix", "scope",
    "audience", "resource", "token-expires-in-ms", "auth.session-timeout-ms", "rest.client.max-retries", "rest-page-size",
    "namespace-separator", "list-all-tables", "glue.id", "glue.account-id", "nessie.authentication.type",
    "nessie.authentication.username", "nessie.authentication.password", "nessie.authentication.token", "authentication.type",
    "authentication.username", "authentication.password", "authentication.token", "ref", "clients",
    "retryable_status_codes", "client-pool-cache-keys", "app-id", "app-name", "user",
)  # fmt: skip
"""Further properties that many catalogs have."""
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
_KNOWN = {
    *_OTHERS, *_SWITCHES, *_CHOICES, *_NEVER_EMPTY, *_OF_LOGINS, *_AT_LEAST_ONE,
    *(name for need in _NEEDS for name in (need.name, *need.others)),
}  # fmt: skip
"""Names to which a misspelt one may be near. Iceberg's other properties are passed through."""
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
    # Not a tag, or another name that a user chooses.
    is_fixed = (of_store is None or of_store.name == name) and ".tags." not in name
    is_switch = name in _SWITCHES or (is_fixed and is_of_store(name) and name.endswith("-enabled"))
    if is_switch and value.lower() not in ("true", "false"):
        raise SpecError(f"`{name}` is `{value}`, which Iceberg takes for false", remedy="write true or false")
    if is_fixed and name.startswith(_OF_ICEBERG) and name.endswith(_NUMBERS_END):
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", value):
            raise SpecError(f"`{name}` is `{value}`", remedy="write a whole number, without a unit")
        if name in _AT_LEAST_ONE and int(value) < 1:
            raise SpecError(f"`{name}` is `{value}`", remedy="write at least 1, or remove it")
    choices = _CHOICES.get(name, ())
    if choices and value.lower() not in map(str.lower, choices):
        raise SpecError(f"`{name}` is `{value}`", remedy=f"write one of {', '.join(choices)}")
    if name == "rest.auth.type" and value != "sigv4" and value.lower() == "sigv4":  # Its case alone counts.
        raise SpecError(f"`{name}` is `{value}`", remedy="write sigv4, in lower case")
    if name == "clients" and re.fullmatch(r"-?\d+", value) and int(value) < 1:
        message = f"`{name}` is `{value}`: Frazil would wait for the catalog without end"
        raise SpecError(message, remedy="write how many connections there are, such as 2")
    if name == "oauth2-server-uri" and any(map(str.isspace, value)):
        raise SpecError(f"`{name}` is not an address", remedy="write it as https://HOST/PATH")
    if name == "ref.hash":
        raise SpecError(f"`{name}` names a commit, which can only be read", remedy="remove it: `ref` names the branch")


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


def unknown_properties(properties: Iterable[str], impl: str | None) -> list[str]:
    """Returns a sentence for each property that Iceberg may ignore: one of a store that tasks do not follow, and one whose
    name is near to a known name; and one sentence for all others, which may be those of a class. impl: the catalog's own.
    """
    sentences, others = [], []
    for name in sorted(properties):
        if name in _KNOWN or is_known(name) or name.partition(".")[0] in _FAMILIES:
            continue
        if impl is None and (meant := _OF_PYTHON.get(name) or _nearest(name)):
            sentences.append(f"Iceberg reads no `{name}`; did you mean `{meant}`?")
        elif is_of_store(name):
            sentences.append(
                f"`{name}` reaches Iceberg alone, not the tasks that write data files; {nearest_property(name)}"
            )
        else:
            others.append(f"`{name}`")
    return sentences + ([f"Iceberg gets {', '.join(others)} unchecked"] if others else [])


def _nearest(name: str) -> str:
    """Returns the property that a name is near to; empty for none. Of a family it is the first part."""
    written = name.strip().lower()
    near = difflib.get_close_matches(written, [*_KNOWN, *_OWN_KEYS], n=1, cutoff=_NEAR)
    if near:
        return _OWN_KEYS.get(near[0], near[0])
    family, _, rest = name.partition(".")
    head = difflib.get_close_matches(family.strip().lower(), _FAMILIES, n=1, cutoff=_NEAR) if rest else []
    return f"{head[0]}.{rest}" if head else ""


def _is_of(name: str, described: str) -> bool:
    return name.startswith(described) if described.endswith(".") else name == described
