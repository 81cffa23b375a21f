"""Configurations of other tools made into a pipeline file: a table of answers and a reader for each tool."""

from frazil_migrate.imports.auto_cdc import AUTO_CDC
from frazil_migrate.imports.automq import AUTOMQ
from frazil_migrate.imports.debezium_server import DEBEZIUM_SERVER
from frazil_migrate.imports.flink_cdc import FLINK_CDC
from frazil_migrate.imports.flink_sql import FLINK_SQL
from frazil_migrate.imports.kafka_connect import KAFKA_CONNECT
from frazil_migrate.imports.tableflow import TABLEFLOW

TOOLS = (KAFKA_CONNECT, AUTOMQ, FLINK_CDC, FLINK_SQL, DEBEZIUM_SERVER, TABLEFLOW, AUTO_CDC)
"""The tools whose configurations can be imported."""
