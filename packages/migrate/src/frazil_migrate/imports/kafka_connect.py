"""A connector of Apache's or Tabular's Iceberg sink as a pipeline: what becomes of its settings and transforms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from frazil.errors import SpecError
from frazil.kafka.properties import one_sided_remedy
from frazil.spec.partitioning import split_terms
from frazil_migrate.imports.connect_transforms import Shape, matches, read_chain
from frazil_migrate.imports.draft import Draft, Imported, Tool, carried, number, unneeded, unsupported
from frazil_migrate.imports.sources import flat, mapping, parse

NAMELESS = "of a JDBC catalog it is `catalog.name`; others do not keep their tables under a name"
_CONTROL = "progress is in the tables, without a control topic, a group or transactions"
_BEFORE = "write its result as `select` or `where`, or run it before the topic"
_OF_CONNECT = "it configures Kafka Connect itself"
_BY_ID = "the id in each record names its schema"

KAFKA_CONNECT = Tool(
    "kafka-connect",
    "Kafka Connect's Iceberg sink",
    (
        *carried("`pipeline`", "name"),
        *carried("the `topic` or `topics` of each table", "topics", "topics.regex"),
        *carried("`tables`, an entry each", "iceberg.tables"),
        *carried("`where` of each table, or `routes`", "iceberg.tables.route-field", "iceberg.table.*.route-regex"),
        *carried("`routes`", "iceberg.tables.dynamic-enabled"),
        *carried(
            "`key_columns` of upsert tables; Apache's sink, which appends, only checks that the columns exist",
            "iceberg.tables.default-id-columns",
            "iceberg.table.*.id-columns",
        ),
        *carried("`partition_by`", "iceberg.tables.default-partition-by", "iceberg.table.*.partition-by"),
        *carried("`schema_evolution`", "iceberg.tables.evolve-schema-enabled"),
        *carried("nothing: Frazil creates tables; with false, `schema_evolution`", "iceberg.tables.auto-create-enabled"),
        *carried(
            "`properties`, and `format_version`",
            "iceberg.tables.auto-create-props.*",
            "iceberg.tables.write-props.*",
            "iceberg.table.write-props.*",
        ),
        *carried("`envelope: {operation: …}` and `mode: upsert` (Tabular's sink)", "iceberg.tables.cdc-field"),
        *carried("`mode: upsert` (Tabular's sink)", "iceberg.tables.upsert-mode-enabled"),
        *carried("`commit.interval`", "iceberg.control.commit.interval-ms"),
        *carried("`catalog`", "iceberg.catalog.*"),
        *carried("`spark.conf`, as `spark.hadoop.…`", "iceberg.hadoop.*"),
        *carried(
            "`kafka`",
            *(
                f"{place}.{name}"
                for place in ("iceberg.kafka", "consumer.override")
                for name in ("bootstrap.servers", "security.protocol", "sasl.*", "ssl.*", "isolation.level", "client.rack")
            ),
            "bootstrap.servers",
        ),
        *carried("`start`", "consumer.override.auto.offset.reset"),
        *carried("`value`", "value.converter"),
        *carried("`key`, of upsert tables", "key.converter"),
        *carried(
            "`registry`",
            *(
                f"{side}.converter.{name}"
                for side in ("value", "key")
                for name in ("schema.registry.url", "basic.auth.*", "schema.registry.basic.auth.*", "bearer.auth.token")
            ),
        ),
        *carried("`on_bad_record`", "errors.tolerance"),
        *carried("`dead_letters.topic`", "errors.deadletterqueue.topic.name"),
        *carried("the settings of each transform, below", "transforms", "transforms.*.type"),
        *carried("the settings of each transform, below", "transforms.*.predicate", "transforms.*.negate"),
        *carried("`tombstones` or `where`, with the transform Filter", "predicates", "predicates.*"),
        *carried("`branch`", "iceberg.tables.default-commit-branch", "iceberg.table.*.commit-branch"),
        *unsupported(
            "Hadoop's files are not read from there",
            "write their properties under `spark.conf` as `spark.hadoop.…`, or set HADOOP_CONF_DIR",
            "iceberg.hadoop-conf-dir",
        ),
        *unsupported(
            "the registry's TLS files are named otherwise",
            "write PEM files under `registry.tls`",
            "value.converter.schema.registry.ssl.*",
            "key.converter.schema.registry.ssl.*",
        ),
        *unsupported(
            "Frazil's dead-letter tables have columns of their own",
            "nothing: bad records go to `<table>__dead_letters`",
            "iceberg.tables.deadletter.*",
        ),
        *unneeded("a field feeds the column whose name differs in case alone", "iceberg.tables.schema-case-insensitive"),
        *unneeded("inferred columns are optional", "iceberg.tables.schema-force-optional"),
        *unneeded(
            _CONTROL,
            "iceberg.control.topic",
            "iceberg.control.group-id*",
            "iceberg.control.commit.*",
            "iceberg.coordinator.transactional.*",
            "iceberg.coordinator-executor-keep-alive-timeout-ms",
            "iceberg.connect.group-id",
            "iceberg.kafka.*",
        ),
        *unneeded(NAMELESS, "iceberg.catalog"),
        *unneeded("each record shows whether it has a schema", "*.converter.schemas.enable"),
        *unneeded(
            _BY_ID,
            "*.converter.*.subject.name.strategy",
            "*.converter.auto.register.schemas",
            "*.converter.use.latest.version",
            "*.converter.enhanced.avro.schema.support",
            "*.converter.connect.meta.data",
        ),
        *unneeded("schemas are kept as long as Frazil runs", "*.converter.schemas.cache.*"),
        *unneeded("decimals are read in both forms", "*.converter.decimal.format"),
        *unneeded("texts are read as UTF-8", "*.converter.encoding", "*.converter.converter.encoding"),
        *unneeded("Spark's master sets how much runs at a time", "tasks.max", "tasks.max.enforce"),
        *unneeded("headers are not decoded unless a column needs one", "header.converter"),
        *unneeded("Frazil retries, and logs, by itself", "errors.log.*", "errors.retry.*", "errors.deadletterqueue.*"),
        *unneeded("Frazil chooses how it fetches", "consumer.override.*"),
        *unneeded(_OF_CONNECT, "connector.class", "config.action.reload", "connector.client.config.override.policy"),
        *unneeded(_OF_CONNECT, "task.id", "plugin.path", "offset.*", "group.id", "rest.*", "config.storage.*", "status.*"),
        # Transforms, by class and setting.
        *carried("`cast`", "Cast.spec"),
        *carried("`keep_fields`", "ReplaceField.include"),
        *carried("`drop_fields`", "ReplaceField.exclude"),
        *carried("`drop_fields`, `keep_fields`, by their old names", "ReplaceField.whitelist", "ReplaceField.blacklist"),
        *carried("`rename`", "ReplaceField.renames"),
        *carried("`metadata`", *(f"InsertField.{piece}.field" for piece in ("topic", "partition", "offset"))),
        *carried("`metadata`, or the `select` of a number without schemas", "InsertField.timestamp.field"),
        *carried("`add_fields`", "InsertField.static.field", "InsertField.static.value"),
        *carried("`protect`", "MaskField.fields", "MaskField.replacement"),
        *carried("`flatten`", "Flatten.delimiter"),
        *carried("`columns`, with the unit", *(f"TimestampConverter.{name}" for name in ("field", "target.type"))),
        *carried("`columns`, with the unit", "TimestampConverter.unix.precision"),
        *carried("`drop_fields`, where fields are moved", "HeaderFrom.fields", "HeaderFrom.operation"),
        *carried("`key_columns`, of upsert tables", "ValueToKey.fields"),
        *carried("`select`", "CopyValue.source.field", "CopyValue.target.field"),
        *carried("`metadata`, and a `select` for the timestamp, a number", "KafkaMetadataTransform.field_name"),
        *carried("a struct in the `select`", "KafkaMetadataTransform.nested"),
        *carried("`add_fields`", "KafkaMetadataTransform.external_field"),
        *carried("`envelope: debezium` in `routes`", "DebeziumTransform.cdc.target.pattern"),
        *carried("`metadata`", "ExtractNewRecordState.add.fields", "ExtractNewRecordState.add.fields.prefix"),
        *carried("`changelog`", "ExtractNewRecordState.delete.tombstone.handling.mode"),
        *carried("`changelog`", "ExtractNewRecordState.delete.handling.mode"),
        *unneeded("a null stays null", "*.replace.null.with.default"),
        *unneeded("a tombstone deletes a key or is ignored", "ExtractNewRecordState.drop.tombstones"),
        *unneeded("headers make no columns", "HeaderFrom.headers", "DropHeaders.*", "InsertHeader.*"),
        *unneeded("headers make no columns", "ExtractNewRecordState.*header*"),
        *unneeded("names of schemas have no effect on tables", "SetSchemaMetadata.*"),
        *unneeded("tables are named under `tables`, and topics keep their names", "RegexRouter.*", "TimestampRouter.*"),
        *unneeded("documents of MongoDB are read with the types that they have", "MongoDebeziumTransform.*"),
        *unsupported(
            "an object becomes a struct", "declare a column as `map<string,string>` under `columns`",
            "JsonToMapTransform.json.root", harmless=("false",),
        ),
        *unsupported("texts are read in ISO 8601 alone", "use `to_timestamp` in a `select`", "TimestampConverter.format"),
        *unsupported("topics are not renamed", "write `by` under `routes`", "ExtractNewRecordState.route.by.field"),
        *unsupported("fields are dropped by name", "write `drop_fields`", "ExtractNewRecordState.drop.fields.*"),
        *carried("`select`", "HoistField.field", "ExtractField.field"),
        *unsupported("dots lead into structs", "quote names with dots in the `select`", "ExtractField.field.syntax.version"),
        *unsupported("records are not filtered by scripts", "write the condition as `where`", "Filter.*"),
        *unsupported("scripts divide no topics", "write `routes`", "ContentBasedRouter.*", "ByLogicalTableRouter.*"),
        *unsupported("only the new record is kept", _BEFORE, "ExtractChangedRecordState.*", "PartitionRouting.*"),
        *unsupported("Frazil has no such step", _BEFORE, "HeaderToValue.*", "EnforceRecordSize.*", "TimezoneConverter.*"),
        *unsupported("events of an outbox have Debezium's default fields", "rename the fields", "EventRouter.*"),
    ),
)  # fmt: skip


_DEFAULT_KEYS = "iceberg.tables.default-id-columns"
_FORMATS = {
    "AvroConverter": "avro", "ProtobufConverter": "protobuf", "JsonSchemaConverter": "json_schema", "JsonConverter": "json",
    "StringConverter": "text", "ByteArrayConverter": "raw",
}  # fmt: skip
_OWNERS = re.compile(r"(org\.apache\.kafka|io\.confluent)\.connect\.|[^.]+$")
"""What the classes of these converters begin with."""
_RESOURCES = ("KafkaConnector", "Connector")
"""What Kubernetes calls a connector of Strimzi, and one of Confluent."""
_FROM_REGISTRY = ("avro", "protobuf", "json_schema")
_SECURITY = ("bootstrap.servers", "security.protocol", "isolation.level", "client.rack")
_CATALOGS = {
    name: f"org.apache.iceberg.{path}Catalog"
    for name, path in {"rest": "rest.REST", "hive": "hive.Hive", "hadoop": "hadoop.Hadoop", "jdbc": "jdbc.Jdbc",
                       "glue": "aws.glue.Glue", "nessie": "nessie.Nessie"}.items()
}  # fmt: skip
"""The classes of Iceberg's types of catalogs."""
_NAMESPACE = "lake"
_NAME = "frazil"
"""The name of a pipeline's catalog unless its file has another."""
_ONE_ROW = "(_image = 'after' or _op <> 'u')"
"""The condition for one row per change: a changelog table has the row before an update as well."""


