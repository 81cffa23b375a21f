from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyiceberg.types import DecimalType, ListType, LongType, StringType, TimestamptzType

from frazil.errors import SpecError
from frazil.spec import (
    AuthSpec,
    CatalogSpec,
    ColumnSpec,
    CommitSpec,
    DeadLettersSpec,
    LimitsSpec,
    PipelineSpec,
    RegistrySpec,
    SparkSpec,
    Start,
    TableSpec,
    TlsSpec,
    TopicSelector,
    ValueSpec,
    load_spec,
)
from tests.unit.spec.pipeline_file import HEAD, Load, with_section, with_table

KAFKA = {"isolation.level": "read_committed", "bootstrap.servers": "localhost:9092"}

LONG = """
pipeline: shop
kafka:
  bootstrap.servers: broker-1:9092,broker-2:9092
  security.protocol: SASL_SSL
  sasl.password: ${env:KAFKA_PASSWORD}
  fetch.min.bytes: 1_000
  allow.auto.create.topics: false
  isolation.level: read_uncommitted
catalog:
  type: rest
  uri: https://catalog/api
  warehouse: lake
  properties: {s3.endpoint: "https://store", s3.path-style-access: true}
spark: {master: "local[4]", conf: {spark.driver.memory: 4g, spark.sql.shuffle.partitions: 8}}
commit: {interval: 2s, target_file_size: 64MiB, min_file_size: 32MiB}
namespace: iot.raw
topics: [sensors, /^device-.*/]
tables:
  shop.page_views:
    topic: page_views
    start: latest
    value: {format: json}
    schema_evolution: evolve
    on_bad_record: stop
    dead_letters: {table: shop.bad, stop_above: 5%}
    limits: {columns: 50, record_size: 1MiB}
    on_data_loss: skip
    columns:
      id: long
      ts: {type: timestamptz}
      price: decimal(9,2)
      Tags: list<string>
      tags: string
    unknown_fields: drop
    rescue: false
    metadata: [offset, partition, timestamp]
    commit: {interval: 500ms}
    envelope: none
    mode: append
    changelog: false
    format_version: 3
    properties: {write.parquet.compression-codec: zstd, write.delete.mode: merge-on-read, a: 1, b: true}
  shop.eu.orders:
    topics: [orders, /^orders-/]
    start: {orders: {0: 12, 1: 0}, orders-x: {7: 3}}
    commit: {target_file_size: 1GiB, min_file_size: 1MiB}
"""


def test_the_shortest_file_gets_every_default(load: Load, working_directory: Path) -> None:
    text = f"{HEAD}tables:\n  shop.page_views: {{topic: page_views}}\n"
    home = working_directory / "frazil-data"
    assert load(text) == PipelineSpec(
        pipeline="shop",
        kafka=KAFKA,
        catalog=CatalogSpec(type="jdbc", uri=f"jdbc:sqlite:{home}/catalog.db", warehouse=f"{home}/warehouse"),
        spark=SparkSpec(master="local[*]", conf={}),
        commit=CommitSpec(interval_s=1.0, target_file_size_bytes=134217728, min_file_size_bytes=None),
        tables=(
            TableSpec(
                name="shop.page_views",
                topics=(TopicSelector(literal="page_views"),),
                start=Start(kind="earliest"),
                columns=(),
                unknown_fields="add",
                rescue=False,
                schema_evolution="evolve",
                on_bad_record="dead_letter",
                dead_letters=DeadLettersSpec(table=None, stop_above=0.2),
                metadata={},
                commit=CommitSpec(),
                on_data_loss="stop",
                format_version=2,
                properties={},
                line=4,
            ),
        ),
        namespace=None,
        topics=(),
        path=Path("pipeline.yaml"),
        secrets=frozenset(),
        state_dir=home / "state",
    )


def test_many_topics_need_only_a_namespace(load: Load) -> None:
    spec = load(f"{HEAD}namespace: iot\ntopics: [sensors, alarms, /^device-.*/]\ncommit: {{interval: 5m}}\n")
    assert (spec.selected.namespace, spec.tables) == ("iot", ())
    assert spec.selected.topics == (
        TopicSelector(literal="sensors"),
        TopicSelector(literal="alarms"),
        TopicSelector(pattern="^device-.*"),
    )
    assert spec.table_for("device-1") == TableSpec(
        name="iot.device-1", topics=(TopicSelector(literal="device-1"),), commit=CommitSpec(interval_s=300.0)
    )


