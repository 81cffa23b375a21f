"""A pipeline file after reading: complete, frozen values, which declare its keys (see `syntax.keys`).

What may hold a secret (Kafka's properties, the registry, the catalog, Spark's configuration) is neither shown by `repr`
nor serialised.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, SerializeAsAny
from pyiceberg.types import IcebergType

from frazil.plugins.envelopes import ENVELOPES
from frazil.plugins.functions import Function
from frazil.routing import Route, Template, ValueSource, parse_source, parse_template
from frazil.spec.connections import TOPICS_FROM, CatalogSpec, HaSpec, HttpSpec, RegistrySpec, SparkSpec, TelemetrySpec
from frazil.spec.partitioning import PARTITION_BY, SORT_BY, PartitionTerm, SortTerm
from frazil.spec.settings import (
    METADATA_COLUMNS,
    PROTECT_ACTIONS,
    AtomicSpec,
    ColumnSpec,
    CommitSpec,
    Constant,
    DeadLettersSpec,
    EnvelopeSpec,
    ExpectationSpec,
    FlattenSpec,
    LimitsSpec,
    LookupSpec,
    MaintenanceSpec,
    MetadataField,
    ProtectRule,
    ValueSpec,
    VerifySpec,
)
from frazil.spec.syntax.document import Section
from frazil.spec.syntax.forms import (
    PATHS,
    STRINGS,
    TEXT,
    TEXT_OR_TEXTS,
    TYPE_WORD,
    count,
    parsed_text,
    text_like,
    with_switch,
)
from frazil.spec.syntax.keys import NOT_A_KEY, Declared, Form, Key, SecretStrings, SecretWord, keys_of, section
from frazil.spec.syntax.secrets import redact
from frazil.spec.syntax.types import parse_numbers
from frazil.spec.topics import SELECTORS, START, TOPIC, namespace_name, pipeline_name, select_topics, table_name
from frazil.spec.topics import Start as Start
from frazil.spec.topics import TopicSelector as TopicSelector
from frazil.types import RoutedTable

_ENVELOPES = ("none", *(name for name in ENVELOPES.built_in if name != "operation"))
_METADATA = Form(
    {
        "anyOf": [
            {"type": "array", "items": {"enum": list(METADATA_COLUMNS)}, "uniqueItems": True},
            {
                "type": "object",
                "propertyNames": {"enum": list(METADATA_COLUMNS)},
                "additionalProperties": {"type": "string"},
            },
        ]
    }
)


_FOLLOWS_TOPIC_KEYS: dict[str, Any] = {"properties": {"kafka": {"required": [TOPICS_FROM]}}}


class TableSpec(Declared, json_schema_extra={"oneOf": [{"required": ["topic"]}, {"required": ["topics"]}]}):
    """One table: which topics feed it, and how."""

    #: At least a namespace and a table, joined by dots.
    name: Annotated[str, NOT_A_KEY]
    topics: Annotated[
        tuple[TopicSelector, ...],
        Key(Form(TOPIC.schema), name="topic", description="The topic that feeds the table."),
        SELECTORS,
    ]
    """The topics, or a /regular expression/, that feed the table."""
    start: Annotated[Start, Key(START, default="earliest")] = Start()
    """Where to begin without progress: earliest, latest, a timestamp, or offsets."""
    value: Annotated[ValueSpec, section("value")] = ValueSpec()
    """The records' values."""
    key: Annotated[ValueSpec, section("key")] = ValueSpec(format="raw")
    """The records' keys."""
    #: None: the file has none; then what the table has stays.
    partition_by: Annotated[tuple[PartitionTerm, ...] | None, PARTITION_BY] = None
    """How the table is partitioned: columns, or year, month, day, hour, bucket, truncate or void of one. An
    existing table keeps its partition spec unless this is written; `[]` is for none."""
    #: None: the file has none; then what the table has stays.
    sort_by: Annotated[tuple[SortTerm, ...] | None, SORT_BY] = None
    """How rows are sorted inside a file: terms as in `partition_by`, each with asc or desc, nulls first or last."""
    schema_evolution: Literal["evolve", "add_only", "freeze"] = "evolve"
    """What to do when records have other fields or types than the table."""
    on_bad_record: Literal["dead_letter", "stop", "skip"] = "dead_letter"
    """What to do with a record that cannot become a row."""
    dead_letters: Annotated[DeadLettersSpec, section("dead_letters", DeadLettersSpec)] = DeadLettersSpec()
    """Where bad records go, and how many are too many."""
    limits: Annotated[LimitsSpec, section("limits", LimitsSpec)] = LimitsSpec()
    """Limits of columns, partitions and record sizes."""
    on_data_loss: Literal["stop", "skip"] = "stop"
    """What to do when Kafka has deleted the record at the next offset."""
    columns: Annotated[
        tuple[ColumnSpec, ...],
        Form({"type": "object", "additionalProperties": {"anyOf": [TYPE_WORD, section("column").schema]}}),
    ] = ()
    """Declared columns and overrides of inferred ones: name to type."""
    unknown_fields: Literal["add", "drop", "rescue"] = "add"
    """What happens to fields that `columns` does not name."""
    #: None: the type that a sample of the numbers needs.
    numbers: Annotated[
        SerializeAsAny[IcebergType] | None,
        Key(
            parsed_text(
                {
                    "type": "string",
                    "pattern": r"^(as_seen|double|decimal\s*\(.*\))$",
                    "examples": ["double", "decimal(18,4)"],
                },
                parse_numbers,
            ),
            default="as_seen",
        ),
    ] = None
    """What numbers of JSON without a schema become where no column is declared: `as_seen` long, or double where a
    sample of the topic has a fraction; `double`; or `decimal(p,s)`."""
    infers_timestamps: Annotated[
        bool,
        Key(
            section("infer"),
            name="infer",
            description="What fields of JSON without a schema may become where no column is declared.",
        ),
        Key(name="infer.timestamps"),
    ] = False
    """Whether text that is always an ISO 8601 time becomes timestamptz, timestamp or date."""
    rescue: bool = False
    """Whether values that do not fit their column go to the column _rescued."""
    flatten: Annotated[
        FlattenSpec | None,
        Key(
            Form({"anyOf": [{"enum": [True, False]}, section("flatten").schema]}), choices=(True, False), default=False
        ),
    ] = None
    """Whether nested records become columns of their own: `user: {id: 1}` the column user_id. Lists and maps stay."""
    column_case: Literal["keep", "lower", "snake", "camel"] = "keep"
    """How columns, and members of structs in them, are named after fields: as they are, in lower case, as user_id,
    or as userId."""
    #: Empty: all fields.
    include: Annotated[tuple[tuple[str, ...], ...], PATHS] = ()
    """Paths of the fields to take, each with everything in it; all unless written."""
    exclude: Annotated[tuple[tuple[str, ...], ...], PATHS] = ()
    """Paths of the fields to leave out, each with everything in it."""
    protect: Annotated[
        tuple[ProtectRule, ...],
        Form(
            {
                "type": "object",
                "additionalProperties": {"anyOf": [{"enum": list(PROTECT_ACTIONS)}, section("protect_rule").schema]},
            }
        ),
    ] = ()
    """What happens to fields with personal data before anything is written: path, or /regular expression/, to an action.
    The first rule that finds a field decides."""
    protect_key: Annotated[SecretWord, TEXT] = None
    """The key of `protect`, at least 32 bytes, as ${file:PATH} or ${env:NAME}."""
    where: Annotated[str, TEXT] = ""
    """The condition for records that the table takes, in Spark SQL: `type = 'order'`. Others make no row and are counted."""
    lookup: Annotated[
        tuple[LookupSpec, ...], Form({"type": "object", "additionalProperties": section("lookup").schema})
    ] = ()
    """Reference tables that records are joined with, each by the name of the column that it fills."""
    rename: Annotated[tuple[tuple[tuple[str, ...], str], ...], STRINGS] = ()
    """New names of fields: `{old: new}`, nested ones by their path."""
    drop_fields: Annotated[tuple[tuple[str, ...], ...], PATHS] = ()
    """Paths of fields that rows do not have, each with everything in it. Conditions may use them; `exclude` leaves fields
    unread."""
    keep_fields: Annotated[tuple[tuple[str, ...], ...], PATHS] = ()
    """Paths of the fields that rows have, each with everything in it; all unless written."""
    cast: Annotated[
        tuple[tuple[tuple[str, ...], SerializeAsAny[IcebergType]], ...],
        Form({"type": "object", "additionalProperties": TYPE_WORD}),
    ] = ()
    """New types of fields, as Spark's `cast` makes them: `{amount: "decimal(12,2)"}`."""
    add_fields: Annotated[tuple[tuple[str, Constant], ...], STRINGS] = ()
    """Columns to add: a constant, or metadata of the record or of its change by name: `{origin: shop, topic: _topic, sent:
    source.ts_ms}`."""
    filter: Annotated[str, TEXT] = ""
    """The condition for rows that the table takes, in Spark SQL, over what the other steps leave. Others are counted."""
    select: Annotated[str, TEXT] = ""
    """The query that makes the table's rows, in Spark SQL, from one relation, `records`: `select id, lower(email) as
    email from records`."""
    udf: Annotated[tuple[Function, ...], TEXT_OR_TEXTS] = ()
    """Python functions that the table's query and conditions may call, each as `module.function`."""
    on_error: Literal["dead_letter", "null"] = "dead_letter"
    """What a record becomes for which an expression of the query fails: a dead letter, or a row with null in the column."""
    expect: Annotated[
        tuple[ExpectationSpec, ...],
        Form({"type": "object", "additionalProperties": {"anyOf": [TEXT.schema, section("expectation").schema]}}),
    ] = ()
    """Conditions that rows are expected to meet, by name, with what happens otherwise: `{positive: {that: "amount >= 0",
    else: dead_letter}}`. A condition alone only warns."""
    #: The column that each is written to.
    metadata: Annotated[dict[MetadataField, str], _METADATA] = Field({})
    """Metadata of a record besides its value, in columns _topic, _partition, _offset and so on, or in the
    columns that a mapping names."""
    commit: Annotated[CommitSpec, section("commit")] = CommitSpec()
    """When to commit and how large files should be."""
    maintenance: Annotated[MaintenanceSpec, with_switch(section("table_maintenance"))] = MaintenanceSpec()
    """Table maintenance."""
    #: None: records are rows.
    envelope: Annotated[
        EnvelopeSpec | None,
        Key(
            Form({"anyOf": [{"enum": list(_ENVELOPES)}, section("envelope").schema]}),
            choices=_ENVELOPES,
            default="none",
            registered=ENVELOPES,
        ),
    ] = None
    """The envelope of records: none; debezium, maxwell, canal, dms or a field that names the operation, of changes;
    cloudevents or outbox, of events."""
    mode: Literal["append", "upsert"] = "append"
    """Whether records are appended (append) or replace rows by key (upsert)."""
    #: Empty: those of the record's key.
    key_columns: Annotated[tuple[str, ...], PATHS] = ()
    """The columns that identify a row; by default the record key's, or those that Canal's messages name."""
    #: None: partition and offset.
    order_by: Annotated[str | None, TEXT] = None
    """The column that orders the changes of a key; by default partition and offset."""
    changelog: bool = False
    """Whether every change becomes a row, with the rows before and after it."""
    deletes: Literal["hard", "soft"] = "hard"
    """Whether a deleted row is removed (hard), or kept with `_deleted` and `_deleted_at` (soft)."""
    #: Empty: the file has none.
    tombstones: Literal["", "delete", "ignore", "dead_letter", "row"] = ""
    """What happens to a record without a value (a tombstone): `delete` deletes the row of its key, `ignore` counts it
    only, `dead_letter` makes a dead letter, `row` a row with null in the columns of the value. Unless written
    `delete` for upsert; for append `dead_letter`, or `ignore` with an `envelope`."""
    #: None: a snapshot may show a part of a transaction.
    atomic: Annotated[
        AtomicSpec | None,
        Key(
            Form({"anyOf": [{"enum": ["batch", "transaction"]}, section("atomic").schema]}),
            choices=("batch", "transaction"),
            default="batch",
        ),
    ] = None
    """Whether a snapshot may show a part of a transaction of the source: `transaction` of a table of one topic, with
    Debezium's envelope."""
    format_version: Literal[2, 3] = 2
    """Iceberg's format version of a new table; unless written 2 for append, 3 for upsert."""
    #: None: the catalog chooses it.
    location: Annotated[str | None, TEXT] = None
    """The folder of a new table in the store; the catalog chooses it unless written, and some catalogs demand it. Its
    dead-letter table is beside it, in the folder `<location>__dead_letters`."""
    properties: Annotated[dict[str, str], STRINGS] = Field({})
    """Iceberg's table properties, with Iceberg's names, of a new table; an existing table keeps its own."""
    #: The stages of installed packages, each by its key with its settings, in the order of the file.
    stages: Annotated[tuple[tuple[str, SerializeAsAny[BaseModel]], ...], NOT_A_KEY] = ()
    #: The route that feeds the table; None where the table takes all records of its topics.
    route: Annotated[Route | None, NOT_A_KEY] = None
    #: The values of the table's records, of a table that the route made.
    route_values: Annotated[tuple[str, ...], NOT_A_KEY] = ()
    #: Where the file declares it; 0 if it does not.
    line: Annotated[int, NOT_A_KEY] = 0

    @property
    def has_query(self) -> bool:
        """Whether a query, `lookup`, `protect` or `expect` makes the table's rows from the records' fields; otherwise they
        are the records.
        """
        steps = self.where or self.select or self.has_steps or self.lookup
        return bool(steps or self.protect or self.judges_rows)

    @property
    def judges_rows(self) -> bool:
        """Whether rows are expected to meet a condition."""
        return any(one.is_of_rows for one in self.expect)

    def without_query(self) -> Self:
        """Returns the settings without those that change records before the table, except for `protect`."""
        texts, lists = (
            ("where", "filter", "select"),
            ("lookup", "rename", "drop_fields", "keep_fields", "cast", "add_fields", "expect"),
        )
        return self.model_copy(update={**dict.fromkeys(texts, ""), **dict.fromkeys(lists, ())})

    @property
    def has_steps(self) -> bool:
        """Whether fields are renamed, dropped, cast or added, or rows filtered, before the query."""
        steps = (self.rename, self.drop_fields, self.keep_fields, self.cast, self.add_fields, self.filter)
        return any(steps)