def import_connector(text: str, brokers: str | None) -> Imported:
    """Returns the pipeline file for a connector's settings: JSON, `{name, config}` of Connect's REST API, properties, or the
    YAML of a connector in Kubernetes.

    Raises: SpecError for the settings of several connectors, or of another one.
    """
    settings = _of_connector(parse(text))
    kind = settings.get("connector.class", "")
    if kind and "iceberg" not in kind.lower():
        raise SpecError(f"the connector is not an Iceberg sink: {kind}", remedy="give the configuration of the sink")
    draft = Draft(KAFKA_CONNECT, settings)
    draft.name_pipeline(draft.take("name"))
    is_apache = settings.get("connector.class", "").startswith("org.apache.")
    put_kafka(draft, "iceberg.kafka.", "consumer.override.", "")
    if put_catalog(draft, draft.take_all("iceberg.catalog."), draft.peek("iceberg.catalog") or "iceberg"):
        draft.take("iceberg.catalog")
    draft.put(
        {f"spark.hadoop.{name}": value for name, value in draft.take_all("iceberg.hadoop.").items()}, "spark", "conf"
    )
    draft.put(draft.take_duration("iceberg.control.commit.interval-ms"), "commit", "interval")
    shape = read_chain(draft)
    changes = _changes(draft, shape, is_apache)
    defaults = {
        **_values(draft),
        **_bad_records(draft),
        **_properties(draft),
        **shape.as_settings(),
        **_columns(draft),
        **changes,
    }
    _put_tables(draft, shape, defaults)
    return draft.finish(brokers)


