"""Clients of object stores, made from Iceberg's properties with the settings that its Java FileIO would use.

Each client's library also reads the environment, so everything that a property or its absence decides is passed on
explicitly.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import SplitResult, urlsplit

from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from frazil.errors import SpecError
from frazil.store.addresses import Address
from frazil.store.properties import PROXY

Properties = Mapping[str, str]
_SSE = {"s3": "AES256", "kms": "aws:kms", "dsse-kms": "aws:kms:dsse", "custom": "sse-c"}
_DEFAULT_REGION = "us-east-1"
# By the first parts of a region's name; all others are in amazonaws.com.
_DOMAINS = {
    "cn": "amazonaws.com.cn", "eusc": "amazonaws.eu", "us-iso": "c2s.ic.gov", "us-isob": "sc2s.sgov.gov",
    "us-isof": "csp.hci.ic.gov", "eu-isoe": "cloud.adc-e.uk",
}  # fmt: skip
_CONNECT_MS, _SOCKET_MS = "5000", "10000"
_NO_PROXY = "http://localhost"
_RETRIES, _MIN_WAIT_MS, _MAX_WAIT_MS = "5", "200", "20000"
# A whole attempt, with the upload of one part; and the time after which a failed request is not repeated: as long as a
# task may wait before its batch is planned again.
_REQUEST_TIMEOUT = timedelta(minutes=5)
_RETRY_TIMEOUT = timedelta(seconds=30)


@dataclass(frozen=True)
class Client:
    """A client of one bucket, and what its objects carry."""

    store: ObjectStore
    #: Tags of every object.
    tags: dict[str, str] = field(default_factory=dict)
    #: Attributes of every object.
    attributes: dict[str, str] = field(default_factory=dict)
    #: Whether tasks may delete objects.
    may_delete: bool = True


def client_of(properties: Properties, address: Address) -> Client:
    """Returns a new client for the address's bucket.

    Raises: SpecError for values that cannot be obeyed.
    """
    make: dict[str, Callable[[Properties, Address], Client]] = {"s3": _s3, "oss": _oss, "gcs": _gcs, "adls": _adls}
    return make[address.kind](properties, address)


def _s3(properties: Properties, address: Address) -> Client:
    bucket = properties.get(f"s3.access-points.{address.bucket}", address.bucket)
    if bucket.startswith("arn:"):
        raise SpecError(
            "an access point is named by its ARN", remedy="write its alias", where=f"s3.access-points.{address.bucket}"
        )
    region = _region(properties)
    endpoint, is_virtual = _s3_endpoint(properties, bucket, region)
    is_express = bucket.endswith("--x-s3") and "s3.endpoint" not in properties
    config: Any = {
        "region": region,
        "virtual_hosted_style_request": is_virtual,
        "disable_bulk_delete": True,
        "s3_express": is_express,
        # As Amazon's client does: TLS protects the content, and its SHA-256 takes a third of the time of writing it.
        "unsigned_payload": endpoint.startswith("https:"),
        **({} if is_express else {"endpoint": endpoint, "aws_endpoint_url_s3": endpoint}),
        **_s3_encryption(properties),
        **({"checksum_algorithm": "SHA256"} if _is_true(properties, "s3.checksum-enabled") else {}),
    }
    tags = {
        name.removeprefix("s3.write.tags."): value
        for name, value in properties.items()
        if name.startswith("s3.write.tags.")
    }
    storage_class = properties.get("s3.write.storage-class")
    return Client(
        S3Store(
            bucket,
            config=config,
            client_options=_options(properties) | _s3_proxy(properties, endpoint, is_express),
            retry_config=_retries(properties),
            **_s3_identity(properties, "s3.access-key-id", "s3.secret-access-key", "s3.session-token"),
        ),
        tags,
        {"Storage-Class": storage_class} if storage_class else {},
        may_delete=properties.get("s3.delete-enabled", "true").lower() == "true"
        and not any(name.startswith("s3.delete.tags.") for name in properties),
    )


def _region(properties: Properties) -> str:
    """Returns the region that requests are signed for: Amazon's client has another name for the default one."""
    region = properties.get("client.region", _DEFAULT_REGION)
    return _DEFAULT_REGION if region == "aws-global" else region


def s3_host(properties: Properties, bucket: str) -> str:
    """Returns the host of requests for a bucket."""
    endpoint, _ = _s3_endpoint(properties, bucket, _region(properties))
    return urlsplit(endpoint).hostname or ""


def _s3_proxy(properties: Properties, endpoint: str, is_express: bool) -> dict[str, str]:
    """Returns the options of the proxy to S3. Iceberg reads its name for no other store."""
    named = properties.get("http-client.proxy-endpoint")
    if named is not None and not re.fullmatch(r"https?://[^/?#@\s]+", named):
        raise SpecError(
            f"`http-client.proxy-endpoint` is `{named}`",
            remedy="write http://HOST:PORT, without a path, a user and a password",
            where="http-client.proxy-endpoint",
        )
    host = "amazonaws.com" if is_express else urlsplit(endpoint).hostname or ""
    return _proxy({PROXY: named, **properties} if named else properties, host)


