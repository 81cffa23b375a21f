"""What the file must not say, where the error points, and what it advises."""

from __future__ import annotations

import pytest

from frazil.spec.topics import pipeline_name
from tests.unit.spec.pipeline_file import HEAD, Refuse, with_section

UNLOCKED = "two processes lose commits of each other in this warehouse: its renames replace files"
LOCKED = "with `lock-impl` a process whose lock has expired overwrites commits of others in this catalog"
NO_ADDRESS = (
    "`catalog.warehouse`: the address has no bucket or host, or `?`, `#` or `//` in its path, which clients of stores read"
    " differently"
)
SECTIONS = [
    ("kfaka: {}", "unknown key `kfaka` in the pipeline file", "did you mean `kafka`?"),
    ("kafkaa: {}", "unknown key `kafkaa` in the pipeline file", "did you mean `kafka`?"),
    ("mode: upsert", "`mode` does not belong here", "write it in a table, or under `defaults`"),
    ("topic: a", "unknown key `topic` in the pipeline file", "did you mean `topics`?"),
    (
        "defaults: {topic: b}",
        "`topic` does not belong here",
        "write it in each table: it is not a default for others",
    ),
    ("catalog: {type: hve}", "`catalog.type` cannot be `hve`", "did you mean `hive`?"),
    ("catalog: {typ: jdbc}", "unknown key `typ` in `catalog`", "did you mean `type`?"),
    ("catalog: {impl: a.B, type: rest, uri: 'http://x'}", "`catalog` has both `type` and `impl`", "keep one of them"),
    (
        "catalog: {impl: a.B, jars: [/nowhere/b.jar]}",
        "`catalog.jars` names a file that does not exist: `/nowhere/b.jar`",
        "correct the path",
    ),
    ("catalog: {impl: a.B, jars: b.jar}", "`catalog.jars` is text where a list is expected", None),
    (
        "catalog: {type: hive, warehouse: w}",
        "`catalog.uri` is missing: a catalog of this type has no default",
        "write it, as `catalog: {uri: thrift://…}`",
    ),
    (
        "catalog: {type: hive, uri: 'thrift://h:9083'}",
        "`catalog.warehouse` is missing: a catalog of this type has no default",
        "write it, as `catalog: {warehouse: …}`",
    ),
    (
        "catalog: {type: hive, uri: 'http://h', warehouse: w}",
        "`catalog.uri` is not an address of a catalog of this type",
        "begin it with thrift://",
    ),
    (
        "catalog: {type: nessie, uri: 'h:19120', warehouse: w}",
        "`catalog.uri` is not an address of a catalog of this type",
        "begin it with https:// or http://",
    ),
    (
        "catalog: {type: glue}",
        "`catalog.warehouse` is missing: a catalog of this type has no default",
        "write it, as `catalog: {warehouse: …}`",
    ),
    (
        "catalog: {warehouse: ~/lake}",
        "`catalog.warehouse` begins with `~`, which only a shell replaces",
        "write the whole path, or `${env:HOME}/…`",
    ),
    (
        "catalog: {warehouse: 'file:lake'}",
        "`catalog.warehouse` has a relative path behind `file:`, which Iceberg does not take",
        "write the path alone",
    ),
    ("catalog: {warehouse: 'dbfs:/lake'}", "`catalog.warehouse`: tasks cannot write to `dbfs:`", None),
    ("catalog: {type: glue, warehouse: 's3:/b/x'}", NO_ADDRESS, None),
    ("catalog: {type: hive, uri: 'thrift://h', warehouse: 's3://b//x'}", NO_ADDRESS, None),
    ("catalog: {type: hadoop, warehouse: 's3://lake/'}", UNLOCKED, None),
    ("catalog: {type: hadoop, warehouse: lake}", UNLOCKED, None),
    ("catalog: {type: glue, warehouse: 's3://lake/', properties: {lock-impl: a.Lock}}", LOCKED, None),
    ("registry: {}", "`registry.url` is missing", "write its address, such as `url: https://registry:8081`"),
    ("registry: {url: x}", "`registry.url` is not an HTTP address", "begin it with http:// or https://"),
    ("telemetry: {otlp: x}", "`telemetry.otlp` is not an HTTP address", "begin it with http:// or https://"),
    (
        "telemetry: {openlineage: 'https://u:p@b'}",
        "`telemetry.openlineage` holds credentials, and addresses are shown in logs",
        "take them out, and set the variable OTEL_EXPORTER_OTLP_HEADERS or OPENLINEAGE_API_KEY in their place",
    ),
    ("registry: {url: []}", "`registry.url` is an empty list", "write at least one address"),
    ("registry: {url: 'https://a,'}", "`registry.url` is not an HTTP address", "begin it with http:// or https://"),
    (
        "registry: {url: 'https://a:x'}",
        "`registry.url` is not an HTTP address",
        "write only scheme, host, port and path, such as https://registry:8081",
    ),
    (
        "registry: {url: ['https://a', 'https://u:p@b']}",
        "`registry.url` holds credentials, and addresses are shown in logs",
        "take them out, and write them under `registry.auth`",
    ),
    (
        "registry: {url: 'https://a?x=1'}",
        "`registry.url` has a part after ? or #",
        "write only scheme, host, port and path, such as https://registry:8081",
    ),
    ("registry: {ulr: 'https://a', url: 'https://a'}", "unknown key `ulr` in `registry`", "did you mean `url`?"),
    ("registry: {url: 'https://a', naming: topik}", "`registry.naming` cannot be `topik`", "did you mean `topic`?"),
    ("registry: {url: 'https://a', context: ':.c:'}", "`:.c:` is not the name of a context", "write `c`"),
    (
        "registry: {url: 'https://a', context: 'a b'}",
        "`a b` is not the name of a context",
        "use letters, digits, dots, underscores and hyphens",
    ),
    (
        "registry: {url: 'https://a', auth: {user: u}}",
        "unknown key `user` in `registry.auth`",
        "did you mean `username`?",
    ),
    (
        "registry: {url: 'https://a', auth: {username: u}}",
        "`registry.auth` is neither a user with a password nor a token",
        "write `username` and `password`, or `token`",
    ),
    (
        "registry: {url: 'https://a', auth: {username: u, password: p, token: t}}",
        "`registry.auth` is neither a user with a password nor a token",
        "write `username` and `password`, or `token`",
    ),
    (
        "registry: {url: 'https://a', auth: {username: 'u:v', password: p}}",
        "`registry.auth.username` has a colon, which a user's name cannot have in HTTP",
        "correct the name",
    ),
    (
        "registry: {url: 'http://a', tls: {ca: c}}",
        "`registry.tls` is of no use: `registry.url` has an address without TLS",
        "begin every address with https://, or remove `tls`",
    ),
    (
        "registry: {url: 'https://a', tls: {key: k}}",
        "`registry.tls.certificate` is missing",
        "write the file of the certificate that the key belongs to",
    ),
    (
        'registry: {url: "https://a", tls: {ca: "BEGIN\\nabc"}}',
        "`registry.tls.ca` is the content of a file where its path is expected",
        "write the path alone, without ${file:…}",
    ),
    (
        "registry: {url: 'https://a', properties: {basic.auth.user.info: 'u:p'}}",
        "`registry.properties.basic.auth.user.info` is not for the file to set",
        "write `registry.auth: {username: …, password: …}`",
    ),
    (
        "catalog: {type: rest}",
        "`catalog.uri` is missing: a catalog of this type has no default",
        "write it, as `catalog: {uri: https://…}`",
    ),
    (
        "catalog: {type: rest, uri: catalog}",
        "`catalog.uri` is not an address of a catalog of this type",
        "begin it with https:// or http://",
    ),
    ("catalog: {uri: 'http://x'}", "`catalog.uri` is not a JDBC address", "begin it with jdbc:, or write `type: rest`"),
    (
        "catalog: {uri: 'jdbc:postgresql://x/y'}",
        "`catalog.warehouse` is missing: only SQLite has a default",
        "write where tables are stored, such as `warehouse: s3://lake/`",
    ),
    (
        "catalog: {properties: {warehouse: x}}",
        "`warehouse` is not a further property of the catalog",
        "write it as `catalog.warehouse`",
    ),
    (
        "spark: {conf: {driver.memory: 4g}}",
        "Spark ignores `driver.memory`: its properties begin with `spark.`",
        "write `spark.driver.memory`, or `spark.hadoop.driver.memory` for a property of Hadoop",
    ),
    ("http: {listen: 8787}", "`8787` is not an address to listen on", "write host and port, such as `127.0.0.1:8787`"),
    *(
        (
            f"http: {{listen: '{address}'}}",
            f"`{address}` is not an address to listen on",
            "write host and port, such as `127.0.0.1:8787`",
        )
        for address in ("8787:80", "0:8787", "127.0.0:8787", "127.0.0.256:8787")
    ),
    ("http: {listen: 8787:80}", "`8787:80` is not an address to listen on", None),
    ("ha: true", "`ha` is a boolean where a mapping is expected", "write `ha: {}`, or remove it"),
    ("verify: true", "`verify` is a boolean where a mapping is expected", "write `verify: {}`, or remove it"),
    ("spark: {master: 4}", "`spark.master` is a number where text is expected", "put it in quotes"),
    ("commit: {target_file_size: 64}", "the size `64` has no unit", None),
    ("commit: {min_file_size: 32}", "the size `32` has no unit", None),
    (
        "commit: {min_file_size: 256MiB}",
        "`commit.min_file_size` is larger than `commit.target_file_size`, at which files end",
        "lower the one, or raise the other",
    ),
    ("topics: [a]", "`topics` needs a `namespace` for its tables", "write `namespace: NAME`"),
    (
        "namespace: n",
        "`namespace` is set, but there are no `topics` to name tables for",
        "write `topics`, or remove it: names under `tables` carry their own namespace",
    ),
]
WHOLE = [
    (
        f"{HEAD}tables:\n  shop.x: {{topic: a, dead_letters: {{table: shop.bad}}}}\n"
        "  shop.y: {topic: b, dead_letters: {table: shop.bad}}\n",
        5,
        "dead letters of `shop.y` go to `shop.bad`, which is where those of `shop.x` go",
    ),
    (
        f"{HEAD}tables:\n  shop.x: {{topic: a}}\n  shop.x__dead_letters: {{topic: b}}\n",
        4,
        "dead letters of `shop.x` go to `shop.x__dead_letters`, which is the table `shop.x__dead_letters` itself",
    ),
    (
        f"{HEAD}topics: [x, x__dead_letters]\nnamespace: shop\n",
        3,
        "dead letters of `shop.x` go to `shop.x__dead_letters`, which is the table `shop.x__dead_letters` itself",
    ),
    (
        f"{HEAD}topics: [x]\nnamespace: shop\ntables:\n  shop.y: {{topic: y, dead_letters: {{table: shop.x}}}}\n",
        6,
        "dead letters of `shop.y` go to `shop.x`, which is the table `shop.x` itself",
    ),
    (
        f"{HEAD}topics: [a, b]\nnamespace: shop\ndefaults: {{dead_letters: {{table: shop.bad}}}}\n",
        5,
        "`defaults` sends dead letters of every table to `shop.bad`, and each table of `topics` needs its own",
    ),
    (HEAD, 1, "the file has neither `tables` nor `topics`"),
    (f"{HEAD}tables:\n", 3, "`tables` has no tables"),
    (f"{HEAD}tables: {{}}\n", 3, "`tables` has no tables"),
    (f"{HEAD}tables:\n  - shop.x: {{topic: a}}\n", 3, "`tables` is a list where a mapping is expected"),
    (f"{HEAD}namespace: n\ntopics: orders.*\n", 4, "`orders.*` is not a topic's name"),
    (f"{HEAD}tables:\n  page_views: {{topic: a}}\n", 4, "the table `page_views` has no namespace"),
    (f"{HEAD}tables:\n  shop..x: {{topic: a}}\n", 4, "`shop..x` is not the name of a table"),
    (f"{HEAD}tables:\n  shop.x:\n", 4, "table `shop.x` is empty where a mapping is expected"),
    (f"{HEAD}tables:\n  shop.x: {{start: latest}}\n", 4, "table `shop.x` names no topic"),
    (f"{HEAD}tables:\n  shop.x: {{topic: /a/}}\n", 4, "`topic` takes one name"),
    (f"{HEAD}tables:\n  shop.x: {{topic: [a, b]}}\n", 4, "`topic` takes one name"),
    (f"{HEAD}tables:\n  shop.x:\n    topics: []\n", 5, "`topics` is an empty list"),
    (f"{HEAD}tables:\n  shop.x:\n    topics: [a, /b/,\n      a]\n", 6, "`a` occurs twice in `topics`"),
    (
        f"{HEAD}commit: {{min_file_size: 2MiB}}\ntables:\n  shop.x:\n    topic: a\n    commit: {{target_file_size:"
        " 1MiB}\n",
        7,
        "`commit.min_file_size` is larger than `commit.target_file_size`, at which files end",
    ),
    (
        f"{HEAD}tables:\n  shop.x: {{topics: [a, b], start: {{0: 1}}}}\n",
        4,
        "`start` gives offsets without a topic, but the table may read several",
    ),
    (
        f"{HEAD}namespace: n\ntopics: [x, /(/]\n",
        4,
        "the regular expression `/(/` is wrong: missing ), unterminated subpattern at position 0",
    ),
    (f"{HEAD}namespace: a b\ntopics: [x]\n", 3, "`a b` is not the name of a namespace"),
    (
        f"{HEAD}namespace: n\ntopics: [x]\ntables:\n  n.x: {{topic: y}}\n",
        6,
        "`n.x` is under `tables`, and `x` under `topics` makes a table of that name too",
    ),
    (
        f"{HEAD}namespace: n\ntopics: /./\ntables:\n  n.x: {{topic: y}}\n",
        6,
        "`n.x` is under `tables`, and `/./` under `topics` makes a table of that name too",
    ),
    ("kafka: {bootstrap.servers: b:1}\ntables: {a.b: {topic: c}}\n", 1, "`pipeline` is missing"),
    (
        "pipeline: a/b\nkafka: {bootstrap.servers: b:1}\ntables: {a.b: {topic: c}}\n",
        1,
        "`a/b` is not a name for a pipeline",
    ),
    (
        "pipeline: 7\nkafka: {bootstrap.servers: b:1}\ntables: {a.b: {topic: c}}\n",
        1,
        "`pipeline` is a number where text is expected",
    ),
    ("pipeline: p\ntables: {a.b: {topic: c}}\n", 1, "`kafka.bootstrap.servers` is missing"),
    (
        "pipeline: p\nkafka: {bootstrap.servers: b}\ntables: {a.b: {topic: c}}\n",
        2,
        "`kafka.bootstrap.servers` is not a list of host:port",
    ),
    ("pipeline: p\nkafka: {acks: 1}\ntables: {a.b: {topic: c}}\n", 2, "`kafka.bootstrap.servers` is missing"),
    *(
        (
            f"pipeline: p\nkafka:\n  acks: 1\n  bootstrap.servers: {word}\ntables: {{a.b: {{topic: c}}}}\n",
            4,
            "`kafka.bootstrap.servers` is not a list of host:port",
        )
        for word in ("b", "''", "true", "'b:1,'")
    ),
    (
        "pipeline: p\nkafka:\n  bootstrap.servers: '${vault:kafka/dev:brokers}'\ntables: {a.b: {topic: c}}\n",
        3,
        "`kafka.bootstrap.servers` refers to `${vault:kafka/dev:brokers}`, and Frazil reads only `${env:NAME}` and"
        " `${file:PATH}`",
    ),
]