class RouteSpec(
    TableSpec,
    json_schema_extra={"required": ["to"], "oneOf": [{"required": ["topic"]}, {"required": ["topics"]}]},
):
    """How records of some topics are divided among many tables, which all have the same settings."""

    by: Annotated[
        ValueSource,
        Key(parsed_text(text_like("type", "header.kind", "source.table"), parse_source), default="topic"),
    ] = ValueSource("topic")
    """The value that decides to which table a record goes: a field, `header.NAME`, a change event's `source.table`, or
    topic."""
    to: Annotated[Template, parsed_text(text_like("shop.${type}", "sales.$1"), parse_template)]
    """The name of the tables, with values of the record as `${…}`, or groups of the topic's expression as $1."""
    limit: Annotated[int, count(200)] = 200
    """How many tables the route makes at most; records of further values go to `rest`."""
    rest: Annotated[str | None, parsed_text(TEXT.schema, table_name)] = None
    """The table of records that no other table of the route takes."""

    @property
    def is_by_topic(self) -> bool:
        """Whether all records of a topic go to one table."""
        return self.by.kind == "topic"

    @property
    def text(self) -> str:
        """The names of the tables, for messages."""
        return self.to.fill(["…"] * len(self.to.sources))

    def as_table(self, **settings: Any) -> TableSpec:
        """A table with the settings of the route, and with these."""
        return TableSpec(**{**{name: getattr(self, name) for name in TableSpec.model_fields}, **settings})

    def table_of(self, topic: str) -> str:
        """The table of a topic, of a route by topic."""
        selector = next(one for one in self.topics if one.matches(topic))
        found = re.search(selector.pattern, topic) if selector.pattern is not None else None
        values = [
            (found.group(int(source.path[0])) or "" if found is not None else "") if source.kind == "capture" else topic
            for source in self.to.sources
        ]
        return self.to.fill(values)


