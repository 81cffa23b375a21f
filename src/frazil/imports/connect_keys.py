"""What becomes of the settings of Kafka Connect's Iceberg sinks, Apache's and Tabular's, and of transforms."""

from frazil.imports.answers import Tool, carried, unneeded, unsupported

_CONTROL = "progress is in the tables: there is no control topic, group or transaction"
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
        *unsupported(
            "Frazil commits to the main branch",
            "leave it out, or keep the tables of the branch in a catalog of their own",
            "iceberg.tables.default-commit-branch",
            "iceberg.table.*.commit-branch",
            harmless=("", "main"),
        ),
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
        *unneeded("a pipeline has one catalog", "iceberg.catalog"),
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
        *unneeded("headers are not decoded unless a column asks for one", "header.converter"),
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
        *carried("`metadata`", *(f"InsertField.{one}.field" for one in ("topic", "partition", "offset", "timestamp"))),
        *carried("`add_fields`", "InsertField.static.field", "InsertField.static.value"),
        *carried("`protect`", "MaskField.fields", "MaskField.replacement"),
        *carried("`flatten`", "Flatten.delimiter"),
        *carried("`columns`, with the unit", *(f"TimestampConverter.{one}" for one in ("field", "target.type"))),
        *carried("`columns`, with the unit", "TimestampConverter.unix.precision"),
        *carried("`drop_fields`, where fields are moved", "HeaderFrom.fields", "HeaderFrom.operation"),
        *carried("`key_columns`, of upsert tables", "ValueToKey.fields"),
        *carried("`select`", "CopyValue.source.field", "CopyValue.target.field"),
        *carried("`metadata`, in columns of the same names", "KafkaMetadataTransform.field_name"),
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
            "metadata is in columns of its own", "name members of a struct in a `select`", "KafkaMetadataTransform.nested",
            harmless=("false",),
        ),
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
        *unsupported("there is no such step", _BEFORE, "HeaderToValue.*", "EnforceRecordSize.*", "TimezoneConverter.*"),
        *unsupported("events of an outbox have Debezium's default fields", "rename the fields", "EventRouter.*"),
    ),
)  # fmt: skip
