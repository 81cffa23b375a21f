"""Spark Structured Streaming: a query's checkpoint folder, and its epochs in the summaries of the table.

Batch N writes `offsets/N` before it begins and `commits/N` after it is done; in between, Iceberg's sink commits a snapshot
with the query's id and N (`spark.sql.streaming.queryId`, `.epochId`). So the table's newest epoch, not the newest commit
file, names the offsets that the table has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from frazil.clock import new_id
from frazil.ingest.failures import TableStopped
from frazil.kafka.port import Partition
from frazil.types import Offsets, by_partition, dump_offsets, load_offsets
from frazil_migrate.adopt.offsets import Services, SourceOffsets

_QUERY, _EPOCH = "spark.sql.streaming.queryId", "spark.sql.streaming.epochId"
_FOLDER_REMEDY = "name a folder of this machine with the query's metadata, offsets and commits, or give --offsets"
_VERSION = "v1"


def find_progress(services: Services, table: str, checkpoint: Path) -> SourceOffsets:
    """Returns how far the query with this checkpoint has read that has written a loaded table.

    Raises: TableStopped where the folder is not a checkpoint of a query that has written the table.
    """
    try:
        query = json.loads((checkpoint / "metadata").read_text())["id"]
        batches = (int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal())
        commits = max(batches, default=-1)
        summaries = services.catalog.summaries(table)
        epoch = next((int(summary[_EPOCH]) for summary in summaries if summary.get(_QUERY) == query), None)
        if epoch is None or epoch < commits:
            raise TableStopped(
                f"the table has batch {'none' if epoch is None else epoch} of the query, and its checkpoint {commits}",
                "name the checkpoint of the query that writes the table by `format(iceberg)`, or give --offsets",
                str(checkpoint),
            )
        return SourceOffsets(
            _offsets_of(checkpoint / "offsets" / str(epoch)), f"checkpoint {checkpoint}, batch {epoch}"
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TableStopped(f"the checkpoint cannot be read: {error}", _FOLDER_REMEDY, str(checkpoint)) from None


def write_checkpoint(checkpoint: Path, offsets: Offsets) -> None:
    """Makes a checkpoint of a query that has read up to these offsets.

    Raises: TableStopped where it cannot be written.
    """
    batch = "\n".join([_VERSION, json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}})])
    files = {
        "metadata": json.dumps({"id": new_id()}),
        "offsets/0": f"{batch}\n{dump_offsets(offsets)}",
        "commits/0": f"{_VERSION}\n{json.dumps({'nextBatchWatermarkMs': 0})}",
    }
    try:
        for name, text in files.items():
            path = checkpoint / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    except OSError as error:
        raise TableStopped(f"the checkpoint cannot be written: {error}", _FOLDER_REMEDY, str(checkpoint)) from None


def _offsets_of(file: Path) -> dict[Partition, int]:
    """Returns the offsets of the only Kafka source of a batch. The file has a version, a line about the batch, and a line
    for each source (Spark's OffsetSeqLog).

    Raises: ValueError for another form, or several sources.
    """
    version, _, *sources = file.read_text().splitlines()
    if version != _VERSION or len(sources) != 1:
        raise ValueError(f"batch {file.name} is of version {version}, with {len(sources)} sources")
    offsets_by_topic: Any = json.loads(sources[0])
    if not isinstance(offsets_by_topic, Mapping) or not all(
        isinstance(partition_offsets, Mapping) for partition_offsets in offsets_by_topic.values()
    ):
        raise ValueError(f"the source of batch {file.name} is not Kafka")
    return by_partition(load_offsets(sources[0]))
