"""The forms in which people have the settings of Debezium Server, as the properties that it reads.

Besides `application.properties`, also as YAML or JSON: its operator's resource `DebeziumServer`, a ConfigMap that has the
file, and environment variables, as a file of them or inside of Compose's or Kubernetes' YAML. A variable has `_` for each
character of its property that is not alphanumeric (MicroProfile Config, "Environment Variables Mapping Rules").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from frazil.errors import SpecError
from frazil_migrate.imports.sources import flat, mapping, parse, parse_properties

_VARIABLE = re.compile(r"(?:_PROD_)?((?:DEBEZIUM|QUARKUS)_[A-Z0-9_]+)")
_ENTRY = re.compile(rf"\s*(?:export\s+)?({_VARIABLE.pattern})=(.*)", re.DOTALL)
_FILE = re.compile(rf"^{_ENTRY.pattern}", re.MULTILINE)
_ICEBERG = "debezium.sink.iceberg."
_RESOURCES = ("DebeziumServer", "ConfigMap")
_OF_ICEBERG = (
    "type", "uri", "catalog-impl", "client.region", "credential", "token", "scope", "oauth2-server-uri", "ref", "prefix",
    "jdbc.user", "jdbc.password", "jdbc.schema-version", "glue.id", "glue.endpoint", "rest.sigv4-enabled",
    "rest.signing-region", "rest.signing-name", "s3.endpoint", "s3.path-style-access", "s3.access-key-id",
    "s3.secret-access-key", "s3.session-token", "s3.remote-signing-enabled", "header.x-iceberg-access-delegation",
    "fs.defaultFS", "fs.s3a.endpoint", "fs.s3a.access.key", "fs.s3a.secret.key", "fs.s3a.path.style.access", "fs.s3a.impl",
    "write.format.default", "write.parquet.compression-codec", "write.target-file-size-bytes",
)  # fmt: skip
"""Properties of Iceberg's and Hadoop's that people give the sink."""


def properties_of(text: str, names: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the properties that a text has, and of each whose name was guessed from an environment variable the name of
    this variable. names: properties that are known; `*` is for any text.

    Raises: SpecError where the text has none.
    """
    if _FILE.search(text):
        return _named(dict(_of_lines(text)), names)
    given = parse(text)
    kind, spec = given.get("kind"), given.get("spec")
    if kind == "DebeziumServer" and isinstance(spec, dict):
        variables, guessed = _named(dict(_of_environment(spec.get("runtime"))), names)
        return {**variables, **flat(_of_operator(spec))}, guessed
    if kind == "ConfigMap":
        files = [value for name, value in mapping(given.get("data")).items() if name.endswith(".properties")]
        if files:
            return dict(parse_properties(str(files[0]))), {}
    if variables := dict(_of_environment(given)):
        return _named(variables, names)
    if isinstance(kind, str) and "apiVersion" in given:
        message = f"the configuration is a `{kind}` of Kubernetes without settings of Debezium Server"
        raise SpecError(message, remedy=f"give one of {', '.join(_RESOURCES)}, or application.properties")
    return flat(given), {}


def _of_operator(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the properties that the operator writes for the `spec` of a DebeziumServer."""
    source, sink, kinds = (_part(spec, name) for name in ("source", "sink", "format"))
    properties: dict[str, Any] = {
        "debezium.source.connector.class": source.get("class"),
        "debezium.source": _part(source, "config"),
        "debezium.sink.type": sink.get("type"),
        f"debezium.sink.{sink.get('type')}": _part(sink, "config"),
        "debezium.predicates": ",".join(_part(spec, "predicates")) or None,
        "quarkus": _part(_part(spec, "quarkus"), "config"),
    }
    for side, kind in kinds.items():
        if isinstance(kind, dict):
            properties |= {f"debezium.format.{side}": kind.get("type")}
            properties |= {f"debezium.format.{side}.{key}": value for key, value in _part(kind, "config").items()}
    transforms = [entry for entry in spec.get("transforms") or () if isinstance(entry, dict)]
    properties["debezium.transforms"] = ",".join(f"t{number}" for number in range(len(transforms))) or None
    steps = {f"debezium.transforms.t{number}": entry for number, entry in enumerate(transforms)}
    steps |= {f"debezium.predicates.{name}": entry for name, entry in _part(spec, "predicates").items()}
    for place, entry in steps.items():
        own = {key: value for key, value in entry.items() if key != "config"}
        properties |= {f"{place}.{key}": value for key, value in {**own, **_part(entry, "config")}.items()}
    return properties


def _part(section: Mapping[str, Any], name: str) -> dict[str, Any]:
    part = section.get(name)
    return part if isinstance(part, dict) else {}


def _of_lines(text: str) -> Iterator[tuple[str, str]]:
    """Yields the variables of a file such as Docker and shells read."""
    for line in text.splitlines():
        if match := _ENTRY.fullmatch(line):
            yield match[1], _unquoted(match[3])


def _unquoted(value: str) -> str:
    value = value.strip()
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    return value[1:-1] if is_quoted else value


def _of_environment(node: object) -> Iterator[tuple[str, str]]:
    """Yields the variables anywhere in YAML or JSON: in mappings, as `NAME=VALUE`, and as Kubernetes' `{name, value}`. A
    variable whose value is elsewhere, such as in a Secret, refers to itself.
    """
    if isinstance(node, str) and (match := _ENTRY.fullmatch(node)):
        yield match[1], match[3]
    elif isinstance(node, list):
        for part in node:
            yield from _of_environment(part)
    elif isinstance(node, dict):
        name = str(node.get("name"))
        if _VARIABLE.fullmatch(name) and {"value", "valueFrom"} & node.keys():
            yield name, flat({name: node["value"]}).get(name, "") if "value" in node else f"${{{name}}}"
            return
        for key, value in node.items():
            if _VARIABLE.fullmatch(str(key)):
                yield from flat({str(key): value}).items()
            else:
                yield from _of_environment(value)


def _named(variables: Mapping[str, str], names: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns environment variables under the names of their properties, and those names that were guessed."""
    known = [name for name in names if "*" not in name] + [f"{_ICEBERG}{name}" for name in _OF_ICEBERG]
    by_variable = {re.sub(r"\W", "_", name).upper(): name for name in known}
    properties, guessed = dict[str, str](), dict[str, str]()
    for variable, value in variables.items():
        match = _VARIABLE.fullmatch(variable)
        plain = match[1] if match is not None else variable
        name = by_variable.get(plain, plain.lower().replace("_", "."))
        name = name.replace(f"{_ICEBERG}partition.by.", f"{_ICEBERG}partition-by.")
        if plain not in by_variable and "." in name.removeprefix(_ICEBERG) and name.startswith(_ICEBERG):
            guessed[name] = variable
        properties[f"%prod.{name}" if plain != variable else name] = value
    return properties, guessed
