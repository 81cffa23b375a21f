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
