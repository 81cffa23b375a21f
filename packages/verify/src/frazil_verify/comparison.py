"""Compares the rows of two tables, as Spark reads them.

The sums over all rows of each side, of a hash of 64 bits, show that both have the same rows, each as often: no row has to
be kept or sent for it. Only where the sums differ are the rows grouped, each by all its values, and it is this that
decides. Rows that differ, and have equal sums all the same, are as likely as one in 2**64.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from frazil.api.results import Difference
from frazil.catalog.iceberg.java import cause_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_COPIES, _ROW = "__copies", "__row"
_SHOWN = 5
_TASKS = "spark.sql.shuffle.partitions"
_ROWS_PER_TASK = 50_000
"""Of both sides: Spark's usual 200 tasks take seconds where there are few rows."""


class NotComparable(Exception):
    """Why rows cannot be compared."""


def with_sorted(rows: DataFrame, lists: Set[str]) -> DataFrame:
    """Returns the rows with the elements of these lists in ascending order; a column that is not there is left out."""
    from pyspark.sql import functions as f  # noqa: PLC0415  (as in `compare`)

    for name in lists & {*rows.columns}:
        rows = rows.withColumn(name, f.sort_array(f.col(f"`{name}`")))
    return rows


def compare(table: DataFrame, wanted: DataFrame) -> Difference:
    """Compares rows by the names of their columns; a column that only one side has is null on the other.

    Raises: NotComparable where a task fails.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415  (a third of a second that other commands need not pay)

    both = table.withColumn(_COPIES, f.lit(1)).unionByName(
        wanted.withColumn(_COPIES, f.lit(-1)), allowMissingColumns=True
    )
    for field in both.schema.fields:  # Spark groups no rows by a map; both sides have the order of the record.
        if "map<" in field.dataType.simpleString():
            both = both.withColumn(field.name, f.to_json(f.struct(f.col(f"`{field.name}`"))))
    conf = table.sparkSession.conf
    try:
        count = _count_of_equal(both)
    except (PySparkException, Py4JJavaError) as error:
        raise NotComparable(f"Spark cannot compare its rows: {cause_of(error)}") from None
    if count is not None:
        return Difference(count, 0, 0, (), ())
    columns = [f.col(f"`{name}`") for name in both.columns if name != _COPIES]
    # Not by each column: Spark's planner overflows its stack at some thousands of them.
    both = both.select(f.struct(*columns).alias(_ROW), f.col(_COPIES))
    differing = both.groupBy(_ROW).agg(f.sum(_COPIES).alias(_COPIES)).where(f.col(_COPIES) != 0)
    rows = differing.select(f.to_json(_ROW).alias("row"), f.col(_COPIES).alias("copies"))
    most_tasks = str(conf.get(_TASKS))
    try:
        count = table.count()
        conf.set(_TASKS, str(min(1 + (count + wanted.count()) // _ROWS_PER_TASK, int(most_tasks))))
        rows = rows.persist()
        (sums,) = rows.agg(
            f.sum(f.greatest(-f.col("copies"), f.lit(0))), f.sum(f.greatest("copies", f.lit(0)))
        ).collect()
        missing, surplus = (
            tuple(row.row for row in rows.where(condition).limit(_SHOWN).collect())
            for condition in ("copies < 0", "copies > 0")
        )
        return Difference(count, int(sums[0] or 0), int(sums[1] or 0), missing, surplus)
    except (PySparkException, Py4JJavaError) as error:
        raise NotComparable(f"Spark cannot compare its rows: {cause_of(error)}") from None
    finally:
        rows.unpersist()
        conf.set(_TASKS, most_tasks)


def _count_of_equal(both: DataFrame) -> int | None:
    """Returns how many rows each side has, where the sums over both are equal; None where they differ, or values in lists
    are to be compared: a hash skips their nulls.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415  (as in `compare`)

    values = [*_values(both.drop(_COPIES).schema)]
    if any(value is None for value in values):
        return None
    # A hash skips nulls, so that a value and a null that change places would be equal without the marks.
    marked = [part for value in values if value is not None for part in (value.isNull(), value)]
    hashed = both.select(_COPIES, f.xxhash64(*marked).alias(_ROW))
    # Halves: the sum of whole hashes would overflow.
    halves = (f.shiftrightunsigned(_ROW, 32), f.col(_ROW).bitwiseAND(0xFFFFFFFF))
    sums = hashed.groupBy(_COPIES).agg(f.count(f.lit(1)), *map(f.sum, halves)).collect()
    ours, wanted = ([tuple(row)[1:] for row in sums if row[_COPIES] == side] for side in (1, -1))
    return (ours[0][0] if ours else 0) if ours == wanted else None


def _values(schema: StructType, path: str = "") -> Iterator[Column | None]:
    """Yields the columns and the fields of structs, and whether each struct is there; None for a list."""
    from pyspark.sql import functions as f  # noqa: PLC0415  (as in `compare`)
    from pyspark.sql.types import ArrayType, StructType  # noqa: PLC0415

    for field in schema.fields:
        name = f"{path}`{field.name.replace('`', '``')}`"
        if isinstance(field.dataType, StructType):
            yield f.col(name).isNull()
            yield from _values(field.dataType, f"{name}.")
        else:
            yield None if isinstance(field.dataType, ArrayType) else f.col(name)