def _proxy(properties: Properties, host: str) -> dict[str, str]:
    """Returns the options of the proxy that the driver has found. obstore follows the environment without one: it is given
    one that no request to the store takes.
    """
    proxy = properties.get(PROXY)
    if proxy is None:
        return {}
    return {"proxy_url": proxy} if proxy else {"proxy_url": _NO_PROXY, "proxy_excludes": host}


def _s3_endpoint(properties: Properties, bucket: str, region: str) -> tuple[str, bool]:
    """Returns the endpoint, which has the bucket in it where the bucket is part of the host name."""
    endpoint = properties.get("s3.endpoint", "")
    is_path_style = _is_true(properties, "s3.path-style-access")
    if endpoint:
        address = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
        host = address.hostname or ""
        is_named = host != "localhost" and not re.fullmatch(r"[\d.]+|.*:.*", host)
        if is_path_style or not is_named or not _may_be_in_host(bucket, address.scheme):
            return address.geturl().rstrip("/"), False
        return address._replace(netloc=f"{bucket}.{address.netloc}").geturl().rstrip("/"), True
    domain = _DOMAINS.get(region.partition("-")[0], _DOMAINS.get("-".join(region.split("-")[:2]), "amazonaws.com"))
    is_dual = _is_true(properties, "s3.dualstack-enabled")
    if _is_true(properties, "s3.acceleration-enabled"):
        return f"https://{bucket}.s3-accelerate{'.dualstack' if is_dual else ''}.{domain}", True
    host = f"s3{'.dualstack' if is_dual else ''}.{region}.{domain}"
    is_in_path = is_path_style or not _may_be_in_host(bucket, "https")
    return (f"https://{host}", False) if is_in_path else (f"https://{bucket}.{host}", True)


def _may_be_in_host(bucket: str, scheme: str) -> bool:
    """Returns whether Amazon's client takes a bucket for a part of the host name: a certificate covers none with a dot."""
    dot = "." if scheme == "http" else ""
    return re.fullmatch(rf"[a-z0-9][a-z0-9{dot}-]{{1,61}}[a-z0-9]", bucket) is not None


def _s3_encryption(properties: Properties) -> dict[str, str]:
    kind, key = properties.get("s3.sse.type", "none").lower(), properties.get("s3.sse.key", "")
    if kind == "none":
        return {}
    if kind not in _SSE:
        raise SpecError(
            f"`s3.sse.type` is `{kind}`", remedy=f"write one of none, {', '.join(_SSE)}", where="s3.sse.type"
        )
    config = {"server_side_encryption": _SSE[kind]}
    if kind == "custom":
        config["sse_customer_key_base64"] = key
    elif key and kind != "s3":
        config["sse_kms_key_id"] = key
    return config


def _s3_identity(properties: Properties, key: str, secret: str, token: str) -> dict[str, Any]:
    """Returns the arguments for the identity. Keys go by way of a function, as a token of the environment would be added
    to them otherwise; without keys requests are not signed: the driver knows the keys of every other identity. Amazon's
    client takes blanks around keys away, as files of secrets have them at their ends.
    """
    if not properties.get(key):
        return {"skip_signature": True}
    keys = {
        "access_key_id": properties[key].strip(),
        "secret_access_key": properties.get(secret, "").strip(),
        "token": properties.get(token) or None,
        "expires_at": None,
    }
    return {"credential_provider": lambda: keys, "skip_signature": False}


def _oss(properties: Properties, address: Address) -> Client:
    address_text = properties.get("oss.endpoint", "")
    if not address_text:
        raise SpecError("`oss.endpoint` is missing", remedy="write it under `catalog.properties`", where="oss.endpoint")
    endpoint, is_virtual = _s3_endpoint({"s3.endpoint": address_text}, address.bucket, "")
    config: Any = {
        "region": "oss",
        "endpoint": endpoint,
        "aws_endpoint_url_s3": endpoint,
        "virtual_hosted_style_request": is_virtual,
        "disable_bulk_delete": True,
    }
    identity = _s3_identity(properties, "client.access-key-id", "client.access-key-secret", "client.security-token")
    return Client(
        S3Store(
            address.bucket,
            config=config,
            client_options=_options(properties),
            retry_config=_retries(properties),
            **identity,
        )
    )


def _gcs(properties: Properties, address: Address) -> Client:
    headers = {}
    if key := properties.get("gcs.encryption-key", ""):
        if properties.get("gcs.decryption-key", key) != key:
            message = "`gcs.decryption-key` differs from `gcs.encryption-key`"
            raise SpecError(message, remedy="write the same key", where="gcs.decryption-key")
        digest = hashlib.sha256(base64.b64decode(key)).digest()
        headers["x-goog-encryption-algorithm"] = "AES256"
        headers["x-goog-encryption-key"] = key
        headers["x-goog-encryption-key-sha256"] = base64.b64encode(digest).decode()
    if project := properties.get("gcs.user-project"):
        headers["x-goog-user-project"] = project
    service_host = properties.get("gcs.service.host")
    config: Any = {"base_url": service_host.rstrip("/")} if service_host else {}
    # Without a token nothing is authorized: the driver knows the token of every identity but none. obstore's
    # `skip_signature` would still look for one to write.
    bearer = {"token": "" if _is_true(properties, "gcs.no-auth") else properties.get("gcs.oauth2.token", "")}
    identity: Any = {"credential_provider": lambda: {**bearer, "expires_at": None}}
    return Client(
        GCSStore(
            address.bucket,
            config=config,
            client_options=_options(properties, headers)
            | _proxy(properties, urlsplit(gcs_endpoint(properties)).hostname or ""),
            retry_config=_retries(properties),
            **identity,
        )
    )