@pytest.mark.parametrize(("section", "message", "remedy"), SECTIONS)
def test_a_wrong_section(refuse: Refuse, section: str, message: str, remedy: str | None) -> None:
    error = refuse(with_section(section))
    assert (error.message, error.where) == (message, "pipeline.yaml:4")
    assert remedy in (None, error.remedy)


@pytest.mark.parametrize(("text", "line", "message"), WHOLE)
def test_what_is_wrong_with_the_file_as_a_whole(refuse: Refuse, text: str, line: int, message: str) -> None:
    error = refuse(text)
    assert (error.message, error.where) == (message, f"pipeline.yaml:{line}")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("group.id: x", "`kafka.group.id` is not for the file to set: Frazil names its own groups"),
        (
            "auto.offset.reset: latest",
            "`kafka.auto.offset.reset` is not for the file to set: set `start` for where a table begins, and"
            " `on_data_loss` for lost offsets",
        ),
        (
            "enable.auto.commit: true",
            "`kafka.enable.auto.commit` is not for the file to set: "
            "progress is in the table, nothing is committed to Kafka",
        ),
        (
            "key.deserializer: x",
            "`kafka.key.deserializer` is not for the file to set: Frazil reads bytes and decodes them itself",
        ),
        (
            "value.deserializer: x",
            "`kafka.value.deserializer` is not for the file to set: Frazil reads bytes and decodes them itself",
        ),
        ("isolation.level: read_comitted", "`kafka.isolation.level` cannot be `read_comitted`"),
        ("kafka.bootstrap.servers: x", "`kafka.bootstrap.servers` is not a client property"),
        ("ssl: {a: b}", "`kafka.ssl` is a mapping where one value is expected"),
        ("sasl.password: no", "YAML reads the bare yes, no, on or off of `kafka.sasl.password` as a boolean"),
    ],
)
def test_kafka_properties_that_are_not_the_file_s_to_set(refuse: Refuse, settings: str, message: str) -> None:
    error = refuse(f"pipeline: p\nkafka:\n  bootstrap.servers: b:1\n  {settings}\ntables: {{a.b: {{topic: c}}}}\n")
    assert (error.message, error.where) == (message, "pipeline.yaml:4")


