"""Tables as a user's own Spark reads them: a session without anything of Frazil, by docs/how-to/query.md."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from frazil.clock import new_id
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.jars import jars
from tests.fixtures.processes import plain_environment
from tests.integration.pipelines import Ledger, Pipeline

_QUERY = """
import json, sys
from pyspark.sql import SparkSession

folder, jars, query = sys.argv[1:]
lake = "spark.sql.catalog.frazil"
settings = {
    "spark.jars": jars,
    "spark.ui.enabled": "false",
    lake: "org.apache.iceberg.spark.SparkCatalog",
    f"{lake}.type": "jdbc",
    f"{lake}.uri": f"jdbc:sqlite:{folder}/catalog.db",
    f"{lake}.warehouse": f"{folder}/warehouse",
    f"{lake}.jdbc.schema-version": "V1",
}
builder = SparkSession.Builder().master("local[2]")
for name, value in settings.items():
    builder = builder.config(name, value)
print(json.dumps([row.asDict() for row in builder.getOrCreate().sql(query).collect()]))
"""


def test_spark_reads_every_column_of_a_table_whose_metadata_columns_have_names_of_their_own(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    ledger = Ledger(broker.bootstrap_servers, new_id(), 1)
    ledger.produce(100)
    metadata = {"topic": "kafka_topic", "partition": "kafka_partition", "offset": "kafka_offset"}
    document = {
        "pipeline": "query",
        "kafka": {"bootstrap.servers": ledger.servers},
        "tables": {"q.t": {"topic": ledger.topic, "metadata": metadata}},
    }
    Pipeline(tmp_path, document).run()
    command = [sys.executable, "-c", _QUERY, str(tmp_path / "frazil-data"), ",".join(map(str, jars("spark")))]
    query = "select * from frazil.q.t order by kafka_offset"
    alone = plain_environment()
    answer = subprocess.run([*command, query], env=alone, capture_output=True, text=True, timeout=240, check=True)
    rows = json.loads(answer.stdout.splitlines()[-1])
    assert len(rows) == 100
    assert rows[7] == {
        "number": 7,
        "word": "w7",
        "half": 3.5,
        "kafka_topic": ledger.topic,
        "kafka_partition": 0,
        "kafka_offset": 7,
    }