def gcs_endpoint(properties: Properties) -> str:
    """Returns the address of Google's store."""
    return properties.get("gcs.service.host") or "https://storage.googleapis.com"


def _adls(properties: Properties, address: Address) -> Client:
    """Returns the client of an account's blobs. Java's client takes the host alone for the name of an account in
    properties, and what they call a connection string for the account's address, with a SAS token where it has a query.
    """
    account = address.host.partition(".")[0]
    if not account:
        message = "the address of a container lacks its account"
        raise SpecError(
            message, remedy="write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH", where=address.bucket
        )
    name = f"adls.connection-string.{address.host}"
    endpoint = _adls_endpoint(properties, address)
    if endpoint.scheme not in ("http", "https") or not endpoint.netloc:
        raise SpecError(
            f"`{name}` is not an address, which Iceberg's Java client takes it for",
            remedy=f"write https://{address.host}, and the account's key as `adls.auth.shared-key.account.name` and"
            " `adls.auth.shared-key.account.key`",
            where=name,
        )
    host = endpoint.netloc.replace(".dfs.", ".blob.", 1)
    config: Any = {
        "endpoint": f"{endpoint.scheme}://{host}{endpoint.path}".rstrip("/"),
        "account_name": properties.get("adls.auth.shared-key.account.name") or account,
    }
    return Client(
        AzureStore(
            address.bucket,
            config=config,
            client_options=_options(properties) | _proxy(properties, urlsplit(f"//{host}").hostname or ""),
            retry_config=_retries(properties),
            **_as_adls_arguments(adls_identity(properties, address)),
        )
    )


def adls_host(properties: Properties, address: Address) -> str:
    """Returns the host that Iceberg's Java client sends requests for an account to."""
    return _adls_endpoint(properties, address).hostname or ""


def _adls_endpoint(properties: Properties, address: Address) -> SplitResult:
    return urlsplit(properties.get(f"adls.connection-string.{address.host}") or f"https://{address.host}")


def adls_identity(properties: Properties, address: Address) -> dict[str, str]:
    """Returns the identity that properties name, in Java's order: SAS token, shared key, token; empty for none."""
    host = f"adls.sas-token.{address.host}"
    sas_token = _adls_endpoint(properties, address).query or properties.get(host, "")
    key, token = properties.get("adls.auth.shared-key.account.key"), properties.get("adls.token")
    if sas_token:
        return {"sas_token": sas_token.removeprefix("?")}
    if key:
        return {"access_key": key}
    return {"token": token} if token else {}


def _as_adls_arguments(identity: Mapping[str, str]) -> dict[str, Any]:
    """Returns the arguments for the identity. It goes by way of a function, as one of the environment would go before it
    otherwise; without one requests are not signed: the driver knows the token of every other identity.
    """
    if not identity:
        return {"skip_signature": True}
    return {"credential_provider": lambda: {**identity, "expires_at": None}, "skip_signature": False}


def _options(properties: Properties, headers: Mapping[str, str] | None = None) -> Any:
    kind = properties.get("http-client.type") or "apache"
    connect = _number(properties, f"http-client.{kind}.connection-timeout-ms", _CONNECT_MS)
    socket = _number(properties, f"http-client.{kind}.socket-timeout-ms", _SOCKET_MS)
    return {
        "allow_http": True,
        # To Java's clients 0 is not a limit.
        **({"connect_timeout": timedelta(milliseconds=connect)} if connect else {}),
        **({"read_timeout": timedelta(milliseconds=socket)} if socket else {}),
        "timeout": _REQUEST_TIMEOUT,
        **({"default_headers": dict(headers)} if headers else {}),
    }


def _retries(properties: Properties) -> Any:
    return {
        "max_retries": _number(properties, "s3.retry.num-retries", _RETRIES),
        "retry_timeout": _RETRY_TIMEOUT,
        "backoff": {
            "init_backoff": timedelta(milliseconds=_number(properties, "s3.retry.min-wait-ms", _MIN_WAIT_MS)),
            "max_backoff": timedelta(milliseconds=_number(properties, "s3.retry.max-wait-ms", _MAX_WAIT_MS)),
        },
    }


def _number(properties: Properties, name: str, usual: str) -> int:
    text = properties.get(name, usual)
    if not re.fullmatch(r"\+?[0-9]{1,12}", text):
        raise SpecError(f"`{name}` is `{text}`", remedy=f"write a whole number, such as {usual}", where=name)
    return int(text)


def _is_true(properties: Properties, name: str) -> bool:
    return properties.get(name, "false").lower() == "true"