def _of_connector(configuration: Mapping[str, Any]) -> dict[str, str]:
    """Returns the settings of a connector, whatever is around them. Strimzi's resource and Confluent's have the class and
    the number of tasks beside them.

    Raises: SpecError where the configuration has none, or those of several connectors.
    """
    connectors = [entry.get("info", entry) for entry in configuration.values() if isinstance(entry, dict)]
    connectors = [entry for entry in connectors if isinstance(entry, dict) and isinstance(entry.get("config"), dict)]
    if "kind" in configuration and isinstance(configuration.get("spec"), dict):
        metadata, spec = configuration.get("metadata"), configuration["spec"]
        if configuration["kind"] not in _RESOURCES:
            message = f"the configuration is a `{configuration['kind']}` of Kubernetes, which is not a connector"
            raise SpecError(message, remedy=f"give one of {', '.join(_RESOURCES)}, or the settings alone")
        named = {"name": metadata.get("name")} if isinstance(metadata, dict) else {}
        outer = {"connector.class": spec.get("class"), "tasks.max": spec.get("tasksMax") or spec.get("taskMax")}
        return flat({**named, **outer, **mapping(spec.get("config") or spec.get("configs"))})
    if len(connectors) > 1:
        message = f"the configuration has {len(connectors)} connectors"
        raise SpecError(message, remedy="give one of them: a pipeline file is made of one connector")
    if connectors and "config" not in configuration:
        configuration = connectors[0]
    if "config" not in configuration:
        return flat(configuration)
    return {**flat(mapping(configuration["config"])), "name": str(configuration.get("name") or "")}


