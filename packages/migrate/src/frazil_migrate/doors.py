"""What the package adds to Frazil, by its entry points."""

from frazil.cli.commands import Command

ADOPT = Command("adopt", "frazil_migrate.adopt_commands:adopt", "Continue tables that another tool has written.")
RELEASE = Command("release", "frazil_migrate.adopt_commands:release", "Give a table back to another tool.")


def _import(tool: str, source: str) -> Command:
    target = f"frazil_migrate.import_commands:{tool.replace('-', '_')}"
    return Command(f"import {tool}", target, f"Turn {source} into a pipeline file.")


IMPORT_KAFKA_CONNECT = _import("kafka-connect", "a connector of Kafka Connect's Iceberg sink")
IMPORT_AUTOMQ = _import("automq", "AutoMQ's table topics")
IMPORT_FLINK_CDC = _import("flink-cdc", "a pipeline of Flink CDC")
IMPORT_FLINK_SQL = _import("flink-sql", "a script of Flink SQL")
IMPORT_DEBEZIUM_SERVER = _import("debezium-server", "Debezium Server's configuration")
IMPORT_TABLEFLOW = _import("tableflow", "topics of Confluent Tableflow")
IMPORT_AUTO_CDC = _import("auto-cdc", "AUTO CDC flows of declarative pipelines")

_TOPIC = "frazil_migrate.topic_commands"
TOPIC_SET = Command("topic set", f"{_TOPIC}:set_keys", "Set AutoMQ table-topic keys on a topic.")
TOPIC_UNSET = Command("topic unset", f"{_TOPIC}:unset", "Remove AutoMQ table-topic keys of a topic.")
TOPIC_SHOW = Command("topic show", f"{_TOPIC}:show", "Show the AutoMQ table-topic keys of topics.")