def test_defaults_are_for_every_table_that_does_not_say_otherwise(load: Load) -> None:
    spec = load(
        f"{HEAD}registry: {{url: http://r}}\nnamespace: iot\ntopics: [sensors]\n"
        "defaults: {value: {format: avro}, on_bad_record: stop, commit: {interval: 3s}}\n"
        "tables: {a.b: {topic: c}, a.d: {topic: e, value: {format: text}, on_bad_record: skip}}\n"
    )
    assert [(t.name, t.source.value.format, t.bad_records.on_bad_record, t.commit.interval_s) for t in spec.tables] == [
        ("a.b", "avro", "stop", 3.0),
        ("a.d", "text", "skip", 3.0),
    ]
    sensors = spec.table_for("sensors")
    assert (sensors.name, sensors.source.value, sensors.bad_records.on_bad_record, sensors.line) == (
        "iot.sensors",
        ValueSpec(format="avro"),
        "stop",
        0,
    )
    assert sensors.source.topics == (TopicSelector(literal="sensors"),)


def test_a_changelog_among_upsert_tables_takes_nothing_of_upsert_tables_from_the_defaults(load: Load) -> None:
    of_upserts = "mode: upsert, key_columns: [id], order_by: _source_order, deletes: soft"
    spec = load(
        f"{HEAD}defaults: {{envelope: debezium, metadata: [source_order], {of_upserts}}}\n"
        "tables: {a.b: {topic: c}, a.log: {topic: c, mode: append, changelog: true}}\n"
    )
    assert [
        (t.changes.mode, t.changes.key_columns, t.changes.order_by, t.changes.deletes, t.changes.changelog)
        for t in spec.tables
    ] == [
        ("upsert", ("id",), "_source_order", "soft", False),
        ("append", (), None, "hard", True),
    ]


def test_metadata_columns_may_have_names_of_their_own(load: Load) -> None:
    spec = load(f"{HEAD}tables: {{a.b: {{topic: c, metadata: {{offset: at, partition: _partition}}}}}}\n")
    assert spec.tables[0].metadata == {"offset": "at", "partition": "_partition"}


def test_everything_that_is_written_is_taken(load: Load, working_directory: Path) -> None:
    assert load(LONG, {"KAFKA_PASSWORD": "hunter2"}) == PipelineSpec(
        pipeline="shop",
        kafka={
            "bootstrap.servers": "broker-1:9092,broker-2:9092",
            "security.protocol": "SASL_SSL",
            "sasl.password": "hunter2",
            "fetch.min.bytes": "1_000",
            "allow.auto.create.topics": "false",
            "isolation.level": "read_uncommitted",
        },
        catalog=CatalogSpec(
            type="rest",
            uri="https://catalog/api",
            warehouse="lake",
            properties={"s3.endpoint": "https://store", "s3.path-style-access": "true"},
        ),
        spark=SparkSpec(master="local[4]", conf={"spark.driver.memory": "4g", "spark.sql.shuffle.partitions": "8"}),
        commit=CommitSpec(interval_s=2.0, target_file_size_bytes=64 * 1024**2, min_file_size_bytes=32 * 1024**2),
        tables=(
            TableSpec(
                name="shop.page_views",
                topics=(TopicSelector(literal="page_views"),),
                start=Start(kind="latest"),
                columns=(
                    ColumnSpec(name="id", type=LongType()),
                    ColumnSpec(name="ts", type=TimestamptzType()),
                    ColumnSpec(name="price", type=DecimalType(9, 2)),
                    ColumnSpec(name="Tags", type=ListType(1000, StringType(), False)),
                    ColumnSpec(name="tags", type=StringType()),
                ),
                unknown_fields="drop",
                on_bad_record="stop",
                dead_letters=DeadLettersSpec(table="shop.bad", stop_above=0.05),
                limits=LimitsSpec(columns=50, record_bytes=2**20),
                metadata={"offset": "_offset", "partition": "_kafka_partition", "timestamp": "_timestamp"},
                commit=CommitSpec(
                    interval_s=0.5, target_file_size_bytes=64 * 1024**2, min_file_size_bytes=32 * 1024**2
                ),
                on_data_loss="skip",
                format_version=3,
                properties={
                    "write.parquet.compression-codec": "zstd",
                    "write.delete.mode": "merge-on-read",
                    "a": "1",
                    "b": "true",
                },
                line=20,
            ),
            TableSpec(
                name="shop.eu.orders",
                topics=(TopicSelector(literal="orders"), TopicSelector(pattern="^orders-")),
                start=Start(kind="offsets", offsets={"orders": {0: 12, 1: 0}, "orders-x": {7: 3}}),
                commit=CommitSpec(interval_s=2.0, target_file_size_bytes=1024**3, min_file_size_bytes=1024**2),
                line=44,
            ),
        ),
        namespace="iot.raw",
        topics=(TopicSelector(literal="sensors"), TopicSelector(pattern="^device-.*")),
        path=Path("pipeline.yaml"),
        secrets=frozenset({"hunter2"}),
        state_dir=working_directory / "frazil-data" / "state",
    )