def put_kafka(draft: Draft, *prefixes: str) -> None:
    """Writes the addresses of brokers, and how to log in, unless one of the two Kafka clients could not follow it."""
    for prefix in prefixes:
        for key in draft.names(prefix):
            name = key.removeprefix(prefix)
            if name in _SECURITY or name.startswith(("sasl.", "ssl.")):
                value = draft.take(key)
                if remedy := one_sided_remedy(name, value or ""):
                    draft.lose(key, "Frazil has two Kafka clients, and one of them could not follow it", remedy)
                elif draft.document["kafka"].get(name, value) != value:
                    draft.lose(key, "a pipeline has one cluster, and another setting names it", "make two pipelines")
                else:
                    draft.put(value, "kafka", name)


def put_catalog(draft: Draft, properties: Mapping[str, str], named: str | None) -> bool:
    """Writes the catalog that Iceberg's own properties describe; returns whether it keeps its tables under its name.
    named: its name in the other tool; None where it is not known.
    """
    left = dict(properties)
    if "type" in left:
        left["type"] = left["type"].lower()  # As Iceberg reads it.
    kind, impl = left.get("type"), left.get("catalog-impl")
    keeps_name = kind == "jdbc" or (impl is not None and not _is_nameless(impl))
    if keeps_name and named is None:
        draft.notes.append("a JDBC catalog keeps its tables under its name: write it as `catalog.name`")
    if kind and impl and impl == _CATALOGS.get(kind):
        del left["catalog-impl"]
    elif kind and impl:
        draft.lose("catalog", f"it has the type `{kind}` and a class: the class is taken", "remove one of them there")
        del left["type"]
    for name, key in (("type", "type"), ("catalog-impl", "impl")):
        draft.put(left.pop(name, None), "catalog", key)
    if keeps_name and named != _NAME:
        draft.put(named, "catalog", "name")
    for name in ("uri", "warehouse"):
        draft.put(left.pop(name, None), "catalog", name)
    draft.put(left, "catalog", "properties")
    return keeps_name


