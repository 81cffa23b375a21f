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
