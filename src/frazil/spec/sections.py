"""The sections beside the tables: kafka, registry, catalog, spark, commit, maintenance, http.

A value that a secret was put into is never shown in a message.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from frazil.errors import SpecError
from frazil.spec.catalog_properties import check_value, lacking
from frazil.spec.connections import (
    ISOLATION_LEVELS,
    OWNED_KAFKA_PROPERTIES,
    OWNED_REGISTRY_PROPERTIES,
    TOPICS_FROM,
    TOPICS_FROM_CHOICES,
    AuthSpec,
    CatalogSpec,
    HaSpec,
    HttpSpec,
    HttpTlsSpec,
    HttpTokensSpec,
    RegistrySpec,
    SparkSpec,
    TelemetrySpec,
    TlsSpec,
)
from frazil.spec.models import MAINTENANCE_KEYS, OF_ALL_TABLES
from frazil.spec.partitioning import find_type, is_declared_otherwise
from frazil.spec.settings import SKIPPABLE, CommitSpec, MaintenanceSpec
from frazil.spec.syntax.document import Entry, Items, Node, Scalar, Section
from frazil.spec.syntax.forms import parse_url, read_texts
from frazil.spec.syntax.keys import Fields, Key, Read, describe, keys_of, read_items, read_strings, read_text
from frazil.spec.syntax.problems import Problems, advice, nearest
from frazil.spec.syntax.secrets import Secrets, is_unresolved
from frazil.spec.syntax.units import DURATION_PATTERN
from frazil.store.addresses import address_of
from frazil.store.properties import check_property

_SQLITE = "jdbc:sqlite:"
_LONGEST_NAME = 255
"""The characters of the column `catalog_name` in Iceberg's tables of a database."""
_OWNED_CATALOG_PROPERTIES = ("type", "uri", "warehouse")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_BROKER = re.compile(r"\s*(?!https?:)[^\s,]+:[0-9]+\s*")
_OTHER_REFERENCE = re.compile(r"\$\{[A-Za-z]+:[^}]*\}")
"""A reference that another tool replaces, such as those of Kafka Connect's configuration providers."""
_SORT_COLUMN = re.compile(r"([^\s,()]+)(?: (asc|desc))?", re.IGNORECASE)
_CURVE_COLUMN = re.compile(r"[^\s,()]+")
_STRANGE_IN_MAINTENANCE: Mapping[str, str] = dict.fromkeys(
    OF_ALL_TABLES, "write it under `maintenance` at the top of the file: all tables share it"
)
_ON_A_CURVE = (
    BooleanType, IntegerType, LongType, FloatType, DoubleType, DateType, TimestampType, TimestamptzType, StringType,
    UUIDType, FixedType, BinaryType,
)  # fmt: skip
"""Types whose values Iceberg places on a Z-curve."""
SHORTEST_TOKEN = 32
"""The fewest characters of a token."""


def read_kafka(entry: Entry | None, secrets: Secrets, problems: Problems) -> dict[str, str]:
    """Kafka's client properties; the isolation level is `read_committed` by default."""
    if entry is None:
        return {}
    example = '`kafka: {bootstrap.servers: "localhost:9092"}`'
    properties = read_strings(entry.value, "kafka", problems, _check_kafka_property, secrets, example)
    brokers = properties.get("bootstrap.servers", "")
    if isinstance(entry.value, Section) and not all(map(_BROKER.fullmatch, brokers.split(","))):
        own = next((one for one in entry.value.entries if one.key == "bootstrap.servers"), None)
        if own is not None and ("bootstrap.servers" not in properties or is_unresolved(brokers)):
            return properties  # Its own problem is noted.
        state = "is missing" if own is None else "is not a list of host:port"
        remedy = "write the brokers, such as `bootstrap.servers: broker-1:9092,broker-2:9092`"
        if strange := _OTHER_REFERENCE.search(brokers):
            state = f"refers to `{strange[0]}`, and Frazil reads only `${{env:NAME}}` and `${{file:PATH}}`"
            remedy = "write the brokers, or `${env:NAME}` for an environment variable"
        if own is None and (near := nearest("bootstrap.servers", properties)):
            remedy = f"write `bootstrap.servers` in place of `{near}`"
        problems.add((own or entry).line, f"`kafka.bootstrap.servers` {state}", remedy)
    return {"isolation.level": ISOLATION_LEVELS[0]} | properties


