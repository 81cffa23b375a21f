"""Configurations of other tools, as their users write them."""

from __future__ import annotations

import json

SECRET = "hushhush"
CONNECTOR = {
    "name": "orders sink",
    "config": {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": "2",
        "topics": "orders",
        "iceberg.tables": "shop.orders",
        "iceberg.tables.default-commit-branch": "main",
        "iceberg.table.shop.orders.commit-branch": "ingest",
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.tables.evolve-schema-enabled": "true",
        "iceberg.tables.default-partition-by": "days(placed_at), bucket(id, 16)",
        "iceberg.tables.auto-create-props.format-version": "3",
        "iceberg.tables.write-props.write.parquet.compression-codec": "zstd",
        "iceberg.control.topic": "control-iceberg",
        "iceberg.control.commit.interval-ms": "60000",
        "iceberg.catalog.type": "rest",
        "iceberg.catalog.uri": "https://catalog:8181",
        "iceberg.catalog.warehouse": "s3://lake/",
        "iceberg.catalog.token": "${dir:/run/secrets:access-key}",
        "iceberg.hadoop.fs.s3a.endpoint": "https://store",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schema.registry.url": "http://registry:8081",
        "value.converter.schema.registry.basic.auth.credentials.source": "USER_INFO",
        "value.converter.schema.registry.basic.auth.user.info": "frazil:${env:REGISTRY_PASSWORD}",
        "consumer.override.auto.offset.reset": "latest",
        "consumer.override.security.protocol": "SASL_SSL",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "orders-bad",
        "transforms": "dead,names,types,where,origin,copy",
        "predicates": "empty",
        "predicates.empty.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
        "transforms.dead.type": "org.apache.kafka.connect.transforms.Filter",
        "transforms.dead.predicate": "empty",
        "transforms.names.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
        "transforms.names.renames": "cust:customer",
        "transforms.names.exclude": "internal",
        "transforms.types.type": "org.apache.kafka.connect.transforms.Cast$Value",
        "transforms.types.spec": "count:int64,ratio:float64",
        "transforms.where.type": "org.apache.iceberg.connect.transforms.KafkaMetadataTransform",
        "transforms.where.field_name": "_kafka",
        "transforms.origin.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        "transforms.origin.static.field": "origin",
        "transforms.origin.static.value": "web",
        "transforms.copy.type": "org.apache.iceberg.connect.transforms.CopyValue",
        "transforms.copy.source.field": "id",
        "transforms.copy.target.field": "order_id",
    },
}
CARRIED_CONNECTOR = {
    "pipeline": "orders-sink",
    "kafka": {"bootstrap.servers": "k:9092", "security.protocol": "SASL_SSL"},
    "registry": {
        "url": "http://registry:8081",
        "auth": {"username": "frazil", "password": "${env:REGISTRY_PASSWORD}"},
    },
    "catalog": {
        "type": "rest",
        "uri": "https://catalog:8181",
        "warehouse": "s3://lake/",
        "properties": {"token": "${file:/run/secrets/access-key}"},
    },
    "spark": {"conf": {"spark.hadoop.fs.s3a.endpoint": "https://store"}},
    "commit": {"interval": "1m"},
    "tables": {
        "shop.orders": {
            "topic": "orders",
            "start": "latest",
            "value": {"format": "avro"},
            "dead_letters": {"topic": "orders-bad"},
            "on_bad_record": "dead_letter",
            "format_version": 3,
            "properties": {"write.parquet.compression-codec": "zstd"},
            "tombstones": "ignore",
            "rename": {"cust": "customer"},
            "drop_fields": ["internal"],
            "cast": {"count": "long", "ratio": "double"},
            "metadata": {
                "topic": "_kafka_topic",
                "partition": "_kafka_partition",
                "offset": "_kafka_offset",
            },
            "add_fields": {"origin": "web"},
            "select": "select *, `id` as `order_id`, unix_millis(_timestamp) as _kafka_timestamp from records",
            "schema_evolution": "evolve",
            "branch": "ingest",
            "partition_by": ["day(placed_at)", "bucket(id, 16)"],
        }
    },
}
ROUTED = """\
# One topic, two tables, on a worker of its own.
name=events
connector.class=io.tabular.iceberg.connect.IcebergSinkConnector
bootstrap.servers=k:9092
topics.regex=events\\\\..*
iceberg.tables=shop.orders,shop.others
iceberg.tables.route-field=event.kind
iceberg.table.shop.orders.route-regex=order|sale
iceberg.table.shop.others.route-regex=r.*
iceberg.table.shop.orders.id-columns=id
iceberg.table.shop.others.partition-by=truncate(id, 4)
iceberg.tables.default-id-columns=id
iceberg.tables.upsert-mode-enabled=true
iceberg.tables.cdc-field=op
iceberg.catalog.type=rest
iceberg.catalog.uri=http://catalog:8181
iceberg.catalog.credential=hushhush
consumer.override.sasl.mechanism=PLAIN
consumer.override.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  username="ann" password="hushhush";
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable=false
key.converter=io.confluent.connect.avro.AvroConverter
key.converter.schema.registry.url=http://registry:8081
key.converter.bearer.auth.token=hushhush
"""
UNWRAPPED = {
    "name": "cdc",
    "topics": "shop.public.orders",
    "iceberg.tables": "shop.orders",
    "iceberg.tables.evolve-schema-enabled": "false",
    "iceberg.table.write-props.write.parquet.compression-level": "3",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://catalog:8181",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "transforms": "unwrap,flat,time,head,key,meta",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
    "transforms.unwrap.add.fields": "op,source.ts_ms",
    "transforms.unwrap.add.fields.prefix": "__",
    "transforms.unwrap.delete.tombstone.handling.mode": "drop",
    "transforms.flat.type": "org.apache.kafka.connect.transforms.Flatten$Value",
    "transforms.flat.delimiter": "_",
    "transforms.time.type": "org.apache.kafka.connect.transforms.TimestampConverter$Value",
    "transforms.time.field": "placed_at",
    "transforms.time.target.type": "Timestamp",
    "transforms.time.unix.precision": "microseconds",
    "transforms.head.type": "org.apache.kafka.connect.transforms.HeaderFrom$Value",
    "transforms.head.fields": "trace",
    "transforms.head.headers": "trace",
    "transforms.head.operation": "move",
    "transforms.key.type": "org.apache.kafka.connect.transforms.ValueToKey",
    "transforms.key.fields": "id",
    "transforms.meta.type": "org.apache.iceberg.connect.transforms.KafkaMetadataTransform",
    "transforms.meta.external_field": "cluster,eu-1",
}
_SIMPLE = {
    "topics": "orders",
    "iceberg.tables": "shop.orders",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "transforms": "one",
}
INNER = {
    **_SIMPLE,
    "transforms.one.type": "org.apache.kafka.connect.transforms.ExtractField$Value",
    "transforms.one.field": "payload",
}
OUTER = {
    **_SIMPLE,
    "transforms.one.type": "org.apache.kafka.connect.transforms.HoistField$Value",
    "transforms.one.field": "event",
}
MASKED = {
    **_SIMPLE,
    "transforms.one.type": "org.apache.kafka.connect.transforms.MaskField$Value",
    "transforms.one.fields": "card",
    "transforms.one.replacement": "****",
}
NESTED = {
    **_SIMPLE,
    "transforms.one.type": "org.apache.iceberg.connect.transforms.KafkaMetadataTransform",
    "transforms.one.nested": "true",
}
CHANGES = {
    "name": "changes",
    "topics.regex": "shop\\.public\\..*",
    "iceberg.tables.dynamic-enabled": "true",
    "iceberg.tables.route-field": "_cdc.target",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://catalog:8181",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "transforms": "dbz",
    "transforms.dbz.type": "org.apache.iceberg.connect.transforms.DebeziumTransform",
    "transforms.dbz.cdc.target.pattern": "lake.{db}_{table}",
}
_SECURITY = {
    "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": SECRET,
    "ssl.key.password": SECRET, "isolation.level": "read_committed", "client.rack": "a", "bootstrap.servers": "k:9092",
}  # fmt: skip
_REGISTRY = {
    "schema.registry.url": "http://registry:8081",
    "basic.auth.user.info": f"u:{SECRET}",
    "schema.registry.basic.auth.credentials.source": "USER_INFO",
    "bearer.auth.token": SECRET,
}
BY_TOPIC = {
    "name": "by-topic",
    "topics": "orders,returns",
    "iceberg.tables": "shop.orders",
    "iceberg.tables.route-field": "_topic_name",
    "iceberg.table.shop.orders.route-regex": "orders",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://catalog:8181",
    **{f"iceberg.kafka.{name}": value for name, value in _SECURITY.items()},
    **{f"consumer.override.{name}": value for name, value in _SECURITY.items()},
    "value.converter": "io.confluent.connect.json.JsonSchemaConverter",
    "key.converter": "io.confluent.connect.json.JsonSchemaConverter",
    **{f"{side}.converter.{name}": value for side in ("value", "key") for name, value in _REGISTRY.items()},
    "transforms": "topic,at,pick,old,rewritten,alone",
    "predicates": "tombstone",
    "predicates.tombstone.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
    "transforms.topic.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "transforms.topic.topic.field": "_topic_name!",
    "transforms.topic.partition.field": "part",
    "transforms.topic.predicate": "tombstone",
    "transforms.topic.negate": "true",
    "transforms.at.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "transforms.at.offset.field": "pos?",
    "transforms.at.timestamp.field": "at",
    "transforms.pick.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
    "transforms.pick.include": "id,note",
    "transforms.old.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
    "transforms.old.whitelist": "id",
    "transforms.old.blacklist": "note",
    "transforms.rewritten.type": "io.debezium.transforms.ExtractNewRecordState",
    "transforms.rewritten.delete.handling.mode": "none",
}
TOPICS = """\
Dynamic configs for topic orders are:
  automq.table.topic.enable=true sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:automq.table.topic.enable=true}
  automq.table.topic.namespace=shop sensitive=false synonyms={}
  automq.table.topic.convert.value.type=by_schema_id sensitive=false synonyms={}
  automq.table.topic.convert.key.type=by_schema_id sensitive=false synonyms={}
  automq.table.topic.transform.value.type=flatten_debezium sensitive=false synonyms={}
  automq.table.topic.upsert.enable=true sensitive=false synonyms={}
  automq.table.topic.cdc.field=_cdc.op sensitive=false synonyms={}
  automq.table.topic.id.columns=[_from_debezium_key_] sensitive=false synonyms={}
  automq.table.topic.partition.by=[bucket(id, 16), MONTH(ts)] sensitive=false synonyms={}
  automq.table.topic.commit.interval.ms=60000 sensitive=false synonyms={}
  automq.table.topic.errors.tolerance=none sensitive=false synonyms={}
  automq.table.topic.expire.snapshot.older.than.hours=5 sensitive=false synonyms={}
  automq.table.topic.expire.snapshot.enabled=false sensitive=false synonyms={}
  retention.ms=1000 sensitive=false synonyms={}
"""
_AUTOMQ = "automq.table.topic."
CLUSTER = json.dumps(
    {
        f"{_AUTOMQ}namespace": "lake",
        f"{_AUTOMQ}catalog.type": "rest",
        f"{_AUTOMQ}catalog.uri": "http://catalog:8181",
        f"{_AUTOMQ}catalog.token": SECRET,
        f"{_AUTOMQ}hadoop.fs.s3a.endpoint": "http://store",
        f"{_AUTOMQ}schema.registry.url": "http://registry:8081",
        f"{_AUTOMQ}schema.registry.config.basic.auth.user.info": f"u:{SECRET}",
        "clicks": {
            f"{_AUTOMQ}enable": True,
            f"{_AUTOMQ}convert.value.type": "by_latest_schema",
            f"{_AUTOMQ}convert.value.by_latest_schema.subject": "clicks",
            f"{_AUTOMQ}convert.value.by_latest_schema.message.full.name": "shop.Click",
            f"{_AUTOMQ}convert.key.type": "by_latest_schema",
            f"{_AUTOMQ}convert.key.by_latest_schema.subject": "clicks-key",
            f"{_AUTOMQ}convert.key.by_latest_schema.message.full.name": "shop.Key",
            f"{_AUTOMQ}transform.value.type": "flatten",
        },
        "logs": {f"{_AUTOMQ}enable": "true", f"{_AUTOMQ}schema.type": "schemaless"},
        "plain": {f"{_AUTOMQ}enable": "false"},
    }
)
FLINK_CDC = """\
source: {type: mysql, hostname: db, port: 3306, username: ann, password: hushhush, tables: 'app_db.\\.*',
  metadata.list: op_ts, table-id.include-database: false}
sink:
  type: iceberg
  catalog.properties.type: rest
  catalog.properties.uri: http://catalog:8181
  catalog.properties.warehouse: s3://lake/
  table.properties.write.parquet.compression-codec: zstd
  hadoop.conf.fs.s3a.endpoint: http://store
  partition.key: 'ods.orders:bucket[10](id)'
route:
  - {source-table: app_db.orders, sink-table: ods.orders}
  - {source-table: 'app_db.shipment_\\.*', sink-table: 'parts.p_<>', replace-symbol: <>, description: shards}
transform:
  - source-table: app_db.orders
    projection: 'id, upper(name) as name'
    filter: id > 10
    primary-keys: id
    table-options: write.parquet.compression-level=3
    table-options.delimiter: ','
    converter-after-transform: SOFT_DELETE
  - {source-table: 'app_db.shipment_\\.*', partition-keys: region}
pipeline: {name: Sync the shop, parallelism: 2, schema.change.behavior: lenient, route-mode: FIRST_MATCH}
"""
FLINK_SQL = """\
SET 'execution.checkpointing.interval' = '10 s';
SET 'pipeline.name' = 'orders';
CREATE CATALOG lake WITH (
  'type'='iceberg', 'catalog-type'='rest', 'uri'='http://catalog:8181', 'warehouse'='s3://lake/', 'clients'='5',
  'default-database'='shop',
  'token'='hushhush', 'hadoop.fs.s3a.endpoint'='http://store'
);
-- changes of the shop's database
CREATE TABLE IF NOT EXISTS changes (
  id BIGINT, `note` STRING, amount DECIMAL(12, 2), tags ARRAY<STRING>, at TIMESTAMP(3) WITH LOCAL TIME ZONE,
  sent TIMESTAMP(3) METADATA FROM 'timestamp', part INT METADATA FROM 'partition' VIRTUAL,
  WATERMARK FOR at AS at - INTERVAL '5' SECOND,
  PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector'='kafka', 'topic'='orders', 'properties.bootstrap.servers'='k:9092', 'properties.group.id'='g',
  'properties.security.protocol'='SASL_SSL', 'properties.sasl.mechanism'='PLAIN', 'properties.ssl.key.password'='hushhush',
  'scan.startup.mode'='specific-offsets', 'scan.startup.specific-offsets'='partition:0,offset:42;partition:1,offset:7',
  'properties.isolation.level'='read_committed', 'format'='debezium-json', 'debezium-json.ignore-parse-errors'='true'
);
CREATE TABLE events WITH (
  'connector'='upsert-kafka', 'topic-pattern'='events-.*', 'key.format'='raw', 'value.format'='avro-confluent',
  'value.avro-confluent.url'='http://registry:8081', 'value.avro-confluent.basic-auth.user-info'='u:hushhush',
  'scan.startup.mode'='timestamp', 'scan.startup.timestamp-millis'='1700000000000'
);
CREATE TABLE clicks (id BIGINT) WITH (
  'connector'='kafka', 'topic'='clicks;taps', 'properties.auto.offset.reset'='earliest',
  'format'='protobuf', 'protobuf.message-class-name'='shop.Click'
);
CREATE TABLE lake.shop.orders (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) PARTITIONED BY (id)
  WITH ('format-version'='2', 'write.upsert.enabled'='true', 'write.parquet.compression-codec'='zstd');
CREATE TABLE lake.shop.events (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'read.split.target-size'='1', 'history.expire.max-snapshot-age-ms'='1', 'commit.retry.num-retries'='2',
  'gc.enabled'='true', 'location'='s3://lake/events', 'branch'='ingest'
);
EXECUTE STATEMENT SET BEGIN
INSERT INTO lake.shop.orders SELECT id, UPPER(note) AS note FROM changes WHERE amount > 0;
INSERT INTO lake.shop.events SELECT * FROM events;
INSERT INTO lake.shop.clicks /*+ OPTIONS('target-file-size-bytes'='1048576', 'distribution-mode'='hash',
  'compression-codec'='zstd', 'compression-level'='3') */ SELECT * FROM clicks;
END;
"""
OWN_CATALOG = """\
CREATE TABLE hosts (id BIGINT) WITH (
  'connector'='kafka', 'topic'='hosts', 'format'='avro-confluent', 'properties.ssl.ca.location'='/ca.pem',
  'avro-confluent.schema-registry.url'='http://registry:8081', 'avro-confluent.bearer-auth.token'='${env:TOKEN}'
);
CREATE TABLE sink (id BIGINT) WITH (
  'connector'='iceberg', 'catalog-name'='own', 'catalog-database'='shop', 'catalog-table'='hosts',
  'catalog-impl'='com.example.Catalog', 'io-impl'='com.example.IO',
  's3.endpoint'='http://store', 'client.region'='eu', 'glue.id'='7', 'upsert-enabled'='false'
);
INSERT INTO sink SELECT * FROM hosts;
"""
DEBEZIUM_SERVER = """\
debezium.sink.type=iceberg
debezium.sink.kafka.producer.bootstrap.servers=k:9092
debezium.sink.iceberg.table-namespace=lake
debezium.sink.iceberg.table-prefix=cdc_
debezium.sink.iceberg.destination-regexp=^shop\\\\.
debezium.sink.iceberg.destination-regexp-replace=s_
debezium.sink.iceberg.destination-lowercase-table-names=true
debezium.sink.iceberg.destination-uppercase-table-names=false
debezium.sink.iceberg.upsert=true
debezium.sink.iceberg.upsert-keep-deletes=false
debezium.sink.iceberg.upsert-dedup-column=__source_ts_ms
debezium.sink.iceberg.upsert-op-field=__op
debezium.sink.iceberg.allow-field-addition=true
debezium.sink.iceberg.excluded-columns=note
debezium.sink.iceberg.partition-by=id
debezium.sink.iceberg.partition-by.shop.public.orders=region,bucket(id\\\\, 16)
debezium.sink.iceberg.format-version=3
debezium.sink.iceberg.type=rest
debezium.sink.iceberg.uri=http://catalog:8181
debezium.sink.iceberg.warehouse=s3://lake/
debezium.sink.iceberg.io-impl=org.apache.iceberg.aws.s3.S3FileIO
debezium.sink.iceberg.token=hushhush
debezium.sink.iceberg.fs.s3a.endpoint=http://store
debezium.sink.iceberg.write.parquet.compression-codec=zstd
debezium.sink.batch.batch-size-wait=MaxBatchSizeWait
debezium.sink.batch.batch-size-wait.max-wait-ms=180000
debezium.source.connector.class=io.debezium.connector.postgresql.PostgresConnector
debezium.source.topic.prefix=shop
debezium.source.table.include.list=public.Orders,public.orders
debezium.source.database.password=${DB_PASSWORD}
debezium.transforms=unwrap
debezium.transforms.unwrap.type=io.debezium.transforms.ExtractNewRecordState
debezium.format.value=avro
debezium.format.key=avro
debezium.format.value.schema.registry.url=http://registry:8081
debezium.format.value.basic.auth.credentials.source=USER_INFO
debezium.format.value.basic.auth.user.info=ann:hushhush
debezium.sink.kafka.producer.security.protocol=SASL_SSL
debezium.sink.kafka.producer.sasl.mechanism=PLAIN
debezium.sink.kafka.producer.sasl.username=ann
debezium.sink.kafka.producer.sasl.password=hushhush
debezium.sink.kafka.producer.ssl.endpoint.identification.algorithm=https
"""
CAPTURED = """\
debezium.source.database.server.name=db
debezium.source.collection.include.list=shop[.].*
debezium.source.database.names=shop
debezium.source.column.mask.hash.SHA-256.with.salt.hushhush=shop.a
debezium.sink.iceberg.table-namespace=lake
debezium.sink.iceberg.uri=http://catalog:8181
debezium.sink.iceberg.type=rest
debezium.format.value=json
debezium.format.value.apicurio.registry.url=http://registry:8081
"""
TABLEFLOW = json.dumps(
    {
        "data": [
            {
                "spec": {
                    "display_name": "orders",
                    "storage": {"kind": "Managed"},
                    "config": {
                        "retention_ms": "604800000",
                        "error_handling": {"mode": "LOG", "log_target": "bad-orders"},
                    },
                    "table_formats": ["ICEBERG"],
                    "suspended": False,
                    "kafka_cluster": {"id": "lkc-1"},
                    "environment": {"id": "env-1"},
                    "write_mode": "UPSERT",
                }
            },
            {
                "topic": "taps",
                "error-handling": {"mode": "LOG", "log.target": "bad", "target": "bad"},
                "changelog.mode": "append",
                "metadata_column_naming_scheme": "PORTABLE",
            },
            {
                "topic_name": "clicks",
                "kafka_cluster": "lkc-1",
                "record_failure_strategy": "SKIP",
                "error_handling": "LOG",
                "log_target": "bad",
                "table_formats": ["ICEBERG"],
            },
        ]
    }
)
AUTO_CDC = """\
CREATE OR REFRESH STREAMING TABLE raw AS SELECT * FROM STREAM read_kafka(
  bootstrapServers => 'k:9092', subscribe => 'users', startingOffsets => 'earliest', `kafka.security.protocol` => 'SASL_SSL',
  `kafka.sasl.mechanism` => 'SCRAM-SHA-512', `kafka.isolation.level` => 'read_committed',
  `kafka.ssl.ca.location` => '/ca.pem', `kafka.sasl.username` => secret('scope', 'kafka-user'),
  `kafka.sasl.password` => concat('hush', 'hush')
);
CREATE OR REFRESH STREAMING TABLE shop.users (CONSTRAINT named EXPECT (name IS NOT NULL) ON VIOLATION DROP ROW)
PARTITIONED BY (region) COMMENT 'of the shop'
TBLPROPERTIES (
  'write.parquet.compression-codec' = 'zstd', 'history.expire.min-snapshots-to-keep' = '3', 'format-version' = '3'
);
CREATE FLOW users AS AUTO CDC INTO shop.users FROM STREAM(raw) KEYS (id) APPLY AS DELETE WHEN op = 'D' SEQUENCE BY seq
COLUMNS * EXCEPT (op) STORED AS SCD TYPE 1;
CREATE FLOW versions AS AUTO CDC INTO shop.versions FROM STREAM read_kafka(
  `kafka.bootstrap.servers` => 'k:9092', subscribePattern => 'users-.*'
) KEYS (id) SEQUENCE BY at STORED AS SCD TYPE 2 TRACK HISTORY ON name;
"""
EXAMPLES = {
    "kafka-connect": (
        json.dumps(CONNECTOR),
        ROUTED,
        json.dumps(UNWRAPPED),
        json.dumps(CHANGES),
        json.dumps(BY_TOPIC),
        json.dumps(INNER),
        json.dumps(OUTER),
        json.dumps(NESTED),
        json.dumps(MASKED),
    ),
    "automq": (TOPICS, CLUSTER),
    "flink-cdc": (FLINK_CDC,),
    "flink-sql": (FLINK_SQL, OWN_CATALOG),
    "debezium-server": (DEBEZIUM_SERVER, CAPTURED),
    "tableflow": (TABLEFLOW,),
    "auto-cdc": (AUTO_CDC,),
}
"""By tool; together they have every setting that is carried over."""