def test_all_problems_of_the_file_are_told_in_full(refuse: Refuse) -> None:
    error = refuse(
        f"{HEAD}tables:\n  shop.x:\n    topic: a\n    mode: upset\n    limits: {{columns: 0}}\n    start: x\n"
    )
    assert str(error) == (
        "`mode` cannot be `upset` (and 2 more problems in this file) (pipeline.yaml:6); did you mean `upsert`?"
    )
    assert [(other.where, bool(other.message), bool(other.remedy)) for other in error.others] == [
        ("pipeline.yaml:7", True, True),
        ("pipeline.yaml:8", True, True),
    ]


@pytest.mark.parametrize(
    ("text", "line", "key", "remedy"),
    [
        ("pipeline: p\n\nkafak: {bootstrap.servers: b:1}\ntables: {a.b: {topic: c}}\n", 3, "kafak", "kafka"),
        (f"{HEAD}tabels: {{a.b: {{topic: c}}}}\n", 3, "tabels", "tables"),
        (f"{HEAD}tables:\n  a.b:\n    topc: c\n", 5, "topc", "topic"),
        (f"{HEAD}tables: {{a.b: {{topic: c}}}}\nregistry:\n  ulr: http://r\n", 5, "ulr", "url"),
    ],
)
def test_a_misspelt_key_is_reported_before_what_is_missing_because_of_it(
    refuse: Refuse, text: str, line: int, key: str, remedy: str
) -> None:
    error = refuse(text)
    assert error.message.startswith(f"unknown key `{key}`")
    assert (error.remedy, error.where) == (f"did you mean `{remedy}`?", f"pipeline.yaml:{line}")


