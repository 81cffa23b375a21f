"""The pipeline file, read from top to bottom."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from frazil.spec.connections import TOPICS_FROM
from frazil.spec.models import DEFAULTS_KEYS, TABLE_KEYS, PipelineSpec, RouteSpec, TableSpec
from frazil.spec.routes import check_routes, read_routes, rest_tables
from frazil.spec.sections import (
    read_catalog,
    read_commit,
    read_ha,
    read_http,
    read_kafka,
    read_maintenance,
    read_registry,
    read_spark,
    read_telemetry,
)
from frazil.spec.settings import CommitSpec, MaintenanceSpec
from frazil.spec.syntax.document import Entry, Items, Section, corrected, read_document, texts_of
from frazil.spec.syntax.keys import Fields, keys_of
from frazil.spec.syntax.problems import Problems
from frazil.spec.syntax.secrets import Secrets, has_reference
from frazil.spec.tables import read_defaults, read_table

_STRANGE_REMEDIES: Mapping[str, str] = {
    "kafka": "write it under `kafka`",
    "tables": "indent it, so that it is under `tables`",
    "defaults": "write it in a table, or under `defaults`",
}
"""What to do about a key at the top of the file, by the section that it belongs to."""
_OF_KAFKA = ("bootstrap.", "security.", "sasl.", "ssl.")
LOCAL_DIRECTORY = "frazil-data"
"""The default folder of catalog, warehouse and state, in the current working directory."""


def load_spec(path: Path, environment: Mapping[str, str] = os.environ) -> PipelineSpec:
    """The spec that the file at `path` declares, its secrets taken from `environment` and from files.

    Raises a SpecError with the first problem in the file, and the others in its `others`.
    """
    document = read_document(path)
    problems = Problems(path)
    spec = _read(document, path, environment, problems)
    misplaced = _misplaced(document)
    if problems.meant or misplaced:
        as_meant = Problems(path)
        _read(_with_moved(corrected(document, problems.meant), misplaced), path, environment, as_meant)
        problems.keep_effects(as_meant)
    problems.raise_any()
    return spec


def _read(document: Section, path: Path, environment: Mapping[str, str], problems: Problems) -> PipelineSpec:
    """Returns the spec, with placeholders where there are problems, which are noted."""
    local = Path.cwd() / LOCAL_DIRECTORY
    secrets = Secrets(environment)
    strange = {key: _STRANGE_REMEDIES[section] for key, section in _misplaced(document).items()}
    fields = Fields(document, keys_of(PipelineSpec), "", problems, "the pipeline file", strange)
    commit = read_commit(fields.get("commit"), CommitSpec(), problems)
    maintenance = read_maintenance(fields.get("maintenance"), MaintenanceSpec(), problems)
    if fields.get("pipeline") is None:
        problems.add(1, "`pipeline` is missing", "give the pipeline a name, such as `pipeline: shop`")
    shared = read_defaults(fields.get("defaults"), (commit, maintenance), secrets, problems)
    tables, routes = _read_tables(fields, (commit, maintenance), secrets, problems)
    kafka = _read_kafka(fields, secrets, problems)
    catalog = read_catalog(fields.get("catalog"), local, secrets, problems)
    settings: dict[str, Any] = {
        "pipeline": "",
        **fields.values(),
        "kafka": {name: value for name, value in kafka.items() if name != TOPICS_FROM},
        "follows_topic_keys": TOPICS_FROM in kafka,
        "registry": read_registry(fields.get("registry"), secrets, problems),
        "catalog": catalog,
        "spark": read_spark(fields.get("spark"), secrets, problems),
        "http": read_http(fields.get("http"), secrets, problems),
        "telemetry": read_telemetry(fields.get("telemetry"), secrets, problems),
        "ha": read_ha(fields.get("ha"), secrets, problems),
        "commit": commit,
        "maintenance": maintenance,
        "defaults": shared,
        "written_defaults": _written_defaults(fields),
        "tables": (*tables, *rest_tables(routes, tables, catalog.kind)),
        "routes": routes,
    }
    spec = PipelineSpec(**settings, path=path, secrets=frozenset(secrets.found), state_dir=local / "state")
    _check_whole(spec, fields, document, problems)
    if problems.is_empty:  # A section with a problem may not be read to its end.
        _check_references(document, secrets, problems)
    return spec


def _misplaced(document: Section) -> dict[str, str]:
    """Keys at the top of the file that belong into a section, as their names show, with the section."""
    found = {}
    for entry in document.entries:
        if entry.key in keys_of(PipelineSpec):
            continue
        if entry.key in DEFAULTS_KEYS:
            found[entry.key] = "defaults"
        elif entry.key.startswith(_OF_KAFKA):
            found[entry.key] = "kafka"
        elif "." in entry.key and isinstance(entry.value, Section):
            found[entry.key] = "tables"
    return found


def _with_moved(document: Section, misplaced: Mapping[str, str]) -> Section:
    """Returns the document with keys at its top moved to the sections that they belong to."""
    entries = {entry.key: entry for entry in document.entries if entry.key not in misplaced}
    for entry in document.entries:
        name = misplaced.get(entry.key)
        if name is not None:
            there = entries.get(name, Entry(name, entry.line, Section((), entry.line)))
            others = there.value.entries if isinstance(there.value, Section) else ()
            entries[name] = replace(there, value=Section((*others, entry), there.line))
    return replace(document, entries=tuple(entries.values()))


def _read_kafka(fields: Fields, secrets: Secrets, problems: Problems) -> dict[str, str]:
    entry = fields.get("kafka")
    if entry is None:
        remedy = 'write `kafka: {bootstrap.servers: "localhost:9092"}`'
        problems.add(1, "`kafka.bootstrap.servers` is missing", remedy)
    return read_kafka(entry, secrets, problems)


def _written_defaults(fields: Fields) -> Section | None:
    written = fields.get("defaults")
    return written.value if written is not None and isinstance(written.value, Section) else None


def _read_tables(
    fields: Fields, inherited: tuple[CommitSpec, MaintenanceSpec], secrets: Secrets, problems: Problems
) -> tuple[tuple[TableSpec, ...], tuple[RouteSpec, ...]]:
    entry, defaults = fields.get("tables"), _written_defaults(fields)
    routes = read_routes(fields.get("routes"), inherited, defaults, secrets, problems)
    if entry is None:
        return (), routes
    if not isinstance(entry.value, Section) or not entry.value.entries:
        what = "is a list where a mapping is expected" if isinstance(entry.value, Items) else "has no tables"
        problems.add(entry.line, f"`tables` {what}", "write `<namespace>.<table>: {topic: NAME}` under it")
        return (), routes
    outdented = [one for one in entry.value.entries if one.key in TABLE_KEYS]
    if outdented:
        remedy = f"indent it and the lines after it, so that they are under {_table_above(entry.value, outdented[0])}"
        problems.add(
            outdented[0].line, f"`{outdented[0].key}` is not the name of a table, but a setting", remedy, is_cause=True
        )
        return (), routes
    tables = (read_table(table, inherited, defaults, secrets, problems) for table in entry.value.entries)
    return tuple(tables), routes


def _table_above(tables: Section, setting: Entry) -> str:
    above = [one.key for one in tables.entries if one.line < setting.line and one.key not in TABLE_KEYS]
    return f"`{above[-1]}`" if above else "the name of a table, `<namespace>.<table>`"


def _check_whole(spec: PipelineSpec, fields: Fields, document: Section, problems: Problems) -> None:
    """Checks the rules between sections."""
    tables, topics, namespace = fields.get("tables"), fields.get("topics"), fields.get("namespace")
    _check_registry(spec, fields, problems)
    _check_names(spec, problems)
    _check_dead_letter_topics(spec, problems)
    _check_dead_letter_tables(spec, topics.line if topics else 1, problems)
    check_routes(spec, problems)
    declares_none = tables is None and topics is None and fields.get("routes") is None
    if declares_none and not spec.follows_topic_keys:
        problems.add(document.line, "the file has neither `tables` nor `topics`", "write one of them")
    if topics and not namespace:
        problems.add(topics.line, "`topics` needs a `namespace` for its tables", "write `namespace: NAME`")
    if namespace and not topics and not spec.follows_topic_keys:
        remedy = "write `topics`, or remove it: names under `tables` carry their own namespace"
        problems.add(namespace.line, "`namespace` is set, but there are no `topics` to name tables for", remedy)
    if namespace and spec.namespace:
        _check_clashes(spec, problems)


def _check_references(document: Section, secrets: Secrets, problems: Problems) -> None:
    """Refuses references to secrets where a setting would take them for its text."""
    for text, line in texts_of(document):
        if has_reference(text) and text not in secrets.resolved:
            problems.add(line, "a reference to a secret is not read here", "write the value itself")


def _check_names(spec: PipelineSpec, problems: Problems) -> None:
    """Refuses tables under names that the catalog does not keep."""
    for table in spec.tables:
        for name in filter(None, (table.name, table.dead_letters.table)):
            problems.attempt(table.line, None, spec.catalog.kind.check_name, name)


def _check_dead_letter_topics(spec: PipelineSpec, problems: Problems) -> None:
    """Refuses a dead-letter topic that the pipeline itself reads: its dead letters would never end."""
    selectors = [*spec.topics, *(selector for table in spec.tables for selector in table.topics)]
    for table in (*spec.tables, *([spec.defaults] if spec.defaults else [])):
        topic = table.dead_letters.topic
        if topic is not None and any(selector.matches(topic) for selector in selectors):
            message = f"the pipeline reads the topic `{topic}`, to which dead letters of `{table.name}` go"
            problems.add(table.line, message, "name another topic under `dead_letters`")


def _check_dead_letter_tables(spec: PipelineSpec, topics_line: int, problems: Problems) -> None:
    """Refuses a dead-letter table that two tables share: its newest commit records the pending dead letters of one table,
    and a replay takes its dead letters to that table.
    """
    named = [selector.literal for selector in spec.topics if selector.literal is not None and spec.namespace]
    tables = {table.name: table for table in (*map(spec.table_for, named), *spec.tables)}
    owners = {name: f"the table `{name}` itself" for name in tables}
    for table in tables.values():
        name = table.dead_letters.table or f"{table.name}__dead_letters"
        if name in owners and not _is_shared(spec, table):
            message = f"dead letters of `{table.name}` go to `{name}`, which is {owners[name]}"
            problems.add(
                table.line or topics_line,
                message,
                "give each table a dead-letter table of its own, or leave `table` out",
            )
        owners.setdefault(name, f"where those of `{table.name}` go")
    makes_tables = bool(spec.topics) or spec.follows_topic_keys
    shared = spec.defaults.dead_letters.table if spec.defaults is not None and makes_tables else None
    if shared is not None:
        message = (
            f"`defaults` sends dead letters of every table to `{shared}`, and each table of `topics` needs its own"
        )
        problems.add(spec.defaults.line if spec.defaults else 1, message, "leave `table` out of `dead_letters`")


def _is_shared(spec: PipelineSpec, table: TableSpec) -> bool:
    """Whether `defaults` names the dead-letter table, which is refused once for all tables."""
    return spec.defaults is not None and not table.line and spec.defaults.dead_letters.table is not None


def _check_registry(spec: PipelineSpec, fields: Fields, problems: Problems) -> None:
    if fields.get("registry") is not None:
        return
    for table in (*spec.tables, *([spec.defaults] if spec.defaults and spec.topics else [])):
        asking = [f"{label}.format" for label in ("value", "key") if getattr(table, label).needs_registry]
        headers = (column for column in table.columns if column.value is not None and column.value.needs_registry)
        asking += [f"columns.{column.name}.value.format" for column in headers]
        if asking:
            remedy = "write `registry: {url: https://registry:8081}`"
            problems.add(
                table.line, f"`{asking[0]}` of `{table.name}` needs a schema registry, and there is none", remedy
            )


def _check_clashes(spec: PipelineSpec, problems: Problems) -> None:
    prefix = f"{spec.namespace}."
    for table in spec.tables:
        if not table.name.startswith(prefix):
            continue
        topic = table.name.removeprefix(prefix)
        clashing = next((selector for selector in spec.topics if selector.matches(topic)), None)
        if clashing:
            message = (
                f"`{table.name}` is under `tables`, and `{clashing.text}` under `topics` makes a table of that name too"
            )
            problems.add(table.line, message, "rename the table, or narrow `topics`")