def _is_nameless(impl: str) -> bool:
    """Whether a class is one of the catalogs that do not keep their tables under the catalog's name."""
    return impl != _CATALOGS["jdbc"] and impl.startswith(("org.apache.iceberg.", "software.amazon."))


def put_registry(
    draft: Draft, url: str | None, user_info: str | None = None, token: str | None = None, login: str = ""
) -> None:
    """Writes the schema registry, and how to log in. login: the setting with user and password."""
    address = url.split(",") if url and "," in url else url
    if draft.document.get("registry", {}).get("url", address) != address:
        draft.lose("schema registry", "a pipeline has one registry, and another setting names it", "make two pipelines")
        return
    draft.put(address, "registry", "url")
    user, _, password = (user_info or "").partition(":")
    if user_info and not user.startswith("${"):
        draft.put({"username": user, "password": password}, "registry", "auth")
    elif user_info:
        draft.lose(login, "user and password are in one secret", "write them under `registry.auth`")
    draft.put({"token": token} if token else None, "registry", "auth")


def _values(draft: Draft) -> dict[str, Any]:
    """Returns the formats of values and keys, and writes the registry that they need."""
    formats: dict[str, Any] = {}
    for side in ("value", "key"):
        name = draft.take(f"{side}.converter")
        if name is None:
            continue
        kind = _FORMATS.get(name.rpartition(".")[2]) if _OWNERS.match(name) else None
        if kind is None:
            draft.lose(f"{side}.converter", f"the converter {name} is unknown", f"write the format under `{side}`")
            continue
        formats[side] = {"format": kind}
        options = f"{side}.converter."
        if kind in _FROM_REGISTRY:
            places = [f"{options}{prefix}basic.auth.user.info" for prefix in ("", "schema.registry.")]
            place = next((setting for setting in places if draft.peek(setting)), places[0])
            login = next(filter(None, [draft.take(setting) for setting in places]), None)
            for prefix in ("", "schema.registry."):
                draft.take(f"{options}{prefix}basic.auth.credentials.source")
            token = draft.take(f"{options}bearer.auth.token")
            put_registry(draft, draft.take(f"{options}schema.registry.url"), login, token, place)
    if draft.peek("value.converter") is None:
        draft.notes.append("the converter of values is the worker's: if the format is not JSON, write it under `value`")
    return formats


def _bad_records(draft: Draft) -> dict[str, Any]:
    tolerance, topic = draft.take("errors.tolerance"), draft.take("errors.deadletterqueue.topic.name")
    settings: dict[str, Any] = {"dead_letters": {"topic": topic}} if topic else {}
    if tolerance and tolerance.lower() not in ("all", "none"):
        draft.lose("errors.tolerance", f"`{tolerance}` is unknown", "write `on_bad_record`")
    elif tolerance:
        settings["on_bad_record"] = "dead_letter" if tolerance.lower() == "all" else "stop"
    if settings.get("on_bad_record") == "stop":
        settings.pop("dead_letters", None)
    return settings


def _properties(draft: Draft) -> dict[str, Any]:
    properties: dict[str, str] = {}
    for prefix in ("iceberg.tables.auto-create-props.", "iceberg.tables.write-props.", "iceberg.table.write-props."):
        properties |= draft.take_all(prefix)
    settings: dict[str, Any] = {}
    if version := properties.pop("format-version", None):
        settings["format_version"] = number(version)
    if properties:
        settings["properties"] = properties
    return settings