def read_registry(entry: Entry | None, secrets: Secrets, problems: Problems) -> RegistrySpec | None:
    """The schema registry; None when the file names none."""
    if entry is None:
        return None
    fields = Fields(entry.value, keys_of(RegistrySpec), "registry", problems, secrets=secrets)
    if fields.get("url") is None:
        remedy = "write its address, such as `url: https://registry:8081`"
        problems.add(entry.line, "`registry.url` is missing", remedy)
    readers: dict[str, Read] = {
        "url": partial(_read_urls, secrets=secrets),
        "auth": _read_auth,
        "tls": _read_tls,
        "properties": lambda fields, key: fields.strings(key, _check_registry_property),
    }
    registry = RegistrySpec(**{"urls": (), **fields.values(readers)})
    if fields.get("tls") is not None and any(url.startswith("http:") for url in registry.urls):
        message = "`registry.tls` is of no use: `registry.url` has an address without TLS"
        fields.refuse_key("tls", message, "begin every address with https://, or remove `tls`")
    return registry


def read_catalog(entry: Entry | None, local: Path, secrets: Secrets, problems: Problems) -> CatalogSpec:
    """The catalog; what the file leaves out lies in the directory `local`."""
    default = CatalogSpec(uri=f"{_SQLITE}{local}/catalog.db", warehouse=f"{local}/warehouse")
    if entry is None:
        return default
    strange = {
        one.key: "write it under `catalog.properties`"
        for one in (entry.value.entries if isinstance(entry.value, Section) else ())
        if "." in one.key
    }
    fields = Fields(entry.value, keys_of(CatalogSpec), "catalog", problems, strange=strange, secrets=secrets)
    readers: dict[str, Read] = {
        "properties": lambda fields, key: fields.strings(key, _check_catalog_property),
        "jars": _read_jars,
    }
    found = fields.values(readers)
    _check_together(fields, found.get("properties", {}))
    if fields.get("impl") and fields.get("type"):
        fields.refuse_key("impl", "`catalog` has both `type` and `impl`", "keep one of them")
    _check_name(fields, found)
    if "impl" not in found and found.get("type", default.type) == default.type:
        return _read_jdbc(fields, found, default)
    catalog = CatalogSpec(**{"uri": "", **found})
    _check_kind(fields, entry, catalog)
    if catalog.warehouse and catalog.kind.needs_warehouse:
        return catalog.model_copy(update={"warehouse": _warehouse(fields, catalog.warehouse)})
    return catalog


def _read_jdbc(fields: Fields, found: Mapping[str, Any], default: CatalogSpec) -> CatalogSpec:
    uri, warehouse = found.get("uri"), found.get("warehouse")
    _check_jdbc(fields, uri)
    places = {
        **({"uri": _absolute_uri(uri)} if uri else {}),
        **({"warehouse": _warehouse(fields, warehouse)} if warehouse else {}),
    }
    return CatalogSpec(**{**dict(default), **found, **places})


def read_spark(entry: Entry | None, secrets: Secrets, problems: Problems) -> SparkSpec:
    """Spark's master and properties."""
    if entry is None:
        return SparkSpec()
    return SparkSpec(**Fields(entry.value, keys_of(SparkSpec), "spark", problems, secrets=secrets).values())


def read_telemetry(entry: Entry | None, secrets: Secrets, problems: Problems) -> TelemetrySpec:
    """Where metrics, traces and lineage go."""
    if entry is None:
        return TelemetrySpec()
    return TelemetrySpec(**Fields(entry.value, keys_of(TelemetrySpec), "telemetry", problems, secrets=secrets).values())


