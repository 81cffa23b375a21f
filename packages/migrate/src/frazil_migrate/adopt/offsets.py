"""What another tool has recorded of a table: how far it has read, and where it keeps that."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from frazil.catalog.port import Catalog
from frazil.ingest.failures import TableStopped
from frazil.kafka.port import Group, Partition, RecordReader, Source
from frazil.types import by_partition, load_offsets

_FILE_REMEDY = 'write the next offset of every partition as JSON: {"TOPIC": {"0": 1200}}'


@dataclass(frozen=True)
class SourceOffsets:
    """How far another tool has read for a table."""

    #: The next offset by partition; a partition that is missing was never read.
    offsets: Mapping[Partition, int]
    #: Where it was found.
    place: str


@dataclass(frozen=True)
class Services:
    """What progress is read from and written to."""

    catalog: Catalog
    source: Source
    reader: RecordReader
    #: Returns the consumer group of a name.
    group: Callable[[str], Group]


def read_offsets(file: Path, partitions: Iterable[Partition]) -> SourceOffsets:
    """Returns the offsets that a file has as JSON, topic → partition → next offset.

    Raises: TableStopped where it has none for one of `partitions`.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")  # Editors of Windows write a mark at the beginning.
        # `int` would make a whole number of one that is none.
        for name, values in json.loads(text).items():
            for number, offset in values.items():
                if isinstance(offset, bool) or not re.fullmatch(r"\d+", str(offset)):
                    raise ValueError(f"`{offset}` is not an offset: topic {name}, partition {number}")
        offsets = by_partition(load_offsets(text))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise TableStopped(f"the offsets cannot be read: {error}", _FILE_REMEDY, str(file)) from None
    missing = sorted(set(partitions) - offsets.keys())
    if missing:
        topic, partition = missing[0]
        raise TableStopped("a partition has no offset", _FILE_REMEDY, f"topic {topic}, partition {partition}")
    return SourceOffsets(offsets, f"file {file}")


def read_group(services: Services, name: str, partitions: Iterable[Partition]) -> SourceOffsets:
    """Returns the offsets of these partitions that a consumer group has committed.

    Raises: TableStopped where the group has members or no such offset; UnavailableError where Kafka does not answer.
    """
    refuse_members(services.group(name))
    offsets = {place: group_offset.offset for place, group_offset in services.group(name).offsets(partitions).items()}
    if not offsets:
        raise TableStopped(
            "the group has no offset of the table's topics: it is another one, or Kafka has forgotten them",
            "name the tool's group with --group, or give --offsets",
            f"group {name}",
        )
    return SourceOffsets(offsets, f"group {name}")


def refuse_members(group: Group) -> None:
    """Raises TableStopped where a consumer is a member of the group."""
    if group.is_live():
        raise TableStopped(
            "the group has members: the tool is still running",
            "stop it, and wait until its group is empty; Kafka Connect: PUT /connectors/NAME/stop",
            f"group {group.name}",
        )
