"""`frazil import …` as its users call it: exit codes, standard output, what is refused, and the remedies."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from confluent_kafka import KafkaException

from frazil.cli.main import main
from frazil.errors import UnavailableError
from frazil_migrate import adopt_commands
from frazil_migrate.imports import automq
from packages.migrate.tests.unit.imports import examples

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def given(tmp_path: Path) -> Callable[[str], str]:
    """A configuration as a file; its name."""

    def write(text: str) -> str:
        (tmp_path / "given").write_text(text)
        return str(tmp_path / "given")

    return write


def error(capsys: Captured) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)["error"]
    return found


def test_a_configuration_that_is_carried_over_whole_ends_with_0(given: Callable[[str], str], capsys: Captured) -> None:
    assert main(["import", "kafka-connect", given(json.dumps(examples.CONNECTOR)), "--bootstrap", "k:9092"]) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == (examples.draft_of("kafka-connect", "connector").read_text(), "")


def test_the_brokers_of_the_command_line_win_over_those_of_the_configuration(
    given: Callable[[str], str], capsys: Captured
) -> None:
    settings = {"connector.class": "org.apache.iceberg.connect.IcebergSinkConnector", "topics": "orders"}
    own = {"iceberg.tables": "shop.orders", "iceberg.kafka.bootstrap.servers": "inside:29092"}
    file = given(json.dumps({"name": "orders", **settings, **own}))
    main(["import", "kafka-connect", file])
    assert yaml.safe_load(capsys.readouterr().out)["kafka"] == {"bootstrap.servers": "inside:29092"}
    main(["import", "kafka-connect", file, "--bootstrap", "k:9092"])
    assert yaml.safe_load(capsys.readouterr().out)["kafka"] == {"bootstrap.servers": "k:9092"}


def test_what_is_not_carried_over_is_reported_and_ends_with_4(given: Callable[[str], str], capsys: Captured) -> None:
    file = given(json.dumps({**examples.UNWRAPPED, "iceberg.hadoop-conf-dir": "/etc/h"}))
    assert main(["import", "kafka-connect", file]) == 4
    shown = capsys.readouterr()
    line = "iceberg.hadoop-conf-dir: Hadoop's files are not read from there; write their properties under"
    assert f"not carried over: {line}" in shown.err
    assert f"#   {line}" in shown.out
    assert yaml.safe_load(shown.out)["kafka"] == {"bootstrap.servers": "localhost:9092"}
    assert main(["import", "kafka-connect", file, "--output", "json"]) == 4
    document = json.loads(capsys.readouterr().out)
    assert [sorted(loss) for loss in document["not_carried_over"]] == [["key", "reason", "remedy"]]
    assert document["pipeline_file"] == shown.out


@pytest.mark.parametrize("tool", examples.EXAMPLES)
def test_every_tool_is_read_from_standard_input(tool: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    for text in examples.EXAMPLES[tool].values():
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        assert main(["import", tool, "-"]) in (0, 4)
        assert yaml.safe_load(capsys.readouterr().out).keys() & {"tables", "routes"}


@dataclass
class Connect:
    """A Connect REST API with one connector."""

    url: str


@pytest.fixture
def connect() -> Iterator[Connect]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_known = self.path == "/connectors/orders"
            self.send_response(200 if is_known else 404)
            self.end_headers()
            self.wfile.write(json.dumps({**examples.CONNECTOR, "tasks": [], "type": "sink"}).encode())

        def log_message(self, *_: object) -> None:
            """Writes nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield Connect(f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_live_connector_is_read_and_one_that_is_not_there_refused(connect: Connect, capsys: Captured) -> None:
    url = f"{connect.url}/connectors/orders"
    assert main(["import", "kafka-connect", "--url", f"{url}x", "--output", "json"]) == 2
    assert error(capsys)["remedy"] == "name an address that answers"
    assert main(["import", "kafka-connect", "--url", url, "--bootstrap", "k:9092"]) == 0
    assert capsys.readouterr().out == examples.draft_of("kafka-connect", "connector").read_text()


@dataclass
class Cluster:
    """What AutoMQ's brokers answer: Apache Kafka's refuse its keys, so that a real one cannot be had."""

    topics: Mapping[str, Mapping[str, str]]

    def __call__(self, properties: Mapping[str, object]) -> Cluster:
        if properties["bootstrap.servers"] != "k:9092":
            raise KafkaException("no broker")
        return self

    def list_topics(self, timeout: float) -> SimpleNamespace:
        assert timeout > 0
        return SimpleNamespace(topics=self.topics, brokers={0: None})

    def describe_configs(self, resources: list[Any]) -> dict[Any, SimpleNamespace]:
        return {one: SimpleNamespace(result=lambda _timeout, name=one.name: self._entries(name)) for one in resources}

    def _entries(self, name: str) -> dict[str, SimpleNamespace]:
        keys = {**self.topics.get(name, {}), "automq.table.topic.expire.snapshot.retain.last": "1"}
        return {
            key: SimpleNamespace(value=value, is_default=key.endswith("retain.last")) for key, value in keys.items()
        }


def test_a_live_cluster_is_read(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    keys = {"automq.table.topic.enable": "true", "automq.table.topic.namespace": "shop", "retention.ms": "1"}
    monkeypatch.setattr(automq, "AdminClient", Cluster({"orders": keys, "plain": {}, "__own": keys}))
    assert main(["import", "automq", "--bootstrap", "nobody:1", "--output", "json"]) == 2
    assert error(capsys)["remedy"] == "name a broker that answers"
    assert main(["import", "automq", "--bootstrap", "k:9092"]) == 0
    found = yaml.safe_load(capsys.readouterr().out)
    assert found["tables"] == {"shop.orders": {"topic": "orders", "value": {"format": "raw"}}}
    assert found["kafka"] == {"bootstrap.servers": "k:9092"}


@pytest.mark.parametrize(
    ("tool", "wrong", "remedy", "right"),
    [
        ("kafka-connect", "{", "correct the JSON", json.dumps(examples.UNWRAPPED)),
        ("kafka-connect", "[1]", "give a mapping of settings to values", json.dumps(examples.UNWRAPPED)),
        (
            "kafka-connect",
            json.dumps({name: {"info": examples.CONNECTOR} for name in ("a", "b")}),
            "give one of them: a pipeline file is made of one connector",
            json.dumps({"a": {"info": examples.CONNECTOR}}),
        ),
        (
            "kafka-connect",
            json.dumps([examples.CONNECTOR, examples.CONNECTOR]),
            "give one of them alone",
            json.dumps([examples.CONNECTOR]),
        ),
        (
            "kafka-connect",
            "kind: KafkaConnect\nspec: {replicas: 1}\n",
            "give one of KafkaConnector, Connector, or the settings alone",
            "kind: KafkaConnector\nspec: {config: {topics: orders, iceberg.tables: shop.orders}}\n",
        ),
        (
            "kafka-connect",
            json.dumps({**examples.UNWRAPPED, "connector.class": "io.confluent.connect.s3.S3SinkConnector"}),
            "give the configuration of the sink",
            json.dumps({**examples.UNWRAPPED, "connector.class": "io.tabular.iceberg.connect.IcebergSinkConnector"}),
        ),
        (
            "debezium-server",
            json.dumps(examples.UNWRAPPED),
            "give a configuration of it, in a form that `frazil import debezium-server --help` names",
            examples.CAPTURED,
        ),
        (
            "debezium-server",
            f"{examples.CAPTURED}debezium.format.value=avro\n",
            "keep one of them: tools take the last",
            examples.CAPTURED,
        ),
        ("debezium-server", "warehouse", "write settings as `key=value`, or as JSON", examples.CAPTURED),
        (
            "automq",
            "kafka-topics.sh --topic orders --config 'automq.table.topic.enable=true",
            "close the quotation mark",
            "kafka-topics.sh --topic orders --config 'automq.table.topic.enable=true'",
        ),
        ("flink-cdc", "a: [", "correct the YAML", examples.FLINK_CDC),
        (
            "flink-cdc",
            "route: [db.orders]\nsource: {type: mysql, tables: db.orders}\n",
            "write it as a mapping, such as `{source-table: db.orders}`",
            examples.FLINK_CDC,
        ),
        (
            "tableflow",
            '[{"topic_name": "orders", "kafka_cluster": "a"}, {"topic_name": "orders", "kafka_cluster": "b"}]',
            "give each topic once: a pipeline reads one cluster",
            '[{"topic_name": "orders", "kafka_cluster": "a"}]',
        ),
        ("flink-sql", "CREATE CATALOG a WITH (", "correct the SQL", examples.FLINK_SQL),
        (
            "flink-sql",
            "SELECT 1;",
            "give the script with the CREATE TABLE and INSERT INTO statements",
            examples.FLINK_SQL,
        ),
        (
            "auto-cdc",
            "CREATE STREAMING TABLE t AS SELECT 1; -- without AUTO CDC",
            "give the file that has `CREATE FLOW … AS AUTO CDC INTO`, or `create_auto_cdc_flow(…)`",
            examples.AUTO_CDC,
        ),
        (
            "auto-cdc",
            "import dlt\ndlt.apply_changes(",
            "correct it, or give the file that has the flow",
            examples.AUTO_CDC,
        ),
        (
            "automq",
            "automq.table.topic.enable=true",
            "give the configuration of a table topic; --topic names the topic of plain properties",
            examples.TOPICS,
        ),
    ],
)
def test_a_configuration_that_cannot_be_read_is_refused_until_its_remedy_is_done(
    tool: str, wrong: str, remedy: str, right: str, given: Callable[[str], str], capsys: Captured
) -> None:
    assert main(["import", tool, given(wrong), "--output", "json"]) == 2
    assert error(capsys)["remedy"] == remedy
    assert main(["import", tool, given(right)]) in (0, 4)


def test_where_the_configuration_comes_from_is_named_once(given: Callable[[str], str], capsys: Captured) -> None:
    file = given("automq.table.topic.enable=true")
    assert main(["import", "kafka-connect", "--output", "json"]) == 2
    assert error(capsys)["remedy"] == "give one of FILE and --url"
    assert main(["import", "automq", "--output", "json"]) == 2
    assert error(capsys)["remedy"] == "give FILE, or --bootstrap"
    assert main(["import", "tableflow", f"{file}x", "--output", "json"]) == 2
    assert error(capsys)["remedy"] == "name a file in UTF-8 that can be read"
    assert main(["import", "automq", file, "--topic", "orders"]) == 0
    assert list(yaml.safe_load(capsys.readouterr().out)["tables"]) == ["default.orders"]


def test_a_missing_option_and_its_choices_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["adopt", "--output", "json"]) == 2
    message = json.loads(capsys.readouterr().out)["error"]["message"]
    assert message.startswith("Missing option '--from'. Choose from: kafka-connect, spark, automq, ")


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("adopt --from spark", "give --checkpoint, or --offsets"),
        ("adopt --from group", "give --group, or --offsets"),
        ("adopt --from flink --columns a", "write --columns PARTITION,OFFSET or TOPIC,PARTITION,OFFSET"),
        ("release s.a --to spark", "give --checkpoint with a folder that is empty"),
        ("release s.a --to group", "give --group; Kafka Connect's is connect-CONNECTOR"),
        ("release s.a --to flink", "release the table to a group; Flink starts from it with `scan.startup.mode`"),
        ("adopt --from kafka-connect --checkpoint c", "leave out --checkpoint"),
        ("adopt --from spark --checkpoint c --group g", "leave out --group"),
        ("adopt --from flink --group g --offsets o", "leave out --group"),
        ("adopt --from spark --checkpoint c --offsets o", "leave one of the two out"),
        ("adopt --from group --group g --columns a,b", "leave one of the two out"),
        ("adopt --from flink --offsets o --columns a,b", "leave one of the two out"),
        ("release s.a --to group --group g --checkpoint c", "leave out --checkpoint"),
        ("release s.a --to spark --checkpoint c --group g", "leave out --group"),
    ],
)
def test_a_missing_or_useless_argument_is_named_before_a_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, remedy: str
) -> None:
    file = tmp_path / "frazil.yaml"
    file.write_text('pipeline: p\nkafka: {bootstrap.servers: "localhost:1"}\ntables: {s.a: {topic: a}}\n')
    assert main([*words.split(), "--file", str(file), "--output", "json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["remedy"].startswith(remedy)


@pytest.mark.parametrize(
    "words",
    [
        "adopt --from kafka-connect",
        "adopt --from spark --checkpoint c",
        "adopt --from spark --offsets o",
        "adopt --from group --group g",
        "adopt --from flink --columns a,b",
        "release s.a --to group --group g",
        "release s.a --to spark --checkpoint c",
    ],
)
def test_without_the_useless_argument_the_command_asks_a_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    def answer(_: object) -> None:
        raise UnavailableError("Kafka does not answer")

    monkeypatch.setattr(adopt_commands, "topics_for_reading", answer)
    file = tmp_path / "frazil.yaml"
    file.write_text('pipeline: p\nkafka: {bootstrap.servers: "localhost:1"}\ntables: {s.a: {topic: a}}\n')
    assert main([*words.split(), "--file", str(file), "--output", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["message"] == "Kafka does not answer"
