"""Sections of a pipeline file for what it connects to, and for what connects to it (see `models`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from frazil.errors import SpecError
from frazil.plugins.catalogs import CATALOGS, CatalogKind, Service, service_at
from frazil.plugins.driver import ELECTIONS
from frazil.spec.catalog_properties import check_value
from frazil.spec.syntax import forms
from frazil.spec.syntax.document import Node
from frazil.spec.syntax.keys import (
    Connection,
    Declared,
    Form,
    Key,
    SecretStrings,
    SecretText,
    SecretWord,
    not_a_key,
    section,
)
from frazil.spec.syntax.problems import LABEL, Mistake, Mistakes, advice, nearest
from frazil.store.properties import check_property

if TYPE_CHECKING:
    from frazil.spec.syntax.reading import Reading

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
LOCAL_DIRECTORY = "frazil-data"
"""The default folder of catalog, warehouse and state, in the current working directory."""
SQLITE = "jdbc:sqlite:"
_OWNED_CATALOG_PROPERTIES = ("type", "uri", "warehouse")
_BROKER = re.compile(r"\s*(?!https?:)[^\s,]+:[0-9]+\s*")
_OTHER_REFERENCE = re.compile(r"\$\{[A-Za-z]+:[^}]*\}")
"""A reference that another tool replaces, such as those of Kafka Connect's configuration providers."""
SHORTEST_TOKEN = 32
"""The fewest characters of a token."""


def _read_urls(node: Node, reading: Reading) -> tuple[str, ...]:
    instead = "take them out, and write them under `registry.auth`"

    def read_one(item: Node) -> list[str]:
        text = reading.secrets.resolve(forms.read_text(item))
        return [forms.parse_url(url.strip(), LABEL, instead) for url in text.split(",")]

    empty = SpecError(f"`{LABEL}` is an empty list", remedy="write at least one address")
    return tuple(url for urls in forms.one_or_several(node, read_one, empty) for url in urls)


def _read_tokens(node: Node, reading: Reading) -> tuple[str, ...]:
    def read_one(item: Node) -> str:
        token = reading.secrets.resolve(forms.read_text(item), "token")
        if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
            remedy = f"use at least {SHORTEST_TOKEN} letters, digits and signs, such as those of `openssl rand -hex 32`"
            raise SpecError(f"a token of `{LABEL}` is too short, or has a space or another character", remedy=remedy)
        return token

    empty = SpecError(f"`{LABEL}` is an empty list", remedy="write at least one token, or remove it")
    return forms.one_or_several(node, read_one, empty)


def _read_jar(node: Node) -> str:
    jar = str(Path.cwd() / forms.read_text(node))
    if not Path(jar).is_file():
        raise SpecError(f"`{LABEL}` names a file that does not exist: `{jar}`", remedy="correct the path")
    return jar


def _read_path(node: Node, _: Reading) -> str:
    text = forms.read_text(node)
    if "\n" in text:
        message = f"`{LABEL}` is the content of a file where its path is expected"
        raise SpecError(message, remedy="write the path alone, without ${file:…}")
    return str(Path.cwd() / text)


def _check_kafka_property(text: str, key: str) -> None:
    if key in OWNED_KAFKA_PROPERTIES:
        message = f"`{LABEL}` is not for the file to set: {OWNED_KAFKA_PROPERTIES[key]}"
        raise SpecError(message, remedy="remove it")
    if key.startswith("kafka."):
        raise SpecError(f"`{key}` is not a client property", remedy=f"write `{key.removeprefix('kafka.')}`")
    choices = {"isolation.level": ISOLATION_LEVELS, TOPICS_FROM: TOPICS_FROM_CHOICES}.get(key)
    if choices is not None and text not in choices:
        raise SpecError(f"`{LABEL}` cannot be `{text}`", remedy=advice(text, choices))


def _check_registry_property(_: str, key: str) -> None:
    if key in OWNED_REGISTRY_PROPERTIES:
        raise SpecError(f"`{LABEL}` is not for the file to set", remedy=OWNED_REGISTRY_PROPERTIES[key])


def _check_catalog_property(text: str, key: str) -> None:
    if key in _OWNED_CATALOG_PROPERTIES:
        raise SpecError(f"`{key}` is not a further property of the catalog", remedy=f"write it as `catalog.{key}`")
    check_property(key, text)
    check_value(key, text)


