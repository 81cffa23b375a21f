"""Checks rows by partition and offset, where a table has these columns: no other column is read, and no record decoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from frazil.ledger import Ledger
from frazil_verify.findings import Finding, Kind
from frazil_verify.independent.matching import NOWHERE, Ints, doubled, runs_of
from frazil_verify.independent.topic import Range


@dataclass(frozen=True)
class PlacedRows:
    """The places that the rows of a table name. Arrays have the shape `(n_rows,)`."""

    #: The number of each row's partition among `partitions`.
    numbers: Ints
    #: The offset of each row's record, NOWHERE for a row without one.
    offsets: Ints
    #: Topic and partition by number.
    partitions: Sequence[tuple[str, int]]


@dataclass(frozen=True)
class Expected:
    """What the rows must cover."""

    #: The offsets that the table has read.
    ranges: Sequence[Range]
    #: Offsets of records that are dead letters, by topic and partition.
    dead: Mapping[tuple[str, int], Ints]
    #: The ledger of the commits that have read these ranges; None where it does not cover them all.
    ledger: Ledger | None = None
    #: Whether a record may have several rows, or none, by its own contents.
    is_inexact: bool = False
    #: The number of bad records that were skipped.
    skipped: int = 0


def check_places(rows: PlacedRows, expected: Expected) -> Iterator[Finding]:
    """Yields repeated rows, rows of offsets that no commit has read, and offsets without a row."""
    if not expected.is_inexact:
        for index in doubled(rows.numbers, rows.offsets).tolist():
            topic, partition = rows.partitions[int(rows.numbers[index])]
            yield _at(Kind.DOUBLED, topic, partition, int(rows.offsets[index]), "is in the table more than once")
    known = {(wanted.topic, wanted.partition): wanted for wanted in expected.ranges}
    for number, place in enumerate(rows.partitions):
        own = rows.offsets[(rows.numbers == number) & (rows.offsets != NOWHERE)]
        wanted = known.get(place, Range(*place, 0, 0))
        for offset in np.unique(own[(own < wanted.start) | (own >= wanted.end)]).tolist():
            yield _at(Kind.INVENTED, *place, offset, "is a row, and no commit has read that offset")
    yield from _missing(rows, expected)


def missing_offsets(rows: PlacedRows, expected: Expected) -> dict[tuple[str, int], Ints]:
    """Returns the offsets that are neither a row nor a dead letter, by topic and partition, ascending."""
    numbers = {place: number for number, place in enumerate(rows.partitions)}
    missing = {}
    for wanted in expected.ranges:
        place = (wanted.topic, wanted.partition)
        own = rows.offsets[rows.numbers == numbers.get(place, NOWHERE)]
        covered = np.concatenate([own, expected.dead.get(place, np.zeros(0, np.int64))])
        is_missing = np.ones(wanted.end - wanted.start, np.bool_)
        inside = covered[(covered >= wanted.start) & (covered < wanted.end)] - wanted.start
        is_missing[inside] = False
        missing[place] = np.flatnonzero(is_missing) + wanted.start
    return missing


def _missing(rows: PlacedRows, expected: Expected) -> Iterator[Finding]:
    """Yields offsets without a row, unless dropped records and gaps of the topic account for all of them."""
    ledger = expected.ledger
    if expected.is_inexact or ledger is None:
        return
    missing = missing_offsets(rows, expected)
    count = sum(offsets.size for offsets in missing.values())
    # Not `ledger.offsets`, which leaves out those whose records Kafka deleted before they were read.
    covered = sum(wanted.end - wanted.start for wanted in expected.ranges)
    allowed = covered - ledger.records + ledger.dropped + expected.skipped
    if count == allowed:
        return
    if allowed:
        text = f"{count} offsets have neither a row nor a dead letter, and the ledger has {allowed} of them"
        yield Finding(Kind.MISSING if count > allowed else Kind.INVENTED, text)
        return
    for (topic, partition), offsets in missing.items():
        for start, end in runs_of(offsets):
            finding = Finding(Kind.MISSING, "", topic, partition, start, end if end > start + 1 else None)
            words = f"{finding.place}: neither a row nor a dead letter"
            yield Finding(Kind.MISSING, words, topic, partition, start, finding.end)


def _at(kind: Kind, topic: str, partition: int, offset: int, words: str) -> Finding:
    return Finding(kind, f"topic {topic}, partition {partition}, offset {offset}: {words}", topic, partition, offset)
