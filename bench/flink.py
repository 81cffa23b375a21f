"""Flink SQL doing a query's job, as a careful user would write and tune it: `python -m bench.flink JOB.json`.

It knows nothing of Frazil's data path: Flink's source of Kafka with its JSON format, one INSERT statement, Iceberg's sink.
All of it is Java; Python only hands the statements over.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from bench.records import SCHEMA
from frazil.runtime.java import find_java
from tests.fixtures.fetching import installed

_JARS = Path(__file__).with_name("flink-ivy.xml")
_KINDS = {"long": "bigint"}
# What Flink needs of Java's own packages (its `conf/config.yaml`).
_OPEN = (
    "java.base/java.lang",
    "java.base/java.util",
    "java.base/java.nio",
    "java.base/java.time",
    "java.base/sun.nio.ch",
)
_CHECKPOINTS = {
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "pipeline.object-reuse": "true",
    "parallelism.default": "2",
    "table.dml-sync": "true",
}


def statements(job: dict[str, Any]) -> list[str]:
    """The statements of a job: its catalog, its topic, its table, and the query that fills it."""
    columns = ", ".join(f"`{name}` {_KINDS.get(kind, kind)}" for name, kind in job.get("records", SCHEMA).items())
    source = {
        "connector": "kafka",
        "topic": job["topic"],
        "properties.bootstrap.servers": job["bootstrap"],
        "properties.group.id": "flink",
        "properties.max.poll.records": "10000",
        "properties.max.partition.fetch.bytes": str(4 << 20),
        "properties.fetch.max.bytes": str(64 << 20),
        "scan.startup.mode": "earliest-offset",
        **({"scan.bounded.mode": "latest-offset"} if job.get("bounded", True) else {}),
        "format": "json",
    }
    catalog = {
        "type": "iceberg",
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:sqlite:{job['catalog']}",
        "warehouse": f"{job['folder']}/warehouse",
        "jdbc.schema-version": "V1",
    }
    return [
        f"create temporary table records ({columns}) with ({_options(source)})",
        f"create catalog lake with ({_options(catalog)})",
        "create database lake.bench",
        f"create table lake.bench.t ({job['columns']})"
        f" with ({_options({'format-version': '2', 'write.parquet.compression-codec': 'zstd', **job.get('options', {})})})",
        f"insert into lake.bench.t {job['select']}",
    ]


def _options(options: dict[str, str]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in options.items())


def main() -> None:
    """Runs the job to the end of its topic, or, of a topic without an end, until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    job = json.loads(Path(sys.argv[1]).read_text())
    hadoop = sorted((Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar"))
    jars = [*sorted((installed(_JARS) / "flink").glob("*.jar")), *hadoop]
    options = [f"-Xmx{job['heap']}", "-XX:+UseParallelGC", *(f"--add-opens={name}=ALL-UNNAMED" for name in _OPEN)]
    port, token = launch_gateway(
        classpath=":".join(map(str, jars)),
        javaopts=options,
        java_path=str(find_java().path),
        die_on_exit=True,
        enable_auth=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
    api = gateway.jvm.org.apache.flink.table.api
    tables = api.TableEnvironment.create(api.EnvironmentSettings.newInstance().inStreamingMode().build())
    checkpoints = {**_CHECKPOINTS, "execution.checkpointing.interval": job.get("checkpoint", "10 s")}
    for name, value in checkpoints.items():
        tables.getConfig().set(name, value)
    *before, insert = statements(job)
    for statement in before:
        tables.executeSql(statement)
    sys.stderr.write("batch_planned\n")
    tables.executeSql(insert)
    gateway.shutdown()


if __name__ == "__main__":
    main()