class PipelineSpec(
    Declared,
    json_schema_extra={
        "required": ["pipeline", "kafka"],
        "anyOf": [*({"required": [name]} for name in ("tables", "topics", "routes")), _FOLLOWS_TOPIC_KEYS],
        "dependentRequired": {"topics": ["namespace"]},
        "dependentSchemas": {"namespace": {"anyOf": [{"required": ["topics"]}, _FOLLOWS_TOPIC_KEYS]}},
    },
):
    """A whole pipeline file."""

    pipeline: Annotated[
        str, parsed_text({"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"}, pipeline_name)
    ]
    """Identity of the pipeline's progress: unique per Kafka cluster and catalog."""
    #: Properties of every client, `isolation.level` always among them.
    kafka: Annotated[SecretStrings, section("kafka")]
    """Kafka client properties, passed through; secrets as ${env:NAME} or ${file:PATH}."""
    registry: Annotated[RegistrySpec | None, section("registry")] = None
    """The schema registry, one with Confluent's API."""
    catalog: Annotated[CatalogSpec, section("catalog")]
    """The Iceberg catalog; by default JDBC on SQLite under ./frazil-data."""
    spark: Annotated[SparkSpec, section("spark")] = SparkSpec()
    """Spark's master and configuration."""
    #: None: none is started.
    http: Annotated[HttpSpec | None, with_switch(section("http"))] = HttpSpec()
    """The HTTP service of `frazil run`: metrics, health and API."""
    telemetry: Annotated[TelemetrySpec, section("telemetry")] = TelemetrySpec()
    """Where metrics, traces and lineage are sent; metrics can be read at `http` without it."""
    #: None: `elect: none`.
    ha: Annotated[HaSpec | None, section("ha")] = None
    """Several processes of this pipeline, of which one works and the others wait; by default the newest run works."""
    publish_offsets: bool = True
    """Whether the offsets of the tables are published as those of the consumer group `frazil-<pipeline>`, for tools that
    measure lag."""
    #: None: never.
    verify: Annotated[VerifySpec | None, section("verify", VerifySpec)] = None
    """How often the running pipeline compares some of its newest commits with the topics; by default never."""
    commit: Annotated[CommitSpec, section("commit")] = CommitSpec()
    """When to commit and how large files should be: the default for every table."""
    maintenance: Annotated[MaintenanceSpec, with_switch(section("maintenance"))] = MaintenanceSpec()
    """Table maintenance: the default for every table."""
    tables: Annotated[
        tuple[TableSpec, ...],
        Form({"type": "object", "minProperties": 1, "additionalProperties": section("table").schema}),
    ] = ()
    """The tables, by name: a namespace and a table, joined by a dot."""
    namespace: Annotated[str | None, parsed_text(TEXT.schema, namespace_name)] = None
    """The namespace of the tables that `topics` get, and of those that the configuration of topics makes."""
    topics: Annotated[tuple[TopicSelector, ...], SELECTORS] = ()
    """Topics, or /regular expressions/, that get a table each: `<namespace>.<topic>`."""
    routes: Annotated[
        tuple[RouteSpec, ...], Form({"type": "array", "minItems": 1, "items": section("route").schema})
    ] = ()
    """Topics whose records are divided among many tables, which are created as their values appear."""
    #: Also those of the tables of `topics`.
    defaults: Annotated[TableSpec | None, section("defaults")] = None
    """Settings of every table that does not have them itself."""
    #: `defaults` as the file has them, for tables that it does not declare (see `topic_keys`).
    written_defaults: Annotated[Section | None, NOT_A_KEY, Field(repr=False, exclude=True)] = None
    #: Whether topics get tables by keys of their own (`kafka.topics_from`).
    follows_topic_keys: Annotated[bool, NOT_A_KEY] = False
    #: The file it came from.
    path: Annotated[Path, NOT_A_KEY]
    #: Values that must never be shown; see `redact`.
    secrets: Annotated[frozenset[str], NOT_A_KEY, Field(repr=False, exclude=True)] = frozenset()
    #: Absolute, for what may be lost.
    state_dir: Annotated[Path, NOT_A_KEY]

    def redact(self, text: str) -> str:
        """`text` with every secret of this pipeline masked."""
        return redact(text, self.secrets)

    @property
    def lookup_files(self) -> tuple[str, ...]:
        """The files of lookups, which may be in other stores than the tables."""
        declared = (*self.tables, *self.routes, *filter(None, (self.defaults,)))
        return tuple(lookup.file for one in declared for lookup in one.lookup if lookup.file)

    @property
    def control_topic(self) -> str:
        """The compacted topic with the keys of topics, for brokers that refuse keys that they do not know."""
        return f"frazil-{self.pipeline}-topics"

    def table_for(self, topic: str) -> TableSpec:
        """The table of `topic`, which the pipeline's own `topics` select: `<namespace>.<topic>`, with defaults."""
        name = f"{self.namespace}.{topic}"
        chosen = {"name": name, "topics": (TopicSelector(literal=topic),), "line": 0}
        if self.defaults is not None:
            return self.defaults.model_copy(update=chosen)
        return TableSpec.model_validate({**chosen, "commit": self.commit, "maintenance": self.maintenance})

    def routed_table(self, rest: TableSpec, routed: RoutedTable) -> TableSpec:
        """The table of a route that takes the records with some values. rest: the route's table of the rest."""
        route = next(one for one in self.routes if one.rest == rest.name)
        start = Start(kind="offsets", offsets=dict(routed.start))
        return route.as_table(name=routed.name, start=start, route=rest.route, route_values=routed.values, line=0)

    def tables_by_topic(self, topics: Collection[str]) -> list[TableSpec]:
        """The tables of those of the topics that routes by topic select, each with all topics of its name."""
        fed: dict[str, tuple[RouteSpec, list[TopicSelector]]] = {}
        for route in self.routes:
            for topic in sorted(select_topics(route.topics, topics)) if route.is_by_topic else ():
                fed.setdefault(route.table_of(topic), (route, []))[1].append(TopicSelector(literal=topic))
        return [route.as_table(name=name, topics=tuple(own), line=0) for name, (route, own) in fed.items()]


OF_ONE_TABLE = ("topic", "topics", "start", "location")
"""Keys of a table that are no defaults for others."""
OF_ALL_TABLES = ("cores", "window")
"""Keys of `maintenance` that a table does not have for itself."""
TABLE_KEYS = keys_of(TableSpec)
ROUTE_KEYS = {name: key for name, key in keys_of(RouteSpec).items() if name != "location"}
DEFAULTS_KEYS = {name: key for name, key in TABLE_KEYS.items() if name not in OF_ONE_TABLE}
MAINTENANCE_KEYS = keys_of(MaintenanceSpec)
TABLE_MAINTENANCE_KEYS = {name: key for name, key in MAINTENANCE_KEYS.items() if name not in OF_ALL_TABLES}
