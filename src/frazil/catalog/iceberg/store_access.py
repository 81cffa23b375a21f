"""What tasks need to reach a table's store, as Iceberg's own client in the JVM has it.

Java and Python find keys, regions and roles in different places. So the driver asks Iceberg's client for the keys that it
uses, whatever provider, role or machine they come from, and tasks get these, with the time at which they expire.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from py4j.java_gateway import is_instance_of

from frazil.errors import SpecError
from frazil.store.addresses import address_of

_IO = {
    "s3": "org.apache.iceberg.aws.s3.S3FileIO",
    "gcs": "org.apache.iceberg.gcp.gcs.GCSFileIO",
    "adls": "org.apache.iceberg.azure.adlsv2.ADLSFileIO",
    "oss": "org.apache.iceberg.aliyun.oss.OSSFileIO",
}
_HADOOP = "org.apache.iceberg.hadoop.HadoopFileIO"
_WITH_TOKEN = "software.amazon.awssdk.identity.spi.AwsSessionCredentialsIdentity"
_OWN_PROVIDERS = ("client.factory", "s3.client-factory-impl", "client.credentials-provider")


def refuse_hadoop(gateway: Any, io: Any, location: str, table: str) -> None:
    """Raises SpecError for an object store that is reached by Hadoop's file systems: tasks do not read their settings."""
    kind = address_of(location).kind
    if kind in _IO and is_instance_of(gateway, io, _HADOOP):
        scheme = urlsplit(location).scheme
        raise SpecError(
            f"the catalog reaches `{scheme}:` by Hadoop's file system, whose settings tasks do not have",
            remedy=f"write `io-impl: {_IO[kind]}` under `catalog.properties`, with Iceberg's properties of the store",
            where=table,
        )


def vended_for(credentials: Iterable[tuple[str, Mapping[str, str]]], location: str) -> dict[str, str]:
    """Returns the properties of the credentials whose prefix of `location` is the longest; empty without any.
    credentials: prefixes with properties.
    """
    matching = [one for one in credentials if location.startswith(one[0])]
    return dict(max(matching, key=lambda one: len(one[0]))[1]) if matching else {}


def identity_of(gateway: Any, io: Any, location: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties of the keys that Iceberg's client uses, where `properties` have none; empty for a store
    whose client does not show them.
    """
    kind = address_of(location).kind
    if kind == "s3" and is_instance_of(gateway, io, _IO["s3"]) and _needs_s3_identity(properties):
        return _s3_identity(gateway, io.client(location), properties)
    if kind == "gcs" and is_instance_of(gateway, io, _IO["gcs"]):
        is_known = "gcs.oauth2.token" in properties or properties.get("gcs.no-auth", "").lower() == "true"
        return {} if is_known else _gcs_identity(io.client(location))
    return {}


def _needs_s3_identity(properties: Mapping[str, str]) -> bool:
    return "s3.access-key-id" not in properties or any(name in properties for name in _OWN_PROVIDERS)


def _s3_identity(gateway: Any, client: Any, properties: Mapping[str, str]) -> dict[str, str]:
    configuration = client.serviceClientConfiguration()
    found = {"client.region": str(configuration.region().id())}
    endpoint = configuration.endpointOverride()
    if endpoint.isPresent() and "s3.endpoint" not in properties:
        found["s3.endpoint"] = str(endpoint.get())
    keys = configuration.credentialsProvider().resolveCredentials()
    if keys.accessKeyId() is None:  # Anonymous.
        return found
    found |= {"s3.access-key-id": str(keys.accessKeyId()), "s3.secret-access-key": str(keys.secretAccessKey())}
    if is_instance_of(gateway, keys, _WITH_TOKEN):
        found["s3.session-token"] = str(keys.sessionToken())
        if keys.expirationTime().isPresent():
            found["s3.session-token-expires-at-ms"] = str(keys.expirationTime().get().toEpochMilli())
    return found


def _gcs_identity(client: Any) -> dict[str, str]:
    credentials = client.getOptions().getCredentials()
    credentials.refreshIfExpired()
    token = credentials.getAccessToken()
    found = {"gcs.oauth2.token": str(token.getTokenValue())}
    ends = token.getExpirationTime()
    return {**found, "gcs.oauth2.token-expires-at": str(ends.getTime())} if ends is not None else found
