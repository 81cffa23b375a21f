"""The properties of the catalog and its store, from a pipeline file."""

from __future__ import annotations

import os
import re
from pathlib import Path

from frazil.spec import PipelineSpec

_SQLITE = {"jdbc.busy_timeout": "60000", "jdbc.journal_mode": "WAL", "jdbc.schema-version": "V1"}
# Without these, a catalog that accepts a connection and never answers would be waited for without end.
_REST = {"rest.client.connection-timeout-ms": "10000", "rest.client.socket-timeout-ms": "60000"}
# The same for a database, in the units of its driver; values in the address win.
_DATABASES = {
    "jdbc:postgresql:": {"jdbc.connectTimeout": "10", "jdbc.socketTimeout": "60"},
    "jdbc:mysql:": {"jdbc.connectTimeout": "10000", "jdbc.socketTimeout": "60000"},
    "jdbc:mariadb:": {"jdbc.connectTimeout": "10000", "jdbc.socketTimeout": "60000"},
}
# The same for a store. Iceberg's six retries stay: they handle a store that asks clients to slow down.
_S3 = {"http-client.apache.socket-timeout-ms": "10000"}
# The default region of stores other than Amazon's; without any region the driver's client refuses to work.
_REGION = {"client.region": "us-east-1"}
_OWN_KEYS = {"s3.access-key-id", "client.credentials-provider", "s3.remote-signing-enabled"}


def catalog_properties(spec: PipelineSpec) -> dict[str, str]:
    """Returns Iceberg's catalog properties; those of the pipeline file win."""
    catalog = spec.catalog
    properties = {"type": catalog.type, "uri": catalog.uri}
    if catalog.type == "jdbc":
        properties["jdbc.schema-version"] = "V1"
        if catalog.uri.startswith("jdbc:sqlite:"):
            properties |= _SQLITE
        properties |= next((bounds for prefix, bounds in _DATABASES.items() if catalog.uri.startswith(prefix)), {})
    if catalog.warehouse:
        properties["warehouse"] = catalog.warehouse
    if catalog.type == "rest":
        properties |= _REST
    if catalog.type == "rest" and not catalog.properties.keys() & _OWN_KEYS:
        # Without keys of its own the pipeline asks the catalog to vend some per table.
        properties["header.X-Iceberg-Access-Delegation"] = "vended-credentials"
    if uses_s3(spec):
        properties |= {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", **_S3}
        endpoint = catalog.properties.get("s3.endpoint", "")
        if endpoint and "amazonaws." not in endpoint and not _has_region():
            properties |= _REGION
    return {**properties, **catalog.properties}


def _has_region() -> bool:
    """Returns whether Amazon's client finds a region in the environment or in its configuration file."""
    file = Path(os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config").expanduser()
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError):
        text = ""
    return bool(os.environ.get("AWS_REGION")) or re.search(r"^\s*region\s*=", text, re.MULTILINE) is not None


def uses_s3(spec: PipelineSpec) -> bool:
    """Returns whether the store is S3, so that its client is needed."""
    catalog = spec.catalog
    warehouse = catalog.warehouse or ""
    named = any(name.startswith(("s3.", "client.region")) for name in catalog.properties)
    return warehouse.startswith(("s3://", "s3a://")) or named or "s3" in catalog.properties.get("io-impl", "").lower()