def test_brokers_under_a_name_that_is_nearly_right_are_found(refuse: Refuse) -> None:
    error = refuse("pipeline: p\nkafka: {bootstrap.server: b:1}\ntables: {a.b: {topic: c}}\n")
    assert error.message == "`kafka.bootstrap.servers` is missing"
    assert error.remedy == "write `bootstrap.servers` in place of `bootstrap.server`"


@pytest.mark.parametrize(
    ("defaults", "message"),
    [("mod: upsert", "unknown key `mod` in `defaults`"), ("mode: upset", "`mode` cannot be `upset`")],
)
def test_one_mistake_in_the_defaults_is_one_problem_whatever_tables_there_are(
    refuse: Refuse, defaults: str, message: str
) -> None:
    error = refuse(f"{HEAD}defaults: {{{defaults}}}\ntables:\n  a.b: {{topic: c}}\n  a.d: {{topic: e}}\n")
    assert (error.message, error.where) == (message, "pipeline.yaml:3")


@pytest.mark.parametrize(
    ("name", "own", "instead"),
    [
        ("x.replaying", "replaying", "x-replaying"),
        ("x.retrying", "retrying", "x-retrying"),
        ("shop.retrying.eu", "retrying", "shop-retrying.eu"),
    ],
)
def test_a_name_whose_properties_would_be_those_of_another_pipeline_is_refused(
    refuse: Refuse, name: str, own: str, instead: str
) -> None:
    error = refuse(f"pipeline: {name}\nkafka: {{bootstrap.servers: b:1}}\ntables: {{a.b: {{topic: c}}}}\n")
    assert error.message == f"`{name}` is not a name for a pipeline: `{own}` behind a dot is one of Frazil's own names"
    assert (error.remedy, error.where) == (f"write `{instead}`", "pipeline.yaml:1")


@pytest.mark.parametrize("name", ["retrying", "x.retrying2", "x-replaying"])
def test_a_name_that_only_looks_like_one_of_them_is_a_name(name: str) -> None:
    assert pipeline_name(name) == name
