"""Every setting of other tools that their documentation or code names, by tool, as the tables of answers spell them."""

from __future__ import annotations

_CONNECT = """
name connector.class tasks.max topics topics.regex key.converter value.converter header.converter transforms predicates
transforms.a.type transforms.a.predicate transforms.a.negate predicates.p.type config.action.reload
errors.tolerance errors.log.enable errors.log.include.messages errors.retry.timeout errors.retry.delay.max.ms
errors.deadletterqueue.topic.name errors.deadletterqueue.topic.replication.factor
errors.deadletterqueue.context.headers.enable
value.converter.schemas.enable value.converter.schemas.cache.size value.converter.decimal.format
value.converter.schema.registry.url value.converter.basic.auth.credentials.source value.converter.basic.auth.user.info
value.converter.schema.registry.basic.auth.user.info value.converter.bearer.auth.token
value.converter.schema.registry.ssl.truststore.location value.converter.value.subject.name.strategy
key.converter.schema.registry.url key.converter.schemas.enable
consumer.override.auto.offset.reset consumer.override.max.poll.records consumer.override.security.protocol
iceberg.tables iceberg.tables.dynamic-enabled iceberg.tables.route-field iceberg.tables.default-commit-branch
iceberg.tables.default-id-columns iceberg.tables.default-partition-by iceberg.tables.auto-create-enabled
iceberg.tables.evolve-schema-enabled iceberg.tables.schema-force-optional iceberg.tables.schema-case-insensitive
iceberg.tables.auto-create-props.x iceberg.tables.write-props.x iceberg.table.write-props.x
iceberg.table.a.b.commit-branch iceberg.table.a.b.id-columns iceberg.table.a.b.partition-by iceberg.table.a.b.route-regex
iceberg.control.topic iceberg.control.group-id-prefix iceberg.control.group-id iceberg.control.commit.interval-ms
iceberg.control.commit.timeout-ms iceberg.control.commit.threads iceberg.control.commit.max-consecutive-failures
iceberg.coordinator.transactional.prefix iceberg.coordinator.transactional.suffix
iceberg.coordinator-executor-keep-alive-timeout-ms iceberg.connect.group-id iceberg.catalog iceberg.catalog.type
iceberg.catalog.uri iceberg.hadoop-conf-dir iceberg.hadoop.fs.s3a.endpoint iceberg.kafka.bootstrap.servers
iceberg.kafka.auto.offset.reset task.id iceberg.tables.cdc-field iceberg.tables.upsert-mode-enabled
iceberg.tables.deadletter.handler iceberg.tables.deadletter.record_factory
Cast.spec Cast.replace.null.with.default DropHeaders.headers ExtractField.field ExtractField.field.syntax.version
ExtractField.replace.null.with.default Flatten.delimiter HeaderFrom.fields HeaderFrom.headers HeaderFrom.operation
HeaderFrom.replace.null.with.default HoistField.field InsertField.topic.field InsertField.partition.field
InsertField.offset.field InsertField.timestamp.field InsertField.static.field InsertField.static.value
InsertHeader.header InsertHeader.value.literal MaskField.fields MaskField.replacement RegexRouter.regex
RegexRouter.replacement ReplaceField.include ReplaceField.exclude ReplaceField.whitelist ReplaceField.blacklist
ReplaceField.renames SetSchemaMetadata.schema.name SetSchemaMetadata.schema.version TimestampConverter.field
TimestampConverter.target.type TimestampConverter.format TimestampConverter.unix.precision TimestampRouter.topic.format
TimestampRouter.timestamp.format ValueToKey.fields predicates.p.name predicates.p.pattern
CopyValue.source.field CopyValue.target.field DebeziumTransform.cdc.target.pattern JsonToMapTransform.json.root
KafkaMetadataTransform.field_name KafkaMetadataTransform.nested KafkaMetadataTransform.external_field
MongoDebeziumTransform.array_handling_mode
ByLogicalTableRouter.topic.regex ByLogicalTableRouter.topic.replacement ByLogicalTableRouter.key.enforce.uniqueness
ByLogicalTableRouter.key.field.name Filter.topic.regex Filter.language Filter.condition Filter.null.handling.mode
ContentBasedRouter.topic.regex ContentBasedRouter.language ContentBasedRouter.topic.expression
EventRouter.table.op.invalid.behavior EventRouter.table.field.event.id EventRouter.route.by.field
TimezoneConverter.converted.timezone TimezoneConverter.include.list TimezoneConverter.exclude.list
ExtractNewRecordState.delete.tombstone.handling.mode ExtractNewRecordState.delete.handling.mode
ExtractNewRecordState.drop.tombstones ExtractNewRecordState.route.by.field ExtractNewRecordState.add.fields
ExtractNewRecordState.add.fields.prefix ExtractNewRecordState.add.headers ExtractNewRecordState.add.headers.prefix
ExtractNewRecordState.drop.fields.header.name ExtractNewRecordState.drop.fields.from.key
ExtractNewRecordState.drop.fields.keep.schema.compatible ExtractNewRecordState.replace.null.with.default
ExtractChangedRecordState.header.changed.name ExtractChangedRecordState.header.unchanged.name HeaderToValue.headers
HeaderToValue.fields HeaderToValue.operation PartitionRouting.partition.payload.fields
PartitionRouting.partition.topic.num PartitionRouting.partition.hash.function EnforceRecordSize.max.bytes
EnforceRecordSize.compression.ratio EnforceRecordSize.min.field.size
"""
_AUTOMQ = """
enable commit.interval.ms namespace schema.type convert.value.type convert.key.type
convert.value.by_latest_schema.subject convert.value.by_latest_schema.message.full.name
convert.key.by_latest_schema.subject convert.key.by_latest_schema.message.full.name transform.value.type id.columns
partition.by upsert.enable cdc.field errors.tolerance expire.snapshot.enabled expire.snapshot.older.than.hours
expire.snapshot.retain.last catalog.type catalog.uri catalog.warehouse catalog.io-impl catalog.auth
hadoop.metastore.kerberos.principal schema.registry.url schema.registry.config.basic.auth.user.info
schema.registry.config.ssl.truststore.location
"""
_FLINK_CDC = """
source.type source.hostname source.tables sink.type sink.name sink.catalog.properties.type sink.catalog.properties.uri
sink.catalog.properties.warehouse sink.catalog.properties.catalog-impl sink.catalog.properties.io-impl
sink.catalog.properties.glue.id sink.catalog.properties.glue.skip-archive
sink.catalog.properties.glue.skip-name-validation sink.catalog.properties.client.region sink.hadoop.conf.fs.defaultFS
sink.table.properties.write.parquet.compression-codec sink.partition.key sink.sink.compaction.enabled
sink.sink.compaction.commit.interval sink.sink.compaction.commit.parallelism sink.job.id.prefix route.source-table
route.sink-table route.replace-symbol route.description transform.source-table transform.projection transform.filter
transform.primary-keys transform.partition-keys transform.table-options transform.table-options.delimiter
transform.converter-after-transform transform.description pipeline.name pipeline.parallelism pipeline.local-time-zone
pipeline.route-mode pipeline.execution.runtime-mode pipeline.transform.decimal.precision.mode
pipeline.user-defined-function pipeline.schema.change.behavior pipeline.schema.operator.uid pipeline.operator.uid.prefix
pipeline.schema-operator.rpc-timeout pipeline.sink.partitioning.strategy source.include.schema.changes
"""
_FLINK_SQL = """
connector topic topic-pattern properties.bootstrap.servers properties.group.id properties.security.protocol
scan.startup.mode scan.startup.timestamp-millis scan.startup.specific-offsets scan.topic-partition-discovery.interval
format value.format key.format key.fields value.fields-include json.ignore-parse-errors json.fail-on-missing-field
json.timestamp-format.standard debezium-json.schema-include debezium-json.ignore-parse-errors
canal-json.ignore-parse-errors maxwell-json.ignore-parse-errors avro-confluent.url value.avro-confluent.url
avro-confluent.basic-auth.user-info avro-confluent.basic-auth.credentials-source avro-confluent.ssl.truststore.location
avro-confluent.subject debezium-avro-confluent.url protobuf.message-class-name sink.parallelism type catalog-type
catalog-impl catalog-name catalog-database uri warehouse clients property-version cache-enabled hive-conf-dir
hadoop-conf-dir format-version write.format.default write.upsert.enabled write.parquet.compression-codec
execution.checkpointing.interval parallelism.default pipeline.name table.exec.iceberg.use-v2-sink
"""
_DEBEZIUM = """
debezium.sink.type debezium.sink.kafka.producer.bootstrap.servers debezium.sink.batch.batch-size-wait
debezium.sink.batch.batch-size-wait.max-wait-ms debezium.sink.batch.batch-size-wait.wait-interval-ms
debezium.sink.batch.concurrent-uploads debezium.sink.batch.concurrent-uploads-timeout-minutes
debezium.source.max.batch.size debezium.source.max.queue.size debezium.source.offset.storage
debezium.source.offset.storage.iceberg.table-name debezium.source.offset.storage.iceberg.migrate-offset-file
debezium.source.schema.history.internal debezium.source.schema.history.internal.iceberg.table-name
debezium.source.topic.heartbeat.prefix debezium.source.heartbeat.skip-consuming debezium.source.decimal.handling.mode
debezium.source.time.precision.mode debezium.source.topic.prefix debezium.source.table.include.list
debezium.source.collection.include.list debezium.source.database.server.name debezium.source.database.names
debezium.source.column.mask.with.4.chars debezium.source.skipped.operations debezium.transforms
debezium.transforms.unwrap.type debezium.transforms.unwrap.add.fields debezium.format.value debezium.format.key
debezium.format.schemas.enable debezium.format.value.schema.registry.url quarkus.log.level quarkus.http.port
"""
_ICEBERG_OF_DEBEZIUM = """
warehouse io-impl catalog-name table-namespace table-prefix write.format.default format-version allow-field-addition
create-identifier-fields preserve-required-property excluded-columns nested-as-variant upsert upsert-keep-deletes
upsert-dedup-column upsert-op-field upsert-use-dv partition-by partition-by.a.b table-mapper destination-regexp
destination-regexp-replace destination-uppercase-table-names destination-lowercase-table-names openlineage-enabled
type uri fs.defaultFS s3.endpoint
"""
_TABLEFLOW = """
display_name topic_name storage.kind storage.bucket_name storage.provider_integration_id table_formats suspended
retention_ms data_retention_ms record_failure_strategy error_handling.mode error_handling.log_target
error_handling.log.target enable_compaction enable_partitioning metadata_column_naming_scheme write_mode changelog.mode
environment.id kafka_cluster.id
"""
_AUTO_CDC = """
FROM
KEYS
SEQUENCE BY
SYSTEM SEQUENCE BY
APPLY AS DELETE WHEN
APPLY AS TRUNCATE WHEN
IGNORE NULL UPDATES
COLUMNS
STORED AS
TRACK HISTORY ON
ONCE
CONSTRAINT
PARTITIONED BY
CLUSTER BY
COMMENT
ROW FILTER
SCHEDULE
bootstrapServers
subscribe
subscribePattern
assign
startingOffsets
startingTimestamp
startingOffsetsByTimestamp
endingOffsets
failOnDataLoss
maxOffsetsPerTrigger
minPartitions
includeHeaders
groupIdPrefix
kafka.group.id
kafka.security.protocol
kafka.sasl.jaas.config
kafka.ssl.truststore.location
databricks.serviceCredential
delta.enableChangeDataFeed
pipelines.autoOptimize.managed
quality
"""
PEER_KEYS = {
    "kafka-connect": _CONNECT.split(),
    "automq": [f"automq.table.topic.{key}" for key in _AUTOMQ.split()],
    "flink-cdc": _FLINK_CDC.split(),
    "flink-sql": _FLINK_SQL.split(),
    "debezium-server": [*_DEBEZIUM.split(), *(f"debezium.sink.iceberg.{key}" for key in _ICEBERG_OF_DEBEZIUM.split())],
    "tableflow": _TABLEFLOW.split(),
    "auto-cdc": _AUTO_CDC.strip().splitlines(),
}
