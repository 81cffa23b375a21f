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
