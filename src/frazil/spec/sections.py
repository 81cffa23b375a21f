"""The rules between the keys of one section: registry, catalog, ha, commit, maintenance, http.

A value that a secret was put into is never shown in a message.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from pathlib import Path

from pyiceberg import types

from frazil.errors import SpecError
from frazil.spec import connections
from frazil.spec.catalog_properties import lacking
from frazil.spec.partitioning import find_type, is_declared_otherwise
from frazil.spec.settings import CommitSpec, MaintenanceSpec
from frazil.spec.syntax.keys import Declared
from frazil.spec.syntax.problems import Mistake, Mistakes, advice, try_check
from frazil.spec.syntax.reading import Rules
from frazil.store.addresses import address_of

_LONGEST_NAME = 255
"""The characters of the column `catalog_name` in Iceberg's tables of a database."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_ON_A_CURVE = (
    types.BooleanType, types.IntegerType, types.LongType, types.FloatType, types.DoubleType, types.DateType,
    types.TimestampType, types.TimestamptzType, types.StringType, types.UUIDType, types.FixedType, types.BinaryType,
)  # fmt: skip
"""Types whose values Iceberg places on a Z-curve."""


def _check_registry(registry: connections.RegistrySpec) -> Iterator[Mistake]:
    if "tls" in registry.model_fields_set and any(url.startswith("http:") for url in registry.urls):
        message = "`registry.tls` is of no use: `registry.url` has an address without TLS"
        yield Mistake("tls", message, "begin every address with https://, or remove `tls`")


def _check_auth(auth: connections.AuthSpec) -> Iterator[Mistake]:
    if auth.model_fields_set not in ({"username", "password"}, {"token"}):
        message = "`registry.auth` is neither a user with a password nor a token"
        yield Mistake((), message, "write `username` and `password`, or `token`")
    elif auth.username and ":" in auth.username:
        message = "`registry.auth.username` has a colon, which a user's name cannot have in HTTP"
        yield Mistake((), message, "correct the name")


def _check_tls(tls: connections.TlsSpec) -> Iterator[Mistake]:
    if tls.certificate is None and (tls.key is not None or tls.key_password is not None):
        remedy = "write the file of the certificate that the key belongs to"
        yield Mistake((), "`registry.tls.certificate` is missing", remedy)


def _is_jdbc(catalog: connections.CatalogSpec) -> bool:
    return catalog.impl is None and catalog.type == "jdbc"


def _check_catalog(catalog: connections.CatalogSpec) -> Iterator[Mistake]:
    for error in lacking(catalog.properties):
        yield Mistake("properties", error.message, error.remedy)
    if {"type", "impl"} <= catalog.model_fields_set:
        yield Mistake("impl", "`catalog` has both `type` and `impl`", "keep one of them")
    if "name" in catalog.model_fields_set and not catalog.kind.keeps_name:
        message = "`catalog.name` has no effect: only a JDBC catalog keeps its tables under a name"
        yield Mistake("name", message, "remove it")
    elif len(catalog.name) > _LONGEST_NAME:
        message = f"`catalog.name` has {len(catalog.name)} characters, and 255 at most"
        yield Mistake("name", message, "shorten it")
    if _is_jdbc(catalog):
        yield from _check_jdbc(catalog)
    else:
        yield from try_check("uri", catalog.kind.check, catalog.uri or None, catalog.warehouse, catalog.properties)
    if catalog.warehouse and (_is_jdbc(catalog) or catalog.kind.needs_warehouse):
        yield from _check_warehouse(catalog.warehouse)


def _check_jdbc(catalog: connections.CatalogSpec) -> Iterator[Mistake]:
    if catalog.uri and not catalog.uri.startswith("jdbc:"):
        yield Mistake("uri", "`catalog.uri` is not a JDBC address", "begin it with jdbc:, or write `type: rest`")
    elif catalog.uri and not catalog.uri.startswith(connections.SQLITE) and catalog.warehouse is None:
        remedy = "write where tables are stored, such as `warehouse: s3://lake/`"
        yield Mistake("uri", "`catalog.warehouse` is missing: only SQLite has a default", remedy)


def _check_warehouse(written: str) -> Iterator[Mistake]:
    if written.startswith("~"):
        message = "`catalog.warehouse` begins with `~`, which only a shell replaces"
        yield Mistake("warehouse", message, "write the whole path, or `${env:HOME}/…`")
    elif re.match("file:[^/]", written):
        message = "`catalog.warehouse` has a relative path behind `file:`, which Iceberg does not take"
        yield Mistake("warehouse", message, "write the path alone")
    elif _SCHEME.match(written):
        try:
            address_of(written)
        except SpecError as error:
            yield Mistake("warehouse", f"`catalog.warehouse`: {error.message}", error.remedy)