def _columns(draft: Draft) -> dict[str, Any]:
    """Returns where reading begins, and whether fields may become columns."""
    settings: dict[str, Any] = {}
    start = draft.take("consumer.override.auto.offset.reset")
    if start in ("earliest", "latest"):
        settings["start"] = start
    elif start:
        draft.lose("consumer.override.auto.offset.reset", f"`{start}` is not a place in a topic", "write `start`")
    evolves = draft.take_flag("iceberg.tables.evolve-schema-enabled")
    creates = draft.take_flag("iceberg.tables.auto-create-enabled")
    if evolves:
        settings["schema_evolution"] = "evolve"
    elif evolves is False and not creates:
        settings["schema_evolution"] = "freeze"
    elif evolves is False:
        instead = "write `schema_evolution: freeze` once the tables exist"
        draft.lose("iceberg.tables.evolve-schema-enabled", "a new table takes its columns from the records", instead)
    else:
        draft.notes.append(
            "new fields become columns, unlike in the sink without iceberg.tables.evolve-schema-enabled: write"
            " `schema_evolution: freeze` for tables that exist"
        )
    return settings


def _changes(draft: Draft, shape: Shape, is_apache: bool) -> dict[str, Any]:
    """Returns how records change rows, and takes the rows that the sink writes of changes into account in `shape`."""
    settings: dict[str, Any] = {}
    upserts, operation = (
        draft.take_flag("iceberg.tables.upsert-mode-enabled"),
        draft.take("iceberg.tables.cdc-field"),
    )
    if (upserts or operation) and is_apache:
        key = "iceberg.tables.cdc-field" if operation else "iceberg.tables.upsert-mode-enabled"
        draft.lose(key, "Apache's sink ignores it, and appends", "write `mode: upsert` for a table of current rows")
    elif upserts or operation:
        settings["mode"] = "upsert"
        # Where a transform opens the envelope, the operation is still inside it in the topic.
        if operation and not operation.startswith("_cdc.") and "envelope" not in shape.settings:
            words = {"insert": ["I", "i", "C", "c", "R", "r"], "update": ["U", "u"], "delete": ["D", "d"]}
            settings["envelope"] = {"operation": operation, **words}
    if "changelog" in shape.settings and "mode" not in settings:
        shape.conditions.append(_ONE_ROW)
    return settings


def _put_tables(draft: Draft, shape: Shape, defaults: dict[str, Any]) -> None:
    """Writes the tables, or the route that makes them."""
    topics, pattern = draft.take("topics"), draft.take("topics.regex")
    if topics and pattern:
        draft.lose(
            "topics", "Kafka Connect takes `topics` or `topics.regex`: the expression is taken", "remove one there"
        )
    sources: dict[str, Any] = {"topics": f"/^(?:{pattern})$/"} if pattern else {"topics": _split(topics)}
    if topics and len(sources["topics"]) == 1:
        sources = {"topic": sources["topics"][0]}
    field = draft.take("iceberg.tables.route-field")
    columns, terms = draft.take(_DEFAULT_KEYS), draft.take("iceberg.tables.default-partition-by")
    branch = _branch(draft.take("iceberg.tables.default-commit-branch"))
    defaults = {**defaults, "branch": branch}
    if draft.take_flag("iceberg.tables.dynamic-enabled"):
        if not field:
            draft.lose("iceberg.tables.route-field", "no field names the tables", "name it, or list the tables")
            return
        for key in [key for key in draft.names("iceberg.table.") if not key.startswith("iceberg.table.write-props.")]:
            draft.take(key)
            reason = "the tables of a route have the same settings"
            draft.lose(key, reason, "write `tables` with a `where` each in place of the route")
        settings = {**sources, **_route(draft, shape, field or "", draft.document["pipeline"]), **defaults}
        _note_keys(draft, settings, {_DEFAULT_KEYS: columns})
        draft.put_route(_layout(settings, shape, columns, terms))
        return
    tables = _split(draft.take("iceberg.tables"))
    if not tables:
        draft.lose("iceberg.tables", "the sink names no table", "write the tables under `tables`")
    for name in [name for name in tables if "." not in name]:
        reason = f"a table is in a namespace here: it is `default.{name}`"
        draft.lose(f"iceberg.tables {name}", reason, "write the namespace that the table has under `tables`")
    for name in tables:
        regex = draft.take(f"iceberg.table.{name}.route-regex")
        own_layout = [draft.take(f"iceberg.table.{name}.{key}") for key in ("id-columns", "partition-by")]
        own_branch = draft.take(f"iceberg.table.{name}.commit-branch")
        settings = {**sources, **defaults, "branch": _branch(own_branch) if own_branch else branch}
        if field is not None:
            settings |= _condition(draft, shape, name, field, regex, defaults.get("where", ""))
        _note_keys(draft, settings, {f"iceberg.table.{name}.id-columns": own_layout[0], _DEFAULT_KEYS: columns})
        table = _layout(settings, shape, own_layout[0] or columns, own_layout[1] or terms)
        draft.put(table, "tables", name if "." in name else f"default.{name}")


