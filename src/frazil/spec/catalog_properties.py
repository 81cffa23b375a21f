"""Properties of a catalog that Iceberg would not obey, without a word: a switch whose value is neither true nor false, an
empty value, and a property without another one that it needs. A pipeline would log in as nobody, or write as somebody else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from frazil.errors import SpecError
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


def check_value(name: str, value: str) -> None:
    """Checks the value of one property.

    Raises: SpecError for one that Iceberg takes for another.
    """
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


def _is_of(name: str, described: str) -> bool:
    return name.startswith(described) if described.endswith(".") else name == described
