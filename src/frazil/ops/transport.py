"""Checks for secrets that are sent unencrypted. They are warnings: the network may be closed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from frazil.ops.check import Finding
from frazil.spec import PipelineSpec
from frazil.spec.secrets import is_secret_key

_SPARK_NEEDS = ("spark.authenticate", "spark.network.crypto.enabled", "spark.io.encryption.enabled")


def check_transport(spec: PipelineSpec) -> Iterator[Finding]:
    """Yields a finding for each connection that sends secrets unencrypted."""
    yield from _check_http(spec)
    yield from _check_kafka(spec.kafka)
    yield from _check_spark(spec)


def _check_http(spec: PipelineSpec) -> Iterator[Finding]:
    uri = spec.catalog.uri
    named = [key for key in spec.catalog.properties if is_secret_key(key)]
    has_secret = bool(named) or "@" in urlsplit(uri).netloc if uri.startswith("http") else False
    if uri.startswith("http://") and has_secret and not _is_loopback(uri):
        yield _mind("catalog", "the catalog's credentials are sent over http://", "write https:// in `catalog.uri`")
    registry = spec.registry
    if registry is None or not (
        registry.auth.password or registry.auth.token or any(map(is_secret_key, registry.properties))
    ):
        return
    if any(url.startswith("http://") and not _is_loopback(url) for url in registry.urls):
        yield _mind("registry", "the registry's credentials are sent over http://", "write https:// in `registry.url`")


def _check_kafka(kafka: Mapping[str, str]) -> Iterator[Finding]:
    protocol = kafka.get("security.protocol", "").upper()
    mechanism = (kafka.get("sasl.mechanism") or kafka.get("sasl.mechanisms") or "").upper()
    hosts = (f"kafka://{server.strip()}" for server in kafka.get("bootstrap.servers", "").split(","))
    if protocol == "SASL_PLAINTEXT" and mechanism in ("PLAIN", "OAUTHBEARER") and not all(map(_is_loopback, hosts)):
        yield _mind("kafka", "Kafka's credentials are sent without encryption", "write `security.protocol: SASL_SSL`")


def _check_spark(spec: PipelineSpec) -> Iterator[Finding]:
    """Checks Spark's connections: every task receives Kafka's passwords and the store's keys, and the driver unpickles
    its answer.
    """
    if spec.spark.master.startswith("local") and not spec.spark.master.startswith("local-cluster"):
        return
    lacking = [name for name in _SPARK_NEEDS if spec.spark.conf.get(name, "false").lower() != "true"]
    if spec.spark.conf.get("spark.ssl.rpc.enabled", "false").lower() == "true":
        lacking = [name for name in lacking if name != "spark.network.crypto.enabled"]
    if lacking:
        settings = ", ".join(f"{name}: true" for name in lacking)
        yield _mind(
            "spark",
            f"passwords travel between the driver and executors without {' and '.join(lacking)}",
            f"write `spark: {{conf: {{{settings}}}}}`, with spark.authenticate.secret where the master is standalone",
        )


def _mind(what: str, found: str, remedy: str) -> Finding:
    return Finding(f"transport of {what}", True, "looked for encryption in the file", f"mind: {found}; {remedy}")


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
