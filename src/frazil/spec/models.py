"""A pipeline file after reading: complete, frozen values, which declare its keys (see `syntax.keys`).

What may hold a secret (Kafka's properties, the registry, the catalog, Spark's configuration) is neither shown by `repr`
nor serialised.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, cast

from pydantic import BeforeValidator, Field, SerializeAsAny, SkipValidation

from frazil.column_names import Spellings
from frazil.errors import SpecError
from frazil.routes.share import Template, ValueSource, parse_source, parse_template
from frazil.secrets import redact
from frazil.spec import connections, settings, table_forms, table_keys
from frazil.spec.package_stages import read_stages
from frazil.spec.publishing import PublishingSpec
from frazil.spec.syntax import forms
from frazil.spec.syntax.document import Items, Node, Scalar, Section
from frazil.spec.syntax.keys import (
    Declared,
    Form,
    Key,
    SecretStrings,
    describe,
    group,
    keys_of,
    not_a_key,
    section,
)
from frazil.spec.syntax.problems import LABEL, Mistake, Mistakes, advice
from frazil.spec.syntax.units import DURATION_PATTERN
from frazil.spec.topics import (
    SELECTORS,
    namespace_name,
    pipeline_name,
    select_topics,
    table_name,
)
from frazil.spec.topics import Start as Start
from frazil.spec.topics import TopicSelector as TopicSelector
from frazil.stages.expect_settings import ExpectSpec
from frazil.stages.protect_settings import ProtectSpec
from frazil.stages.settings import StageSettings
from frazil.types import MAIN, DerivedTable

if TYPE_CHECKING:
    from frazil.spec.syntax.reading import Reading


def _read_commit(node: Node, _: Reading) -> Node:
    if isinstance(node, Scalar) and node.text:
        example = node.text if re.fullmatch(DURATION_PATTERN, node.text, re.ASCII) else "5s"
        message = f"`{LABEL}` is {describe(node)} where a mapping is expected"
        raise SpecError(message, remedy=f"write `{LABEL}: {{interval: {example}}}`")
    return node


def _read_tables(node: Node, _: Reading) -> list[Node]:
    """Returns the tables of the section."""
    if not isinstance(node, Section) or not node:
        what = "is a list where a mapping is expected" if isinstance(node, Items) else "has no tables"
        remedy = "write `<namespace>.<table>: {topic: NAME}` under it"
        raise Mistakes([Mistake((), f"`tables` {what}", remedy)], are_rules=True)
    outdented = next((key for key in node if key in TABLE_KEYS), None)
    if outdented is not None:
        above = [key for key in node if node.lines[key] < node.lines[outdented] and key not in TABLE_KEYS]
        table = f"`{above[-1]}`" if above else "the name of a table, `<namespace>.<table>`"
        remedy = f"indent it and the lines after it, so that they are under {table}"
        message = f"`{outdented}` is not the name of a table, but a setting"
        raise Mistakes([Mistake(outdented, message, remedy)], is_cause=True, are_rules=True)
    return list(node.values())


def _read_environments(node: Node, _: Reading) -> tuple[str, ...]:
    """Returns the names of the environments, whose keys are those of the file; their values are read where one is chosen."""
    example = "`prod: {kafka: {…}}`, each environment with the settings that differ"
    mistakes = []
    for name, overlay in forms.entries_of(node, example).items():
        if not isinstance(overlay, Section):
            message = f"the environment `{name}` is {describe(overlay)} where a mapping is expected"
            mistakes.append(Mistake((name,), message, "write the settings that differ in it"))
            continue
        for key in overlay:
            if key not in keys_of(PipelineSpec):
                message = f"unknown key `{key}` in the environment `{name}`"
                mistakes.append(Mistake((name, key), message, advice(key, keys_of(PipelineSpec)), overlay.lines[key]))
    if mistakes:
        raise Mistakes(mistakes, is_cause=True)
    return tuple(node)  # type: ignore[arg-type]


def _read_routes(node: Node, _: Reading) -> list[Node]:
    remedy = (
        'write a route, such as `[{topic: events, by: type, to: "events.${type}", rest: events.others}]`, or remove it'
    )
    return list(forms.read_some(node, lambda route: route, remedy))


COMMIT = section("commit", _read_commit)
TABLES = Form(
    {"type": "object", "minProperties": 1, "additionalProperties": section("table").schema}, read=_read_tables
)
ROUTES = Form({"type": "array", "minItems": 1, "items": section("route").schema}, read=_read_routes)
_FOLLOWS_TOPIC_KEYS: dict[str, Any] = {"properties": {"kafka": {"required": [connections.TOPICS_FROM]}}}


class TableSpec(Declared, json_schema_extra={"oneOf": [{"required": ["topic"]}, {"required": ["topics"]}]}):
    """One table: which topics feed it, and how."""

    #: At least a namespace and a table, joined by dots.
    name: Annotated[str, not_a_key("name")]
    source: Annotated[table_keys.SourceSpec, group("source")] = table_keys.SourceSpec()
    shape: Annotated[table_keys.ShapeSpec, group("shape")] = table_keys.ShapeSpec()
    protection: Annotated[ProtectSpec, group("protection")] = ProtectSpec()
    query: Annotated[table_keys.QuerySpec, group("query")] = table_keys.QuerySpec()
    expectations: Annotated[ExpectSpec, group("expectations")] = ExpectSpec()
    bad_records: Annotated[table_keys.BadRecordsSpec, group("bad_records")] = table_keys.BadRecordsSpec()
    #: The column that each is written to.
    metadata: Annotated[dict[settings.MetadataField, str], table_forms.METADATA] = Field({})
    """Metadata of a record in addition to its value, in columns _topic, _kafka_partition, _offset and so on, or in the
    columns that a mapping names."""
    changes: Annotated[table_keys.ChangesSpec, group("changes")] = table_keys.ChangesSpec()
    layout: Annotated[table_keys.LayoutSpec, group("layout")] = table_keys.LayoutSpec()
    publishing: Annotated[PublishingSpec, group("publishing")] = PublishingSpec()
    commit: Annotated[settings.CommitSpec, COMMIT] = settings.CommitSpec()
    """When to commit and how large files should be."""
    maintenance: Annotated[
        settings.MaintenanceSpec,
        forms.with_switch(section("table_maintenance"), lambda is_on: settings.MaintenanceSpec(is_on=is_on)),
    ] = settings.MaintenanceSpec()
    """Table maintenance."""
    #: The stages of installed packages, each by its key with its settings, in the order of the file.
    stages: Annotated[
        tuple[tuple[str, SerializeAsAny[StageSettings]], ...], BeforeValidator(read_stages), not_a_key("stages")
    ] = ()
    #: Where the file declares it; 0 if it does not.
    line: Annotated[int, not_a_key("line")] = 0

    if TYPE_CHECKING:

        def __init__(self, **settings: Any) -> None:
            """Takes the settings of groups side by side too, as the file has them."""

    @property
    def has_query(self) -> bool:
        """Whether a query, `lookup` or a stage makes the table's rows from the records' fields; otherwise they are
        the records.
        """
        query = self.query
        steps = query.where or query.select or query.has_steps or query.lookup
        return bool(steps or any(stage.makes_rows for stage in self.stage_settings.values()))

    def declared_column(self, name: str) -> settings.ColumnSpec | None:
        """The declared column of this name, in any case; None where the file does not declare it, or a query makes the
        columns.
        """
        columns = {} if self.has_query else {column.name: column for column in self.shape.columns}
        return columns.get(Spellings(columns).find(name) or name)

    @property
    def stops_at_mismatch(self) -> bool:
        """Whether the table stops at a value that no column of it can have."""
        return self.bad_records.on_bad_record == "stop" and not self.shape.rescue

    @property
    def stage_settings(self) -> dict[str, StageSettings]:
        """The settings of stages, by the names of their kinds, in the order in which the stages see rows."""
        return {**dict(self.stages), **{name: getattr(self, field) for name, field in STAGE_FIELDS.items()}}

    def with_stages(self, change: Callable[[StageSettings], StageSettings]) -> Self:
        """Returns the table with other settings of its stages."""
        fields = {field: change(getattr(self, field)) for field in STAGE_FIELDS.values()}
        stages = tuple((name, change(settings)) for name, settings in self.stages)
        return self.model_copy(update={**fields, "stages": stages})

    def without_query(self) -> Self:
        """Returns the settings without those that make other rows of records, except for stages that all records pass."""
        query = table_keys.QuerySpec(udf=self.query.udf, on_error=self.query.on_error)
        return self.model_copy(update={"query": query}).with_stages(lambda stage: stage.of_rest())

    def of_records(self) -> Self:
        """Returns the settings of the table that the records alone would make."""
        return self.without_query().model_copy(update={"stages": ()}).with_stages(lambda stage: stage.of_records())


class DivisionSpec(Declared):
    """How the records of a route are divided."""

    by: Annotated[
        ValueSource,
        forms.parsed_text(forms.text_like("type", "header.kind", "source.table"), parse_source),
        Key(default="topic"),
    ] = ValueSource("topic")
    """The value that decides to which table a record is written: a field, `header.NAME`, a change event's
    `source.table`, or topic."""
    to: Annotated[
        Template,
        forms.parsed_text(forms.text_like("shop.${type}", "sales.$1"), parse_template),
        Key(lack="a route does not say `to` which tables", remedy='write `to: "shop.${type}"`'),
    ]
    """The name of the tables, with values of the record as `${…}`, or groups of the topic's expression as $1."""
    limit: Annotated[int, forms.count(200)] = 200
    """The largest number of tables that the route makes; records of further values are written to `rest`."""
    rest: Annotated[str | None, forms.parsed_text(forms.TEXT.schema, table_name)] = None
    """The table of records that no other table of the route receives."""


