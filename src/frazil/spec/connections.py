"""Sections of a pipeline file for what it connects to, and for what connects to it (see `models`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from frazil.plugins.catalogs import CATALOGS, CatalogKind, Service, service_at
from frazil.spec.syntax.forms import (
    ADDRESS,
    ADDRESSES,
    CONTEXT,
    LISTEN,
    SPARK_CONF,
    STRINGS,
    TEXT,
    TEXT_OR_TEXTS,
    TEXTS,
    Address,
)
from frazil.spec.syntax.keys import NOT_A_KEY, Declared, Form, Key, SecretStrings, SecretText, SecretWord, section

OWNED_REGISTRY_PROPERTIES: Mapping[str, str] = {
    "url": "write it as `registry.url`",
    "basic.auth.user.info": "write `registry.auth: {username: …, password: …}`",
    "bearer.auth.token": "write `registry.auth: {token: …}`",
    "ssl.ca.location": "write it as `registry.tls.ca`",
    "ssl.certificate.location": "write it as `registry.tls.certificate`",
    "ssl.key.location": "write it as `registry.tls.key`",
    "ssl.key.password": "write it as `registry.tls.key_password`",
    "timeout": "remove it: Frazil waits ten seconds for an answer",
    "max.retries": "remove it: Frazil tries again itself",
    "retries.wait.ms": "remove it: Frazil tries again itself",
    "retries.max.wait.ms": "remove it: Frazil tries again itself",
    "cache.capacity": "remove it: Frazil keeps every schema that it met",
    "cache.latest.ttl.sec": "remove it: the latest schema is kept for a minute",
}
"""Properties of the registry's client that the file has other keys for, and what to write."""
OWNED_KAFKA_PROPERTIES: Mapping[str, str] = {
    "group.id": "Frazil names its own groups",
    "auto.offset.reset": "set `start` for where a table begins, and `on_data_loss` for lost offsets",
    "enable.auto.commit": "progress is in the table, nothing is committed to Kafka",
    "key.deserializer": "Frazil reads bytes and decodes them itself",
    "value.deserializer": "Frazil reads bytes and decodes them itself",
}
"""Properties of Kafka's clients that are not for the file to set, and why."""
ISOLATION_LEVELS = ("read_committed", "read_uncommitted")
TOPICS_FROM, TOPICS_FROM_CHOICES = "topics_from", ("topic_configuration",)
"""The one key under `kafka` that is Frazil's own, and its values."""


class CatalogSpec(Declared, json_schema_extra={"not": {"required": ["type", "impl"]}}):
    """Which Iceberg catalog. Local paths are absolute."""

    type: Annotated[str, Key(registered=CATALOGS)] = "jdbc"
    """The kind of catalog."""
    #: None: `type` names the kind.
    impl: Annotated[str | None, TEXT] = None
    """The Java class of a catalog that is none of the known kinds, in place of `type`."""
    name: Annotated[str, TEXT] = "frazil"
    """The name under which a JDBC catalog keeps its tables; catalogs of the other types do not keep one."""
    uri: Annotated[SecretText, TEXT]
    """The catalog's address; by default a SQLite file under ./frazil-data."""
    #: None where a REST catalog chooses it itself.
    warehouse: Annotated[SecretWord, TEXT] = None
    """Where tables are stored; a local path is relative to the working directory."""
    properties: Annotated[SecretStrings, STRINGS] = Field({})
    """Further catalog properties, with Iceberg's own names, passed through."""
    jars: Annotated[tuple[str, ...], TEXTS] = ()
    """Paths of jars with the classes that the catalog and its store need, relative to the working directory."""

    @property
    def service(self) -> Service | None:
        """The managed service at a REST catalog's address; None for another one."""
        return service_at(self.uri) if self.type == "rest" and self.impl is None else None

    @property
    def kind(self) -> CatalogKind:
        """What Frazil knows of the catalog; of a Java class only that."""
        if self.impl is None:
            kind = CATALOGS.get(self.type)
            return replace(kind, lowers_names=True) if self.service is not None and self.service.lowers_names else kind
        return CatalogKind({"catalog-impl": self.impl}, needs_spark_jars=True, keeps_name=True)


class AuthSpec(
    Declared, json_schema_extra={"oneOf": [{"required": ["username", "password"]}, {"required": ["token"]}]}
):
    """How to log in to the registry: with user and password, with a token, or (all are None) not at all."""

    username: Annotated[SecretWord, TEXT] = None
    """The user."""
    password: Annotated[SecretWord, TEXT] = None
    """The password, as ${env:NAME} or ${file:PATH}."""
    token: Annotated[SecretWord, TEXT] = None
    """A bearer token, as ${env:NAME} or ${file:PATH}, in place of user and password."""


class TlsSpec(
    Declared, json_schema_extra={"dependentRequired": {"key": ["certificate"], "key_password": ["certificate"]}}
):
    """Files for TLS, their paths absolute; what is None is the machine's own choice."""

    ca: Annotated[SecretWord, TEXT] = None
    """File (PEM) or folder of the authorities that the registry's certificate may come from."""
    certificate: Annotated[SecretWord, TEXT] = None
    """File (PEM) with the certificate that Frazil shows."""
    key: Annotated[SecretWord, TEXT] = None
    """File (PEM) with that certificate's key, unless it is in the same file."""
    key_password: Annotated[SecretWord, TEXT] = None
    """What opens the key, as ${env:NAME} or ${file:PATH}."""


