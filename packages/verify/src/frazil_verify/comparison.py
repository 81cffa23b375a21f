"""Compares the rows of two tables, as Spark reads them."""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from frazil.api.results import Difference
from frazil.catalog.iceberg.java import cause_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
    columns = [f.col(f"`{name}`") for name in both.columns if name != _COPIES]
    # Not by each column: Spark's planner overflows its stack at some thousands of them.
    both = both.select(f.struct(*columns).alias(_ROW), f.col(_COPIES))
    differing = both.groupBy(_ROW).agg(f.sum(_COPIES).alias(_COPIES)).where(f.col(_COPIES) != 0)
    rows = differing.select(f.to_json(_ROW).alias("row"), f.col(_COPIES).alias("copies"))
    conf = table.sparkSession.conf
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
