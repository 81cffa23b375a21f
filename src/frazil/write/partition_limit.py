"""The limit on the number of partitions that one batch may write: `limits.partitions`."""

from __future__ import annotations

import json
from collections.abc import Sequence

from frazil.errors import SpecError
from frazil.types import DataFile


class TooManyPartitions(SpecError):
    """a batch has rows of more partitions than the table may write at once
    see whether a clock of a producer is wrong; partition by something coarser, or raise `limits.partitions`
    """

    def __init__(self, table: str, most: int, some: tuple[str, ...] = ()) -> None:
        """some: names of partitions, as examples of how the rows are scattered."""
        among = f", {' and '.join(some)} among them" if some else ""
        super().__init__(f"a batch has rows of more than {most} partitions{among}", where=table)
        self.some = some


def exceeds(most: int, files: Sequence[DataFile]) -> bool:
    """Whether these files, of several tasks that each keep to the limit, have more than `most` partitions together."""
    return len(files) > most and len({json.dumps(json.loads(file.content)["partition"]) for file in files}) > most