class RegistrySpec(Declared, json_schema_extra={"required": ["url"]}):
    """The schema registry."""

    #: At least one, without credentials and without a slash at the end.
    urls: Annotated[tuple[str, ...], Key(ADDRESSES, name="url"), Field(repr=False, exclude=True)]
    """The registry's address; several, as a list or comma-separated, are tried one after another."""
    auth: Annotated[AuthSpec, section("auth")] = AuthSpec()
    """How to log in: with user and password, or with a token."""
    tls: Annotated[TlsSpec, section("tls")] = TlsSpec()
    """Certificates of your own; public ones need no setting."""
    #: Empty for the default one.
    context: Annotated[str, CONTEXT] = ""
    """The context that subjects and ids belong to."""
    naming: Literal["topic", "record", "topic_record"] = "topic"
    """How producers name subjects: after the topic, after the record's type, or after both."""
    properties: Annotated[
        SecretStrings, Form({**STRINGS.schema, "propertyNames": {"not": {"enum": list(OWNED_REGISTRY_PROPERTIES)}}})
    ] = Field({})
    """Further properties of Confluent's registry client, with its own names, passed through."""


class SparkSpec(Declared):
    """Spark's master URL and its own properties."""

    master: Annotated[SecretText, TEXT] = "local[*]"
    """Spark's master URL."""
    conf: Annotated[SecretStrings, SPARK_CONF] = Field({})
    """Spark's own properties."""


class HttpTokensSpec(Declared):
    """Tokens that callers of the HTTP service send as `Authorization: Bearer …`. Without any everyone may call it."""

    read: Annotated[tuple[str, ...], TEXT_OR_TEXTS, Field(repr=False, exclude=True)] = ()
    """Tokens that may read, as ${env:NAME} or ${file:PATH}, each of at least 32 characters: one, or a list."""
    operate: Annotated[tuple[str, ...], TEXT_OR_TEXTS, Field(repr=False, exclude=True)] = ()
    """Tokens that may read and act, in the same form."""


class HttpTlsSpec(Declared, json_schema_extra={"required": ["certificate", "key"]}):
    """The certificate of the HTTP service; paths are absolute."""

    certificate: Annotated[str, TEXT]
    """File (PEM) with the certificate, and those of the authorities between it and the root."""
    key: Annotated[str, TEXT]
    """File (PEM) with the certificate's key."""


class HttpSpec(Declared):
    """The HTTP service of `frazil run`."""

    listen: Annotated[
        Address,
        Key(LISTEN, default="127.0.0.1:8787"),
    ] = Address("127.0.0.1", 8787)
    """Where it listens. An address that other machines reach needs `tokens` and `tls`."""
    tokens: Annotated[HttpTokensSpec, section("http_tokens")] = HttpTokensSpec()
    """The tokens that callers need."""
    tls: Annotated[HttpTlsSpec | None, section("http_tls")] = None
    """The certificate for HTTPS."""
    #: Whether the file has `listen`: then an address that another process uses is an error.
    is_declared: Annotated[bool, NOT_A_KEY] = False


class TelemetrySpec(Declared):
    """Where `frazil run` sends metrics, traces and lineage. Nothing that happens there slows, blocks or fails a batch."""

    #: Without a slash at the end; None: what the environment has, or nowhere.
    otlp: Annotated[str | None, ADDRESS] = None
    """The OTLP/HTTP address of an OpenTelemetry collector, such as http://127.0.0.1:4318, for metrics and traces; by default
    that of the variable OTEL_EXPORTER_OTLP_ENDPOINT. Needs the extra `otel`."""
    #: Without a slash at the end; None: what the environment has, or nowhere.
    openlineage: Annotated[str | None, ADDRESS] = None
    """The address of an OpenLineage service, such as http://127.0.0.1:5000, for lineage; by default that of the variable
    OPENLINEAGE_URL. Needs the extra `openlineage`."""


class HaSpec(
    Declared,
    json_schema_extra={
        "if": {"properties": {"elect": {"const": "postgres"}}, "required": ["elect"]},
        "then": {"required": ["uri"]},
        "else": {"not": {"required": ["uri"]}},
    },
):
    """Several processes of one pipeline: how they choose who works."""

    elect: Literal["kafka", "kubernetes", "postgres", "none"] = "kafka"
    """How a leader is elected; with `none` the newest run works, and the others end."""
    mode: Literal["lead", "spread"] = "lead"
    """`lead`: the leader works on all tables; `spread`: the tables are divided among the processes."""
    listen: Annotated[Address | None, LISTEN] = None
    """Where a process listens for the others; by default any free port at the address by which it reaches Kafka."""
    #: None unless `elect` is `postgres`.
    uri: Annotated[SecretWord, TEXT] = None
    """With `postgres`: the database, as postgresql://USER:PASSWORD@HOST:PORT/DATABASE; the password as ${env:NAME}."""