@pytest.mark.parametrize(
    ("written", "start"),
    [
        ("earliest", Start(kind="earliest")),
        ("latest", Start(kind="latest")),
        ("2026-01-31T00:00:00Z", Start(kind="timestamp", timestamp_ms=1769817600000)),
        ("2026-01-31t00:00:00z", Start(kind="timestamp", timestamp_ms=1769817600000)),
        ("'2026-01-31T01:00:00.123+01:00'", Start(kind="timestamp", timestamp_ms=1769817600123)),
        ("2026-01-31 00:00:00Z", Start(kind="timestamp", timestamp_ms=1769817600000)),
        ("1769817600123", Start(kind="timestamp", timestamp_ms=1769817600123)),
        ("{0: 12, 3: 0}", Start(kind="offsets", offsets={None: {0: 12, 3: 0}})),
        ('{"0": 12}', Start(kind="offsets", offsets={None: {0: 12}})),
        ("{a: {0: 12}}", Start(kind="offsets", offsets={"a": {0: 12}})),
    ],
)
def test_a_start_is_a_word_a_time_or_offsets(load: Load, written: str, start: Start) -> None:
    assert load(with_table(f"start: {written}")).tables[0].source.start == start


@pytest.mark.parametrize(
    ("section", "uri", "warehouse"),
    [
        ("{}", "jdbc:sqlite:CWD/frazil-data/catalog.db", "CWD/frazil-data/warehouse"),
        ("{uri: 'jdbc:sqlite:x/c.db', warehouse: ./w}", "jdbc:sqlite:CWD/x/c.db", "CWD/w"),
        ("{uri: 'jdbc:sqlite:/x/c.db', warehouse: /w}", "jdbc:sqlite:/x/c.db", "/w"),
        ("{uri: 'jdbc:sqlite::memory:', warehouse: 'file:/w'}", "jdbc:sqlite::memory:", "file:/w"),
        ("{uri: 'jdbc:postgresql://h/d', warehouse: 's3://b/'}", "jdbc:postgresql://h/d", "s3://b/"),
        ("{type: jdbc, warehouse: w}", "jdbc:sqlite:CWD/frazil-data/catalog.db", "CWD/w"),
        ("{type: rest, uri: 'http://h'}", "http://h", None),
        ("{type: rest, uri: 'http://h', warehouse: w}", "http://h", "w"),
    ],
)
def test_local_places_of_a_jdbc_catalog_are_absolute(
    load: Load, working_directory: Path, section: str, uri: str, warehouse: str | None
) -> None:
    catalog = load(with_section(f"catalog: {section}")).catalog
    here = str(working_directory)
    assert (catalog.uri.replace(here, "CWD"), catalog.warehouse and catalog.warehouse.replace(here, "CWD")) == (
        uri,
        warehouse,
    )


REGISTRY = """registry:
  url: https://a:8081/, https://b/apis/ccompat/v7
  auth: {username: "${env:NAME}", password: plain}
  tls: {ca: certs/ca.pem, certificate: /c.pem, key: k.pem, key_password: "${env:PASSWORD}"}
  context: sales.eu
  naming: topic_record
  properties: {proxy: "http://proxy:3128", x: 1}
"""


def test_everything_of_the_registry_is_taken(load: Load, working_directory: Path) -> None:
    spec = load(with_section(REGISTRY), {"NAME": "reader", "PASSWORD": "opens"})
    assert spec.registry == RegistrySpec(
        urls=("https://a:8081", "https://b/apis/ccompat/v7"),
        auth=AuthSpec(username="reader", password="plain"),
        tls=TlsSpec(
            ca=f"{working_directory}/certs/ca.pem",
            certificate="/c.pem",
            key=f"{working_directory}/k.pem",
            key_password="opens",
        ),
        context="sales.eu",
        naming="topic_record",
        properties={"proxy": "http://proxy:3128", "x": "1"},
    )
    assert spec.file.secrets == {"reader", "plain", "opens"}


