"""Avro bodies to columns, with one schema for all.

Bodies are without wire-format header and container (Avro specification 1.12, "Binary Encoding").

There are two passes: a compiled walk checks every byte and records where each value is; then each column is made at
once. A record found faulty in the second pass is left out, and both passes are repeated without it, so that nothing of
it is in any column, its array elements included.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from pyiceberg.types import StructType

from frazil.decode.avro.code import RECORDS, SCRATCH, Plan
from frazil.decode.avro.columns import Valid, WalkResult, make_array
from frazil.decode.avro.numbers import FAULTS, NO_BRANCH, OK
from frazil.decode.avro.plan import plan_columns
from frazil.decode.avro.scan import I64, U8, walk_records
from frazil.decode.avro.schema import Avro, parse_avro
from frazil.decode.columns import Bodies, Columns, Fault
from frazil.decode.limits import check_cells, may_guess
from frazil.decode.messages import OWN_FORMS, Forms
from frazil.error_classes import ErrorClass
from frazil.registry.port import UnusableSchema

_SPARE_ROWS = 64
_MAX_WORDS = 2**24
_FAULTS = (*FAULTS, Fault(ErrorClass.TOMBSTONE, "the value is Avro's null (a tombstone), so it is not a row"))
_NO_VALUE = len(_FAULTS)


@functools.lru_cache(maxsize=512)
def avro_reader(schema: str, references: tuple[str, ...] = (), forms: Forms = OWN_FORMS) -> AvroReader:
    """Returns the reader of records written with `schema`, the JSON text of an Avro schema; cached.

    references: texts of schemas whose named types it uses, each after those that it uses itself. forms: of values that
    are read in another form than their schema's own.

    Raises: UnusableSchema for a text that is no Avro schema or exceeds a limit: 1 MiB of text, 64 levels, 2,000 fields.
    """
    avro, branch = _without_null(parse_avro(schema, references))
    names = frozenset((avro.name, *avro.aliases)) if avro.kind == "record" else None
    return AvroReader(plan_columns(avro, forms), names, branch)


def _without_null(avro: Avro) -> tuple[Avro, int | None]:
    """Returns the record in a union of null and a record, with the number of its branch: Kafka Connect's converters write
    a struct that is optional so, as that of a row which Debezium has unwrapped. Another type is returned unchanged.
    """
    kinds = [branch.kind for branch in avro.items] if avro.kind == "union" else []
    if sorted(kinds) != ["null", "record"]:
        return avro, None
    place = kinds.index("record")
    return avro.items[place], place


class AvroReader:
    """Reads bodies of one schema. Between calls it keeps only the number of array items of the records.

    names: the full names that their record has and had before; None where they are single values. branch: the number of
    the record in its union with null; None where it is in none.
    """

    def __init__(self, plan: Plan, names: frozenset[str] | None, branch: int | None = None) -> None:
        self.names = names
        self._branch = branch
        self._plan = plan
        self._items_per_byte = np.full(plan.widths.size, 1 / 64)

    @property
    def struct(self) -> StructType:
        """The Iceberg type of a record; all fields are optional and their ids are placeholders."""
        return self._plan.struct

    @property
    def aliases(self) -> Mapping[tuple[str, ...], tuple[str, ...]]:
        """The earlier names of fields, by path; `element` and `value` lead into lists and maps."""
        return self._plan.aliases

    @property
    def branches(self) -> Mapping[tuple[str, ...], str]:
        """The name that a union gives to the type of its value, by the value's path, except for records."""
        return self._plan.branches

    def read(self, records: Bodies) -> Columns:
        """Returns the columns; see `Reader`. Bodies may be in any order and have gaps between them, but must not
        overlap.
        """
        rows = len(records)
        fault, faulty_step = np.zeros(rows, np.uint8), np.zeros(rows, np.int64)
        if self._branch is not None:
            records = _without_branch(records, self._branch, fault)
        is_whole = fault != OK
        later: dict[int, str] = {}
        shown: dict[int, str] = {}
        while True:
            words = self._walk(records, fault, faulty_step)
            valid: Valid = fault == OK if fault.any() else None
            arrays = [make_array(words, part, valid) for part in self._plan.parts]
            if not words.fault_paths:
                break
            later |= words.fault_paths
            shown |= words.fault_values
        paths = {row: self._plan.paths[step] for row, step in _places(fault, faulty_step) if not is_whole[row]} | later
        return Columns(arrays, fault, _FAULTS, {row: path for row, path in paths.items() if path}, shown)

    def _walk(self, records: Bodies, fault: U8, faulty_step: I64) -> WalkResult:
        plan, rows = self._plan, len(records)
        length = max(0, int(np.subtract(records.end, records.start, dtype=np.int64).sum()))
        guess = np.minimum(self._items_per_byte * length * 1.25, _MAX_WORDS / max(1, int(plan.widths.sum())))
        capacity = guess.astype(np.int64) + _SPARE_ROWS
        capacity[RECORDS], capacity[SCRATCH] = rows, 0
        if not may_guess(int((capacity[plan.slots] + 1).sum())):
            capacity[:] = 0  # The numbers of earlier records do not apply: these are counted first.
        while True:
            capacity[RECORDS], capacity[SCRATCH] = rows, 0
            counts = np.zeros(capacity.size, np.int64)
            ends = np.cumsum(capacity[plan.slots] + 1)
            check_cells(int(ends[-1]))
            firsts = ends - (capacity[plan.slots] + 1)
            words = np.zeros(int(ends[-1]), np.int64)
            steps = plan.steps.copy()
            steps[:, 1] = firsts[steps[:, 1]]
            starts, stops = (records.base + at.astype(np.int64) for at in (records.start, records.end))
            walk_records(
                records.base, starts, stops, steps, plan.jumps, plan.slots, firsts, plan.widths, capacity, counts, words,
                fault, faulty_step,
            )  # fmt: skip
            counts[RECORDS] = rows
            if (counts[SCRATCH + 1 :] <= capacity[SCRATCH + 1 :]).all():
                self._items_per_byte = counts / max(length, 1)
                return WalkResult(plan, records, words, firsts, counts, fault)
            capacity = counts


def _without_branch(records: Bodies, branch: int, fault: U8) -> Bodies:
    """Returns the bodies without the number of their branch in a union of null and a record. Sets the fault of those that
    are null, and of those without such a number. branch: that of the record.
    """
    is_empty = records.end <= records.start
    first = np.full(len(records), 2 * branch, np.uint8)
    first[~is_empty] = records.buffer[records.start[~is_empty]]
    fault[first > 2] = fault[first == 1] = NO_BRANCH
    fault[first == 2 * (1 - branch)] = _NO_VALUE
    return replace(records, start=np.where(is_empty, records.start, records.start + 1).astype(np.int32))


def _places(fault: U8, faulty_step: I64) -> list[tuple[int, int]]:
    rows = np.flatnonzero(fault)
    return list(zip(rows.tolist(), faulty_step[rows].tolist(), strict=True))


__all__ = ["AvroReader", "UnusableSchema", "avro_reader"]