def _complete_catalog(catalog: connections.CatalogSpec) -> connections.CatalogSpec:
    """Returns the catalog with the addresses that it leaves out, and with absolute paths.

    Raises: Mistakes for settings that contradict each other.
    """
    if mistakes := tuple(_check_catalog(catalog)):
        raise Mistakes(mistakes, are_rules=True)
    default, warehouse = connections.local_catalog(), catalog.warehouse
    if warehouse and (_is_jdbc(catalog) or catalog.kind.needs_warehouse) and not _SCHEME.match(warehouse):
        warehouse = str(Path.cwd() / warehouse)
    if not _is_jdbc(catalog):
        return catalog.model_copy(update={"warehouse": warehouse})
    uri = _absolute_uri(catalog.uri) if catalog.uri else default.uri
    return catalog.model_copy(update={"uri": uri, "warehouse": warehouse or default.warehouse})


def _absolute_uri(uri: str) -> str:
    path = uri.removeprefix(connections.SQLITE)
    if path == uri or not path or path.startswith((":", "file:")):
        return uri
    return f"{connections.SQLITE}{Path.cwd() / path}"


def _strange_in_catalog(key: str) -> str | None:
    return "write it under `catalog.properties`" if "." in key else None


def _check_ha(ha: connections.HaSpec) -> Iterator[Mistake]:
    has_uri = "uri" in ha.model_fields_set
    if ha.elect == "postgres" and not has_uri:
        remedy = "write the database, such as `uri: postgresql://frazil@db:5432/frazil`"
        yield Mistake((), "`ha.uri` is missing: `elect: postgres` needs a database", remedy)
    elif ha.elect != "postgres" and has_uri:
        yield Mistake("uri", f"`ha.uri` is of no use with `elect: {ha.elect}`", "remove it, or elect by `postgres`")
    elif ha.uri and not re.match("postgres(ql)?://[^/?#]+", ha.uri):
        remedy = "write it as postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        yield Mistake("uri", "`ha.uri` is not an address of a PostgreSQL database", remedy)
    if ha.elect == "none" and ha.mode == "spread":
        yield Mistake("mode", "`ha.mode: spread` needs a leader that divides the tables", "elect by `kafka`")
    if ha.listen is not None and ha.listen.host in ("0.0.0.0", "::"):
        remedy = "write the address of this machine, or leave it out"
        yield Mistake("listen", f"`ha.listen: {ha.listen}` is not an address that others can connect to", remedy)


def _check_commit(commit: CommitSpec) -> Iterator[Mistake]:
    if commit.min_file_size_bytes and commit.min_file_size_bytes > commit.target_file_size_bytes:
        key = "target_file_size" if "target_file_size_bytes" in commit.model_fields_set else "min_file_size"
        message = "`commit.min_file_size` is larger than `commit.target_file_size`, at which files end"
        yield Mistake(key, message, "lower the one, or raise the other")


def _check_maintenance(maintenance: MaintenanceSpec) -> Iterator[Mistake]:
    if {"sort", "zorder"} <= maintenance.model_fields_set:
        yield Mistake("zorder", "`maintenance` has both `sort` and `zorder`", "keep one of them")


def check_order(
    maintenance: MaintenanceSpec,
    fields: Mapping[str, types.IcebergType],
    is_complete: bool,
    others: Container[str] = (),
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


def _check_reach(http: connections.HttpSpec) -> Iterator[Mistake]:
    if http.listen.is_loopback:
        return
    place = f"`http.listen: {http.listen}` can be reached from other machines"
    if "tokens" not in http.model_fields_set:
        remedy = 'write `http.tokens: {operate: "${file:PATH}"}`, or listen on 127.0.0.1'
        yield Mistake("listen", f"{place}, and `http.tokens` is missing", remedy)
    if http.tls is None:
        remedy = "write `http.tls: {certificate: PATH, key: PATH}`, or listen on 127.0.0.1"
        yield Mistake("listen", f"{place}, and `http.tls` is missing", remedy)


def _complete_http(http: connections.HttpSpec) -> connections.HttpSpec:
    return http.model_copy(update={"is_declared": "listen" in http.model_fields_set})


def _check_tokens(tokens: connections.HttpTokensSpec) -> Iterator[Mistake]:
    if not tokens.model_fields_set:
        yield Mistake((), "`http.tokens` has no token", "write a token under `read` or `operate`")


RULES: Mapping[type[Declared], Rules] = {
    connections.RegistrySpec: Rules(checks=(_check_registry,)),
    connections.AuthSpec: Rules(checks=(_check_auth,)),
    connections.TlsSpec: Rules(checks=(_check_tls,)),
    connections.CatalogSpec: Rules(_complete_catalog, strange=_strange_in_catalog),
    connections.HaSpec: Rules(checks=(_check_ha,)),
    CommitSpec: Rules(checks=(_check_commit,)),
    MaintenanceSpec: Rules(checks=(_check_maintenance,)),
    connections.HttpSpec: Rules(_complete_http, (_check_reach,)),
    connections.HttpTokensSpec: Rules(checks=(_check_tokens,)),
}
