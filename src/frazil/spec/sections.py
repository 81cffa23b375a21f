"""The sections that say where things are and how they run: kafka, catalog, spark, commit.

What is checked after a secret was put in is never shown in a message.
"""

from __future__ import annotations

import re
from pathlib import Path

from frazil.errors import SpecError
from frazil.spec.document import Entry
from frazil.spec.models import CatalogSpec, CommitSpec, SparkSpec
from frazil.spec.problems import Problems, advice
from frazil.spec.reading import Fields, read_strings
from frazil.spec.secrets import Secrets
from frazil.spec.units import parse_duration, parse_size
from frazil.spec.vocabulary import CATALOG, COMMIT, ISOLATION_LEVELS, OWNED_KAFKA_PROPERTIES, SPARK

_SQLITE = "jdbc:sqlite:"
_OWNED_CATALOG_PROPERTIES = ("type", "uri", "warehouse")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def read_kafka(entry: Entry | None, secrets: Secrets, problems: Problems) -> dict[str, str]:
    """Kafka's client properties; the isolation level is `read_committed` unless the file says otherwise."""
    if entry is None:
        return {}

    def convert(text: str, key: str) -> str:
        _check_kafka_property(text, key)
        return secrets.resolve(text, key)

    properties = read_strings(entry.value, "kafka", problems, convert)
    brokers = properties.get("bootstrap.servers", "")
    if not re.fullmatch(r"\s*[^\s,]+:[0-9]+(\s*,\s*[^\s,]+:[0-9]+)*\s*", brokers):
        state = "is not a list of host:port" if brokers else "is missing"
        remedy = "write the brokers, such as `bootstrap.servers: broker-1:9092,broker-2:9092`"
        problems.add(entry.line, f"`kafka.bootstrap.servers` {state}", remedy)
    return {"isolation.level": ISOLATION_LEVELS[0]} | properties


def read_catalog(entry: Entry | None, local: Path, secrets: Secrets, problems: Problems) -> CatalogSpec:
    """The catalog; what the file leaves out lies in the directory `local`."""
    default = CatalogSpec(uri=f"{_SQLITE}{local}/catalog.db", warehouse=f"{local}/warehouse")
    if entry is None:
        return default
    fields = Fields(entry.value, CATALOG, "catalog", problems)
    is_rest = fields.choice("type") == "rest"
    uri = _resolved_text(fields, "uri", secrets, problems)
    warehouse = _resolved_text(fields, "warehouse", secrets, problems)
    properties = fields.strings("properties", lambda text, key: _catalog_property(text, key, secrets))
    if is_rest:
        _check_rest(fields, entry, uri, problems)
        return CatalogSpec(type="rest", uri=uri or "", warehouse=warehouse, properties=properties)
    _check_jdbc(fields, uri, problems)
    return CatalogSpec(
        uri=_absolute_uri(uri) if uri else default.uri,
        warehouse=_absolute_path(warehouse) if warehouse else default.warehouse,
        properties=properties,
    )


def read_spark(entry: Entry | None, secrets: Secrets, problems: Problems) -> SparkSpec:
    """Spark's master and properties."""
    if entry is None:
        return SparkSpec()
    fields = Fields(entry.value, SPARK, "spark", problems)
    conf = fields.strings("conf", lambda text, key: _spark_property(text, key, secrets))
    return SparkSpec(master=_resolved_text(fields, "master", secrets, problems) or SparkSpec().master, conf=conf)


def read_commit(entry: Entry | None, inherited: CommitSpec, problems: Problems) -> CommitSpec:
    """When to commit; what the file leaves out is `inherited`."""
    if entry is None:
        return inherited
    fields = Fields(entry.value, COMMIT, "commit", problems)
    interval_s, size_bytes = inherited.interval_s, inherited.target_file_size_bytes
    interval, size = fields.quantity("interval"), fields.quantity("target_file_size")
    if interval:
        interval_s = problems.attempt(interval.line, interval_s, parse_duration, interval.text)
    if size:
        size_bytes = problems.attempt(size.line, size_bytes, parse_size, size.text)
    return CommitSpec(interval_s=interval_s, target_file_size_bytes=size_bytes)


def _check_kafka_property(text: str, key: str) -> None:
    if key in OWNED_KAFKA_PROPERTIES:
        message = f"`kafka.{key}` is not for the file to set: {OWNED_KAFKA_PROPERTIES[key]}"
        raise SpecError(message, remedy="remove it")
    if key.startswith("kafka."):
        raise SpecError(f"`{key}` is not a client property", remedy=f"write `{key.removeprefix('kafka.')}`")
    if key == "isolation.level" and text not in ISOLATION_LEVELS:
        raise SpecError(f"`kafka.{key}` cannot be `{text}`", remedy=advice(text, ISOLATION_LEVELS))


def _catalog_property(text: str, key: str, secrets: Secrets) -> str:
    if key in _OWNED_CATALOG_PROPERTIES:
        raise SpecError(f"`{key}` is not a further property of the catalog", remedy=f"write it as `catalog.{key}`")
    return secrets.resolve(text, key)


def _spark_property(text: str, key: str, secrets: Secrets) -> str:
    if not key.startswith("spark."):
        remedy = f"write `spark.{key}`, or `spark.hadoop.{key}` for a property of Hadoop"
        raise SpecError(f"Spark ignores `{key}`: its properties begin with `spark.`", remedy=remedy)
    return secrets.resolve(text, key)


def _resolved_text(fields: Fields, key: str, secrets: Secrets, problems: Problems) -> str | None:
    text, entry = fields.text(key), fields.get(key)
    if text is None or entry is None:
        return None
    return problems.attempt(entry.value.line, None, secrets.resolve, text, key)


def _check_rest(fields: Fields, entry: Entry, uri: str | None, problems: Problems) -> None:
    written = fields.get("uri")
    if written is None:
        remedy = "write its address, such as `uri: https://catalog/api`"
        problems.add(entry.line, "`catalog.uri` is missing: a REST catalog has no default", remedy)
    elif uri and not re.match("https?://", uri):
        problems.add(written.line, "`catalog.uri` is not an HTTP address", "begin it with http:// or https://")


def _check_jdbc(fields: Fields, uri: str | None, problems: Problems) -> None:
    written = fields.get("uri")
    if written is None or uri is None:
        return
    if not uri.startswith("jdbc:"):
        remedy = "begin it with jdbc:, or write `type: rest`"
        problems.add(written.line, "`catalog.uri` is not a JDBC address", remedy)
    elif not uri.startswith(_SQLITE) and fields.get("warehouse") is None:
        remedy = "write where tables are stored, such as `warehouse: s3://lake/`"
        problems.add(written.line, "`catalog.warehouse` is missing: only SQLite has a default", remedy)


def _absolute_uri(uri: str) -> str:
    path = uri.removeprefix(_SQLITE)
    if path == uri or not path or path.startswith((":", "file:")):
        return uri
    return f"{_SQLITE}{Path.cwd() / path}"


def _absolute_path(warehouse: str) -> str:
    return warehouse if _SCHEME.match(warehouse) else str(Path.cwd() / warehouse)