def read_ha(entry: Entry | None, secrets: Secrets, problems: Problems) -> HaSpec | None:
    """How several processes of the pipeline elect a leader; None where the newest run works."""
    if entry is None:
        return None
    fields = Fields(entry.value, keys_of(HaSpec), "ha", problems, secrets=secrets)
    ha = HaSpec(**fields.values())
    if ha.elect == "postgres" and not fields.get("uri"):
        remedy = "write the database, such as `uri: postgresql://frazil@db:5432/frazil`"
        problems.add(entry.line, "`ha.uri` is missing: `elect: postgres` needs a database", remedy)
    elif ha.elect != "postgres" and fields.get("uri"):
        fields.refuse_key("uri", f"`ha.uri` is of no use with `elect: {ha.elect}`", "remove it, or elect by `postgres`")
    elif ha.uri and not re.match("postgres(ql)?://[^/?#]+", ha.uri):
        remedy = "write it as postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        fields.refuse_value("uri", "`ha.uri` is no address of a PostgreSQL database", remedy)
    if ha.elect == "none" and ha.mode == "spread":
        fields.refuse_key("mode", "`ha.mode: spread` needs a leader that divides the tables", "elect by `kafka`")
    if ha.listen is not None and ha.listen.host in ("0.0.0.0", "::"):
        remedy = "write the address of this machine, or leave it out"
        fields.refuse_value("listen", f"`ha.listen: {ha.listen}` is no address that others can connect to", remedy)
    return None if ha.elect == "none" else ha


def read_commit(entry: Entry | None, inherited: CommitSpec, problems: Problems) -> CommitSpec:
    """When to commit; what the file leaves out is `inherited`."""
    if entry is None:
        return inherited
    node = entry.value
    if isinstance(node, Scalar) and node.text:
        example = node.text if re.fullmatch(DURATION_PATTERN, node.text, re.ASCII) else "5s"
        message = f"`commit` is {describe(node)} where a mapping is expected"
        problems.add(entry.line, message, f"write `commit: {{interval: {example}}}`")
        return inherited
    fields = Fields(node, keys_of(CommitSpec), "commit", problems)
    commit = inherited.model_copy(update=fields.values())
    if commit.min_file_size_bytes and commit.min_file_size_bytes > commit.target_file_size_bytes:
        least = fields.get("min_file_size")
        message = "`commit.min_file_size` is larger than `commit.target_file_size`, at which files end"
        problems.add(least.value.line if least else entry.line, message, "lower the one, or raise the other")
    return commit


def _check_kafka_property(text: str, key: str) -> None:
    if key in OWNED_KAFKA_PROPERTIES:
        message = f"`kafka.{key}` is not for the file to set: {OWNED_KAFKA_PROPERTIES[key]}"
        raise SpecError(message, remedy="remove it")
    if key.startswith("kafka."):
        raise SpecError(f"`{key}` is not a client property", remedy=f"write `{key.removeprefix('kafka.')}`")
    choices = {"isolation.level": ISOLATION_LEVELS, TOPICS_FROM: TOPICS_FROM_CHOICES}.get(key)
    if choices is not None and text not in choices:
        raise SpecError(f"`kafka.{key}` cannot be `{text}`", remedy=advice(text, choices))


def _read_urls(registry: Fields, key: str, secrets: Secrets) -> tuple[str, ...]:
    node, problems = registry.node(key), registry.problems
    nodes: tuple[Node, ...] = node.items if isinstance(node, Items) else (node,)
    if not nodes:
        registry.refuse_key(key, "`registry.url` is an empty list", "write at least one address")
    urls = []
    instead = "take them out, and write them under `registry.auth`"
    for one in nodes:
        text = read_text(one, "registry.url", problems)
        resolved = problems.attempt(one.line, None, secrets.resolve, text) if text else None
        each = resolved.split(",") if resolved else []
        urls += [problems.attempt(one.line, "", parse_url, url.strip(), "registry.url", instead) for url in each]
    return tuple(urls)


def _read_auth(registry: Fields, key: str) -> AuthSpec:
    fields = registry.section(key, AuthSpec)
    auth = AuthSpec(**fields.values())
    given = set(filter(fields.get, keys_of(AuthSpec)))
    if given not in ({"username", "password"}, {"token"}):
        remedy = "write `username` and `password`, or `token`"
        registry.refuse_key(key, "`registry.auth` is neither a user with a password nor a token", remedy)
    elif auth.username and ":" in auth.username:
        message = "`registry.auth.username` has a colon, which a user's name cannot have in HTTP"
        registry.refuse_key(key, message, "correct the name")
    return auth


