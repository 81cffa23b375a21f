"""The properties of the catalog and its store, from a pipeline file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from contextlib import contextmanager, suppress
from pathlib import Path

from frazil.runtime.jvm import Jvm
from frazil.spec import PipelineSpec
from frazil.store.addresses import address_of

# Without the first, a store that accepts a connection and never answers would be waited for without end. The second is the
# pause of the tasks: with Iceberg's own, of two seconds, every failed request would make rows late; its five repetitions
# stay, which handle a store that asks clients to slow down. With the third a manifest is read by one request, not by two
# (docs/decisions/0059-late-rows-on-object-stores.md).
_S3 = {
    "http-client.apache.socket-timeout-ms": "10000",
    "s3.retry.min-wait-ms": "200",
    "io.manifest.cache-enabled": "true",
}
# The default region of stores other than Amazon's; without any region the driver's client refuses to work.
_REGION = {"client.region": "us-east-1"}
_AMAZON = "org.apache.iceberg.aws."
_OWN_KEYS = {"s3.access-key-id", "client.credentials-provider", "s3.remote-signing-enabled"}


def catalog_properties(spec: PipelineSpec) -> dict[str, str]:
    """Returns Iceberg's catalog properties; those of the pipeline file win."""
    catalog, kind = spec.catalog, spec.catalog.kind
    properties = {**kind.properties, **({"uri": catalog.uri} if catalog.uri else {})}
    properties |= next((more for prefix, more in kind.by_uri.items() if catalog.uri.startswith(prefix)), {})
    if catalog.warehouse:
        properties["warehouse"] = catalog.warehouse
    if kind.vends_credentials and not catalog.properties.keys() & _OWN_KEYS:
        # Without keys of its own the pipeline asks the catalog to vend some per table.
        properties["header.X-Iceberg-Access-Delegation"] = "vended-credentials"
    if uses_s3(spec):
        properties |= {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", **_S3}
    endpoint = catalog.properties.get("s3.endpoint", "")
    if endpoint and "amazonaws." not in endpoint and not _has_region():
        properties |= _REGION
    return {**properties, **catalog.properties}


def properties_for_reading(spec: PipelineSpec) -> dict[str, str]:
    """Returns the catalog's properties without those with which Iceberg would prepare its store."""
    kind, set_names = spec.catalog.kind, spec.catalog.properties.keys()
    kept = {name: text for name, text in catalog_properties(spec).items() if name not in kind.unread - set_names}
    return {**kept, **kind.for_reading}


def spark_conf(spec: PipelineSpec) -> dict[str, str]:
    """Returns Spark's properties, with the jars and Hadoop's settings of the catalog."""
    kind = spec.catalog.kind
    jars = (spec.spark.conf.get("spark.jars", ""), *kind.jars, *spec.catalog.jars)
    hadoop = {f"spark.hadoop.{name}": text for name, text in kind.hadoop.items()}
    return {**hadoop, **spec.spark.conf, **({"spark.jars": ",".join(filter(None, jars))} if any(jars) else {})}


def _has_region() -> bool:
    """Returns whether Amazon's client finds a region in the environment, or in its files for the profile that it takes."""
    environment = os.environ
    profile = environment.get("AWS_PROFILE") or "default"
    config_file = environment.get("AWS_CONFIG_FILE") or "~/.aws/config"
    credentials = environment.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"
    config = ConfigParser(strict=False, interpolation=None, allow_no_value=True, default_section="")
    for file in (config_file, credentials):
        with suppress(OSError, UnicodeDecodeError, ConfigParserError):
            config.read_string(Path(file).expanduser().read_text())
    named = any(config.has_option(section, "region") for section in (profile, f"profile {profile}"))
    return bool(environment.get("AWS_REGION")) or named


def uses_s3(spec: PipelineSpec) -> bool:
    """Returns whether the store is S3, so that its client is needed."""
    catalog = spec.catalog
    warehouse = catalog.warehouse or ""
    named = any(name.startswith(("s3.", "client.region")) for name in catalog.properties)
    is_elsewhere = warehouse.startswith(("/", "file:"))  # The properties are those of a lock, or of the catalog.
    is_s3 = warehouse.startswith(("s3://", "s3a://")) or "s3" in catalog.properties.get("io-impl", "").lower()
    return is_s3 or (named and not is_elsewhere)


def uses_aws(spec: PipelineSpec) -> bool:
    """Returns whether Amazon's clients are needed: of the store, the catalog, its lock, a lookup's file, or to sign requests
    to it.
    """
    properties = {**spec.catalog.kind.properties, **spec.catalog.properties}
    signs = properties.get("rest.auth.type") == "sigv4" or properties.get("rest.sigv4-enabled", "").lower() == "true"
    looks_up = any(address_of(file).kind == "s3" for file in spec.lookup_files)
    return uses_s3(spec) or signs or looks_up or any(text.startswith(_AMAZON) for text in properties.values())


@contextmanager
def running_jvm(
    spec: PipelineSpec, meanwhile: Callable[[], object] = lambda: None, limit_s: float | None = None
) -> Iterator[Jvm]:
    """Opens the JVM of this process, with the store's client where it needs one. meanwhile: is called while it starts.
    limit_s: how long the archives for a cluster may take to be built.
    """
    jvm = Jvm(spark_conf(spec), spec.spark.master, uses_aws(spec), meanwhile, limit_s)
    try:
        yield jvm
    except BaseException as error:
        if not isinstance(error, Exception):  # Stopped at once: nothing in the JVM is waited for.
            jvm.kill()
        raise
    finally:
        jvm.close()
