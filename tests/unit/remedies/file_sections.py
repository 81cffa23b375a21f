"""The file itself, its sections and its routes, refused; each with what it becomes by doing what the remedy reports."""

from __future__ import annotations

from tests.unit.remedies.mended import Mended, files, routes, sections, tables, wholes
from tests.unit.spec.pipeline_file import HEAD, with_table

_TLS, _TOKENS = "tls: {certificate: c, key: k}", f"tokens: {{operate: {'a' * 32}}}"
_BY = "by: k, rest: a.r"
_TABLE = "tables: {a.b: {topic: c}}\n"
_BROKERS = "kafka: {bootstrap.servers: 'b:1'}\n"
_UPSERT = "mode: upsert, key_columns: [id]"
_LATEST = "value: {format: avro, schema: latest"
_URL = "url: 'https://a'"


def _group(of_a: str = "", of_b: str = "", name: str = "a.c", top: str = "") -> str:
    """A file with two tables of one group."""
    branched = "branch: ingest"
    return (
        f"{top}tables:\n  a.b: {{topic: b, {branched}, publish: {{group: g{of_a}}}}}\n"
        f"  {name}: {{topic: c, {branched}, publish: {{group: g}}{of_b}}}\n"
    )


_ATOMIC = ", mode: upsert, key_columns: [id], value: {format: json}, envelope: debezium, atomic: transaction"
_AT_ENDS = ", transaction_topic: t}, envelope: debezium, commit: {interval: 1s"
DOCUMENTS = [
    wholes(_group(", every: 1m"), _group()),
    wholes(_group(name="x.b"), _group()),
    wholes(
        _group(_AT_ENDS, of_b=", envelope: debezium"),
        _group(_AT_ENDS, of_b=", envelope: debezium").replace("group: g}", "group: g, transaction_topic: t}"),
    ),
    wholes(_group(of_b=_ATOMIC), _group(of_b=_ATOMIC.replace("atomic: transaction", "atomic: batch"))),
    wholes(_group(top="ha: {elect: kafka, mode: spread}\n"), _group(top="ha: {elect: kafka, mode: lead}\n")),
    files("", f"pipeline: p\n{_BROKERS}{_TABLE}"),
    files(
        f"{HEAD}{_TABLE}maintenance: {{cores: 02}}\n",
        f"{HEAD}{_TABLE}maintenance: {{cores: 2}}\n",
    ),
    files("- a\n", f"pipeline: shop\n{_BROKERS}{_TABLE}"),
    files(f"{HEAD}a: {'[' * 60}{']' * 60}\n{_TABLE}", HEAD + _TABLE),
    files(f"pipeline: p\x00\n{_BROKERS}{_TABLE}", f"pipeline: p\n{_BROKERS}{_TABLE}"),
    files(f"pipeline: p\n{_BROKERS}tables: {{a.b: {{topic: c}}\n", f"pipeline: p\n{_BROKERS}{_TABLE}"),
    files(f'pipeline: "p\n{_BROKERS}{_TABLE}', f'pipeline: "p"\n{_BROKERS}{_TABLE}'),
    wholes("namespace: n\ntopics: [a\n", "namespace: n\ntopics: [a]\n"),
    files(f"pipeline: !x p\n{_BROKERS}{_TABLE}", f"pipeline: p\n{_BROKERS}{_TABLE}"),
    wholes("namespace: n\ntopics: [a,,b]\n", "namespace: n\ntopics: [a,b]\n"),
    wholes("tables: {a.b: {topic: c, where: @a}}\n", "tables: {a.b: {topic: c, where: '@a'}}\n"),
    wholes("tables: {a.b: {topic: c, where: *a}}\n", "tables: {a.b: {topic: c, where: '*a'}}\n"),
    wholes("namespace:\tn\ntopics: [a]\n", "namespace: n\ntopics: [a]\n"),
    wholes("namespace:\u00a0n\ntopics: [a]\n", "namespace: n\ntopics: [a]\n"),
    files(f"pipeline p\n{_BROKERS}{_TABLE}", f"pipeline: p\n{_BROKERS}{_TABLE}"),
    wholes("namespace\ntopics: [a]\n", "namespace: n\ntopics: [a]\n"),
    wholes("namespace: 'n'm\ntopics: [a]\n", "namespace: 'nm'\ntopics: [a]\n"),
    wholes("tables:\n  a.b:\n    topic: c\n     start: latest\n", "tables:\n  a.b:\n    topic: c\n    start: latest\n"),
    wholes(
        "tables:\n  a.b:\n    topic: c\n    filter: a = 'x: y'\n",
        "tables:\n  a.b:\n    topic: c\n    filter: \"a = 'x: y'\"\n",
    ),
    tables(r'columns: {"\ud83d": long}', r'columns: {"\ud83d\ude00": long}', "columns: {😀: long}"),
    wholes(
        "tables: {a.b: {topic: c, properties: {comment: !x y}}}\n",
        "tables: {a.b: {topic: c, properties: {comment: '!x y'}}}\n",
    ),
    files(
        "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)),
        HEAD + _TABLE,
    ),
    wholes("tables: {a.b: {topic: c, [x]: y}}\n", "tables: {a.b: {topic: c, start: latest}}\n"),
    files(f"pipeline: p\n{_BROKERS}{_TABLE}" + "#" * 3 * 2**20, f"pipeline: p\n{_BROKERS}{_TABLE}"),
    files(f"pipeline: p\n: x\n{_BROKERS}{_TABLE}", f"pipeline: p\n{_BROKERS}{_TABLE}"),
    files(f"pipeline: a b\n{_BROKERS}{_TABLE}", f"pipeline: a-b\n{_BROKERS}{_TABLE}"),
    files(f"pipeline: x.replaying\n{_BROKERS}{_TABLE}", f"pipeline: x-replaying\n{_BROKERS}{_TABLE}"),
    files(f"{_BROKERS}{_TABLE}", f"pipeline: shop\n{_BROKERS}{_TABLE}"),
    files(f"pipeline: 7\n{_BROKERS}{_TABLE}", f"pipeline: '7'\n{_BROKERS}{_TABLE}"),
    files(f"pipeline: p\n{_TABLE}", f'pipeline: p\nkafka: {{bootstrap.servers: "localhost:9092"}}\n{_TABLE}'),
    files(
        f"pipeline: p\nkafka: {{bootstrap.servers: b}}\n{_TABLE}",
        f"pipeline: p\nkafka: {{bootstrap.servers: 'broker-1:9092,broker-2:9092'}}\n{_TABLE}",
    ),
    files(
        f"pipeline: p\nkafka: {{bootstrap.servers: '${{vault:dev/kafka:brokers}}'}}\n{_TABLE}",
        f"pipeline: p\nkafka: {{bootstrap.servers: 'broker-1:9092,broker-2:9092'}}\n{_TABLE}",
    ),
    files(f"pipeline: p\nkafka: {{bootstrap.server: 'b:1'}}\n{_TABLE}", f"pipeline: p\n{_BROKERS}{_TABLE}"),
    files(
        f"pipeline: p\nkafka: {{bootstrap.servers: 'b:1', kafka.client.id: x}}\n{_TABLE}",
        f"pipeline: p\nkafka: {{bootstrap.servers: 'b:1', client.id: x}}\n{_TABLE}",
    ),
    files(
        f"pipeline: p\nkafka: {{bootstrap.servers: 'b:1', isolation.level: read_comitted}}\n{_TABLE}",
        f"pipeline: p\nkafka: {{bootstrap.servers: 'b:1', isolation.level: read_committed}}\n{_TABLE}",
    ),
    files(
        f"pipeline: p\nkafka: {{bootstrap.servers: 'b:1', group.id: x}}\n{_TABLE}", f"pipeline: p\n{_BROKERS}{_TABLE}"
    ),
    files(
        'pipeline: p\nkafka: {bootstrap.servers: "b:1", client.id: ${a}}\n' + _TABLE,
        'pipeline: p\nkafka: {bootstrap.servers: "b:1", client.id: "a"}\n' + _TABLE,
    ),
    files(f"pipeline: p\n---\n{_BROKERS}{_TABLE}", f"pipeline: p\n{_BROKERS}{_TABLE}"),
    files(f"pipeline: p: q\n{_BROKERS}{_TABLE}", f"pipeline: p\n{_BROKERS}{_TABLE}"),
    files(
        f"pipeline: p\n{_BROKERS}tables:\n  a.b:\n    topic: c\n   mode: append\n", f"pipeline: p\n{_BROKERS}{_TABLE}"
    ),
    files(f"pipeline: p\n{_BROKERS}tables:\n\ta.b: {{topic: c}}\n", f"pipeline: p\n{_BROKERS}{_TABLE}"),
    files(
        f"pipeline: p\nkafka: 'b:1'\n{_TABLE}", f'pipeline: p\nkafka: {{bootstrap.servers: "localhost:9092"}}\n{_TABLE}'
    ),
    files(f"pipeline: p\nkafka:\nbootstrap.servers: 'b:1'\n{_TABLE}", f"pipeline: p\n{_BROKERS}{_TABLE}"),
    files(
        f"pipeline: p\nkafka: {{bootstrap.servers: ['b:1', 'c:1']}}\n{_TABLE}",
        f"pipeline: p\nkafka: {{bootstrap.servers: 'b:1,c:1'}}\n{_TABLE}",
    ),
    files(
        f"pipeline: p\nkafka: {{bootstrap.servers: 'http://b:1'}}\n{_TABLE}",
        f"pipeline: p\nkafka: {{bootstrap.servers: 'broker-1:9092,broker-2:9092'}}\n{_TABLE}",
    ),
    wholes("tables:\na.b: {topic: c}\n", "tables:\n  a.b: {topic: c}\n"),
    wholes(
        "tables:\n  a.b:\n  topic: c\n  mode: append\n  a.c: {topic: d}\n",
        "tables:\n  a.b:\n    topic: c\n    mode: append\n  a.c: {topic: d}\n",
    ),
    wholes("tables:\n  topic: c\n", "tables:\n  a.b:\n    topic: c\n"),
    wholes("tables:\n  a.b:\n    topic:c\n", "tables:\n  a.b:\n    topic: c\n"),
    wholes("tables: {a.b: c}\n", "tables: {a.b: {topic: c}}\n"),
    wholes("tables: {a.b: {topic: c}, a.b: {topic: d}}\n", _TABLE),
    wholes("tables: {a.b: {topic: c, start:latest}}\n", "tables: {a.b: {topic: c, start: latest}}\n"),
    wholes("tables: {a.b: {topic: c, columns: {off: int}}}\n", 'tables: {a.b: {topic: c, columns: {"off": int}}}\n'),
    wholes("tables: {a.b: {topic: c, <<: x}}\n", "tables: {a.x: &x {start: latest, topic: c}, a.b: {<<: *x}}\n"),
    wholes("", _TABLE),
    wholes("tables:\n", "tables:\n  shop.page_views: {topic: NAME}\n"),
    wholes("topics: [a]\n", "topics: [a]\nnamespace: n\n"),
    wholes(f"namespace: n\n{_TABLE}", f"namespace: n\ntopics: [a]\n{_TABLE}", _TABLE),
    wholes("namespace: n\ntopics: []\n", "namespace: n\ntopics: [a]\n"),
    wholes("namespace: n\ntopics: [/(/]\n", "namespace: n\ntopics: [/()/]\n"),
    wholes("namespace: n\ntopics: [/ab]\n", "namespace: n\ntopics: [/^device-.*/]\n"),
    wholes("namespace: n\ntopics: 'device-*'\n", "namespace: n\ntopics: /^device-.*/\n"),
    wholes("namespace: n\ntopics: ['a b']\n", "namespace: n\ntopics: [a-b]\n", "namespace: n\ntopics: [a, b]\n"),
    wholes("namespace: a b\ntopics: [x]\n", "namespace: a.b\ntopics: [x]\n"),
    wholes("namespace: '${file:N}'\ntopics: [x]\n", "namespace: n\ntopics: [x]\n"),
    wholes(
        "namespace: n\ntopics: [x]\ntables: {n.x: {topic: y}}\n",
        "namespace: n\ntopics: [x]\ntables: {n.z: {topic: y}}\n",
        "namespace: n\ntopics: [w]\ntables: {n.x: {topic: y}}\n",
    ),
    wholes(
        "tables: {a.x: {topic: a, dead_letters: {table: a.z}}, a.y: {topic: b, dead_letters: {table: a.z}}}\n",
        "tables: {a.x: {topic: a, dead_letters: {table: a.z}}, a.y: {topic: b, dead_letters: {table: a.w}}}\n",
        "tables: {a.x: {topic: a, dead_letters: {table: a.z}}, a.y: {topic: b}}\n",
    ),
    wholes(
        "topics: [a, b]\nnamespace: n\ndefaults: {dead_letters: {table: n.bad}}\n",
        "topics: [a, b]\nnamespace: n\ndefaults: {dead_letters: {}}\n",
    ),
    wholes(f"kafkaa: {{}}\n{_TABLE}", _TABLE),
    wholes(f"mode: upsert\n{_TABLE}", f"defaults: {{mode: upsert}}\n{_TABLE}"),
    wholes("tables: {page_views: {topic: a}}\n", "tables: {shop.page_views: {topic: a}}\n"),
    wholes("tables: {a..b: {topic: a}}\n", "tables: {a.b: {topic: a}}\n"),
    wholes(
        "tables: {a.b: {start: latest}}\n",
        "tables: {a.b: {topic: NAME, start: latest}}\n",
        "tables: {a.b: {topics: [a, b]}}\n",
    ),
    wholes("tables: {a.b: {topic: /a/}}\n", "tables: {a.b: {topics: /a/}}\n"),
    wholes("tables: {a.b: {topic: [a, b]}}\n", "tables: {a.b: {topics: [a, b]}}\n"),
    wholes("tables: {a.b: {topics: [a, a]}}\n", "tables: {a.b: {topics: [a]}}\n"),
    wholes("tables: {a.b: {topics: [a, b], start: {0: 1}}}\n", "tables: {a.b: {topics: [a, b], start: {a: {0: 1}}}}\n"),
    wholes(
        "tables: {a.b: {topics: [a, b], envelope: debezium, atomic: transaction}}\n",
        "tables: {a.b: {topic: a, envelope: debezium, atomic: transaction}}\n",
        "tables: {a.b: {topics: [a, b], envelope: debezium}}\n",
    ),
    *(
        wholes(
            f"registry: {{{_URL}}}\ntables: {{a.b: {{{topics}, {_LATEST}}}}}}}\n",
            f"registry: {{{_URL}}}\ntables: {{a.b: {{topics: [a, b], {_LATEST}, subject: s}}}}}}\n",
            f"registry: {{{_URL}}}\ntables: {{a.b: {{topic: a, {_LATEST}}}}}}}\n",
        )
        for topics in ("topics: [a, b]", "topics: /a/")
    ),
]
SECTIONS = [
    sections("maintenance: {snapshots: {age: 1000000h}}", "maintenance: {snapshots: {age: 876000h}}"),
    sections("defaults: {topic: b}", "defaults: {}"),
    sections("catalog: {type: hivee}", "catalog: {type: jdbc}"),
    sections("catalog: {name: lake, type: rest, uri: 'http://h'}", "catalog: {type: rest, uri: 'http://h'}"),
    sections(f"catalog: {{name: {'n' * 256}}}", f"catalog: {{name: {'n' * 255}}}"),
    sections("catalog: {impl: a.B, type: jdbc}", "catalog: {impl: a.B}", "catalog: {type: jdbc}"),
    sections("catalog: {impl: a.B, jars: [/nowhere/b.jar]}", "catalog: {impl: a.B, jars: [/etc/passwd]}"),
    sections(
        "catalog: {type: hive, uri: 'http://h', warehouse: w}", "catalog: {type: hive, uri: 'thrift://h', warehouse: w}"
    ),
    sections(
        "catalog: {type: hadoop, warehouse: w}",
        "catalog: {type: jdbc, warehouse: w}",
        "catalog: {type: hadoop, warehouse: w, properties: {lock.table: l, lock-impl:"
        " org.apache.iceberg.aws.dynamodb.DynamoDbLockManager}}",
    ),
    sections(
        "catalog: {properties: {token: t, rest.auth.type: none}}",
        "catalog: {properties: {token: t, rest.auth.type: oauth2}}",
        "catalog: {properties: {rest.auth.type: none}}",
    ),
    *(
        sections(
            f"catalog: {{properties: {{{name}: x}}}}",
            f"catalog: {{properties: {{{name}: x, rest.auth.type: {login}}}}}",
            "catalog: {}",
        )
        for name, login in (
            ("rest.auth.basic.username", "basic"),
            ("rest.signing-name", "sigv4"),
            ("gcp.auth.scopes", "google"),
        )
    ),
    sections(
        "catalog: {properties: {rest.auth.type: SigV4}}",
        "catalog: {properties: {rest.auth.type: sigv4}}",
    ),
    sections(
        "catalog: {properties: {s3.sse.type: custom}}",
        "catalog: {properties: {s3.sse.type: custom, s3.sse.key: k}}",
    ),
    sections(
        "catalog: {properties: {jdbc.schema-version: V2}}",
        "catalog: {properties: {jdbc.schema-version: V0}}",
        "catalog: {properties: {jdbc.schema-version: V1}}",
    ),
    sections(
        "catalog: {properties: {s3.multipart.part-size-bytes: 32MB}}",
        "catalog: {properties: {s3.multipart.part-size-bytes: 33554432}}",
    ),
    sections(
        "catalog: {properties: {s3.delete.num-threads: 0}}",
        "catalog: {properties: {s3.delete.num-threads: 1}}",
        "catalog: {}",
    ),
    sections("catalog: {properties: {ref: dev, ref.hash: 1a}}", "catalog: {properties: {ref: dev}}"),
    sections(
        "catalog: {properties: {s3.sse.key: k}}",
        "catalog: {properties: {s3.sse.key: k, s3.sse.type: kms}}",
        "catalog: {}",
    ),
    sections(
        "catalog: {properties: {oauth2-server-uri: 'a b'}}", "catalog: {properties: {oauth2-server-uri: 'https://h/t'}}"
    ),
    sections("catalog: {properties: {nessie.ref: dev}}", "catalog: {properties: {ref: dev}}"),
    sections("catalog: {properties: {clients: 0}}", "catalog: {properties: {clients: 2}}"),
    sections("catalog: {properties: {token: ''}}", "catalog: {properties: {token: t}}", "catalog: {}"),
    sections(
        "catalog: {type: glue, warehouse: 's3://b/w', properties: {lock-impl: a.Lock}}",
        "catalog: {type: glue, warehouse: 's3://b/w'}",
    ),
    sections("catalog: {type: rest}", "catalog: {type: rest, uri: https://catalog/api}"),
    sections("catalog: {type: rest, uri: catalog}", "catalog: {type: rest, uri: 'https://catalog'}"),
    sections("catalog: {uri: 'http://x'}", "catalog: {uri: 'jdbc:sqlite:x'}", "catalog: {type: rest, uri: 'http://x'}"),
    sections(
        "catalog: {uri: 'jdbc:postgresql://x/y'}", "catalog: {uri: 'jdbc:postgresql://x/y', warehouse: 's3://lake/'}"
    ),
    sections("catalog: {properties: {warehouse: x}}", "catalog: {warehouse: x}"),
    sections("catalog: {warehouse: ~/x}", "catalog: {warehouse: /home/u/x}"),
    sections("catalog: {warehouse: 'file:x'}", "catalog: {warehouse: x}"),
    sections("catalog: {warehouse: 'dbfs:/x'}", "catalog: {warehouse: 's3://b/x'}", "catalog: {warehouse: /x}"),
    sections(
        "spark: {conf: {driver.memory: 4g}}", "spark: {conf: {spark.driver.memory: 4g, spark.hadoop.driver.memory: 4g}}"
    ),
    sections("spark: {master: 4}", "spark: {master: '4'}"),
    sections(
        "commit: {target_file_size: 64MiB, min_file_size: 256MiB}",
        "commit: {target_file_size: 256MiB, min_file_size: 64MiB}",
    ),
    sections("maintenance: always", "maintenance: true", "maintenance: false", "maintenance: {cores: 2}"),
    sections("maintenance: {cores: 0}", "maintenance: {cores: 2}"),
    sections("maintenance: {window: 22-6}", "maintenance: {window: '22:00-06:00'}"),
    sections("maintenance: {window: '10:00-10:00'}", "maintenance: {window: '10:00-11:00'}", "maintenance: {}"),
    sections("maintenance: {orphans: {age: 1h}}", "maintenance: {orphans: {age: 24h}}"),
    sections("maintenance: {sort: [a], zorder: [b]}", "maintenance: {sort: [a]}", "maintenance: {zorder: [b]}"),
    sections("maintenance: {sort: [a up]}", "maintenance: {sort: [a, b desc]}"),
    sections("maintenance: {zorder: [a desc]}", "maintenance: {zorder: [a]}"),
    sections("registry: {}", "registry: {url: https://registry:8081}"),
    sections("ha: {elect: postgres}", "ha: {elect: postgres, uri: 'postgresql://frazil@db:5432/frazil'}"),
    sections(
        "ha: {elect: postgres, uri: 'jdbc:postgresql://db/frazil'}",
        "ha: {elect: postgres, uri: 'postgresql://db/frazil'}",
    ),
    sections("ha: {uri: 'postgresql://db/f'}", "ha: {}", "ha: {elect: postgres, uri: 'postgresql://db/f'}"),
    sections("ha: {elect: none, mode: spread}", "ha: {elect: kafka, mode: spread}"),
    sections("ha: {listen: '0.0.0.0:7000'}", "ha: {listen: '10.0.0.1:7000'}", "ha: {}"),
    sections("http: {listen: '8787'}", "http: {listen: '127.0.0.1:8787'}"),
    sections(
        f"http: {{listen: '0.0.0.0:1', {_TLS}}}",
        f"http: {{listen: '0.0.0.0:1', {_TLS}, {_TOKENS}}}",
        "http: {listen: '127.0.0.1:1'}",
    ),
    sections(
        f"http: {{listen: '0.0.0.0:1', {_TOKENS}}}",
        f"http: {{listen: '0.0.0.0:1', {_TLS}, {_TOKENS}}}",
        "http: {listen: '127.0.0.1:1'}",
    ),
    sections("http: {tokens: {read: short}}", f"http: {{tokens: {{read: {'a' * 32}}}}}"),
    sections("http: {tokens: {read: []}}", f"http: {{tokens: {{read: [{'a' * 32}]}}}}", "http: {}"),
    sections("http: {tokens: {}}", *(f"http: {{tokens: {{{right}: {'a' * 32}}}}}" for right in ("read", "operate"))),
    sections("http: {tls: {certificate: c}}", "http: {tls: {certificate: c, key: k}}"),
    sections("registry: {url: x}", "registry: {url: 'https://x'}"),
    sections("telemetry: {otlp: x}", "telemetry: {otlp: 'https://x'}"),
    sections("telemetry: {otlp: 'https://u:p@x'}", "telemetry: {otlp: 'https://x'}"),
    sections("telemetry: {otlp: 'https://x?y'}", "telemetry: {otlp: 'https://x'}"),
    sections("registry: {url: []}", f"registry: {{{_URL}}}"),
    sections("registry: {url: 'https://a:x'}", "registry: {url: 'https://registry:8081'}"),
    sections("registry: {url: 'https://u:p@b'}", "registry: {url: 'https://b', auth: {username: u, password: p}}"),
    sections("registry: {url: 'https://a?x=1'}", f"registry: {{{_URL}}}"),
    sections(f"registry: {{{_URL}, context: ':.c:'}}", f"registry: {{{_URL}, context: c}}"),
    sections(f"registry: {{{_URL}, context: 'a b'}}", f"registry: {{{_URL}, context: a-b}}"),
    sections(
        f"registry: {{{_URL}, auth: {{username: u}}}}",
        f"registry: {{{_URL}, auth: {{username: u, password: p}}}}",
        f"registry: {{{_URL}, auth: {{token: t}}}}",
    ),
    sections(
        f"registry: {{{_URL}, auth: {{username: 'u:v', password: p}}}}",
        f"registry: {{{_URL}, auth: {{username: u, password: p}}}}",
    ),
    sections(
        "registry: {url: 'http://a', tls: {ca: c}}",
        f"registry: {{{_URL}, tls: {{ca: c}}}}",
        "registry: {url: 'http://a'}",
    ),
    sections(f"registry: {{{_URL}, tls: {{key: k}}}}", f"registry: {{{_URL}, tls: {{key: k, certificate: c}}}}"),
    sections(f'registry: {{{_URL}, tls: {{ca: "BEGIN\\nabc"}}}}', f"registry: {{{_URL}, tls: {{ca: ca.pem}}}}"),
    *(
        sections(f"registry: {{{_URL}, properties: {{{key}: x}}}}", f"registry: {{{fixed}}}")
        for key, fixed in (
            ("url", _URL),
            ("basic.auth.user.info", f"{_URL}, auth: {{username: u, password: p}}"),
            ("bearer.auth.token", f"{_URL}, auth: {{token: t}}"),
            ("ssl.ca.location", f"{_URL}, tls: {{ca: c}}"),
            ("ssl.certificate.location", f"{_URL}, tls: {{certificate: c}}"),
            ("ssl.key.location", f"{_URL}, tls: {{certificate: c, key: k}}"),
            ("ssl.key.password", f"{_URL}, tls: {{certificate: c, key: k, key_password: p}}"),
            ("timeout", _URL),
            ("max.retries", _URL),
            ("cache.capacity", _URL),
            ("cache.latest.ttl.sec", _URL),
        )
    ),
    Mended(
        with_table("value: {format: avro}"),
        (with_table("value: {format: avro}") + "registry: {url: https://registry:8081}\n",),
    ),
]
ROUTES = [
    routes(f"{_BY}, to: 'a.x'", f"{_BY}, to: 'a.${{k}}'"),
    routes(f"{_BY}, to: 'a.$k${{k}}'", f"{_BY}, to: 'a.${{k}}'"),
    routes(f"{_BY}, to: '${{k}}'", f"{_BY}, to: 'a.${{k}}'"),
    routes(
        "rest: a.r, by: 'k..', to: 'a.${k}'", f"{_BY}, to: 'a.${{k}}'", "rest: a.r, by: header.k, to: 'a.${header.k}'"
    ),
    routes(_BY, f"{_BY}, to: 'a.${{k}}'"),
    routes(f"{_BY}, to: 'a.${{k}}', location: s3://b/x", f"{_BY}, to: 'a.${{k}}'"),
    routes("by: k, to: 'a.${k}'", "by: k, to: 'a.${k}', rest: a.r"),
    routes("by: k, to: 'a.${k}', rest: 'a.${k}'", "by: k, to: 'a.${k}', rest: a.r"),
    routes(f"{_BY}, to: 'a.${{j}}'", f"{_BY}, to: 'a.${{k}}_${{j}}'"),
    routes("to: 'a.${k}'", f"{_BY}, to: 'a.${{k}}'"),
    routes("to: 'a.${topic}', limit: 3", "to: 'a.${topic}'", f"{_BY}, to: 'a.${{k}}', limit: 3"),
    routes("to: 'a.$1'", "to: 'a.${topic}'"),
    routes(f"{_BY}, to: 'a.${{k}}$1'", f"{_BY}, to: 'a.${{k}}${{topic}}'"),
    routes(
        f"{_BY}, to: 'a.${{k}}', value: {{format: text}}",
        "by: header.k, rest: a.r, to: 'a.${header.k}', value: {format: text}",
        "by: topic, to: 'a.${topic}', value: {format: text}",
    ),
    routes(
        f"{_BY}, to: 'a.${{k}}', envelope: debezium",
        "by: source.table, rest: a.r, to: 'a.${source.table}', envelope: debezium",
        "by: header.k, rest: a.r, to: 'a.${header.k}', envelope: debezium",
    ),
    routes(
        f"{_BY}, to: 'a.${{k}}', {_UPSERT}",
        f"by: header.k, rest: a.r, to: 'a.${{header.k}}', {_UPSERT}",
        f"{_BY}, to: 'a.${{k}}', {_UPSERT}, tombstones: ignore",
    ),
    routes(f"{_BY}, to: 'a.${{k}}', dead_letters: {{table: a.d}}", f"{_BY}, to: 'a.${{k}}'"),
    wholes(
        "routes: [{topic: c, by: source.table, rest: a.r, to: 'a.${source.table}', envelope: debezium,"
        " atomic: transaction}]\n",
        "tables: {a.b: {topic: c, envelope: debezium, atomic: transaction}}\n",
    ),
    wholes(
        "routes: [{topic: c, to: 'a.${topic}'}, {topic: d, to: 'a.x${topic}'}]\n",
        "routes: [{topic: c, to: 'a.${topic}'}, {topic: d, to: 'b.x${topic}'}]\n",
        "routes: [{topic: c, to: 'a.y${topic}'}, {topic: d, to: 'a.x${topic}'}]\n",
    ),
    wholes(
        "tables: {a.b: {topic: c}}\nroutes: [{topic: b, to: 'a.${topic}'}]\n",
        "tables: {a.b: {topics: [b, c]}}\nroutes: [{topic: b, to: 'a.${topic}'}]\n",
        "tables: {b.b: {topic: c}}\nroutes: [{topic: b, to: 'a.${topic}'}]\n",
        "tables: {a.b: {topic: c}}\nroutes: [{topic: b, to: 'a.x${topic}'}]\n",
    ),
]