def _read_kafka(node: Node, reading: Reading) -> dict[str, str]:
    """Kafka's client properties; the isolation level is `read_committed` by default."""
    assert _KAFKA_PROPERTIES.read is not None
    read: dict[str, str] = _KAFKA_PROPERTIES.read(node, reading)
    brokers = read.get("bootstrap.servers", "")
    if not all(map(_BROKER.fullmatch, brokers.split(","))):
        remedy = "write the brokers, such as `bootstrap.servers: broker-1:9092,broker-2:9092`"
        if strange := _OTHER_REFERENCE.search(brokers):
            state = f"refers to `{strange[0]}`, and Frazil reads only `${{env:NAME}}` and `${{file:PATH}}`"
            remedy = "write the brokers, or `${env:NAME}` for an environment variable"
        elif "bootstrap.servers" in read:
            state = "is not a list of host:port"
        else:
            state = "is missing"
            if near := nearest("bootstrap.servers", read):
                remedy = f"write `bootstrap.servers` in place of `{near}`"
        raise Mistakes([Mistake("bootstrap.servers", f"`kafka.bootstrap.servers` {state}", remedy)], are_rules=True)
    return {"isolation.level": ISOLATION_LEVELS[0]} | read


_PATH = replace(forms.TEXT, read=_read_path)
_FILE_REMEDY = "write the path of its file (PEM)"
_TOKENS = Form(forms.TEXT_OR_TEXTS, read=_read_tokens, has_secrets=True)
_KAFKA_PROPERTIES = forms.strings(
    _check_kafka_property, section("kafka").schema, '`kafka: {bootstrap.servers: "localhost:9092"}`'
)
KAFKA = replace(_KAFKA_PROPERTIES, read=_read_kafka)


class CatalogSpec(Connection, json_schema_extra={"not": {"required": ["type", "impl"]}}):
    """Which Iceberg catalog. Local paths are absolute."""

    type: Annotated[str, Key(registered=CATALOGS)] = "jdbc"
    """The kind of catalog."""
    #: None: `type` names the kind.
    impl: Annotated[str | None, forms.TEXT] = None
    """The Java class of any other catalog, instead of `type`."""
    name: Annotated[str, forms.TEXT] = "frazil"
    """The name under which a JDBC catalog stores its tables; catalogs of the other types store no name."""
    uri: Annotated[SecretText, forms.TEXT] = ""
    """The catalog's address; by default a SQLite file under ./frazil-data."""
    #: None where a REST catalog chooses it itself.
    warehouse: Annotated[SecretWord, forms.TEXT] = None
    """Where tables are stored; a local path is relative to the working directory."""
    properties: Annotated[SecretStrings, forms.strings(_check_catalog_property)] = Field({})
    """Further catalog properties, with Iceberg's own names, passed through."""
    jars: Annotated[tuple[str, ...], replace(forms.TEXTS, read=lambda node, _: forms.read_list(node, _read_jar))] = ()
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


def local_catalog() -> CatalogSpec:
    """The catalog of a file that names none."""
    local = Path.cwd() / LOCAL_DIRECTORY
    return CatalogSpec(uri=f"{SQLITE}{local}/catalog.db", warehouse=f"{local}/warehouse")


class AuthSpec(
    Connection, json_schema_extra={"oneOf": [{"required": ["username", "password"]}, {"required": ["token"]}]}
):
    """How to log in to the registry: with user and password, with a token, or (all are None) not at all."""

    username: Annotated[SecretWord, forms.TEXT] = None
    """The user."""
    password: Annotated[SecretWord, forms.TEXT] = None
    """The password, as ${env:NAME} or ${file:PATH}."""
    token: Annotated[SecretWord, forms.TEXT] = None
    """A bearer token, as ${env:NAME} or ${file:PATH}, in place of user and password."""


class TlsSpec(
    Connection, json_schema_extra={"dependentRequired": {"key": ["certificate"], "key_password": ["certificate"]}}
):
    """Files for TLS, their paths absolute; what is None is the machine's own choice."""

    ca: Annotated[SecretWord, _PATH] = None
    """File (PEM) or folder of the authorities that the registry's certificate may come from."""
    certificate: Annotated[SecretWord, _PATH] = None
    """File (PEM) with the certificate that Frazil shows."""
    key: Annotated[SecretWord, _PATH] = None
    """File (PEM) with that certificate's key, unless it is in the same file."""
    key_password: Annotated[SecretWord, forms.TEXT] = None
    """The password of the key, as ${env:NAME} or ${file:PATH}."""