def _branch(name: str | None) -> str | None:
    """Returns the branch that commits go to; None for main, where they go unless written."""
    return None if name == "main" else name


def _note_keys(draft: Draft, settings: Mapping[str, Any], named: Mapping[str, str | None]) -> None:
    """Reports columns of keys that an append table has no use for. named: by setting."""
    for key in [key for key, columns in named.items() if columns and settings.get("mode") != "upsert"]:
        draft.lose(
            key, "the sink appends, and only marks the columns in the schema", "write `mode: upsert` and `key_columns`"
        )


def _condition(draft: Draft, shape: Shape, table: str, field: str, regex: str | None, where: str) -> dict[str, Any]:
    """Returns the condition for the records that the sink routes to a table."""
    if regex is None:
        draft.lose(
            f"iceberg.table.{table}.route-regex", "without it the sink writes no record to the table", "write `where`"
        )
        return {}
    if field in shape.topic_fields or field.startswith("_cdc."):
        if field.startswith("_cdc."):
            reason = "the route is by the source of a change"
            draft.lose(f"iceberg.table.{table}.route-regex", reason, "write `routes` with `by: source.table`")
            return {}
        _note_router(draft, shape, f"iceberg.table.{table}.route-regex")
        return {"topics": f"/^(?:{regex})$/", "topic": None}
    path = ".".join(f"`{part}`" for part in field.split("."))
    ours = matches(path, regex)
    return {"where": f"{where} and {ours}" if where else ours}


def _route(draft: Draft, shape: Shape, field: str, pipeline: str) -> dict[str, Any]:
    """Returns what names the tables of a route."""
    rest = {"rest": f"{_NAMESPACE}.{re.sub(r'[^A-Za-z0-9_]', '_', pipeline)}_rest"}
    if field == "_cdc.target":
        to, by = shape.target.replace("{db}", "${source.db}").replace("{table}", "${source.table}"), "source.table"
        remedy = "with PostgreSQL, Oracle or SQL Server write `${source.schema}` in place of `${source.db}`"
        draft.lose("iceberg.tables.route-field", "`{db}` is the schema where the database has schemas", remedy)
    elif field in shape.topic_fields:
        to, by, rest = "${topic}", "topic", {}
        _note_router(draft, shape, "iceberg.tables.route-field")
    else:
        to, by = f"${{{field}}}", field
    draft.notes.append("the sink writes the names of a route's tables in lower case, and Frazil as values have them")
    if "." not in to.partition("${")[0]:
        reason = f"tables of a route begin with a namespace: they are `{_NAMESPACE}.<value>` here"
        remedy = (
            "write the namespace that the tables have under `to`; where the values have it themselves, write `tables` in"
            " place of the route, with a `where` each"
        )
        draft.lose("iceberg.tables.dynamic-enabled", reason, remedy)
        to = f"{_NAMESPACE}.{to}"
    return {"by": by, "to": to, **rest}


def _note_router(draft: Draft, shape: Shape, key: str) -> None:
    """Reports a route by the name of the topic as a transform has changed it."""
    if shape.router:
        reason = f"`transforms.{shape.router}` renames the topics before, and the route is by their own names here"
        draft.lose(
            key, reason, "write an expression for the topics' own names; `to` of a route may have its groups, `$1`"
        )


def _layout(settings: Mapping[str, Any], shape: Shape, columns: str | None, terms: str | None) -> dict[str, Any]:
    """Returns keys and partitions of a table, without the settings that it has no use for."""
    is_upsert = settings.get("mode") == "upsert"
    upsert_settings = (
        {"key_columns": _split(columns) or shape.key_fields, "changelog": None} if is_upsert else {"key": None}
    )
    return {**settings, **upsert_settings, "partition_by": split_terms(terms or "")}


def _split(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]
