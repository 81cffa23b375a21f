"""How far Kafka Connect's Iceberg sink has read, and what it has not added to its tables yet.

Its source offsets are those of a consumer group; files that a table does not have yet are named in the control topic.

A worker commits group offsets and the files of these records in one transaction, the coordinator adds the files to the
table afterwards. So the group is exactly what the table has once no file is left in the control topic beyond the position
that the table's newest snapshot of the sink names (`kafka.connect.offsets.<control topic>.<group>`).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import fastavro

from frazil.errors import UnavailableError
from frazil.ingest.failures import TableStopped
from frazil.kafka.port import Partition, ReadRecord
from frazil.printable import plural
from frazil.types import OffsetRange
from frazil_migrate.adopt.offsets import Services, SourceOffsets, read_group

_KEY = "kafka.connect.offsets."
_MAGIC = b"\xc2\x01"
_DATA_WRITTEN = 1


@dataclass(frozen=True)
class Sink:
    """A connector, as a table's snapshots name it."""

    control_topic: str
    #: The consumer group with the offsets of the topics that it reads.
    group: str
    #: Per partition of the control topic, the first event that the table may not have.
    position: Mapping[int, int]

    @property
    def key(self) -> str:
        """The summary key of its position."""
        return f"{_KEY}{self.control_topic}.{self.group}"


def find_sink(services: Services, table: str, group: str | None) -> Sink | None:
    """Returns the connector whose position a snapshot of a loaded table has, the one with this group if any is named; None
    where there is none.

    Raises: TableStopped where there are several.
    """
    positions: dict[str, str] = {}
    for summary in services.catalog.summaries(table):
        snapshot_positions = {name.removeprefix(_KEY): text for name, text in summary.items() if name.startswith(_KEY)}
        positions = {**snapshot_positions, **positions}
    # Topics and groups may have dots: the longest topic that exists is taken.
    topics = services.source.topics(lambda topic: any(name.startswith(f"{topic}.") for name in positions))
    sinks = []
    for name, text in positions.items():
        topic = max((candidate for candidate in topics if name.startswith(f"{candidate}.")), key=len, default="")
        topic = name.removesuffix(f".{group}") if group and name.endswith(f".{group}") else topic
        if topic in topics:
            position = {int(partition): int(offset) for partition, offset in json.loads(text).items()}
            sinks.append(Sink(topic, name.removeprefix(f"{topic}."), position))
    mine = [sink for sink in sinks if group in (None, sink.group)]
    if len(mine) > 1:
        raise TableStopped(
            f"several connectors have written the table: {', '.join(sorted(sink.group for sink in mine))}",
            "name the group of one of them with --group",
            table,
        )
    return mine[0] if mine else None


def find_progress(services: Services, table: str, group: str | None, partitions: Iterable[Partition]) -> SourceOffsets:
    """Returns how far the connector has read that has written a loaded table.

    Raises: TableStopped where the connector is running, or has written files that the table does not have.
    """
    sink = find_sink(services, table, group)
    if sink is None and not any(True for _ in services.catalog.summaries(table)):
        # Its group may be ahead all the same: continued there, the first records would be in no table.
        raise TableStopped(
            "the table has no snapshot: the sink has created it, and not committed yet",
            "start the connector, wait for its first commit, PUT /connectors/NAME/pause, and stop it; or delete the"
            " connector, and run without `frazil adopt`",
            table,
        )
    if sink is None:
        raise TableStopped(
            "no snapshot of the table is of Kafka Connect's sink with an existing control topic",
            "name another tool with --from, such as group with the sink's --group",
            table,
        )
    source_offsets = read_group(services, sink.group, partitions)
    files = sum(_files_of(event, sink, table) for event in _pending_events(services, sink))
    if files:
        raise TableStopped(
            f"the sink has written {plural(files, 'file')} not in the table yet",
            "start the connector, PUT /connectors/NAME/pause, wait for its next commit, and stop it",
            f"topic {sink.control_topic}",
        )
    return source_offsets


def control_ends(services: Services, sink: Sink) -> dict[int, int]:
    """Returns the end of each partition of the control topic: events before it are none for a table with this position.

    Raises: UnavailableError where one has no leader now.
    """
    described = services.source.topics(sink.control_topic.__eq__)
    count = described[sink.control_topic].partition_count if described else 0
    ends = services.source.ends([(sink.control_topic, number) for number in range(count)])
    if len(ends) < count:
        raise UnavailableError(
            "a partition of the control topic has no leader",
            remedy="wait until its broker is back, and run the command again",
            where=f"topic {sink.control_topic}",
        )
    return {number: end for (_, number), end in ends.items()}


def _pending_events(services: Services, sink: Sink) -> Iterator[Mapping[str, Any]]:
    """Yields the events of the control topic that the table may not have."""
    ends = control_ends(services, sink)
    first = services.source.beginnings([(sink.control_topic, number) for number in ends])
    # Before version 1.11, a partition without files in a commit is not in its position.
    seen = {
        number: group_offset.offset
        for (_, number), group_offset in services.group(f"{sink.group}-coord").offsets(first).items()
    }
    for number, end in ends.items():
        start = max(sink.position.get(number, seen.get(number, 0)), first.get((sink.control_topic, number), 0))
        if start < end:
            for records in services.reader.batches(OffsetRange(sink.control_topic, number, start, end)):
                yield from (_decoded(record) for record in records if record.value)


def _decoded(record: ReadRecord) -> Mapping[str, Any]:
    """Returns the event that a record of the control topic has.

    Raises: TableStopped for the record of another writer.
    """
    try:
        event = decode_event(record.value or b"")
        if event["type"] == _DATA_WRITTEN:
            _ = (event["group_id"], event["payload"]["table_reference"], event["payload"]["data_files"])
    except Exception:  # noqa: BLE001  (whatever foreign bytes make of the decoder)
        raise TableStopped(
            "a record of the control topic is not an event of the sink",
            "name another tool with --from, such as group with the sink's --group",
            f"topic {record.topic}, partition {record.partition}, offset {record.offset}",
        ) from None
    return event


def _files_of(event: Mapping[str, Any], sink: Sink, table: str) -> int:
    """Returns the number of files with rows that an event names for the table."""
    if event["type"] != _DATA_WRITTEN or event["group_id"] != sink.group:
        return 0
    payload = event["payload"]
    reference = payload["table_reference"]
    if ".".join([*reference["namespace"], reference["name"]]) != table:
        return 0
    files = [*(payload["data_files"] or ()), *(payload["delete_files"] or ())]
    return sum(file["record_count"] > 0 for file in files)


def decode_event(value: bytes) -> Mapping[str, Any]:
    """Returns an event of the control topic: Avro behind its own schema (Iceberg's AvroEncoderUtil)."""
    (length,) = struct.unpack_from(">H", value, len(_MAGIC))
    start = len(_MAGIC) + 2
    schema = json.loads(value[start : start + length])
    event = fastavro.schemaless_reader(BytesIO(value[start + length :]), _without_namespaces(schema), None)
    assert isinstance(event, dict)
    return event


def _without_namespaces(schema: Any) -> Any:
    """Returns an Avro schema in which every type has a simple name. The sink's own ones name types without a namespace from
    inside of one, which the Avro specification ("Names") does not allow.
    """
    match schema:
        case str():
            return schema.rpartition(".")[2]
        case list():
            return [_without_namespaces(branch) for branch in schema]
    kept = {name: value for name, value in schema.items() if name != "namespace"}
    return kept | {name: _without_namespaces(kept[name]) for name in ("type", "items", "fields") if name in kept}
