"""The dead letters that one task writes for one table, while it reads: files that the commit of the batch will name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from frazil.dead_letters.record import dead_letter_rows, explain, first_mismatches, named_schemas
from frazil.decode.columns import Decoded, Mismatch
from frazil.decode.settings import Reading
from frazil.schema.arrow import Records, pick
from frazil.types import BadRecord, DataFile
from frazil.write.target import TableTarget
from frazil.write.write import FileWriter


class DeadLetterFiles:
    """Writes bad records to files of the dead-letter table; none before the first, and none where there is no table."""

    def __init__(self, target: TableTarget | None) -> None:
        """target: the dead-letter table; None where bad records are no dead letters."""
        self._target = target
        self._writer: FileWriter | None = None

    def write_refused(
        self, records: Records, decoded: Decoded, reading: Reading, read_again: Callable[[Records], Decoded]
    ) -> None:
        """Writes the refused ones of the records. read_again: reads bad records once more, with a mismatch for each."""
        if self._target is None or not decoded.refused.any():
            return
        rows = np.flatnonzero(decoded.refused)
        bad, known = pick(records, rows), first_mismatches(decoded)
        again = None if known.keys() >= set(rows.tolist()) else read_again(bad)
        mismatches = explain(rows.tolist(), known, again)
        self._write(dead_letter_rows(self._target, bad, mismatches, named_schemas(reading, bad)))

    def write_unread(self, topic: str, records: Mapping[str, pa.Array], named: Sequence[BadRecord]) -> None:
        """Writes records of a topic that are not read because they crash the task which reads them. named: each of them."""
        if self._target is None:
            return
        mismatches = [Mismatch(row, one.path, one.kind, one.reason) for row, one in enumerate(named)]
        columns = {"topic": pa.repeat(pa.scalar(topic), len(named)), **records}
        self._write(dead_letter_rows(self._target, columns, mismatches))

    def _write(self, rows: pa.Table) -> None:
        if self._writer is None:
            assert self._target is not None
            self._writer = FileWriter(self._target)
        self._writer.write(rows)

    def finish(self) -> tuple[DataFile, ...]:
        """Ends the files and returns them."""
        return tuple(self._writer.finish()) if self._writer is not None else ()

    def abandon(self) -> None:
        """Deletes the files of this attempt."""
        if self._writer is not None:
            self._writer.abandon()
