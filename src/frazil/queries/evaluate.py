"""Evaluates a query's program on the columns of a batch, with Spark's results: values, nulls, and failures by row.

An expression is evaluated once for all rows, its failures with it; what a row does not reach (the other branch of a CASE)
cannot make it fail. Equal expressions of an operator are evaluated once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from typing import Literal as Choice

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from frazil.decode.columns import shortened
from frazil.decode.values_as_json import json_text
from frazil.error_classes import ErrorClass
from frazil.errors import InvariantError
from frazil.queries.kernels.conditions import Failed, as_column, merge_failed
from frazil.queries.kernels.table import kernel_of
from frazil.queries.kernels.values import (
    ERRORS,
    Bools,
    Column,
    Kernel,
    Result,
    as_array,
    is_constant,
    is_there,
    literal_places,
    numbers,
)
from frazil.queries.program import (
    Call,
    Explode,
    Expression,
    Field,
    Filter,
    Literal,
    Lookup,
    Program,
    Project,
    Windows,
    shown_arguments,
)
from frazil.queries.references import Reference
from frazil.queries.windows import NO_TIME, spread_bounds, windows_of
from frazil.schema.arrow import as_written

OnError = Choice["dead_letter", "null"]
EXPLODED = "explode"
"""The name under which records are counted whose array has no element."""
LOOKUP_MISS = "LOOKUP_MISS"
"""The error class of a record for which a reference table has no row."""
LOOKUP_WAITING = "LOOKUP_WAITING"
"""The error class of a record that waits for a row of a reference table."""


@dataclass(frozen=True)
class Failure:
    """The reason why a record has no row."""

    #: The record's place in the batch.
    row: int
    #: The column of the result, or of the operator, whose value cannot be had; the name of a filter.
    column: str
    #: Spark's error class, such as CAST_INVALID_INPUT, LOOKUP_MISS, LOOKUP_WAITING, or what a Python function has raised.
    error_class: str
    #: The expression as Spark prints it.
    expression: str
    #: The arguments' values as JSON, shortened.
    values: tuple[str, ...]

    @property
    def verdict(self) -> tuple[ErrorClass, str]:
        """The class of the bad record, and why it is one."""
        values = ", ".join(self.values)
        if self.error_class == NO_TIME:
            reason = f"the time of {self.expression} is {values or 'null'}, and no window has it"
            return ErrorClass.NO_EVENT_TIME, reason
        if self.error_class == LOOKUP_MISS:
            return ErrorClass.LOOKUP_MISS, f"the reference table has no row for {self.expression} of {values}"
        if self.error_class == LOOKUP_WAITING:
            return ErrorClass.LOOKUP_WAITING, f"the reference table has no row for {self.expression} of {values} yet"
        reason = f"{self.error_class}: {self.expression}{' of ' if values else ''}{values}"
        return ErrorClass.FAILED_EXPRESSION, reason


@dataclass(frozen=True)
class Processed:
    """The rows that a program makes of a batch of records."""

    #: One array for each column of the program's output, of its type.
    columns: list[pa.Array]
    #: The record of each row: int64 of shape (n_rows,), ascending.
    parents: NDArray[np.int64]
    #: Which records failed: bool of shape (n_records,). None of their rows is in `columns`.
    failed: Bools
    #: The first failure of each of these records, in their order.
    failures: list[Failure]
    #: Which records have no row for another reason: by the name of the filter that dropped the last of their rows, or
    #: EXPLODED, bool of shape (n_records,). Together with `failed` and the records in `parents` they are all records.
    dropped: dict[str, Bools]


def evaluate(
    program: Program,
    columns: Mapping[str, pa.Array],
    rows: int,
    on_error: OnError = "dead_letter",
    references: Mapping[str, Reference] = MappingProxyType({}),
) -> Processed:
    """Returns the rows that a program makes of `rows` records. on_error: whether a record with a failing expression is
    refused, or the expression's column becomes null (a filter's condition too, which drops the record). references: what
    each lookup of the program joins.

    Raises: InvariantError for a program that `reason` refuses.
    """
    run = _Run(dict(columns), np.arange(rows, dtype=np.int64), np.zeros(rows, np.bool_), on_error)
    for operator in program.operators:
        if isinstance(operator, Filter):
            run.filter(operator)
        elif isinstance(operator, Project):
            run.project(operator)
        elif isinstance(operator, Lookup):
            run.look_up(operator, references[operator.name])
        elif isinstance(operator, Windows):
            run.put_into_windows(operator)
        else:
            run.explode(operator)
    values = [as_written(run.columns[field.name], field.type) for field in program.output]
    failures = sorted(run.failures, key=lambda failure: failure.row)
    return Processed(values, run.parents, run.failed, failures, run.dropped)


@dataclass
class _Run:
    """The state between two operators."""

    columns: dict[str, pa.Array]
    #: The record of each row.
    parents: NDArray[np.int64]
    failed: Bools
    on_error: OnError
    failures: list[Failure] = field(default_factory=list)
    dropped: dict[str, Bools] = field(default_factory=dict)

    def filter(self, operator: Filter) -> None:
        batch = _Batch(self.columns, self.parents.size)
        condition = batch.column(operator.condition)
        flags = as_array(condition.values, self.parents.size)
        kept = np.asarray(flags.fill_null(False) if flags.null_count else flags)
        bad = self._refuse(batch, [(operator.name, condition)])
        self._keep(kept, bad, operator.name)

    def project(self, operator: Project) -> None:
        rows = self.parents.size
        batch = _Batch(self.columns, rows)
        columns = [(name, batch.column(expression)) for name, expression in operator.columns]
        bad = self._refuse(batch, columns)
        self.columns = {name: as_array(column.values, rows) for name, column in columns}
        self._keep(np.ones(rows, np.bool_), bad, "")

    def explode(self, operator: Explode) -> None:
        batch = _Batch(self.columns, self.parents.size)
        array = batch.column(operator.array)
        bad = self._refuse(batch, [(operator.name, array)])
        lists = as_array(array.values, self.parents.size)
        lengths = np.asarray(lists.value_lengths().fill_null(0)).astype(np.int64)
        counts = np.minimum(lengths, 1) if operator.is_of_first else lengths
        counts = np.maximum(counts, 1) if operator.is_outer else counts
        owner = np.repeat(np.arange(lengths.size), counts)
        position = np.arange(owner.size) - np.repeat(np.cumsum(counts) - counts, counts)
        starts = np.asarray(lists.offsets)[:-1].astype(np.int64) if lengths.size else lengths
        is_padding = lengths[owner] == 0
        places = pa.array(np.where(is_padding, 0, starts[owner] + position), mask=is_padding)
        exploded = {operator.name: lists.values.take(places)}
        if operator.position:
            exploded[operator.position] = pa.array(position.astype(np.int32), mask=is_padding)
        self._count(EXPLODED, self.parents[counts == 0], self.parents[owner], bad)
        self.columns = {name: column.take(pa.array(owner)) for name, column in self.columns.items()} | exploded
        self.parents = self.parents[owner]
        self._keep(np.ones(owner.size, np.bool_), bad, "")

    def look_up(self, operator: Lookup, reference: Reference) -> None:
        batch = _Batch(self.columns, self.parents.size)
        keys = [(operator.name, batch.column(key)) for key in operator.keys]
        is_refused = self._refuse(batch, keys)
        values_of_keys = [as_array(column.values, self.parents.size) for _, column in keys]
        rows, values = reference.find(values_of_keys)
        self.columns = {**self.columns, operator.name: as_written(values, operator.type)}
        is_miss = rows < 0
        if operator.is_patient:  # No row will ever have a key that is null.
            may_come = is_miss & np.logical_and.reduce([np.asarray(column.is_valid()) for column in values_of_keys])
            is_refused |= self._refuse_misses(operator, batch, may_come, LOOKUP_WAITING)
            is_miss &= ~may_come
        if operator.on_miss == "dead_letter":
            is_refused |= self._refuse_misses(operator, batch, is_miss, LOOKUP_MISS)
        is_kept = ~is_miss if operator.on_miss == "drop" else np.ones(is_miss.size, np.bool_)
        self._keep(is_kept, is_refused, operator.dropped_as)

    def _refuse_misses(self, operator: Lookup, batch: _Batch, is_miss: Bools, error_class: str) -> bool:
        """Refuses the records of rows that the reference table has no row for; returns whether there are any."""
        for row in np.flatnonzero(is_miss & ~self.failed[self.parents]).tolist():
            key = tuple(batch.text_of(key_expression, row) for key_expression in operator.keys)
            self.failures.append(Failure(int(self.parents[row]), operator.name, error_class, operator.sql, key))
        self.failed[self.parents[is_miss]] = True
        return bool(is_miss.any())

    def put_into_windows(self, operator: Windows) -> None:
        times = self.columns[operator.time.name]
        owner, bounds = windows_of(operator, times)
        has_none = np.bincount(owner, minlength=self.parents.size) == 0
        if self.on_error == "null":  # Keys of rows that are deleted: null in the bounds.
            owner = np.sort(np.r_[owner, np.flatnonzero(has_none)])
            bounds = spread_bounds(bounds, ~has_none[owner])
            has_none[:] = False
        for row in np.flatnonzero(has_none & ~self.failed[self.parents]).tolist():
            value = (shortened(json_text(times[row])),) if times[row].is_valid else ()
            self.failures.append(
                Failure(int(self.parents[row]), operator.start or operator.end, NO_TIME, operator.sql, value)
            )
        self.failed[self.parents[has_none]] = True
        self.columns = {name: column.take(pa.array(owner)) for name, column in self.columns.items()} | bounds
        self.parents = self.parents[owner]
        self._keep(np.ones(owner.size, np.bool_), bool(has_none.any()), "")

    def _refuse(self, batch: _Batch, columns: Sequence[tuple[str, Column]]) -> bool:
        """Refuses the records of failed rows; returns whether there are any."""
        if self.on_error == "null" or all(column.failed is None for _, column in columns):
            return False
        first: Failed = None
        of_column = np.zeros(self.parents.size, np.int32)
        for n, (_, column) in enumerate(columns):
            if column.failed is not None:
                of_column[(column.failed != 0) & (of_column == 0)] = n + 1
            first = merge_failed(first, column.failed, None)
        rows = np.flatnonzero(of_column)
        for row in rows[np.unique(self.parents[rows], return_index=True)[1]].tolist():
            call, error = batch.sources[int(first[row]) - 1]  # type: ignore[index]
            values = tuple(batch.text_of(argument, row) for argument in shown_arguments(call))
            name = columns[of_column[row] - 1][0]
            number = int(first[row])  # type: ignore[index]
            of_constant = batch.reasons.get((number, 0)) if is_constant(call) else None
            reason = batch.reasons.get((number, row)) or of_constant or ERRORS[error]
            self.failures.append(Failure(int(self.parents[row]), name, reason, call.sql or call.function, values))
        self.failed[self.parents[rows]] = True
        return rows.size > 0

    def _keep(self, kept: Bools, is_refused: bool, name: str) -> None:
        """Keeps these rows of records that did not fail."""
        if is_refused:
            kept = kept & ~self.failed[self.parents]
        if kept.all():
            return
        left = self.parents[kept]
        if name:
            self._count(name, self.parents[~kept], left, is_refused)
        places = pa.array(np.flatnonzero(kept))
        self.columns = {name: column.take(places) for name, column in self.columns.items()}
        self.parents = left

    def _count(self, name: str, gone: NDArray[np.int64], left: NDArray[np.int64], is_refused: bool) -> None:
        """Counts the records that have no row any more, unless they failed."""
        mask = np.zeros(self.failed.size, np.bool_)
        mask[gone] = True
        mask[left] = False
        if is_refused:
            mask &= ~self.failed
        self.dropped[name] = self.dropped[name] | mask if name in self.dropped else mask


class _Batch:
    """The expressions of one operator on its rows, each evaluated once."""

    def __init__(self, columns: Mapping[str, pa.Array], rows: int) -> None:
        self._columns = columns
        self._rows = rows
        self._columns_of: dict[Any, Column] = {}
        #: The call of each failure, and its error code: failures are counted from 1.
        self.sources: list[tuple[Call, int]] = []
        #: By failure and row, what a Python function has raised.
        self.reasons: dict[tuple[int, int], str] = {}

    def column(self, expression: Expression) -> Column:
        """Returns the values of an expression."""
        if isinstance(expression, Field):
            return Column(self._columns[expression.name])
        if isinstance(expression, Literal):
            return Column(pa.scalar(expression.value, expression.type))
        key = _key(expression)
        if key not in self._columns_of:
            self._columns_of[key] = self._call(expression)
        return self._columns_of[key]

    def text_of(self, expression: Expression, row: int) -> str:
        """Returns the value of an expression that was evaluated, as a message quotes it."""
        values = self.column(expression).values
        return shortened(json_text(values[row] if isinstance(values, pa.Array) else values))

    def _call(self, call: Call) -> Column:
        kernel = kernel_of(call)
        if kernel is None:
            raise InvariantError(f"an expression is outside the table of proven functions: expression={call.sql}")
        arguments = [self.column(argument) for argument in call.arguments]
        is_one = bool(arguments) and all(isinstance(argument.values, pa.Scalar) for argument in arguments)
        rows = 1 if is_one else self._rows
        if is_one:
            literals = literal_places(kernel, call)
            arguments = [
                argument if place in literals else Column(as_array(argument.values, 1))
                for place, argument in enumerate(arguments)
            ]
        column = kernel.choose(call, arguments, rows) if kernel.choose else self._strict(call, kernel, arguments, rows)
        return self._spread(column) if is_one else column

    def _spread(self, column: Column) -> Column:
        """Returns the column of an expression without fields, which was evaluated for one row."""
        if column.failed is None:
            return Column(as_array(column.values, 1)[0])
        return Column(pa.nulls(self._rows, column.values.type), np.full(self._rows, column.failed[0], np.int32))

    def _strict(self, call: Call, kernel: Kernel, arguments: Sequence[Column], rows: int) -> Column:
        """Evaluates a call of a function whose arguments Spark evaluates in turn, until one is null."""
        failed: Failed = None
        reached: Bools | None = None
        is_tried = dict(call.options).get("evalMode") == "TRY"
        for place in kernel.order or range(len(arguments)):
            argument = arguments[place]
            failed = merge_failed(failed, argument.failed, reached)
            if not kernel.is_eager and any(other.failed is not None for other in arguments):
                has_value = is_there(argument.values, rows)
                if kernel.order and place == kernel.order[0] and is_tried:  # Null, whatever is divided by zero.
                    has_value = has_value & np.broadcast_to(numbers(argument.values) != 0, (rows,))
                reached = has_value if reached is None else reached & has_value
        assert kernel.run is not None
        result = kernel.run(call, *(argument_column.values for argument_column in arguments))
        if isinstance(result, Result):
            if result.errors is not None and not is_tried:
                failed = merge_failed(failed, self._numbered(call, result.errors, result.reasons), None)
            result = result.values
        return as_column(result, failed, rows)

    def _numbered(self, call: Call, errors: NDArray[np.uint8], reasons: Mapping[int, str]) -> NDArray[np.int32]:
        """Returns the failures' numbers for a kernel's error codes."""
        numbered = np.zeros(errors.size, np.int32)
        for error in np.unique(errors).tolist():
            if error:
                self.sources.append((call, error))
                numbered[errors == error] = len(self.sources)
        self.reasons |= {(int(numbered[row]), row): shortened(reason) for row, reason in reasons.items()}
        return numbered


def _key(expression: Expression) -> Any:
    """Returns what equal expressions have in common, whatever their text; 0.0 and -0.0 differ."""
    if isinstance(expression, Literal):
        return repr(expression.value), expression.type
    if isinstance(expression, Field):
        return expression.name
    return expression.function, expression.type, expression.options, *map(_key, expression.arguments)