def test_a_registry_needs_only_an_address_and_none_is_none(load: Load) -> None:
    assert load(with_section("")).registry is None
    assert load(with_section("registry: {url: [http://a, http://b]}")).registry == RegistrySpec(
        urls=("http://a", "http://b"), auth=AuthSpec(), tls=TlsSpec(), context="", naming="topic", properties={}
    )
    token = load(with_section("registry: {url: '${env:URL}', auth: {token: t0ken}}"), {"URL": "https://a"})
    assert token.registry == RegistrySpec(urls=("https://a",), auth=AuthSpec(token="t0ken"))
    assert token.file.secrets == {"https://a", "t0ken"}


def test_an_alias_repeats_and_a_merge_key_inherits(load: Load) -> None:
    spec = load(
        f"{HEAD}tables:\n"
        "  a.b: &b {topic: x, start: latest, commit: &c {interval: 2s}}\n"
        "  a.c: {<<: *b, topic: y}\n"
        "  a.d: {topic: z, commit: *c}\n"
    )
    two_seconds = CommitSpec(interval_s=2.0)
    assert spec.tables == (
        TableSpec(
            name="a.b", topics=(TopicSelector(literal="x"),), start=Start(kind="latest"), commit=two_seconds, line=4
        ),
        TableSpec(
            name="a.c", topics=(TopicSelector(literal="y"),), start=Start(kind="latest"), commit=two_seconds, line=5
        ),
        TableSpec(name="a.d", topics=(TopicSelector(literal="z"),), commit=two_seconds, line=6),
    )


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm() -> None:
    Path("windows.yaml").write_bytes(b"\xef\xbb\xbf" + with_section("").replace("\n", "\r\n").encode())
    assert load_spec(Path("windows.yaml"), {}).tables[0].name == "shop.x"


