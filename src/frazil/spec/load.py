"""The pipeline file, read from top to bottom."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from frazil.errors import SpecError
from frazil.plugins.extras import is_installed, names_of_extras, not_installed
from frazil.routes.settings import OF_ROUTES, check_routes, prepare_route, rest_tables
from frazil.secrets import Secrets, has_reference
from frazil.spec.connections import LOCAL_DIRECTORY, TOPICS_FROM
from frazil.spec.models import DEFAULTS_KEYS, FileSpec, PipelineSpec, RouteSpec, TableSpec
from frazil.spec.syntax.document import Items, Section, lines_of, read_document, texts_of
from frazil.spec.syntax.environments import (
    ENVIRONMENTS,
    Overridden,
    Overrides,
    fill_variables,
    overridden,
    overrides_of_process,
)
from frazil.spec.syntax.keys import Declared, keys_of
from frazil.spec.syntax.problems import Mistake
from frazil.spec.syntax.reading import Reading, Rules
from frazil.spec.syntax.shown import Setting, settings_of
from frazil.spec.tables import RULES as RULES_OF_TABLES
from frazil.spec.tables import prepare_defaults, prepare_table, shared_settings

_STRANGE_REMEDIES: Mapping[str, str] = {
    "kafka": "write it under `kafka`",
    "tables": "indent it, so that it is under `tables`",
    "defaults": "write it in a table, or under `defaults`",
}
"""What to do about a key at the top of the file, by the section that it belongs to."""
_OF_KAFKA = ("bootstrap.", "security.", "sasl.", "ssl.")


def load_spec(
    path: Path,
    environment: Mapping[str, str] = os.environ,
    overrides: Overrides | None = None,
    secrets: Secrets | None = None,
) -> PipelineSpec:
    """The spec that the file at `path` declares, its secrets and variables taken from `environment` and from files.
    overrides: the environment of the file, and values that replace those of the file; by default what the command line
    or the variable FRAZIL_ENV chooses. secrets: in place of those of `environment`.

    Raises a SpecError with the first problem in the file, and the others in its `others`.
    """
    if overrides is None:
        overrides = overrides_of_process() if environment is os.environ else Overrides()
    reading = Reading(path, secrets or Secrets(environment), RULES)
    document = _read_file(path, overrides, reading).document
    reading.problems.raise_any()
    texts = [text for key, value in document.items() if key != ENVIRONMENTS for text in ((key, 0), *texts_of(value))]
    spec = reading.read(PipelineSpec, _prepared(document, path, reading))
    if spec is not None:
        for text, line in texts:
            if has_reference(text) and text not in reading.secrets.resolved:
                reading.problems.add(line, "a reference to a secret is not read here", "write the value itself")
    reading.problems.raise_any()
    assert spec is not None
    return spec.model_copy(update={"secrets": frozenset(reading.secrets.secret_texts)})


def read_settings(
    path: Path, environment: Mapping[str, str] = os.environ, overrides: Overrides | None = None
) -> tuple[Setting, ...]:
    """Returns the settings of the file as `load_spec` reads them, each with the place that it comes from, without defaults
    and without secrets.

    Raises: SpecError for a file that is not a mapping, and for an environment or a value that it has no place for.
    """
    overrides = overrides_of_process() if overrides is None else overrides
    return settings_of(_read_file(path, overrides, Reading(path, Secrets(environment), RULES)), path, overrides)


def _read_file(path: Path, overrides: Overrides, reading: Reading) -> Overridden:
    """Returns the file with its overrides and variables; variables that cannot be read are noted."""
    file = overridden(read_document(path), overrides, path)
    fill_variables(file.document, reading.secrets, reading.problems)
    return file


def _prepared(document: Section, path: Path, reading: Reading) -> Section:
    """Returns the document with the settings that tables share in each of them."""
    reading.own(document, "the pipeline file")
    _move_misplaced(document, reading)
    shared = shared_settings(document)
    state_dir = Path.cwd() / LOCAL_DIRECTORY / "state"
    document.hide_group("file", FileSpec(path=path, state_dir=state_dir, shared=shared))
    if shared.defaults is not None:
        reading.shared_lines = lines_of(shared.defaults)
    if shared.maintenance is not None:
        document["maintenance"] = shared.maintenance
    if "defaults" in document:
        document["defaults"] = prepare_defaults(document["defaults"], shared, reading)
    tables, routes = document.get("tables"), document.get("routes")
    if isinstance(tables, Section):
        for name, table in tables.items():
            tables[name] = prepare_table(table, name, f"table `{name}`", tables.lines[name], shared, reading)
    if isinstance(routes, Items):
        routes[:] = [prepare_route(route, shared, reading) for route in routes]
    return document


def _move_misplaced(document: Section, reading: Reading) -> None:
    """Notes keys at the top of the file that belong into a section, as their names show, and moves them there: what is
    wrong without them alone is not reported.
    """
    for key, value in [*document.items()]:
        if key in keys_of(PipelineSpec):
            continue
        if key in DEFAULTS_KEYS:
            name = "defaults"
        elif key.startswith(_OF_KAFKA):
            name = "kafka"
        elif "." in key and isinstance(value, Section):
            name = "tables"
        else:
            continue
        line = document.lines[key]
        reading.problems.add(line, f"`{key}` does not belong here", _STRANGE_REMEDIES[name], is_cause=True)
        section = document.get(name)
        if not isinstance(section, Section):
            section = document[name] = Section({}, line, {})
            document.lines.setdefault(name, line)
        section[key], section.lines[key] = document.pop(key), line


def _complete(spec: PipelineSpec) -> PipelineSpec:
    """Returns the spec with the tables that routes need beside their own."""
    return spec.model_copy(
        update={
            "kafka": {name: value for name, value in spec.kafka.items() if name != TOPICS_FROM},
            "follows_topic_keys": TOPICS_FROM in spec.kafka,
            "ha": spec.process.ha if spec.process.ha is not None and spec.process.ha.elect != "none" else None,
            "tables": (*spec.tables, *rest_tables(spec.routes, spec.tables, spec.catalog.kind)),
        }
    )


def _check_topics(spec: PipelineSpec) -> Iterator[Mistake]:
    if not (spec.tables or spec.makes_tables):
        yield Mistake((), "the file has neither `tables` nor `topics`", "write one of them")
    if spec.selected.topics and not spec.selected.namespace:
        yield Mistake("topics", "`topics` needs a `namespace` for its tables", "write `namespace: NAME`")
    if spec.selected.namespace and not spec.selected.topics and not spec.selected.follows_topic_keys:
        remedy = "write `topics`, or remove it: names under `tables` carry their own namespace"
        yield Mistake("namespace", "`namespace` is set, but there are no `topics` to name tables for", remedy)
    if spec.selected.namespace:
        yield from _check_clashes(spec)


def _check_names(spec: PipelineSpec) -> Iterator[Mistake]:
    """Yields tables under names that the catalog does not keep."""
    for table in spec.tables:
        for name in filter(None, (table.name, table.bad_records.dead_letters.table)):
            try:
                spec.catalog.kind.check_name(name)
            except SpecError as error:
                yield Mistake((), error.message, error.remedy, table.line)


def _check_dead_letter_topics(spec: PipelineSpec) -> Iterator[Mistake]:
    """Yields a dead-letter topic that the pipeline itself reads: its dead letters would never end."""
    selectors = [*spec.selected.topics, *(selector for table in spec.tables for selector in table.source.topics)]
    for table in (*spec.tables, *([spec.defaults] if spec.defaults else [])):
        topic = table.bad_records.dead_letters.topic
        if topic is not None and any(selector.matches(topic) for selector in selectors):
            message = f"the pipeline reads the topic `{topic}`, to which dead letters of `{table.name}` go"
            yield Mistake((), message, "name another topic under `dead_letters`", table.line)


def _check_dead_letter_tables(spec: PipelineSpec) -> Iterator[Mistake]:
    """Yields a dead-letter table that two tables share: its newest commit records the pending dead letters of one table,
    and a replay takes its dead letters to that table.
    """
    named = [
        selector.literal
        for selector in spec.selected.topics
        if selector.literal is not None and spec.selected.namespace
    ]
    tables = {table.name: table for table in (*map(spec.table_for, named), *spec.tables)}
    owners = {name: f"the table `{name}` itself" for name in tables}
    for table in tables.values():
        name = table.bad_records.dead_letters.table or f"{table.name}__dead_letters"
        if name in owners and not _is_shared(spec, table):
            message = f"dead letters of `{table.name}` go to `{name}`, which is {owners[name]}"
            remedy = "give each table a dead-letter table of its own, or leave `table` out"
            yield Mistake("topics", message, remedy, table.line)
        owners.setdefault(name, f"where those of `{table.name}` go")
    makes_tables = bool(spec.selected.topics) or spec.selected.follows_topic_keys
    shared = spec.defaults.bad_records.dead_letters.table if spec.defaults is not None and makes_tables else None
    if shared is not None:
        message = (
            f"`defaults` sends dead letters of every table to `{shared}`, and each table of `topics` needs its own"
        )
        yield Mistake("defaults", message, "leave `table` out of `dead_letters`")


def _is_shared(spec: PipelineSpec, table: TableSpec) -> bool:
    """Whether `defaults` names the dead-letter table, which is refused once for all tables."""
    return spec.defaults is not None and not table.line and spec.defaults.bad_records.dead_letters.table is not None


def _check_registry(spec: PipelineSpec) -> Iterator[Mistake]:
    if spec.registry is not None:
        return
    for table in (*spec.tables, *([spec.defaults] if spec.defaults and spec.selected.topics else [])):
        asking = [f"{label}.format" for label in ("value", "key") if getattr(table.source, label).needs_registry]
        headers = (column for column in table.shape.columns if column.value is not None and column.value.needs_registry)
        asking += [f"columns.{column.name}.value.format" for column in headers]
        if asking:
            remedy = "write `registry: {url: https://registry:8081}`"
            message = f"`{asking[0]}` of `{table.name}` needs a schema registry, and there is none"
            yield Mistake((), message, remedy, table.line)


def _check_groups(spec: PipelineSpec) -> Iterator[Mistake]:
    """Yields tables that cannot be published together."""
    first: dict[str, TableSpec] = {}
    names: dict[tuple[str, str], str] = {}
    for table in (*spec.tables, *([spec.defaults] if spec.defaults else [])):
        publish = table.publishing.publish
        if publish is None or publish.group is None:
            continue
        group, other = publish.group, first.setdefault(publish.group, table)
        assert other.publishing.publish is not None
        if other.publishing.publish.every_s != publish.every_s:
            message = f"`{other.name}` and `{table.name}` are of the group `{group}`, and have different intervals"
            yield Mistake("tables", message, "write the same `publish.every` for both", table.line)
        if other.publishing.publish.transaction_topic != publish.transaction_topic:
            message = (
                f"`{other.name}` and `{table.name}` are of the group `{group}`, and are cut at different transactions"
            )
            yield Mistake("tables", message, "write the same `publish.transaction_topic` for both", table.line)
        named = names.setdefault((group, table.name.rpartition(".")[2]), table.name)
        if named != table.name:
            message = f"`{named}` and `{table.name}` are of the group `{group}`, and have one name in audits"
            yield Mistake("tables", message, "rename one of them, or write two groups", table.line)
        if table.changes.atomic is not None:
            message = (
                f"`{table.name}` is of the group `{group}`, whose batches end at a moment and not at a transaction"
            )
            remedy = "write `atomic: batch`, and `transaction_topic` under `publish`"
            yield Mistake("tables", message, remedy, table.line)
        if spec.process.ha is not None and spec.process.ha.mode == "spread":
            message = f"`ha.mode: spread` divides the tables of the group `{group}` among processes"
            yield Mistake("ha", message, "write `mode: lead`, or leave `group` out", table.line)


def _check_clashes(spec: PipelineSpec) -> Iterator[Mistake]:
    prefix = f"{spec.selected.namespace}."
    for table in spec.tables:
        if not table.name.startswith(prefix):
            continue
        topic = table.name.removeprefix(prefix)
        clashing = next((selector for selector in spec.selected.topics if selector.matches(topic)), None)
        if clashing:
            message = (
                f"`{table.name}` is under `tables`, and `{clashing.text}` under `topics` makes a table of that name too"
            )
            yield Mistake((), message, "rename the table, or narrow `topics`", table.line)


_USE_EXTRAS: Mapping[str, Callable[[PipelineSpec], bool]] = {
    "ha": lambda spec: spec.process.ha is not None and spec.process.ha.elect in names_of_extras("frazil.elections"),
    "http": lambda spec: spec.process.http is not None and "http" in spec.process.model_fields_set,
    "registry": lambda spec: spec.registry is not None,
    "telemetry": lambda spec: bool(spec.process.telemetry.otlp or spec.process.telemetry.openlineage),
    "verify": lambda spec: spec.process.verify is not None,
}
"""The sections that a package beside the core reads, by its name, and whether a file uses them."""


def _check_extras(spec: PipelineSpec) -> Iterator[Mistake]:
    """Yields sections of packages that are not installed."""
    for name, is_used in _USE_EXTRAS.items():
        if is_used(spec) and not is_installed(name):
            error = not_installed(name, f"what `{name}` configures")
            yield Mistake(name, error.message, error.remedy)
    if not spec.spark.master.startswith("local") and not is_installed("cluster"):
        error = not_installed("cluster", "what `spark.master` configures")
        yield Mistake(("spark", "master"), error.message, error.remedy)
    table = next((table for table in spec.declared if table.publishing.is_scheduled), None)
    if table is not None and not is_installed("publish"):
        error = not_installed("publish", "what `publish` configures")
        yield Mistake((), error.message, error.remedy, table.line)


RULES: Mapping[type[Declared], Rules] = {
    **RULES_OF_TABLES,
    RouteSpec: OF_ROUTES,
    PipelineSpec: Rules(
        _complete,
        (
            _check_registry, _check_names, _check_dead_letter_topics, _check_dead_letter_tables, _check_groups, check_routes,
            _check_topics, _check_extras,
        ),
    ),
}  # fmt: skip