def _read_tls(registry: Fields, key: str) -> TlsSpec:
    fields = registry.section(key, TlsSpec)
    tls = fields.values()
    for name in filter(tls.get, ("ca", "certificate", "key")):
        if "\n" in tls[name]:
            message = f"`{fields.path(name)}` is the content of a file where its path is expected"
            fields.refuse_value(name, message, "write the path alone, without ${file:…}")
        tls[name] = str(Path.cwd() / tls[name])
    if not fields.get("certificate") and (fields.get("key") or fields.get("key_password")):
        remedy = "write the file of the certificate that the key belongs to"
        registry.refuse_key(key, "`registry.tls.certificate` is missing", remedy)
    return TlsSpec(**tls)


def _check_registry_property(_: str, key: str) -> None:
    if key in OWNED_REGISTRY_PROPERTIES:
        message = f"`registry.properties.{key}` is not for the file to set"
        raise SpecError(message, remedy=OWNED_REGISTRY_PROPERTIES[key])


def _check_catalog_property(text: str, key: str) -> None:
    if key in _OWNED_CATALOG_PROPERTIES:
        raise SpecError(f"`{key}` is not a further property of the catalog", remedy=f"write it as `catalog.{key}`")
    check_property(key, text)
    check_value(key, text)


def _check_kind(fields: Fields, entry: Entry, catalog: CatalogSpec) -> None:
    """Checks what the section has against what its kind needs. A key with a wrong value is not missing."""
    uri, warehouse = (getattr(catalog, key) or ("" if fields.get(key) else None) for key in ("uri", "warehouse"))
    check = partial(catalog.kind.check, uri, warehouse)
    fields.problems.attempt((fields.get("uri") or entry).line, None, check, catalog.properties)


def _check_name(fields: Fields, found: Mapping[str, Any]) -> None:
    """Checks that the catalog has a use for its name, and that Iceberg's tables of a database have room for it."""
    name = found.get("name", "")
    if name and not CatalogSpec(**{"uri": "", **found}).kind.keeps_name:
        message = "`catalog.name` has no effect: only a JDBC catalog keeps its tables under a name"
        fields.refuse_key("name", message, "remove it")
    elif len(name) > _LONGEST_NAME:
        fields.refuse_key("name", f"`catalog.name` has {len(name)} characters, and 255 at most", "shorten it")


def _check_together(fields: Fields, properties: Mapping[str, str]) -> None:
    """Checks properties against each other, unless one has an error of its own."""
    written = fields.get("properties")
    if written and isinstance(written.value, Section) and len(written.value.entries) == len(properties):
        for error in lacking(properties):
            fields.refuse_key("properties", error.message, error.remedy)


def _read_jars(catalog: Fields, key: str) -> tuple[str, ...]:
    jars = tuple(str(Path.cwd() / jar) for jar in read_texts(catalog, key))
    for jar in jars:
        if not Path(jar).is_file():
            catalog.refuse_key(key, f"`catalog.jars` names a file that does not exist: `{jar}`", "correct the path")
    return jars


def _check_jdbc(fields: Fields, uri: str | None) -> None:
    if uri is None:
        return
    if not uri.startswith("jdbc:"):
        fields.refuse_key("uri", "`catalog.uri` is not a JDBC address", "begin it with jdbc:, or write `type: rest`")
    elif not uri.startswith(_SQLITE) and fields.get("warehouse") is None:
        remedy = "write where tables are stored, such as `warehouse: s3://lake/`"
        fields.refuse_key("uri", "`catalog.warehouse` is missing: only SQLite has a default", remedy)


def _absolute_uri(uri: str) -> str:
    path = uri.removeprefix(_SQLITE)
    if path == uri or not path or path.startswith((":", "file:")):
        return uri
    return f"{_SQLITE}{Path.cwd() / path}"