class RouteSpec(TableSpec):
    """How records of some topics are divided among many tables, which all have the same settings."""

    division: Annotated[DivisionSpec, group("division")]

    if TYPE_CHECKING:

        def __init__(self, **settings: Any) -> None:
            """Takes the settings of groups side by side too, as the file has them."""

    @property
    def is_by_topic(self) -> bool:
        """Whether all records of a topic go to one table."""
        return self.division.by.kind == "topic"

    @property
    def text(self) -> str:
        """The names of the tables, for messages."""
        return self.division.to.fill(["…"] * len(self.division.to.sources))

    def as_table(self, **settings: Any) -> TableSpec:
        """A table with the settings of the route, and with these."""
        return TableSpec(**{**{name: getattr(self, name) for name in TableSpec.model_fields}, **settings})

    def table_of(self, topic: str) -> str:
        """The table of a topic, of a route by topic."""
        selector = next(candidate for candidate in self.source.topics if candidate.matches(topic))
        match = re.search(selector.pattern, topic) if selector.pattern is not None else None
        values = [
            (match.group(int(source.path[0])) or "" if match is not None else "") if source.kind == "capture" else topic
            for source in self.division.to.sources
        ]
        return self.division.to.fill(values)


@dataclass(frozen=True)
class Shared:
    """Settings of the file that a table has where it does not have its own, as the file has them."""

    defaults: Section | None = field(default=None, compare=False)
    commit: Section | None = field(default=None, compare=False)
    maintenance: Section | None = field(default=None, compare=False)


