"""Partition pruning by key: where the key determines the partition, files of other partitions contain none of the keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import PartitionField
from pyiceberg.types import DateType, IcebergType, IntegerType, LongType, StringType

from frazil.catalog.scans import LiveFile
from frazil.upsert.lookup.live_rows import Path
from frazil.write.partition_values import partition_texts
from frazil.write.target import TableTarget
from frazil.write.transforms import transformed

_OF_ANY_TYPE = ("bucket", "year", "month", "day", "hour")
# Values of other types have several representations; a file with one such value has it as its bounds too.
_PLAIN = (IntegerType, LongType, StringType, DateType)


class KeyPartitions:
    """The partitions of keys by the table's current partition spec. A file with an older spec is never excluded."""

    def __init__(self, target: TableTarget, keys: Sequence[pa.Array], paths: Sequence[Path]) -> None:
        columns = [target.schema.find_field(".".join(path)) for path in paths]
        by_id = {column.field_id: (column.field_type, key) for column, key in zip(columns, keys, strict=True)}
        self._spec_id = target.spec_id
        self._count = len(target.partitioning.fields)
        self._places: list[tuple[int, str]] = []
        found: dict[str, tuple[str, IcebergType, pa.Array]] = {}
        for place, field in enumerate(target.partitioning.fields):
            kind, key = by_id.get(field.source_id, (None, None))
            if kind is not None and _is_prunable(field, kind):
                self._places.append((place, str(field.field_id)))
                found[str(place)] = (str(field.transform), kind, transformed(str(field.transform), key))
        self._wanted = _distinct(found)

    def may_have(self, file: LiveFile) -> bool:
        """Returns whether some key belongs to the file's partition."""
        described = file.description
        values = described["partition"]
        if not self._places or described["spec-id"] != self._spec_id:
            return True
        if isinstance(values, list):
            own = tuple(values[place] for place, _ in self._places) if len(values) == self._count else (None,)
        else:
            own = tuple(values.get(name) for _, name in self._places)
        return None in own or own in self._wanted


def _is_prunable(field: PartitionField, kind: IcebergType) -> bool:
    """Returns whether a partition value of this transform and type has exactly one representation."""
    word = str(field.transform).split("[", maxsplit=1)[0]
    return word in _OF_ANY_TYPE or (word in ("identity", "truncate") and isinstance(kind, _PLAIN))


def _distinct(found: dict[str, tuple[str, IcebergType, pa.Array]]) -> frozenset[tuple[Any, ...]]:
    """Returns the distinct partitions of the keys, in the representation of Iceberg's JSON."""
    if not found:
        return frozenset()
    values = pa.table({name: column for name, (_, _, column) in found.items()})
    once = values.group_by(values.column_names).aggregate([]).combine_chunks()
    words = [
        [word for word, _ in partition_texts(transform, kind, pa.concat_arrays(once[name].chunks))]
        for name, (transform, kind, _) in found.items()
    ]
    return frozenset(zip(*words, strict=True))
