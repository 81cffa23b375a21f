"""Rows that no table could store: with times that no reader could show, or values that no partition is for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import DecimalType

from frazil.decode.columns import Decoded, Mismatch
from frazil.error_classes import ErrorClass
from frazil.rows.metadata_columns import refuse_far_times
from frazil.schema.arrow import Rows, arrow_type
from frazil.stages.changes import Changes, ReadRecords
from frazil.write.cluster import arrangement_of
from frazil.write.target import TableTarget


@dataclass(frozen=True)
class Floor:
    """The smallest value of a decimal column that a partition field `truncate` has a value of the column's type for.

    Truncation is towards minus infinity and keeps the type (Iceberg spec, "Truncate Transform Details"), so a value at the
    end of the type's digits may get one digit more, which no manifest can have.
    """

    #: The path of the column, names joined by dots.
    name: str
    #: The column at the top that it is in, and the positions of the nested fields from there.
    top: str
    inside: tuple[int, ...]
    kind: DecimalType
    width: int

    @property
    def value(self) -> Decimal:
        """The smallest value."""
        return Decimal((1, tuple(map(int, str(self._most - self._most % self.width))), -self.kind.scale))

    @property
    def is_needed(self) -> bool:
        """Whether the column may have smaller values."""
        return self._most % self.width > 0

    @property
    def _most(self) -> int:
        most: int = 10**self.kind.precision - 1
        return most


@lru_cache(maxsize=512)
def partition_floors(target: TableTarget) -> tuple[Floor, ...]:
    """Returns the floors of the table's partition spec, for columns that may have smaller values."""
    floors, schema = [], target.schema
    for field, source in zip(target.partitioning.fields, arrangement_of(target).fields, strict=True):
        name, _, number = source.transform.rstrip("]").partition("[")
        if name == "truncate" and isinstance(source.kind, DecimalType):
            top, *inside = source.path
            path = schema.find_column_name(field.source_id) or ""
            floor = Floor(path, schema.fields[top].name, tuple(inside), source.kind, int(number))
            floors += [floor] if floor.is_needed else []
    return tuple(floors)


def refuse_unstorable(target: TableTarget, read: ReadRecords, changes: Changes) -> Changes:
    """Returns the changes with the records refused that have a timestamp outside the years 1 to 9999, where the table has a
    column for it, or that make a row for which a partition field has no value.
    """
    decoded = refuse_far_times(target, read.columns, changes.decoded, read.limit)
    fields = {field.name: n for n, field in enumerate(target.fields)}
    for floor in partition_floors(target):
        n = fields.get(floor.top, len(changes.columns))
        # Other types: the columns of the records, while the table's query has yet to be known.
        if n < len(changes.columns) and changes.columns[n].type == arrow_type(target.fields[n].field_type):
            column = changes.columns[n]
            values = pc.struct_field(column, list(floor.inside)) if floor.inside else column
            decoded = _refuse(decoded, floor, values, changes.records, read.limit)
    return changes if decoded is changes.decoded else replace(changes, decoded=decoded)


def _refuse(decoded: Decoded, floor: Floor, values: pa.Array, records: Rows, limit: int) -> Decoded:
    is_low = np.asarray(pc.fill_null(pc.less(values, pa.scalar(floor.value, values.type)), False))
    if not is_low.any():
        return decoded
    refused = np.zeros(decoded.refused.size, np.bool_)
    mismatches: list[Mismatch] = []
    for row in np.flatnonzero(is_low).tolist():
        record = int(records[row])
        if not (refused[record] or decoded.refused[record]) and len(mismatches) < limit:
            reason = f"truncate({floor.name}, {floor.width}) of {values[row].as_py():f} does not fit {floor.kind}"
            mismatches.append(Mismatch(record, floor.name, ErrorClass.OUT_OF_RANGE, reason))
        refused[record] = True
    return decoded.refusing(refused, mismatches, limit)