class ProcessSpec(Declared):
    """What the process does besides reading and writing."""

    #: None: none is started.
    http: Annotated[
        connections.HttpSpec | None,
        forms.with_switch(section("http"), lambda is_on: connections.HttpSpec() if is_on else None),
    ] = connections.HttpSpec()
    """The HTTP service of `frazil run`: metrics, health and API."""
    telemetry: Annotated[connections.TelemetrySpec, section("telemetry")] = connections.TelemetrySpec()
    """Where metrics, traces and lineage are sent; metrics can be read at `http` without it."""
    #: None: `elect: none`.
    ha: Annotated[connections.HaSpec | None, section("ha")] = None
    """How several processes of this pipeline choose the one that works; by default the newest run works."""
    publish_offsets: bool = True
    """Whether the tables' offsets are published as offsets of the consumer group `frazil-<pipeline>`, for tools that
    measure lag."""
    #: None: never.
    verify: Annotated[settings.VerifySpec | None, section("verify")] = None
    """How often the running pipeline compares some of its newest commits with the topics; by default never."""


class SelectedSpec(Declared):
    """Topics that get tables which the file does not declare one by one."""

    namespace: Annotated[str | None, forms.parsed_text(forms.TEXT.schema, namespace_name)] = None
    """The namespace of tables that `topics` or the configuration of topics make."""
    topics: Annotated[tuple[TopicSelector, ...], SELECTORS] = ()
    """Topics, or /regular expressions/, that get a table each: `<namespace>.<topic>`."""
    #: Whether topics get tables by keys of their own (`kafka.topics_from`).
    follows_topic_keys: Annotated[bool, not_a_key("follows_topic_keys")] = False