def _warehouse(fields: Fields, written: str) -> str:
    """Returns the address of the tables' folder, whose path may be relative to the working directory."""
    if written.startswith("~"):
        message = "`catalog.warehouse` begins with `~`, which only a shell replaces"
        fields.refuse_key("warehouse", message, "write the whole path, or `${env:HOME}/…`")
    elif re.match("file:[^/]", written):
        message = "`catalog.warehouse` has a relative path behind `file:`, which Iceberg does not take"
        fields.refuse_key("warehouse", message, "write the path alone")
    elif not _SCHEME.match(written):
        return str(Path.cwd() / written)
    try:
        address_of(written)
    except SpecError as error:
        fields.refuse_key("warehouse", f"`catalog.warehouse`: {error.message}", error.remedy)
    return written


def read_maintenance(
    entry: Entry | None, inherited: MaintenanceSpec, problems: Problems, keys: Mapping[str, Key] = MAINTENANCE_KEYS
) -> MaintenanceSpec:
    """Table maintenance in the pipeline file; missing keys are those of `inherited`. keys: those that are known here."""
    if entry is None:
        return inherited
    switch = _switch(entry, problems)
    if switch is not None:
        return inherited.model_copy(update={"is_on": switch})
    fields = Fields(entry.value, keys, "maintenance", problems, strange=_STRANGE_IN_MAINTENANCE)
    found = {"is_on": True, **fields.values({"skip": _read_skip}), **_orders(fields, problems)}
    for key in ("snapshots", "orphans"):
        if fields.get(key) is not None:
            found |= fields.section(key, MaintenanceSpec, key).values()
    return inherited.model_copy(update=found)


def _read_skip(fields: Fields, key: str) -> tuple[str, ...]:
    found = []
    for item in read_items(fields.node(key), fields.path(key), fields.problems):
        name = read_text(item, fields.path(key), fields.problems)
        if name in SKIPPABLE:
            found.append(name)
        elif name is not None:
            fields.problems.add(item.line, f"`{fields.path(key)}` cannot have `{name}`", advice(name, SKIPPABLE))
    return tuple(found)


def _switch(entry: Entry, problems: Problems) -> bool | None:
    """`maintenance: false` and the like; None for a section."""
    if isinstance(entry.value, Section):
        return None
    if isinstance(entry.value, Scalar) and entry.value.kind == "boolean":
        return entry.value.text.lower() in ("true", "yes", "on")
    problems.add(entry.value.line, "`maintenance` is no mapping", "write true, false, or its settings")
    return True


def _orders(fields: Fields, problems: Problems) -> dict[str, Any]:
    sort, zorder = fields.get("sort"), fields.get("zorder")
    if sort is not None and zorder is not None:
        line = max(sort.line, zorder.line)
        problems.add(line, "`maintenance` has both `sort` and `zorder`", "keep one of them")
    found: dict[str, Any] = {}
    for key, entry, form in (("sort", sort, _SORT_COLUMN), ("zorder", zorder, _CURVE_COLUMN)):
        if entry is not None:
            columns = _columns(entry, f"maintenance.{key}", form, problems)
            found = {"sort": (), "zorder": (), key: tuple(text for text, _ in columns)}
            found["order_lines"] = tuple(line for _, line in columns)
    return found


def check_order(
    maintenance: MaintenanceSpec, fields: Mapping[str, IcebergType], is_complete: bool, others: Container[str] = ()
) -> Iterator[tuple[int, SpecError]]:
    """Columns that compaction is to order rows by and cannot, each with its line. fields: columns of the table; others:
    those of unknown types; is_complete: it has no more.
    """
    key, texts = ("zorder", maintenance.zorder) if maintenance.zorder else ("sort", maintenance.sort)
    for text, line in zip(texts, maintenance.order_lines, strict=True) if maintenance.is_on else ():
        name = text.partition(" ")[0]
        if name.split(".")[0] in others:
            continue
        kind = find_type(name, fields)
        what = f"`maintenance.{key}` names a column that"
        if kind is None and (is_complete or is_declared_otherwise(name, fields)):
            yield line, SpecError(f"{what} the table does not have: `{name}`", remedy=advice(name, fields))
        elif kind is not None and key == "zorder" and not (name in fields and isinstance(kind, _ON_A_CURVE)):
            remedy = "name columns of numbers, text, bytes or times that lie in no other one"
            yield line, SpecError(f"{what} has no place on a Z-curve: `{name}`", remedy=remedy)
        elif kind is not None and not kind.is_primitive:
            remedy = "name a column that is not a list, map or struct, or one inside it, such as `a.b`"
            yield line, SpecError(f"{what} is not a single value: `{name}`", remedy=remedy)


