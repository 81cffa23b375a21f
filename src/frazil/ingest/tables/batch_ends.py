"""Ends of batches that are not where the planner would end them: at the end of a transaction. A package finds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from frazil.kafka.port import Partition
from frazil.types import OffsetRange

if TYPE_CHECKING:
    from frazil.ingest.tables.table import Planned


@dataclass(frozen=True)
class Cut:
    """The end of a table's next batch."""

    #: The offsets at which the batch begins; the cut applies to no other position.
    position: Mapping[str, Mapping[int, int]]
    #: The offsets of the batch.
    ranges: tuple[OffsetRange, ...]
    #: The place of the newest change before the end, by topic and partition, of a table with `atomic: transaction`.
    places: Mapping[str, Mapping[int, str]]


@dataclass(frozen=True)
class Waiting:
    """A wait for records that the next batch must have, such as the rest of a transaction."""

    #: The table's offsets, from which no batch can end yet.
    position: Mapping[str, Mapping[int, int]]
    #: The ends up to which this was found.
    ends: Mapping[Partition, int]
    #: When the search is repeated although no record has arrived, on the monotonic clock in seconds.
    until_s: float
    #: Seconds between the last search and `until_s`.
    pause_s: float
    #: Whether a run with `--until-caught-up` waits as well, and does not leave the records to the next run.
    keeps_run: bool = False


class BatchEnds(Protocol):
    """Finds the ends of batches for the tables of one process; used by one thread at a time."""

    def find_cut(self, planned: Planned) -> Cut | None:
        """Returns the end of the batch at which its table shows no part of a transaction, or None when there is no such
        end yet. The end may be behind that of the planned batch, where a transaction is larger.

        Raises:
            SpecError: nothing in the topic shows where its transactions end.
            RecordError: a change lacks its transaction or its position.
            TableStopped: a transaction is too large.
            UnavailableError: Kafka or the registry does not answer.
        """