class FileSpec(Declared):
    """The file that a pipeline was read from, and what it keeps on this machine."""

    #: The file it came from.
    path: Annotated[Path, not_a_key("path")]
    #: Values that must never be shown; see `redact`.
    secrets: Annotated[frozenset[str], not_a_key("secrets"), Field(repr=False, exclude=True)] = frozenset()
    #: Absolute, for what may be lost.
    state_dir: Annotated[Path, not_a_key("state_dir")]
    #: Settings as the file has them, for tables that it does not declare (see `topic_keys`).
    shared: Annotated[SkipValidation[Shared], not_a_key("shared"), Field(repr=False, exclude=True)] = Shared()


class PipelineSpec(
    Declared,
    json_schema_extra={
        "anyOf": [*({"required": [name]} for name in ("tables", "topics", "routes")), _FOLLOWS_TOPIC_KEYS],
        "dependentRequired": {"topics": ["namespace"]},
        "dependentSchemas": {"namespace": {"anyOf": [{"required": ["topics"]}, _FOLLOWS_TOPIC_KEYS]}},
    },
):
    """A whole pipeline file."""

    pipeline: Annotated[
        str,
        forms.parsed_text({"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"}, pipeline_name),
        Key(remedy="give the pipeline a name, such as `pipeline: shop`"),
    ]
    """Identity of the pipeline's progress: unique per Kafka cluster and catalog."""
    #: Properties of every client, `isolation.level` always among them.
    kafka: Annotated[
        SecretStrings,
        connections.KAFKA,
        Key(
            lack="`kafka.bootstrap.servers` is missing",
            remedy='write `kafka: {bootstrap.servers: "localhost:9092"}`',
        ),
    ]
    """Kafka client properties, passed through; secrets as ${env:NAME} or ${file:PATH}."""
    registry: Annotated[connections.RegistrySpec | None, section("registry")] = None
    """The schema registry, one with Confluent's API."""
    catalog: Annotated[connections.CatalogSpec, section("catalog")] = Field(default_factory=connections.local_catalog)
    """The Iceberg catalog; by default JDBC on SQLite under ./frazil-data."""
    spark: Annotated[connections.SparkSpec, section("spark")] = connections.SparkSpec()
    """Spark's master and configuration."""
    process: Annotated[ProcessSpec, group("process")] = ProcessSpec()
    commit: Annotated[settings.CommitSpec, COMMIT] = settings.CommitSpec()
    """When to commit and how large files should be: the default for every table."""
    maintenance: Annotated[
        settings.MaintenanceSpec,
        forms.with_switch(section("maintenance"), lambda is_on: settings.MaintenanceSpec(is_on=is_on)),
    ] = settings.MaintenanceSpec()
    """Table maintenance: the default for every table."""
    tables: Annotated[tuple[TableSpec, ...], TABLES] = ()
    """The tables, by name: a namespace and a table, joined by a dot."""
    selected: Annotated[SelectedSpec, group("selected")] = SelectedSpec()
    routes: Annotated[tuple[RouteSpec, ...], ROUTES] = ()
    """Topics whose records are divided among many tables; a table is created when its value first appears."""
    #: Also those of the tables of `topics`.
    defaults: Annotated[TableSpec | None, section("defaults")] = None
    """Settings of every table that lacks them."""
    #: Their names.
    environments: Annotated[
        tuple[str, ...],
        Form({"type": "object", "additionalProperties": {"type": "object"}}, read=_read_environments),
    ] = ()
    """Settings that differ in an environment, by its name, written as in the file: `frazil --env NAME` overrides the
    file with them."""
    file: Annotated[FileSpec, group("file")]

    if TYPE_CHECKING:

        def __init__(self, **settings: Any) -> None:
            """Takes the settings of groups side by side too, as the file has them."""

    def redact(self, text: str) -> str:
        """`text` with every secret of this pipeline masked."""
        return redact(text, self.file.secrets)

    @property
    def declared(self) -> tuple[TableSpec, ...]:
        """The settings of tables that the file has: of single tables, of those of a route, and of all."""
        return (*self.tables, *self.routes, *filter(None, (self.defaults,)))

    @property
    def table_names(self) -> list[str]:
        """The names of the tables that the file declares or makes, for people."""
        of_topics = (f"{self.selected.namespace}.{selector.text}" for selector in self.selected.topics)
        return [*(table.name for table in self.tables), *of_topics, *(route.text for route in self.routes)]

    @property
    def makes_tables(self) -> bool:
        """Whether there may be tables that the file does not declare one by one."""
        return bool(self.routes or self.selected.topics or self.selected.follows_topic_keys)

    @property
    def new_topics(self) -> tuple[TopicSelector, ...]:
        """The topics that get tables which the file does not declare one by one."""
        by_topic = (selector for route in self.routes if route.is_by_topic for selector in route.source.topics)
        return (*self.selected.topics, *by_topic)

    @property
    def lookup_files(self) -> tuple[str, ...]:
        """The files of lookups, which may be in other stores than the tables."""
        return tuple(lookup.file for section in self.declared for lookup in section.query.lookup if lookup.file)

    @property
    def control_topic(self) -> str:
        """The compacted topic with the keys of topics, for brokers that refuse keys that they do not know."""
        return f"frazil-{self.pipeline}-topics"

    def table_for(self, topic: str) -> TableSpec:
        """The table of `topic`, which the pipeline's own `topics` select: `<namespace>.<topic>`, with defaults."""
        name = f"{self.selected.namespace}.{topic}"
        chosen = {"name": name, "topics": (TopicSelector(literal=topic),), "line": 0}
        if self.defaults is not None:
            return self.defaults.model_copy(update=chosen)
        return TableSpec.model_validate({**chosen, "commit": self.commit, "maintenance": self.maintenance})

    def branch_of(self, name: str) -> str:
        """The branch of the table of this name; main where the pipeline has no such table, as of a dead-letter table."""
        declared = next((table for table in self.tables if table.name == name), None)
        if declared is not None:
            return declared.publishing.branch
        is_named = any(table.bad_records.dead_letters.table == name for table in self.tables)
        if is_named or name.endswith(DEAD_LETTERS):
            return MAIN
        route = self._route_to(name)
        if route is not None:
            return route.publishing.branch
        is_selected = self.selected.namespace is not None and name.startswith(f"{self.selected.namespace}.")
        return self.defaults.publishing.branch if is_selected and self.defaults is not None else MAIN

    def _route_to(self, name: str) -> RouteSpec | None:
        return next((route for route in self.routes if route.division.to.may_make(name)), None)

    def named_table(self, name: str) -> TableSpec | None:
        """The table that values of records, or topics, may make under this name; None where none do."""
        route = self._route_to(name)
        return route.as_table(name=name, line=0) if route is not None else None

    def derived_table(self, rest: TableSpec, derived: DerivedTable) -> TableSpec:
        """The table that takes the records with some values. rest: the table that takes the rest."""
        assert rest.source.share is not None
        route = next(candidate for candidate in self.routes if candidate.division.rest == rest.name)
        start = Start(kind="offsets", offsets=dict(derived.start))
        share = replace(rest.source.share, values=derived.values)
        return route.as_table(name=derived.name, start=start, share=share, line=0)

    def tables_by_topic(self, topics: Collection[str]) -> list[TableSpec]:
        """The tables of those of the topics that routes by topic select, each with all topics of its name."""
        fed: dict[str, tuple[RouteSpec, list[TopicSelector]]] = {}
        for route in self.routes:
            for topic in sorted(select_topics(route.source.topics, topics)) if route.is_by_topic else ():
                fed.setdefault(route.table_of(topic), (route, []))[1].append(TopicSelector(literal=topic))
        return [route.as_table(name=name, topics=tuple(own), line=0) for name, (route, own) in fed.items()]