class RegistrySpec(Connection):
    """The schema registry."""

    #: At least one, without credentials and without a slash at the end.
    urls: Annotated[
        tuple[str, ...],
        Form(forms.ADDRESSES, read=_read_urls, has_secrets=True),
        Key(remedy="write its address, such as `url: https://registry:8081`"),
        Field(validation_alias="url", repr=False, exclude=True),
    ]
    """The registry's address; several, as a list or comma-separated, are tried one after another."""
    auth: Annotated[AuthSpec, section("auth")] = AuthSpec()
    """How to log in: with user and password, or with a token."""
    tls: Annotated[TlsSpec, section("tls")] = TlsSpec()
    """Certificates of your own; public ones need no setting."""
    #: Empty for the default one.
    context: Annotated[str, forms.CONTEXT] = ""
    """The context that subjects and ids belong to."""
    naming: Literal["topic", "record", "topic_record"] = "topic"
    """How producers name subjects: after the topic, after the record's type, or after both."""
    properties: Annotated[
        SecretStrings,
        forms.strings(
            _check_registry_property,
            {**forms.STRINGS, "propertyNames": {"not": {"enum": list(OWNED_REGISTRY_PROPERTIES)}}},
        ),
    ] = Field({})
    """Further properties of Confluent's registry client, with its own names, passed through."""


class SparkSpec(Connection):
    """Spark's master URL and its own properties."""

    master: Annotated[SecretText, forms.TEXT] = "local[*]"
    """Spark's master URL."""
    conf: Annotated[SecretStrings, forms.SPARK_CONF] = Field({})
    """Spark's own properties."""


class HttpTokensSpec(Declared):
    """Tokens that callers of the HTTP service send as `Authorization: Bearer …`. Without any everyone may call it."""

    read: Annotated[tuple[str, ...], _TOKENS, Field(repr=False, exclude=True)] = ()
    """Tokens that may read, as ${env:NAME} or ${file:PATH}, each of at least 32 characters: one, or a list."""
    operate: Annotated[tuple[str, ...], _TOKENS, Field(repr=False, exclude=True)] = ()
    """Tokens that may read and act, in the same form."""


class HttpTlsSpec(Connection):
    """The certificate of the HTTP service; paths are absolute."""

    certificate: Annotated[str, _PATH, Key(remedy=_FILE_REMEDY)]
    """File (PEM) with the certificate and its intermediate certificates."""
    key: Annotated[str, _PATH, Key(remedy=_FILE_REMEDY)]
    """File (PEM) with the certificate's key."""


class HttpSpec(Connection):
    """The HTTP service of `frazil run`."""

    listen: Annotated[forms.Address, forms.LISTEN, Key(default="127.0.0.1:8787")] = forms.Address("127.0.0.1", 8787)
    """Where it listens. An address that other machines reach needs `tokens` and `tls`."""
    tokens: Annotated[HttpTokensSpec, section("http_tokens")] = HttpTokensSpec()
    """The tokens that callers need."""
    tls: Annotated[HttpTlsSpec | None, section("http_tls")] = None
    """The certificate for HTTPS."""
    #: Whether the file has `listen`: then an address that another process uses is an error.
    is_declared: Annotated[bool, not_a_key("is_declared")] = False


class TelemetrySpec(Connection):
    """Where `frazil run` sends metrics, traces and lineage. Nothing that happens there slows, blocks or fails a batch."""

    #: Without a slash at the end; None: what the environment has, or nowhere.
    otlp: Annotated[str | None, forms.ADDRESS] = None
    """The OTLP/HTTP address of an OpenTelemetry collector, such as http://127.0.0.1:4318, for metrics and traces; by
    default the variable OTEL_EXPORTER_OTLP_ENDPOINT. Needs the extra `otel`."""
    #: Without a slash at the end; None: what the environment has, or nowhere.
    openlineage: Annotated[str | None, forms.ADDRESS] = None
    """The address of an OpenLineage service, such as http://127.0.0.1:5000, for lineage; by default the variable
    OPENLINEAGE_URL. Needs the extra `openlineage`."""


class HaSpec(
    Connection,
    json_schema_extra={
        "if": {"properties": {"elect": {"const": "postgres"}}, "required": ["elect"]},
        "then": {"required": ["uri"]},
        "else": {"not": {"required": ["uri"]}},
    },
):
    """Several processes of one pipeline: how they choose who works."""

    elect: Annotated[str, Key(choices=("kafka", "kubernetes", "postgres", "none"), registered=ELECTIONS)] = "kafka"
    """How a leader is elected; with `none` the newest run works, and the others end."""
    mode: Literal["lead", "spread"] = "lead"
    """`lead`: the leader works on all tables; `spread`: the tables are divided among the processes."""
    listen: Annotated[forms.Address | None, forms.LISTEN] = None
    """Where a process listens for the other processes; by default any free port at the address by which it reaches
    Kafka."""
    #: None unless `elect` is `postgres`.
    uri: Annotated[SecretWord, forms.TEXT] = None
    """With `postgres`: the database, as postgresql://USER:PASSWORD@HOST:PORT/DATABASE; the password as ${env:NAME}."""