def test_the_environment_is_the_process_s_own_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_TEST_MEMORY", "4g")
    Path("p.yaml").write_text(with_section("spark: {conf: {spark.driver.memory: '${env:FRAZIL_TEST_MEMORY}'}}"))
    assert load_spec(Path("p.yaml")).spark == SparkSpec(conf={"spark.driver.memory": "4g"})


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a: \xff", "the file is not UTF-8 (p.yaml:1); save it as UTF-8"),
        (b"a: 1\nb: \x00", "the file has a control character (p.yaml:2); remove the character"),
        (b"", "the pipeline file is empty (p.yaml:1); write at least pipeline, kafka and tables"),
        (b"# later\n", "the pipeline file is empty (p.yaml:1); write at least pipeline, kafka and tables"),
        (b"- a\n", "the pipeline file is not a mapping (p.yaml:1); begin with a line such as `pipeline: shop`"),
        (
            b"[" * 5000,
            "the pipeline file is nested too deeply (p.yaml:1); a pipeline file needs no more than ten levels",
        ),
        (
            b"a: &x [*x]",
            "the pipeline file is nested too deeply (p.yaml:1); a pipeline file needs no more than ten levels",
        ),
        (
            b"a: &x {<<: *x}",
            "the pipeline file is nested too deeply (p.yaml:1); a pipeline file needs no more than ten levels",
        ),
        (b"a" * (3 * 1024**2), "the pipeline file is larger than 2097152 bytes (p.yaml); split the pipeline"),
        (
            b"a: 1\nb: [1\nc: 2\n",
            "the YAML cannot be read: expected ',' or ']', but got ':' (p.yaml:3); "
            "close the bracket that opens in line 2, or look at the commas and quotes from there to this line",
        ),
        (
            b"a: 1\nb: {c: d\n\n",
            "the YAML cannot be read: expected ',' or '}', but got '<stream end>' (p.yaml:4); "
            "close the brace that opens in line 2, or look at the commas and quotes from there to this line",
        ),
        (
            b'a: "1\nb: c\n',
            "the YAML cannot be read: found unexpected end of stream (p.yaml:3); "
            "close the quote that opens in line 1, or look at the commas and quotes from there to this line",
        ),
        (
            b"a:\n\tb: 1\n",
            "the YAML cannot be read: this line is indented by a tab (p.yaml:2); indent it by spaces",
        ),
        (
            b"a:\n  b:\n    c: 1\n   d: 2\n",
            "the YAML cannot be read: this line is not indented as the keys above it (p.yaml:4); "
            "indent keys of one mapping alike, by spaces",
        ),
        (
            b"a:\n  b: 1\n   c: 2\n",
            "the YAML cannot be read: this line is indented more than the key above it, which has a value (p.yaml:3); "
            "indent keys of one mapping alike, by spaces",
        ),
        (
            b"a: 'b' c\n",
            "the YAML cannot be read: text follows a value in quotes or brackets (p.yaml:1); put the whole value in quotes",
        ),
        (
            b"a: 1\nb\nc: 2\n",
            "the YAML cannot be read: this key has no colon (p.yaml:2); write `key: value`",
        ),
        (
            b"a\nb: 1\n",
            "the YAML cannot be read: the key above this line has no colon (p.yaml:2); write `key: value`",
        ),
        (
            b"a: @b\n",
            "the YAML cannot be read: found character '@' that cannot start any token (p.yaml:1); "
            "put the whole value in quotes",
        ),
        (
            b"a: *b\n",
            "the YAML cannot be read: `*` begins an alias, and the file has none of this name (p.yaml:1); "
            "put the whole value in quotes",
        ),
        (
            b"a:\tb\n",
            "the YAML cannot be read: a tab is before a value (p.yaml:1); write a space in place of the tab",
        ),
        (
            b"a: 1\nb:\xc2\xa0c\n",
            "the YAML cannot be read: this line has a space of another kind, which is none to YAML (p.yaml:2); "
            "replace it by a plain space",
        ),
        (
            b"a: b: c\n",
            "the YAML cannot be read: a value has a colon (p.yaml:1); put the value in quotes",
        ),
        (
            b"kafka: {bootstrap.servers: b, sasl.password: ${env:X}}\n",
            "the YAML cannot be read: expected ',' or '}', but got '{' (p.yaml:1); "
            'put `${…}` in quotes inside braces and brackets, such as `{sasl.password: "${env:NAME}"}`',
        ),
        (
            b"a: 1\n---\nb: 2\n",
            "the YAML cannot be read: the file has a second document (p.yaml:2); "
            "remove the line `---` between the documents",
        ),
        (
            b"a: 1\nb: !env X",
            "a YAML tag (`!…`) that Frazil does not know (p.yaml:2); remove the tag, or quote the text",
        ),
        (
            b"tables:\n  a.b: {topic: x}\n  a.b: {topic: y}\n",
            "`a.b` occurs twice (p.yaml:3); keep one of them; the first is in line 2",
        ),
        (
            b'tables:\n  a.b: {topic: "x\\ud83d"}\n',
            "an escape that is half of a surrogate pair, which is not text (p.yaml:2); "
            "write both halves, or the character itself",
        ),
        *(
            (
                b"a: 1\nb: [" + number + b"]",
                "a number that begins with 0: some readers of YAML take it for octal, others for decimal (p.yaml:2); "
                "write it without the 0, or in quotes where it is text",
            )
            for number in (b"017", b"-01", b"0_7", b"00")
        ),
        (b"a: {b: {c: 1,\n  c: 2}}", "`c` occurs twice (p.yaml:2); keep one of them; the first is in line 1"),
    ],
)
def test_a_file_that_is_no_file_of_ours_is_refused(content: bytes, expected: str) -> None:
    path = Path("p.yaml")
    path.write_bytes(content)
    with pytest.raises(SpecError) as caught:
        load_spec(path, {})
    assert str(caught.value) == expected


def test_a_character_that_json_escapes_as_a_pair_is_one_character() -> None:
    columns = {"😀": "long", "plain": "string"}
    text = json.dumps({"pipeline": "p", "kafka": {"bootstrap.servers": "b:1"}, "tables": {"a.b": {"columns": columns}}})
    path = Path("p.yaml")
    path.write_text(text.replace('"columns"', '"topic": "t", "columns"'), encoding="ascii")
    (table,) = load_spec(path, {}).tables
    assert [column.name for column in table.shape.columns] == ["😀", "plain"]


def test_aliases_of_aliases_do_not_fill_the_memory() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    Path("p.yaml").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_spec(Path("p.yaml"), {})
    assert caught.value.message == "the file's aliases expand to too much"