STAGE_FIELDS: Mapping[str, str] = {"protect": "protection", "expect": "expectations"}
"""By kinds of stages whose keys are in a group of a table, that field."""
STAGE_SETTINGS: Mapping[str, type[StageSettings]] = {
    name: cast("type[StageSettings]", TableSpec.model_fields[field].annotation) for name, field in STAGE_FIELDS.items()
}
"""By the same, the model of the group."""
OF_ONE_TABLE = ("topic", "topics", "start", "location")
"""Keys of a table that are no defaults for others."""
OF_ALL_TABLES = ("cores", "window")
"""Keys of `maintenance` that a table does not have for itself."""
DEAD_LETTERS = "__dead_letters"
"""What the name of a dead-letter table ends with, unless the file names it."""
TABLE_KEYS = keys_of(TableSpec)
ROUTE_KEYS = {name: key for name, key in keys_of(RouteSpec).items() if name != "location"}
DEFAULTS_KEYS = {name: key for name, key in TABLE_KEYS.items() if name not in OF_ONE_TABLE}
MAINTENANCE_KEYS = keys_of(settings.MaintenanceSpec)
TABLE_MAINTENANCE_KEYS = {name: key for name, key in MAINTENANCE_KEYS.items() if name not in OF_ALL_TABLES}