def _columns(entry: Entry, label: str, form: re.Pattern[str], problems: Problems) -> list[tuple[str, int]]:
    """What the items say, with their lines."""
    texts = []
    for item in read_items(entry.value, label, problems):
        text = read_text(item, label, problems)
        if text is not None and form.fullmatch(text) is None:
            remedy = "write the column's name" + (", with asc or desc after it if need be" if "sort" in label else "")
            problems.add(item.line, f"`{text}` under `{label}` is not a column", remedy)
        texts.append((text or "", item.line))
    return texts


def read_http(entry: Entry | None, secrets: Secrets, problems: Problems) -> HttpSpec | None:
    """The HTTP service; None where the file switches it off."""
    if entry is None:
        return HttpSpec()
    if isinstance(entry.value, Scalar) and entry.value.kind == "boolean":
        return HttpSpec() if entry.value.text.lower() in ("true", "yes", "on") else None
    fields = Fields(entry.value, keys_of(HttpSpec), "http", problems, secrets=secrets)
    readers: dict[str, Read] = {"tokens": partial(_read_tokens, secrets=secrets), "tls": _read_http_tls}
    http = HttpSpec(**fields.values(readers), is_declared=fields.get("listen") is not None)
    _check_reach(fields, http)
    return http


def _check_reach(fields: Fields, http: HttpSpec) -> None:
    if http.listen.is_loopback:
        return
    place = f"`http.listen: {http.listen}` can be reached from other machines"
    if not fields.get("tokens"):
        remedy = 'write `http.tokens: {operate: "${file:PATH}"}`, or listen on 127.0.0.1'
        fields.refuse_key("listen", f"{place}, and `http.tokens` is missing", remedy)
    if not fields.get("tls"):
        remedy = "write `http.tls: {certificate: PATH, key: PATH}`, or listen on 127.0.0.1"
        fields.refuse_key("listen", f"{place}, and `http.tls` is missing", remedy)


def _read_tokens(http: Fields, key: str, secrets: Secrets) -> HttpTokensSpec:
    fields = http.section(key, HttpTokensSpec)
    tokens = HttpTokensSpec(
        **fields.values(dict.fromkeys(keys_of(HttpTokensSpec), partial(_read_token, secrets=secrets)))
    )
    if not (fields.get("read") or fields.get("operate")):
        http.refuse_key(key, "`http.tokens` has no token", "write a token under `read` or `operate`")
    return tokens


def _read_token(fields: Fields, key: str, secrets: Secrets) -> tuple[str, ...]:
    node, label, found = fields.node(key), fields.path(key), list[str]()
    nodes = node.items if isinstance(node, Items) else (node,)
    if not nodes:
        fields.refuse_key(key, f"`{label}` is an empty list", "write at least one token, or remove it")
    for one in nodes:
        text = read_text(one, label, fields.problems)
        token = fields.problems.attempt(one.line, None, secrets.resolve, text, "token") if text else None
        if token is None:
            continue
        if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
            remedy = f"use at least {SHORTEST_TOKEN} letters, digits and signs, such as those of `openssl rand -hex 32`"
            fields.problems.add(
                one.line, f"a token of `{label}` is too short, or has a space or another character", remedy
            )
        found.append(token)
    return tuple(found)


def _read_http_tls(http: Fields, key: str) -> HttpTlsSpec:
    fields = http.section(key, HttpTlsSpec)
    for name in keys_of(HttpTlsSpec):
        if not fields.get(name):
            fields.problems.add(
                http.node(key).line, f"`http.tls.{name}` is missing", "write the path of its file (PEM)"
            )
    paths = {name: str(Path.cwd() / text) for name, text in fields.values().items()}
    return HttpTlsSpec(**{**dict.fromkeys(keys_of(HttpTlsSpec), ""), **paths})
